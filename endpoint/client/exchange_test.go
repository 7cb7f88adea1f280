package client

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unicode"

	"liqo.io/agent/endpoint/wire"
	"liqo.io/agent/internal/endpointtest"
	"liqo.io/agent/peer"
	"liqo.io/agent/trust"
)

// peerServer is a peer's endpoint as far as Exchange needs one: it asks for a
// certificate and serves what handle says.
type peerServer struct {
	addr    netip.AddrPort
	tls     *tls.Config
	conns   atomic.Int32 // handshakes that succeeded
	open    atomic.Int32 // connections now
	resumed atomic.Int32
	curves  sync.Map // tls.CurveID -> true
}

func servePeer(t testing.TB, b *endpointtest.Box, listen string, handle http.HandlerFunc, change ...func(*http.Server)) *peerServer {
	t.Helper()
	p := new(peerServer)
	l, err := net.Listen("tcp", listen)
	if err != nil {
		t.Fatal(err)
	}
	p.addr = l.Addr().(*net.TCPAddr).AddrPort()
	p.tls = &tls.Config{
		MinVersion: tls.VersionTLS13, ClientAuth: tls.RequestClientCert, GetCertificate: b.Issuer.GetCertificate,
		VerifyConnection: func(state tls.ConnectionState) error {
			if state.DidResume {
				p.resumed.Add(1)
			}
			p.curves.Store(state.CurveID, true)
			return nil
		},
	}
	s := &http.Server{Handler: handle, ConnState: func(_ net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			p.conns.Add(1)
			p.open.Add(1)
		case http.StateClosed:
			p.open.Add(-1)
		}
	}}
	for _, f := range change {
		f(s)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Serve(tls.NewListener(l, p.tls))
	}()
	t.Cleanup(func() {
		s.Close()
		<-done
	})
	return p
}

// echo answers with what it was sent, and who sent it.
func echo(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	caller := "nobody"
	if certs := r.TLS.PeerCertificates; len(certs) > 0 {
		if shown, err := trust.Verify(certs, time.Time{}); err == nil {
			caller = string(shown.ID)
		}
	}
	if r.URL.Path == wire.PathIDs {
		fmt.Fprintf(w, `{"clusterId":%q,"clusterName":"x","guestNamespace":"liqo"}`, endpointtest.IDA)
		return
	}
	fmt.Fprintf(w, "%s %s %s %s from %s: %s", r.Method, r.URL.Path, r.Host, r.Header.Get("Content-Type"), caller, body)
}

// patient returns a client for tests that say which address is called, or that one answers: it tries the next address only when the
// one before has failed, and waits for answers. On a busy machine, a handshake takes longer than the head start, and seconds.
func patient(cfg Config) *Client {
	c := New(cfg)
	c.headStart, c.attemptTimeout, c.timeout, c.idleAnswer = time.Hour, endpointtest.Hang, endpointtest.Hang, endpointtest.Hang
	return c
}

// caller returns a client with a certificate of its own, that keeps connections.
func caller(t testing.TB, b *endpointtest.Box) *Client {
	c := patient(Config{Issuer: b.Issuer, Keep: 4})
	t.Cleanup(c.Close)
	return c
}

func targetOf(b *endpointtest.Box, a ...netip.AddrPort) peer.Target {
	return peer.Target{ID: b.Identity.ClusterID, Fingerprint: b.Key.Fingerprint(), Addrs: a}
}

