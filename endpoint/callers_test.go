package endpoint

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"liqo.io/agent/api"
	"liqo.io/agent/endpoint/gateway"
	"liqo.io/agent/endpoint/guard"
	"liqo.io/agent/endpoint/refusal"
	"liqo.io/agent/endpoint/wire"
	"liqo.io/agent/internal/endpointtest"
	"liqo.io/agent/peer"
	"liqo.io/agent/trust"
)

// decisions decides about callers in tests and remembers what they called.
type decisions struct {
	mu       sync.Mutex
	pinned   map[peer.ClusterID]peer.Fingerprint
	blocked  map[peer.ClusterID]bool
	ended    bool // the certificates of all those who are trusted have
	calls    []string
	callers  []Caller
	admitted int
	broken   bool          // it cannot write
	entered  chan struct{} // if not nil, told of every call,
	release  chan struct{} // which then waits for this
}

// pin returns a decision store that trusts the keys of these clusters.
func pin(boxes ...*endpointtest.Box) *decisions {
	l := &decisions{pinned: map[peer.ClusterID]peer.Fingerprint{}, blocked: map[peer.ClusterID]bool{}}
	for _, b := range boxes {
		l.pinned[b.Identity.ClusterID] = b.Key.Fingerprint()
	}
	return l
}

func (l *decisions) Admit(id peer.ClusterID, shown trust.Shown) AccessLevel {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.admitted++
	switch {
	case l.blocked[id]:
		return Blocked
	case l.pinned[id] == shown.Fingerprint || shown.Succeeds(l.pinned[id]):
		if l.ended {
			return Suspended
		}
		return Known
	}
	return Stranger
}

// end has the certificates of the trusted ones end, or be renewed.
func (l *decisions) end(ended bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = ended
}

func (l *decisions) note(ctx context.Context, c Caller, call string) {
	l.mu.Lock()
	l.calls = append(l.calls, call)
	l.callers = append(l.callers, c)
	l.mu.Unlock()
	if l.entered != nil {
		l.entered <- struct{}{}
		select {
		case <-l.release:
		case <-ctx.Done():
		}
	}
}

func (l *decisions) Ask(ctx context.Context, c Caller, a wire.Ask) wire.Answer {
	l.note(ctx, c, fmt.Sprintf("ask %s %d %s %s %v", a.Identity.ClusterID, a.Port, a.URL, a.Token, a.Fresh))
	return wire.Answer{Auth: api.AuthPending, Reason: wire.ReasonAsksPerson, Message: "a person decides"}
}

func (l *decisions) State(ctx context.Context, c Caller, g wire.Greeting) wire.State {
	l.note(ctx, c, fmt.Sprintf("state %s %d %s", g.Identity.ClusterID, g.Port, g.URL))
	return wire.State{Kubernetes: true, Consumes: true}
}

func (l *decisions) Withdraw(ctx context.Context, c Caller, w wire.Withdrawal) error {
	l.note(ctx, c, fmt.Sprintf("withdraw %v %v %s", w.Request, w.Advertisement, w.Reason))
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.broken {
		return errors.New("the disk is full at /secret/place")
	}
	return nil
}

func (l *decisions) Notice(c Caller) { l.note(context.Background(), c, "notice") }

func (l *decisions) block(id peer.ClusterID, blocked bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.blocked[id] = blocked
}

// taken returns the calls so far and forgets them.
func (l *decisions) taken() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	calls := l.calls
	l.calls = nil
	return calls
}

