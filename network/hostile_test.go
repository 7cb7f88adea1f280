package network

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"liqo.io/agent/network/frame"
	"liqo.io/agent/peer"
)

// rogue is the other end of a stream, which does what it wants.
type rogue struct {
	net.Conn
	t     *testing.T
	mu    sync.Mutex
	heard []message
	eof   chan struct{} // closed when the engine has ended the stream
}

// intrude opens a stream to a as peer b, which may be read and answer probes.
func (l *lan) intrude(a *site, read bool) *rogue {
	l.mu.Lock()
	here, there := l.pipe("b", a.id)
	l.mu.Unlock()
	l.all.Go(func() { _ = a.Accept(a.ctx, "b", there) })
	r := &rogue{Conn: here, t: l.t, eof: make(chan struct{})}
	if !read {
		return r
	}
	l.all.Go(func() {
		defer close(r.eof)
		in := frame.NewReader(here)
		for {
			kind, payload, err := in.Next()
			if err != nil {
				return
			}
			switch kind {
			case frame.Probe:
				r.send(frame.Echo, payload)
			case frame.Control:
				var m message
				if err := json.Unmarshal(payload, &m); err != nil {
					l.t.Error(err)
				}
				r.mu.Lock()
				r.heard = append(r.heard, m)
				r.mu.Unlock()
			}
		}
	})
	return r
}

func (r *rogue) send(kind frame.Type, payload []byte) {
	_, _ = r.Write(frame.Append(nil, kind, payload))
}

func (r *rogue) say(text string) { r.send(frame.Control, []byte(text)) }

// ended reports whether the engine has ended the stream after a time.
func (r *rogue) ended(within time.Duration) bool {
	time.Sleep(within)
	synctest.Wait()
	select {
	case <-r.eof:
		return true
	default:
		return false
	}
}

// facing returns a cluster whose peer b is a rogue that cannot be connected to, and a neighbour c.
func facing(l *lan) *site {
	l.cut[[2]peer.ClusterID{"a", "b"}] = true
	a := l.add("a").begin("b", "c")
	l.add("c").begin("a")
	a.expect("c", Connected, 3*time.Second)
	return a
}

const honest = `{"pods":["10.42.0.0/24"],"yours":["241.7.0.0/24"]}`