func mustExchange(t *testing.T, c *Client, target peer.Target, r Request) Response {
	t.Helper()
	resp, err := c.Exchange(t.Context(), target, r)
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

func TestExchange(t *testing.T) {
	b, us := endpointtest.New(t, endpointtest.IDA), endpointtest.New(t, endpointtest.IDB)
	p := servePeer(t, b, "127.0.0.1:0", echo)
	c := caller(t, us)
	target := targetOf(b, p.addr)
	for _, tc := range []struct {
		r    Request
		want string
	}{
		{Request{Method: "GET", Path: "/kube/x?y=z"}, "GET /kube/x H  from b: "},
		{Request{Method: "POST", Path: wire.PathNotice}, "POST /peering/notice H  from b: "},
		{Request{Method: "POST", Path: wire.PathAsk, Body: []byte("{}")}, "POST /peering/ask H application/json from b: {}"},
		{Request{Method: "PATCH", Path: "/kube/x", ContentType: "application/apply-patch+yaml", Body: []byte("a: b")}, "PATCH /kube/x H application/apply-patch+yaml from b: a: b"},
		{Request{Method: "DELETE", Path: "/kube/x"}, "DELETE /kube/x H  from b: "},
	} {
		resp := mustExchange(t, c, target, tc.r)
		if want := strings.Replace(tc.want, " H ", " "+p.addr.String()+" ", 1); resp.Status != 200 || string(resp.Body) != want {
			t.Errorf("%d %q, want %q", resp.Status, resp.Body, want)
		}
		if !same(resp.Result, Result{Fingerprint: b.Key.Fingerprint(), Addr: p.addr, URL: "https://" + p.addr.String()}) ||
			!resp.Result.Shown.CA.Equal(b.Key.CA()) || resp.Result.Shown.ID != endpointtest.IDA {
			t.Errorf("%+v", resp.Result)
		}
	}
	if n := p.conns.Load(); n != 1 {
		t.Errorf("%d connections for 5 calls", n)
	}
	if _, hybrid := p.curves.Load(tls.X25519MLKEM768); !hybrid {
		t.Error("calls are not protected against those who record them")
	}
}

// One connection serves both, but not every connection can carry calls.
func TestChecksAndCallsShareAConnection(t *testing.T) {
	b, us := endpointtest.New(t, endpointtest.IDA), endpointtest.New(t, endpointtest.IDB)
	p := servePeer(t, b, "127.0.0.1:0", echo)
	c := caller(t, us)
	target := targetOf(b, p.addr)
	call := func() {
		t.Helper()
		if got := string(mustExchange(t, c, target, Request{Method: "GET", Path: "/"}).Body); !strings.Contains(got, "from b:") {
			t.Errorf("the peer does not know who calls: %s", got)
		}
	}
	mustIdentify(t, c, target)
	if _, hybrid := p.curves.Load(tls.X25519MLKEM768); hybrid {
		t.Error("a check costs more than it needs")
	}
	call() // who checks is a stranger: nothing of that can be used
	if n, r := p.conns.Load(), p.resumed.Load(); n != 2 || r != 0 {
		t.Errorf("%d connections, %d resumed", n, r)
	}
	for range 3 {
		mustIdentify(t, c, target)
		call()
	}
	if n := p.conns.Load(); n != 2 {
		t.Errorf("%d connections", n)
	}
	// A check may resume the session of a call, and what it makes carries calls.
	c.idle.drop(target.Fingerprint)
	mustIdentify(t, c, target)
	call()
	if n, r := p.conns.Load(), p.resumed.Load(); n != 3 || r != 1 {
		t.Errorf("%d connections, %d resumed", n, r)
	}
	c.idle.drop(target.Fingerprint)
	call()
	if n, r := p.conns.Load(), p.resumed.Load(); n != 4 || r != 2 {
		t.Errorf("%d connections, %d resumed", n, r)
	}
}

// Whoever shows another key gets nothing, not even a byte.
func TestNothingIsSentToTheWrongKeyByExchange(t *testing.T) {
	right, wrong, us := endpointtest.New(t, endpointtest.IDA), endpointtest.New(t, endpointtest.IDA), endpointtest.New(t, endpointtest.IDB)
	leaked := make(chan int, 8)
	trap := func(b *endpointtest.Box) netip.AddrPort {
		cfg := &tls.Config{GetCertificate: b.Issuer.GetCertificate, MinVersion: tls.VersionTLS13, ClientAuth: tls.RequestClientCert}
		return endpointtest.ListenRaw(t, "127.0.0.1", func(raw net.Conn) {
			c := tls.Server(raw, cfg)
			n, _ := c.Read(make([]byte, 100))
			leaked <- n
		})
	}
	renamed := endpointtest.New(t, "other-id")
	for name, tc := range map[string]struct {
		target peer.Target
		want   Reason
	}{
		"another key":       {targetOf(right, trap(wrong)), ReasonWrongKey},
		"ourselves":         {targetOf(right, trap(us)), ReasonSelf},
		"another ID":        {peer.Target{ID: endpointtest.IDA, Fingerprint: renamed.Key.Fingerprint(), Addrs: endpointtest.Addrs(trap(renamed))}, ReasonWrongID},
		"a key not so long": {peer.Target{ID: endpointtest.IDA, Fingerprint: peer.Fingerprint{1}, Addrs: endpointtest.Addrs(trap(wrong))}, ReasonWrongKey},
	} {
		_, err := caller(t, us).Exchange(t.Context(), tc.target, Request{Method: "POST", Path: wire.PathAsk, Body: []byte("secret")})
		var e *Error
		if !errors.As(err, &e) || tc.want != ReasonSelf && e.Reason != tc.want {
			t.Errorf("%s: %v", name, err)
		}
		if n := <-leaked; n != 0 {
			t.Errorf("%s: %d bytes were sent", name, n)
		}
	}
	if _, err := caller(t, us).Exchange(t.Context(), peer.Target{Addrs: endpointtest.Addrs(trap(right))}, Request{Method: "GET", Path: "/"}); err == nil {
		t.Error("sent to whoever is there")
	}
	if len(leaked) != 0 {
		t.Error("connected to whoever is there")
	}
}

func TestRequestsThatCannotBeSent(t *testing.T) {
	b := endpointtest.New(t, endpointtest.IDA)
	p := servePeer(t, b, "127.0.0.1:0", echo)
	for name, r := range map[string]Request{
		"no method":     {Path: "/"},
		"method":        {Method: "GET /x HTTP/1.1\r\nX:", Path: "/"},
		"no path":       {Method: "GET"},
		"relative path": {Method: "GET", Path: "x"},
		"line in path":  {Method: "GET", Path: "/x\r\nX: y"},
		"space in path": {Method: "GET", Path: "/x y"},
		"line in type":  {Method: "GET", Path: "/", ContentType: "a\r\nX: y"},
		"body":          {Method: "POST", Path: "/", Body: make([]byte, MaxRequestBody+1)},
	} {
		if _, err := caller(t, b).Exchange(t.Context(), targetOf(b, p.addr), r); err == nil {
			t.Errorf("%s: sent", name)
		}
	}
	if p.conns.Load() != 0 {
		t.Error("connected for a request that cannot be sent")
	}
}

func TestLargeBodies(t *testing.T) {
	b, us := endpointtest.New(t, endpointtest.IDA), endpointtest.New(t, endpointtest.IDB)
	p := servePeer(t, b, "127.0.0.1:0", func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if strings.HasSuffix(r.URL.Path, "/known") {
			w.Header().Set("Content-Length", fmt.Sprint(MaxResponseBody))
		}
		for range MaxResponseBody / MaxRequestBody {
			_, _ = w.Write(body)
		}
		if r.URL.Path == "/more" {
			_, _ = w.Write(body[:1])
		}
	})
	c := caller(t, us)
	body := []byte(strings.Repeat("x", MaxRequestBody))
	for _, path := range []string{"/chunked", "/known", "/known"} {
		resp := mustExchange(t, c, targetOf(b, p.addr), Request{Method: "POST", Path: path, Body: body})
		if len(resp.Body) != MaxResponseBody || strings.Trim(string(resp.Body), "x") != "" {
			t.Errorf("%s: %d bytes", path, len(resp.Body))
		}
	}
	if p.conns.Load() != 1 {
		t.Errorf("%d connections", p.conns.Load())
	}
	_, err := c.Exchange(t.Context(), targetOf(b, p.addr), Request{Method: "POST", Path: "/more", Body: body})
	var e *Error
	if !errors.As(err, &e) || e.Reason != ReasonBadAnswer || !strings.Contains(err.Error(), "more than 1048576 bytes") {
		t.Errorf("%v", err)
	}
}

