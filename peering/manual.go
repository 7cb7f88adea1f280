package peering

import (
	"context"
	"errors"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"liqo.io/agent/peer"
)

const (
	// askedFor is how long it takes until an object shows that its URL is being asked:
	// a cluster that answers has answered by then.
	askedFor = time.Second
	// partingPause is for how long nothing is decided about a cluster when a person's
	// object about it is gone: until the registry knows that nobody vouches for its
	// URL any more. Else an object of the agent's own would be made only to be deleted
	// again.
	partingPause = 250 * time.Millisecond
)

// PlaceFound says that Places.Found may answer something else about a
// ForeignCluster than before. It never blocks. Without a connection nothing is done
// about it, because the next connection begins with looking at every object. Any
// goroutine may call it at any time.
func (c *Controller) PlaceFound(object string) {
	s := c.current()
	if s == nil {
		return
	}
	if fc := s.foreign.get(object); fc != nil && fc.ClusterID() != "" {
		s.queue.Add(peer.ClusterID(fc.ClusterID()))
		return
	}
	s.named.Add(object)
}

// places knows what Config.Places was asked. It outlives connections to the API
// server: an object is not gone because nobody can look. All methods are safe for
// concurrent use.
type places struct {
	asker Places // nil when nobody is asked

	mu    sync.Mutex
	asked map[string]asking // by the name of the object
}

// asking is what is asked for one object.
type asking struct {
	url   string
	since time.Time // the URL is asked
}

func newPlaces(asker Places) *places { return &places{asker: asker, asked: make(map[string]asking)} }

// look has the URL of an object asked, or no longer when it has none to be asked;
// nil is an object that is gone. It reports whether another URL is asked than before.
func (p *places) look(name string, fc *foreignCluster, now time.Time) (another bool) {
	if p.asker == nil {
		return false
	}
	// The lock is held while the asker is told, so that it hears things in order.
	p.mu.Lock()
	defer p.mu.Unlock()
	a, was := p.asked[name]
	if fc == nil || !fc.asksAround() {
		if was {
			delete(p.asked, name)
			p.asker.Leave(name)
		}
		return false
	}
	if another = a.url != fc.Spec.AuthURL; another {
		p.asked[name] = asking{url: fc.Spec.AuthURL, since: now}
	}
	p.asker.Look(name, fc.Spec.AuthURL, peer.ClusterID(fc.ClusterID()))
	return another
}

// names returns every object that somebody is asked for.
func (p *places) names() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make([]string, 0, len(p.asked))
	for name := range p.asked {
		out = append(out, name)
	}
	return out
}

// at returns what is known about the URL of an object, and false when nobody is
// asked about it.
func (p *places) at(fc *foreignCluster, now time.Time) (Place, bool) {
	if p.asker == nil || !fc.asksAround() {
		return Place{}, false
	}
	p.mu.Lock()
	a, asked := p.asked[fc.Name]
	p.mu.Unlock()
	if found, known := p.asker.Found(fc.Name); known && found.URL == fc.Spec.AuthURL && found.Reason != ReasonNotAskedYet {
		return Place{Known: true, Found: found}, true
	}
	return Place{Overdue: asked && a.url == fc.Spec.AuthURL && now.Sub(a.since) >= askedFor}, true
}

// foreignChanged has everything looked at that a changed ForeignCluster is or was
// about.
func (s *session) foreignChanged() func(before, after *foreignCluster, restored bool) {
	enqueue := enqueuing(s, foreignClusterKind().about)
	return func(before, after *foreignCluster, restored bool) {
		switch {
		case after != nil && (after.asksAround() || before != nil && before.asksAround()):
			s.named.Add(after.Name)
		case after == nil && !before.CreatedByAgent():
			for _, id := range clusterIDs(before.ClusterID()) {
				s.memory.with(id, func(m *memo) { m.parted = s.cfg.Now() })
			}
			s.places.look(before.Name, nil, s.cfg.Now())
			s.named.Add(before.Name) // it may have been looked at just now
		}
		enqueue(before, after, restored)
	}
}

// parting returns how long it takes until something is decided about a cluster,
// because a person's object about it went just now.
func (s *session) parting(id peer.ClusterID) time.Duration {
	var parted time.Time
	s.memory.with(id, func(m *memo) { parted = m.parted })
	if parted.IsZero() {
		return 0
	}
	return max(partingPause-s.cfg.Now().Sub(parted), 0)
}

// followNamed looks at the ForeignClusters that people wrote, one at a time, until
// the queue is shut down.
func (s *session) followNamed(ctx context.Context) {
	for _, fc := range s.foreign.all() {
		if fc.asksAround() {
			s.named.Add(fc.Name)
		}
	}
	for _, name := range s.places.names() {
		s.named.Add(name) // it may be gone by now
	}
	for {
		name, down := s.named.Get()
		if down {
			return
		}
		s.processNamed(ctx, name)
		s.named.Done(name)
	}
}

// processNamed looks at one object and decides when to do so again.
func (s *session) processNamed(ctx context.Context, name string) {
	err := s.lookAt(ctx, name)
	switch {
	case err == nil:
		s.namedRetry.Forget(name)
	case ctx.Err() != nil:
		// The next connection looks at every object.
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		s.namedRetry.Forget(name)
		s.complainOnce("ForeignCluster "+name, "what is known about the cluster of a ForeignCluster cannot be written to it", err)
		s.named.AddAfter(name, jitter(refusedRetry))
	default:
		pause := jitter(s.namedRetry.When(name))
		if !apierrors.IsConflict(err) && !errors.Is(err, errReplaced) {
			s.link.note(err)
			s.checkIfMissing(err)
		}
		s.cfg.Logger.Debug("writing to a ForeignCluster failed, trying again", "name", name, "in", pause, "error", err)
		s.named.AddAfter(name, pause)
	}
}

// lookAt has the URL of an object asked, and does what is to be done about an
// object before it is known which cluster it is about. After that the reconcile of
// that cluster does the rest.
func (s *session) lookAt(ctx context.Context, name string) error {
	found := s.foreign.get(name)
	if found == nil {
		s.places.look(name, nil, s.cfg.Now())
		return nil
	}
	fc, id := &found.ForeignCluster, peer.ClusterID(found.ClusterID())
	another := s.places.look(name, found, s.cfg.Now())
	place, asked := s.places.at(found, s.cfg.Now())
	if !asked {
		return nil
	}
	if !place.Known && !place.Overdue {
		s.named.AddAfter(name, askedFor)
	}
	if id != "" {
		if another || !place.Known {
			s.queue.Add(id) // it may have been looked at before anybody was asked
		}
		return nil
	}
	actions := planUnidentified(fc, found.owners, place, s.cfg.Identity().ClusterID, s.cfg.Now())
	if err := s.act(ctx, id, actions); err != nil {
		return err
	}
	if now := s.foreign.get(name); now != nil && now.ClusterID() != "" {
		s.cfg.Logger.Info("a ForeignCluster leads to a cluster", "name", name, "url", now.Spec.AuthURL, "cluster", now.ClusterID())
		s.places.look(name, now, s.cfg.Now())
		s.queue.Add(peer.ClusterID(now.ClusterID()))
	}
	return nil
}
