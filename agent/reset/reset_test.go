package reset

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"liqo.io/agent/agent/config"
	"liqo.io/agent/agent/control"
	"liqo.io/agent/agent/statedir"
	"liqo.io/agent/internal/bubble"
	"liqo.io/agent/kube/conn"
	"liqo.io/agent/peer"
	"liqo.io/agent/peering"
	"liqo.io/agent/peering/plan"
)

const self = peer.ClusterID("11111111-1111-4111-8111-111111111111")

// world is everything around a Resetter: peers of which something is left, and which
// of them can be reached.
type world struct {
	mu        sync.Mutex
	left      map[peer.ClusterID]bool
	reachable map[peer.ClusterID]bool
	stubborn  bool // what is left stays
	unknown   bool // the API server does not answer
	ended     []peer.ClusterID
	parted    chan struct{}
}

func (w *world) Wanted() []peer.ClusterID {
	w.mu.Lock()
	defer w.mu.Unlock()
	return []peer.ClusterID{self, "a", "b"}
}

func (*world) Pins() []peer.Pin { return nil }

func (w *world) Disconnect(_ context.Context, id peer.ClusterID, _ string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = append(w.ended, id)
	if w.reachable[id] && !w.stubborn {
		w.left[id] = false
	}
	return nil
}

func (*world) DisconnectIncoming(context.Context, peer.ClusterID, string, string) error { return nil }

func (*world) Peer(id peer.ClusterID) (peer.Peer, bool) {
	return peer.Peer{ID: id, Name: "name-" + string(id)}, true
}

func (*world) Peers() []peer.Peer { return nil }

func (*world) View(peer.ClusterID) plan.View { return plan.View{} }

func (w *world) Leftovers(id peer.ClusterID) (plan.Leftovers, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return plan.Leftovers{Outgoing: w.left[id], Reachable: w.reachable[id]}, !w.unknown
}

func (*world) Status() peering.APIStatus {
	return peering.APIStatus{Status: conn.Status{Connected: true}}
}

// resetter returns one in a world, with a state directory of its own.
func (w *world) resetter(t *testing.T, change func(*Config)) *Resetter {
	t.Helper()
	settings := config.Default()
	settings.State.Dir, settings.Cluster.Kubeconfig = t.TempDir(), conn.KubeconfigNone
	w.parted = make(chan struct{}, 1)
	cfg := Config{
		Self:     func() peer.Identity { return peer.Identity{ClusterID: self, ClusterName: "barn"} },
		Settings: func() config.Config { return settings }, Key: new(sync.Mutex),
		Decisions: w, Registry: w, Peering: w, Progress: new(Progress), Parted: func() { w.parted <- struct{}{} },
		Logger: slog.New(slog.DiscardHandler), Now: time.Now,
	}
	if change != nil {
		change(&cfg)
	}
	return New(cfg)
}

// run runs r until it has parted, and returns what it left in the state directory.
func (w *world) run(t *testing.T, r *Resetter) statedir.Reset {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- r.Run(t.Context()) }()
	if _, err := r.BeginReset(t.Context(), control.ResetOptions{}, "somebody"); err != nil {
		t.Fatal(err)
	}
	<-w.parted
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	pending, found, err := statedir.PendingReset(r.cfg.Settings().State.Dir)
	if err != nil || !found {
		t.Fatalf("found %t, %v", found, err)
	}
	return pending
}

