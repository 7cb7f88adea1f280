package tunnel

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"liqo.io/agent/endpoint/client"
	"liqo.io/agent/internal/endpointtest"
	"liqo.io/agent/peer"
	"liqo.io/agent/trust"
)

// road is the way of a link's packets to a server, which can be blocked or moved.
type road struct {
	t    *testing.T
	to   netip.AddrPort
	mu   sync.Mutex
	deaf bool // takes everything and passes nothing on
	open map[net.Conn]bool
	seen int
}

// newRoad listens on ip and passes on what comes.
func newRoad(t *testing.T, ip string, to netip.AddrPort) (*road, netip.AddrPort) {
	r := &road{t: t, to: to, open: map[net.Conn]bool{}}
	addr := endpointtest.ListenRaw(t, ip, func(c net.Conn) {
		up, err := net.Dial("tcp", to.String())
		if err != nil {
			return
		}
		defer up.Close()
		r.mu.Lock()
		r.open[c], r.open[up] = true, true
		r.seen++
		r.mu.Unlock()
		done := make(chan struct{})
		go func() {
			defer close(done)
			r.copy(up, c)
		}()
		r.copy(c, up)
		<-done
	})
	t.Cleanup(r.cut)
	return r, addr
}

func (r *road) copy(to, from net.Conn) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		r.mu.Lock()
		deaf := r.deaf
		r.mu.Unlock()
		if err != nil {
			to.Close()
			return
		}
		if deaf {
			continue
		}
		if _, err := to.Write(buf[:n]); err != nil {
			from.Close()
			return
		}
	}
}

// cut breaks every connection on the road.
func (r *road) cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for c := range r.open {
		c.Close()
	}
	r.open = map[net.Conn]bool{}
}

func (r *road) setDeaf(deaf bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.deaf = deaf
}

func (r *road) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.seen
}

// movable returns a link of b whose target is what the returned function sets.
func newMovableLink(t *testing.T, b *endpointtest.Box, fp peer.Fingerprint, first netip.AddrPort) (*Link, func(...netip.AddrPort)) {
	t.Helper()
	var now atomic.Pointer[peer.Target]
	set := func(Addrs ...netip.AddrPort) {
		now.Store(&peer.Target{ID: endpointtest.IDA, Fingerprint: fp, Addrs: Addrs})
	}
	set(first)
	c := client.New(client.Config{Issuer: b.Issuer, Timeout: endpointtest.Hang})
	l := New(c, Config{Target: func() (peer.Target, bool) { return *now.Load(), true }})
	t.Cleanup(func() {
		l.Close()
		c.Close()
	})
	return l, set
}

// Requests share a tunnel, which is found again wherever the peer goes. What runs
// on the old way is left alone.
func TestLinkMoves(t *testing.T) {
	home, other := endpointtest.New(t, endpointtest.IDA), endpointtest.New(t, endpointtest.IDB)
	a := newAPIServer(t)
	s := a.hosting(t, home)
	first, here := newRoad(t, "127.0.0.1", at(s))
	second, there := newRoad(t, "127.0.0.2", at(s))
	l, set := newMovableLink(t, other, home.Key.Fingerprint(), here)
	for range 10 {
		endpointtest.MustGet(t, l)
	}
	event := a.watchable()
	watching := endpointtest.Watch(t, l, endpointtest.PodsOfB+"?watch=true")
	a.answering(object)
	if first.count() != 1 {
		t.Fatalf("%d connections", first.count())
	}
	// That it may have moved is no reason to leave.
	l.Moved()
	endpointtest.MustGet(t, l)
	set(here, there) // a further address is none either
	l.Moved()
	endpointtest.MustGet(t, l)
	if first.count()+second.count() != 1 {
		t.Errorf("%d and %d connections", first.count(), second.count())
	}
	set(there)
	endpointtest.MustGet(t, l) // nobody said so yet
	l.Moved()
	for range 3 {
		endpointtest.MustGet(t, l)
	}
	if first.count() != 1 || second.count() != 1 {
		t.Errorf("%d and %d connections", first.count(), second.count())
	}
	event <- "still there"
	buf := make([]byte, 12)
	if _, err := io.ReadFull(watching.Body, buf); err != nil || string(buf) != "still there\n" {
		t.Errorf("%q, %v", buf, err)
	}
	close(event)
	if rest, err := io.ReadAll(watching.Body); err != nil || len(rest) > 0 {
		t.Errorf("%q, %v", rest, err)
	}
	endpointtest.Eventually(t, "close the old tunnel", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return len(l.retiring) == 0
	})
	endpointtest.Eventually(t, "notice at the server", func() bool { return s.Stats().Open == 1 })

	// A connection that breaks is made anew, and nobody sees it.
	second.cut()
	endpointtest.MustGet(t, l)
	// When nobody is there any more, the error says who.
	set(netip.MustParseAddrPort("127.0.0.3:1"))
	l.Moved()
	second.cut()
	r, _ := http.NewRequestWithContext(t.Context(), "GET", "https://x"+endpointtest.PodsOfB, nil)
	if resp, err := l.RoundTrip(r); err == nil || !strings.Contains(err.Error(), string(endpointtest.IDA)) || !strings.Contains(err.Error(), "127.0.0.3:1") {
		t.Errorf("%v, %v", resp, err)
	}
}

