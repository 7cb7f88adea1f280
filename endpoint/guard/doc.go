// Package guard decides which connections the endpoint lets in, keeps track of them, and
// counts what was not served.
//
// Strangers share all places but a quarter. A newcomer to a full server takes the place
// of who sits without a request for longest or holds most, and never that of a known
// cluster's connection, unless these have left strangers next to nothing. What comes in
// before the first request, and the processors that handshakes may use, are bounded.
//
// # What this package must not do
//
// It reads no request, and does not know who is known: it is told (Guard.Rank).
//
// # Goroutines
//
// None of its own: those of net/http, one for each connection, call it.
package guard
