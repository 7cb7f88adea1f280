// Package responder is a complete multicast DNS responder (RFC 6762) for one
// DNS-SD service instance (RFC 6763) and the host it runs on, as a pure state
// machine: decoded messages and the time go in, messages to send come out.
//
// A link and an IP version make one conversation (RFC 6762 section 20), and each
// conversation goes through its own life: the host name and the instance name are
// probed for (section 8.1), announced (8.3), defended (9), and bidden goodbye
// (10.1). Names are the same everywhere, so a name lost in one conversation is
// changed in all. Records are per link: an address is only ever told on the link
// it belongs to.
//
// What a responder may say is bounded by what it has to say: answers waiting to
// be sent are at most its own records once per conversation, a record is
// multicast at most once a second, and queries only ever wait in tables of
// fixed size. What does not fit is dropped by a named reason.
//
// Records are built by github.com/hashicorp/mdns and then corrected (see newZone);
// nothing else of that package is used.
//
// Reverse address mappings (names below in-addr.arpa and ip6.arpa) are not
// answered, on purpose. An address has one reverse name, and on most hosts
// another responder, avahi-daemon or systemd-resolved, already claims it for the
// host's own name; a second answer is a conflict by section 9 and would make that
// responder change the name of the host.
//
// The package does no I/O, reads no clock, starts no goroutine and takes no lock:
// one goroutine owns a Responder. It must not learn about sockets or interfaces,
// and it never looks up a name.
package responder