func TestCallsAtTheSameTime(t *testing.T) {
	b, us := endpointtest.New(t, endpointtest.IDA), endpointtest.New(t, endpointtest.IDB)
	inside := make(chan struct{})
	p := servePeer(t, b, "127.0.0.1:0", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/meet" {
			inside <- struct{}{} // until all of them are there
		}
		echo(w, r)
	})
	c := caller(t, us)
	const n = 5
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			if _, err := c.Exchange(t.Context(), targetOf(b, p.addr), Request{Method: "GET", Path: "/meet"}); err != nil {
				t.Error(err)
			}
		})
	}
	endpointtest.Eventually(t, "all calls are made", func() bool { return p.conns.Load() == n })
	for range n {
		<-inside
	}
	wg.Wait()
	mustExchange(t, c, targetOf(b, p.addr), Request{Method: "GET", Path: "/"})
	if got := p.conns.Load(); got != n {
		t.Errorf("%d connections: none was kept", got)
	}
	if got := len(c.idle.byKey); got != 1 {
		t.Errorf("%d connections are kept", got)
	}
}

// An idle connection that ended meanwhile costs nothing but another one.
func TestCallOnADeadConnectionIsMadeAgain(t *testing.T) {
	b, us := endpointtest.New(t, endpointtest.IDA), endpointtest.New(t, endpointtest.IDB)
	var served atomic.Int32
	var mode atomic.Value
	mode.Store("serve")
	cfg := &tls.Config{GetCertificate: b.Issuer.GetCertificate, MinVersion: tls.VersionTLS13}
	addr := endpointtest.ListenRaw(t, "127.0.0.1", func(raw net.Conn) {
		c := tls.Server(raw, cfg)
		r := bufio.NewReader(c)
		for first := true; ; first = false {
			if !first && mode.Load() == "deaf" {
				endpointtest.Silent(raw) // takes what is sent, and answers nothing
				return
			}
			req, err := http.ReadRequest(r)
			if err != nil {
				return
			}
			_, _ = io.Copy(io.Discard, req.Body)
			if !first && mode.Load() == "hang up" {
				return
			}
			if !first && mode.Load() == "half" {
				_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n12345")
				return
			}
			served.Add(1)
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
		}
	})
	c := caller(t, us)
	for i, m := range []string{"hang up", "half", "serve"} {
		mode.Store(m)
		for range 2 {
			if resp := mustExchange(t, c, targetOf(b, addr), Request{Method: "GET", Path: "/"}); string(resp.Body) != "ok" {
				t.Errorf("%s: %q", m, resp.Body)
			}
		}
		if got := served.Load(); got != int32(2*(i+1)) {
			t.Errorf("%s: served %d", m, got)
		}
	}
}

