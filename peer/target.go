package peer

import (
	"net/netip"
	"slices"
)

// Target is whom to look for, and where.
type Target struct {
	// ID is the expected cluster ID; "" accepts any.
	ID ClusterID
	// Fingerprint is the expected key; zero accepts any, and learns it. A key that
	// shows to have succeeded the expected one is accepted in its place.
	Fingerprint Fingerprint
	// Places are tried first, in this order. Neither they nor Addrs may be changed
	// by others.
	Places []Place
	// Addrs are the addresses to try, the most promising first. Link-local IPv6
	// addresses need a zone, and are tried last. The slice is not changed, and must
	// not be by others.
	Addrs []netip.AddrPort
	// URL is https://host[:port], tried after all else failed. The host may be a
	// name; without a port it is 443.
	URL string
	// Hosts are the host names for which a public certificate counts, as
	// peer.HostName returns them: those that a person answers for. A name that
	// somebody else chose proves nothing, because who chose it can have a
	// certificate for it. Without any, no public certificate counts.
	Hosts []string
}

// Place is where a peer is said to be by somebody who knows the name of its host:
// its URL, and the addresses of that host if they are known; else the host is
// looked up. Who answers there is called by that name, so that it can show a public
// certificate for it; whether that counts is another question (Target.Hosts).
type Place struct {
	URL   string
	Addrs []netip.AddrPort
}

// Equal reports whether p and o are the same place.
func (p Place) Equal(o Place) bool { return p.URL == o.URL && slices.Equal(p.Addrs, o.Addrs) }
