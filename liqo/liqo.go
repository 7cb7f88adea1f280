package liqo

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"reflect"
	"sync"
	"time"

	"k8s.io/client-go/rest"

	"liqo.io/agent/endpoint/client"
	"liqo.io/agent/endpoint/wire"
	"liqo.io/agent/kube"
	"liqo.io/agent/kube/work"
	"liqo.io/agent/liqo/document"
	"liqo.io/agent/liqo/engine"
	"liqo.io/agent/liqo/exchange"
	"liqo.io/agent/peer"
	"liqo.io/agent/peer/text"
)

const (
	// answerWait is how long a call of a consumer waits for Liqo's controllers here, so that it
	// need not ask again and again.
	answerWait = 3 * time.Second
	// maxCalls in callsIn is how often a provider is called. Each step takes one; a provider that
	// said something new each time would have this cluster write again and again.
	maxCalls, callsIn = 20, time.Minute
	// undoWait is how long the rights of a consumer outlive its peering, so that its Liqo can
	// clean up.
	undoWait = time.Minute
	// giveUp is how long Liqo here has to remove a consumer that is not served any more.
	giveUp = 3 * time.Minute
	// looks is the least pause between two looks for Liqo: others can cause them, and so can lists that fail.
	looks = 5 * time.Second
)

// detecting is how a look for Liqo that failed is repeated.
var detecting = work.Backoff{First: time.Second, Max: 30 * time.Second}

// Caller sends requests to peers, as *client.Client does.
type Caller interface {
	Exchange(ctx context.Context, t peer.Target, r client.Request) (client.Response, error)
}

// Config is what a Liqo needs. All of it is required.
type Config struct {
	// Peers calls the peers' endpoints.
	Peers Caller
	// Changed is told that the state of a pair is another. It must not block.
	Changed func(id peer.ClusterID)
	// Found is told that State is another. It must not block.
	Found func()
	// Addresses returns the addresses of this machine, each with the network that it is in.
	Addresses func() ([]net.Addr, error)
	Logger    *slog.Logger
	Now       func() time.Time
}

// Desired is the desired state of a pair.
type Desired struct {
	// Consume says whether and how to consume the peer, and Serve whether it may consume this
	// cluster. One that is nil is not known: what was desired before stays so, and what is there
	// stays as it is if nothing ever was. What they point to must not change afterwards.
	Consume *Consumption
	Serve   *bool
	// Cut: the networks of the two are not to be connected, and are disconnected before all else.
	Cut bool
}

// Consumption is the desired state of consuming a peer.
type Consumption struct {
	Wanted bool
	// Gone: the peer is given up, and nothing waits for it.
	Gone bool
	// Target is where the peer is, and its key. Without a fingerprint it is not called.
	Target peer.Target
	// Asks are the amounts to ask for; what is missing is left to the provider, or to a person.
	Asks map[string]string
}

// Status is the state of one direction of a pair.
type Status = exchange.Status

// pair is what is known about one peer. It is guarded by Liqo.mu.
type pair struct {
	desired Desired // what its fields point to never changes
	// unserved is since when the peer may not consume this cluster.
	unserved           time.Time
	consuming, serving Status

	asking asking
	// heard is the peer's last call, from heardAt, and answer what is answered to it. told is closed
	// when it was planned again.
	heard   *exchange.Call
	heardAt netip.Addr
	answer  exchange.Answer
	final   bool // nothing that Liqo does here changes the answer
	told    chan struct{}
}

// asking is what was said to a provider, and what it answered.
type asking struct {
	said    *exchange.Answer
	address netip.Addr
	call    *exchange.Call // that it answers
	next    time.Time      // when it is due again
	same    int            // answers in a row that said nothing new, or failures
	failed  string         // why the last call failed, a sentence; "" if it did not
	began   time.Time      // since when calls are counted
	calls   int            // since then
}

// mayCall counts a call, or returns after how long there may be another one. Liqo.mu is held.
func (a *asking) mayCall(now time.Time) time.Duration {
	if now.Sub(a.began) >= callsIn {
		a.began, a.calls = now, 0
	}
	if a.calls == maxCalls {
		return callsIn - now.Sub(a.began)
	}
	a.calls++
	return 0
}

// Liqo drives the Liqo of this cluster.
type Liqo struct {
	cfg  Config
	look chan struct{} // look for Liqo now; capacity 1

	mu     sync.Mutex
	looked bool // it is known whether there is Liqo
	found  *engine.Installation
	pairs  map[peer.ClusterID]*pair
	// settled: it is known which peers are in care here. Without a session, nothing can be done
	// for them: there is no Liqo that can be used.
	settled bool
	session *session
}

