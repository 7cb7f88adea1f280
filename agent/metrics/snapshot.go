package metrics

import (
	"time"

	"liqo.io/agent/kube/tally"
)

// Snapshot is what there is to know about the agent at one moment. Counters count
// since the start of the agent or of the part that counts, whichever came last.
// Nothing in it is changed by package metrics.
type Snapshot struct {
	Agent     Agent
	Discovery Discovery
	Endpoint  Endpoint
	APIServer APIServer
	Peerings  Peerings
	Offer     Offer
	Names     Names
	Trust     Trust
	State     State
	// Peers are those with which there is a peering, or is to be one, in any order.
	// The first MaxPeers of them, the joined ones before the others, have series of
	// their own.
	Peers []Peer
	// Problems are what is the matter now.
	Problems []Problem

	omitted int // peers without series of their own
}

// Agent is the process.
type Agent struct {
	Version, ClusterID, ClusterName, Fingerprint string
	// Ready: everything is bound, and every part of the agent runs.
	Ready bool
	// Restarts counts by part how often it failed and was started again. Parts are
	// named in the code.
	Restarts map[string]uint64
	// Sessions counts how often the parts were made: once, and again for each
	// identity, key or setting that needs it.
	Sessions uint64
	// ReloadOK: the last reading of the configuration worked, and Reloaded is when
	// one did last.
	ReloadOK bool
	Reloaded time.Time
}

// Problem is something that is the matter, or can be.
type Problem struct {
	Code, Severity string // see docs/health.md
	Active         bool
}

// Discovery is what is known of the neighbours, and how.
type Discovery struct {
	Links            int
	Phases           map[string]int // peers by phase
	Conflicts        int            // peers whose ID somebody else shows with another key
	SelfConflict     bool           // somebody else uses our ID
	Refused          uint64         // sightings for which there was no room
	Sightings        uint64
	ChecksOK         uint64
	ChecksFailed     uint64
	Received         uint64            // mDNS packets
	Sent             uint64            // mDNS packets
	SocketDrops      uint64            // mDNS packets that the kernel dropped
	Dropped          map[string]uint64 // mDNS packets that were not used, or not sent, by reason
	Instances        int               // DNS-SD instances on the LAN
	Announced        bool              // our names are announced on every link
	Domains          map[string]int    // search domains by the outcome of their last look; "" before the first
	Lookups          map[string]uint64 // DNS look-ups by outcome
	AdvertisementOff bool              // nothing is to be announced
}

// Endpoint is the HTTPS port for peers.
type Endpoint struct {
	PeerConnections     int // open, of peers that are let in
	StrangerConnections int // open, of all others
	Accepted            uint64
	Requests            uint64
	Refused             map[string]uint64 // connections and requests by reason
	Gateway             []tally.Count     // requests passed on to the API server
	GatewayTook         tally.Distribution
}

// APIServer is the local API server.
type APIServer struct {
	Enabled         bool
	Connected       bool
	Connections     uint64 // how often a connection came about
	Requests        []tally.Count
	Took            tally.Distribution
	Writes          uint64 // of the agent
	PeerWrites      uint64 // of peers, passed on by the gateway
	ForeignClusters int
	Reconciled      uint64 // looks at a cluster that came to an end
	Retried         uint64 // looks at a cluster that failed and are tried again
	Rejected        uint64 // looks at a cluster that the API server refused as invalid
}

// Peerings are what there is between this cluster and others.
type Peerings struct {
	OutgoingWanted, OutgoingJoined int // wanted, among them the joined ones
	IncomingWanted, IncomingJoined int
	Requests                       int // that wait for a person
	Invites                        int // that can be used
	// InviteEnds is when the first of them ends; zero without any.
	InviteEnds time.Time
}

// Peer is one with which there is a peering, or is to be one.
type Peer struct {
	ID, Name                       string
	OutgoingWanted, OutgoingJoined bool
	IncomingWanted, IncomingJoined bool
	Reachable                      bool
	LastSeen                       time.Time
	Failures                       int // failed checks in a row
	Provider                       *Provider
	Consumer                       *Consumer
	Network                        *Network // nil while it is not to be connected
}

// Network is the network between the pods of this cluster and those of a peer.
type Network struct {
	Connected      bool
	WireGuard      bool              // packets go by it
	Sent, Received uint64            // bytes
	Dropped        map[string]uint64 // packets that were not passed on, by reason
}

// Provider is a peer whose resources this cluster uses.
type Provider struct {
	HasNode, Ready bool
	Offered        Amounts
	// Pods that are bound to its node, by how they fare; not exclusive: refused ones
	// are pending, and those being deleted are counted among the others, too.
	Bound, Running, Pending, Refused, Ending int
	// Services that pods there have, and those that they do without.
	ReflectedServices, RefusedServices int
}

// Consumer is a peer that uses this cluster's resources.
type Consumer struct {
	Promised, Used   Amounts
	Namespaces, Pods int
}

// Amounts are quantities in base units (cores, bytes, pods) by resource. Others
// than those of Resources are left out.
type Amounts map[string]float64

// Offer is what this cluster offers to others, and what they offer to it.
type Offer struct {
	Pool                       Amounts // nil while it is not known
	Accepted, Pending, Refused int     // offers of others
	PodCreation                tally.Distribution
	PodRetries                 uint64 // of work on offloaded pods that failed
	TokensIssued               uint64 // service account tokens of offloaded pods
	TokensRefused              uint64
	LeasesRenewed              uint64
	LeasesFailed               uint64 // renewals that failed
}

// Names are the DNS queries of pods of peers.
type Names struct {
	Queries   uint64
	Rewritten uint64            // asked for by another name
	Refused   map[string]uint64 // by reason
}

// Trust is what this cluster shows to others, and believes.
type Trust struct {
	// Certificates are when they end, by what they are for.
	Certificates map[string]time.Time
	KeyMade      time.Time // zero when unknown
	Successions  int       // earlier keys from which peers follow to the present one
}

// State is the database and where it is.
type State struct {
	Transactions, Errors uint64
	DatabaseBytes        int64 // with its log; -1 when unknown
	Volatile             bool  // nothing is kept
	FreeBytes, SizeBytes uint64
	SpaceKnown           bool // FreeBytes and SizeBytes are
}
