package endpoint

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/time/rate"

	"liqo.io/agent/endpoint/client"
	"liqo.io/agent/endpoint/wire"
	"liqo.io/agent/internal/endpointtest"
	"liqo.io/agent/peer"
	"liqo.io/agent/throttle"
)

// serveReach runs a server for b that calls back with a client of its own, and
// returns the addresses that it tried.
func serveReach(t testing.TB, b *endpointtest.Box, l *decisions) (*Server, chan netip.AddrPort) {
	t.Helper()
	tried := make(chan netip.AddrPort, 64)
	ours := client.New(client.Config{Issuer: b.Issuer})
	s := servePeers(t, b, l, nil, func(s *Server) {
		s.cfg.Reach = func(ctx context.Context, c Caller, at netip.AddrPort) wire.Reached {
			tried <- at
			return ours.CallBack(ctx, c.Shown.Fingerprint, at)
		}
	})
	return s, tried
}

func TestReach(t *testing.T) {
	home, other, third := endpointtest.New(t, endpointtest.IDA), endpointtest.New(t, endpointtest.IDB), endpointtest.New(t, endpointtest.IDC)
	s, tried := serveReach(t, home, pin(other))
	s.limits.reachRate = throttle.New[peer.ClusterID](rate.Inf, 1, maxPeers)
	back, elsewhere := serve(t, other, "127.0.0.1:0", nil), serve(t, third, "127.0.0.1:0", nil)
	plain := endpointtest.ListenRaw(t, "127.0.0.1", func(c net.Conn) { _, _ = c.Write([]byte("SSH-2.0-x\r\n")); endpointtest.Silent(c) })
	mute := endpointtest.ListenRaw(t, "127.0.0.1", endpointtest.Silent)
	ours := client.New(client.Config{Issuer: other.Issuer, Timeout: endpointtest.Hang})
	defer ours.Close()
	target := peer.Target{Fingerprint: home.Key.Fingerprint(), Addrs: []netip.AddrPort{at(s, "127.0.0.1")}}
	for _, tc := range []struct {
		name string
		port uint16
		want wire.ReachOutcome
	}{
		{"ours", back.Port(), wire.ReachReached},
		{"somebody else's", elsewhere.Port(), wire.ReachOtherKey},
		{"the asked one's own", s.Port(), wire.ReachOtherKey},
		{"no TLS", plain.Port(), wire.ReachNotTLS},
		{"nothing", endpointtest.DeadPort(t).Port(), wire.ReachRefused},
		{"no answer", mute.Port(), wire.ReachTimedOut},
	} {
		ask := func() (wire.Reached, error) {
			return ours.Reach(t.Context(), target, wire.Greeting{Identity: other.Identity, Port: tc.port, URL: "https://192.0.2.1:1"})
		}
		got, err := ask()
		// On a busy machine, a handshake may take longer than a call back may.
		for end := time.Now().Add(endpointtest.Hang); err == nil && got.Outcome == wire.ReachTimedOut && tc.want != wire.ReachTimedOut && time.Now().Before(end); {
			<-tried
			got, err = ask()
		}
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
	home, other, third := endpointtest.New(t, endpointtest.IDA), endpointtest.New(t, endpointtest.IDB), endpointtest.New(t, endpointtest.IDC)
	l := pin(other)
	s, tried := serveReach(t, home, l)
	now := time.Now()
	s.limits.now = func() time.Time { return now } // no time passes, however busy the machine is: nothing more is allowed
	v := visit(t, s, other)
	for _, tc := range []struct {
		name, request, says string
		status              int
	}{
		{"not a POST", get(wire.PathReach), "use POST", 405},
		{"another spelling", post("/peering//reach", greeting(endpointtest.IDB, `,"port":1`)), "nothing at this path", 404},
		{"no port", post(wire.PathReach, greeting(endpointtest.IDB, "")), "must say the port", 400},
		{"port 0", post(wire.PathReach, greeting(endpointtest.IDB, `,"port":0`)), "must say the port", 400},
		{"port too high", post(wire.PathReach, greeting(endpointtest.IDB, `,"port":65536`)), "cannot unmarshal", 400},
		{"other ID", post(wire.PathReach, greeting(endpointtest.IDC, `,"port":1`)), "certificate", 403},
		{"two ports", post(wire.PathReach, greeting(endpointtest.IDB, `,"port":1,"Port":2`)), "name twice", 400},
		{"nothing", post(wire.PathReach, ""), "not one JSON value", 400},
		{"an array", post(wire.PathReach, "[]"), "cannot unmarshal", 400},
		{"large", post(wire.PathReach, strings.Repeat(" ", maxCallBody+1)), "at most", 413},
		{"no type", "POST " + wire.PathReach + " HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}", "application/json", 415},
	} {
		got := visit(t, s, other).send(tc.request)
		if got.status != tc.status || !strings.Contains(got.body, tc.says) {
			t.Errorf("%s: %d %s", tc.name, got.status, got.body)
		}
	}
	for who, b := range map[string]*endpointtest.Box{"a stranger": third, "nobody": nil} {
		if got := visit(t, s, b).send(post(wire.PathReach, greeting(endpointtest.IDC, `,"port":1`))); got.status != 403 && got.status != 401 {
			t.Errorf("%s: %d %s", who, got.status, got.body)
		}
	}
	l.block(endpointtest.IDB, true)
	if got := visit(t, s, other).send(post(wire.PathReach, greeting(endpointtest.IDB, `,"port":1`))); got.status != 403 {
		t.Errorf("a blocked peer: %d %s", got.status, got.body)
	}
	l.block(endpointtest.IDB, false)
	if len(tried) != 0 {
		t.Errorf("%s was tried", <-tried)
	}

	// One that asks again and again has to wait, whatever port it asks for.
	refused := 0
	for i := range 2 * reachBurst {
		got := v.send(post(wire.PathReach, greeting(endpointtest.IDB, `,"port":`+string(rune('1'+i%9)))))
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
	home, other := endpointtest.New(t, endpointtest.IDA), endpointtest.New(t, endpointtest.IDB)
	s := servePeers(t, home, pin(other), nil, nil)
	ours := client.New(client.Config{Issuer: other.Issuer, Timeout: endpointtest.Hang})
	defer ours.Close()
	target := peer.Target{Fingerprint: home.Key.Fingerprint(), Addrs: []netip.AddrPort{at(s, "127.0.0.1")}}
	if _, err := ours.Reach(t.Context(), target, wire.Greeting{Identity: other.Identity, Port: 1}); !errors.Is(err, client.ErrNoReach) {
		t.Errorf("error %v, want ErrNoReach", err)
	}
	strict, tried := serveReach(t, home, pin())
	target.Addrs = []netip.AddrPort{at(strict, "127.0.0.1")}
	if _, err := ours.Reach(t.Context(), target, wire.Greeting{Identity: other.Identity, Port: 1}); err == nil || errors.Is(err, client.ErrNoReach) ||
		!strings.Contains(err.Error(), "does not trust your key") || len(tried) != 0 {
		t.Errorf("error %v, want that the key is not trusted", err)
	}
}
