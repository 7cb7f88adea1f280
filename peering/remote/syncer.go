package remote

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"liqo.io/agent/api"
	"liqo.io/agent/endpoint/client"
	"liqo.io/agent/endpoint/wire"
	"liqo.io/agent/kube/work"
	"liqo.io/agent/peer"
	"liqo.io/agent/peering/plan"
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

// noticeAgain is for a notice that failed.
var noticeAgain = work.Backoff{First: time.Second, Max: time.Second}

// Caller sends requests to peers, as *client.Client does.
type Caller interface {
	Exchange(ctx context.Context, t peer.Target, r client.Request) (client.Response, error)
}

// Config is everything a Syncer needs.
type Config struct {
	Peers Caller
	// Greeting says who we are. It is asked for every call, and must be quick.
	Greeting func() wire.Greeting
	// Changed is told that what Get returns is different now, in more than At. It
	// must not block.
	Changed func(id peer.ClusterID)
	// Reached is told that a peer answered: where, and with which key, which may be
	// one that succeeded the expected one. It must not block; nil: nobody is told.
	Reached func(id peer.ClusterID, r client.Result)
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
	cfg Config
	// queue is changed with mu held where that depends on what mu guards.
	queue *work.Queue[job]
	// every is the time between two looks at a peer in contact, in nanoseconds.
	every atomic.Int64

	mu    sync.Mutex
	peers map[peer.ClusterID]*entry
}

// job is something to do with one peer: a look, or a notice.
type job struct {
	id     peer.ClusterID
	notice bool
}

// entry is one peer. Everything is guarded by Syncer.mu.
type entry struct {
	id      peer.ClusterID
	logger  *slog.Logger
	set     plan.RemoteSpec // as it was given
	want    plan.RemoteSpec // the desired state: set, or what is owed after that became zero
	version uint64          // goes up with want
	terms   terms
	owed    time.Time // since when a deletion is
	seen    plan.RemoteStatus
	memo    memo
	look    attempt
	notice  attempt
	tell    peer.Target // where the notice goes
	tries   int         // of the notice
}

// attempt is how it is with one job of a peer.
type attempt struct {
	waits   bool // of a notice: it is to begin
	running bool
	started time.Time
	cancel  context.CancelFunc // while it is running
}

// interrupt ends an attempt early if it is running.
func (a *attempt) interrupt() {
	if a.cancel != nil {
		a.cancel()
	}
}

// terms count the times that something was asked for anew.
type terms struct {
	ask   uint64 // to be let in
	fresh uint64 // a peering that may have been ended before
}

// next returns the terms after old was replaced by d.
func (t terms) next(old, d plan.RemoteSpec) terms {
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
	s := &Syncer{cfg: cfg, queue: work.New(work.Config[job]{}), peers: make(map[peer.ClusterID]*entry)}
	s.SetInterval(cfg.Interval)
	return s
}

// Set sets the desired state at one peer. A difference to what was set
// before is acted on at once. The zero RemoteSpec ends it, except for deletions that
// are owed; see the package comment. Nothing that d points to may be changed
// afterwards.
func (s *Syncer) Set(id peer.ClusterID, d plan.RemoteSpec) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.peers[id]
	if e == nil {
		if isZero(d) {
			return
		}
		e = &entry{id: id, logger: s.cfg.Logger.With("peer", id)}
		s.peers[id] = e
	} else if sameSpec(d, e.set) {
		return
	}
	old := e.want
	e.set, e.want = d, d
	if isZero(d) {
		e.want = leftover(old, e.memo)
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
		s.queue.Add(job{id: id})
	}
}

// SetInterval changes the time between two looks at a peer in contact, for looks
// planned from now on; 0 means DefaultInterval. Any goroutine may call it at any
// time.
func (s *Syncer) SetInterval(d time.Duration) { s.every.Store(int64(cmp.Or(d, DefaultInterval))) }

func (s *Syncer) interval() time.Duration { return time.Duration(s.every.Load()) }

// Get returns what is known about one peer's side: nothing, if nothing was set.
// What it points to is never changed.
func (s *Syncer) Get(id peer.ClusterID) plan.RemoteStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.peers[id]; e != nil {
		return e.seen
	}
	return plan.RemoteStatus{}
}

// Check looks at the peer now, if anything was set for it: a notice came from it,
// or somebody waits. Many calls in a short time are one look.
func (s *Syncer) Check(id peer.ClusterID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.peers[id]; e != nil && !e.want.Target.Fingerprint.IsZero() {
		s.queue.AddAfter(job{id: id}, time.Until(e.look.started.Add(checkGap)))
	}
}

