// Package wire is what the endpoints of two clusters say to each other: the paths,
// the bodies of requests and answers, the words for reasons, and the version of the
// protocol.
//
// What a peer answers is hostile until it has been parsed: the Parse functions bound
// it, refuse what is not one of the known decisions, and make its sentences printable. JSON in which an object has a name twice is not read at all.
//
// # What this package must not do
//
// It opens no connection and knows nothing of HTTP: whoever decides about peerings can
// use its types and stay free of the network.
//
// # Goroutines
//
// None.
package wire
