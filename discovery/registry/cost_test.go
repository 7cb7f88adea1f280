package registry

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"liqo.io/agent/endpoint/client"
	"liqo.io/agent/peer"
	"liqo.io/agent/state"
)

// neighbour is one of many that announce themselves and answer.
func neighbour(i int) peer.Sighting {
	id := fmt.Sprintf("%08d-1111-4111-8111-111111111111", i)
	return peer.Sighting{
		Source: peer.LAN, Link: "eth0", Instance: id, ClusterID: peer.ClusterID(id), ClusterName: fmt.Sprintf("box-%d", i),
		Namespace: "liqo", Fingerprint: peer.FingerprintOf([]byte(id)), Version: "1", TTL: 75 * time.Minute,
		Addrs: []netip.AddrPort{netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}), 6447)},
	}
}

// crowd runs a registry that sees many neighbours, all of which answered, until stop.
func crowd(tb testing.TB, many int) (r *Registry, stop func()) {
	r = New(Config{
		Self: "self", SelfKey: selfKey,
		Identify: func(_ context.Context, t peer.Target) (client.Result, error) {
			return client.Result{Identity: peer.Identity{ClusterID: t.ID, ClusterName: "box", GuestNamespace: "liqo"},
				Fingerprint: t.Fingerprint, Addr: t.Addrs[0], URL: "https://" + t.Addrs[0].String()}, nil
		},
		Reconfirm: func(string, string) {}, Changed: func(peer.ClusterID) {},
		Store: discard{}, Limit: 2 * many, Checkers: 32, Interval: time.Hour, Logger: slog.New(slog.DiscardHandler),
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = r.Run(ctx)
	}()
	for i := range many {
		if err := r.See(ctx, neighbour(i)); err != nil {
			tb.Fatal(err)
		}
	}
	for r.Stats().Phases[peer.PhasePresent] < many {
		runtime.Gosched()
	}
	return r, func() { cancel(); <-done }
}

// BenchmarkNeighbourAnnouncedAgain: nothing new is said about a neighbour that is
// there, which is what happens most.
func BenchmarkNeighbourAnnouncedAgain(b *testing.B) {
	r, stop := crowd(b, 1000)
	defer stop()
	again := neighbour(7)
	b.ReportAllocs()
	for b.Loop() {
		_ = r.See(b.Context(), again)
	}
}

// BenchmarkNeighbours: what 1,000 neighbours take in memory.
func BenchmarkNeighbours(b *testing.B) {
	const many = 1000
	for b.Loop() {
		before := heapInUse()
		r, stop := crowd(b, many)
		stop() // stores what is pending
		b.ReportMetric(float64(heapInUse()-before)/many, "B/neighbour")
		runtime.KeepAlive(r)
	}
}

func heapInUse() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// discard is a store that keeps nothing.
type discard struct{}

func (discard) Apply(context.Context, state.Change) error { return nil }

// Nothing new about a neighbour that is there costs nothing.
func TestNothingNewAllocatesNothing(t *testing.T) {
	r, stop := crowd(t, 100)
	defer stop()
	again := neighbour(7)
	if n := testing.AllocsPerRun(1000, func() { _ = r.See(context.Background(), again) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
