package integration

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"liqo.io/agent/api"
	"liqo.io/agent/endpoint/client"
	"liqo.io/agent/endpoint/wire"
	"liqo.io/agent/internal/bed"
	"liqo.io/agent/peer"
	"liqo.io/agent/peering/plan"
	"liqo.io/agent/peering/remote"
)

var lagSeed = flag.Uint64("lag-seed", 0, "seed of TestPairLags; 0: another one each time")

// lag holds requests, answers, the events of watches and calls of peers back, each
// for a random time, and loses notices. Its methods are safe for concurrent use.
type lag struct {
	longest atomic.Int64 // nanoseconds
	lost    atomic.Int64 // share of notices, in percent

	mu     sync.Mutex
	random *rand.Rand
}

// below returns a random number from 0 to below n.
func (l *lag) below(n int64) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.random.Int64N(n)
}

// hold waits, every other time.
func (l *lag) hold(ctx context.Context) {
	longest := l.longest.Load()
	pause := time.NewTimer(time.Duration(l.below(2*longest+1) - longest))
	defer pause.Stop()
	select {
	case <-pause.C:
	case <-ctx.Done():
	}
}

// lagging is a remote.Caller with lag.
type lagging struct {
	remote.Caller
	*lag
}

func (c lagging) Exchange(ctx context.Context, t peer.Target, r client.Request) (client.Response, error) {
	c.hold(ctx)
	if r.Path == wire.PathNotice && c.below(100) < c.lost.Load() {
		return client.Response{}, &client.Error{Reason: client.ReasonUnreachable, Err: errors.New("lost by the test")}
	}
	resp, err := c.Caller.Exchange(ctx, t, r)
	c.hold(ctx)
	return resp, err
}

// TestPairLags has people do and undo things at two clusters while everything that
// the parts tell each other is held back for random times, and checks that both come
// to what is wanted last, without waiting for a look of every half minute.
func TestPairLags(t *testing.T) {
	seed := *lagSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("to have the same again: -lag-seed %d", seed)
	l := &lag{random: rand.New(rand.NewPCG(seed, 0))}
	a, b := pairBy(t, func(k *bed.Kube) string {
		p := newFaultyProxy(t, k)
		p.before = func(_ http.ResponseWriter, r *http.Request) bool { l.hold(r.Context()); return false }
		p.pieces = func(r *http.Request) { l.hold(r.Context()) }
		return p.kubeconfig(t)
	})
	for _, s := range []*site{a, b} {
		s.stop()
		s.peers = lagging{s.client, l}
		s.begin()
	}
	a.trusts(b, nil)
	b.trusts(a, func(s *plan.Policy) { s.Accept = accepted })
	within(t, "first sight", func() error { _, err := a.foreign(b); return err })
	try := func(s *site, method, path, mime, body string) {
		// What it is about may be gone.
		if _, err := s.kube.Request(t.Context(), method, path, mime, []byte(body)); err != nil && !strings.Contains(err.Error(), "404") {
			t.Fatal(err)
		}
	}
	join := func(join bool) {
		try(a, "PATCH", fcPath+"/"+string(b.id), merge, fmt.Sprintf(`{"spec":{"join":%v}}`, join))
	}
	// touch has the agent write what a person cannot see the reason of.
	touch := func(of, at *site) {
		of.decisions.change(at.id, func(s *plan.Policy) {
			s.Pin = pinOf(at.id, at.key.Fingerprint(), fmt.Sprint("test ", l.below(1000)))
		})
	}
	people := []func(){
		func() { join(true) },
		func() { join(false) },
		func() { a.decisions.change(b.id, func(s *plan.Policy) { s.Connect = plan.Yes; s.Generation++ }) },
		func() { a.decisions.change(b.id, func(s *plan.Policy) { s.Connect = plan.No }) },
		func() { touch(a, b) },
		func() { touch(b, a) },
		func() { try(a, "DELETE", fcPath+"/"+string(b.id), "", "") },
		func() { try(a, "DELETE", advPath+"/"+string(b.id), "", "") },
		func() { try(a, "DELETE", a.secretPath(b), "", "") },
		func() { try(b, "DELETE", prPath+"/"+string(a.id), "", "") },
		func() { try(b, "DELETE", rolePath+"/liqo:peer:"+string(a.id), "", "") },
		func() { b.decisions.change(a.id, func(s *plan.Policy) { s.Accept, s.Ended = accepted, "" }) },
		func() { b.decisions.change(a.id, func(s *plan.Policy) { s.Accept = pending }) },
		func() { b.decisions.change(a.id, func(s *plan.Policy) { s.Blocked = true }) },
		func() { b.decisions.change(a.id, func(s *plan.Policy) { s.Blocked = false }) },
	}
	took := func(what string, condition func() error) {
		t.Helper()
		begun := time.Now()
		within(t, what, condition)
		t.Logf("%s after %v", what, time.Since(begun).Round(time.Millisecond))
	}
	for range 4 {
		l.longest.Store(int64(400 * time.Millisecond))
		for range l.below(8) {
			n := l.below(int64(len(people)))
			t.Logf("person does %d", n)
			people[n]()
			l.hold(t.Context())
		}
		b.decisions.change(a.id, func(s *plan.Policy) { s.Accept, s.Ended, s.Blocked = accepted, "", false })
		touch(a, b)
		// What people do at the same moment by different ways has no order. The last of them
		// does it when the agent has seen what the others did, to the object as it is then.
		byKubectl := l.below(2) == 0
		within(t, "a person to have the last word", func() error {
			fc, err := a.upToDate(b)
			switch {
			case err != nil:
				return err
			case !byKubectl:
				a.decisions.change(b.id, func(s *plan.Policy) { s.Connect = plan.Yes; s.Generation++ })
				return nil
			case fc.Spec.Join:
				return nil
			}
			_, err = a.kube.Request(t.Context(), "PATCH", fcPath+"/"+string(b.id), merge,
				fmt.Appendf(nil, `{"metadata":{"resourceVersion":%q},"spec":{"join":true}}`, fc.ResourceVersion))
			return err
		})
		took("joined", func() error { return joined(a, b) })
		touch(a, b)
		join(false)
		took("parted", func() error { return parted(a, b) })
	}
}

// upToDate returns the ForeignCluster for a site, or what the agent has not seen of it yet or
// has not written there.
func (s *site) upToDate(of *site) (*api.ForeignCluster, error) {
	fc, err := s.foreign(of)
	if err != nil {
		return nil, err
	}
	var known strings.Builder
	if err := s.Explain(&known); err != nil {
		return nil, err
	}
	switch wanted := s.decisions.Policy(of.id).Connect == plan.Yes; {
	case !strings.Contains(known.String(), fmt.Sprintf("ForeignCluster %s: version %s,", fc.Name, fc.ResourceVersion)):
		return nil, fmt.Errorf("version %s is not known", fc.ResourceVersion)
	case strings.Contains(known.String(), string(plan.RecordJoinEdited)):
		return nil, errors.New("an edit is not recorded")
	case fc.Spec.Join != wanted:
		return nil, fmt.Errorf("spec.join is %v", fc.Spec.Join)
	}
	return fc, nil
}
