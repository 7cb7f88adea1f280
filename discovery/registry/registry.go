package registry

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"liqo.io/agent/discovery/journal"
	"liqo.io/agent/endpoint/client"
	"liqo.io/agent/peer"
)

// Config is everything a Registry needs. Remembered, Seen, Joined, Proved, Pinned,
// Succeeds, and CandidateChanged may be left out. The functions are called from the
// goroutine of Run, unless they say otherwise, and must not block.
type Config struct {
	// Self is our own cluster ID, SelfKey our own key.
	Self    peer.ClusterID
	SelfKey peer.Fingerprint
	// Identify asks an endpoint who is there. It must end by itself within seconds, and
	// at once when ctx is canceled. It is called from up to Checkers
	// goroutines at once.
	Identify func(ctx context.Context, t peer.Target) (client.Result, error)
	// Lookup is Identify for places of which it is not known who is there, called from up
	// to Lookups goroutines. To see that a name leads elsewhere it must not answer from a
	// connection that was made earlier.
	Lookup func(ctx context.Context, t peer.Target) (client.Result, error)
	// Reconfirm asks discovery to ask for an instance's records again (RFC
	// 6762 section 10.4).
	Reconfirm func(link, instance string)
	// Changed is told of every change of a peer's view.
	Changed func(peer.ClusterID)
	// CandidateChanged is told of a candidate whose status is another, apart from
	// Failures and Next, and of one that is gone.
	CandidateChanged func(k peer.Key)
	// Proved is told of every probe that proved the key a cluster is known by.
	Proved func(id peer.ClusterID, res client.Result)
	// Pinned returns the key that is trusted to be a cluster's, zero for none: no
	// other becomes the known one. nil: none is.
	Pinned func(id peer.ClusterID) peer.Fingerprint
	// Succeeds reports whether a probe showed that the key old was replaced by the
	// one that was proved. nil: what the certificates say.
	Succeeds func(res client.Result, old peer.Fingerprint) bool
	// Store keeps what must survive.
	Store journal.Store
	// Remembered are the peers known from earlier runs that matter from the start. Those
	// that are not in PhaseLost were there when the last run ended.
	Remembered []peer.Peer
	// Recall returns other peers known from earlier runs, for which nobody waits, as many
	// at most; Run takes them in before anything else. nil: there are none.
	Recall func(ctx context.Context, most int) ([]peer.Peer, error)
	// Seen is what saw them then. What domains and persons led to is taken as said still,
	// until SetCandidate or DropCandidate says what has become of it. nil: not known.
	Seen map[peer.ClusterID][]peer.Sighting
	// Joined reports whether there is a peering with a cluster, which does not end because
	// a domain or a person no longer names it. nil: there is none.
	Joined func(id peer.ClusterID) bool
	// Limit bounds the number of peers kept in memory, present or not; that of the
	// candidates of persons; and that of all other candidates.
	Limit int
	// Checkers bounds the checks under way at once, Lookups the probes of candidates,
	// of which those of persons and of domains hold three quarters at most.
	Checkers, Lookups int
	// Interval is the time between two checks of a peer that answers.
	Interval time.Duration
	Logger   *slog.Logger
}

// Evidence is what the end of a sighting says about the cluster.
type Evidence uint8

const (
	// NoEvidence: we cannot see (our own link went away, a record was evicted).
	NoEvidence Evidence = iota
	// Expired: its records ended and nobody renewed them when asked. A check that
	// fails as well makes two signs of it.
	Expired
	// Withdrawn: the cluster said goodbye, or we stopped looking on purpose.
	Withdrawn
)

// Absence is why a source no longer sees a cluster.
type Absence struct {
	Reason   string // for people
	Evidence Evidence
}

// Registry owns what is known about who is around. All methods may be called from
// any goroutine.
type Registry struct {
	cfg   Config
	views *views
	mail  *mailbox
	calls chan *call
	idle  sync.Pool // of calls
	start time.Time

	machine  *machine // belongs to the goroutine in Run
	recalled bool     // likewise
	outcomes chan outcome
	probes   sync.WaitGroup
}

