package peer

import (
	"cmp"
	"net/netip"
	"slices"
	"time"
)

// Identity is what a cluster tells anyone who asks its endpoint: the body of
// GET /ids. The JSON names are those of the Liqo authentication service.
type Identity struct {
	ClusterID      ClusterID `json:"clusterId"`
	ClusterName    string    `json:"clusterName"`
	GuestNamespace string    `json:"guestNamespace"`
}

// Source says how a peer was seen. The values are those of a ForeignCluster's
// spec.discoveryType.
type Source string

// The sources a sighting can have.
const (
	LAN             Source = "LAN"
	WAN             Source = "WAN"
	Manual          Source = "Manual"
	IncomingPeering Source = "IncomingPeering"
)

// Sighting is one observation of a peer by one source. It is a hint: nothing
// in it is believed before the peer's endpoint has confirmed it.
type Sighting struct {
	Source      Source
	Link        string // network interface name; "" when the source has none
	Domain      string // the search domain that led to it, for WAN; "" for other sources
	Instance    string // what the source calls it: for LAN the DNS-SD instance name, for WAN the owner of the SRV records
	ClusterID   ClusterID
	ClusterName string
	Namespace   string
	Fingerprint Fingerprint
	Version     string           // protocol version the peer advertises
	Addrs       []netip.AddrPort // candidate endpoint addresses; link-local ones carry their zone
	URL         string           // endpoint URL when the source names one instead of addresses
	TTL         time.Duration    // how long the source vouches for it
}

// Key tells sightings apart: a newer sighting with the same key replaces the
// older one.
type Key struct {
	Source   Source
	Link     string
	Domain   string
	Instance string
}

// Compare orders keys for people.
func (k Key) Compare(o Key) int {
	return cmp.Or(cmp.Compare(k.Source, o.Source), cmp.Compare(k.Link, o.Link), cmp.Compare(k.Domain, o.Domain), cmp.Compare(k.Instance, o.Instance))
}

// Key returns the sighting's identity among all sightings.
func (s Sighting) Key() Key {
	return Key{Source: s.Source, Link: s.Link, Domain: s.Domain, Instance: s.Instance}
}

// Equal reports whether s and o say the same about the same peer. TTL counts:
// it is part of what a ForeignCluster shows.
func (s Sighting) Equal(o Sighting) bool {
	return s.Key() == o.Key() && s.ClusterID == o.ClusterID && s.ClusterName == o.ClusterName &&
		s.Namespace == o.Namespace && s.Fingerprint == o.Fingerprint && s.Version == o.Version &&
		s.URL == o.URL && s.TTL == o.TTL && slices.Equal(s.Addrs, o.Addrs)
}

// Phase is where a peer stands between being a rumour and being gone.
type Phase string

// The phases of a peer.
const (
	// PhaseUnverified: seen, but its endpoint has not confirmed it yet.
	PhaseUnverified Phase = "Unverified"
	// PhasePresent: its endpoint confirmed identity and key.
	PhasePresent Phase = "Present"
	// PhaseUnreachable: it was present, and its last checks failed.
	PhaseUnreachable Phase = "Unreachable"
	// PhaseLost: it is not there now; what is remembered of it stays.
	PhaseLost Phase = "Lost"
)

// Conflict says that somebody shows a known cluster ID with another key: a
// cloned disk or an impostor. It changes nothing about the peer it is
// reported on.
type Conflict struct {
	Fingerprint Fingerprint `json:"fingerprint"` // the key that is not the known one
	Addr        string      `json:"addr"`        // where it was seen
	Since       time.Time   `json:"since"`
}

// Peer is the merged view of one remote cluster: every sighting of every
// source folded into one value. Peers are immutable snapshots; Clone before
// changing one.
type Peer struct {
	ID          ClusterID
	Name        string
	Namespace   string
	Alias       string      // given by the local user; "" when none
	Fingerprint Fingerprint // the key its endpoint proved to hold
	Phase       Phase
	Reason      string   // why the phase is not Present, for people; "" otherwise
	Source      Source   // the best source that sees it now
	Sources     []Source // every source that sees it now, the best first; not remembered by the store
	Domains     []string // the search domains it is seen in now, sorted; not remembered by the store
	URL         string   // endpoint URL at the address that last answered
	Version     string
	Links       []string         // network interfaces it is seen on, sorted
	Addrs       []netip.AddrPort // every candidate address, those of the best source first
	TTL         time.Duration
	Failures    int // failed reachability checks in a row
	Conflict    *Conflict
	FirstSeen   time.Time
	LastSeen    time.Time
}

// Clone returns a copy that shares no memory with p.
func (p Peer) Clone() Peer {
	p.Links = slices.Clone(p.Links)
	p.Sources = slices.Clone(p.Sources)
	p.Domains = slices.Clone(p.Domains)
	p.Addrs = slices.Clone(p.Addrs)
	if p.Conflict != nil {
		c := *p.Conflict
		p.Conflict = &c
	}
	return p
}

// EventKind names what happened to a peer, in history and on watch streams.
type EventKind string

// The kinds of events. They are stored and printed, so they never change.
const (
	EventAppeared        EventKind = "appeared"
	EventLost            EventKind = "lost"
	EventReturned        EventKind = "returned"
	EventUnreachable     EventKind = "unreachable"
	EventAddressChanged  EventKind = "address-changed"
	EventNameChanged     EventKind = "name-changed"
	EventConflict        EventKind = "conflict"
	EventConflictGone    EventKind = "conflict-gone"
	EventIdentityChanged EventKind = "identity-changed"

	// Trust and peering. The detail says who did it, from which side, and why.
	EventTrusted       EventKind = "trusted"
	EventDistrusted    EventKind = "distrusted"
	EventSuspended     EventKind = "trust-suspended" // the certificate that vouches for the key has ended
	EventResumed       EventKind = "trust-resumed"   // there is a newer one
	EventKeyRotated    EventKind = "key-rotated"
	EventKeyRefused    EventKind = "key-refused"
	EventConnect       EventKind = "connect"    // we are to consume the peer's resources
	EventDisconnect    EventKind = "disconnect" // we are no longer to
	EventJoined        EventKind = "joined"
	EventUnjoined      EventKind = "unjoined"
	EventRequested     EventKind = "requested" // the peer asked for our resources
	EventAccepted      EventKind = "accepted"  // its request was accepted
	EventRejected      EventKind = "rejected"
	EventServed        EventKind = "served"   // the peer is joined to us
	EventUnserved      EventKind = "unserved" // it no longer is
	EventBlocked       EventKind = "blocked"
	EventUnblocked     EventKind = "unblocked"
	EventForgotten     EventKind = "forgotten"
	EventReplaced      EventKind = "replaced" // the agent's ForeignCluster, by a person's
	EventPreference    EventKind = "preference"
	EventInviteCreated EventKind = "invite-created"
	EventInviteUsed    EventKind = "invite-used"

	// Search domains, added and removed on the command line.
	EventDomainAdded   EventKind = "domain-added"
	EventDomainRemoved EventKind = "domain-removed"
)

// Event is one entry of a peer's history.
type Event struct {
	At     time.Time
	ID     ClusterID
	Kind   EventKind
	Detail string // one line for people: old and new value, or the reason
}
