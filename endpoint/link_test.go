package endpoint

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"liqo.io/agent/peer"
	"liqo.io/agent/throttle"
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
	addr := listenRaw(t, ip, func(c net.Conn) {
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
func (b *box) movable(t *testing.T, fp peer.Fingerprint, first netip.AddrPort) (*Link, func(...netip.AddrPort)) {
	t.Helper()
	var now atomic.Pointer[Target]
	set := func(addrs ...netip.AddrPort) { now.Store(&Target{ID: idA, Fingerprint: fp, Addrs: addrs}) }
	set(first)
	c := NewClient(ClientConfig{Issuer: b.issuer})
	l := c.NewLink(LinkConfig{Target: func() (Target, bool) { return *now.Load(), true }})
	t.Cleanup(func() {
		l.Close()
		c.Close()
	})
	return l, set
}

// mustGet gets a pod through l.
func mustGet(t *testing.T, l *Link) {
	t.Helper()
	if status, body, _ := through(t, l, "GET", podsOfB+"/web", "", ""); status != http.StatusOK {
		t.Fatalf("%d %s", status, body)
	}
}

// Requests share a tunnel, which is found again wherever the peer goes. What runs
// on the old way is left alone.
func TestLinkMoves(t *testing.T) {
	home, other := newBox(t, idA), newBox(t, idB)
	a := newAPIServer(t)
	s, _ := a.hosting(t, home, pin(other), nil)
	first, here := newRoad(t, "127.0.0.1", at(s, "127.0.0.1"))
	second, there := newRoad(t, "127.0.0.2", at(s, "127.0.0.1"))
	l, set := other.movable(t, home.key.Fingerprint(), here)
	for range 10 {
		mustGet(t, l)
	}
	event := a.watchable(t)
	watching := watch(t, l, podsOfB+"?watch=true")
	a.answering(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, "{}")
	})
	if first.count() != 1 {
		t.Fatalf("%d connections", first.count())
	}
	// That it may have moved is no reason to leave.
	l.Moved()
	mustGet(t, l)
	set(here, there) // a further address is none either
	l.Moved()
	mustGet(t, l)
	if first.count()+second.count() != 1 {
		t.Errorf("%d and %d connections", first.count(), second.count())
	}
	set(there)
	mustGet(t, l) // nobody said so yet
	l.Moved()
	for range 3 {
		mustGet(t, l)
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
	eventually(t, "close the old tunnel", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return len(l.old) == 0
	})
	eventually(t, "notice at the server", func() bool { return s.Stats().Open == 1 })

	// A connection that breaks is made anew, and nobody sees it.
	second.cut()
	mustGet(t, l)
	// When nobody is there any more, the error says who.
	set(netip.MustParseAddrPort("127.0.0.3:1"))
	l.Moved()
	second.cut()
	r, _ := http.NewRequestWithContext(t.Context(), "GET", "https://x"+podsOfB, nil)
	if resp, err := l.RoundTrip(r); err == nil || !strings.Contains(err.Error(), string(idA)) || !strings.Contains(err.Error(), "127.0.0.3:1") {
		t.Errorf("%v, %v", resp, err)
	}
}

// A change of what we show makes a new tunnel, and so does a key of the peer's that
// is no successor.
func TestLinkFollowsKeys(t *testing.T) {
	home, other, next := newBox(t, idA), newBox(t, idB), newBox(t, idB)
	a := newAPIServer(t)
	ledger := pin(other)
	s, _ := a.hosting(t, home, ledger, nil)
	id := atomic.Pointer[trust.Issuer]{}
	id.Store(other.issuer)
	l := other.link(t, s, home)
	mustGet(t, l)
	before := l.client.own.epoch
	l.client.own.mu.Lock()
	l.client.own.shown, l.client.own.sum = nil, [32]byte{} // as if it had changed
	l.client.own.mu.Unlock()
	mustGet(t, l)
	if l.client.own.epoch == before || s.Stats().Accepted != 2 {
		t.Errorf("epoch %d, %+v", l.client.own.epoch, s.Stats())
	}
	target := Target{ID: idA, Fingerprint: next.key.Fingerprint(), Addrs: addrs(at(s, "127.0.0.1"))}
	l.cfg.Target = func() (Target, bool) { return target, true }
	l.Moved()
	r, _ := http.NewRequestWithContext(t.Context(), "GET", "https://x"+podsOfB, nil)
	_, err := l.RoundTrip(r)
	var failure *Error
	if !errors.As(err, &failure) || failure.Reason != ReasonWrongKey {
		t.Errorf("%v", err)
	}
	eventually(t, "leave the holder of another key", func() bool { return s.Stats().Open == 0 })
}

