package endpoint

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"liqo.io/agent/endpoint/refusal"
	"liqo.io/agent/endpoint/wire"
	"liqo.io/agent/internal/endpointtest"
)

// rawTunnel opens a tunnel by hand.
func rawTunnel(t *testing.T, s *Server, b *endpointtest.Box) (*tls.Conn, *http2.Framer) {
	t.Helper()
	v := visit(t, s, b)
	_, _ = io.WriteString(v, "GET "+wire.PathTunnel+" HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: liqo-tunnel\r\n\r\n")
	resp, err := http.ReadResponse(v.r, nil)
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols || resp.Header.Get("Upgrade") != "liqo-tunnel" {
		t.Fatalf("%v, %v", resp, err)
	}
	_ = v.SetDeadline(time.Now().Add(endpointtest.Hang))
	_, _ = io.WriteString(v, http2.ClientPreface)
	f := http2.NewFramer(v, v.r)
	_ = f.WriteSettings()
	return v.Conn, f
}

func headerBlock(fields ...string) []byte {
	var buf bytes.Buffer
	e := hpack.NewEncoder(&buf)
	for i := 0; i < len(fields); i += 2 {
		_ = e.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]})
	}
	return buf.Bytes()
}

func requestBlock(path string, more ...string) []byte {
	return headerBlock(append([]string{":method", "GET", ":scheme", "https", ":authority", "x", ":path", path}, more...)...)
}

// ends reads until the server closes the connection, and returns the code of its
// farewell, if there was one.
func ends(t *testing.T, name string, f *http2.Framer) (code http2.ErrCode) {
	t.Helper()
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			if ne, ok := err.(interface{ Timeout() bool }); ok && ne.Timeout() {
				t.Errorf("%s: the connection stays open", name)
			}
			return code
		}
		if away, ok := frame.(*http2.GoAwayFrame); ok {
			code = away.ErrCode
		}
	}
}

// Whatever a peer does to its tunnel, the server ends that and goes on.
func TestTunnelAbuse(t *testing.T) {
	home, other := endpointtest.New(t, endpointtest.IDA), endpointtest.New(t, endpointtest.IDB)
	a := newAPIServer(t)
	s, _ := a.hosting(t, home, pin(other), nil)
	l := newLink(t, other, s, home)
	for name, abuse := range map[string]func(c *tls.Conn, f *http2.Framer){
		"no HTTP/2": func(c *tls.Conn, f *http2.Framer) {
			_, _ = io.WriteString(c, strings.Repeat("GET / HTTP/1.1\r\n\r\n", 100))
		},
		"a huge frame": func(c *tls.Conn, f *http2.Framer) {
			_ = f.WriteRawFrame(http2.FrameData, 0, 1, make([]byte, tunnelFrame+1))
		},
		"endless headers": func(c *tls.Conn, f *http2.Framer) {
			_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: requestBlock("/ids")})
			for range 2000 {
				if f.WriteContinuation(1, false, headerBlock("x", strings.Repeat("x", 8<<10))) != nil {
					return
				}
			}
		},
		"resets": func(c *tls.Conn, f *http2.Framer) {
			for id := uint32(1); id < 6_000; id += 2 {
				if f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: requestBlock("/kube" + endpointtest.PodsOfB), EndStream: true, EndHeaders: true}) != nil ||
					f.WriteRSTStream(id, http2.ErrCodeCancel) != nil {
					return
				}
			}
		},
		"streams backwards": func(c *tls.Conn, f *http2.Framer) {
			for _, id := range []uint32{9, 7} {
				_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: requestBlock("/ids"), EndStream: true, EndHeaders: true})
			}
		},
		"more than the window": func(c *tls.Conn, f *http2.Framer) {
			_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: requestBlock("/kube" + endpointtest.PodsOfB), EndHeaders: true})
			for range 2 * tunnelUpload / tunnelFrame {
				if f.WriteData(1, false, make([]byte, tunnelFrame)) != nil {
					return
				}
			}
			_ = f.WriteGoAway(0, http2.ErrCodeNo, nil) // if there still is somebody
		},
	} {
		c, f := rawTunnel(t, s, other)
		done := make(chan struct{})
		go func() {
			defer close(done)
			abuse(c, f)
			_ = c.CloseWrite()
		}()
		ends(t, name, f)
		c.Close()
		<-done
		endpointtest.MustGet(t, l)
	}
	endpointtest.Eventually(t, "close the tunnels", func() bool { return s.Stats().Open == 1 })
	if n := s.Stats().Refused[refusal.Failed]; n != 0 {
		t.Errorf("%d failures", n)
	}
}

// A request that was reset before it had its turn costs neither a place nor a request
// to the API server.
func TestTunnelResetRequest(t *testing.T) {
	home, other := endpointtest.New(t, endpointtest.IDA), endpointtest.New(t, endpointtest.IDB)
	a := newAPIServer(t)
	s, _ := a.hosting(t, home, pin(other), nil)
	before := s.Stats().Requests
	ctx, reset := context.WithCancel(t.Context())
	reset()
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/kube"+endpointtest.PodsOfB, nil)
	defer func() {
		if got := recover(); got != http.ErrAbortHandler {
			t.Errorf("the handler ends with %v", got)
		}
		if n := s.Stats().Requests - before; n != 0 || len(a.taken()) != 0 {
			t.Errorf("%d requests are served", n)
		}
	}()
	s.serveInTunnel(httptest.NewRecorder(), r)
}

