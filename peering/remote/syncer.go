package remote

import (
	"cmp"
	"container/heap"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"liqo.io/agent/api"
	"liqo.io/agent/endpoint"
	"liqo.io/agent/peer"
)

const (
	// DefaultInterval and DefaultWorkers are used where Config says nothing.
	DefaultInterval = 30 * time.Second
	DefaultWorkers  = 16
	// checkGap is how often a peer can be looked at because of Check: its notices
	// must not keep us busy.
	checkGap = 50 * time.Millisecond
	// owedFor is how long the deletion of an object at a peer is tried.
	owedFor = time.Hour
	// noticeTries is how often a notice is sent if that fails. The peer looks by
	// itself later on.
	noticeTries = 2
)

// Caller sends requests to peers, as *endpoint.Client does.
type Caller interface {
	Exchange(ctx context.Context, t endpoint.Target, r endpoint.Request) (endpoint.Response, error)
}

// Config is everything a Syncer needs.
type Config struct {
	Peers Caller
	// Greeting says who we are. It is asked for every call, and must be quick.
	Greeting func() endpoint.Greeting
	// Changed is told that what Get returns is different now, in more than At. It
	// must not block.
	Changed func(id peer.ClusterID)
	// Reached is told that a peer answered: where, and with which key, which may be
	// one that succeeded the expected one. It must not block; nil: nobody is told.
	Reached func(id peer.ClusterID, r endpoint.Result)
	// TokenUsed is told that the token was answered for good: the peer let us in,
	// or said that the token is no good. It is not sent again. TokenUsed must not
	// block; nil: nobody is told.
	TokenUsed func(id peer.ClusterID)
	// Interval is the time between two looks at a peer in contact, 10 % more or
	// less; 0 means DefaultInterval.
	Interval time.Duration
	// Workers is how many peers are talked to at the same time; 0 means
	// DefaultWorkers.
	Workers int
	// Logger gets a line for what is written at peers; failures, which Get tells,
	// at debug level only.
	Logger *slog.Logger
}

// Syncer keeps what we have at the peers as it is to be. See the package comment.
type Syncer struct {
	cfg  Config
	wake chan struct{} // has something in it when the queue has changed
	// every is the time between two looks at a peer in contact, in nanoseconds.
	every atomic.Int64

	mu      sync.Mutex
	peers   map[peer.ClusterID]*entry
	queue   queue
	running int
}

// entry is one peer. Everything is guarded by Syncer.mu.
type entry struct {
	id      peer.ClusterID
	logger  *slog.Logger
	set     Desired // as it was given
	want    Desired // what is to be so: set, or what is owed after that became zero
	version uint64  // goes up with want
	terms   terms
	owed    time.Time // since when a deletion is
	seen    Observed
	memo    memo
	look    task
	notice  task
	tell    endpoint.Target // where the notice goes
	tries   int             // of the notice
}

// terms count the times that something was asked for anew.
type terms struct {
	ask   uint64 // to be let in
	fresh uint64 // a peering that may have been ended before
}

// next returns the terms after old was replaced by d.
func (t terms) next(old, d Desired) terms {
	fresh := d.Fresh && !old.Fresh
	if fresh {
		t.fresh++
	}
	if d.Ask && (!old.Ask || fresh || d.Token != "" && d.Token != old.Token) {
		t.ask++
	}
	return t
}

// New returns a Syncer that does nothing until Run.
func New(cfg Config) *Syncer {
	cfg.Workers = cmp.Or(cfg.Workers, DefaultWorkers)
	s := &Syncer{cfg: cfg, wake: make(chan struct{}, 1), peers: make(map[peer.ClusterID]*entry)}
	s.SetInterval(cfg.Interval)
	return s
}