// A peer that went away without a word is one that does not acknowledge; one
// that is slow does.
func TestSlowIsNotDead(t *testing.T) {
	b, us := endpointtest.New(t, endpointtest.IDA), endpointtest.New(t, endpointtest.IDB)
	var slow atomic.Bool
	cfg := &tls.Config{GetCertificate: b.Issuer.GetCertificate, MinVersion: tls.VersionTLS13}
	var conns atomic.Int32
	addr := endpointtest.ListenRaw(t, "127.0.0.1", func(raw net.Conn) {
		_ = raw.(*net.TCPConn).SetReadBuffer(16384)
		c := tls.Server(raw, cfg)
		first := conns.Add(1) == 1
		r := bufio.NewReader(c)
		for n := 0; ; n++ {
			if first && n == 2 {
				// Nothing is read any more: soon nothing is acknowledged either.
				<-t.Context().Done()
				return
			}
			req, err := http.ReadRequest(r)
			if err != nil {
				return
			}
			_, _ = io.Copy(io.Discard, req.Body)
			if slow.Load() {
				time.Sleep(time.Second) // several times what is allowed without a sign of life
			}
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
		}
	})
	c := caller(t, us)
	c.idleSilence = 200 * time.Millisecond // several times as long as the kernel may wait with an acknowledgement
	r := Request{Method: "POST", Path: "/", Body: []byte(strings.Repeat("x", MaxRequestBody))}
	mustExchange(t, c, targetOf(b, addr), r)
	slow.Store(true)
	// The kernel takes this one in, and acknowledges it, however long the server is kept from reading.
	mustExchange(t, c, targetOf(b, addr), Request{Method: "GET", Path: "/"})
	if n := conns.Load(); n != 1 {
		t.Errorf("%d connections: slow was taken for dead", n)
	}
	slow.Store(false)
	mustExchange(t, c, targetOf(b, addr), r)
	if n := conns.Load(); n != 2 {
		t.Errorf("%d connections", n)
	}
}

