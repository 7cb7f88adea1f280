package vnode

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/klog/v2"

	"liqo.io/agent/api"
	"liqo.io/agent/internal/bubble"
	"liqo.io/agent/peer"
	"liqo.io/agent/sharing/spec"
)

const (
	heartbeat    = 25 * time.Second
	barnNode     = "liqo-barn"
	drainTimeout = 5 * time.Minute
)

func TestMain(m *testing.M) {
	// client-go reports errors of watches here, and waits by the clock of whichever
	// bubble reported one last.
	utilruntime.ErrorHandlers = nil
	klog.SetSlogLogger(slog.New(slog.DiscardHandler))
	os.Exit(m.Run())
}

// agent is Nodes at work on a fake API server.
type agent struct {
	*Nodes
	stop func()

	mu      sync.Mutex
	changed map[peer.ClusterID]int
}

func (f *fake) start(t *testing.T) *agent {
	t.Helper()
	f.with(func() {
		for path := range maps.Clone(f.objects) {
			if name, ok := strings.CutPrefix(path, leasePath+"/"); !ok {
				continue
			} else if f.inherited[name] = true; f.objects[nodePath(name)] == nil {
				f.store(path, nil) // by the garbage collector, as later: see store
			}
		}
	})
	a := &agent{changed: make(map[peer.ClusterID]int)}
	a.Nodes = New(Config{
		Settings: func() Settings { return Settings{Heartbeat: f.heartbeat, DrainTimeout: drainTimeout} },
		Kubelet:  func() Kubelet { return Kubelet{} }, MetricsPath: func(node string) string { return "/metrics/resource/" + node },
		Names: f, Host: "liqo-host",
		Changed: func(id peer.ClusterID) {
			a.mu.Lock()
			defer a.mu.Unlock()
			a.changed[id]++
		},
		Logger: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelError})),
		Now:    f.now,
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx, f.config()) }()
	a.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return a
}

// news returns how often Changed was called.
func (a *agent) news(id peer.ClusterID) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.changed[id]
}

func testOffer(cpu string) *api.AdvertisementSpec {
	made := metav1.NewTime(time.Unix(1_700_000_000, 0))
	return &api.AdvertisementSpec{
		ResourceQuota: api.ResourceQuota{Hard: map[string]string{"cpu": cpu, "memory": "8Gi"}}, Labels: map[string]string{"offer.liqo.io/color": "red"},
		Timestamp: made, TimeToLive: metav1.NewTime(made.Add(6 * time.Hour)),
	}
}

func testProvider(id peer.ClusterID) spec.Node {
	p := spec.Node{ID: id, Called: string(id), Wanted: true, Offer: testOffer("4"), Reachable: true}
	if id == barn {
		p.Called = "Barn"
	}
	return p
}

func (f *fake) node(id peer.ClusterID) map[string]any {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.objects[f.pathOf(id)]
}

func (f *fake) addPod(name, node string, daemon bool) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	path := "/api/v1/namespaces/shop/pods/" + name
	metadata := map[string]any{"namespace": "shop", "name": name}
	if daemon {
		metadata["ownerReferences"] = []any{map[string]any{"kind": "DaemonSet", "name": "d", "controller": true}}
	}
	f.create(path, map[string]any{"metadata": metadata, "spec": map[string]any{"nodeName": node}})
	return path
}

func (f *fake) take() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	w := f.writes
	f.writes = nil
	return w
}

func (f *fake) with(do func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	do()
}

// wait lets time pass, and everything that is due in it happen.
func wait(span time.Duration) {
	time.Sleep(span)
	synctest.Wait()
}

func unleased(writes []string) []string {
	var out []string
	for _, w := range writes {
		if !strings.Contains(w, "/leases/") {
			out = append(out, w)
		}
	}
	return out
}