// New returns a Liqo that does nothing until Run.
func New(cfg Config) *Liqo {
	return &Liqo{cfg: cfg, look: make(chan struct{}, 1), pairs: make(map[peer.ClusterID]*pair)}
}

// Status returns the state of a pair.
func (l *Liqo) Status(id peer.ClusterID) (consuming, serving Status) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.status(id)
}

// status is Status. l.mu is held.
func (l *Liqo) status(id peer.ClusterID) (consuming, serving Status) {
	if p := l.pairs[id]; p != nil {
		return p.consuming, p.serving
	}
	unknown := Status{Unknown: !l.settled || l.session != nil && l.session.cares(id)}
	return unknown, unknown
}

// Installed returns the Liqo of this cluster, nil if there is none, and whether it was looked for.
func (l *Liqo) Installed() (found *engine.Installation, known bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.found, l.looked
}

// Look has the API server asked again whether Liqo is there. It does not block.
func (l *Liqo) Look() { work.Wake(l.look) }

// Drive sets the desired state of a pair, and returns its state.
func (l *Liqo) Drive(id peer.ClusterID, d Desired) (consuming, serving Status) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.pairs[id]
	if p == nil {
		wanted := d.Consume != nil && d.Consume.Wanted || d.Serve != nil && *d.Serve
		if !wanted && (l.session == nil || !l.session.cares(id)) {
			return l.status(id)
		}
		p = &pair{told: make(chan struct{})}
		l.pairs[id] = p
		p.reset(l.settled && l.session == nil)
		if l.session != nil {
			l.session.need()
		}
		l.due(id)
	}
	if p.desired.Cut != d.Cut {
		p.desired.Cut = d.Cut
		l.due(id)
	}
	c := d.Consume
	if before := p.desired.Consume; c != nil && before != nil && before.Gone && !before.Wanted && !c.Wanted && !c.Gone {
		gone := *c
		gone.Gone = true // once nobody waits for the peer, nobody does until it is wanted again
		c = &gone
	}
	if c != nil && (p.desired.Consume == nil || !reflect.DeepEqual(*p.desired.Consume, *c)) {
		if before := p.desired.Consume; before == nil || !reflect.DeepEqual(before.Target, c.Target) {
			p.asking.next = time.Time{} // it may be somewhere else
		}
		if !c.Wanted {
			p.asking = asking{}
			p.consuming = ending(p.consuming, l.session)
		}
		p.desired.Consume = c
		l.due(id)
	}
	if d.Serve != nil && (p.desired.Serve == nil || *p.desired.Serve != *d.Serve) {
		if !*d.Serve {
			p.unserved, p.heard = l.cfg.Now(), nil
			p.serving = ending(p.serving, l.session)
		}
		p.desired.Serve = d.Serve
		l.due(id)
	}
	l.forget(id, p)
	return p.consuming, p.serving
}

// forget drops a pair if nothing of it is wanted and nothing is left, and reports whether it did. mu is held.
func (l *Liqo) forget(id peer.ClusterID, p *pair) bool {
	c, serve := p.desired.Consume, p.desired.Serve
	over := c != nil && !c.Wanted && serve != nil && !*serve && reflect.DeepEqual(p.consuming, Status{}) && reflect.DeepEqual(p.serving, Status{})
	if !over || l.session == nil || l.session.cares(id) {
		return false
	}
	delete(l.pairs, id)
	return true
}

// reset forgets what is there. Nothing is if Liqo cannot be used.
func (p *pair) reset(unusable bool) {
	if unusable {
		p.consuming, p.serving, p.asking, p.heard = Status{}, Status{}, asking{}, nil
		return
	}
	p.consuming.Unknown, p.serving.Unknown = true, true
}

// ending is the state of a direction that is not wanted any more. What is under way may have made
// something that is not known yet.
func ending(before Status, s *session) Status {
	if s == nil && !before.Unknown {
		return before
	}
	return Status{Unknown: true, Present: before.Present, Busy: before.Present, Reason: before.Reason, Message: before.Message}
}

// serves reports whether the peer may consume this cluster.
func (p *pair) serves() bool { return p.desired.Serve != nil && *p.desired.Serve }

// due has a pair looked at. l.mu is held.
func (l *Liqo) due(id peer.ClusterID) {
	if l.session != nil {
		l.session.add(id)
	}
}

// ErrNotServed is the error of a call by a cluster that may not consume this one by Liqo.
var ErrNotServed = &wire.Refused{Reason: wire.ReasonNotAdmitted, Message: "your cluster has no accepted PeeringRequest here that asks for Liqo"}