// call is something that the goroutine in Run is to do, and whose caller waits.
type call struct {
	do   func() // nil: take the sighting in
	s    peer.Sighting
	done chan struct{} // capacity 1
}

// New returns a Registry that knows the remembered peers. Those that were
// there when the last run ended are looked for at their last address as soon
// as Run starts; the others wait to be seen.
func New(cfg Config) *Registry {
	r := &Registry{
		cfg: cfg, views: newViews(), mail: newMailbox(), start: time.Now(),
		calls: make(chan *call), idle: sync.Pool{New: func() any { return &call{done: make(chan struct{}, 1)} }},
		outcomes: make(chan outcome, cfg.Checkers+cfg.Lookups+2), // either budget is one at least
	}
	r.machine = newMachine(&r.cfg, r.views, r.start)
	r.remember(cfg.Remembered)
	return r
}

func (r *Registry) remember(peers []peer.Peer) {
	for _, p := range peers {
		if p.ID != r.cfg.Self && !p.Fingerprint.IsZero() && r.machine.clusters[p.ID] == nil {
			r.machine.remember(p, r.start)
		}
	}
}

// recall takes in the peers that are remembered and did not matter at the start, as long
// as half of the room is left for those who come. Until then nothing else is taken in: whoever comes with the ID of one
// of them has to show the key that is known of it.
func (r *Registry) recall(ctx context.Context) error {
	if r.recalled || r.cfg.Recall == nil {
		return nil
	}
	room := r.cfg.Limit/2 - len(r.machine.clusters)
	if room <= 0 {
		return nil
	}
	others, err := r.cfg.Recall(ctx, room)
	if err != nil {
		return fmt.Errorf("read the remembered peers: %w", err)
	}
	r.remember(others)
	r.recalled = true
	return nil
}

// Run keeps the registry until ctx ends, waits for its goroutines, and stores what
// is pending. It returns nil, or an error if what is remembered cannot be read, and may
// be called again.
func (r *Registry) Run(ctx context.Context) error {
	if err := r.recall(ctx); err != nil && ctx.Err() == nil {
		return err
	}
	var background sync.WaitGroup
	background.Go(func() { r.machine.journal.Run(ctx, r.views.lastSeen) })
	r.machine.resume(time.Now())
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		for p := r.machine.take(time.Now()); p != nil; p = r.machine.take(time.Now()) {
			r.begin(ctx, p)
		}
		r.machine.letIn(time.Now())
		r.machine.flush(time.Now())
		wait := time.Hour
		if due, ok := r.machine.jobs.Next(); ok {
			wait = max(0, time.Until(due))
		}
		timer.Reset(wait)
		select {
		case <-ctx.Done():
		case c := <-r.calls:
			r.serve(c)
		case o := <-r.outcomes:
			r.end(ctx, o)
		case <-r.mail.ready:
			orders, holds := r.mail.take()
			r.machine.obey(orders, holds, time.Now())
		case <-timer.C:
		}
	}
	background.Wait()
	r.probes.Wait()
	for len(r.outcomes) > 0 {
		r.end(ctx, <-r.outcomes)
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	// A failure was logged by flush, and there is no later to try again in.
	_ = r.machine.journal.Flush(last, r.views.lastSeen())
	return nil
}

// begin makes a probe in a goroutine of its own.
func (r *Registry) begin(ctx context.Context, p *probe) {
	ctx, p.Cancel = context.WithCancel(ctx)
	r.probes.Go(func() {
		o := outcome{probe: p}
		if p.place == nil {
			o.result, o.err = r.cfg.Identify(ctx, p.target)
		} else {
			o.result, o.err = r.whoIsThere(ctx, p.place, p.last)
		}
		r.outcomes <- o
	})
}

// end takes in how a probe ended. When Run ends, that says nothing.
func (r *Registry) end(ctx context.Context, o outcome) {
	o.probe.Cancel()
	if ctx.Err() == nil {
		r.machine.settle(o, time.Now())
	} else {
		r.machine.jobs.Release(o.probe.Probe)
	}
}

