package liqo

import (
	"context"
	"log/slog"
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
	Found  func()
	Logger *slog.Logger
	Now    func() time.Time
}

// Consumption is the desired state of consuming a peer.
type Consumption struct {
	Wanted bool
	// Gone: the peer is given up, and nothing waits for it.
	Gone bool
	// Target is where the peer is, and its key. Without a fingerprint it is not called.
	Target peer.Target
	// Asks are the amounts to ask for; nil leaves them to the provider.
	Asks map[string]string
}

// Status is the state of one direction of a pair.
type Status = exchange.Status

// pair is what is known about one peer. It is guarded by Liqo.mu.
type pair struct {
	consume Consumption
	serve   bool
	// unserved is since when serve is false.
	unserved           time.Time
	consuming, serving Status

	asking asking
	// heard is the peer's last call, and answer what is answered to it. told is closed when it
	// was planned again.
	heard  *exchange.Call
	answer exchange.Answer
	final  bool // nothing that Liqo does here changes the answer
	told   chan struct{}
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

	mu      sync.Mutex
	looked  bool // it is known whether there is Liqo
	found   *engine.Installation
	pairs   map[peer.ClusterID]*pair
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
	if p := l.pairs[id]; p != nil {
		return p.consuming, p.serving
	}
	unknown := Status{Unknown: !l.looked || l.found != nil && l.session == nil || l.session != nil && l.session.cares(id)}
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

// Consume sets the desired state of consuming a peer, and returns its state. Nothing that c
// points to may be changed afterwards.
func (l *Liqo) Consume(id peer.ClusterID, c Consumption) Status {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.pairs[id]
	if p == nil {
		if !c.Wanted && (l.session == nil || !l.session.cares(id)) {
			return Status{Unknown: !l.looked || l.session == nil && l.found != nil}
		}
		p = l.add(id)
	}
	if !reflect.DeepEqual(p.consume, c) {
		if !reflect.DeepEqual(p.consume.Target, c.Target) {
			p.asking.next = time.Time{} // it may be somewhere else
		}
		if !c.Wanted {
			p.asking = asking{}
			p.consuming.Ready, p.consuming.Busy = false, p.consuming.Present
		}
		p.consume = c
		l.due(id)
	}
	return p.consuming
}

// Serve sets whether a peer may consume this cluster, and returns the state of that.
func (l *Liqo) Serve(id peer.ClusterID, wanted bool) Status {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.pairs[id]
	if p == nil {
		if !wanted && (l.session == nil || !l.session.cares(id)) {
			return Status{Unknown: !l.looked || l.session == nil && l.found != nil}
		}
		p = l.add(id)
	}
	if p.serve != wanted {
		p.serve = wanted
		if !wanted {
			p.unserved, p.heard = l.cfg.Now(), nil
			p.serving.Ready, p.serving.Busy = false, p.serving.Present
		}
		l.due(id)
	}
	return p.serving
}

// add adds a pair. l.mu is held.
func (l *Liqo) add(id peer.ClusterID) *pair {
	unknown := Status{Unknown: true}
	p := &pair{told: make(chan struct{}), unserved: l.cfg.Now(), consuming: unknown, serving: unknown}
	l.pairs[id] = p
	if l.session != nil {
		l.session.need()
	}
	l.due(id)
	return p
}

// due has a pair looked at. l.mu is held.
func (l *Liqo) due(id peer.ClusterID) {
	if l.session != nil {
		l.session.add(id)
	}
}

// ErrNotServed is the error of a call by a cluster that may not consume this one by Liqo.
var ErrNotServed = &wire.Refused{Reason: wire.ReasonNotAdmitted, Message: "your cluster has no accepted PeeringRequest here that asks for Liqo"}

// Answer answers a peer that consumes this cluster, or wants to. It waits a moment for Liqo's
// controllers if they have something to do. The error is a *wire.Refused, or says what is wrong
// with the body.
func (l *Liqo) Answer(ctx context.Context, id peer.ClusterID, body []byte) (exchange.Answer, error) {
	call, err := exchange.ParseCall(body)
	if err != nil {
		return exchange.Answer{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, answerWait)
	defer cancel()
	l.mu.Lock()
	p := l.pairs[id]
	if p == nil || !p.serve {
		l.mu.Unlock()
		return exchange.Answer{}, ErrNotServed
	}
	if l.session == nil {
		l.mu.Unlock()
		return exchange.Answer{}, &wire.Refused{Reason: wire.ReasonNoAPIServer, Message: "Liqo cannot be used in this cluster now", Retry: time.Second}
	}
	p.heard, p.answer, p.final = &call, exchange.Answer{}, false
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
			failures++
			l.cfg.Logger.Debug("cannot look for Liqo, trying again", "error", err)
			if work.Sleep(ctx, detecting.Pause(failures)) != nil {
				return
			}
			continue
		case found == nil:
			l.set(nil)
		case found.problem != "":
			l.set(&engine.Installation{Problem: found.problem})
		default:
			l.drive(ctx, c, *found)
			failures = 0
			continue
		}
		failures = 0
		// Others can cause looks, so there are not many.
		if work.Sleep(ctx, detecting.First) != nil {
			return
		}
		select {
		case <-ctx.Done():
		case <-l.look:
		}
	}
}

// set keeps what Liqo is here.
func (l *Liqo) set(found *engine.Installation) {
	l.mu.Lock()
	same := l.looked && reflect.DeepEqual(l.found, found)
	l.found, l.looked = found, true
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
		l.session = nil
		for _, p := range l.pairs {
			p.consuming.Unknown, p.serving.Unknown = true, true
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
		if again, err := detect(ctx, c); err == nil && (again == nil || *again != found) {
			l.cfg.Logger.Info("Liqo changed in the API server", "served", again != nil)
			return
		}
		// A list that fails asks for one look, not for one each time.
		if work.Sleep(ctx, detecting.First) != nil {
			return
		}
	}
}

// other returns what Liqo calls a peer: as its namespace says, or as it said itself.
func (s *session) other(id peer.ClusterID, said document.ClusterID) document.ClusterID {
	for _, n := range s.namespaces.By(byPeer(id)) {
		if id := remote(n); id != "" {
			return id
		}
	}
	return said
}