// TestQuiet: sixty nodes cost their heartbeats, spread over time, and nothing
// else.
func TestQuiet(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := newFake()
		a := f.start(t)
		defer a.stop()
		const n = 60
		ids := make([]peer.ClusterID, n)
		for i := range ids {
			ids[i] = peer.ClusterID(fmt.Sprintf("peer-%d", i))
			a.Set(testProvider(ids[i]))
		}
		wait(time.Minute)
		for _, id := range ids {
			if s := a.Set(testProvider(id)); !s.Ready {
				t.Fatalf("%s: %+v", id, s)
			}
			if a.news(id) == 0 {
				t.Errorf("nobody was told about %s", id)
			}
		}
		f.take()
		perSecond := 0
		renewals := 0
		const seconds = 50
		for range seconds {
			wait(time.Second)
			writes := f.take()
			if other := unleased(writes); len(other) > 0 {
				t.Fatalf("written for nothing: %v", other)
			}
			perSecond = max(perSecond, len(writes))
			renewals += len(writes)
		}
		if want := n * seconds / 25; renewals > want*11/10 || renewals < want*9/10 || perSecond > 20 {
			t.Errorf("%d renewals, at most %d a second", renewals, perSecond)
		}
		// A slow API server gets all of them in time: the node lifecycle controller
		// waits for 40 seconds at least.
		f.with(func() { f.delay = 700 * time.Millisecond })
		for range 60 {
			wait(time.Second)
			f.with(func() {
				for name, at := range f.leases {
					if age := time.Since(at); age > 38*time.Second {
						t.Fatalf("the lease of %s was not renewed for %v", name, age)
					}
				}
			})
		}
	})
}

// TestLeaseTrouble: a renewal that fails is tried again at once and again, and the
// clock of the machine may go back.
func TestLeaseTrouble(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := newFake()
		a := f.start(t)
		defer a.stop()
		a.Set(testProvider(barn))
		wait(time.Minute)
		renewed := func() string {
			f.mu.Lock()
			defer f.mu.Unlock()
			return textAt(f.objects[leasePath+"/"+barnNode], "spec", "renewTime")
		}
		for range 5 {
			f.with(func() { f.down = true })
			wait(20 * time.Second)
			f.with(func() { f.down = false })
			wait(leaseMax + time.Second)
			f.with(func() {
				if age := time.Since(f.leases[barnNode]); age > heartbeat {
					t.Fatalf("not renewed for %v", age)
				}
			})
		}
		before := renewed()
		f.with(func() { f.back = 24 * time.Hour })
		a.Touch()
		for range 3 {
			wait(heartbeat + time.Second)
			if now := renewed(); now <= before {
				t.Fatalf("after %s comes %s", before, now)
			} else {
				before = now
			}
		}
		// And after a restart, too.
		a.stop()
		f.with(func() { f.back = 48 * time.Hour })
		a = f.start(t)
		defer a.stop()
		wait(2 * heartbeat)
		if now := renewed(); now <= before {
			t.Fatalf("after %s comes %s", before, now)
		}
	})
}

// TestExpiry: an offer that ends while its provider is away takes no pods, by our own
// clock.
func TestExpiry(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := newFake()
		f.heartbeat = 10 * time.Minute // which are not what this is about
		a := f.start(t)
		defer a.stop()
		p := testProvider(barn)
		a.Set(p)
		wait(5 * time.Hour)
		p.Reachable, p.Why = false, "no route to host"
		a.Set(p)
		wait(time.Second)
		cordoned := func() bool {
			node := f.node(barn)
			f.mu.Lock()
			defer f.mu.Unlock()
			u, _ := sub(node, "spec")["unschedulable"].(bool)
			return u
		}
		if s := a.Set(p); s.Ready || s.Reason != ReasonUnreachable || s.Message != p.Why || cordoned() {
			t.Errorf("%+v", s)
		}
		// The same in other words is no write.
		f.take()
		p.Why = "connection refused"
		if s := a.Set(p); s.Message != p.Why {
			t.Errorf("%+v", s)
		}
		wait(time.Second)
		if writes := unleased(f.take()); len(writes) > 0 {
			t.Errorf("written for nothing: %v", writes)
		}
		// An offer stands for as long as who gave it to us says, however long it says itself.
		wait(2 * time.Hour)
		if s := a.Set(p); s.Reason != ReasonUnreachable || cordoned() {
			t.Errorf("%+v", s)
		}
		p.Offer = nil
		a.Set(p)
		wait(time.Second)
		if s := a.Set(p); s.Reason != ReasonExpired || !cordoned() {
			t.Errorf("%+v", s)
		}
		p.Reachable, p.Why, p.Offer = true, "", testOffer("4")
		a.Set(p)
		wait(time.Second)
		if s := a.Set(p); !s.Ready || cordoned() {
			t.Errorf("%+v", s)
		}
	})
}

