package contact

import (
	"net/netip"
	"time"

	"liqo.io/agent/peer"
)

// Lead is a place where a cluster is said to be: by a search domain, by the
// configuration, or by a person.
type Lead struct {
	// Key is that of the sighting which the lead becomes.
	Key peer.Key
	// URL is https://host[:port], Addrs what the source says are the host's
	// addresses; without any the system's resolver is asked.
	URL   string
	Addrs []netip.AddrPort
	// ID and Fingerprint are whom the source expects there; zero: anybody.
	ID          peer.ClusterID
	Fingerprint peer.Fingerprint
	// ClusterName, Namespace, Version and TTL are what else the source says.
	ClusterName, Namespace, Version string
	TTL                             time.Duration
}

// Reason says why nobody usable was found at a lead.
type Reason string

// The reasons. They are printed and shown in conditions, so they never change.
const (
	// Asking: nobody was asked yet.
	Asking Reason = "NotAskedYet"
	// Unreachable: nothing answers there.
	Unreachable Reason = "Unreachable"
	// NoCluster: something answers that is no cluster.
	NoCluster Reason = "NotACluster"
	// OtherCluster: another cluster answers than the one expected.
	OtherCluster Reason = "OtherCluster"
	// OtherKey: who answers holds another key than the one expected.
	OtherKey Reason = "OtherKey"
	// Ourselves: it is this cluster.
	Ourselves Reason = "ThisCluster"
)

// State is what is known about a lead.
type State struct {
	Lead Lead
	// ID, ClusterName, Namespace and Fingerprint are of the cluster that answered
	// last; zero when none did.
	ID          peer.ClusterID
	ClusterName string
	Namespace   string
	Fingerprint peer.Fingerprint
	// Reason is why the lead leads nowhere now, "" when it does not; Message says it
	// in one line for people.
	Reason   Reason
	Message  string
	Failures int       // in a row
	Next     time.Time // when it is asked again
}
