// Package gapless is a connection below TLS, of the server and of the client alike, on
// which nothing follows a write that failed.
//
// A write that fails ends a connection for good, and with a reset. crypto/tls would
// still send its farewell behind the gap, as a record that the other end cannot
// decrypt: a peer that is slow would look like one that is tampered with. The server's
// deadlines are for others: a write that is late because this machine has too much to
// do goes out all the same, if there is room for it.
//
// # What this package must not do
//
// It knows nothing of what the bytes mean, and sets no deadline.
//
// # Goroutines
//
// None.
package gapless
