package proofs

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"liqo.io/agent/agent/clock"
	"liqo.io/agent/agent/decisions"
	"liqo.io/agent/discovery/registry"
	"liqo.io/agent/endpoint/client"
	"liqo.io/agent/internal/bubble"
	"liqo.io/agent/peer"
	"liqo.io/agent/state"
)

// slowDisk takes a minute for each decision.
type slowDisk struct{ *state.Store }

func (d slowDisk) SetRuling(ctx context.Context, id peer.ClusterID, r state.Ruling, events ...peer.Event) error {
	time.Sleep(time.Minute)
	return d.Store.SetRuling(ctx, id, r, events...)
}

// The registry does not wait while the decision store writes what follows from a return.
func TestReturnDoesNotWaitForTheDisk(t *testing.T) {
	const id = peer.ClusterID("11111111-1111-4111-8111-111111111111")
	logger := slog.New(slog.DiscardHandler)
	store, err := state.Open(t.Context(), filepath.Join(t.TempDir(), "agent.db"), state.Options{Logger: logger, Memory: true})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	if err := store.SetRuling(t.Context(), id, state.Ruling{Peering: state.Peering{HungUp: true}}); err != nil {
		t.Fatal(err)
	}
	bubble.Test(t, func(t *testing.T) {
		nobody := func(context.Context, peer.Target) (client.Result, error) {
			return client.Result{}, errors.New("nobody")
		}
		self := func() peer.ClusterID { return "self" }
		told := make(chan peer.ClusterID, 1)
		seen := registry.New(registry.Config{Self: "self", Identify: nobody, Store: store, Changed: func(peer.ClusterID) {}, Checkers: 1, Interval: time.Minute, Logger: logger,
			Remembered: []peer.Peer{{ID: id, Phase: peer.PhasePresent, Fingerprint: peer.FingerprintOf([]byte("key"))}}})
		decisions, err := decisions.Open(t.Context(), decisions.Config{Database: slowDisk{store}, Self: self, SelfKey: func() peer.Fingerprint { return peer.Fingerprint{} },
			Peer: seen.Peer, Changed: func(id peer.ClusterID) { told <- id }, Logger: logger})
		if err != nil {
			t.Fatal(err)
		}
		q := New(decisions, clock.New(), []peer.Peer{{ID: id, Phase: peer.PhaseLost}})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() { _ = q.Run(ctx) }()

		began := time.Now()
		q.Phase(id, peer.PhasePresent)
		if took := time.Since(began); took > 0 {
			t.Errorf("the registry waited for %v", took)
		}
		if got := <-told; got != id {
			t.Errorf("told of %s", got)
		}
		rulings, err := store.Rulings(t.Context())
		if err != nil || rulings[id].Peering.HungUp {
			t.Errorf("%+v, %v: it does not count as back", rulings[id], err)
		}
	})
}

func TestReturns(t *testing.T) {
	q := New(nil, nil, nil)
	for i, step := range []struct {
		phase    peer.Phase
		returned bool
	}{
		{peer.PhasePresent, false}, {peer.PhaseUnreachable, false}, {peer.PhasePresent, false},
		{peer.PhaseLost, false}, {peer.PhaseUnreachable, false}, {peer.PhasePresent, true}, {peer.PhasePresent, false},
	} {
		if got := q.returns("a", step.phase); got != step.returned {
			t.Errorf("step %d: returned %v", i, got)
		}
	}
}