func TestWhatIsSaid(t *testing.T) {
	for _, tc := range []struct {
		said []string
		ends bool
		says string // of the problem
	}{
		{[]string{honest}, false, ""},
		{[]string{`{"pods":["10.42.0.0/24"]}`, `{"yours":["241.7.0.0/24"]}`}, false, ""},
		{[]string{`{"yours":["241.7.0.0/24"]}`, `{"pods":["10.42.0.0/24"]}`}, false, ""},
		{[]string{`{"pods":["10.42.0.0/24","fd00:1::/64"],"yours":["241.7.0.0/24"],"wireguard":{"port":[1,2,{}]}}`}, false, ""},
		{[]string{`{}`, `{"later":1}`, `{"pods":[]}`, `{"pods":null}`, honest}, false, ""},
		{[]string{honest, `{"pods":["10.42.0.0/24"]}`}, true, "twice"},
		{[]string{honest, `{"yours":["241.7.0.0/24"]}`}, true, "twice"},
		{[]string{`{"pods":["0.0.0.0/0"]}`}, true, "cannot be used"},
		{[]string{`{"pods":["10.0.0.0/8"]}`}, true, "between"},
		{[]string{`{"pods":["10.42.0.0/29"]}`}, true, "between"},
		{[]string{`{"pods":["10.42.0.1/24"]}`}, true, "beginning"},
		{[]string{`{"pods":["127.1.0.0/24"]}`}, true, "unicast"},
		{[]string{`{"pods":["224.1.0.0/24"]}`}, true, "unicast"},
		{[]string{`{"pods":["169.254.0.0/16"]}`}, true, "unicast"},
		{[]string{`{"pods":["::ffff:10.42.0.0/120"]}`}, true, "beginning"},
		{[]string{`{"pods":["fd00::/48"]}`}, true, "64 bits"},
		{[]string{`{"pods":["fe80::/64"]}`}, true, "unicast"},
		{[]string{`{"pods":["fd00:1::/64"]}`}, true, "no common family"},
		{[]string{`{"pods":["10.42.0.0/24","10.43.0.0/24"]}`}, true, "second"},
		{[]string{`{"pods":["10.42.0.0/24","10.42.0.0/24"]}`}, true, "second"},
		{[]string{`{"yours":["241.7.0.0/25"]}`}, true, "not as large"},
		{[]string{`{"yours":["241.7.0.0/23"]}`}, true, "not as large"},
		{[]string{`{"yours":["241.7.0.1/24"]}`}, true, "beginning"},
		{[]string{`{"yours":["241.7.1.0/24"]}`}, true, "lower half"},
		{[]string{`{"yours":["255.255.255.0/24"]}`}, true, "unicast"},
		{[]string{`{"yours":["0.0.0.0/0"]}`}, true, ""},
		{[]string{`{"yours":["fd00::/64"]}`}, true, "family"},
		{[]string{`{"pods":["10.42.0.0"]}`}, true, "cannot be read"},
		{[]string{`{"pods":"` + strings.Repeat("\x1b[31m", 800) + `"}`}, true, "cannot be read"},
		{[]string{strings.Repeat("[", 4096)}, true, "cannot be read"},
		{[]string{strings.Repeat("\xff", 4096)}, true, "cannot be read"},
		{[]string{`null`, `{}x`}, true, "cannot be read"},
		{[]string{`[]`}, true, "cannot be read"},
		{[]string{`{"pods":[` + strings.TrimSuffix(strings.Repeat(`"10.42.0.0/24",`, 250), ",") + `]}`}, true, "second"},
	} {
		inBubble(t, func(t *testing.T, l *lan) {
			a := facing(l)
			before := a.stored()
			r := l.intrude(a, true)
			for _, text := range tc.said {
				r.say(text)
			}
			time.Sleep(100 * time.Millisecond)
			status := mustStatus(t, a, "b")
			if ended := r.ended(0); ended != tc.ends {
				t.Errorf("%.80q: ended %v", tc.said, ended)
			}
			if tc.ends {
				if status.Problem == nil || !strings.Contains(status.Problem.Error(), tc.says) || len(status.Problem.Error()) > 300 || strings.Contains(status.Problem.Error(), "\x1b") {
					t.Errorf("%.80q: %v", tc.said, status.Problem)
				}
			} else if status.State != Connected || len(a.set().Peers) != 2 || a.stored() != before+2 {
				t.Errorf("%.80q: %+v", tc.said, status)
			}
			if b := a.row("b"); b.Pods != nil && b.check() != nil {
				t.Errorf("%.80q: %v is stored", tc.said, b)
			}
			_ = r.Close()
			connected(t, a, l.sites["c"], 0)
		})
	}
}

// Whatever breaks the rules of the stream ends it, and what is only useless does not matter.
func TestFrames(t *testing.T) {
	for name, tc := range map[string]struct {
		do   func(a *site, r *rogue)
		ends bool
	}{
		"unknown kind":       {func(a *site, r *rogue) { _, _ = r.Write([]byte{9, 0, 0, 1, 1}) }, true},
		"kind of the future": {func(a *site, r *rogue) { _, _ = r.Write([]byte{200, 0, 0, 1, 1}) }, false},
		"long message":       {func(a *site, r *rogue) { _, _ = r.Write([]byte{2, 0, 0x10, 1}) }, true},
		"long packet":        {func(a *site, r *rogue) { _, _ = r.Write([]byte{1, 0xff, 0xff, 0xff}) }, true},
		"HTTP":               {func(a *site, r *rogue) { _, _ = io.WriteString(r, "HTTP/1.1 400 Bad Request\r\n\r\n") }, true},
		"echoes never asked for": {func(a *site, r *rogue) {
			for i := range 1000 {
				r.send(frame.Echo, []byte{0, 0, 0, 0, 0, 0, byte(i >> 8), byte(i)})
			}
		}, false},
		"probes": {func(a *site, r *rogue) {
			for range 10_000 {
				r.send(frame.Probe, []byte("12345678"))
			}
		}, false},
		"nonsense instead of packets": {func(a *site, r *rogue) {
			for n := range 200 {
				r.send(frame.Packet, bytes.Repeat([]byte{byte(n)}, 11+n))
			}
		}, false},
		"a great message, byte by byte": {func(a *site, r *rogue) {
			b := frame.Append(nil, frame.Control, []byte(`{"x":"`+strings.Repeat("x", 4000)+`"}`))
			for i := range b {
				_, _ = r.Write(b[i : i+1])
			}
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, l *lan) {
				a := facing(l)
				r := l.intrude(a, true)
				r.say(honest)
				time.Sleep(100 * time.Millisecond)
				stored := a.stored()
				tc.do(a, r)
				if ended := r.ended(5 * time.Second); ended != tc.ends {
					t.Errorf("ended: %v", ended)
				}
				if s := mustStatus(t, a, "b"); s.State != Connected && !tc.ends || s.Counters.PacketsIn != 0 {
					t.Errorf("%+v", s)
				}
				if a.stored() != stored {
					t.Error("something is stored")
				}
				_ = r.Close()
				connected(t, a, l.sites["c"], 0)
			})
		})
	}
}

