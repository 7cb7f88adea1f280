package scan

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"liqo.io/agent/cli/render"
	"liqo.io/agent/endpoint"
	"liqo.io/agent/endpoint/client"
	"liqo.io/agent/ifwatch"
	"liqo.io/agent/internal/clitest"
	"liqo.io/agent/mdnssvc"
	"liqo.io/agent/mdnssvc/browser"
	"liqo.io/agent/mdnssvc/wire"
	"liqo.io/agent/peer"
	"liqo.io/agent/trust"
)

// script is a discovery that tells what a test wants it to.
type script struct{ events chan []mdnssvc.Event }

func newScript() *script { return &script{events: make(chan []mdnssvc.Event, 1)} }

func (s *script) Run(ctx context.Context) error { <-ctx.Done(); return nil }
func (s *script) SetLinks(ifwatch.Snapshot)     {}
func (s *script) Browse(bool)                   {}
func (s *script) Stats() mdnssvc.Stats          { return mdnssvc.Stats{} }

func (s *script) Events(ctx context.Context) ([]mdnssvc.Event, error) {
	select {
	case batch := <-s.events:
		return batch, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// box is a real endpoint on the loopback interface.
type box struct {
	id   peer.Identity
	fp   peer.Fingerprint
	port uint16
}

func newBox(t *testing.T, id peer.ClusterID, name string) *box {
	t.Helper()
	key, err := trust.LoadOrCreateKey(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	b := &box{id: peer.Identity{ClusterID: id, ClusterName: name, GuestNamespace: "liqo"}, fp: key.Fingerprint()}
	srv := endpoint.NewServer(endpoint.ServerConfig{Listen: "127.0.0.1:0", Issuer: trust.NewIssuer(key, func() peer.ClusterID { return id }),
		Identity: func() peer.Identity { return b.id }, Logger: slog.New(slog.DiscardHandler)})
	if err := srv.Listen(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.port = srv.Port()
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- srv.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return b
}

// event is how discovery tells about the box, with another key if fp is not
// its own.
func (b *box) event(t *testing.T, kind browser.EventKind, fp peer.Fingerprint) mdnssvc.Event {
	t.Helper()
	txt, err := wire.EncodeTXT(mdnssvc.TXT(b.id, fp))
	if err != nil {
		t.Fatal(err)
	}
	return mdnssvc.Event{Kind: kind, Link: "eth0", Instance: browser.Instance{Name: string(b.id.ClusterID), Service: liqoService, Domain: localDomain,
		Host: "box.local.", Port: b.port, TXT: txt, Addrs: []netip.Addr{netip.MustParseAddr("127.0.0.1")}, TTL: time.Minute}}
}

// look runs a scanner whose output goes to each, line by line, until ctx ends.
func look(ctx context.Context, t *testing.T, s *scanner, each func(Neighbour)) {
	t.Helper()
	var mu sync.Mutex
	s.out = render.New(clitest.Lines(func(line string) {
		mu.Lock()
		defer mu.Unlock()
		var n Neighbour
		if err := json.Unmarshal([]byte(line), &n); err != nil {
			t.Errorf("%q: %v", line, err)
		}
		each(n)
	}), render.JSON, false, time.Now())
	if err := s.look(ctx); err != nil {
		t.Error(err)
	}
}

func TestScanWatch(t *testing.T) {
	good, bad := newBox(t, clitest.Barn, "barn"), newBox(t, clitest.Silo, "silo")
	other := peer.FingerprintOf([]byte("another key"))
	mdns := newScript()
	s := newScanner(mdns, "_liqo._tcp.local")
	s.liqo, s.client = true, client.New(client.Config{Timeout: clitest.Patience})
	stranger := mdnssvc.Event{Kind: browser.Found, Link: "eth0", Instance: browser.Instance{Name: "Printer [00:11]", Host: "p.local.", Port: 631,
		TXT: []string{"paper=A4"}, Addrs: []netip.Addr{netip.MustParseAddr("fe80::1%eth0"), netip.MustParseAddr("192.0.2.9")}}}
	mdns.events <- []mdnssvc.Event{good.event(t, browser.Found, good.fp), bad.event(t, browser.Found, other), stranger}

	s.self = good.fp.String()
	ctx, cancel := context.WithTimeout(t.Context(), clitest.Patience)
	defer cancel()
	var told []string
	verdicts := 0
	look(ctx, t, s, func(n Neighbour) {
		if n.Event == "" || n.At.IsZero() || n.Link != "eth0" || n.Service != "_liqo._tcp.local" {
			t.Errorf("incomplete: %+v", n)
		}
		reason, _, _ := strings.Cut(n.Reason, ":")
		told = append(told, fmt.Sprintf("%s %.4s %s %v %s", n.Event, n.Instance, n.Addr, n.Verified, reason))
		if n.Event == "updated" {
			if verdicts++; verdicts == 2 {
				mdns.events <- []mdnssvc.Event{{Kind: browser.Lost, Link: "eth0", Instance: good.event(t, browser.Lost, good.fp).Instance, Reason: "goodbye"},
					{Kind: browser.Lost, Link: "eth0", Instance: browser.Instance{Name: "never seen"}, Reason: "expired"}}
			}
		}
		if n.Event == "lost" {
			if !n.Verified || !n.Self || n.Name != "barn" || n.Fingerprint != good.fp.String() {
				t.Errorf("lost: %+v", n)
			}
			cancel()
		}
	})
	if len(told) != 6 {
		t.Fatalf("told: %q", told)
	}
	for i, want := range []string{"found 0558 127.0.0.1 false not asked yet", "found 0558 127.0.0.1 false not asked yet",
		`found Prin 192.0.2.9 false TXT key "id"`} {
		if told[i] != want {
			t.Errorf("line %d: %s, want %s", i, told[i], want)
		}
	}
	updates := strings.Join(told[3:5], "\n")
	if !strings.Contains(updates, "updated 0558 127.0.0.1 true ") || !strings.Contains(updates, "updated 0558 127.0.0.1 false ") {
		t.Errorf("updates: %s", updates)
	}
	if told[5] != "lost 0558 127.0.0.1 true goodbye" {
		t.Errorf("lost: %s", told[5])
	}
	if list := s.list(); len(list) != 2 || list[1].TXT["txtvers"] != "1" {
		t.Errorf("left: %+v", list)
	}
}

// A neighbour that changes while it is being asked is asked again, and the
// answer to the first question is not taken for one to the second.
func TestScanAsksAgain(t *testing.T) {
	b := newBox(t, clitest.Barn, "barn")
	s := newScanner(newScript(), "_liqo._tcp.local")
	s.liqo, s.client = true, client.New(client.Config{Timeout: clitest.Patience})
	s.open = true
	key := scanKey{"eth0", clitest.Barn}
	s.handle(b.event(t, browser.Found, peer.FingerprintOf([]byte("another key"))))
	s.verify(t.Context())
	s.handle(b.event(t, browser.Updated, b.fp))
	s.judge(<-s.results)
	if n := s.entries[key].shown; n.Verified || n.Reason != "not asked yet" {
		t.Errorf("after an answer that is out of date: %+v", n)
	}
	s.verify(t.Context())
	s.judge(<-s.results)
	if n := s.entries[key].shown; !n.Verified || n.Reason != "" || n.URL == "" {
		t.Errorf("after the second answer: %+v", n)
	}

	// The same again is no reason to ask again; going and coming back is.
	s.handle(b.event(t, browser.Updated, b.fp))
	if n := s.entries[key].shown; !n.Verified || len(s.queue) != 0 {
		t.Errorf("asked again for nothing: %+v, %v", n, s.queue)
	}
	s.handle(b.event(t, browser.Lost, b.fp))
	s.handle(b.event(t, browser.Found, b.fp))
	if n := s.entries[key].shown; n.Verified || len(s.queue) != 1 {
		t.Errorf("back, and believed at once: %+v, %v", n, s.queue)
	}
	s.verify(t.Context())
	s.handle(b.event(t, browser.Lost, b.fp))
	s.judge(<-s.results)
	if len(s.entries) != 0 || s.asking != 0 {
		t.Errorf("gone while asked: %v, %d being asked", s.entries, s.asking)
	}
}

func TestScanOutput(t *testing.T) {
	list := []Neighbour{
		{Service: "_liqo._tcp.local", Instance: clitest.Barn, Link: "eth0", Host: "box.local", Port: 6447, Addr: "192.0.2.7", Addrs: []string{"192.0.2.7", "fe80::1%eth0"},
			TXT: map[string]string{"id": clitest.Barn}, ID: clitest.Barn, Name: "barn", Fingerprint: clitest.BarnKey, URL: "https://192.0.2.7:6447", Verified: true},
		{Service: "_liqo._tcp.local", Instance: clitest.Silo, Link: "eth1", Port: 6447, Addr: "fe80::2%eth1", Addrs: []string{"fe80::2%eth1"}, TXT: map[string]string{},
			ID: clitest.Silo, Name: "silo", Reason: "connection refused"},
		{Service: "_liqo._tcp.local", Instance: "evil\x1b[2J\n", Link: "eth1", Addrs: []string{}, TXT: map[string]string{"k": "\x1b\xff"}, Reason: "TXT key \"id\": is empty"},
	}
	for name, tc := range map[string]struct {
		format string
		list   []Neighbour
	}{
		"scan":            {render.Table, list},
		"scan-wide":       {render.Wide, list},
		"scan-json":       {render.JSON, list},
		"scan-empty":      {render.Table, nil},
		"scan-empty-json": {render.JSON, []Neighbour{}},
	} {
		var out strings.Builder
		p := render.New(&out, tc.format, false, time.Now())
		printNeighbours(p, tc.list, tc.format == render.Wide, "_liqo._tcp.local")
		if err := p.Flush(); err != nil {
			t.Error(err)
		}
		clitest.Golden(t, name, out.String())
	}
	var out strings.Builder
	p := render.New(&out, render.Table, false, time.Now())
	for _, n := range list {
		n.Event, n.At = "found", clitest.Now
		printNeighbour(p, n)
	}
	if err := p.Flush(); err != nil {
		t.Error(err)
	}
	printEnd(p, mdnssvc.Stats{Received: 7, Sent: 3, SocketDrops: 1, Drops: map[wire.DropReason]uint64{"malformed": 2}})
	if err := p.Flush(); err != nil {
		t.Error(err)
	}
	clitest.Golden(t, "scan-watch", out.String())
}

// A thousand neighbours at once cost little: this is the budget of the whole
// of scan, so what is measured here must stay far below it.
func BenchmarkScanFound(b *testing.B) {
	txt, err := wire.EncodeTXT([][2]string{{"txtvers", "1"}, {"id", clitest.Barn}, {"name", "barn"}, {"ns", "liqo"}, {"fp", clitest.BarnKey}, {"v", "1"}})
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		s := newScanner(newScript(), "_liqo._tcp.local")
		s.liqo, s.client = true, client.New(client.Config{})
		s.out = render.New(clitest.Lines(func(string) {}), render.JSON, false, time.Now())
		for i := range 1000 {
			s.handle(mdnssvc.Event{Kind: browser.Found, Link: "eth0", Instance: browser.Instance{Name: fmt.Sprintf("i%d", i), Host: "h.local.", Port: 6447,
				TXT: txt, Addrs: []netip.Addr{netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)})}}})
			if err := s.out.Flush(); err != nil {
				b.Fatal(err)
			}
		}
	}
}