func TestPartsWithThoseThatAreThere(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := &world{left: map[peer.ClusterID]bool{"a": true, "b": true}, reachable: map[peer.ClusterID]bool{"a": true}}
		r := w.resetter(t, nil)
		began := time.Now()
		pending := w.run(t, r)
		if took := time.Since(began); took < unreachedPatience || took > unreachedPatience+heardPatience+time.Second {
			t.Errorf("it took %s", took)
		}
		if !pending.Parted || pending.ID != self || pending.By != "somebody" {
			t.Errorf("kept %+v", pending)
		}
		if slices.Sort(w.ended); !slices.Equal(w.ended, []peer.ClusterID{"a", "b"}) {
			t.Errorf("ended %v", w.ended)
		}
		state, err := r.ResetState(t.Context())
		if err != nil || state.Phase != control.ResetClearing || len(state.Failed) != 1 {
			t.Errorf("%+v, %v", state, err)
		}
		if want := []control.ResetPeer{{ID: "a", Name: "name-a", State: control.ResetPeerTold}, {ID: "b", Name: "name-b", State: control.ResetPeerNotTold}}; !slices.Equal(state.Peers, want) {
			t.Errorf("peers %+v", state.Peers)
		}
	})
}

func TestWaitsForThoseThatAreThereForALimitedTime(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := &world{left: map[peer.ClusterID]bool{"a": true}, reachable: map[peer.ClusterID]bool{"a": true}, stubborn: true}
		r := w.resetter(t, nil)
		began := time.Now()
		w.run(t, r)
		if took := time.Since(began); took < partPatience || took > partPatience+heardPatience+time.Second {
			t.Errorf("it took %s", took)
		}
	})
}

// TestPeerMissesChecks: a peer whose pods are still leaving is waited for although it, or the API server, does not answer
// for a moment, however long the reset has taken. Who was told stays so.
func TestPeerMissesChecks(t *testing.T) {
	at := func(when time.Duration, w *world, change func()) {
		time.AfterFunc(when, func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			change()
		})
	}
	for name, tc := range map[string]struct {
		last func(w *world)
		took time.Duration
		want string
	}{
		"told at a look that it misses": {func(w *world) { w.left["a"], w.reachable["a"] = false, false }, time.Minute, control.ResetPeerTold},
		"gone for good":                 {func(w *world) { w.reachable["a"] = false }, time.Minute + unreachedPatience, control.ResetPeerNotTold},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				// b is away all the time, and not waited for anew.
				w := &world{left: map[peer.ClusterID]bool{"a": true, "b": true}, reachable: map[peer.ClusterID]bool{"a": true}, stubborn: true}
				at(30*time.Second, w, func() { w.reachable["a"] = false })
				at(33*time.Second, w, func() { w.reachable["a"] = true })
				at(45*time.Second, w, func() { w.unknown = true })
				at(50*time.Second, w, func() { w.unknown = false })
				at(time.Minute, w, func() { tc.last(w) })
				r := w.resetter(t, nil)
				began := time.Now()
				w.run(t, r)
				if took := time.Since(began); took < tc.took || took > tc.took+heardPatience+time.Second {
					t.Errorf("it took %s", took)
				}
				state, err := r.ResetState(t.Context())
				if err != nil || len(state.Peers) != 2 || state.Peers[0].State != tc.want || state.Peers[1].State != control.ResetPeerNotTold {
					t.Errorf("%+v, %v", state, err)
				}
			})
		})
	}
}

// Who follows a reset hears that the peers were told before the socket goes away.
func TestSessionEndsWhenTheOutcomeWasHeard(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := &world{}
		r := w.resetter(t, nil)
		go func() { _ = r.Run(t.Context()) }()
		if _, err := r.BeginReset(t.Context(), control.ResetOptions{}, ""); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		select {
		case <-w.parted:
			t.Fatal("the session ended before anybody heard of it")
		default:
		}
		began := time.Now()
		if now, err := r.ResetState(t.Context()); err != nil || now.Phase != control.ResetClearing {
			t.Errorf("%+v, %v", now, err)
		}
		<-w.parted
		if took := time.Since(began); took > 0 {
			t.Errorf("it ended %s later", took)
		}
	})
}