// A change of what we show makes a new tunnel, and so does a key of the peer's that
// is no successor.
func TestLinkFollowsKeys(t *testing.T) {
	home, other, next := endpointtest.New(t, endpointtest.IDA), endpointtest.New(t, endpointtest.IDB), endpointtest.New(t, endpointtest.IDB)
	a := newAPIServer(t)
	s := a.hosting(t, home)
	var renewed atomic.Bool
	other.Issuer = trust.NewIssuer(other.Key, func() peer.ClusterID {
		if renewed.Load() {
			return "renamed"
		}
		return endpointtest.IDB
	})
	l := newLink(t, other, s, home)
	endpointtest.MustGet(t, l)
	renewed.Store(true)
	endpointtest.Through(t, l, "GET", endpointtest.PodsOfB+"/web", "", "")
	if s.Stats().Accepted != 2 {
		t.Errorf("%+v", s.Stats())
	}
	target := peer.Target{ID: endpointtest.IDA, Fingerprint: next.Key.Fingerprint(), Addrs: endpointtest.Addrs(at(s))}
	l.cfg.Target = func() (peer.Target, bool) { return target, true }
	l.Moved()
	r, _ := http.NewRequestWithContext(t.Context(), "GET", "https://x"+endpointtest.PodsOfB, nil)
	_, err := l.RoundTrip(r)
	var failure *client.Error
	if !errors.As(err, &failure) || failure.Reason != client.ReasonWrongKey {
		t.Errorf("%v", err)
	}
	endpointtest.Eventually(t, "leave the holder of another key", func() bool { return s.Stats().Open == 0 })
}

// When nothing is to go to the peer any more, what is under way ends at once, and
// nothing begins until there is a target again.
func TestLinkIsCut(t *testing.T) {
	home, other := endpointtest.New(t, endpointtest.IDA), endpointtest.New(t, endpointtest.IDB)
	a := newAPIServer(t)
	a.watchable()
	s := a.hosting(t, home)
	l := newLink(t, other, s, home)
	resp := endpointtest.Watch(t, l, endpointtest.PodsOfB+"?watch=true")
	target := l.cfg.Target
	l.cfg.Target = func() (peer.Target, bool) { return peer.Target{}, false }
	l.Moved()
	if _, err := io.ReadAll(resp.Body); err == nil {
		t.Error("the watch ends in good order")
	}
	endpointtest.Eventually(t, "leave the peer", func() bool { return s.Stats().Open == 0 })
	if _, err := l.Namespace(t.Context(), "shop"); err == nil {
		t.Error("something went to the peer")
	}
	l.cfg.Target = target
	l.Moved()
	if _, err := l.Namespace(t.Context(), "shop"); err != nil {
		t.Errorf("with a target again: %v", err)
	}
}

