package registry

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"liqo.io/agent/internal/bubble"
	"liqo.io/agent/peer"
)

var (
	lanAddr    = netip.MustParseAddrPort("10.0.0.2:6447")
	wanAddr    = netip.MustParseAddrPort("198.51.100.2:443")
	givenAddr  = netip.MustParseAddrPort("203.0.113.2:6447")
	callerAddr = netip.MustParseAddrPort("10.0.0.77:6447")
)

// sightingBy is what a source says about cluster a.
func sightingBy(source peer.Source) peer.Sighting {
	s := peer.Sighting{Source: source, Instance: "a", ClusterID: "a", Fingerprint: keyA}
	switch source {
	case peer.LAN:
		s.Link, s.Addrs, s.Version, s.TTL = "eth0", []netip.AddrPort{lanAddr}, "1", 75*time.Minute
	case peer.WAN:
		s.Domain, s.URL, s.Addrs, s.TTL = "example.com", "https://a.example.com", []netip.AddrPort{wanAddr}, time.Hour
	case peer.Manual:
		s.URL = "https://" + givenAddr.String()
	case peer.IncomingPeering:
		s.Addrs = []netip.AddrPort{callerAddr}
	}
	return s
}

// The source that is listed first decides where the peer is and how it is said to
// be found, whatever came first; when it goes, the next one takes over.
func TestPrecedenceOfSources(t *testing.T) {
	best := []struct {
		source peer.Source
		url    string
	}{
		{peer.Manual, "https://203.0.113.2:6447"},
		{peer.LAN, "https://10.0.0.2:6447"},
		{peer.WAN, "https://a.example.com"},
		{peer.IncomingPeering, "https://10.0.0.77:6447"},
	}
	for _, order := range [][]int{{0, 1, 2, 3}, {3, 2, 1, 0}, {2, 0, 3, 1}, {1, 3, 0, 2}} {
		bubble.Test(t, func(t *testing.T) {
			b := start(t)
			for _, a := range []netip.AddrPort{lanAddr, wanAddr, givenAddr, callerAddr} {
				b.net.set(a, hostA())
			}
			for _, i := range order {
				b.see(t, sightingBy(best[i].source))
				settle(time.Second)
			}
			for i, want := range best {
				settle(2 * interval)
				p := b.phase(t, "a", peer.PhasePresent)
				if p.Source != want.source || p.URL != want.url {
					t.Errorf("order %v: seen by %v: %s at %s", order, p.Sources, p.Source, p.URL)
				}
				var sources []peer.Source
				for _, rest := range best[i:] {
					sources = append(sources, rest.source)
				}
				var domains []string
				if i <= 2 {
					domains = []string{"example.com"}
				}
				if diff := cmp.Diff(sources, p.Sources) + cmp.Diff(domains, p.Domains); diff != "" {
					t.Error(diff)
				}
				if i < 3 {
					b.unsee(t, sightingBy(want.source), Absence{Reason: "test", Evidence: Withdrawn})
				}
				if i == 2 {
					// That it called says nothing about whether it is still there, until it
					// calls again.
					b.phase(t, "a", peer.PhaseLost)
					b.see(t, sightingBy(peer.IncomingPeering))
				}
			}
		})
	}
}

// A source whose word counts most and is wrong does not hide the peer.
func TestBestSourceMayBeWrong(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := start(t)
		b.net.set(lanAddr, hostA())
		b.net.set(wanAddr, hostA())
		b.see(t, sightingBy(peer.Manual))
		b.see(t, sightingBy(peer.WAN))
		settle(time.Second)
		if p := b.phase(t, "a", peer.PhasePresent); p.URL != "https://a.example.com" || p.Source != peer.Manual {
			t.Errorf("%s at %s", p.Source, p.URL)
		}
		b.see(t, sightingBy(peer.LAN))
		settle(time.Second)
		if p := b.phase(t, "a", peer.PhasePresent); p.URL != "https://"+lanAddr.String() {
			t.Errorf("at %s", p.URL)
		}
		// From then on it is tried first, as long as it answers.
		b.net.set(givenAddr, hostA())
		settle(2 * interval)
		if p := b.phase(t, "a", peer.PhasePresent); p.URL != "https://"+givenAddr.String() {
			t.Errorf("at %s", p.URL)
		}
	})
}

// The same cluster in two domains is one peer, until it has left both.
func TestTwoDomains(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := start(t)
		b.net.set(wanAddr, hostA())
		one, two := sightingBy(peer.WAN), sightingBy(peer.WAN)
		two.Domain = "example.net"
		b.see(t, two)
		b.see(t, one)
		settle(time.Second)
		if p := b.phase(t, "a", peer.PhasePresent); !cmp.Equal(p.Domains, []string{"example.com", "example.net"}) {
			t.Error(p.Domains)
		}
		gone := Absence{Reason: "it left", Evidence: Withdrawn}
		b.unsee(t, one, gone)
		settle(time.Second)
		if p := b.phase(t, "a", peer.PhasePresent); !cmp.Equal(p.Domains, []string{"example.net"}) {
			t.Error(p.Domains)
		}
		b.unsee(t, two, gone)
		settle(time.Second)
		if p := b.phase(t, "a", peer.PhaseLost); p.Reason != "it left" || p.Sources != nil {
			t.Errorf("%q, %v", p.Reason, p.Sources)
		}
	})
}

// Who is joined stays while its endpoint answers, also when its domain dropped it.
func TestHeldPeerMayLeaveItsDomain(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := start(t)
		b.net.set(wanAddr, hostA())
		b.see(t, sightingBy(peer.WAN))
		settle(time.Second)
		b.Hold("a", true)
		settle(time.Second)
		b.unsee(t, sightingBy(peer.WAN), Absence{Reason: "it left", Evidence: Withdrawn})
		settle(4 * interval)
		b.phase(t, "a", peer.PhasePresent)
		b.net.set(wanAddr, nil)
		settle(4 * interval)
		b.phase(t, "a", peer.PhaseLost)
	})
}
