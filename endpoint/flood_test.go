package endpoint

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"testing"
	"time"
)

// from connects to s from an address of its own.
func from(s *Server, source string) (net.Conn, error) {
	d := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(source), 0)), Timeout: hang}
	return d.Dial("tcp", at(s, "127.0.0.1").String())
}

// Known peers have connected; then strangers flood the server from many
// addresses, in every way that costs them little. The connections that known
// peers keep are not what gives way, and work as before.
func TestKnownPeersSurviveFloods(t *testing.T) {
	const places, floods = 24, 8
	home, farm, barn, stranger := newBox(t, idA), newBox(t, idB), newBox(t, idC), newBox(t, idD)
	l := pin(farm, barn)
	var mu sync.Mutex
	offset := time.Duration(0)
	s := home.servePeers(t, l, nil, func(s *Server) {
		s.guard.limit, s.guard.reserved, s.guard.perSource = places, places/4, 8
		s.guard.now = func() time.Time {
			mu.Lock()
			defer mu.Unlock()
			return time.Now().Add(offset)
		}
	})
	calls := visit(t, s, farm)
	if got := calls.send(post(PathState, greeting(idB, ""))); got.status != http.StatusOK {
		t.Fatalf("%+v", got)
	}
	checks := visit(t, s, barn) // does nothing but look whether we are there
	for range 2 {
		if got := checks.send(get(PathIDs)); got.status != http.StatusOK {
			t.Fatalf("%+v", got)
		}
	}
	eventually(t, "know both", func() bool { return s.Stats().Known == 2 })

	attacks := map[string]func(net.Conn){
		"silent": func(net.Conn) {},
		"handshake only": func(raw net.Conn) {
			_ = tls.Client(raw, &tls.Config{InsecureSkipVerify: true}).Handshake()
		},
		"asks for /ids and stays": func(raw net.Conn) {
			_, _ = getIDs(tls.Client(raw, &tls.Config{InsecureSkipVerify: true}))
		},
		"asks to be let in and stays": func(raw net.Conn) {
			c := tls.Client(raw, &tls.Config{InsecureSkipVerify: true, GetClientCertificate: stranger.issuer.GetClientCertificate})
			_, _ = fmt.Fprint(c, post(PathAsk, greeting(idD, "")))
			_, _ = c.Read(make([]byte, 1))
		},
		"half a body": func(raw net.Conn) {
			c := tls.Client(raw, &tls.Config{InsecureSkipVerify: true, GetClientCertificate: stranger.issuer.GetClientCertificate})
			_, _ = fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{", PathAsk)
		},
	}
	for name, attack := range attacks {
		t.Run(name, func(t *testing.T) {
			for range floods {
				mu.Lock()
				offset += 2 * staleAfter
				mu.Unlock()
				var wg sync.WaitGroup
				for i := range places {
					wg.Go(func() {
						raw, err := from(s, fmt.Sprintf("127.0.%d.%d", 1+i/4, 1+i%4))
						if err != nil {
							return // the kernel's queue is full: part of a flood
						}
						t.Cleanup(func() { raw.Close() })
						_ = raw.SetDeadline(time.Now().Add(hang))
						attack(raw)
					})
				}
				wg.Wait()
			}
			if st := s.Stats(); st.Refused[RefusedStale] == 0 {
				t.Errorf("the flood was none: %+v", st)
			}
			if got := calls.send(post(PathState, greeting(idB, ""))); got.status != http.StatusOK {
				t.Errorf("a peer that calls: %+v", got)
			}
			if got := checks.send(get(PathIDs)); got.status != http.StatusOK {
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