// TestDrain: the order of a tear-down, and its bounds.
func TestDrain(t *testing.T) {
	for _, tc := range []struct {
		name      string
		gone      bool
		stuck     bool // pods do not end
		budget    bool
		unheard   bool // nobody says anything about the provider
		most      time.Duration
		evictions bool
	}{
		{name: "in order", most: 5 * time.Second},
		{name: "budget", budget: true, most: drainTimeout + 5*time.Second},
		{name: "stuck", stuck: true, most: drainTimeout + lastWait + 5*time.Second},
		{name: "gone", gone: true, stuck: true, most: goneWait + 5*time.Second},
		{name: "orphan", unheard: true, stuck: true, most: goneWait + 5*time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				f := newFake()
				a := f.start(t)
				p := testProvider(barn)
				a.Set(p)
				wait(time.Minute)
				path := f.addPod("web", barnNode, false)
				f.addPod("daemon", barnNode, true)
				f.addPod("elsewhere", "box", false)
				wait(time.Second)
				if s := a.Set(p); s.Pods != 2 {
					t.Errorf("%+v", s)
				}
				f.with(func() { f.blocked[path], f.stuck = tc.budget, tc.stuck })
				if tc.unheard {
					a.stop()
					a = f.start(t)
					wait(time.Hour)
					if f.node(barn) == nil {
						t.Fatal("removed before everybody was heard")
					}
					a.Settled()
				} else {
					p.Wanted, p.Offer, p.Gone = false, nil, tc.gone
					if s := a.Set(p); !s.Busy || s.Name == "" {
						t.Errorf("%+v", s)
					}
				}
				defer func() { a.stop() }()
				began := time.Now()
				f.take()
				for f.node(barn) != nil && time.Since(began) < time.Hour {
					wait(time.Second)
					if s := a.Nodes.Nodes(); len(s) > 0 && s[0].Accepting {
						t.Error("it is accepting")
					}
				}
				took := time.Since(began)
				if took > tc.most || took < tc.most-10*time.Second {
					t.Errorf("it took %v", took)
				}
				wait(10 * time.Second)
				if s := a.Set(spec.Node{ID: barn}); s != (spec.NodeStatus{}) || len(a.Nodes.Nodes()) != 0 || len(a.records) != 0 || len(a.told) != 0 {
					t.Errorf("%+v %v %v", s, a.records, a.told)
				}
				f.with(func() {
					if len(f.wrong) > 0 || f.objects[leasePath+"/"+barnNode] != nil || f.objects["/api/v1/namespaces/shop/pods/elsewhere"] == nil ||
						f.objects["/api/v1/namespaces/shop/pods/daemon"] != nil {
						t.Errorf("%v %v", f.wrong, f.objects)
					}
				})
				if last := unleased(f.take()); len(last) == 0 || !strings.Contains(strings.Join(last, " "), "DELETE "+nodePath(barnNode)) {
					t.Errorf("%v", last)
				}
			})
		})
	}
}

// TestWantedAgain: a drain is given up when the provider is wanted after all.
func TestWantedAgain(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := newFake()
		a := f.start(t)
		defer a.stop()
		p := testProvider(barn)
		a.Set(p)
		wait(time.Minute)
		path := f.addPod("web", barnNode, false)
		f.with(func() { f.blocked[path] = true })
		gone := spec.Node{ID: barn, Reachable: true}
		a.Set(gone)
		wait(time.Minute)
		if s := a.Set(gone); s.Reason != ReasonDraining || !strings.Contains(s.Message, "shop/web: The disruption budget one") {
			t.Errorf("%+v", s)
		}
		a.Set(p)
		wait(time.Minute)
		if s := a.Set(p); !s.Ready || s.Pods != 1 {
			t.Errorf("%+v", s)
		}
		f.with(func() {
			if _, there := sub(f.objects[nodePath(barnNode)], "spec")["unschedulable"]; there {
				t.Error("it is cordoned")
			}
		})
		a.Set(gone)
		wait(drainTimeout - 10*time.Second)
		if f.node(barn) == nil {
			t.Error("the time of the drain before counts")
		}
	})
}
