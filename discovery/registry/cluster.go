package registry

import (
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"time"

	"liqo.io/agent/endpoint/client"
	"liqo.io/agent/peer"
)

// cluster is one cluster ID: the key it is known by, and every key that claims it.
type cluster struct {
	id        peer.ClusterID
	known     peer.Fingerprint // zero until a claim was verified
	claims    []*claim
	conflicts []*peer.Conflict // keys that were proved and are not the known one, the first first
	view      *peer.Peer       // as published; replaced, never changed
	published bool             // or stored by an earlier run
}

// claimOf returns the claim of a key, nil when there is none.
func (e *cluster) claimOf(key peer.Fingerprint) *claim {
	for _, c := range e.claims {
		if c.key == key {
			return c
		}
	}
	return nil
}

// drop takes the claim of a key out, if there is one, and what it contradicts.
func (e *cluster) drop(key peer.Fingerprint) {
	e.claims = slices.DeleteFunc(e.claims, func(c *claim) bool { return c.key == key })
	e.agree(key)
}

// agree ends the conflict over a key.
func (e *cluster) agree(key peer.Fingerprint) {
	e.conflicts = slices.DeleteFunc(e.conflicts, func(c *peer.Conflict) bool { return c.Fingerprint == key })
}

// contradict begins a conflict with the holder of a key, unless there is one.
func (e *cluster) contradict(key peer.Fingerprint, at netip.AddrPort, now time.Time) {
	if !slices.ContainsFunc(e.conflicts, func(c *peer.Conflict) bool { return c.Fingerprint == key }) {
		e.conflicts = append(e.conflicts, &peer.Conflict{Fingerprint: key, Addr: at.String(), Since: now.Truncate(time.Second)})
	}
}

// conflict returns the conflict that has lasted longest, nil when there is none.
func (e *cluster) conflict() *peer.Conflict {
	if len(e.conflicts) == 0 {
		return nil
	}
	return e.conflicts[0]
}

// best returns the claim that speaks for the cluster: the known key's, or
// while none is known, the one with the most sightings (ties: lowest key).
func (e *cluster) best() *claim {
	if c := e.claimOf(e.known); c != nil || !e.known.IsZero() {
		return c
	}
	var best *claim
	for _, c := range e.claims {
		if best == nil || len(c.sightings) > len(best.sightings) ||
			len(c.sightings) == len(best.sightings) && slices.Compare(c.key[:], best.key[:]) < 0 {
			best = c
		}
	}
	return best
}

// sightings returns what sees the cluster now under its known key. A lost
// peer has none: it is how the next run knows who was there when this one
// ended.
func (e *cluster) sightings() []peer.Sighting {
	c := e.claimOf(e.known)
	if c == nil || e.view.Phase == peer.PhaseLost {
		return nil
	}
	var out []peer.Sighting
	for _, s := range c.ordered() {
		out = append(out, *s)
	}
	for _, s := range c.sightings {
		if s.recalled {
			out = append(out, *s.Sighting)
		}
	}
	return out
}

// follow makes another key the one that a claim, and if it was the known one its
// cluster, is known by: the old key vouched for it.
func (m *machine) follow(e *cluster, c *claim, key peer.Fingerprint, now time.Time) *claim {
	old, next := c.key, e.claimOf(key)
	e.agree(key)
	if next == nil {
		next, c.key = c, key
		e.agree(old)
	} else {
		e.drop(old)
		m.merge(c, next)
	}
	if e.known == old {
		e.known = key
		m.rotated(e, old, key, now)
	}
	return next
}

// succeed makes the key of a verified claim the known one, because the one known
// until now vouched for it.
func (m *machine) succeed(e *cluster, c *claim, now time.Time) {
	old := e.known
	e.known = c.key
	e.agree(c.key)
	if before := e.claimOf(old); before != nil {
		e.drop(old)
		m.merge(before, c)
	}
	m.rotated(e, old, c.key, now)
}

// merge gives the sightings of a claim to the one that takes its place.
func (m *machine) merge(from, into *claim) {
	m.jobs.plan(&from.job, time.Time{})
	for _, s := range from.sightings {
		s.claim = into
	}
	into.sightings, from.sightings = append(into.sightings, from.sightings...), nil
}

func (m *machine) rotated(e *cluster, old, key peer.Fingerprint, now time.Time) {
	detail := fmt.Sprintf("%s -> %s, signed by the old key", old, key)
	events := []peer.Event{{At: now, ID: e.id, Kind: peer.EventKeyRotated, Detail: detail}}
	m.log(*e.view, events)
	m.journal.Note(events)
}

// succession is Config.Succeeds, or what the certificates themselves say.
func (m *machine) succession(res client.Result, old peer.Fingerprint) bool {
	if m.cfg.Succeeds != nil {
		return m.cfg.Succeeds(res, old)
	}
	return res.Shown.Succeeds(old)
}

// adopt makes key the one that a cluster is known by.
func (m *machine) adopt(e *cluster, key peer.Fingerprint, now time.Time) {
	before := e.claimOf(e.known)
	e.known = key
	e.agree(key)
	c := m.claim(e, key)
	if before != nil {
		if len(c.sightings) == 0 && c.url == "" {
			// Nobody announces the key: it is looked for where the peer was.
			c.url, c.addr = before.url, before.addr
		}
		if len(before.sightings) == 0 {
			m.jobs.plan(&before.job, time.Time{})
			e.drop(before.key)
		} else if before.verified {
			e.contradict(before.key, before.addr, now)
		}
	}
	if !c.job.Probing() {
		m.jobs.plan(&c.job, now)
	}
	m.update(e, now)
}

// forget forgets what was ever known about a cluster, and sees anew what sees it.
func (m *machine) forget(e *cluster, now time.Time) {
	var seen []*peer.Sighting
	for _, c := range e.claims {
		seen = append(seen, c.ordered()...)
	}
	m.remove(e)
	m.freed = true
	for _, s := range seen {
		m.see(s, now)
	}
}

// addrOf returns the address in an endpoint URL, or an invalid one when the URL
// names a host.
func addrOf(endpointURL string) netip.AddrPort {
	u, err := url.Parse(endpointURL)
	if err != nil {
		return netip.AddrPort{}
	}
	// Hosts that are no addresses give the zero value, which is what we want.
	addr, _ := netip.ParseAddrPort(u.Host)
	return addr
}
