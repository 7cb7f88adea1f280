package control

import (
	"time"
)

// ResetOptions say what a reset deletes besides the state and the objects of the agent.
type ResetOptions struct {
	Identity bool `json:"identity"` // ID and key of this cluster are replaced by new ones
	Stop     bool `json:"stop"`     // the agent ends afterwards
	// All and CRDs are for plans only. The agent may not delete these objects; the
	// command line does, as an administrator, after the reset.
	All  bool `json:"all"`  // ForeignClusters, SearchDomains and settings that people wrote
	CRDs bool `json:"crds"` // the custom resource definitions; needs All
}

// ResetPlan is what a reset would do. Arrays are always present in JSON. Objects are
// named for people: "ForeignCluster barn".
type ResetPlan struct {
	ClusterID   string `json:"clusterId"`
	ClusterName string `json:"clusterName"`
	Fingerprint string `json:"fingerprint"`
	// Peers are the peers with a peering, which are notified.
	Peers []ResetPeer `json:"peers"`
	// Deletes are the objects in the local API server that the reset deletes, Keeps
	// those that people wrote, Unknown the kinds that could not be listed.
	Deletes []string `json:"deletes"`
	Keeps   []string `json:"keeps"`
	Unknown []string `json:"unknown"`
}

// The phases of a reset.
const (
	ResetNone     = "none"
	ResetParting  = "parting"  // peerings are ended, and peers told
	ResetClearing = "clearing" // objects in the API server and the state are deleted
	ResetDone     = "done"
)

// Reset is the progress or the result of a reset.
type Reset struct {
	Phase     string       `json:"phase"`
	Options   ResetOptions `json:"options"`
	StartedAt time.Time    `json:"startedAt,omitzero"`
	By        string       `json:"by"`
	// ClusterID is the ID of this cluster after the reset.
	ClusterID string      `json:"clusterId"`
	Peers     []ResetPeer `json:"peers"`
	Deleted   []string    `json:"deleted"`
	Kept      []string    `json:"kept"`
	// Failed are the steps that failed, with the reasons, for people.
	Failed []string `json:"failed"`
}

// The states of a peer in a reset.
const (
	ResetPeerWaits   = "waits"     // something is left
	ResetPeerTold    = "told"      // both sides agree that nothing is left
	ResetPeerNotTold = "not told"  // it could not be reached, or took too long
	ResetPeerPlanned = "connected" // in a plan
)

// ResetPeer is a peer in a reset.
type ResetPeer struct {
	ID    string `json:"id"`
	Name  string `json:"name"`
	State string `json:"state"`
}

// Check returns an error that wraps ErrInvalid when the options contradict each
// other.
func (o ResetOptions) Check() error {
	if o.CRDs && !o.All {
		return &Error{Kind: ErrInvalid, Message: "deleting the custom resource definitions also deletes the objects of these kinds that people wrote",
			Advice: "liqo-agent reset --all --crds --stop"}
	}
	return nil
}
