package recorder

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"liqo.io/agent/endpoint"
	"liqo.io/agent/peer"
)

// Config is everything a Recorder needs. Remembered, Proved, Pinned and Succeeds
// may be left out.
type Config struct {
	// Self is our own cluster ID, SelfKey our own key.
	Self    peer.ClusterID
	SelfKey peer.Fingerprint
	// Identify checks a claim at the peer's endpoint. It must end by itself
	// within seconds and is called from up to Checkers goroutines at once.
	Identify func(ctx context.Context, t endpoint.Target) (endpoint.Result, error)
	// Reconfirm asks discovery to ask for an instance's records again (RFC
	// 6762 section 10.4). It must not block.
	Reconfirm func(link, instance string)
	// Changed is told of every change of a peer's view. It must not block.
	Changed func(peer.ClusterID)
	// Proved is told of every check that proved the key a cluster is known by. It
	// must not block; nil: nobody is told.
	Proved func(id peer.ClusterID, res endpoint.Result)
	// Pinned returns the key that is trusted to be a cluster's, zero for none: no
	// other becomes the known one. It must be quick; nil: none is.
	Pinned func(id peer.ClusterID) peer.Fingerprint
	// Succeeds reports whether a check showed that the key old was replaced by the
	// one that was proved. nil: what the certificates say.
	Succeeds func(res endpoint.Result, old peer.Fingerprint) bool
	// Store keeps what must survive.
	Store Store
	// Remembered are the peers known from earlier runs. Those that are not in
	// PhaseLost were there when the last run ended.
	Remembered []peer.Peer
	// Limit bounds the number of peers kept in memory, present or not.
	Limit int
	// Checkers bounds the checks under way at once.
	Checkers int
	// Interval is the time between two checks of a peer that answers.
	Interval time.Duration
	Logger   *slog.Logger
}

// Recorder owns what is known about peers. All methods may be called from any
// goroutine.
type Recorder struct {
	cfg    Config
	writer *writer
	views  *views
	holds  *holds
	calls  chan func()
	start  time.Time
	// refused counts sightings for which there was no room.
	refused atomic.Uint64

	sightings, checksAnswered, checksFailed atomic.Uint64

	// Everything below belongs to the goroutine in Run.
	entries  map[peer.ClusterID]*entry
	byKey    map[peer.Key]*claim
	held     map[peer.ClusterID]bool
	schedule schedule
	outcomes chan outcome
	interval time.Duration
	checkers sync.WaitGroup
}

// entry is one cluster ID: the key it is known by and every key that claims it.
type entry struct {
	id        peer.ClusterID
	known     peer.Fingerprint // zero until a claim was verified
	claims    map[peer.Fingerprint]*claim
	conflicts map[peer.Fingerprint]*peer.Conflict
	view      peer.Peer
	first     bool // no view published yet
}

type outcome struct {
	claim  *claim
	result endpoint.Result
	err    error
}

// New returns a Recorder that knows the remembered peers. Those that were
// there when the last run ended are looked for at their last address as soon
// as Run starts; the others wait to be seen.
func New(cfg Config) *Recorder {
	r := &Recorder{
		cfg:      cfg,
		writer:   newWriter(cfg.Store, cfg.Logger),
		views:    newViews(),
		holds:    newHolds(),
		held:     make(map[peer.ClusterID]bool),
		calls:    make(chan func()),
		start:    time.Now(),
		entries:  make(map[peer.ClusterID]*entry),
		byKey:    make(map[peer.Key]*claim),
		outcomes: make(chan outcome, cfg.Checkers),
		interval: cfg.Interval,
		schedule: newSchedule(cfg.Checkers),
	}
	for _, p := range cfg.Remembered {
		if p.ID != cfg.Self && !p.Fingerprint.IsZero() {
			r.remember(p)
		}
	}
	return r
}

