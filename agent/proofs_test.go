package agent

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"liqo.io/agent/agent/contact"
	"liqo.io/agent/agent/ledger"
	"liqo.io/agent/agent/recorder"
	"liqo.io/agent/endpoint"
	"liqo.io/agent/peer"
	"liqo.io/agent/peering"
	"liqo.io/agent/state"
)

// slowDisk takes a minute for each decision.
type slowDisk struct{ *state.Store }

func (d slowDisk) SetRuling(ctx context.Context, id peer.ClusterID, r state.Ruling, events ...peer.Event) error {
	time.Sleep(time.Minute)
	return d.Store.SetRuling(ctx, id, r, events...)
}

// TestReturnDoesNotWaitForTheDisk: the recorder, which tells of a change, goes on while
// the ledger writes what follows from it.
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
	synctest.Test(t, func(t *testing.T) {
		nobody := func(context.Context, endpoint.Target) (endpoint.Result, error) {
			return endpoint.Result{}, errors.New("nobody")
		}
		self := func() peer.ClusterID { return "self" }
		told := make(chan peer.ClusterID, 1)
		s := &session{Agent: &Agent{told: make(chan struct{}, 1)}, store: store, proofs: newProofs()}
		s.client = endpoint.NewClient(endpoint.ClientConfig{})
		defer s.client.Close()
		s.recorder = recorder.New(recorder.Config{Self: "self", Identify: nobody, Store: store, Changed: func(peer.ClusterID) {}, Checkers: 1, Interval: time.Minute, Logger: logger,
			Remembered: []peer.Peer{{ID: id, Phase: peer.PhasePresent, Fingerprint: peer.FingerprintOf([]byte("key"))}}})
		s.contacts = contact.New(contact.Config{Self: "self", Identify: nobody, Recorder: s.recorder, Known: s.recorder.Peer, Changed: func(peer.Key) {}, Limit: 1, Logger: logger})
		s.ills.again = make(chan struct{}, 1)
		s.ledger, err = ledger.Open(t.Context(), ledger.Config{Store: slowDisk{store}, Self: self, SelfKey: func() peer.Fingerprint { return peer.Fingerprint{} },
			Peer: s.recorder.Peer, Changed: func(id peer.ClusterID) { told <- id }, Logger: logger})
		if err != nil {
			t.Fatal(err)
		}
		s.peering = peering.New(peering.Config{Registry: s.recorder, Ledger: s.ledger, Logger: logger})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() { _ = s.feedProofs(ctx) }()

		s.absences.note(id, peer.PhaseLost)
		began := time.Now()
		s.changed(id)
		if took := time.Since(began); took > 0 {
			t.Errorf("the recorder waited for %v", took)
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