func TestFinish(t *testing.T) {
	w := &world{left: map[peer.ClusterID]bool{"b": true}}
	r := w.resetter(t, nil)
	settings, progress := r.cfg.Settings(), r.cfg.Progress
	if got, err := Finish(t.Context(), settings, progress, r.cfg.Logger); got != None || err != nil {
		t.Errorf("without a reset: %v, %v", got, err)
	}
	if _, err := r.BeginReset(t.Context(), control.ResetOptions{Stop: true}, ""); err != nil {
		t.Fatal(err)
	}
	if got, err := Finish(t.Context(), settings, progress, r.cfg.Logger); got != None || err != nil {
		t.Errorf("before the peers were told: %v, %v", got, err)
	}
	pending, _, err := statedir.PendingReset(settings.State.Dir)
	if err != nil {
		t.Fatal(err)
	}
	pending.Parted = true
	if err := statedir.BeginReset(settings.State.Dir, pending); err != nil {
		t.Fatal(err)
	}
	peers := []control.ResetPeer{{ID: "b", State: control.ResetPeerNotTold}}
	view := viewOf(pending, control.ResetClearing)
	view.Peers, view.Failed = peers, []string{"peer b could not be told"}
	progress.parted(view)
	if got, err := Finish(t.Context(), settings, progress, r.cfg.Logger); got != Stop || err != nil {
		t.Errorf("%v, %v", got, err)
	}
	done := progress.Get()
	if done.Phase != control.ResetDone || !slices.Equal(done.Peers, peers) || len(done.Failed) != 1 {
		t.Errorf("%+v", done)
	}
	if got, err := Finish(t.Context(), settings, progress, r.cfg.Logger); got != None || err != nil {
		t.Errorf("the second time: %v, %v", got, err)
	}
}

func TestRefusesToBegin(t *testing.T) {
	for name, tc := range map[string]struct {
		opts   control.ResetOptions
		change func(*Config)
	}{
		"a state that is not kept": {change: func(c *Config) { c.Volatile = true }},
		"a new identity for a cluster whose ID is configured": {opts: control.ResetOptions{Identity: true}, change: func(c *Config) {
			settings := c.Settings()
			settings.Cluster.ID = string(self)
			c.Settings = func() config.Config { return settings }
		}},
	} {
		r := (&world{}).resetter(t, tc.change)
		if _, err := r.BeginReset(t.Context(), tc.opts, ""); !errors.Is(err, control.ErrRefused) {
			t.Errorf("%s: %v", name, err)
		}
		if found, err := Pending(r.cfg.Settings().State.Dir); found || err != nil {
			t.Errorf("%s: found %t, %v", name, found, err)
		}
	}
}

// TestStoppedInterrupted: what is left to do after Ctrl-C is remembered, as objects in the API server may be.
func TestStoppedInterrupted(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	silent := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		interrupt()
		<-r.Context().Done()
	}))
	t.Cleanup(silent.Close)
	settings := config.Default()
	settings.State.Dir, settings.Cluster.Kubeconfig = t.TempDir(), filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf("clusters: [{name: a, cluster: {server: %q}}]\ncontexts: [{name: a, context: {cluster: a}}]\ncurrent-context: a\n", silent.URL)
	if err := os.WriteFile(settings.Cluster.Kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Stopped(ctx, settings, control.ResetOptions{}, "")
	if found, failed := Pending(settings.State.Dir); !errors.Is(err, context.Canceled) || !found || failed != nil {
		t.Errorf("interrupted: %v; found %t, %v", err, found, failed)
	}
	settings.Cluster.Kubeconfig = conn.KubeconfigNone
	done, err := Stopped(t.Context(), settings, control.ResetOptions{}, "")
	if found, failed := Pending(settings.State.Dir); err != nil || done.Phase != control.ResetDone || found || failed != nil {
		t.Errorf("again: %+v, %v; found %t, %v", done, err, found, failed)
	}
	_, err = Stopped(ctx, settings, control.ResetOptions{}, "")
	if found, failed := Pending(settings.State.Dir); !errors.Is(err, context.Canceled) || found || failed != nil {
		t.Errorf("interrupted before it: %v; found %t, %v", err, found, failed)
	}
}
