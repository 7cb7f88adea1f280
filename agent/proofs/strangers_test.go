package proofs

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"liqo.io/agent/agent/clock"
	"liqo.io/agent/agent/decisions"
	"liqo.io/agent/discovery/registry"
	"liqo.io/agent/endpoint/client"
	"liqo.io/agent/internal/bubble"
	"liqo.io/agent/peer"
	"liqo.io/agent/state"
)

var addrs = []netip.AddrPort{netip.MustParseAddrPort("192.0.2.7:6447")}

// changed does what the hub of package agent does when the registry says that a peer changed.
func changed(q *Queue, r *registry.Registry, id peer.ClusterID) {
	if p, ok := r.Peer(id); ok {
		q.Phase(id, p.Phase)
	} else {
		q.Forget(id)
	}
}

// A stranger that comes again and again as another cluster, and goes, leaves nothing behind.
func TestStrangersThatComeAndGo(t *testing.T) {
	const limit, strangers = 8, 400
	logger := slog.New(slog.DiscardHandler)
	store, err := state.Open(t.Context(), filepath.Join(t.TempDir(), "agent.db"), state.Options{Logger: logger, Memory: true})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	bubble.Test(t, func(t *testing.T) {
		var q *Queue
		var r *registry.Registry
		r = registry.New(registry.Config{
			Self: "self", Store: store, Checkers: 4, Limit: limit, Interval: time.Minute, Logger: logger,
			Identify: func(_ context.Context, to peer.Target) (client.Result, error) { // it has that key
				var out client.Result
				out.Identity = peer.Identity{ClusterID: to.ID, ClusterName: "x", GuestNamespace: "liqo"}
				out.Fingerprint, out.Addr = to.Fingerprint, to.Addrs[0]
				return out, nil
			},
			Changed: func(id peer.ClusterID) { changed(q, r, id) },
		})
		decisions, err := decisions.Open(t.Context(), decisions.Config{Database: store, Self: func() peer.ClusterID { return "self" },
			SelfKey: func() peer.Fingerprint { return peer.Fingerprint{} }, Peer: r.Peer, Changed: func(peer.ClusterID) {}, Logger: logger})
		if err != nil {
			t.Fatal(err)
		}
		q = New(decisions, clock.New(), nil)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); _ = r.Run(ctx) }()
		present := 0
		for i := range strangers {
			id := peer.ClusterID(fmt.Sprintf("11111111-1111-4111-8111-%012d", i))
			s := peer.Sighting{Source: peer.LAN, Link: "eth0", Instance: string(id), ClusterID: id, ClusterName: "x", Namespace: "liqo",
				Fingerprint: peer.FingerprintOf([]byte(id)), Addrs: addrs, TTL: time.Minute}
			if err := r.See(ctx, s); err != nil {
				t.Fatal(err)
			}
			time.Sleep(5 * time.Second)
			synctest.Wait()
			if p, _ := r.Peer(id); p.Phase == peer.PhasePresent {
				present++
			}
			if err := r.Unsee(ctx, s.Key(), registry.Absence{Reason: "goodbye", Evidence: registry.Withdrawn}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		q.mu.Lock()
		kept := len(q.away)
		q.mu.Unlock()
		known := len(r.Peers())
		cancel()
		<-done
		if present < strangers/2 {
			t.Fatalf("only %d were there", present)
		}
		if known > limit || kept > limit {
			t.Errorf("%d came and went: the registry knows %d, and the queue keeps %d", present, known, kept)
		}
	})
}
