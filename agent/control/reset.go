package control

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// Resetter resets the agent to the state after its installation.
type Resetter interface {
	// PlanReset returns what a reset would do. It reads from the API server, for a few
	// seconds at most, and changes nothing.
	PlanReset(ctx context.Context, opts ResetOptions) (ResetPlan, error)
	// BeginReset begins a reset and returns at once. The reset continues by itself,
	// also after a restart. If one is in progress, it continues with its own options.
	BeginReset(ctx context.Context, opts ResetOptions, by string) (Reset, error)
	// ResetState returns the progress of the present reset, or the result of the last
	// one of this process. The Phase is ResetNone if there was none.
	ResetState(ctx context.Context) (Reset, error)
}

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

// WithoutNulls returns r for display: with arrays that are empty rather than null in
// JSON, and a phase.
func (r Reset) WithoutNulls() Reset {
	r.Peers, r.Deleted, r.Kept, r.Failed = orEmpty(r.Peers), orEmpty(r.Deleted), orEmpty(r.Kept), orEmpty(r.Failed)
	if r.Phase == "" {
		r.Phase = ResetNone
	}
	return r
}

// WithoutNulls returns the plan with arrays that are empty rather than null in JSON.
func (p ResetPlan) WithoutNulls() ResetPlan {
	p.Peers, p.Deletes, p.Keeps, p.Unknown = orEmpty(p.Peers), orEmpty(p.Deletes), orEmpty(p.Keeps), orEmpty(p.Unknown)
	return p
}

func orEmpty[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
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

func (s *Server) resetting() map[string]handle {
	return map[string]handle{
		"GET /v1/reset": func(r *http.Request) (any, error) {
			state, err := s.cfg.Backend.ResetState(r.Context())
			return state.WithoutNulls(), err
		},
		"GET /v1/reset/plan": s.planReset,
		"POST /v1/reset":     s.beginReset,
	}
}

func (s *Server) planReset(r *http.Request) (any, error) {
	var opts ResetOptions
	for name, into := range map[string]*bool{"identity": &opts.Identity, "all": &opts.All, "crds": &opts.CRDs} {
		text := r.URL.Query().Get(name)
		if text == "" {
			continue
		}
		var err error
		if *into, err = strconv.ParseBool(text); err != nil {
			return nil, &Error{Kind: ErrInvalid, Message: name + "=" + strconv.Quote(text) + ": want 1 or 0"}
		}
	}
	if err := opts.Check(); err != nil {
		return nil, err
	}
	plan, err := s.cfg.Backend.PlanReset(r.Context(), opts)
	return plan.WithoutNulls(), err
}

func (s *Server) beginReset(r *http.Request) (any, error) {
	if err := mayReset(r.Context()); err != nil {
		return nil, err
	}
	var opts ResetOptions
	if err := decode(r, &opts); err != nil {
		return nil, err
	}
	if err := opts.Check(); err != nil {
		return nil, err
	}
	state, err := s.cfg.Backend.BeginReset(r.Context(), opts, by(r.Context()))
	return state.WithoutNulls(), err
}

// PlanReset returns what a reset would do.
func (c *Client) PlanReset(ctx context.Context, opts ResetOptions) (ResetPlan, error) {
	q := url.Values{}
	for name, set := range map[string]bool{"identity": opts.Identity, "all": opts.All, "crds": opts.CRDs} {
		if set {
			q.Set(name, "1")
		}
	}
	var out ResetPlan
	return out, c.call(ctx, http.MethodGet, "/v1/reset/plan?"+q.Encode(), nil, &out)
}

// BeginReset begins a reset, which continues by itself.
func (c *Client) BeginReset(ctx context.Context, opts ResetOptions) (Reset, error) {
	var out Reset
	return out, c.call(ctx, http.MethodPost, "/v1/reset", opts, &out)
}

// ResetState returns the progress of the reset.
func (c *Client) ResetState(ctx context.Context) (Reset, error) {
	var out Reset
	return out, c.call(ctx, http.MethodGet, "/v1/reset", nil, &out)
}
