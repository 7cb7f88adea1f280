package agent

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"liqo.io/agent/agent/config"
	"liqo.io/agent/discovery/registry"
	"liqo.io/agent/endpoint/client"
	"liqo.io/agent/internal/bubble"
	"liqo.io/agent/peer"
	"liqo.io/agent/state"
)

// A neighbour that is there is not forgotten as one that was not seen for long, when this box was switched off for longer
// than that.
func TestNeighbourThatIsThereIsKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.db")
	bubble.Test(t, func(t *testing.T) { stays(t, path, 90*24*time.Hour, 100*24*time.Hour) })
}

// stays fails unless a neighbour that is there when the agent starts, off after it was last seen, is stored a day later.
func stays(t *testing.T, path string, history, off time.Duration) {
	store, err := state.Open(t.Context(), path, state.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	}()
	at := netip.MustParseAddrPort("192.0.2.1:6447")
	barn := peer.Peer{ID: "barn", Name: "barn", Namespace: "liqo", Fingerprint: peer.FingerprintOf([]byte("barn")), Source: peer.LAN,
		URL: "https://192.0.2.1:6447", Links: []string{"eth0"}, Addrs: []netip.AddrPort{at}, FirstSeen: time.Now(), LastSeen: time.Now()}
	seen := peer.Sighting{Source: peer.LAN, Link: "eth0", Instance: "barn", ClusterID: "barn", ClusterName: "barn", Namespace: "liqo",
		Fingerprint: barn.Fingerprint, Addrs: barn.Addrs}
	if err := store.Apply(t.Context(), state.Change{Peers: []peer.Peer{barn}, Sightings: map[peer.ClusterID][]peer.Sighting{"barn": {seen}}}); err != nil {
		t.Fatal(err)
	}
	time.Sleep(off)

	barn.Phase = peer.PhasePresent
	logger := slog.New(slog.DiscardHandler)
	peers := registry.New(registry.Config{
		Self: "self", Store: store, Remembered: []peer.Peer{barn}, Limit: 8, Checkers: 4, Lookups: 4, Interval: 30 * time.Second, Logger: logger,
		Changed: func(peer.ClusterID) {}, Reconfirm: func(string, string) {},
		Identify: func(context.Context, peer.Target) (client.Result, error) {
			return client.Result{Identity: peer.Identity{ClusterID: "barn", ClusterName: "barn", GuestNamespace: "liqo"}, Fingerprint: barn.Fingerprint, Addr: at, URL: barn.URL}, nil
		},
	})
	cfg := config.Config{}
	cfg.State.History = history
	keeping := upkeep{store: store, settings: func() config.Config { return cfg }, seen: peers.StoreSeen, clock: func() error { return nil }, logger: logger}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 2)
	go func() { ended <- peers.Run(ctx) }()
	go func() { ended <- keeping.Run(ctx) }()
	if err := peers.See(ctx, seen); err != nil {
		t.Fatal(err)
	}
	time.Sleep(25 * time.Hour) // old history is deleted twice
	synctest.Wait()
	cancel()
	if err := errors.Join(<-ended, <-ended); err != nil {
		t.Error(err)
	}
	if p, known := peers.Peer("barn"); !known || p.Phase != peer.PhasePresent {
		t.Errorf("the peer is not there: %+v", p)
	}
	stored, err := store.Peers(context.WithoutCancel(t.Context()))
	if err != nil || len(stored) != 1 || stored[0].Fingerprint != barn.Fingerprint {
		t.Errorf("stored after all that: %+v, %v", stored, err)
	}
}