// Set says what is to be so at one peer from now on. A difference to what was set
// before is acted on at once. The zero Desired ends it, except for deletions that
// are owed; see the package comment. Nothing that d points to may be changed
// afterwards.
func (s *Syncer) Set(id peer.ClusterID, d Desired) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.peers[id]
	if e == nil {
		if d.isZero() {
			return
		}
		e = &entry{id: id, logger: s.cfg.Logger.With("peer", id)}
		e.look, e.notice = task{entry: e, index: -1}, task{entry: e, index: -1}
		s.peers[id] = e
	} else if d.equal(e.set) {
		return
	}
	old := e.want
	e.set, e.want = d, d
	if d.isZero() {
		e.want = old.leftover(e.memo)
	}
	e.version++
	e.terms = e.terms.next(old, e.want)
	if e.want.RequestGone && !old.RequestGone || e.want.AdvertisementGone && !old.AdvertisementGone {
		e.owed = time.Now()
	}
	if !sameTarget(e.want.Target, old.Target) {
		// What is under way may wait for an address that is no longer of use.
		e.look.interrupt()
		if !e.want.Target.Fingerprint.IsZero() {
			e.tell = e.want.Target
			e.notice.interrupt()
		}
	}
	if s.tidy(e) && e.active() {
		s.schedule(&e.look, time.Now())
	}
}

// SetInterval changes the time between two looks at a peer in contact, for looks
// planned from now on; 0 means DefaultInterval. Any goroutine may call it at any
// time.
func (s *Syncer) SetInterval(d time.Duration) { s.every.Store(int64(cmp.Or(d, DefaultInterval))) }

func (s *Syncer) interval() time.Duration { return time.Duration(s.every.Load()) }

// Get returns what is known about one peer's side: nothing, if nothing was set.
// What it points to is never changed.
func (s *Syncer) Get(id peer.ClusterID) Observed {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.peers[id]; e != nil {
		return e.seen
	}
	return Observed{}
}

// Check looks at the peer now, if anything was set for it: a notice came from it,
// or somebody waits. Many calls in a short time are one look.
func (s *Syncer) Check(id peer.ClusterID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.peers[id]; e != nil && !e.want.Target.Fingerprint.IsZero() {
		now := time.Now()
		if earliest := e.look.started.Add(checkGap); earliest.After(now) {
			now = earliest
		}
		s.sooner(&e.look, now)
	}
}

// Notify tells the peer that it should look at us, if anything was set for it. If
// that fails, it is tried once more.
func (s *Syncer) Notify(id peer.ClusterID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.peers[id]; e != nil && !e.want.Target.Fingerprint.IsZero() {
		e.tell, e.tries = e.want.Target, 0
		s.schedule(&e.notice, time.Now())
	}
}

// Forget drops everything about a peer at once, deletions that are owed included.
func (s *Syncer) Forget(id peer.ClusterID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.peers[id]; e != nil {
		e.look.interrupt()
		e.notice.interrupt()
		s.drop(e)
	}
}

// Run talks to the peers until ctx ends, and then returns nil, after what was
// under way has ended too.
func (s *Syncer) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		for ctx.Err() == nil {
			work, wait := s.next(ctx)
			if work == nil {
				timer.Reset(wait)
				break
			}
			wg.Go(work)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-s.wake:
		case <-timer.C:
		}
	}
}

// next begins the task that is due and returns its work, or nil and how long none
// will be due.
func (s *Syncer) next(ctx context.Context) (work func(), wait time.Duration) {
	const never = time.Hour // a poke comes before
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running >= s.cfg.Workers || len(s.queue) == 0 {
		return nil, never
	}
	now := time.Now()
	if wait := s.queue[0].due.Sub(now); wait > 0 {
		return nil, wait
	}
	t := heap.Pop(&s.queue).(*task)
	s.running++
	e := t.entry
	t.running, t.started = true, now
	ctx, t.cancel = context.WithCancel(ctx)
	if t == &e.notice {
		target := e.tell
		return func() { s.told(e, s.tell(ctx, target)) }, 0
	}
	p := &pass{s: s, e: e, ctx: ctx, version: e.version, want: e.want, terms: e.terms, owes: e.owes(), seen: e.seen, memo: e.memo}
	return func() { s.looked(p, p.look()) }, 0
}