// Packets pass only between the addresses that were agreed on.
func TestSpoofing(t *testing.T) {
	inBubble(t, func(t *testing.T, l *lan) {
		a := facing(l)
		r := l.intrude(a, true)
		theirs, ours := netip.MustParseAddr("241.1.2.3"), netip.MustParseAddr("241.7.0.9")
		r.send(frame.Packet, frameOf(theirs, ours, "too early"))
		synctest.Wait()
		if c := mustStatus(t, a, "b").Counters; c.Dropped[dropNames[dropForeign]] != 1 {
			t.Errorf("%+v", c)
		}
		r.say(honest)
		a.expect("b", Connected, time.Second)
		r.mu.Lock()
		block := r.heard[len(r.heard)-1].Yours[0]
		r.mu.Unlock()
		theirs = block.Addr().Next()
		ofC := mustStatus(t, a, "c").Blocks
		out := a.device().out
		for name, tc := range map[string]struct {
			frame []byte
			want  bool
		}{
			"right":                  {frameOf(theirs, ours, "x"), true},
			"right and large":        {superpacket(theirs, ours, 64000), true},
			"another peer's source":  {frameOf(ofC.Theirs[0].Addr().Next(), ours, "x"), false},
			"for another peer":       {frameOf(theirs, ofC.Theirs[0].Addr().Next(), "x"), false},
			"beside our block":       {frameOf(theirs, netip.MustParseAddr("241.7.2.0"), "x"), false},
			"of a third cluster":     {frameOf(last(whole(block)), ours, "x"), true}, // the filter says what it reaches
			"above the upper half":   {frameOf(last(whole(block)).Next(), ours, "x"), false},
			"to a third cluster":     {frameOf(theirs, netip.MustParseAddr("241.7.1.0"), "x"), true},
			"our pods":               {frameOf(theirs, netip.MustParseAddr("10.42.0.7"), "x"), false},
			"our host":               {frameOf(theirs, k3s.Host[0], "x"), false},
			"from our host":          {frameOf(k3s.Host[0], ours, "x"), false},
			"loopback":               {frameOf(netip.MustParseAddr("127.0.0.1"), ours, "x"), false},
			"to loopback":            {frameOf(theirs, netip.MustParseAddr("127.0.0.1"), "x"), false},
			"broadcast":              {frameOf(theirs, netip.MustParseAddr("255.255.255.255"), "x"), false},
			"back":                   {frameOf(ours, theirs, "x"), false},
			"larger than the device": {frameOf(theirs, ours, strings.Repeat("x", MTU)), false},
		} {
			r.send(frame.Packet, tc.frame)
			synctest.Wait()
			got := false
			for len(out) > 0 {
				<-out
				got = true
			}
			if got != tc.want {
				t.Errorf("%s: %v", name, got)
			}
		}
		if c := mustStatus(t, a, "b").Counters; c.PacketsIn != 4 || c.Dropped[dropNames[dropForeign]]+c.Dropped[dropNames[dropInvalid]] != 13 {
			t.Errorf("%+v", c)
		}
		// A device that does not take it is no reason to end anything.
		a.breaks("write", errors.New("no buffer space"))
		r.send(frame.Packet, frameOf(theirs, ours, "x"))
		synctest.Wait()
		if c := mustStatus(t, a, "b").Counters; c.Dropped[dropNames[dropDevice]] != 1 || a.state("b") != Connected {
			t.Errorf("%+v", c)
		}
		_ = r.Close()
	})
}

// last returns the last address of an IPv4 prefix.
func last(p netip.Prefix) netip.Addr {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], uint32(number(p.Addr())+1<<(32-p.Bits())-1))
	return netip.AddrFrom4(b)
}

