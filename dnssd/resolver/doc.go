// Package resolver is the DNS client of the agent: it asks one question at a time, to the end of
// its aliases, and says how much the answer is worth. It is a stub resolver (RFC 1034 section
// 5.3.1) that is built for lists of clusters: "there is none" and "nobody could tell" are never
// mixed up, see [Outcome].
//
// # Whom it asks
//
// The name servers of resolv.conf, without its search domains: all names are absolute. Or the
// server that a person configured, by UDP and TCP, or by TLS (RFC 7858). Such a server may be
// one that answers for its own zones only: what it refuses, or refers elsewhere, is asked of the
// name servers of resolv.conf, see [Config.Domain]. A server that does not answer, cannot be reached,
// or does not know is followed by the next; the next look-ups begin with the one that knew.
//
// # What it believes
//
// Of an answer only the records that were asked for, and the aliases that lead to them, are kept. An
// answer that contradicts itself is a [BadAnswer]. Package wire has what it takes to be an answer at all.
//
// Whether the server validated the answer (AD, RFC 6840 section 5.7) is asked for and reported;
// the package does not validate DNSSEC signatures itself.
//
// # What it must not do
//
// It keeps no answers: the caller knows for how long they hold, and asks again. It knows nothing of
// DNS-SD, and it never logs at a level above debug: what went wrong is in the answer.
//
// # Goroutines
//
// A look-up runs on its caller's goroutine. Those of the connections are package wire's; [Resolver.Close] ends them.
package resolver
