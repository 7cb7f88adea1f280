package endpoint

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"liqo.io/agent/endpoint/guard"
	"liqo.io/agent/endpoint/wire"
	"liqo.io/agent/internal/endpointtest"
)

// from connects to s from an address of its own.
func from(s *Server, source string) (net.Conn, error) {
	d := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(source), 0)), Timeout: endpointtest.Hang}
	return d.Dial("tcp", at(s, "127.0.0.1").String())
}

// decided counts the connections that were let in or turned away.
func decided(st guard.Stats) uint64 {
	return st.Accepted + st.Refused[guard.RefusedSource] + st.Refused[guard.RefusedFull]
}

// Known peers have connected; then strangers flood the server from many
// addresses, in every way that costs them little. The connections that known
// peers keep are not what gives way, and work as before.
func TestKnownPeersSurviveFloods(t *testing.T) {
	const places, floods = 24, 3 // the first fills the server, the others push out what is stale
	home, farm, barn, stranger := endpointtest.New(t, endpointtest.IDA), endpointtest.New(t, endpointtest.IDB), endpointtest.New(t, endpointtest.IDC), endpointtest.New(t, endpointtest.IDD)
	l := pin(farm, barn)
	var mu sync.Mutex
	offset := time.Duration(0)
	s := servePeers(t, home, l, nil, func(s *Server) {
		s.guard.Limit, s.guard.Reserved, s.guard.PerSource = places, places/4, 8
		s.guard.Now = func() time.Time {
			mu.Lock()
			defer mu.Unlock()
			return time.Now().Add(offset)
		}
	})
	calls := visit(t, s, farm)
	if got := calls.send(post(wire.PathState, greeting(endpointtest.IDB, ""))); got.status != http.StatusOK {
		t.Fatalf("%+v", got)
	}
	checks := visit(t, s, barn) // does nothing but look whether we are there
	for range 2 {
		if got := checks.send(get(wire.PathIDs)); got.status != http.StatusOK {
			t.Fatalf("%+v", got)
		}
	}
	endpointtest.Eventually(t, "know both", func() bool { return s.Stats().Known == 2 })

	attacks := map[string]func(net.Conn){
		"silent": func(net.Conn) {},
		"handshake only": func(raw net.Conn) {
			_ = tls.Client(raw, &tls.Config{InsecureSkipVerify: true}).Handshake()
		},
		"asks for /ids and stays": func(raw net.Conn) {
			_, _ = getIDs(tls.Client(raw, &tls.Config{InsecureSkipVerify: true}))
		},
		"asks to be let in and stays": func(raw net.Conn) {
			c := tls.Client(raw, showing(stranger))
			_, _ = fmt.Fprint(c, post(wire.PathAsk, greeting(endpointtest.IDD, "")))
			_, _ = c.Read(make([]byte, 1))
		},
		"half a body": func(raw net.Conn) {
			c := tls.Client(raw, showing(stranger))
			_, _ = fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{", wire.PathAsk)
		},
	}
	for name, attack := range attacks {
		t.Run(name, func(t *testing.T) {
			for range floods {
				mu.Lock()
				offset += 2 * guard.StaleAfter
				mu.Unlock()
				before := decided(s.Stats())
				var dialed atomic.Uint64
				var wg sync.WaitGroup
				for i := range places {
					wg.Go(func() {
						raw, err := from(s, fmt.Sprintf("127.0.%d.%d", 1+i/4, 1+i%4))
						if err != nil {
							return // the kernel's queue is full: part of a flood
						}
						t.Cleanup(func() { raw.Close() })
						dialed.Add(1)
						_ = raw.SetDeadline(time.Now().Add(endpointtest.Hang))
						attack(raw)
					})
				}
				wg.Wait()
				// The kernel accepts before the server does, and who comes in only
				// after the next turn of the clock is not stale then.
				endpointtest.Eventually(t, "see the whole flood", func() bool { return decided(s.Stats()) >= before+dialed.Load() })
			}
			endpointtest.Eventually(t, "push out what is stale", func() bool { return s.Stats().Refused[guard.RefusedStale] > 0 })
			if got := calls.send(post(wire.PathState, greeting(endpointtest.IDB, ""))); got.status != http.StatusOK {
				t.Errorf("a peer that calls: %+v", got)
			}
			if got := checks.send(get(wire.PathIDs)); got.status != http.StatusOK {
				t.Errorf("a peer that checks: %+v", got)
			}
			if n := s.Stats().Known; n != 2 {
				t.Errorf("%d connections of known peers", n)
			}
		})
	}
	if st := s.Stats(); st.Open > places-places/4+2 {
		t.Errorf("strangers took reserved places: %+v", st)
	}
}