// A peer that opens streams again and again, each time with other addresses, has us write
// little, and keeps nobody else from being connected.
func TestPeerThatComesAgainAndAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, l *lan) {
		a := facing(l)
		stored, sets, told := a.stored(), a.count("set"), a.told("b")
		for i := range 1000 {
			r := l.intrude(a, true)
			r.say([]string{`{"pods":["10.42.0.0/24"],"yours":["241.7.0.0/24"]}`, `{"pods":["10.42.0.0/20"],"yours":["241.9.0.0/24"]}`}[i%2])
			time.Sleep(50 * time.Millisecond)
			if i%2 == 0 {
				_ = r.Close()
			}
		}
		if n := a.stored() - stored; n > writeBurst+6 {
			t.Errorf("%d writes in 50 seconds", n)
		}
		if n := a.count("set") - sets; n > 50 {
			t.Errorf("the tables are set %d times", n)
		}
		if n := a.told("b") - told; n > 4*(openBurst+25) {
			t.Errorf("told %d times", n)
		}
		if err := mustStatus(t, a, "b").Problem; err == nil {
			t.Error("it is not said")
		}
		connected(t, a, l.sites["c"], 0)
		// It comes to its senses.
		time.Sleep(2 * time.Minute)
		r := l.intrude(a, true)
		r.say(honest)
		a.expect("b", Connected, steadyFor+3*time.Second)
		l.breakAll()
	})
}

// A peer that connects again every two seconds is told of once, and counts again when it has stopped, also if it says each
// time that it leaves on purpose.
func TestFlapping(t *testing.T) {
	for _, farewell := range []string{"", `{"left":true}`} {
		testFlapping(t, farewell)
	}
}

func testFlapping(t *testing.T, farewell string) {
	inBubble(t, func(t *testing.T, l *lan) {
		a := facing(l)
		var log strings.Builder
		a.cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
		again := func(n int, every time.Duration) (r *rogue) {
			for range n {
				if r != nil && farewell != "" {
					r.say(farewell)
					synctest.Wait()
				}
				if r != nil {
					_ = r.Close()
				}
				r = l.intrude(a, true)
				r.say(honest)
				time.Sleep(every)
			}
			return r
		}
		told := a.told("b")
		again(300, 2*time.Second)
		synctest.Wait()
		if n := a.told("b") - told; n > 2*lossBurst+8 {
			t.Errorf("told %d times in ten minutes", n)
		}
		if n := strings.Count(log.String(), "peer=b"); n > 2*lossBurst+2 || strings.Count(log.String(), "again and again") != 1 {
			t.Errorf("%d lines in ten minutes:\n%s", n, log.String())
		}
		since := mustStatus(t, a, "b")
		if since.State != Connecting || !errors.Is(since.Problem, errFlaps) {
			t.Errorf("%+v", since)
		}
		// Packets pass all the while.
		r := again(1, time.Second)
		if a.path("b").route.Load() == nil {
			t.Error("nothing passes")
		}
		time.Sleep(steadyFor - 10*time.Second)
		if s := mustStatus(t, a, "b"); s.State != Connecting || !s.Since.Equal(since.Since) {
			t.Errorf("%+v, before %+v", s, since)
		}
		a.expect("b", Connected, 10*time.Second+2*probeEvery)
		// A connection that comes in the moment in which another one goes can be taken for the same.
		if n := strings.Count(log.String(), "lost=3") + strings.Count(log.String(), "lost=29"); n != 1 {
			t.Errorf("how often it was lost is said %d times:\n%s", n, log.String())
		}
		// From there on, one loss is a loss.
		time.Sleep(time.Hour)
		_ = r.Close()
		a.expect("b", Connecting, time.Second)
		if errors.Is(mustStatus(t, a, "b").Problem, errFlaps) {
			t.Error("one loss is too many")
		}
		again(1, time.Second)
		a.expect("b", Connected, 3*time.Second)
		l.breakAll()
	})
}

// Whatever peers say, the disk is written rarely.
func TestWritesOfTwoHours(t *testing.T) {
	inBubble(t, func(t *testing.T, l *lan) {
		a := facing(l)
		stored := a.stored()
		for i := range 2 * 60 * 4 {
			r := l.intrude(a, true)
			r.say([]string{honest, `{"pods":["10.42.0.0/20"],"yours":["241.9.0.0/24"]}`}[i%2])
			time.Sleep(15 * time.Second)
			_ = r.Close()
		}
		if n := a.stored() - stored; n > writeBurst+2+2*36 {
			t.Errorf("%d writes in two hours", n)
		}
		connected(t, a, l.sites["c"], 0)
	})
}