// looked takes in the outcome of a look.
func (s *Syncer) looked(p *pass, err error) {
	e := p.e
	if err != nil && !errors.Is(err, errInterrupted) {
		e.logger.Debug("could not bring about what is to be at a peer", "error", err)
	}
	s.mu.Lock()
	if !s.finish(&e.look) {
		s.mu.Unlock()
		return
	}
	wait := p.settle(err)
	changed := !p.seen.same(e.seen)
	e.seen, e.memo = p.seen, p.memo
	if s.tidy(e) && e.active() {
		s.sooner(&e.look, time.Now().Add(wait))
	}
	s.mu.Unlock()

	if p.result != nil && s.cfg.Reached != nil {
		s.cfg.Reached(e.id, *p.result)
	}
	if p.tokenUsed && s.cfg.TokenUsed != nil {
		s.cfg.TokenUsed(e.id)
	}
	if changed {
		s.cfg.Changed(e.id)
	}
}

// tell sends a notice.
func (s *Syncer) tell(ctx context.Context, target endpoint.Target) error {
	resp, err := s.cfg.Peers.Exchange(ctx, target, endpoint.Request{Method: http.MethodPost, Path: endpoint.PathNotice})
	switch {
	case ctx.Err() != nil:
		return errInterrupted
	case err != nil:
		return err
	}
	if no := refused(resp, "want to know that something changed here"); no != nil {
		return no
	}
	return nil
}

// told takes in the outcome of a notice.
func (s *Syncer) told(e *entry, err error) {
	if err != nil && !errors.Is(err, errInterrupted) {
		e.logger.Debug("could not tell a peer that something changed here", "error", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.finish(&e.notice) {
		return
	}
	switch {
	case err == nil:
	case errors.Is(err, errInterrupted):
		s.sooner(&e.notice, time.Now())
	default:
		if e.tries++; e.tries < noticeTries {
			s.sooner(&e.notice, time.Now().Add(jitter(time.Second)))
		}
	}
	s.tidy(e)
}

// finish ends a task, and puts it into the queue again if that was asked for
// meanwhile. It reports false if the peer was forgotten. s.mu is held.
func (s *Syncer) finish(t *task) bool {
	s.running--
	s.poke()
	t.cancel() // its context is of no use any more
	t.running, t.cancel = false, nil
	if s.peers[t.entry.id] != t.entry {
		return false
	}
	if t.again {
		t.again = false
		s.schedule(t, t.due)
	}
	return true
}

// tidy takes out what nothing is left to do for, and reports whether the entry
// stays. s.mu is held.
func (s *Syncer) tidy(e *entry) bool {
	if e.active() {
		return true
	}
	s.remove(&e.look)
	if !e.want.Target.Fingerprint.IsZero() && !e.owed.IsZero() && time.Since(e.owed) >= owedFor && e.want.leftover(e.memo).deletes() {
		e.logger.Warn("gave up deleting our objects at a peer; it removes them itself once it sees that they are of no use", "tried_for", owedFor)
		e.owed = time.Time{}
	}
	if !e.set.isZero() || e.look.running || e.notice.waits() || e.notice.running {
		return true
	}
	s.drop(e)
	return false
}

// drop takes an entry out. s.mu is held.
func (s *Syncer) drop(e *entry) {
	s.remove(&e.look)
	s.remove(&e.notice)
	delete(s.peers, e.id)
}

// active reports whether the peer is to be looked at by itself. s.mu is held.
func (e *entry) active() bool {
	w := &e.want
	asks := w.Ask && (e.memo.asked != e.terms.ask || e.seen.Asked == nil || e.seen.Asked.Auth != api.AuthAccepted)
	return !w.Target.Fingerprint.IsZero() && (asks || w.contact() || e.owes())
}

// owes reports whether a deletion is to be tried.
func (e *entry) owes() bool {
	return e.want.leftover(e.memo).deletes() && !e.owed.IsZero() && time.Since(e.owed) < owedFor
}

// poke has Run look at the queue again.
func (s *Syncer) poke() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}