// A tunnel on which nothing arrives any more is noticed and replaced. Only what is
// safe is sent twice.
func TestLinkNoticesDeadTunnel(t *testing.T) {
	home, other := endpointtest.New(t, endpointtest.IDA), endpointtest.New(t, endpointtest.IDB)
	a := newAPIServer(t)
	s := a.hosting(t, home)
	way, here := newRoad(t, "127.0.0.1", at(s))
	l, _ := newMovableLink(t, other, home.Key.Fingerprint(), here)
	l.http2.ReadIdleTimeout, l.http2.PingTimeout = 50*time.Millisecond, time.Second
	endpointtest.MustGet(t, l)
	event := a.watchable()
	defer close(event)
	resp := endpointtest.Watch(t, l, endpointtest.PodsOfB+"?watch=true")
	a.answering(object)
	way.setDeaf(true)
	begun := time.Now()
	if _, err := io.ReadAll(resp.Body); err == nil {
		t.Error("the watch ends in good order")
	}
	if d := time.Since(begun); d > linkSilence {
		t.Errorf("it took %v", d)
	}
	way.setDeaf(false)
	endpointtest.MustGet(t, l)

	// The tunnel breaks while requests are under way. That is not to be noticed by the silence of a busy machine.
	l, _ = newMovableLink(t, other, home.Key.Fingerprint(), here)
	for _, tc := range []struct {
		method, body string
		again        bool
	}{{"GET", "", true}, {"POST", "{}", false}} {
		entered := make(chan struct{}, 4)
		a.answering(func(w http.ResponseWriter, r *http.Request) {
			entered <- struct{}{}
			<-r.Context().Done()
		})
		result := make(chan error, 1)
		go func() {
			target := endpointtest.PodsOfB
			if tc.method == "GET" {
				target += "/web"
			}
			r, err := http.NewRequestWithContext(t.Context(), tc.method, "https://x"+target, strings.NewReader(tc.body))
			if err == nil {
				if tc.body == "" {
					r.Body, r.ContentLength = nil, 0
				}
				r.Header.Set("Content-Type", "application/json")
				var resp *http.Response
				if resp, err = l.RoundTrip(r); err == nil {
					resp.Body.Close()
				}
			}
			result <- err
		}()
		<-entered
		a.answering(object)
		way.cut()
		if err := <-result; (err == nil) != tc.again {
			t.Errorf("%s: %v", tc.method, err)
		}
	}
}

func TestLinkCloses(t *testing.T) {
	home, other := endpointtest.New(t, endpointtest.IDA), endpointtest.New(t, endpointtest.IDB)
	a := newAPIServer(t)
	a.watchable()
	s := a.hosting(t, home)
	l := newLink(t, other, s, home)
	resp := endpointtest.Watch(t, l, endpointtest.PodsOfB+"?watch=true")
	l.Close()
	if _, err := io.ReadAll(resp.Body); err == nil {
		t.Error("the watch ends in good order")
	}
	if _, err := l.Namespace(t.Context(), "shop"); !errors.Is(err, errClosed) {
		t.Errorf("%v", err)
	}
	l.Close()

	// One that nobody answers ends at once, and so does whoever waits for it.
	silentAddr := endpointtest.ListenRaw(t, "127.0.0.1", endpointtest.Silent)
	l, _ = newMovableLink(t, other, home.Key.Fingerprint(), silentAddr)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := l.Namespace(ctx, "shop"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
	begun := time.Now()
	l.Close()
	if time.Since(begun) > 10*time.Second {
		t.Error("Close waits for a peer that does not answer")
	}
	// Nothing is known.
	l = New(client.New(client.Config{Issuer: other.Issuer}), Config{Target: func() (peer.Target, bool) { return peer.Target{}, false }})
	defer l.Close()
	if _, err := l.Namespace(t.Context(), "shop"); err == nil || !strings.Contains(err.Error(), "not known") {
		t.Errorf("%v", err)
	}
}