// Many peers that change all the time write no more than a few, and a new one has its addresses all the same.
func TestWritesOfAll(t *testing.T) {
	m := newMachine()
	writes := 0
	e := New(Config{Store: func(context.Context, peer.ClusterID, Blocks) error { writes++; return nil }})
	e.host, e.stored = m.host(), make(map[peer.ClusterID]Blocks)
	whole := func(i int) Blocks {
		return Blocks{Pods: k3s.Pods, Theirs: []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{241, 1, byte(i), 0}), 24)}, Ours: prefixes("241.0.0.0/24")}
	}
	refused := 0
	for i := range 50 * (writeBurst + 1) {
		switch err := e.store(t.Context(), peer.ClusterID(fmt.Sprint("peer", i%50)), whole(i)); {
		case errors.Is(err, errAllChangeOften):
			refused++
		case err != nil && !errors.Is(err, errChangesOften):
			t.Fatal(err)
		}
	}
	if writes > 50+totalBurst+10 || refused == 0 {
		t.Errorf("%d writes, %d were refused", writes, refused)
	}
	if err := e.store(t.Context(), "new", whole(7)); err != nil {
		t.Error(err)
	}
}

// A peer that is told of a stream that was replaced is not believed.
func TestReplacedStreamIsNotBelieved(t *testing.T) {
	inBubble(t, func(t *testing.T, l *lan) {
		a := facing(l)
		first := l.intrude(a, true)
		first.say(honest)
		a.expect("b", Connected, 3*time.Second)
		old := a.path("b").current.Load()
		second := l.intrude(a, true)
		synctest.Wait()
		if !first.ended(0) || a.path("b").current.Load() == old {
			t.Error("it is not replaced")
		}
		p := a.path("b")
		if err := p.told(t.Context(), old, message{Yours: prefixes("241.9.0.0/24")}); err == nil {
			t.Error("twice on one stream")
		}
		old.saidPods, old.saidYours = false, false
		for _, m := range []message{{Yours: prefixes("241.9.0.0/24")}, {Pods: prefixes("10.9.0.0/24")}} {
			if err := p.told(t.Context(), old, m); !errors.Is(err, errReplaced) {
				t.Error(err)
			}
		}
		second.say(honest)
		a.expect("b", Connected, 3*time.Second)
		_ = second.Close()
	})
}

// A peer that takes nothing, or next to nothing, or answers no probe, is given up.
func TestPeerThatTakesNothing(t *testing.T) {
	for name, read := range map[string]func(r *rogue){
		"nothing": func(r *rogue) { <-time.After(time.Hour) },
		"a byte a second": func(r *rogue) {
			b := make([]byte, 1)
			for {
				time.Sleep(time.Second)
				if _, err := r.Read(b); err != nil {
					return
				}
			}
		},
		"everything, without an answer": func(r *rogue) { _, _ = io.Copy(io.Discard, r) },
	} {
		inBubble(t, func(t *testing.T, l *lan) {
			a := facing(l)
			r := l.intrude(a, false)
			stop := make(chan struct{})
			l.all.Go(func() { read(r) })
			l.all.Go(func() { // it goes on speaking
				for {
					select {
					case <-stop:
						return
					case <-time.After(time.Second):
						r.send(frame.Probe, []byte("12345678"))
					}
				}
			})
			r.say(honest)
			time.Sleep(3 * time.Second)
			if s := mustStatus(t, a, "b"); s.State == Connected {
				t.Errorf("%s: %+v", name, s)
			}
			time.Sleep(deadAfter + 2*probeEvery)
			if s := mustStatus(t, a, "b"); a.path("b").current.Load() != nil || s.Problem == nil {
				t.Errorf("%s: %+v", name, s)
			}
			close(stop)
			_ = r.Close()
			connected(t, a, l.sites["c"], 0)
		})
	}
}

// A flood of probes whose answers nobody takes costs no memory, and ends like every silence.
func TestProbesWithoutEnd(t *testing.T) {
	inBubble(t, func(t *testing.T, l *lan) {
		a := facing(l)
		r := l.intrude(a, false)
		for range 20_000 {
			if _, err := r.Write(frame.Append(nil, frame.Probe, []byte("12345678"))); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		stream := a.path("b").current.Load()
		stream.queue.mu.Lock()
		kept := len(stream.queue.control)
		stream.queue.mu.Unlock()
		if kept > controlBytes {
			t.Errorf("%d bytes of answers are kept", kept)
		}
		time.Sleep(deadAfter + 2*probeEvery)
		if !stream.ended() || !errors.Is(stream.why, errUnanswered) {
			t.Errorf("ended: %v, %v", stream.ended(), stream.why)
		}
	})
}

// Being told that the peer may be somewhere else, again and again, keeps nothing from
// happening, and does not lead to attempts without end.
func TestMovedAgainAndAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, l *lan) {
		a := facing(l)
		for range 1000 {
			a.Moved("b")
			a.Moved("c")
			a.Moved("nobody")
			time.Sleep(10 * time.Millisecond)
		}
		if n := l.dialed("a", "b"); n > 40 {
			t.Errorf("%d attempts in 10 seconds", n)
		}
		connected(t, a, l.sites["c"], 0)
	})
}