// Addresses in front of the one that answered are tried again only when there
// is news about where the peer is.
func TestKeptConnectionServesUntilTheTargetChanges(t *testing.T) {
	b, us := endpointtest.New(t, endpointtest.IDA), endpointtest.New(t, endpointtest.IDB)
	p, moved := servePeer(t, b, "127.0.0.1:0", echo), servePeer(t, b, "127.0.0.2:0", echo)
	get := Request{Method: "GET", Path: "/"}
	for name, targets := range map[string][]peer.Target{
		"behind a dead address": {targetOf(b, endpointtest.DeadPort(t), p.addr)},
		"URL only":              {{ID: endpointtest.IDA, Fingerprint: b.Key.Fingerprint(), URL: "https://" + p.addr.String()}},
		"name only":             {{ID: endpointtest.IDA, Fingerprint: b.Key.Fingerprint(), URL: fmt.Sprintf("https://localhost:%d", p.addr.Port())}},
		"URL behind addresses":  {{ID: endpointtest.IDA, Fingerprint: b.Key.Fingerprint(), Addrs: endpointtest.Addrs(endpointtest.DeadPort(t)), URL: "https://" + p.addr.String()}},
		"others come and go behind it": {targetOf(b, p.addr), targetOf(b, p.addr, endpointtest.DeadPort(t)), targetOf(b, p.addr),
			targetOf(b, p.addr, moved.addr)},
	} {
		c := caller(t, us)
		before := p.conns.Load()
		for range 3 {
			for _, target := range targets {
				if got := mustExchange(t, c, target, get).Result.Addr; got != p.addr {
					t.Errorf("%s: %v", name, got)
				}
			}
		}
		if n := p.conns.Load() - before; n != 1 {
			t.Errorf("%s: %d connections", name, n)
		}
	}
	c := caller(t, us)
	before := p.conns.Load()
	for range 3 {
		mustIdentify(t, c, peer.Target{ID: endpointtest.IDA, Fingerprint: b.Key.Fingerprint(), URL: "https://" + p.addr.String()})
	}
	if n := p.conns.Load() - before; n != 1 {
		t.Errorf("%d connections for checks at a URL", n)
	}
	mustExchange(t, c, targetOf(b, p.addr), get)
	if got := mustExchange(t, c, targetOf(b, moved.addr, p.addr), get).Result.Addr; got != moved.addr {
		t.Errorf("called at %v", got)
	}
}

// What we show of ourselves is what the peer knows us by: it has to see a new
// key or cluster ID at the next call.
func TestPeersSeeWhoWeAreNow(t *testing.T) {
	b, us := endpointtest.New(t, endpointtest.IDA), endpointtest.New(t, endpointtest.IDB)
	var id atomic.Value
	id.Store(endpointtest.IDB)
	us.Issuer = trust.NewIssuer(us.Key, func() peer.ClusterID { return id.Load().(peer.ClusterID) })
	p := servePeer(t, b, "127.0.0.1:0", echo)
	c := caller(t, us)
	says := func(want string) {
		t.Helper()
		if got := string(mustExchange(t, c, targetOf(b, p.addr), Request{Method: "GET", Path: "/"}).Body); !strings.Contains(got, "from "+want+":") {
			t.Errorf("%s, want %s", got, want)
		}
	}
	says(string(endpointtest.IDB))
	id.Store(peer.ClusterID("renamed"))
	says("renamed") // the kept connection and its session are not used
	mustIdentify(t, c, targetOf(b, p.addr))
	c.idle.drop(b.Key.Fingerprint())
	says("renamed") // resumed
	if n, r := p.conns.Load(), p.resumed.Load(); n != 3 || r != 1 {
		t.Errorf("%d connections, %d resumed", n, r)
	}
}