// Notify tells the peer that it should look at us, if anything was set for it. If
// that fails, it is tried once more.
func (s *Syncer) Notify(id peer.ClusterID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.peers[id]; e != nil && !e.want.Target.Fingerprint.IsZero() {
		e.tell, e.tries = e.want.Target, 0
		s.notify(e, 0)
	}
}

// notify has a notice sent after a pause. s.mu is held.
func (s *Syncer) notify(e *entry, pause time.Duration) {
	e.notice.waits = true
	s.queue.AddAfter(job{id: e.id, notice: true}, pause)
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
	s.queue.Run(ctx, s.cfg.Workers, s.do)
	return nil
}

// do does a job. When the next one is due is decided together with what becomes of the
// peer's entry, and so not by the outcome.
func (s *Syncer) do(ctx context.Context, j job) work.Outcome {
	s.mu.Lock()
	e := s.peers[j.id]
	if e == nil {
		s.mu.Unlock()
		return work.Done()
	}
	a := &e.look
	if j.notice {
		a = &e.notice
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	*a = attempt{running: true, started: time.Now(), cancel: cancel}
	// Whoever asked between the queue and here is answered by this attempt.
	s.queue.Drop(j)
	target := e.tell
	p := &pass{s: s, e: e, ctx: ctx, version: e.version, want: e.want, terms: e.terms, owes: e.owes(), seen: e.seen, memo: e.memo}
	s.mu.Unlock()
	if j.notice {
		s.told(e, s.tell(ctx, target))
	} else {
		s.looked(p, p.look())
	}
	return work.Done()
}

// looked takes in the outcome of a look.
func (s *Syncer) looked(p *pass, err error) {
	e := p.e
	if err != nil && !errors.Is(err, errInterrupted) {
		e.logger.Debug("could not reconcile the objects at a peer", "error", err)
	}
	s.mu.Lock()
	if !s.finish(e, &e.look) {
		s.mu.Unlock()
		return
	}
	wait := p.settle(err)
	changed := !sameStatus(p.seen, e.seen)
	e.seen, e.memo = p.seen, p.memo
	if s.tidy(e) && e.active() {
		s.queue.AddAfter(job{id: e.id}, wait)
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
func (s *Syncer) tell(ctx context.Context, target peer.Target) error {
	resp, err := s.cfg.Peers.Exchange(ctx, target, client.Request{Method: http.MethodPost, Path: wire.PathNotice})
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
		e.logger.Debug("could not notify a peer of a change", "error", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.finish(e, &e.notice) {
		return
	}
	switch {
	case err == nil:
	case errors.Is(err, errInterrupted):
		s.notify(e, 0)
	default:
		if e.tries++; e.tries < noticeTries {
			s.notify(e, noticeAgain.Pause(1))
		}
	}
	s.tidy(e)
}

// finish notes that an attempt has ended. It reports false if the peer was forgotten.
// s.mu is held.
func (s *Syncer) finish(e *entry, a *attempt) bool {
	a.running, a.cancel = false, nil
	return s.peers[e.id] == e
}

// tidy takes out what nothing is left to do for, and reports whether the entry
// stays. s.mu is held.
func (s *Syncer) tidy(e *entry) bool {
	if e.active() {
		return true
	}
	s.queue.Drop(job{id: e.id})
	if !e.want.Target.Fingerprint.IsZero() && !e.owed.IsZero() && time.Since(e.owed) >= owedFor && deletes(leftover(e.want, e.memo)) {
		e.logger.Warn("gave up deleting our objects at a peer; the peer removes them when it notices that they are unused", "tried_for", owedFor)
		e.owed = time.Time{}
	}
	if !isZero(e.set) || e.look.running || e.notice.running || e.notice.waits {
		return true
	}
	s.drop(e)
	return false
}

// drop takes an entry out. s.mu is held.
func (s *Syncer) drop(e *entry) {
	s.queue.Drop(job{id: e.id})
	s.queue.Drop(job{id: e.id, notice: true})
	delete(s.peers, e.id)
}

// active reports whether the peer is to be looked at by itself. s.mu is held.
func (e *entry) active() bool {
	w := &e.want
	asks := w.Ask && (e.memo.asked != e.terms.ask || e.seen.Asked == nil || e.seen.Asked.Auth != api.AuthAccepted)
	return !w.Target.Fingerprint.IsZero() && (asks || contacts(*w) || e.owes())
}

// owes reports whether a deletion is to be tried.
func (e *entry) owes() bool {
	return deletes(leftover(e.want, e.memo)) && !e.owed.IsZero() && time.Since(e.owed) < owedFor
}