// serve does what a caller waits for.
func (r *Registry) serve(c *call) {
	if c.do != nil {
		c.do()
	} else if !r.machine.repeats(&c.s) {
		s := c.s
		r.machine.see(&s, time.Now())
	}
	c.done <- struct{}{}
}

// do has the goroutine that owns the machine do f, or if that is nil take s in, and
// waits for it.
func (r *Registry) do(ctx context.Context, f func(), s peer.Sighting) error {
	c := r.idle.Get().(*call)
	defer r.idle.Put(c)
	c.do, c.s = f, s
	select {
	case r.calls <- c:
	case <-ctx.Done():
		return ctx.Err()
	}
	<-c.done
	return nil
}

// See records that a source sees a cluster with a key. The cluster is checked at once
// when that says something new.
func (r *Registry) See(ctx context.Context, s peer.Sighting) error { return r.do(ctx, nil, s) }

// Unsee records that a source no longer sees a cluster, and why.
func (r *Registry) Unsee(ctx context.Context, k peer.Key, why Absence) error {
	return r.ask(ctx, func() { r.machine.unsee(k, why, time.Now()) })
}

func (r *Registry) ask(ctx context.Context, f func()) error { return r.do(ctx, f, peer.Sighting{}) }

// change has f do something about another cluster than ours, and reports false when
// there is none with that ID.
func (r *Registry) change(ctx context.Context, id peer.ClusterID, f func(e *cluster)) (bool, error) {
	found := false
	err := r.ask(ctx, func() {
		e := r.machine.clusters[id]
		if found = e != nil && id != r.cfg.Self; found {
			f(e)
		}
	})
	return found, err
}

// Rename gives a peer the alias the local user chose; "" removes it. It
// reports false when there is no such peer.
func (r *Registry) Rename(ctx context.Context, id peer.ClusterID, alias string) (bool, error) {
	return r.change(ctx, id, func(e *cluster) {
		view := *e.view
		view.Alias = alias
		r.machine.replace(e, &view, time.Now())
	})
}

// Adopt makes key the one that a cluster is known by, because a person said so.
// Whoever holds the key known until now is a conflict from then on. It reports
// false when there is no such peer.
func (r *Registry) Adopt(ctx context.Context, id peer.ClusterID, key peer.Fingerprint) (bool, error) {
	return r.change(ctx, id, func(e *cluster) {
		if e.known != key {
			r.machine.adopt(e, key, time.Now())
		}
	})
}

// Forget forgets what was ever known about a cluster, also what is not stored yet. If something still
// sees it, it is a stranger that has just come.
func (r *Registry) Forget(ctx context.Context, id peer.ClusterID) error {
	return r.ask(ctx, func() {
		r.machine.journal.Drop(id)
		if e := r.machine.clusters[id]; e != nil && id != r.cfg.Self {
			r.machine.forget(e, time.Now())
		}
	})
}

// SetInterval changes the time between checks, for checks planned from now on.
func (r *Registry) SetInterval(ctx context.Context, d time.Duration) error {
	return r.ask(ctx, func() { r.machine.interval = d })
}

// Hold says whether somebody depends on a cluster. One that is held is checked
// at the address it had even when nothing announces it any more, and is there as
// long as its endpoint answers: peers that are joined do not part because
// multicast fails, or because one of them no longer advertises itself. It never
// blocks and may be called for clusters of which nothing is known yet.
func (r *Registry) Hold(id peer.ClusterID, hold bool) { r.mail.hold(id, hold) }

// SetCandidate adds a candidate, or changes the one with its key. The same again
// changes nothing, so it may be said as often as one likes; it has to be said again
// only if there was no room for it. It never blocks.
func (r *Registry) SetCandidate(c Candidate) {
	c.Addrs = slices.Clone(c.Addrs)
	r.mail.put(c.Key(), func(o *order) { o.set = &c })
}

// DropCandidate takes a candidate back, and with it its sighting, for the reason
// given. It may be one of an earlier run, see Config.Seen. It never blocks.
func (r *Registry) DropCandidate(k peer.Key, why Absence) {
	r.mail.put(k, func(o *order) { o.set, o.drop = nil, &why })
}