// Answer answers a peer that consumes this cluster, or wants to, and calls from an address. It waits
// a moment for Liqo's controllers if they have something to do. The error is a *wire.Refused, or says
// what is wrong with the body.
func (l *Liqo) Answer(ctx context.Context, id peer.ClusterID, from netip.Addr, body []byte) (exchange.Answer, error) {
	call, err := exchange.ParseCall(body)
	if err != nil {
		return exchange.Answer{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, answerWait)
	defer cancel()
	l.mu.Lock()
	p := l.pairs[id]
	if p == nil || !p.serves() {
		l.mu.Unlock()
		return exchange.Answer{}, ErrNotServed
	}
	if l.session == nil {
		l.mu.Unlock()
		return exchange.Answer{}, &wire.Refused{Reason: wire.ReasonNoAPIServer, Message: "Liqo cannot be used in this cluster now", Retry: time.Second}
	}
	p.heard, p.heardAt, p.answer, p.final = &call, from, exchange.Answer{}, false
	l.due(id)
	for {
		answer, final, told := p.answer, p.final, p.told
		l.mu.Unlock()
		if final || call.Tenant == nil && answer.Nonce != "" {
			return answer, nil
		}
		select {
		case <-told:
		case <-ctx.Done():
			if answer.ClusterID == "" {
				return exchange.Answer{}, &wire.Refused{Reason: wire.ReasonFailed, Message: "Liqo's objects here cannot be read now", Retry: time.Second}
			}
			return answer, nil
		}
		l.mu.Lock()
	}
}

// Run drives Liqo in an API server until ctx ends.
func (l *Liqo) Run(ctx context.Context, local *rest.Config) {
	c, err := kube.New(local)
	if err != nil {
		l.cfg.Logger.Warn("cannot look for Liqo", "error", err)
		return
	}
	defer c.Close()
	for failures := 0; ctx.Err() == nil; {
		found, err := detect(ctx, c)
		switch {
		case err != nil:
			if failures++; failures == shownFailures {
				// Peerings without Liqo do not wait for it.
				l.cfg.Logger.Warn("cannot look for Liqo, trying again", "error", err)
				l.set(&engine.Installation{Problem: "it cannot be looked for: " + text.Sentence(err.Error())}, true)
			}
			if work.Sleep(ctx, detecting.Pause(failures)) != nil {
				return
			}
			continue
		case found == nil:
			l.set(nil, true)
		case found.problem != "":
			l.set(&engine.Installation{Problem: found.problem}, true)
		default:
			l.drive(ctx, c, *found)
			failures = 0
			continue
		}
		failures = 0
		if work.Sleep(ctx, looks) != nil {
			return
		}
		select {
		case <-ctx.Done():
		case <-l.look:
		}
	}
}

// set keeps what Liqo is here. Of one that cannot be used, or is not there, nothing is known to be left:
// nobody waits for it.
func (l *Liqo) set(found *engine.Installation, unusable bool) {
	l.mu.Lock()
	same := l.looked && reflect.DeepEqual(l.found, found) && (l.settled || !unusable)
	l.found, l.looked = found, true
	if unusable && !same {
		l.settled = true
		for _, p := range l.pairs {
			p.reset(true)
		}
	}
	l.mu.Unlock()
	if !same {
		l.cfg.Found()
	}
}

// drive works while Liqo is there.
func (l *Liqo) drive(ctx context.Context, c *kube.Client, found served) {
	ctx, cancel := context.WithCancel(ctx)
	s := newSession(l, c, found)
	var running sync.WaitGroup
	defer running.Wait()
	defer func() {
		cancel()
		l.mu.Lock()
		l.session, l.settled = nil, false
		for _, p := range l.pairs {
			p.reset(false)
		}
		l.mu.Unlock()
	}()
	s.run(ctx, &running)
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.look:
		}
		switch again, err := detect(ctx, c); {
		case err != nil:
			l.Look() // whoever wanted that does not ask again
		case again == nil || *again != found:
			l.cfg.Logger.Info("Liqo changed in the API server", "served", again != nil)
			return
		}
		if work.Sleep(ctx, looks) != nil {
			return
		}
	}
}

// other returns what Liqo calls a peer: as its namespace says, or as it said itself.
func (s *session) other(id peer.ClusterID, said document.ClusterID) document.ClusterID {
	for _, n := range s.named(byPeer(id)) {
		if id := remote(n); id != "" {
			return id
		}
	}
	return said
}
