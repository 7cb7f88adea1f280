package network

import (
	"bytes"
	"encoding/json"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"liqo.io/agent/network/netdev"
	"liqo.io/agent/network/wireguard"
	"liqo.io/agent/peer"
)

func key(b byte) wireguard.Key { return wireguard.Key(bytes.Repeat([]byte{b}, wireguard.KeyLen)) }

func bytesOf(k wireguard.Key) []byte { return k[:] }

func TestOffer(t *testing.T) {
	good := offer{Key: bytesOf(key(1)), Preshared: bytesOf(key(2)), Port: 6447, MTU: 1420}
	own, none := key(9), wireguard.Key{}
	for name, test := range map[string]struct {
		change    func(o *offer)
		preshared wireguard.Key
		wrong     string
	}{
		"good":              {func(*offer) {}, none, ""},
		"no key":            {func(o *offer) { o.Key = nil }, none, "a key of 0 bytes"},
		"short key":         {func(o *offer) { o.Key = o.Key[1:] }, none, "a key of 31 bytes"},
		"long key":          {func(o *offer) { o.Key = append(slices.Clone(o.Key), 0) }, none, "a key of 33 bytes"},
		"zeros":             {func(o *offer) { o.Key = make([]byte, 32) }, none, "a key of zeros"},
		"our key":           {func(o *offer) { o.Key = own[:] }, none, "our key is its own"},
		"no port":           {func(o *offer) { o.Port = 0 }, none, "no UDP port"},
		"short packets":     {func(o *offer) { o.MTU = 1279 }, none, "cannot have 1279 bytes"},
		"long packets":      {func(o *offer) { o.MTU = 1501 }, none, "cannot have 1501 bytes"},
		"negative":          {func(o *offer) { o.MTU = -1 }, none, "cannot have -1 bytes"},
		"no preshared key":  {func(o *offer) { o.Preshared = nil }, none, "preshared"},
		"zeros preshared":   {func(o *offer) { o.Preshared = make([]byte, 32) }, none, "preshared"},
		"we make that":      {func(o *offer) { o.Preshared = nil }, key(3), ""},
		"it does not count": {func(o *offer) { o.Preshared = []byte("nonsense") }, key(3), ""},
	} {
		o := good
		test.change(&o)
		got, err := o.check(own, test.preshared)
		if test.wrong != "" && (err == nil || !strings.Contains(err.Error(), test.wrong)) || test.wrong == "" && err != nil {
			t.Errorf("%s: %v, want %q", name, err, test.wrong)
		}
		if want := test.preshared; err == nil && want != none && got.Preshared != want || err == nil && got.Key != key(1) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// Whatever a peer says, its tunnel has keys of the right kind, or is none.
func FuzzOffer(f *testing.F) {
	text, err := json.Marshal(offer{Key: bytesOf(key(1)), Preshared: bytesOf(key(2)), Port: 6447, MTU: 1420})
	if err != nil {
		f.Fatal(err)
	}
	for _, seed := range []string{string(text), "", "null", "{}", `{"key":"AA=="}`, `{"port":70000}`, `{"port":[1]}`, `{"mtu":1e9}`} {
		f.Add([]byte(seed))
	}
	own := key(9)
	f.Fuzz(func(t *testing.T, text []byte) {
		var o offer
		if json.Unmarshal(text, &o) != nil {
			return
		}
		got, err := o.check(own, wireguard.Key{})
		if err != nil {
			return
		}
		if got.Key == own || got.Key == (wireguard.Key{}) || got.Preshared == (wireguard.Key{}) || o.Port == 0 || o.MTU < leastTunnelMTU || o.MTU > MTU {
			t.Errorf("%q is taken as %+v", text, got)
		}
	})
}

// trial is a tunnel with a clock.
type trial struct {
	tunnel
	now      time.Time
	received uint64
	passes   int // longest packet that is answered
}

func newTrial() *trial {
	x := &trial{now: time.Unix(1000, 0), passes: MTU}
	x.offered(wireguard.Peer{Key: key(1), Preshared: key(2)}, netip.AddrPort{}, 1420)
	return x
}

// ticks lets so many ticks pass, and returns whether packets go another way at the last one.
func (x *trial) ticks(n int, answered bool) (changed bool) {
	for range n {
		x.now = x.now.Add(probeEvery)
		x.seen(wireguard.Seen{Received: x.received}, x.now)
		var sizes []int
		sizes, changed = x.tick(x.now, answered)
		for _, size := range sizes {
			b := x.ask(x.now, size, true, nil)
			if size <= x.passes {
				x.received += uint64(size)
				x.echo(x.now.Add(time.Millisecond), b, true)
			}
		}
	}
	return changed
}

func TestTunnelTick(t *testing.T) {
	t.Run("three of the longest", func(t *testing.T) {
		x := newTrial()
		if x.ticks(3, true); x.mtu != 0 {
			t.Errorf("after two answers at most: %d", x.mtu)
		}
		if !x.ticks(1, true) || x.mtu != 1420 || x.why != nil {
			t.Errorf("%d, %v", x.mtu, x.why)
		}
		if x.ticks(1000, true); x.mtu != 1420 {
			t.Error(x.why)
		}
	})
	t.Run("shorter ones", func(t *testing.T) {
		x := newTrial()
		x.passes = 1350
		if x.ticks(tunnelRounds, true); x.mtu != 0 {
			t.Error(x.mtu)
		}
		if !x.ticks(1, true) || x.mtu != 1320 {
			t.Error(x.mtu)
		}
	})
	t.Run("none", func(t *testing.T) {
		x := newTrial()
		x.passes = 0
		probes := 0
		for range 24 * 60 * 30 { // a day
			x.now = x.now.Add(probeEvery)
			sizes, changed := x.tick(x.now, true)
			for _, size := range sizes {
				x.ask(x.now, size, true, nil)
			}
			probes += len(sizes)
			if changed || len(x.asked) > 20 {
				t.Fatal("packets go there, or all are remembered")
			}
		}
		if probes > 20000 || !errors.Is(x.why, errNoUDP) {
			t.Errorf("%d probes; %v", probes, x.why)
		}
		x.passes = MTU
		if x.ticks(200, true); x.mtu != 1420 {
			t.Error("it is never tried again")
		}
	})
	t.Run("nothing comes", func(t *testing.T) {
		x := newTrial()
		x.ticks(10, true)
		x.passes = 0
		if x.ticks(3, true); x.mtu == 0 {
			t.Error("one lost probe counts")
		}
		if x.ticks(1, true); x.mtu != 0 || !errors.Is(x.why, errTunnelSilent) {
			t.Errorf("%d, %v", x.mtu, x.why)
		}
	})
	t.Run("no answers, but something comes", func(t *testing.T) {
		x := newTrial()
		x.ticks(10, true)
		x.passes = 0
		for range 6 {
			x.received++
			x.ticks(1, true)
		}
		if x.mtu != 0 || !errors.Is(x.why, errNoUDP) {
			t.Errorf("%d, %v", x.mtu, x.why)
		}
	})
	t.Run("the agent is away", func(t *testing.T) {
		x := newTrial()
		x.ticks(10, true)
		x.passes = 0
		for range int(tunnelAlone/probeEvery) - 1 {
			x.received++
			if x.ticks(1, false); x.mtu == 0 {
				t.Fatal(x.why)
			}
		}
		x.received++
		if x.ticks(2, false); x.wanted() || !errors.Is(x.why, errAlone) {
			t.Errorf("%+v, %v", x.peer, x.why)
		}
	})
	t.Run("it comes back", func(t *testing.T) {
		x := newTrial()
		x.ticks(10, true)
		for range 60 {
			x.received++
			x.passes = 0
			x.ticks(1, false)
		}
		x.passes = MTU
		if x.ticks(3, true); x.mtu != 1420 {
			t.Error(x.why)
		}
	})
}

func TestHalves(t *testing.T) {
	for block, want := range map[string][]netip.Prefix{
		"241.7.4.0/23": prefixes("241.7.4.0/24", "241.7.5.0/24"), "fd12:3456:789a:bcde::/64": prefixes("fd12:3456:789a:bcde::/65", "fd12:3456:789a:bcde:8000::/65"),
	} {
		if got := halves(prefix(block)); !slices.Equal(got, want) {
			t.Errorf("%s: %v", block, got)
		}
	}
}

// by expects that packets from one site to another go that way, within a time.
func by(t *testing.T, s *site, to peer.ClusterID, engine string, within time.Duration) {
	t.Helper()
	for end := time.Now().Add(within); ; time.Sleep(100 * time.Millisecond) {
		synctest.Wait()
		status, _ := s.Status(to)
		if status.State == Connected && status.Engine == engine {
			return
		}
		if !time.Now().Before(end) {
			t.Fatalf("%s to %s does not go by %s within %s: %+v", s.id, to, engine, within, status)
		}
	}
}

func TestTunnel(t *testing.T) {
	inBubble(t, func(t *testing.T, l *lan) {
		w := newWires()
		a, b := l.add("a"), l.add("b")
		w.gets(a)
		w.gets(b)
		a.begin("b")
		b.begin("a")
		connected(t, a, b, 3*time.Second)
		by(t, a, "b", EngineWireGuard, 15*time.Second)
		by(t, b, "a", EngineWireGuard, 15*time.Second)
		for _, s := range []*site{a, b} {
			status := mustStatus(t, s, map[peer.ClusterID]peer.ClusterID{"a": "b", "b": "a"}[s.id])
			have := s.machine.tunnel()
			if len(have.Peers) != 1 || !slices.Equal(have.Peers[0].Allowed, wholes(status.Blocks.Theirs)) || have.Peers[0].Keepalive == 0 || have.Peers[0].Preshared == (wireguard.Key{}) {
				t.Errorf("%s has %+v", s.id, have.Peers)
			}
			var want []netdev.Route
			for _, half := range halves(whole(status.Blocks.Theirs[0])) {
				want = append(want, netdev.Route{Prefix: half, Source: k3s.Host[0], MTU: 1420})
			}
			if !slices.Equal(have.Routes, want) || status.MTU != 1420 || status.NoWireGuard != nil || s.set().Tunnel != "liqo0-wg" {
				t.Errorf("%s: %+v, %+v, %+v", s.id, have.Routes, status, s.set().Tunnel)
			}
			if took, err := s.Probe(t.Context(), map[peer.ClusterID]peer.ClusterID{"a": "b", "b": "a"}[s.id]); err != nil || took <= 0 {
				t.Errorf("a probe takes %v: %v", took, err)
			}
		}

		// Nothing reaches b: the stream is used, and tried again later.
		w.cuts(b.machine, true)
		by(t, b, "a", EngineTLS, 8*time.Second)
		by(t, a, "b", EngineTLS, 2*time.Second)
		if len(a.machine.tunnel().Routes) != 0 || len(b.machine.tunnel().Routes) != 0 {
			t.Error("a route is left")
		}
		w.cuts(b.machine, false)
		by(t, a, "b", EngineWireGuard, 30*time.Second)
		by(t, b, "a", EngineWireGuard, 30*time.Second)

		// Somebody deletes the device.
		if err := a.deleteTunnel(); err != nil {
			t.Fatal(err)
		}
		by(t, a, "b", EngineTLS, 3*time.Second)
		by(t, b, "a", EngineTLS, 3*time.Second)
		by(t, a, "b", EngineWireGuard, 30*time.Second)

		// The peer is not trusted any more: a has no target, and refuses b.
		apart := func(yes bool) {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.cut[[2]peer.ClusterID{"a", "b"}], l.cut[[2]peer.ClusterID{"b", "a"}] = yes, yes
		}
		apart(true)
		a.Distrust("b")
		time.Sleep(time.Second)
		if a.hasTunnel() || a.set().Tunnel != "" {
			t.Error("it goes on")
		}
		apart(false) // it is again
		by(t, a, "b", EngineWireGuard, 60*time.Second)

		a.Remove("b")
		time.Sleep(time.Second)
		if a.hasTunnel() {
			t.Error("the device is left")
		}
		if status, _ := b.Status("a"); status.State == Connected && status.Engine == EngineTLS {
			t.Errorf("b: %+v", status)
		}
	})
}

// The device outlives the agent, and the next one goes on with it.
func TestTunnelOutlivesTheAgent(t *testing.T) {
	inBubble(t, func(t *testing.T, l *lan) {
		w := newWires()
		a, b := l.add("a"), l.add("b")
		w.gets(a)
		w.gets(b)
		a.begin("b")
		b.begin("a")
		by(t, a, "b", EngineWireGuard, 15*time.Second)
		by(t, b, "a", EngineWireGuard, 15*time.Second)
		for _, s := range []*site{a, b} {
			other, id := a, b.id
			if s == a {
				other, id = b, a.id
			}
			before := s.machine.tunnel()
			s.stop()
			for range 60 {
				time.Sleep(time.Second)
				w.keepalive()
				if status, _ := other.Status(id); status.State != Connected || status.Engine != EngineWireGuard {
					t.Fatalf("while the agent of %s is away, %s has %+v", s.id, other.id, status)
				}
			}
			s.renew()
			s.begin(other.id)
			for range 30 {
				time.Sleep(time.Second)
				w.keepalive()
				status := mustStatus(t, s, other.id)
				if status.State != Connected || status.Engine != EngineWireGuard {
					t.Fatalf("after a restart, %s has %+v", s.id, status)
				}
			}
			if after := s.machine.tunnel(); after.Peers[0].Key != before.Peers[0].Key || after.Peers[0].Preshared != before.Peers[0].Preshared || !slices.Equal(after.Routes, before.Routes) {
				t.Errorf("%s had %+v, and has %+v", s.id, before, after)
			}
		}
		// After a reboot, there is another key.
		if err := b.deleteTunnel(); err != nil {
			t.Fatal(err)
		}
		b.stop()
		b.renew()
		b.begin("a")
		by(t, b, "a", EngineWireGuard, 60*time.Second)
		by(t, a, "b", EngineWireGuard, 60*time.Second)
		// For good, it is not known any more whether the peer is wanted.
		b.stop()
		for range int(tunnelAlone / time.Second) {
			time.Sleep(time.Second)
			w.keepalive()
		}
		time.Sleep(5 * time.Second)
		if a.hasTunnel() {
			t.Error("WireGuard goes on without the peer's agent")
		}
	})
}

func TestTunnelWithOneSide(t *testing.T) {
	inBubble(t, func(t *testing.T, l *lan) {
		a, b := l.add("a"), l.add("b")
		newWires().gets(a)
		a.begin("b")
		b.begin("a")
		connected(t, a, b, 3*time.Second)
		time.Sleep(time.Minute)
		if status := mustStatus(t, a, "b"); status.Engine != EngineTLS || !errors.Is(status.NoWireGuard, errNotOffered) || status.MTU != MTU || a.hasTunnel() {
			t.Errorf("%+v", status)
		}
		if status := mustStatus(t, b, "a"); status.Engine != EngineTLS || !errors.Is(status.NoWireGuard, wireguard.ErrUnavailable) {
			t.Errorf("%+v", status)
		}
	})
}

// A peer that says that the key of another one is its own gets no way for that.
func TestTunnelKeyOfAnother(t *testing.T) {
	inBubble(t, func(t *testing.T, l *lan) {
		w := newWires()
		a, b := l.add("a"), l.add("b")
		w.gets(a)
		w.gets(b)
		a.begin("b", "c")
		b.begin("a")
		by(t, a, "b", EngineWireGuard, 15*time.Second)
		before := a.machine.tunnel()
		text, err := json.Marshal(offer{Key: bytesOf(before.Peers[0].Key), Preshared: bytesOf(key(7)), Port: 6447, MTU: 1420})
		if err != nil {
			t.Fatal(err)
		}
		here, there := net.Pipe()
		defer there.Close()
		said := &stream{conn: here, done: make(chan struct{})}
		a.path("c").invited(said, text)
		time.Sleep(time.Minute)
		if after := a.machine.tunnel(); len(after.Peers) != 1 || after.Peers[0].Preshared != before.Peers[0].Preshared {
			t.Errorf("%+v became %+v", before.Peers, after.Peers)
		}
		if status := mustStatus(t, a, "c"); status.NoWireGuard == nil || !strings.Contains(status.NoWireGuard.Error(), "another peer") {
			t.Errorf("%+v", status)
		}
		by(t, a, "b", EngineWireGuard, 0)

		// What is still read of a connection that was ended, as of a peer that is not trusted any more, offers nothing.
		text, err = json.Marshal(offer{Key: bytesOf(key(8)), Preshared: bytesOf(key(7)), Port: 6447, MTU: 1420})
		if err != nil {
			t.Fatal(err)
		}
		said.end(errDistrusted)
		if a.path("c").invited(said, text); a.path("c").hasKey(key(8)) {
			t.Error("it was taken")
		}
	})
}

// Links that carry less are noticed.
func TestTunnelThatIsNarrow(t *testing.T) {
	inBubble(t, func(t *testing.T, l *lan) {
		w := newWires()
		w.narrow = 1390
		a, b := l.add("a"), l.add("b")
		w.gets(a)
		w.gets(b)
		a.begin("b")
		b.begin("a")
		by(t, a, "b", EngineWireGuard, 30*time.Second)
		if status := mustStatus(t, a, "b"); status.MTU != 1360 {
			t.Errorf("%+v", status)
		}
	})
}
