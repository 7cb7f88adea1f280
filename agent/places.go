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
	"liqo.io/agent/peer"
	"liqo.io/agent/peering"
	"liqo.io/agent/peering/plan"
)

// manualEvery is how often the URLs are gone through that somebody gave for peers.
// Most of the time there is nothing to do.
const manualEvery = 30 * time.Second

// The sightings of URLs that people gave are told apart by who gave them: the
// configuration or the command line for a cluster, or a ForeignCluster.
const (
	givenFor = "cluster/"
	givenBy  = "foreigncluster/"
)

func manualKey(kind, name string) peer.Key {
	return peer.Key{Source: peer.Manual, Instance: kind + name}
}

// places are the URLs that people gave for clusters, in the configuration, on the command
// line and in ForeignClusters. It has them asked who is there.
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
		Reason: string(state.Reason), Message: state.Message,
	}, true
}

// ask has the cluster asked that somebody says to be at a place.
func (p *places) ask(key peer.Key, at place) {
	p.registry.SetCandidate(registry.Candidate{Source: key.Source, Instance: key.Instance, URL: at.url, ClusterID: at.id, Fingerprint: p.expected(at.id)})
}

// Run has the places asked that people gave for peers. What is expected
// there changes with what is trusted.
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

// askObjects asks those in ForeignClusters.
func (p *places) askObjects() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for object, one := range p.wanted {
		p.ask(manualKey(givenBy, object), one)
	}
}

// forClusters returns where peers are said to be. The configuration goes before
// what people said on the command line.
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

// answers is what is known of the URLs that were given for clusters.
func (p *places) answers() []problems.GivenURL {
	var out []problems.GivenURL
	for _, state := range p.registry.Candidates(func(k peer.Key) bool { return k.Source == peer.Manual && strings.HasPrefix(k.Instance, givenFor) }) {
		out = append(out, problems.GivenURL{ID: peer.ClusterID(strings.TrimPrefix(state.Candidate.Instance, givenFor)), State: state})
	}
	return out
}

// expected is the key that a peer is expected to hold: the one that is trusted,
// else the one that is known, else none.
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

// again has Run go through the URLs at once. It does not block.
func (p *places) again() { wake(p.given) }
