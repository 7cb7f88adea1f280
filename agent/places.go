package agent

import (
	"context"
	"strings"
	"sync"
	"time"

	"liqo.io/agent/agent/config"
	"liqo.io/agent/agent/decisions"
	"liqo.io/agent/agent/problems"
	"liqo.io/agent/discovery/registry"
	"liqo.io/agent/kube/work"
	"liqo.io/agent/peer"
	"liqo.io/agent/peering"
	"liqo.io/agent/peering/plan"
)

// manualEvery is how often the given URLs are compared with what is probed. Mostly
// nothing has changed.
const manualEvery = 30 * time.Second

// Prefixes of the candidates for given URLs, by where the URL is from: the
// configuration or the command line, for a cluster; or a ForeignCluster.
const (
	givenFor = "cluster/"
	givenBy  = "foreigncluster/"
)

func manualKey(kind, name string) peer.Key {
	return peer.Key{Source: peer.Manual, Instance: kind + name}
}

// places has the URLs probed that people gave for clusters, in the configuration, on the
// command line and in ForeignClusters.
type places struct {
	self      peer.ClusterID
	settings  func() config.Config
	registry  *registry.Registry
	decisions *decisions.Store
	given     chan struct{} // a URL was given or taken back; capacity 1

	mu     sync.Mutex
	wanted map[string]place // those in ForeignClusters, by the name of the object
}

type place struct {
	url string
	id  peer.ClusterID // "" for whoever is there
}

var _ peering.URLProber = (*places)(nil)

// Probe implements peering.URLProber.
func (p *places) Probe(object, url string, id peer.ClusterID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if one := (place{url, id}); p.wanted[object] != one {
		p.wanted[object] = one
		p.ask(manualKey(givenBy, object), one)
	}
}

// Stop implements peering.URLProber.
func (p *places) Stop(object string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.wanted, object)
	p.registry.DropCandidate(manualKey(givenBy, object), registry.Absence{Reason: "no ForeignCluster has a URL for it any more", Evidence: registry.Withdrawn})
}

// Result implements peering.URLProber.
func (p *places) Result(object string) (plan.ProbeResult, bool) {
	state, ok := p.registry.Candidate(manualKey(givenBy, object))
	if !ok || state.Reason == registry.NotProbed {
		return plan.ProbeResult{}, false
	}
	return plan.ProbeResult{
		URL: state.Candidate.URL, ID: state.ID, ClusterName: state.ClusterName, Namespace: state.Namespace, Fingerprint: state.Fingerprint,
		Reason: string(state.Reason), Message: state.Cause,
	}, true
}

// ask has a given URL probed by the registry.
func (p *places) ask(key peer.Key, at place) {
	p.registry.SetCandidate(registry.Candidate{Source: key.Source, Instance: key.Instance, URL: at.url, ClusterID: at.id, Fingerprint: p.expected(at.id)})
}

// Run keeps the probes up to date until ctx ends: URLs change, and so do the keys that
// are expected there.
func (p *places) Run(ctx context.Context) error {
	given := make(map[peer.ClusterID]string)
	for {
		wanted := p.forClusters()
		for id, url := range wanted {
			p.ask(manualKey(givenFor, string(id)), place{url, id})
		}
		for id := range given {
			if _, still := wanted[id]; !still {
				p.registry.DropCandidate(manualKey(givenFor, string(id)), registry.Absence{Reason: "its URL was removed", Evidence: registry.Withdrawn})
			}
		}
		given = wanted
		p.askObjects()
		select {
		case <-ctx.Done():
			return nil
		case <-p.given:
		case <-time.After(manualEvery):
		}
	}
}

// askObjects has the URLs of ForeignClusters probed.
func (p *places) askObjects() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for object, one := range p.wanted {
		p.ask(manualKey(givenBy, object), one)
	}
}

// forClusters returns the URLs given for peers. The configuration takes precedence over
// the command line.
func (p *places) forClusters() map[peer.ClusterID]string {
	out := make(map[peer.ClusterID]string)
	for _, id := range p.decisions.Wanted() {
		if url := p.decisions.Preferences(id).URL; url != "" {
			out[id] = url
		}
	}
	for _, static := range p.settings().Peers {
		if static.URL != "" {
			out[peer.ClusterID(static.ID)] = static.URL
		}
	}
	delete(out, p.self)
	return out
}

// answers returns the results of the URLs that were given for clusters.
func (p *places) answers() []problems.GivenURL {
	var out []problems.GivenURL
	for _, state := range p.registry.Candidates(func(k peer.Key) bool { return k.Source == peer.Manual && strings.HasPrefix(k.Instance, givenFor) }) {
		out = append(out, problems.GivenURL{ID: peer.ClusterID(strings.TrimPrefix(state.Candidate.Instance, givenFor)), State: state})
	}
	return out
}

// expected returns the key that a peer is expected to hold: the trusted one, else the
// known one, else none.
func (p *places) expected(id peer.ClusterID) peer.Fingerprint {
	if id == "" {
		return peer.Fingerprint{}
	}
	if pin := p.decisions.Pin(id); pin != nil {
		return pin.Fingerprint
	}
	known, _ := p.registry.Peer(id)
	return known.Fingerprint
}

// again has Run compare the URLs at once. It does not block.
func (p *places) again() { work.Wake(p.given) }