// When nothing is to go to the peer any more, what is under way ends at once, and
// nothing begins until there is a target again.
func TestLinkIsCut(t *testing.T) {
	home, other := newBox(t, idA), newBox(t, idB)
	a := newAPIServer(t)
	a.watchable(t)
	s, _ := a.hosting(t, home, pin(other), nil)
	l := other.link(t, s, home)
	resp := watch(t, l, podsOfB+"?watch=true")
	target := l.cfg.Target
	l.cfg.Target = func() (Target, bool) { return Target{}, false }
	l.Moved()
	if _, err := io.ReadAll(resp.Body); err == nil {
		t.Error("the watch ends in good order")
	}
	eventually(t, "leave the peer", func() bool { return s.Stats().Open == 0 })
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
	home, other := newBox(t, idA), newBox(t, idB)
	a := newAPIServer(t)
	s, _ := a.hosting(t, home, pin(other), nil)
	way, here := newRoad(t, "127.0.0.1", at(s, "127.0.0.1"))
	l, _ := other.movable(t, home.key.Fingerprint(), here)
	l.http2.ReadIdleTimeout, l.http2.PingTimeout = 50*time.Millisecond, 200*time.Millisecond
	mustGet(t, l)
	event := a.watchable(t)
	defer close(event)
	resp := watch(t, l, podsOfB+"?watch=true")
	a.answering(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, "{}")
	})
	way.setDeaf(true)
	begun := time.Now()
	if _, err := io.ReadAll(resp.Body); err == nil {
		t.Error("the watch ends in good order")
	}
	if d := time.Since(begun); d > 5*time.Second {
		t.Errorf("it took %v", d)
	}
	way.setDeaf(false)
	mustGet(t, l)
	a.taken()

	// The tunnel breaks while requests are under way.
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
			target := podsOfB
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
		a.answering(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, "{}")
		})
		way.cut()
		if err := <-result; (err == nil) != tc.again {
			t.Errorf("%s: %v", tc.method, err)
		}
	}
}

// A burst of pods gets through on one tunnel, and one peer cannot take the places
// of others.
func TestLinkBurst(t *testing.T) {
	home, other, third := newBox(t, idA), newBox(t, idB), newBox(t, idC)
	a := newAPIServer(t)
	var now, most atomic.Int64
	a.answering(func(w http.ResponseWriter, r *http.Request) {
		for n := now.Add(1); n > most.Load(); {
			most.Store(n)
		}
		defer now.Add(-1)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, "{}")
	})
	s, guests := a.hosting(t, home, pin(other, third), func(s *Server) {
		s.limits = newLimits()
		s.times.turn = time.Minute // a busy machine takes its time
	})
	l, l3 := other.link(t, s, home), third.link(t, s, home)
	var all sync.WaitGroup
	var bad atomic.Int64
	for i := range 500 {
		all.Go(func() {
			r, err := http.NewRequestWithContext(t.Context(), "POST", "https://x"+podsOfB, strings.NewReader(fmt.Sprintf(`{"n":%d}`, i)))
			if err != nil {
				t.Error(err)
				return
			}
			r.Header.Set("Content-Type", "application/json")
			resp, err := l.RoundTrip(r)
			if err != nil || resp.StatusCode != http.StatusCreated {
				bad.Add(1)
				t.Errorf("%v, %v", resp, err)
				return
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		})
	}
	if name, err := l3.Namespace(t.Context(), "x"); err != nil || name != "c-x" {
		t.Errorf("%v, %v", name, err)
	}
	all.Wait()
	if n := len(guests.taken()); n != 501 {
		t.Errorf("told %d times", n)
	}
	if most.Load() > guestsPerPeer+1 || s.Stats().Accepted != 2 {
		t.Errorf("%d at a time, %+v", most.Load(), s.Stats())
	}
	// Beyond the burst it is told to slow down.
	s.limits.guestRate = throttle.New[peer.ClusterID](1, 1, 10)
	s.times.turn = 100 * time.Millisecond
	status, refusals := 0, 0
	for range 3 {
		if status, _, _ = through(t, l, "GET", podsOfB+"/web", "", ""); status == http.StatusTooManyRequests {
			refusals++
		}
	}
	if refusals != 2 {
		t.Errorf("%d refusals", refusals)
	}
}

// Who watches more than a peer may waits, and is told so.
func TestLinkStreamsAreBounded(t *testing.T) {
	home, other := newBox(t, idA), newBox(t, idB)
	a := newAPIServer(t)
	a.watchable(t)
	s, _ := a.hosting(t, home, pin(other), func(s *Server) { s.times.turn = 50 * time.Millisecond })
	l := other.link(t, s, home)
	for range streamsPerPeer {
		watch(t, l, podsOfB+"?watch=true")
	}
	if status, body, _ := through(t, l, "GET", podsOfB+"?watch=true", "", ""); status != http.StatusTooManyRequests {
		t.Errorf("%d %s", status, body)
	}
	a.answering(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, "{}")
	})
	mustGet(t, l) // other requests have places of their own
}

func TestLinkCloses(t *testing.T) {
	home, other := newBox(t, idA), newBox(t, idB)
	a := newAPIServer(t)
	a.watchable(t)
	s, _ := a.hosting(t, home, pin(other), nil)
	l := other.link(t, s, home)
	resp := watch(t, l, podsOfB+"?watch=true")
	l.Close()
	if _, err := io.ReadAll(resp.Body); err == nil {
		t.Error("the watch ends in good order")
	}
	if _, err := l.Namespace(t.Context(), "shop"); !errors.Is(err, errClosed) {
		t.Errorf("%v", err)
	}
	l.Close()

	// One that nobody answers ends at once, and so does whoever waits for it.
	silentAddr := listenRaw(t, "127.0.0.1", silent)
	l, _ = other.movable(t, home.key.Fingerprint(), silentAddr)
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
	l = NewClient(ClientConfig{Issuer: other.issuer}).NewLink(LinkConfig{Target: func() (Target, bool) { return Target{}, false }})
	defer l.Close()
	if _, err := l.Namespace(t.Context(), "shop"); err == nil || !strings.Contains(err.Error(), "not known") {
		t.Errorf("%v", err)
	}
}
