package registry

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"liqo.io/agent/internal/bubble"
	"liqo.io/agent/peer"
)

// Whatever is announced in a peer's name, the peer stays while its endpoint
// answers, and goes when it does not.
func TestForgedRecordsOfAPeer(t *testing.T) {
	stranger := netip.MustParseAddrPort("192.0.2.66:6447")
	many := make([]netip.AddrPort, 0, 2*maxAddrs)
	for i := range 2 * maxAddrs {
		many = append(many, netip.MustParseAddrPort(fmt.Sprintf("192.0.2.%d:6447", 100+i)))
	}
	for _, tc := range []struct {
		name  string
		forge func(t *testing.T, b *bench)
	}{
		{"another address", func(t *testing.T, b *bench) { b.see(t, sightingA(stranger)) }},
		{"more addresses than are tried", func(t *testing.T, b *bench) { b.see(t, sightingA(many...)) }},
		{"another key under its instance name", func(t *testing.T, b *bench) {
			s := sightingA(stranger)
			s.Fingerprint = keyB
			b.see(t, s)
		}},
		{"another cluster under its instance name", func(t *testing.T, b *bench) {
			s := sightingA(stranger)
			s.ClusterID = "b"
			b.see(t, s)
		}},
		{"our own ID under its instance name", func(t *testing.T, b *bench) {
			s := sightingA(stranger)
			s.ClusterID, s.Fingerprint = "self", keyB
			b.see(t, s)
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				b := start(t)
				b.net.set(addr1, hostA())
				b.see(t, sightingA(addr1))
				settle(5 * time.Second)
				tc.forge(t, b)
				for range 10 {
					settle(interval)
					p := b.phase(t, "a", peer.PhasePresent)
					if p.URL != "https://192.0.2.1:6447" || p.Conflict != nil || p.Fingerprint != keyA {
						t.Fatalf("peer = %+v", p)
					}
				}
				if len(b.store.events) != 1 || b.SelfConflict() != nil {
					t.Errorf("history %+v, own conflict %v", b.store.events, b.SelfConflict())
				}
				if takenOver := !strings.Contains(tc.name, "address"); takenOver != slices.Contains(b.reconfirms, "eth0/a") {
					t.Errorf("the instance's owner was asked for: %v", b.reconfirms)
				}
				b.net.set(addr1, nil)
				settle(4 * interval)
				b.phase(t, "a", peer.PhaseLost)
			})
		})
	}
}

// Thousands of claims that never answer hold up neither the peers that do nor
// one that comes after them.
func TestFloodOfSilentClaims(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := start(t)
		b.cfg.Limit = 2000
		b.net.set(addr1, hostA())
		b.see(t, sightingA(addr1))
		settle(time.Second)
		b.net.mu.Lock()
		b.net.silence = 5 * time.Second
		b.net.mu.Unlock()
		for i := range 1000 {
			s := sightingA(addr2)
			s.ClusterID = peer.ClusterID(fmt.Sprintf("bogus-%d", i))
			s.Instance = string(s.ClusterID)
			b.see(t, s)
		}
		settle(time.Minute)
		late := sightingA(addr1)
		late.ClusterID, late.Instance, late.Fingerprint = "late", "late", keyB
		lateAddr := netip.MustParseAddrPort("192.0.2.3:6447")
		late.Addrs = []netip.AddrPort{lateAddr}
		b.net.set(lateAddr, &host{key: keyB, identity: peer.Identity{ClusterID: "late", ClusterName: "late", GuestNamespace: "liqo"}})
		b.see(t, late)
		settle(6 * time.Second) // until a checker is free
		b.phase(t, "late", peer.PhasePresent)

		b.net.set(addr1, nil)
		settle(3 * (interval + 6*time.Second))
		b.phase(t, "a", peer.PhaseLost)
		b.net.mu.Lock()
		defer b.net.mu.Unlock()
		if b.net.most > 4 {
			t.Errorf("%d checks at once, want at most 4", b.net.most)
		}
	})
}