// servePeers runs a server for b whose callers l decides about.
func servePeers(t testing.TB, b *endpointtest.Box, l *decisions, g *gateway.Gateway, change func(*Server)) *Server {
	t.Helper()
	s := NewServer(ServerConfig{Listen: "127.0.0.1:0", Issuer: b.Issuer, Identity: b.Identify, Logger: b.Logger(), Peers: l, Gateway: g})
	withoutRates(s)
	patient(s)
	if change != nil {
		change(s)
	}
	if s.Port() == 0 { // change may have bound it
		if err := s.Listen(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	endpointtest.Start(t, s)
	return s
}

// visitor sends requests as they are written, on one connection.
type visitor struct {
	*tls.Conn
	r *bufio.Reader
}

// visit connects to s like b, or with nil like somebody without a certificate.
func visit(t testing.TB, s *Server, b *endpointtest.Box) *visitor {
	t.Helper()
	return visitWith(t, s, showing(b))
}

// showing is the configuration of who shows the certificate of b, or none if that is nil.
func showing(b *endpointtest.Box) *tls.Config {
	cfg := &tls.Config{InsecureSkipVerify: true}
	if b != nil {
		cfg.GetClientCertificate = b.Issuer.GetClientCertificate
	}
	return cfg
}

func visitWith(t testing.TB, s *Server, cfg *tls.Config) *visitor {
	t.Helper()
	v, err := tryVisit(t, s, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// tryVisit is visitWith, for a server that may have too little time for a handshake.
func tryVisit(t testing.TB, s *Server, cfg *tls.Config) (*visitor, error) {
	t.Helper()
	c, err := tls.Dial("tcp", at(s, "127.0.0.1").String(), cfg)
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { c.Close() })
	return &visitor{c, bufio.NewReader(c)}, nil
}

// untilQuick begins something with a short time for it, and anew with longer ones while that is too short for this machine. It
// returns the time that was enough.
func untilQuick(t testing.TB, begin func(short time.Duration) error) time.Duration {
	t.Helper()
	short := time.Second
	for {
		err := begin(short)
		switch {
		case err == nil:
			return short
		case short >= time.Minute:
			t.Fatal(err)
		}
		t.Logf("%v are too short: %v", short, err)
		short *= 4
	}
}

// reaction is what came back.
type reaction struct {
	status int
	header http.Header
	body   string
	wire.Refusal
	err error
}

// send sends request, which may be several writes, and reads the answer.
func (v *visitor) send(request string) reaction {
	// The server may answer and close before it has read everything.
	_, _ = io.WriteString(v, request)
	resp, err := http.ReadResponse(v.r, nil)
	if err != nil {
		return reaction{err: err}
	}
	body, err := io.ReadAll(resp.Body)
	got := reaction{status: resp.StatusCode, header: resp.Header, body: string(body), err: err}
	_ = json.Unmarshal(body, &got.Refusal)
	return got
}

// post returns a call as it should be.
func post(path, body string) string {
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", path, len(body), body)
}

func get(path string) string { return "GET " + path + " HTTP/1.1\r\nHost: x\r\n\r\n" }

func greeting(id peer.ClusterID, more string) string {
	return fmt.Sprintf(`{"identity":{"clusterId":%q,"clusterName":"mill","guestNamespace":"liqo"}%s}`, id, more)
}

// Every path for everybody.
func TestWhoMayDoWhat(t *testing.T) {
	home, known, stranger, shut := endpointtest.New(t, endpointtest.IDA), endpointtest.New(t, endpointtest.IDB), endpointtest.New(t, endpointtest.IDC), endpointtest.New(t, endpointtest.IDD)
	thief := endpointtest.New(t, endpointtest.IDB) // says it is b, with a key of its own
	nameless := endpointtest.New(t, "")
	l := pin(known)
	l.block(endpointtest.IDD, true)
	s := servePeers(t, home, l, nil, nil)
	ask, state := post(wire.PathAsk, greeting("%s", "")), post(wire.PathState, greeting("%s", ""))
	withdraw, notice := post(wire.PathWithdraw, `{"request":true}`), post(wire.PathNotice, "")
	fill := func(request string, b *endpointtest.Box) string {
		if b == nil {
			return strings.Replace(request, "%s", "b", 1)
		}
		id := string(b.Identity.ClusterID)
		if id == "" {
			id = "e"
		}
		request = strings.Replace(request, "%s", id, 1)
		head, body, _ := strings.Cut(request, "\r\n\r\n")
		if body == "" {
			return request
		}
		first, _, _ := strings.Cut(head, "\r\nContent-Length")
		return fmt.Sprintf("%s\r\nContent-Length: %d\r\n\r\n%s", first, len(body), body)
	}
	paths := []string{get(wire.PathIDs), ask, state, withdraw, notice, get("/kube/api"), get("/metrics"), get("/"), post("/kube", "")}
	for _, tc := range []struct {
		name   string
		from   *endpointtest.Box
		want   string // for the paths in this order
		reason string // why not
	}{
		{"nobody", nil, "200 401 401 401 401 401 401 401 401", wire.ReasonNoCertificate},
		{"a key without ID", nameless, "200 401 401 401 401 401 401 401 401", wire.ReasonNoCertificate},
		{"a stranger", stranger, "200 200 403 403 403 403 404 404 404", wire.ReasonNotTrusted},
		{"a thief of an ID", thief, "200 200 403 403 403 403 404 404 404", wire.ReasonNotTrusted},
		{"a known peer", known, "200 200 200 200 200 503 404 404 404", wire.ReasonNoAPIServer},
		{"a blocked peer", shut, "200 403 403 403 403 403 403 403 403", wire.ReasonBlocked},
	} {
		got, calls := "", []string(nil)
		for _, request := range paths {
			answer := visit(t, s, tc.from).send(fill(request, tc.from))
			got += fmt.Sprint(" ", answer.status)
			calls = append(calls, l.taken()...)
			if answer.status == http.StatusOK {
				continue
			}
			if answer.status != http.StatusNotFound && answer.Reason != tc.reason {
				t.Errorf("%s: %s: reason %q", tc.name, strings.SplitN(request, " HTTP", 2)[0], answer.Reason)
			}
			if len(answer.Error) < 20 || answer.header.Get("Content-Type") != "application/json" {
				t.Errorf("%s: %q as %s", tc.name, answer.body, answer.header)
			}
		}
		if got[1:] != tc.want {
			t.Errorf("%s:\n got %s\nwant %s", tc.name, got[1:], tc.want)
		}
		if n := strings.Count(tc.want[4:], "200"); len(calls) != n {
			t.Errorf("%s: %d calls were answered, and %q arrived", tc.name, n, calls)
		}
	}
	refused := s.Stats().Refused
	for reason, want := range map[refusal.Reason]uint64{
		refusal.NoCertificate: 16, refusal.NotTrusted: 8, refusal.Blocked: 8, refusal.Path: 9, refusal.APIServer: 1,
	} {
		if refused[reason] != want {
			t.Errorf("%s was counted %d times, not %d", reason, refused[reason], want)
		}
	}
}

// Without Peers there is nothing but /ids.
func TestWithoutPeers(t *testing.T) {
	home, other := endpointtest.New(t, endpointtest.IDA), endpointtest.New(t, endpointtest.IDB)
	s := serve(t, home, "127.0.0.1:0", nil)
	for _, request := range []string{post(wire.PathAsk, greeting(endpointtest.IDB, "")), post(wire.PathNotice, ""), get("/kube/api")} {
		if got := visit(t, s, other).send(request); got.status != http.StatusNotFound || got.Reason != wire.ReasonNoSuchPath {
			t.Errorf("%.20q: %+v", request, got)
		}
	}
	if got := visit(t, s, other).send("OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n"); got.status != http.StatusNotFound {
		t.Errorf("OPTIONS *: %+v", got)
	}
}

// A decision takes effect with the next request on the same connection.
func TestBlockedWhileConnected(t *testing.T) {
	home, other := endpointtest.New(t, endpointtest.IDA), endpointtest.New(t, endpointtest.IDB)
	l := pin(other)
	s := servePeers(t, home, l, nil, nil)
	v := visit(t, s, other)
	if got := v.send(post(wire.PathState, greeting(endpointtest.IDB, ""))); got.status != http.StatusOK {
		t.Fatalf("%+v", got)
	}
	if n := s.Stats().Known; n != 1 {
		t.Errorf("%d connections of known clusters", n)
	}
	l.block(endpointtest.IDB, true)
	if got := v.send(post(wire.PathState, greeting(endpointtest.IDB, ""))); got.status != http.StatusForbidden || got.Reason != wire.ReasonBlocked {
		t.Errorf("%+v", got)
	}
	if n := s.Stats().Known; n != 0 {
		t.Errorf("%d connections of known clusters", n)
	}
	l.block(endpointtest.IDB, false)
	if got := visit(t, s, other).send(post(wire.PathState, greeting(endpointtest.IDB, ""))); got.status != http.StatusOK {
		t.Errorf("unblocked: %+v", got)
	}
}

// Who is trusted by a certificate that has ended gets nothing, also on connections and
// tunnels that are open, and everything again with a newer one. It may not even ask.
func TestSuspended(t *testing.T) {
	home, other := endpointtest.New(t, endpointtest.IDA), endpointtest.New(t, endpointtest.IDB)
	l := pin(other)
	a := newAPIServer(t)
	a.watchable(t)
	s, _ := a.hosting(t, home, l, nil)
	link := newLink(t, other, s, home)
	resp := endpointtest.Watch(t, link, endpointtest.PodsOfB+"?watch=true")
	v := visit(t, s, other)
	calls := []string{post(wire.PathState, greeting(endpointtest.IDB, "")), post(wire.PathAsk, greeting(endpointtest.IDB, "")), post(wire.PathNotice, ""), get(wire.PathGateway + "apis/discovery.liqo.io/v1alpha1/peeringrequests/" + string(endpointtest.IDB))}
	if got := v.send(calls[0]); got.status != http.StatusOK {
		t.Fatalf("%+v", got)
	}
	l.end(true)
	s.Recheck(endpointtest.IDB)
	if _, err := io.ReadAll(resp.Body); err == nil {
		t.Error("the watch goes on, or ends in good order")
	}
	for _, call := range calls {
		if got := visit(t, s, other).send(call); got.status != http.StatusForbidden || got.Reason != wire.ReasonCertificateEnded {
			t.Errorf("%s: %+v", call, got)
		}
	}
	if _, err := link.Namespace(t.Context(), "shop"); err == nil || !strings.Contains(err.Error(), "fleet sign") {
		t.Errorf("for a namespace: %v", err)
	} else if said := (interface{ NotAdmitted() bool })(nil); errors.As(err, &said) && said.NotAdmitted() {
		t.Errorf("it looks as if all were taken back: %v", err)
	}
	if got := v.send(calls[0]); got.Reason != wire.ReasonCertificateEnded {
		t.Errorf("on a connection that was open: %+v", got)
	}
	if got := s.Stats(); got.Refused[refusal.Suspended] < uint64(len(calls)) || got.Known != 0 {
		t.Errorf("%+v", got)
	}
	if got := visit(t, s, other).send(get(wire.PathIDs)); got.status != http.StatusOK {
		t.Errorf("who we are is for anyone: %+v", got)
	}
	l.end(false)
	if got := visit(t, s, other).send(calls[0]); got.status != http.StatusOK {
		t.Errorf("with a newer certificate: %+v", got)
	}
}

// A request costs no parsing: whose connection it is does not change. How far it
// may go is asked every time.
func TestProofIsKeptWithTheConnection(t *testing.T) {
	home, other := endpointtest.New(t, endpointtest.IDA), endpointtest.New(t, endpointtest.IDB)
	l := pin(other)
	s := servePeers(t, home, l, nil, nil)
	v := visit(t, s, other)
	for range 5 {
		if got := v.send(post(wire.PathState, greeting(endpointtest.IDB, ""))); got.status != http.StatusOK {
			t.Fatalf("%+v", got)
		}
	}
	if l.admitted != 5 {
		t.Errorf("asked %d times", l.admitted)
	}
	for _, c := range l.callers {
		if c.ID != endpointtest.IDB || c.Shown.Fingerprint != other.Key.Fingerprint() || c.Access != Known || c.Source.String() != "127.0.0.1" {
			t.Errorf("caller %+v", c)
		}
	}
}

func TestProofIsFoundOutOnce(t *testing.T) {
	home, other := endpointtest.New(t, endpointtest.IDA), endpointtest.New(t, endpointtest.IDB)
	s := NewServer(ServerConfig{Issuer: home.Issuer, Identity: home.Identify, Logger: home.Logger(), Peers: pin(other)})
	chain, err := other.Issuer.GetClientCertificate(nil)
	if err != nil {
		t.Fatal(err)
	}
	c, r := new(conn), &http.Request{TLS: &tls.ConnectionState{PeerCertificates: []*x509.Certificate{chain.Leaf, other.Key.CA()}}}
	first := s.proofOf(r, c)
	if first.id != endpointtest.IDB || first.problem != "" {
		t.Errorf("%+v", first)
	}
	if s.proofOf(r, c) != first {
		t.Error("found out again")
	}
}

func TestResumedSessionsKeepTheCaller(t *testing.T) {
	home, other, third := endpointtest.New(t, endpointtest.IDA), endpointtest.New(t, endpointtest.IDB), endpointtest.New(t, endpointtest.IDC)
	l := pin(other)
	s := servePeers(t, home, l, nil, nil)
	cfg := &tls.Config{
		InsecureSkipVerify: true, ServerName: "x", ClientSessionCache: tls.NewLRUClientSessionCache(1),
		GetClientCertificate: other.Issuer.GetClientCertificate,
	}
	for i := range 3 {
		if i == 2 {
			// What would be shown now is not asked for: the session says who began it.
			cfg.GetClientCertificate = third.Issuer.GetClientCertificate
		}
		v := visitWith(t, s, cfg)
		if got := v.send(post(wire.PathState, greeting(endpointtest.IDB, ""))); got.status != http.StatusOK {
			t.Fatalf("connection %d: %+v", i, got)
		}
		if resumed := v.ConnectionState().DidResume; resumed != (i > 0) {
			t.Errorf("connection %d: resumed %v", i, resumed)
		}
		if c := l.callers[i]; c.ID != endpointtest.IDB || c.Shown.Fingerprint != other.Key.Fingerprint() {
			t.Errorf("connection %d: caller %+v", i, c)
		}
		v.Close()
	}
	l.block(endpointtest.IDB, true)
	if got := visitWith(t, s, cfg).send(post(wire.PathState, greeting(endpointtest.IDB, ""))); got.Reason != wire.ReasonBlocked {
		t.Errorf("blocked: %+v", got)
	}
}

// Whoever follows a rotated key finds the certificates to do so in Shown.
func TestCallersShowSuccessions(t *testing.T) {
	home := endpointtest.New(t, endpointtest.IDA)
	dir := t.TempDir()
	first, err := trust.LoadOrCreateKey(dir)
	if err != nil {
		t.Fatal(err)
	}
	key := first
	for range 9 {
		if key, err = trust.Rotate(dir, key); err != nil {
			t.Fatal(err)
		}
	}
	second := endpointtest.New(t, endpointtest.IDB)
	second.Issuer = trust.NewIssuer(key, func() peer.ClusterID { return endpointtest.IDB })
	l := pin()
	l.pinned[endpointtest.IDB] = first.Fingerprint()
	s := servePeers(t, home, l, nil, nil)
	if got := visit(t, s, second).send(post(wire.PathAsk, greeting(endpointtest.IDB, ""))); got.status != http.StatusOK {
		t.Fatalf("%+v", got)
	}
	if l.callers[0].Access != Stranger {
		t.Error("followed nine rotations: eight are shown")
	}
	chain, err := second.Issuer.GetClientCertificate(nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(chain.Certificate) != 10 {
		t.Errorf("shows %d certificates", len(chain.Certificate))
	}

	// One more than there can be, and far more than that.
	for _, n := range []int{12, 200} {
		long := *chain
		long.Certificate = slices.Clone(chain.Certificate)
		for len(long.Certificate) < n {
			long.Certificate = append(long.Certificate, chain.Certificate[2])
		}
		c, err := dialTLS(t, s, &tls.Config{Certificates: []tls.Certificate{long}})
		if err == nil {
			_, err = getIDs(c)
		}
		if err == nil {
			t.Errorf("%d certificates are accepted", n)
		}
	}
	endpointtest.Eventually(t, "count", func() bool { return s.Stats().Refused[guard.RefusedHandshake] == 2 })
}

// A handshake that brings more than any honest one is not read to its end.
func TestHandshakeIsBounded(t *testing.T) {
	home, other := endpointtest.New(t, endpointtest.IDA), endpointtest.New(t, endpointtest.IDB)
	s := servePeers(t, home, pin(), nil, nil)
	chain, err := other.Issuer.GetClientCertificate(nil)
	if err != nil {
		t.Fatal(err)
	}
	long := *chain
	size := 0
	for long.Certificate = slices.Clone(chain.Certificate); size < 200<<10; size += len(chain.Certificate[1]) {
		long.Certificate = append(long.Certificate, chain.Certificate[1])
	}
	c, err := dialTLS(t, s, &tls.Config{Certificates: []tls.Certificate{long}})
	if err == nil {
		_, err = getIDs(c)
	}
	if err == nil {
		t.Error("it was read")
	}
	endpointtest.Eventually(t, "count", func() bool { return s.Stats().Refused[guard.RefusedHandshake] == 1 })

	// The bound ends with the first request: later ones bring more in all.
	v := visit(t, s, other)
	for i := range 40 {
		if got := v.send(post(wire.PathAsk, greeting(endpointtest.IDB, `,"later":"`+strings.Repeat("x", 8<<10)+`"`))); got.status != http.StatusOK {
			t.Fatalf("request %d: %+v", i, got)
		}
	}
}

// What goes wrong inside is logged here and not told there.
func TestWithdrawalThatFails(t *testing.T) {
	home, other := endpointtest.New(t, endpointtest.IDA), endpointtest.New(t, endpointtest.IDB)
	l := pin(other)
	l.broken = true
	var log strings.Builder
	s := servePeers(t, home, l, nil, func(s *Server) { s.cfg.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	v := visit(t, s, other)
	got := v.send(post(wire.PathWithdraw, `{"request":true,"advertisement":true,"reason":"a\u001b[31mb\nc"}`))
	if got.status != http.StatusServiceUnavailable || got.Reason != wire.ReasonFailed || got.header.Get("Retry-After") != "1" {
		t.Errorf("%+v", got)
	}
	if strings.Contains(got.body, "secret") || !strings.Contains(log.String(), "secret") {
		t.Errorf("answered %s\nlogged %s", got.body, log.String())
	}
	if calls := l.taken(); len(calls) != 1 || calls[0] != "withdraw true true a [31mb c" {
		t.Errorf("%q", calls)
	}
	l.mu.Lock()
	l.broken = false
	l.mu.Unlock()
	// The connection of a known peer goes on.
	if got := v.send(post(wire.PathWithdraw, `{}`)); got.status != http.StatusOK || got.body != "{}" {
		t.Errorf("%+v", got)
	}
}
