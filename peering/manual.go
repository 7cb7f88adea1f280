package peering

import (
	"context"
	"errors"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"liqo.io/agent/kube/work"
	"liqo.io/agent/peer"
	"liqo.io/agent/peering/access"
	"liqo.io/agent/peering/discovered"
	"liqo.io/agent/peering/foreign"
	"liqo.io/agent/peering/objects"
	"liqo.io/agent/peering/plan"
	"liqo.io/agent/peering/reason"
)

const (
	// askedFor is how long it takes until an object shows that its URL is being asked:
	// a cluster that answers has answered by then.
	askedFor = time.Second
	// removalDelay is for how long nothing is decided about a cluster when a person's
	// object about it is gone: until the registry knows that nobody vouches for its
	// URL any more. Else an object of the agent's own would be made only to be deleted
	// again.
	removalDelay = 250 * time.Millisecond
)

// URLProbed says that URLProber.Result may answer something else about a
// ForeignCluster than before. It never blocks. Without a connection nothing is done
// about it, because the next connection begins with looking at every object. Any
// goroutine may call it at any time.
func (c *Controller) URLProbed(object string) {
	s := c.current()
	if s == nil {
		return
	}
	if fc := s.foreign.Get(object); fc != nil && fc.ClusterID() != "" {
		s.queue.Add(peer.ClusterID(fc.ClusterID()))
		return
	}
	s.named.Add(object)
}

// urlProbes knows what Config.URLs was asked. It outlives connections to the API
// server: an object is not gone because nobody can look. All methods are safe for
// concurrent use.
type urlProbes struct {
	prober URLProber // nil when nobody is asked

	mu    sync.Mutex
	asked map[string]asking // by the name of the object
}

// asking is what is asked for one object.
type asking struct {
	url   string
	since time.Time // the URL is asked
}

// newURLProbes returns urlProbes that were asked about the objects with those names
// before, nobody knows what.
func newURLProbes(asker URLProber, before []string) *urlProbes {
	p := &urlProbes{prober: asker, asked: make(map[string]asking)}
	for _, name := range before {
		p.asked[name] = asking{}
	}
	return p
}

// track has the URL of an object asked, or no longer when it has none to be asked;
// nil is an object that is gone. It reports whether another URL is asked than before.
func (p *urlProbes) track(name string, fc *foreign.Cluster, now time.Time) (another bool) {
	if p.prober == nil {
		return false
	}
	// The lock is held while the asker is told, so that it hears things in order.
	p.mu.Lock()
	defer p.mu.Unlock()
	a, was := p.asked[name]
	if fc == nil || !fc.ProbesURL() {
		if was {
			delete(p.asked, name)
			p.prober.Stop(name)
		}
		return false
	}
	if another = a.url != fc.Spec.AuthURL; another {
		p.asked[name] = asking{url: fc.Spec.AuthURL, since: now}
	}
	p.prober.Probe(name, fc.Spec.AuthURL, peer.ClusterID(fc.ClusterID()))
	return another
}

