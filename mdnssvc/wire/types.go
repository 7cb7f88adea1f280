package wire

import (
	"net/netip"

	"github.com/miekg/dns"
)

// MaxPacket is the largest mDNS message in bytes, headers of IP and UDP
// included by the RFC and generously not subtracted here (RFC 6762 section 17).
const MaxPacket = 9000

// Port is the UDP port of multicast DNS (RFC 6762 section 3). A query from any
// other source port is a legacy one (section 6.7); a response from any other
// source port is ignored (section 6).
const Port = 5353

// TopBit is the top bit of a record's class, which says "flush older records
// of this name and type from the cache" (RFC 6762 section 10.2), and of a
// question's class, which says "answer by unicast, please" (section 5.4).
// Decode leaves it in place and Encode writes it as it stands.
const TopBit uint16 = 1 << 15

// Class returns a record's or question's class without TopBit.
func Class(class uint16) uint16 { return class &^ TopBit }

// DropReason names why a received packet, or a part of it, was ignored. Every
// package below mdnssvc shares the type, so that one set of counters shows all
// of them; reasons are lower case words joined by hyphens. The zero value means
// that nothing was dropped.
type DropReason string

// What Decode refuses. Receivers add reasons of their own.
const (
	DropTooLarge  DropReason = "too-large"        // more than MaxPacket bytes
	DropShort     DropReason = "short"            // less than a DNS header
	DropMalformed DropReason = "malformed"        // some record does not parse or a section is cut off
	DropLoop      DropReason = "compression-loop" // a compression pointer that does not point backwards
	DropExpansion DropReason = "expansion"        // compression that unfolds to a disproportionate size
	DropOpcode    DropReason = "opcode"           // RFC 6762 section 18.3
	DropRcode     DropReason = "rcode"            // RFC 6762 section 18.11
	DropEmpty     DropReason = "empty"            // neither a question nor a record
)

// Family is the IP version a packet travelled by, or is to travel by. mDNS over
// IPv4 and over IPv6 on one link are two separate conversations (RFC 6762
// section 20).
type Family uint8

// The two families. Their values index arrays of length 2.
const (
	IPv4 Family = iota
	IPv6
)

// String returns "ipv4" or "ipv6".
func (f Family) String() string {
	if f == IPv6 {
		return "ipv6"
	}
	return "ipv4"
}

// FamilyOf returns the family of an address; IPv4-mapped IPv6 addresses count
// as IPv4.
func FamilyOf(a netip.Addr) Family {
	if a.Is4() || a.Is4In6() {
		return IPv4
	}
	return IPv6
}

// Packet is one message to send. It may exceed what fits one datagram of the
// link; the sender splits it with EncodeAll.
type Packet struct {
	Msg     *dns.Msg
	Link    int            // interface index
	Family  Family         // which group to send to when Unicast is zero
	Unicast netip.AddrPort // destination; the zero value means the multicast group
}

// Received is one decoded message and what the socket told about it.
type Received struct {
	Msg         *dns.Msg
	Link        int            // interface index it came in on
	Family      Family         // IP version it came by
	From        netip.AddrPort // source; From.Port() != Port makes a query a legacy one
	ToMulticast bool           // the destination was the multicast group
	Self        bool           // From is an address of this host on that link, port 5353: our own packet looped back, or another responder on this host
}