// remember restores a peer from an earlier run.
func (r *Recorder) remember(p peer.Peer) {
	e := r.entry(p.ID)
	c := r.claim(e, cmp.Or(e.known, p.Fingerprint))
	c.verified = true
	c.identity = peer.Identity{ClusterID: p.ID, ClusterName: p.Name, GuestNamespace: p.Namespace}
	c.url, c.addr, c.seenAt = p.URL, addrOf(p.URL), p.LastSeen
	e.known, e.first = c.key, false
	switch p.Phase {
	case peer.PhasePresent:
		// It keeps the phase it had until a check says otherwise, so that a
		// restart of the agent is no event for anybody.
		c.absent = absentUnknown
	case peer.PhaseUnreachable:
		c.absent = absentUnknown
		c.failures, c.failure = 1, cmp.Or(p.Reason, "did not answer before the agent restarted")
	default:
		c.absent, c.absentReason = absentSaid, cmp.Or(p.Reason, "not seen since the agent started")
	}
	if c.absent == absentUnknown {
		r.schedule.plan(c, r.start)
	}
	e.view = p.Clone()
	e.view.Conflict, e.view.Fingerprint = nil, c.key
	e.view.Phase, e.view.Reason = c.phase()
	e.view.Failures = c.failures
	r.views.publish(e.view)
}

// Run records until ctx ends, then stores what is pending. It returns nil.
func (r *Recorder) Run(ctx context.Context) error {
	var background sync.WaitGroup
	background.Go(func() { r.writer.run(ctx, r.views.all) })
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		r.dispatch(ctx)
		wait := time.Hour
		if due, ok := r.schedule.next(); ok {
			wait = max(0, time.Until(due))
		}
		timer.Reset(wait)
		select {
		case <-ctx.Done():
		case call := <-r.calls:
			call()
		case out := <-r.outcomes:
			r.settle(out)
		case <-r.holds.ready:
			for id, hold := range r.holds.take() {
				r.hold(id, hold)
			}
		case <-timer.C:
		}
	}
	background.Wait()
	r.checkers.Wait()
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	// A failure was logged by flush, and there is no later to try again in.
	_ = r.writer.flush(last, lastSeenOf(r.views.all()))
	return nil
}

// do runs f on the goroutine that owns the peers and waits for it.
func (r *Recorder) do(ctx context.Context, f func()) error {
	done := make(chan struct{})
	select {
	case r.calls <- func() { f(); close(done) }:
	case <-ctx.Done():
		return ctx.Err()
	}
	<-done
	return nil
}

// See records a sighting. The peer is checked at once when the sighting says
// something new.
func (r *Recorder) See(ctx context.Context, s peer.Sighting) error {
	return r.do(ctx, func() { r.see(s) })
}

// Unsee records that a source no longer sees a peer, and why.
func (r *Recorder) Unsee(ctx context.Context, k peer.Key, why Absence) error {
	return r.do(ctx, func() { r.unsee(k, why) })
}

// Rename gives a peer the alias the local user chose; "" removes it. It
// reports false when there is no such peer.
func (r *Recorder) Rename(ctx context.Context, id peer.ClusterID, alias string) (bool, error) {
	found := false
	err := r.do(ctx, func() {
		e := r.entries[id]
		if found = e != nil && id != r.cfg.Self; found {
			view := e.view.Clone()
			view.Alias = alias
			r.replace(e, view)
		}
	})
	return found, err
}

// SetInterval changes the time between checks, for checks planned from now on.
func (r *Recorder) SetInterval(ctx context.Context, d time.Duration) error {
	return r.do(ctx, func() { r.interval = d })
}

func (r *Recorder) see(s peer.Sighting) {
	if s.ClusterID == r.cfg.Self && s.Fingerprint == r.cfg.SelfKey {
		return
	}
	r.sightings.Add(1)
	if old := r.byKey[s.Key()]; old != nil && (old.id != s.ClusterID || old.key != s.Fingerprint) {
		// The instance now speaks for somebody else. Anybody can say so in a
		// packet: it takes the endpoint's silence as well.
		r.unsee(s.Key(), Absence{Reason: "its name is used by another cluster", Expired: true})
	}
	if r.entries[s.ClusterID] == nil && len(r.entries) >= r.cfg.Limit && !r.evict() {
		r.refused.Add(1)
		return
	}
	e := r.entry(s.ClusterID)
	c := r.claim(e, s.Fingerprint)
	r.byKey[s.Key()] = c
	if !c.see(s) {
		return
	}
	if c.checking {
		c.again = true
	} else {
		r.schedule.plan(c, time.Now())
	}
	r.update(e)
}