// names returns every object that somebody is asked for.
func (p *urlProbes) names() []string {
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
func (p *urlProbes) at(fc *foreign.Cluster, now time.Time) (discovered.Probe, bool) {
	if p.prober == nil || !fc.ProbesURL() {
		return discovered.Probe{}, false
	}
	p.mu.Lock()
	a, asked := p.asked[fc.Name]
	p.mu.Unlock()
	if found, known := p.prober.Result(fc.Name); known && found.URL == fc.Spec.AuthURL && found.Reason != reason.NotAskedYet {
		return discovered.Probe{Known: true, Result: found}, true
	}
	return discovered.Probe{Overdue: asked && a.url == fc.Spec.AuthURL && now.Sub(a.since) >= askedFor}, true
}

// timeLeft returns how long the URL of an object may still be asked without an answer.
func (p *urlProbes) timeLeft(name string, now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return askedFor - now.Sub(p.asked[name].since)
}

// foreignChanged has everything looked at that a changed ForeignCluster is or was
// about.
func (s *session) foreignChanged() func(before, after *foreign.Cluster, restored bool) {
	enqueue := enqueuing(s, foreign.Kind())
	return func(before, after *foreign.Cluster, restored bool) {
		switch {
		case after != nil && (after.ProbesURL() || before != nil && before.ProbesURL()):
			s.named.Add(after.Name)
		case after == nil && !before.CreatedByAgent():
			for _, id := range objects.ClusterIDs(before.ClusterID()) {
				s.peers.with(id, func(m *peerState) { m.removedByPerson = s.cfg.Now() })
			}
			s.urls.track(before.Name, nil, s.cfg.Now())
			s.named.Add(before.Name) // it may have been looked at just now
		}
		enqueue(before, after, restored)
	}
}

// removalPause returns how long it takes until something is decided about a cluster,
// because a person's object about it went just now.
func (s *session) removalPause(id peer.ClusterID) time.Duration {
	var parted time.Time
	s.peers.with(id, func(m *peerState) { parted = m.removedByPerson })
	if parted.IsZero() {
		return 0
	}
	return max(removalDelay-s.cfg.Now().Sub(parted), 0)
}

// followNamed looks at the ForeignClusters that people wrote, one at a time, until ctx
// ends.
func (s *session) followNamed(ctx context.Context) {
	for _, fc := range s.foreign.All() {
		if fc.ProbesURL() {
			s.named.Add(fc.Name)
		}
	}
	for _, name := range s.urls.names() {
		s.named.Add(name) // it may be gone by now
	}
	s.named.Run(ctx, 1, s.processNamed)
}

// processNamed looks at one object.
func (s *session) processNamed(ctx context.Context, name string) work.Outcome {
	return result(s.lookAt(ctx, name))
}

// attemptedNamed takes in how that ended.
func (s *session) attemptedNamed(name string, a work.Attempt) {
	switch {
	case a.Err == nil:
	case a.Permanent:
		s.WarnOnce("ForeignCluster "+name, "what is known about the cluster of a ForeignCluster cannot be written to it", a.Err)
	default:
		if !apierrors.IsConflict(a.Err) && !errors.Is(a.Err, access.ErrReplaced) {
			s.NoteError(a.Err)
			s.keeper.CheckIfMissing(a.Err)
		}
		s.cfg.Logger.Debug("writing to a ForeignCluster failed, trying again", "name", name, "in", a.Next, "error", a.Err)
	}
}

// lookAt has the URL of an object asked, and does what is to be done about an
// object before it is known which cluster it is about. After that the reconcile of
// that cluster does the rest.
func (s *session) lookAt(ctx context.Context, name string) error {
	found := s.foreign.Get(name)
	if found == nil {
		s.urls.track(name, nil, s.cfg.Now())
		return nil
	}
	fc, id := &found.ForeignCluster, peer.ClusterID(found.ClusterID())
	another := s.urls.track(name, found, s.cfg.Now())
	probe, asked := s.urls.at(found, s.cfg.Now())
	if !asked {
		return nil
	}
	if !probe.Known && !probe.Overdue {
		s.named.AddAfter(name, s.urls.timeLeft(name, s.cfg.Now()))
	}
	if id != "" {
		if another || !probe.Known {
			s.queue.Add(id) // it may have been looked at before anybody was asked
		}
		return nil
	}
	actions := plan.PlanUnidentified(fc, found.Owners, probe, s.cfg.Identity().ClusterID, s.cfg.Now())
	if err := s.act(ctx, id, actions); err != nil {
		return err
	}
	if now := s.foreign.Get(name); now != nil && now.ClusterID() != "" {
		s.cfg.Logger.Info("a ForeignCluster's authUrl leads to a cluster", "name", name, "url", now.Spec.AuthURL, "cluster", now.ClusterID())
		s.urls.track(name, now, s.cfg.Now())
		s.queue.Add(peer.ClusterID(now.ClusterID()))
	}
	return nil
}
