// Package browser finds the instances of one DNS-SD service type on the local
// links: a multicast DNS querier with a cache (RFC 6762 sections 5, 7 and 10,
// RFC 6763 sections 4 to 6) as a pure state machine. It is told the time, the
// links and every received message; it returns messages to send and events
// (an instance was found, changed, or was lost). Randomness comes from its
// Config, so a run can be repeated exactly.
//
// It performs no I/O, starts no goroutine and takes no lock: one goroutine owns
// a Browser. It knows nothing about what a service means; it must not trust
// anything it hears beyond what the RFCs make of it.
//
// # How the files share the work
//
//	browser.go   the public face: links, switching on and off, timers, events
//	link.go      one link: its query schedule (5.2) and what is to be asked
//	receive.go   responses into the cache, in work proportional to the packet
//	observe.go   queries of other hosts: 7.3 suppression, 10.5 failures
//	query.go     messages: known answers (7.1), questions gathered into packets
//	cache.go     one record's life: TTL, goodbye, flush, refresh times
//	instance.go  PTR, SRV and TXT of one instance, and its events
//	host.go      addresses of one host, shared by the instances on it
//	reconfirm.go asking again for what may be gone (10.4)
//	evict.go     who has to leave when the cache is full, whose turn it is to be asked for
//	heap.go      the deadlines of everything
//
// The cache holds only what an instance needs: records nobody asked for, or
// that belong to no instance, are not kept and so never refreshed.
//
// # Why only QM questions
//
// Port 5353 is shared with other responders on this host (avahi-daemon,
// systemd-resolved). A unicast answer to a QU question is delivered to one of
// the sockets bound to the port, and not necessarily to ours (RFC 6762 section
// 15.1), so every question asks for a multicast answer; and since no unicast
// answer was asked for, none is accepted (section 6).
//
// # Two families on one link
//
// Every scheduled query goes out by each family in use, because some neighbours
// have only one. They are one conversation here: one cache per link, and the
// second family's query follows the first's after a moment that leaves time for
// answers, so that a neighbour with both finds itself among the known answers
// and stays silent.
package browser
