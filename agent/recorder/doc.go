// Package recorder folds every sighting of every source into one view per
// peer, and decides when a peer is there, unreachable, or gone.
//
// A sighting is a hint. A peer counts only once its endpoint has proved, over
// TLS, to hold the key that was advertised and to have the cluster ID that was
// claimed; the recorder asks for that check, repeats it every check interval,
// and never takes silence alone for absence: a peer goes when it says goodbye,
// when two independent signs agree (its records ended and its endpoint does
// not answer), or when three checks in a row fail.
//
// One key belongs to one cluster ID. Whoever else shows a known ID with
// another key is reported as a conflict and changes nothing.
//
// The package must not open sockets, read configuration or talk to an API
// server: checks, storage and notifications are handed in.
//
// Goroutines: Run owns all peers. A fixed number of checkers perform the
// checks it hands out, one writer stores changes. Readers get immutable
// snapshots.
package recorder
