// Package crowd simulates many neighbours on one link of the bed, for tests and
// benchmarks at sizes for which real agents would not fit one machine. Every
// simulated box has its own address, its own DNS-SD instance, answers queries
// as RFC 6762 asks a responder to (own packet, random delay of 20 to 120 ms,
// known-answer suppression, truncated queries), and, if wanted, serves GET /ids
// over real TLS with its own key.
//
// It takes the place of boxes only. Whatever is being measured is the real
// thing.
//
// Goroutines: [Crowd.Run] starts one that reads the socket and one that sends
// answers when they are due; the endpoints have those of net/http.
package crowd