func (r *Recorder) unsee(k peer.Key, why Absence) {
	c := r.byKey[k]
	if c == nil {
		return
	}
	delete(r.byKey, k)
	if !c.unsee(k, why.kind(), why.Reason) {
		return
	}
	r.forgetCalls(c, why)
	if len(c.sightings) == 0 {
		if c.held && c.absent == absentSaid {
			// It said goodbye to those who look around. Whether it is there for those
			// who depend on it, its endpoint knows.
			c.absent = absentExpired
		}
		switch {
		case c.absent == absentSaid || !c.verified:
			c.again = false
			r.schedule.plan(c, time.Time{})
		case c.checking:
			c.again = true
		default:
			r.schedule.plan(c, time.Now())
		}
		if c.verified && c.absent == absentExpired && k.Source == peer.LAN {
			// If another now speaks under its name, the owner of the name speaks up.
			r.cfg.Reconfirm(k.Link, k.Instance)
		}
	}
	r.update(r.entries[c.id])
}

// forgetCalls takes back that a peer called us once nothing else sees it: where
// it called from says nothing about whether it is still there. If it is, it calls
// again.
func (r *Recorder) forgetCalls(c *claim, why Absence) {
	for _, s := range c.sightings {
		if s.Source != peer.IncomingPeering {
			return
		}
	}
	for k := range c.sightings {
		delete(r.byKey, k)
		c.unsee(k, why.kind(), why.Reason)
	}
}

// dispatch starts the checks that are due, as far as there are checkers.
func (r *Recorder) dispatch(ctx context.Context) {
	now := time.Now()
	for {
		c := r.schedule.take(now)
		if c == nil {
			return
		}
		c.checking, c.again = true, false
		c.looked = slices.Clone(c.fresh)
		target := c.target()
		r.checkers.Go(func() {
			res, err := r.cfg.Identify(ctx, target)
			r.outcomes <- outcome{claim: c, result: res, err: err}
		})
	}
}

// settle takes a check's outcome in.
func (r *Recorder) settle(out outcome) {
	c, now := out.claim, time.Now()
	r.schedule.done(c)
	c.checking = false
	r.countCheck(out.err)
	if errors.Is(out.err, context.Canceled) || !r.owns(c) {
		return
	}
	e := r.entries[c.id]
	if out.err == nil && out.result.Fingerprint != c.key {
		c = r.follow(e, c, out.result.Fingerprint)
	}
	c.settle(out.result, out.err, now)
	switch {
	case out.err != nil:
		for _, s := range c.sightings {
			if s.Source == peer.LAN {
				r.cfg.Reconfirm(s.Link, s.Instance)
			}
		}
	case e.known.IsZero():
		e.known = c.key
	case e.known != c.key && r.succession(out.result, e.known):
		r.succeed(e, c)
	case e.known != c.key && e.conflicts[c.key] == nil:
		e.conflicts[c.key] = &peer.Conflict{Fingerprint: c.key, Addr: out.result.Addr.String(), Since: now.Truncate(time.Second)}
	}
	if c.key == e.known {
		c.held = r.held[c.id]
		if out.err == nil && r.cfg.Proved != nil && c.id != r.cfg.Self {
			r.cfg.Proved(c.id, out.result)
		}
	}
	next := c.nextCheck(now, r.interval, rand.Float64())
	switch {
	case c.again:
		next = now
	case c.detour():
		next = now.Add(secondLook)
	}
	if !c.checking {
		r.schedule.plan(c, next)
	}
	r.update(e)
}

// update recomputes a cluster's view, drops claims and entries that mean
// nothing any more, and publishes what changed.
func (r *Recorder) update(e *entry) {
	for key, c := range e.claims {
		phase, _ := c.phase()
		if phase == peer.PhaseLost && len(c.sightings) == 0 && !c.checking && key != e.known {
			r.schedule.plan(c, time.Time{})
			delete(e.claims, key)
			delete(e.conflicts, key)
		}
	}
	if len(e.claims) == 0 && e.known.IsZero() {
		r.remove(e)
		return
	}
	view := e.view.Clone()
	view.ID = e.id
	if best := e.best(); best != nil {
		best.fill(&view)
	}
	view.Conflict = e.conflict()
	if view.FirstSeen.IsZero() {
		view.FirstSeen = time.Now().Truncate(time.Second)
	}
	r.replace(e, view)
}

