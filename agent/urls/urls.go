package urls

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"liqo.io/agent/agent/config"
	"liqo.io/agent/agent/problems"
	"liqo.io/agent/discovery/registry"
	"liqo.io/agent/kube/work"
	"liqo.io/agent/peer"
	"liqo.io/agent/peering"
	"liqo.io/agent/peering/discovered"
	"liqo.io/agent/state"
)

// compareInterval is how often the given URLs are compared with the candidates in the
// registry. Usually, nothing has changed.
const compareInterval = 30 * time.Second

// Prefixes of the candidates for given URLs, by where the URL is from: the
// configuration or the command line, for a cluster; or a ForeignCluster.
const (
	givenFor = "cluster/"
	givenBy  = "foreigncluster/"
)

func manualKey(kind, name string) peer.Key {
	return peer.Key{Source: peer.Manual, Instance: kind + name}
}

// Object returns the name of the ForeignCluster whose URL a candidate is for.
func Object(k peer.Key) (string, bool) {
	object, found := strings.CutPrefix(k.Instance, givenBy)
	return object, found && k.Source == peer.Manual
}

// Registry probes candidates.
type Registry interface {
	SetCandidate(c registry.Candidate)
	DropCandidate(k peer.Key, why registry.Absence)
	Candidate(k peer.Key) (registry.CandidateStatus, bool)
	Candidates(selects func(peer.Key) bool) []registry.CandidateStatus
	Peer(id peer.ClusterID) (peer.Peer, bool)
}

// Decisions has the URLs that people gave on the command line, and the trusted keys.
type Decisions interface {
	Wanted() []peer.ClusterID
	Preferences(id peer.ClusterID) state.Preferences
	Pin(id peer.ClusterID) *peer.Pin
}

// Config is what a Prober needs. All of it is required.
type Config struct {
	Self      peer.ClusterID
	Settings  func() config.Config
	Registry  Registry
	Decisions Decisions
	// Seen is what saw peers when the last run ended. A URL that led to one is taken back
	// if nobody gives it any more.
	Seen []peer.Sighting
}

// Prober makes candidates of the given URLs. All methods are safe for concurrent use.
type Prober struct {
	cfg     Config
	changed chan struct{} // a URL was given or removed; capacity 1

	mu      sync.Mutex
	objects map[string]target // URLs in ForeignClusters, by the name of the object
}

// target is a URL to probe.
type target struct {
	url string
	id  peer.ClusterID // expected there; "" for any cluster
}

var _ peering.URLProber = (*Prober)(nil)

// New returns a Prober. Run does the work.
func New(cfg Config) *Prober {
	return &Prober{cfg: cfg, changed: make(chan struct{}, 1), objects: make(map[string]target)}
}

// Probe implements peering.URLProber.
func (p *Prober) Probe(object, url string, id peer.ClusterID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if t := (target{url, id}); p.objects[object] != t {
		p.objects[object] = t
		p.setCandidate(manualKey(givenBy, object), t)
	}
}

// Stop implements peering.URLProber.
func (p *Prober) Stop(object string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.objects, object)
	p.cfg.Registry.DropCandidate(manualKey(givenBy, object), registry.Absence{Reason: "no ForeignCluster has a URL for it any more", Evidence: registry.Withdrawn})
}

// Result implements peering.URLProber.
func (p *Prober) Result(object string) (discovered.Result, bool) {
	state, ok := p.cfg.Registry.Candidate(manualKey(givenBy, object))
	if !ok || state.Reason == registry.NotProbed {
		return discovered.Result{}, false
	}
	return discovered.Result{
		URL: state.Candidate.URL, ID: state.ID, ClusterName: state.ClusterName, Namespace: state.Namespace, Fingerprint: state.Fingerprint,
		Reason: string(state.Reason), Message: state.Cause,
	}, true
}

func (p *Prober) setCandidate(key peer.Key, t target) {
	p.cfg.Registry.SetCandidate(registry.Candidate{Source: key.Source, Instance: key.Instance, URL: t.url, ClusterID: t.id, Fingerprint: p.expected(t.id)})
}

// Run keeps the candidates up to date until ctx ends: URLs change, and so do the keys
// that are expected there.
func (p *Prober) Run(ctx context.Context) error {
	given := p.before()
	for {
		wanted := p.forClusters()
		for id, url := range wanted {
			p.setCandidate(manualKey(givenFor, string(id)), target{url, id})
		}
		for _, id := range given {
			if _, still := wanted[id]; !still {
				p.cfg.Registry.DropCandidate(manualKey(givenFor, string(id)), registry.Absence{Reason: "its URL was removed", Evidence: registry.Withdrawn})
			}
		}
		given = slices.Collect(maps.Keys(wanted))
		p.setObjects()
		select {
		case <-ctx.Done():
			return nil
		case <-p.changed:
		case <-time.After(compareInterval):
		}
	}
}

// before returns the clusters that URLs were given for when the last run ended.
func (p *Prober) before() []peer.ClusterID {
	var out []peer.ClusterID
	for _, s := range p.cfg.Seen {
		if id, found := strings.CutPrefix(s.Instance, givenFor); found && s.Source == peer.Manual {
			out = append(out, peer.ClusterID(id))
		}
	}
	return out
}

// setObjects makes candidates of the URLs in ForeignClusters.
func (p *Prober) setObjects() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for object, t := range p.objects {
		p.setCandidate(manualKey(givenBy, object), t)
	}
}

// forClusters returns the URLs given for peers. The configuration takes precedence over
// the command line.
func (p *Prober) forClusters() map[peer.ClusterID]string {
	out := make(map[peer.ClusterID]string)
	for _, id := range p.cfg.Decisions.Wanted() {
		if url := p.cfg.Decisions.Preferences(id).URL; url != "" {
			out[id] = url
		}
	}
	for _, static := range p.cfg.Settings().Peers {
		if static.URL != "" {
			out[peer.ClusterID(static.ID)] = static.URL
		}
	}
	delete(out, p.cfg.Self)
	return out
}

// Results returns the results of the URLs that were given for clusters.
func (p *Prober) Results() []problems.GivenURL {
	var out []problems.GivenURL
	for _, state := range p.cfg.Registry.Candidates(func(k peer.Key) bool { return k.Source == peer.Manual && strings.HasPrefix(k.Instance, givenFor) }) {
		out = append(out, problems.GivenURL{ID: peer.ClusterID(strings.TrimPrefix(state.Candidate.Instance, givenFor)), State: state})
	}
	return out
}

// expected returns the key that a peer is expected to hold: the trusted one, else the
// known one, else none.
func (p *Prober) expected(id peer.ClusterID) peer.Fingerprint {
	if id == "" {
		return peer.Fingerprint{}
	}
	if pin := p.cfg.Decisions.Pin(id); pin != nil {
		return pin.Fingerprint
	}
	known, _ := p.cfg.Registry.Peer(id)
	return known.Fingerprint
}

// Again has Run compare the URLs at once. It does not block.
func (p *Prober) Again() { work.Wake(p.changed) }
