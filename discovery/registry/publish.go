package registry

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"liqo.io/agent/discovery/journal"
	"liqo.io/agent/peer"
)

// update recomputes a cluster's view, drops claims and clusters that mean
// nothing any more, and publishes what changed.
func (m *machine) update(e *cluster, now time.Time) {
	for i := len(e.claims) - 1; i >= 0; i-- {
		c := e.claims[i]
		if phase, _ := c.phase(); phase == peer.PhaseLost && len(c.sightings) == 0 && !c.job.Probing() && c.key != e.known {
			m.jobs.plan(&c.job, time.Time{})
			e.drop(c.key)
		}
	}
	if len(e.claims) == 0 && e.known.IsZero() {
		m.remove(e)
		m.freed = true
		return
	}
	view := *e.view
	view.ID = e.id
	if best := e.best(); best != nil {
		best.fill(&view)
	}
	view.Conflict = e.conflict()
	if view.FirstSeen.IsZero() {
		view.FirstSeen = now.Truncate(time.Second)
	}
	m.replace(e, &view, now)
}

// replace publishes a view if it differs, and has it stored if that must
// survive.
func (m *machine) replace(e *cluster, view *peer.Peer, now time.Time) {
	old := e.view
	e.view = view
	m.freed = m.freed || view.Phase == peer.PhaseLost // it may be able to make room
	if e.id == m.cfg.Self {
		m.views.publishSelf(view.Conflict)
	} else {
		m.views.publish(view, e.known)
	}
	if e.published && journal.SameView(old, view) {
		return
	}
	e.published = true
	events := journal.EventsBetween(old, view, now)
	m.log(*view, events)
	switch {
	case e.id == m.cfg.Self:
		m.journal.Note(events)
	case !view.Fingerprint.IsZero() && (len(events) > 0 || !journal.SameStored(*old, *view)):
		m.journal.Put(*view, e.sightings(), events)
	}
	m.changed(e.id)
}

// changed tells of a cluster whose view is another, or that is forgotten.
func (m *machine) changed(id peer.ClusterID) {
	if len(m.about[id]) > 0 {
		m.touched = append(m.touched, id)
	}
	if id != m.cfg.Self {
		m.cfg.Changed(id)
	}
}

// remove forgets a cluster that was never verified, or had to make room.
func (m *machine) remove(e *cluster) {
	for _, c := range e.claims {
		m.jobs.plan(&c.job, time.Time{})
		for _, s := range c.sightings {
			delete(m.seen, s.Key())
		}
	}
	delete(m.clusters, e.id)
	m.views.remove(e.id)
	m.changed(e.id)
}

// evict makes room for a new peer by forgetting, in memory only, the one that
// has been gone for longest; it reports false when every peer is there. With seen,
// that may be one that is announced all the same, and comes back when there is room.
func (m *machine) evict(seen bool) bool {
	var oldest *cluster
	busy := func(c *claim) bool { return c.job.Probing() || !seen && len(c.sightings) > 0 }
	for _, e := range m.clusters {
		if e.view.Phase != peer.PhaseLost || e.view.Alias != "" || m.held[e.id] || slices.ContainsFunc(e.claims, busy) {
			continue
		}
		if oldest == nil || e.view.LastSeen.Before(oldest.view.LastSeen) {
			oldest = e
		}
	}
	if oldest == nil {
		return false
	}
	for _, c := range oldest.claims {
		for _, s := range c.sightings {
			m.keepOutside(s.Sighting)
		}
	}
	m.remove(oldest)
	return true
}

func (m *machine) log(p peer.Peer, events []peer.Event) {
	for _, ev := range events {
		level := slog.LevelInfo
		if ev.Kind == peer.EventConflict {
			level = slog.LevelError
		}
		m.cfg.Logger.Log(context.Background(), level, "peer "+string(ev.Kind), "peer", p.Name, "id", p.ID, "detail", ev.Detail)
	}
}

// cluster returns the cluster with an ID, a new one if there is none yet.
func (m *machine) cluster(id peer.ClusterID) *cluster {
	e := m.clusters[id]
	if e == nil {
		e = &cluster{id: id, view: &peer.Peer{}}
		m.clusters[id] = e
		switch {
		case id == m.cfg.Self:
			e.known = m.cfg.SelfKey
		case m.cfg.Pinned != nil:
			if e.known = m.cfg.Pinned(id); !e.known.IsZero() {
				m.claim(e, e.known)
			}
		}
	}
	return e
}

// known returns the key that a cluster is known by, or will be as soon as anybody claims
// to be it; zero if it is not.
func (m *machine) known(id peer.ClusterID) peer.Fingerprint {
	switch e := m.clusters[id]; {
	case e != nil:
		return e.known
	case id != m.cfg.Self && m.cfg.Pinned != nil:
		return m.cfg.Pinned(id)
	}
	return peer.Fingerprint{}
}

// claim returns the claim of a key to be a cluster, a new one if there is none yet.
func (m *machine) claim(e *cluster, key peer.Fingerprint) *claim {
	c := e.claimOf(key)
	if c == nil {
		c = &claim{id: e.id, key: key, held: key == e.known && m.held[e.id]}
		c.job.Of.claim = c
		e.claims = append(e.claims, c)
	}
	return c
}
