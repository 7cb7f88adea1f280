package endpoint

import (
	"net/netip"

	"liqo.io/agent/peer"
	"liqo.io/agent/trust"
)

// AccessLevel is how far a caller may go.
type AccessLevel int

// The access levels of callers.
const (
	// Stranger: may ask.
	Stranger AccessLevel = iota
	// Known: its key is trusted to be its cluster's.
	Known
	// Blocked: may do nothing.
	Blocked
	// Suspended: its key is trusted by a certificate that has ended; may do nothing
	// until it shows a newer one.
	Suspended
)

// Caller is the cluster at the other end of a connection. Its key is proven;
// whether the key belongs to the ID is what Access says.
type Caller struct {
	ID     peer.ClusterID
	Source netip.Addr
	Shown  trust.Shown // what its certificates prove
	Access AccessLevel
}
