package agent

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"liqo.io/agent/agent/recorder"
	"liqo.io/agent/endpoint"
	"liqo.io/agent/peer"
)

// manualEvery is how often the peers are gone through that somebody gave a URL
// for. Most of the time there is nothing to do.
const manualEvery = 30 * time.Second

// feedManual has the recorder look for peers at the URLs that the configuration
// and people gave for them.
func (s *session) feedManual(ctx context.Context) error {
	seen := make(map[peer.ClusterID]peer.Sighting)
	for {
		wanted := s.manualURLs()
		for _, id := range slices.Sorted(maps.Keys(wanted)) {
			url := wanted[id]
			if old, ok := seen[id]; ok && old.URL == url && old.Fingerprint == s.expected(id, old.Fingerprint) {
				continue
			}
			sighting, err := s.manualSighting(ctx, id, url)
			if err != nil {
				s.logger.Debug("a peer does not answer at the URL given for it", "peer", id, "url", url, "error", err)
				continue
			}
			if err := s.recorder.See(ctx, sighting); err != nil {
				return nil // only ctx ends it
			}
			seen[id] = sighting
		}
		for id, sighting := range seen {
			if _, ok := wanted[id]; ok {
				continue
			}
			delete(seen, id)
			if err := s.recorder.Unsee(ctx, sighting.Key(), recorder.Absence{Reason: "its URL is no longer given", Said: true}); err != nil {
				return nil
			}
		}
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
// else the one that is known, else fallback.
func (s *session) expected(id peer.ClusterID, fallback peer.Fingerprint) peer.Fingerprint {
	if pin := s.ledger.Pin(id); pin != nil {
		return pin.Fingerprint
	}
	if p, ok := s.recorder.Peer(id); ok && !p.Fingerprint.IsZero() {
		return p.Fingerprint
	}
	return fallback
}

// manualSighting is what a URL given for a peer amounts to. While no key of the
// peer is known, its endpoint is asked for it.
func (s *session) manualSighting(ctx context.Context, id peer.ClusterID, url string) (peer.Sighting, error) {
	sighting := peer.Sighting{Source: peer.Manual, Instance: string(id), ClusterID: id, URL: url,
		Fingerprint: s.expected(id, peer.Fingerprint{})}
	if !sighting.Fingerprint.IsZero() {
		return sighting, nil
	}
	res, err := s.client.Identify(ctx, endpoint.Target{ID: id, URL: url})
	if err != nil {
		return sighting, err
	}
	sighting.Fingerprint = res.Fingerprint
	sighting.ClusterName, sighting.Namespace = res.Identity.ClusterName, res.Identity.GuestNamespace
	return sighting, nil
}

// lookManually has feedManual go through the URLs at once.
func (s *session) lookManually() {
	select {
	case s.manual <- struct{}{}:
	default:
	}
}

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