// More streams than allowed are refused without a handler, and slow readers hold
// back nobody but themselves.
func TestTunnelFloods(t *testing.T) {
	home, other := endpointtest.New(t, endpointtest.IDA), endpointtest.New(t, endpointtest.IDB)
	a := newAPIServer(t)
	a.watchable(t)
	s, _ := a.hosting(t, home, pin(other), func(s *Server) { s.times.turn, s.times.stall = 200*time.Millisecond, 200*time.Millisecond })
	c, f := rawTunnel(t, s, other)
	f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	const streams = 2 * tunnelRequests
	go func() {
		for id := uint32(1); id < 2*streams; id += 2 {
			if f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: requestBlock("/kube" + endpointtest.PodsOfB + "?watch=true"), EndStream: true, EndHeaders: true}) != nil {
				return
			}
		}
	}()
	reset, answered := 0, map[string]int{}
	for reset+answered["200"]+answered["429"] < streams {
		frame, err := f.ReadFrame()
		if err != nil {
			t.Fatalf("%d reset, %v: %v", reset, answered, err)
		}
		switch frame := frame.(type) {
		case *http2.MetaHeadersFrame:
			answered[frame.PseudoValue("status")]++
		case *http2.RSTStreamFrame:
			reset++
		}
	}
	if answered["200"] != wire.StreamsPerPeer || reset == 0 {
		t.Errorf("%d reset, %v", reset, answered)
	}
	c.Close()

	// A list that nobody reads.
	a.answering(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		chunk := make([]byte, 1<<20)
		for range 32 {
			if _, err := w.Write(chunk); err != nil {
				return
			}
		}
	})
	l := newLink(t, other, s, home)
	endpointtest.Eventually(t, "have places again", func() bool {
		status, _, _ := endpointtest.Through(t, l, "GET", endpointtest.PodsOfB+"/x?bad", "", "")
		return status == http.StatusBadRequest
	})
	r, _ := http.NewRequestWithContext(t.Context(), "GET", "https://x"+endpointtest.PodsOfB, nil)
	resp, err := l.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	time.Sleep(s.times.stall)
	if _, err := l.Namespace(t.Context(), "shop"); err != nil {
		t.Error(err)
	}
	endpointtest.Eventually(t, "give up", func() bool { return s.limits.guests.Taken() == 0 })
	if _, err := io.ReadAll(resp.Body); err == nil {
		t.Error("what was not read in time looks complete")
	}
}

// A tunnel is for those who are known, begins in one way, and there are few of them.
func TestTunnelBegins(t *testing.T) {
	home, other, stranger := endpointtest.New(t, endpointtest.IDA), endpointtest.New(t, endpointtest.IDB), endpointtest.New(t, endpointtest.IDC)
	a := newAPIServer(t)
	s, _ := a.hosting(t, home, pin(other), nil)
	const good = "GET " + wire.PathTunnel + " HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: liqo-tunnel\r\n\r\n"
	for _, tc := range []struct {
		from    *endpointtest.Box
		request string
		status  int
	}{
		{nil, good, 401},
		{stranger, good, 403},
		{other, strings.Replace(good, "GET", "POST", 1), 405},
		{other, strings.Replace(good, "liqo-tunnel", "h2c", 1), 400},
		{other, strings.Replace(good, "Upgrade: liqo-tunnel", "Upgrade: liqo-tunnel\r\nUpgrade: liqo-tunnel", 1), 400},
		{other, strings.Replace(good, "\r\n\r\n", "\r\nContent-Length: 2\r\n\r\n{}", 1), 400},
		{other, strings.Replace(good, wire.PathTunnel, wire.PathTunnel+"?x", 1), 404},
	} {
		if got := visit(t, s, tc.from).send(tc.request); got.status != tc.status {
			t.Errorf("%q: %+v", tc.request, got)
		}
	}
	// The oldest makes room.
	_, first := rawTunnel(t, s, other)
	for range tunnelsPerPeer {
		rawTunnel(t, s, other)
	}
	ends(t, "the oldest", first)
	// Nothing of a tunnel outlives the server: TestMain looks for that.
	endpointtest.Eventually(t, "count", func() bool { return s.Stats().Known >= tunnelsPerPeer })
}

// A tunnel that makes room for another has not ended yet when the other one begins.
func TestTunnelWaitsForRoom(t *testing.T) {
	home, other := endpointtest.New(t, endpointtest.IDA), endpointtest.New(t, endpointtest.IDB)
	a := newAPIServer(t)
	s, _ := a.hosting(t, home, pin(other), func(s *Server) { s.times.turn = endpointtest.Hang })
	for range tunnelsPerPeer + 1 {
		if !s.limits.tunnels.Take(endpointtest.IDB) {
			t.Fatal("there are fewer")
		}
	}
	v := visit(t, s, other)
	_, _ = io.WriteString(v, "GET "+wire.PathTunnel+" HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: liqo-tunnel\r\n\r\n")
	endpointtest.Eventually(t, "wait", func() bool { return s.limits.tunnels.Waiting() == 1 || s.Stats().Refused[refusal.Busy] > 0 })
	s.limits.tunnels.Release(endpointtest.IDB)
	resp, err := http.ReadResponse(v.r, nil)
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		t.Errorf("%v, %v", resp, err)
	}
}
