package endpoint

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/time/rate"

	"liqo.io/agent/peer"
	"liqo.io/agent/throttle"
)

// serveReach runs a server for b that calls back with a client of its own, and
// returns the addresses that it tried.
func (b *box) serveReach(t testing.TB, l *ledger) (*Server, chan netip.AddrPort) {
	t.Helper()
	tried := make(chan netip.AddrPort, 64)
	client := NewClient(ClientConfig{Issuer: b.issuer})
	s := b.servePeers(t, l, nil, func(s *Server) {
		s.cfg.Reach = func(ctx context.Context, c Caller, at netip.AddrPort) Reached {
			tried <- at
			return client.CallBack(ctx, c.Shown.Fingerprint, at)
		}
	})
	return s, tried
}

func TestReach(t *testing.T) {
	home, other, third := newBox(t, idA), newBox(t, idB), newBox(t, idC)
	s, tried := home.serveReach(t, pin(other))
	s.limits.reachRate = throttle.New[peer.ClusterID](rate.Inf, 1, maxPeers)
	back, elsewhere := other.serve(t, "127.0.0.1:0", nil), third.serve(t, "127.0.0.1:0", nil)
	plain := listenRaw(t, "127.0.0.1", func(c net.Conn) { _, _ = c.Write([]byte("SSH-2.0-x\r\n")); silent(c) })
	mute := listenRaw(t, "127.0.0.1", silent)
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	shut := uint16(free.Addr().(*net.TCPAddr).Port)
	if err := free.Close(); err != nil {
		t.Fatal(err)
	}
	client := NewClient(ClientConfig{Issuer: other.issuer})
	defer client.Close()
	target := Target{Fingerprint: home.key.Fingerprint(), Addrs: []netip.AddrPort{at(s, "127.0.0.1")}}
	for _, tc := range []struct {
		name string
		port uint16
		want ReachOutcome
	}{
		{"ours", back.Port(), ReachReached},
		{"somebody else's", elsewhere.Port(), ReachOtherKey},
		{"the asked one's own", s.Port(), ReachOtherKey},
		{"no TLS", plain.Port(), ReachNotTLS},
		{"nothing", shut, ReachRefused},
		{"no answer", mute.Port(), ReachTimedOut},
	} {
		got, err := client.Reach(t.Context(), target, Greeting{Identity: other.identity, Port: tc.port, URL: "https://192.0.2.1:1"})
		want := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), tc.port)
		if err != nil || got.Outcome != tc.want || got.Address != want.String() || got.Detail == "" || time.Since(got.Time).Abs() > time.Minute {
			t.Errorf("%s: %+v, %v; want %s", tc.name, got, err, tc.want)
		}
		// Whatever the greeting says, it is the caller's own address that is tried.
		if at := <-tried; at != want {
			t.Errorf("%s: tried %s", tc.name, at)
		}
	}
	if back.Stats().Requests != 0 {
		t.Error("a call back sends a request")
	}
}

func TestReachIsForFewCallers(t *testing.T) {
	home, other, third := newBox(t, idA), newBox(t, idB), newBox(t, idC)
	l := pin(other)
	s, tried := home.serveReach(t, l)
	v := visit(t, s, other)
	for _, tc := range []struct {
		name, request, says string
		status              int
	}{
		{"not a POST", get(PathReach), "use POST", 405},
		{"another spelling", post("/peering//reach", greeting(idB, `,"port":1`)), "nothing at this path", 404},
		{"no port", post(PathReach, greeting(idB, "")), "must say the port", 400},
		{"port 0", post(PathReach, greeting(idB, `,"port":0`)), "must say the port", 400},
		{"port too high", post(PathReach, greeting(idB, `,"port":65536`)), "cannot unmarshal", 400},
		{"other ID", post(PathReach, greeting(idC, `,"port":1`)), "certificate", 403},
		{"two ports", post(PathReach, greeting(idB, `,"port":1,"Port":2`)), "name twice", 400},
		{"nothing", post(PathReach, ""), "not one JSON value", 400},
		{"an array", post(PathReach, "[]"), "cannot unmarshal", 400},
		{"large", post(PathReach, strings.Repeat(" ", maxCallBody+1)), "at most", 413},
		{"no type", "POST " + PathReach + " HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}", "application/json", 415},
	} {
		got := visit(t, s, other).send(tc.request)
		if got.status != tc.status || !strings.Contains(got.body, tc.says) {
			t.Errorf("%s: %d %s", tc.name, got.status, got.body)
		}
	}
	for who, b := range map[string]*box{"a stranger": third, "nobody": nil} {
		if got := visit(t, s, b).send(post(PathReach, greeting(idC, `,"port":1`))); got.status != 403 && got.status != 401 {
			t.Errorf("%s: %d %s", who, got.status, got.body)
		}
	}
	l.block(idB, true)
	if got := visit(t, s, other).send(post(PathReach, greeting(idB, `,"port":1`))); got.status != 403 {
		t.Errorf("a blocked peer: %d %s", got.status, got.body)
	}
	l.block(idB, false)
	if len(tried) != 0 {
		t.Errorf("%s was tried", <-tried)
	}

	// One that asks again and again has to wait, whatever port it asks for.
	refused := 0
	for i := range 2 * reachBurst {
		got := v.send(post(PathReach, greeting(idB, `,"port":`+string(rune('1'+i%9)))))
		if got.status == http.StatusTooManyRequests {
			refused++
			if got.header.Get("Retry-After") == "" {
				t.Error("it is not said how long to wait")
			}
			v = visit(t, s, other)
		}
	}
	if len(tried) > reachBurst || refused < reachBurst {
		t.Errorf("%d attempts, %d refused; at most %d at once", len(tried), refused, reachBurst)
	}
}