func TestCallsComeBeforeChecks(t *testing.T) {
	us := endpointtest.New(t, endpointtest.IDB)
	c := patient(Config{Issuer: us.Issuer, Keep: 2})
	defer c.Close()
	var boxes []*endpointtest.Box
	var servers []*peerServer
	for range 4 {
		b := endpointtest.New(t, endpointtest.IDA)
		boxes, servers = append(boxes, b), append(servers, servePeer(t, b, "127.0.0.1:0", echo))
	}
	target := func(i int) peer.Target { return targetOf(boxes[i], servers[i].addr) }
	mustIdentify(t, c, target(0))
	mustIdentify(t, c, target(1))
	get := Request{Method: "GET", Path: "/"}
	for range 3 {
		mustExchange(t, c, target(2), get)
		mustExchange(t, c, target(3), get)
		mustIdentify(t, c, target(0))
	}
	if a, b := servers[2].conns.Load(), servers[3].conns.Load(); a != 1 || b != 1 {
		t.Errorf("%d and %d connections: calls gave way to checks", a, b)
	}
	if len(c.idle.byKey) != 2 {
		t.Errorf("%d connections are kept", len(c.idle.byKey))
	}
}

func TestExchangeIsCanceled(t *testing.T) {
	b, us := endpointtest.New(t, endpointtest.IDA), endpointtest.New(t, endpointtest.IDB)
	called := make(chan struct{}, 2)
	p := servePeer(t, b, "127.0.0.1:0", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/wait" {
			called <- struct{}{}
			<-r.Context().Done()
		}
	})
	c := caller(t, us)
	for _, idleConns := range []bool{false, true} {
		if idleConns {
			mustExchange(t, c, targetOf(b, p.addr), Request{Method: "GET", Path: "/"})
		}
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			<-called
			cancel()
		}()
		_, err := c.Exchange(ctx, targetOf(b, p.addr), Request{Method: "GET", Path: "/wait"})
		var e *Error
		if !errors.Is(err, context.Canceled) || errors.As(err, &e) {
			t.Errorf("kept %v: %v", idleConns, err)
		}
	}
	c.exchangeTimeout = 50 * time.Millisecond
	_, err := c.Exchange(t.Context(), targetOf(b, p.addr), Request{Method: "GET", Path: "/wait"})
	var e *Error
	if !errors.As(err, &e) || e.Reason != ReasonUnreachable {
		t.Errorf("%v", err)
	}
}

func TestRefusal(t *testing.T) {
	for _, tc := range []struct {
		status int
		body   string
		want   wire.Refusal
	}{
		{403, `{"error":"your key is not trusted here","reason":"NotTrusted"}`, wire.Refusal{Error: "your key is not trusted here", Reason: wire.ReasonNotTrusted}},
		{403, `{"kind":"Status","message":"peeringrequests is forbidden","reason":"Forbidden","code":403}`, wire.Refusal{Error: "peeringrequests is forbidden", Reason: "Forbidden"}},
		{502, ``, wire.Refusal{Error: "the peer answers with HTTP status 502 Bad Gateway"}},
		{599, `<html>`, wire.Refusal{Error: "the peer answers with HTTP status 599"}},
		{500, `{"error":7,"message":"so"}`, wire.Refusal{Error: "so"}},
		{500, `[]`, wire.Refusal{Error: "the peer answers with HTTP status 500 Internal Server Error"}},
		{400, `{"error":"a\u001b[31m b\n\n c\u202e  ","reason":"rm -rf"}`, wire.Refusal{Error: "a [31m b c"}},
		{400, `{"error":"` + strings.Repeat("ä", 5000) + `"}`, wire.Refusal{Error: strings.Repeat("ä", (1024-3)/2) + "..."}},
	} {
		if got := (Response{Status: tc.status, Body: []byte(tc.body)}).Refusal(); got != tc.want {
			t.Errorf("%d %.50s: %+v", tc.status, tc.body, got)
		}
	}
}

// Nobody is made to wait for longer than an hour.
func TestRetryAfterIsBounded(t *testing.T) {
	for header, want := range map[string]time.Duration{"7": 7 * time.Second, "99999": time.Hour} {
		resp, _, err := readResponse(bufio.NewReader(strings.NewReader("HTTP/1.1 429 Too Many Requests\r\nRetry-After: " + header + "\r\nContent-Length: 0\r\n\r\n")))
		if err != nil || resp.RetryAfter != want {
			t.Errorf("%s: %v, %v", header, resp.RetryAfter, err)
		}
	}
}