// replace publishes a view if it differs, and has it stored if that must
// survive.
func (r *Recorder) replace(e *entry, view peer.Peer) {
	old := e.view
	e.view = view
	if e.id == r.cfg.Self {
		r.views.publishSelf(view.Conflict)
	} else {
		r.views.publish(view)
	}
	if !e.first && sameView(old, view) {
		return
	}
	e.first = false
	events := eventsBetween(old, view, time.Now())
	r.log(view, events)
	switch {
	case e.id == r.cfg.Self:
		r.writer.note(events)
	case !view.Fingerprint.IsZero() && (len(events) > 0 || !sameStored(old, view)):
		r.writer.put(view, e.sightings(), events)
	}
	if e.id != r.cfg.Self {
		r.cfg.Changed(e.id)
	}
}

// remove forgets a cluster that was never verified, or had to make room.
func (r *Recorder) remove(e *entry) {
	for _, c := range e.claims {
		r.schedule.plan(c, time.Time{})
		for k := range c.sightings {
			delete(r.byKey, k)
		}
	}
	delete(r.entries, e.id)
	r.views.remove(e.id)
	r.cfg.Changed(e.id)
}

// evict makes room for a new peer by forgetting, in memory only, the one that
// has been gone for longest; it reports false when every peer is there.
func (r *Recorder) evict() bool {
	var oldest *entry
	for _, e := range r.entries {
		if e.view.Phase != peer.PhaseLost || e.view.Alias != "" || r.held[e.id] || e.busy() {
			continue
		}
		if oldest == nil || e.view.LastSeen.Before(oldest.view.LastSeen) {
			oldest = e
		}
	}
	if oldest == nil {
		return false
	}
	r.remove(oldest)
	return true
}

func (r *Recorder) log(p peer.Peer, events []peer.Event) {
	for _, ev := range events {
		level := slog.LevelInfo
		if ev.Kind == peer.EventConflict {
			level = slog.LevelError
		}
		r.cfg.Logger.Log(context.Background(), level, "peer "+string(ev.Kind),
			"peer", p.Name, "id", p.ID, "detail", ev.Detail)
	}
}

func (r *Recorder) entry(id peer.ClusterID) *entry {
	e := r.entries[id]
	if e == nil {
		e = &entry{
			id:        id,
			claims:    make(map[peer.Fingerprint]*claim),
			conflicts: make(map[peer.Fingerprint]*peer.Conflict),
			first:     true,
		}
		r.entries[id] = e
		switch {
		case id == r.cfg.Self:
			e.known = r.cfg.SelfKey
		case r.cfg.Pinned != nil:
			if pin := r.cfg.Pinned(id); !pin.IsZero() {
				e.known = pin
				r.claim(e, pin)
			}
		}
	}
	return e
}

func (r *Recorder) claim(e *entry, key peer.Fingerprint) *claim {
	c := e.claims[key]
	if c == nil {
		c = &claim{id: e.id, key: key, sightings: make(map[peer.Key]peer.Sighting), heapPos: -1, held: key == e.known && r.held[e.id]}
		e.claims[key] = c
	}
	return c
}

// best returns the claim that speaks for the cluster: the known key's, or
// while none is known, the one with the most sightings (ties: lowest key).
func (e *entry) best() *claim {
	if c := e.claims[e.known]; c != nil || !e.known.IsZero() {
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

// conflict returns the conflict that has lasted longest, nil when there is none.
func (e *entry) conflict() *peer.Conflict {
	var oldest *peer.Conflict
	for _, c := range e.conflicts {
		if oldest == nil || c.Since.Before(oldest.Since) {
			oldest = c
		}
	}
	return oldest
}

// sightings returns what sees the cluster now under its known key. A lost
// peer has none: it is how the next run knows who was there when this one
// ended.
func (e *entry) sightings() []peer.Sighting {
	if c := e.claims[e.known]; c != nil && e.view.Phase != peer.PhaseLost {
		return c.ordered()
	}
	return nil
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

func (e *entry) busy() bool {
	for _, c := range e.claims {
		if c.checking {
			return true
		}
	}
	return false
}
