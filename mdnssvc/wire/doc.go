// Package wire turns bytes from the network into DNS messages and back, with
// the rules multicast DNS puts on top of DNS (RFC 6762 section 18), and knows
// how DNS-SD writes instance names and TXT records (RFC 6763 sections 4 and 6).
//
// Messages are values of github.com/miekg/dns. Names and character strings in
// them are in that library's presentation form: a dot inside a label is `\.`, a
// space `\ `, a byte outside printable ASCII `\DDD`. Everything this package
// returns uses exactly the form Decode produces, so that equal names are equal
// strings but for the case of letters, which Key folds.
//
// What comes in is hostile. Decode never panics, does work in proportion to the
// packet, and refuses a packet whose compressed names would unfold into
// disproportionate memory; what it refuses, it refuses whole and by a named
// DropReason. It hands only the record types mDNS uses to the DNS library's
// parsers; all others stay opaque bytes.
//
// The package does no I/O, starts no goroutine and keeps no state. It must not
// learn about sockets, time or what a message means to a responder or browser.
package wire