func FuzzReadResponse(f *testing.F) {
	f.Add("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
	f.Add("HTTP/1.1 403 Forbidden\r\nRetry-After: 3\r\nContent-Length: 15\r\n\r\n{\"error\":\"no\"}\n")
	f.Add("HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n")
	f.Add("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n")
	f.Add("HTTP/1.1 204 No Content\r\n\r\n")
	f.Add("HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n")
	f.Fuzz(func(t *testing.T, text string) {
		r := bufio.NewReader(&limitedReader{from: strings.NewReader(text), left: maxExchangeHeader + MaxResponseBody})
		resp, _, err := readResponse(r)
		if err != nil {
			return
		}
		if resp.Status < 200 || len(resp.Body) > MaxResponseBody || resp.RetryAfter < 0 || resp.RetryAfter > maxRetryAfter {
			t.Errorf("%d, %d bytes, %s", resp.Status, len(resp.Body), resp.RetryAfter)
		}
		refusal := resp.Refusal()
		if refusal.Error == "" || strings.ContainsFunc(refusal.Error+refusal.Reason, func(c rune) bool { return !unicode.IsPrint(c) }) {
			t.Errorf("refusal %q", refusal)
		}
	})
}

// Interim answers are read over, as long as there are not too many.
func TestInterimAnswers(t *testing.T) {
	b, us := endpointtest.New(t, endpointtest.IDA), endpointtest.New(t, endpointtest.IDB)
	for n, ok := range map[int]bool{0: true, 2: true, 100: false} {
		addr := endpointtest.ListenTLS(t, "127.0.0.1", b, endpointtest.Answering(strings.Repeat("HTTP/1.1 103 Early Hints\r\n\r\n", n)+"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"))
		_, err := caller(t, us).Exchange(t.Context(), targetOf(b, addr), Request{Method: "GET", Path: "/"})
		if (err == nil) != ok {
			t.Errorf("%d: %v", n, err)
		}
	}
}

// A body that is said to be too large is not waited for.
func TestAnnouncedGigabytes(t *testing.T) {
	b, us := endpointtest.New(t, endpointtest.IDA), endpointtest.New(t, endpointtest.IDB)
	addr := endpointtest.ListenTLS(t, "127.0.0.1", b, func(c *tls.Conn) {
		endpointtest.ReadRequest(c)
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 10000000000\r\n\r\n")
		endpointtest.Silent(c)
	})
	_, err := caller(t, us).Exchange(t.Context(), targetOf(b, addr), Request{Method: "GET", Path: "/"})
	var e *Error
	if !errors.As(err, &e) || e.Reason != ReasonBadAnswer {
		t.Errorf("%v", err)
	}
}

// What calls need is not lost to a check that comes in between.
func TestChecksDoNotSpoilCalls(t *testing.T) {
	b, us := endpointtest.New(t, endpointtest.IDA), endpointtest.New(t, endpointtest.IDB)
	waiting, release := make(chan struct{}), make(chan struct{})
	p := servePeer(t, b, "127.0.0.1:0", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/wait" {
			waiting <- struct{}{}
			<-release
		}
		echo(w, r)
	})
	get := Request{Method: "GET", Path: "/"}
	target := targetOf(b, p.addr)

	// The connection: a check while it is busy leaves another one behind.
	c := caller(t, us)
	mustIdentify(t, c, target)
	done := make(chan error)
	go func() {
		_, err := c.Exchange(t.Context(), target, Request{Method: "GET", Path: "/wait"})
		done <- err
	}()
	<-waiting
	c.sessions.forget(b.Key.Fingerprint())
	mustIdentify(t, c, target)
	close(release)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	before := p.conns.Load()
	mustExchange(t, c, target, get)
	if n := p.conns.Load() - before; n != 0 {
		t.Errorf("%d more connections", n)
	}

	// The session: a check that knows no key leaves another one behind.
	c = patient(Config{Issuer: us.Issuer})
	mustExchange(t, c, target, get)
	mustIdentify(t, c, peer.Target{Addrs: endpointtest.Addrs(p.addr)})
	resumed := p.resumed.Load()
	mustExchange(t, c, target, get)
	if p.resumed.Load() != resumed+1 {
		t.Error("the session for calls is gone")
	}

	// But one that the peer has forgotten makes way.
	restarted := servePeer(t, b, "127.0.0.2:0", echo)
	for range 2 {
		mustIdentify(t, c, targetOf(b, restarted.addr))
	}
	if restarted.resumed.Load() != 1 {
		t.Error("a dead session is kept")
	}
}