// Connections that nobody takes are not kept for ever.
func TestAcceptEnds(t *testing.T) {
	inBubble(t, func(t *testing.T, l *lan) {
		a := l.add("a")
		a.SetNode(k3s)
		a.Set(Peer{ID: "b"})
		for _, id := range []peer.ClusterID{"b", "nobody"} {
			here, there := net.Pipe()
			if err := a.Accept(t.Context(), id, there); !errors.Is(err, ErrNotWanted) {
				t.Error(err)
			}
			if _, err := here.Read(make([]byte, 1)); err == nil {
				t.Error("it is open")
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, there := net.Pipe()
		if err := a.Accept(ctx, "b", there); err == nil {
			t.Error("ctx has ended")
		}
	})
}

// Whatever bytes come, the engine stands, and what it writes to the device and stores was agreed on.
func FuzzStream(f *testing.F) {
	say := func(texts ...string) (b []byte) {
		for _, text := range texts {
			b = frame.Append(b, frame.Control, []byte(text))
		}
		return b
	}
	theirs, ours := netip.MustParseAddr("241.1.0.1"), netip.MustParseAddr("241.7.0.1")
	f.Add(say(honest))
	f.Add(frame.Append(say(honest), frame.Packet, frameOf(theirs, ours, "x")))
	f.Add(frame.Append(say(`{"pods":["10.42.0.0/24","fd00::/64"]}`), frame.Probe, []byte("12345678")))
	f.Add(frame.Append(say(`{"yours":["241.7.0.0/24"]}`), frame.Echo, []byte("12345678")))
	f.Add([]byte{200, 0, 0, 1, 1, 9, 0, 0, 0})
	f.Fuzz(func(t *testing.T, input []byte) {
		var stored []Blocks
		e := New(Config{
			Self: func() peer.ClusterID { return "a" }, Range: func() netip.Prefix { return DefaultRange },
			Store: func(_ context.Context, _ peer.ClusterID, b Blocks) error {
				stored = append(stored, b)
				return nil
			},
			Logger: slog.New(slog.DiscardHandler),
		})
		m := newMachine()
		e.host = m.host()
		e.stored = make(map[peer.ClusterID]Blocks)
		e.node = k3s
		device, _ := e.host.device("", MTU)
		e.link.Store(&attached{Device: device})
		p := newPath(e, Peer{ID: "b"})
		e.paths["b"] = p
		here, there := net.Pipe()
		defer here.Close()
		s := newStream(p, &fed{Conn: there, from: bytes.NewReader(input)}, false)
		defer s.end(errStopped)
		p.current.Store(s)
		p.route.Store(&routed{theirs: prefixes("241.1.0.0/24"), ours: prefixes("241.7.0.0/24")})
		if err := s.read(context.Background()); err == nil {
			t.Error("it ends without a reason")
		}
		for _, b := range stored {
			if err := checkOurs(b.Ours, k3s.Pods); err != nil {
				t.Error(err)
			}
			if len(b.Pods) > 0 && b.check() != nil {
				t.Error(b.check())
			}
		}
		if len(stored) > 2 {
			t.Errorf("%d writes", len(stored))
		}
		if n := len(s.queue.control); n > controlBytes {
			t.Errorf("%d bytes wait", n)
		}
		for len(m.open.out) > 0 {
			b := <-m.open.out
			if src, dst := netip.AddrFrom4([4]byte(b[22:26])), netip.AddrFrom4([4]byte(b[26:30])); !prefix("241.1.0.0/24").Contains(src) || !prefix("241.7.0.0/24").Contains(dst) {
				t.Errorf("from %s to %s", src, dst)
			}
		}
	})
}

// fed is a connection that brings bytes.
type fed struct {
	net.Conn
	from io.Reader
}

func (f *fed) Read(b []byte) (int, error) { return f.from.Read(b) }
