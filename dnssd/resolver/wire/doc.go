// Package wire sends DNS questions and receives their answers, over UDP, TCP and TLS. It knows what is an answer to a
// question and what only pretends to be one; what an answer means is the business of package resolver, and which
// server is asked.
//
// # What it believes
//
// Every UDP question has a socket of its own, so that a forger has to guess its port and its ID, 32
// random bits; the socket is connected, so that the kernel drops what others send. An answer has to
// repeat ID, question, class and opcode; others are ignored, and when there are many the question is
// asked over TCP. The case of letters is not mixed ("0x20"): some servers answer in lower case or
// answer wrongly, and what is found is a hint that the endpoint of the cluster has to prove by TLS anyway.
// A message that ends before its last record or is truncated over TCP is malformed: what is missing
// from it would count as gone.
//
// # What is not its own
//
// Names, records, IDs and the framing over TCP are those of package dns. Its client is not used, because it would
// have us believe more, and wait longer: it takes the first datagram with our ID for the answer, whatever the
// question in it, and one that cannot be read for the end; it accepts a message with fewer records than
// its header says; it has one question at a time on a connection; and it ends at a deadline, but
// not when ctx is cancelled.
//
// # Goroutines
//
// An exchange runs on its caller's goroutine. Every TCP or TLS connection has a reader, which ends
// with the connection: after its one answer over TCP, when it was idle for ten seconds over TLS, and at
// the latest by [Transport.Close], which waits for it.
package wire
