package contact

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"liqo.io/agent/agent/recorder"
	"liqo.io/agent/endpoint"
	"liqo.io/agent/peer"
)

const (
	defaultParallel = 16
	defaultLimit    = 10_000
)

// Recorder takes what the leads amount to. Its methods fail only when ctx ends.
type Recorder interface {
	See(ctx context.Context, s peer.Sighting) error
	Unsee(ctx context.Context, k peer.Key, why recorder.Absence) error
}

// Config is everything that Contacts need. Proved, Changed and the numbers may be
// left out.
type Config struct {
	// Self is our own cluster ID, SelfKey our own key.
	Self    peer.ClusterID
	SelfKey peer.Fingerprint
	// Identify asks an endpoint who is there. It must end by itself within seconds,
	// and at once when ctx is canceled. It is called from up to Parallel goroutines
	// at once. To see that a name leads elsewhere it must not answer from a
	// connection that was made earlier.
	Identify func(ctx context.Context, t endpoint.Target) (endpoint.Result, error)
	// Recorder takes the sightings.
	Recorder Recorder
	// Known returns what the recorder knows of a cluster now. It must be quick, and is
	// called from any goroutine.
	Known func(id peer.ClusterID) (peer.Peer, bool)
	// Proved is told of each cluster that a lead was found to lead to, every time. It
	// must not block.
	Proved func(id peer.ClusterID, res endpoint.Result)
	// Changed is told of a lead whose State is another, apart from Failures and Next,
	// and of one that is gone. It must not block.
	Changed func(k peer.Key)
	// Parallel bounds the attempts under way; 0: 16. Leads of persons and of domains
	// hold three quarters of them at most.
	Parallel int
	// Limit bounds the leads of persons, and for itself the sum of all others; 0: 10000.
	Limit  int
	Logger *slog.Logger
}

// Contacts keeps leads and what is known about them. All methods may be called
// from any goroutine, and but for Run none of them blocks.
type Contacts struct {
	cfg   Config
	mail  *mailbox
	views views
	// refused counts leads for which there was no room.
	refused atomic.Uint64

	// Everything below belongs to the goroutine in Run.
	leads    map[peer.Key]*entry
	byID     map[peer.ClusterID]map[*entry]struct{}
	count    [sides]int // of leads
	dirty    []*entry
	schedule schedule
	outcomes chan outcome
	attempts sync.WaitGroup
}

// New returns Contacts without any lead.
func New(cfg Config) *Contacts {
	cfg.Parallel = cmp.Or(cfg.Parallel, defaultParallel)
	cfg.Limit = cmp.Or(cfg.Limit, defaultLimit)
	return &Contacts{
		cfg:      cfg,
		mail:     newMailbox(),
		views:    views{states: make(map[peer.Key]*State)},
		leads:    make(map[peer.Key]*entry),
		byID:     make(map[peer.ClusterID]map[*entry]struct{}),
		schedule: newSchedule(cfg.Parallel),
		outcomes: make(chan outcome, cfg.Parallel),
	}
}

// Set adds a lead, or changes the one with its key. The same again changes
// nothing, so it may be said as often as one likes; it has to be said again only
// if there was no room for it.
func (c *Contacts) Set(l Lead) {
	l.Addrs = slices.Clone(l.Addrs)
	c.mail.set(l)
}

// Drop takes a lead back, and with it its sighting, for the reason given.
func (c *Contacts) Drop(k peer.Key, why recorder.Absence) { c.mail.drop(k, why) }

// Ask has a lead asked now, whatever its turn is. A lead that is known not to need
// asking is not asked.
func (c *Contacts) Ask(k peer.Key) { c.mail.ask(k) }

// Touch says that the recorder's view of a cluster changed.
func (c *Contacts) Touch(id peer.ClusterID) { c.mail.touch(id) }

// Refused returns how many times a lead was left out because Config.Limit others
// were there.
func (c *Contacts) Refused() uint64 { return c.refused.Load() }

// State returns what is known about a lead; false if there is none with that key,
// or it was not taken in yet.
func (c *Contacts) State(k peer.Key) (State, bool) { return c.views.get(k) }

// States returns what is known about the leads whose keys match, sorted by key.
// Their Addrs are shared: do not change them.
func (c *Contacts) States(match func(peer.Key) bool) []State { return c.views.matching(match) }

// Run looks after the leads until ctx ends, waits for its goroutines, and returns
// nil. After an error, which is the recorder's, it may be run again.
func (c *Contacts) Run(ctx context.Context) error {
	attempts, cancel := context.WithCancel(ctx)
	defer c.halt()
	defer cancel()
	c.resume()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		c.dispatch(attempts)
		if err := c.flush(ctx); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		wait := time.Hour
		if due, ok := c.schedule.next(); ok {
			wait = max(0, time.Until(due))
		}
		timer.Reset(wait)
		select {
		case <-ctx.Done():
			return nil
		case <-c.mail.ready:
			c.take(c.mail.take())
		case o := <-c.outcomes:
			c.settle(o)
		case <-timer.C:
		}
	}
}

// resume begins again where an earlier run ended.
func (c *Contacts) resume() {
	for _, l := range c.leads {
		if l.attempt != nil {
			l.attempt = nil
			c.schedule.plan(l, time.Now())
		}
	}
}

// halt waits for the attempts, which were canceled, and forgets how they ended.
func (c *Contacts) halt() {
	c.attempts.Wait()
	for len(c.outcomes) > 0 {
		c.schedule.done((<-c.outcomes).attempt)
	}
}