// The memory of sessions is bounded in bytes too.
func TestSessionsAreBoundedInBytes(t *testing.T) {
	b := endpointtest.New(t, endpointtest.IDA)
	p := servePeer(t, b, "127.0.0.1:0", echo)
	c := patient(Config{Issuer: endpointtest.New(t, endpointtest.IDB).Issuer, MaxSessions: 10})
	mustExchange(t, c, targetOf(b, p.addr), Request{Method: "GET", Path: "/"})
	s, ok := c.sessions.get(b.Key.Fingerprint(), 1)
	if !ok || s.id != endpointtest.IDA {
		t.Fatalf("no session, or not the peer's: %q", s.id)
	}
	ticket, state, err := s.state.ResumptionState()
	if err != nil {
		t.Fatal(err)
	}
	large := func(size int) session {
		padded, err := tls.NewResumptionState(slices.Concat(ticket, make([]byte, size)), state)
		if err != nil {
			t.Fatal(err)
		}
		return session{state: padded, epoch: 1}
	}
	c.sessions.put(peer.Fingerprint{99}, large(maxSession))
	if _, ok := c.sessions.get(peer.Fingerprint{99}, 0); ok {
		t.Error("a session that is too large is kept")
	}
	for i := range byte(10) {
		c.sessions.put(peer.Fingerprint{i, 1}, large(8<<10))
	}
	sum := 0
	for _, e := range c.sessions.byKey {
		sum += e.Value.(*cachedSession).size()
	}
	if sum != c.sessions.bytes || sum > 10*meanSession || sum < meanSession {
		t.Errorf("%d bytes are kept, %d are counted", sum, c.sessions.bytes)
	}
	if _, ok := c.sessions.get(peer.Fingerprint{9, 1}, 1); !ok {
		t.Error("the last one is not kept")
	}
	for fp := range c.sessions.byKey {
		c.sessions.drop(fp)
		c.sessions.forget(fp)
	}
	if c.sessions.bytes != 0 {
		t.Errorf("%d bytes are counted for nothing", c.sessions.bytes)
	}
}

// same reports whether two results say the same, apart from what was shown.
func same(a, b Result) bool {
	return a.Identity == b.Identity && a.Fingerprint == b.Fingerprint && a.Addr == b.Addr && a.URL == b.URL
}

// What a peer speaks is told by its answers, to checks as to calls.
func TestVersionsOfPeers(t *testing.T) {
	b, us := endpointtest.New(t, endpointtest.IDA), endpointtest.New(t, endpointtest.IDB)
	body := fmt.Sprintf(`{"clusterId":%q,"clusterName":"b","guestNamespace":"c"}`, endpointtest.IDA)
	for header, want := range map[string]peer.Protocol{
		"":                                 {Oldest: 1, Newest: 1},
		wire.ProtocolHeader + ": 1\r\n":    {Oldest: 1, Newest: 1},
		wire.ProtocolHeader + ": 2-4\r\n":  {Oldest: 2, Newest: 4},
		wire.ProtocolHeader + ": 4-2\r\n":  {Oldest: 1, Newest: 1},
		"liqo-protocol:   3  \r\nX: y\r\n": {Oldest: 3, Newest: 3},
	} {
		addr := endpointtest.ListenTLS(t, "127.0.0.1", b, endpointtest.Answering("HTTP/1.1 200 OK\r\n"+header+fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(body), body)))
		c := caller(t, us)
		if resp := mustExchange(t, c, targetOf(b, addr), Request{Method: "GET", Path: "/"}); resp.Result.Protocol != want {
			t.Errorf("call, %q: %v, want %v", header, resp.Result.Protocol, want)
		}
		result, err := c.Identify(t.Context(), targetOf(b, addr))
		if err != nil || result.Protocol != want {
			t.Errorf("check, %q: %v, %v, want %v", header, result.Protocol, err, want)
		}
	}
}

func TestRefusalIsWhatTheProtocolSays(t *testing.T) {
	body, err := json.Marshal(wire.Refusal{Error: "e", Reason: "R"})
	if err != nil {
		t.Fatal(err)
	}
	if got := (Response{Body: body}).Refusal(); got != (wire.Refusal{Error: "e", Reason: "R"}) {
		t.Errorf("%+v", got)
	}
}