// A server that offers no such call, as one of an older version, says so.
func TestReachOfOlder(t *testing.T) {
	home, other := newBox(t, idA), newBox(t, idB)
	s := home.servePeers(t, pin(other), nil, nil)
	client := NewClient(ClientConfig{Issuer: other.issuer})
	defer client.Close()
	target := Target{Fingerprint: home.key.Fingerprint(), Addrs: []netip.AddrPort{at(s, "127.0.0.1")}}
	if _, err := client.Reach(t.Context(), target, Greeting{Identity: other.identity, Port: 1}); !errors.Is(err, ErrNoReach) {
		t.Errorf("error %v, want ErrNoReach", err)
	}
	strict, tried := home.serveReach(t, pin())
	target.Addrs = []netip.AddrPort{at(strict, "127.0.0.1")}
	if _, err := client.Reach(t.Context(), target, Greeting{Identity: other.identity, Port: 1}); err == nil || errors.Is(err, ErrNoReach) ||
		!strings.Contains(err.Error(), "does not trust your key") || len(tried) != 0 {
		t.Errorf("error %v, want that the key is not trusted", err)
	}
}

func TestReached(t *testing.T) {
	good := Reached{Outcome: ReachTimedOut, Address: "10.0.0.1:6447", Detail: "x", Time: time.Unix(1, 0).UTC()}
	body, err := json.Marshal(good)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := (Response{Body: body}).Reached(); err != nil || got != good {
		t.Errorf("%+v, %v", got, err)
	}
	for name, body := range map[string]string{
		"nothing": "", "null": "null", "array": "[]", "unknown outcome": `{"outcome":"fine","address":"10.0.0.1:1"}`,
		"a name": `{"outcome":"reached","address":"localhost:1"}`, "no port": `{"outcome":"reached","address":"10.0.0.1"}`,
		"bad time": `{"outcome":"reached","address":"10.0.0.1:1","time":"now"}`,
		"endless":  `{"outcome":"reached","address":"10.0.0.1:1","detail":"` + strings.Repeat("x", maxReached) + `"}`,
	} {
		if got, err := (Response{Body: []byte(body)}).Reached(); err == nil {
			t.Errorf("%s: %+v", name, got)
		}
	}
	got, err := (Response{Body: []byte(`{"outcome":"refused","address":"[fe80::1%\u001b[2J]:1","detail":"a\u001b[2J` + "\\n" + `b"}`)}).Reached()
	if err != nil || got.Address != "[fe80::1]:1" || strings.ContainsAny(got.Detail, "\x1b\n") {
		t.Errorf("%+v, %v", got, err)
	}
}

func FuzzReached(f *testing.F) {
	f.Add([]byte(`{"outcome":"reached","address":"10.0.0.1:6447","detail":"x","time":"2026-11-22T07:00:00Z"}`))
	f.Add([]byte(`{"outcome":"other-key","address":"[fe80::1%eth0]:1"}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		got, err := Response{Body: body}.Reached()
		if err != nil {
			return
		}
		if _, err := netip.ParseAddrPort(got.Address); err != nil || len(got.Detail) > 5*maxSaid || strings.ContainsAny(got.Address+got.Detail, "\x1b\n\x00") {
			t.Errorf("%+v", got)
		}
	})
}
