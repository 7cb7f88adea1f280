package recorder

import (
	"context"
	"fmt"
	"time"

	"liqo.io/agent/endpoint"
	"liqo.io/agent/peer"
)

// follow makes another key the one that a claim, and if it was the known one its
// cluster, is known by: the old key vouched for it.
func (r *Recorder) follow(e *entry, c *claim, key peer.Fingerprint) *claim {
	old := c.key
	delete(e.claims, old)
	delete(e.conflicts, key)
	next := e.claims[key]
	if next == nil {
		next = c
		c.key = key
		e.claims[key] = c
	} else {
		r.merge(c, next)
	}
	if e.known == old {
		e.known = key
		r.rotated(e, old, key)
	}
	return next
}

// succeed makes the key of a verified claim the known one, because the one known
// until now vouched for it.
func (r *Recorder) succeed(e *entry, c *claim) {
	old := e.known
	e.known = c.key
	delete(e.conflicts, c.key)
	if before := e.claims[old]; before != nil {
		r.merge(before, c)
		delete(e.claims, old)
	}
	r.rotated(e, old, c.key)
}

// merge gives the sightings of a claim to the one that takes its place, unless
// that one was seen by the same source since.
func (r *Recorder) merge(from, into *claim) {
	r.schedule.plan(from, time.Time{})
	for k, s := range from.sightings {
		if _, newer := into.sightings[k]; !newer {
			into.sightings[k] = s
			r.byKey[k] = into
		}
	}
}

func (r *Recorder) rotated(e *entry, old, key peer.Fingerprint) {
	event := peer.Event{At: time.Now(), ID: e.id, Kind: peer.EventKeyRotated,
		Detail: fmt.Sprintf("%s -> %s, signed by the old key", old, key)}
	r.log(e.view, []peer.Event{event})
	r.writer.note([]peer.Event{event})
}

// drop takes a claim out of its entry.
func (r *Recorder) drop(e *entry, c *claim) {
	r.schedule.plan(c, time.Time{})
	for k := range c.sightings {
		delete(r.byKey, k)
	}
	delete(e.claims, c.key)
	delete(e.conflicts, c.key)
}

// owns reports whether a claim still belongs to its entry: it may have been
// dropped, or its cluster forgotten, while a check was under way.
func (r *Recorder) owns(c *claim) bool {
	e := r.entries[c.id]
	return e != nil && e.claims[c.key] == c
}

// Adopt makes key the one that a cluster is known by, because a person said so.
// Whoever holds the key known until now is a conflict from then on. It reports
// false when there is no such peer.
func (r *Recorder) Adopt(ctx context.Context, id peer.ClusterID, key peer.Fingerprint) (bool, error) {
	found := false
	err := r.do(ctx, func() {
		e := r.entries[id]
		if found = e != nil && id != r.cfg.Self; !found || e.known == key {
			return
		}
		before := e.claims[e.known]
		e.known = key
		delete(e.conflicts, key)
		c := r.claim(e, key)
		if before != nil {
			if len(c.sightings) == 0 && c.url == "" {
				// Nobody announces the key: it is looked for where the peer was.
				c.url, c.addr = before.url, before.addr
			}
			if len(before.sightings) == 0 {
				r.drop(e, before)
			} else if before.verified {
				e.conflicts[before.key] = &peer.Conflict{Fingerprint: before.key, Addr: before.addr.String(), Since: time.Now().Truncate(time.Second)}
			}
		}
		if !c.checking {
			r.schedule.plan(c, time.Now())
		}
		r.update(e)
	})
	return found, err
}

// Forget forgets what was ever known about a cluster. If something still sees
// it, it is a stranger that has just come.
func (r *Recorder) Forget(ctx context.Context, id peer.ClusterID) error {
	return r.do(ctx, func() {
		e := r.entries[id]
		if e == nil || id == r.cfg.Self {
			return
		}
		var seen []peer.Sighting
		for _, c := range e.claims {
			seen = append(seen, c.ordered()...)
		}
		r.remove(e)
		for _, s := range seen {
			r.see(s)
		}
	})
}

// Check has a peer's endpoint checked now. It does nothing when there is no such
// peer.
func (r *Recorder) Check(ctx context.Context, id peer.ClusterID) error {
	return r.do(ctx, func() {
		e := r.entries[id]
		if e == nil {
			return
		}
		if c := e.best(); c != nil {
			r.checkNow(c)
		}
	})
}

// checkNow has a claim checked as soon as there is a checker for it.
func (r *Recorder) checkNow(c *claim) {
	if c.checking {
		c.again = true
		return
	}
	r.schedule.plan(c, time.Now())
}

// succession is Config.Succeeds, or what the certificates themselves say.
func (r *Recorder) succession(res endpoint.Result, old peer.Fingerprint) bool {
	if r.cfg.Succeeds != nil {
		return r.cfg.Succeeds(res, old)
	}
	return res.Shown.Succeeds(old)
}
