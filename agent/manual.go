package agent

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"liqo.io/agent/agent/contact"
	"liqo.io/agent/agent/recorder"
	"liqo.io/agent/endpoint"
	"liqo.io/agent/peer"
	"liqo.io/agent/peering"
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

// places are the URLs that people wrote into ForeignClusters, by the name of the
// object.
type places struct {
	mu     sync.Mutex
	wanted map[string]place
}

type place struct {
	url string
	id  peer.ClusterID // "" for whoever is there
}

func newPlaces() *places { return &places{wanted: make(map[string]place)} }

// with has f look at the places, and change them, while nobody else does.
func (p *places) with(f func(wanted map[string]place)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f(p.wanted)
}

// askedPlaces asks the URLs of ForeignClusters for the controller of them.
type askedPlaces session

var _ peering.Places = (*askedPlaces)(nil)

// Look implements peering.Places.
func (a *askedPlaces) Look(object, url string, id peer.ClusterID) {
	a.places.with(func(wanted map[string]place) {
		if one := (place{url, id}); wanted[object] != one {
			wanted[object] = one
			(*session)(a).askPlace(object, one)
		}
	})
}

// Leave implements peering.Places.
func (a *askedPlaces) Leave(object string) {
	a.places.with(func(wanted map[string]place) {
		delete(wanted, object)
		a.contacts.Drop(manualKey(givenBy, object), recorder.Absence{Reason: "no ForeignCluster gives a URL for it any more", Said: true})
	})
}

// Found implements peering.Places.
func (a *askedPlaces) Found(object string) (peering.Found, bool) {
	state, ok := a.contacts.State(manualKey(givenBy, object))
	if !ok || state.Reason == contact.Asking {
		return peering.Found{}, false
	}
	return peering.Found{
		URL: state.Lead.URL, ID: state.ID, ClusterName: state.ClusterName, Namespace: state.Namespace, Fingerprint: state.Fingerprint,
		Reason: string(state.Reason), Message: state.Message,
	}, true
}

func (s *session) askPlace(object string, one place) {
	s.contacts.Set(contact.Lead{Key: manualKey(givenBy, object), URL: one.url, ID: one.id, Fingerprint: s.expected(one.id)})
}

// contacted is told of a place about which something else is known.
func (s *session) contacted(k peer.Key) {
	if object, is := strings.CutPrefix(k.Instance, givenBy); is && k.Source == peer.Manual {
		s.peering.PlaceFound(object)
	}
	if k.Domain != "" {
		s.domains.note(k.Domain)
	}
}

// feedManual has the places asked that people gave for peers. What is expected
// there changes with what is trusted.
func (s *session) feedManual(ctx context.Context) error {
	given := make(map[peer.ClusterID]string)
	for {
		wanted := s.manualURLs()
		for id, url := range wanted {
			s.contacts.Set(contact.Lead{Key: manualKey(givenFor, string(id)), URL: url, ID: id, Fingerprint: s.expected(id)})
		}
		for id := range given {
			if _, still := wanted[id]; !still {
				s.contacts.Drop(manualKey(givenFor, string(id)), recorder.Absence{Reason: "its URL is no longer given", Said: true})
			}
		}
		given = wanted
		s.places.with(func(wanted map[string]place) {
			for object, one := range wanted {
				s.askPlace(object, one)
			}
		})
		select {
		case <-ctx.Done():
			return nil
		case <-s.manual:
		case <-time.After(manualEvery):
		}
	}
}

// manualURLs returns where peers are said to be. The configuration goes before
// what people said on the command line.
func (s *session) manualURLs() map[peer.ClusterID]string {
	out := make(map[peer.ClusterID]string)
	for _, id := range s.ledger.Wanted() {
		if url := s.ledger.Preferences(id).URL; url != "" {
			out[id] = url
		}
	}
	for _, p := range s.config().Peers {
		if p.URL != "" {
			out[peer.ClusterID(p.ID)] = p.URL
		}
	}
	delete(out, s.id)
	return out
}

// expected is the key that a peer is expected to hold: the one that is trusted,
// else the one that is known, else none.
func (s *session) expected(id peer.ClusterID) peer.Fingerprint {
	if id == "" {
		return peer.Fingerprint{}
	}
	if pin := s.ledger.Pin(id); pin != nil {
		return pin.Fingerprint
	}
	p, _ := s.recorder.Peer(id)
	return p.Fingerprint
}

// lookManually has feedManual go through the URLs at once.
func (s *session) lookManually() { wake(s.manual) }

// errSelf: the URL is our own.
var errSelf = errors.New("this is our own endpoint")

// identify asks a URL who is there.
func (s *session) identify(ctx context.Context, target endpoint.Target) (endpoint.Result, error) {
	res, err := s.client.Identify(ctx, target)
	if err == nil && res.Identity.ClusterID == s.id {
		return endpoint.Result{}, errSelf
	}
	return res, err
}
