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

	"liqo.io/agent/api"
	"liqo.io/agent/peer"
	"liqo.io/agent/trust"
)

// ledger decides about callers in tests and remembers what they called.
type ledger struct {
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

// pin returns a ledger that trusts the keys of these clusters.
func pin(boxes ...*box) *ledger {
	l := &ledger{pinned: map[peer.ClusterID]peer.Fingerprint{}, blocked: map[peer.ClusterID]bool{}}
	for _, b := range boxes {
		l.pinned[b.identity.ClusterID] = b.key.Fingerprint()
	}
	return l
}

func (l *ledger) Admit(id peer.ClusterID, shown trust.Shown) Standing {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.admitted++
	switch {
	case l.blocked[id]:
		return Shut
	case l.pinned[id] == shown.Fingerprint || shown.Succeeds(l.pinned[id]):
		if l.ended {
			return Suspended
		}
		return Known
	}
	return Stranger
}

// end has the certificates of the trusted ones end, or be renewed.
func (l *ledger) end(ended bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = ended
}

func (l *ledger) note(ctx context.Context, c Caller, call string) {
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

func (l *ledger) Ask(ctx context.Context, c Caller, a Ask) Answer {
	l.note(ctx, c, fmt.Sprintf("ask %s %d %s %s %v", a.Identity.ClusterID, a.Port, a.URL, a.Token, a.Fresh))
	return Answer{Auth: api.AuthPending, Reason: ReasonAsksPerson, Message: "a person decides"}
}

func (l *ledger) State(ctx context.Context, c Caller, g Greeting) State {
	l.note(ctx, c, fmt.Sprintf("state %s %d %s", g.Identity.ClusterID, g.Port, g.URL))
	return State{Kubernetes: true, Consumes: true}
}

func (l *ledger) Withdraw(ctx context.Context, c Caller, w Withdrawal) error {
	l.note(ctx, c, fmt.Sprintf("withdraw %v %v %s", w.Request, w.Advertisement, w.Reason))
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.broken {
		return errors.New("the disk is full at /secret/place")
	}
	return nil
}

func (l *ledger) Notice(c Caller) { l.note(context.Background(), c, "notice") }

func (l *ledger) block(id peer.ClusterID, blocked bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.blocked[id] = blocked
}

// taken returns the calls so far and forgets them.
func (l *ledger) taken() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	calls := l.calls
	l.calls = nil
	return calls
}

// servePeers runs a server for b whose callers l decides about.
func (b *box) servePeers(t testing.TB, l *ledger, g *Gateway, change func(*Server)) *Server {
	t.Helper()
	s := NewServer(ServerConfig{Listen: "127.0.0.1:0", Issuer: b.issuer, Identity: b.identify, Logger: b.logger(), Peers: l, Gateway: g})
	withoutRates(s)
	if change != nil {
		change(s)
	}
	if s.Port() == 0 { // change may have bound it
		if err := s.Listen(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	start(t, s)
	return s
}

// visitor sends requests as they are written, on one connection.
type visitor struct {
	*tls.Conn
	r *bufio.Reader
}

// visit connects to s like b, or with nil like somebody without a certificate.
func visit(t testing.TB, s *Server, b *box) *visitor {
	t.Helper()
	cfg := &tls.Config{InsecureSkipVerify: true}
	if b != nil {
		cfg.GetClientCertificate = b.issuer.GetClientCertificate
	}
	return visitWith(t, s, cfg)
}

func visitWith(t testing.TB, s *Server, cfg *tls.Config) *visitor {
	t.Helper()
	c, err := tls.Dial("tcp", at(s, "127.0.0.1").String(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return &visitor{c, bufio.NewReader(c)}
}

// reaction is what came back.
type reaction struct {
	status int
	header http.Header
	body   string
	Refusal
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

const idC, idD = peer.ClusterID("c"), peer.ClusterID("d")

// Every path for everybody.
func TestWhoMayDoWhat(t *testing.T) {
	home, known, stranger, shut := newBox(t, idA), newBox(t, idB), newBox(t, idC), newBox(t, idD)
	thief := newBox(t, idB) // says it is b, with a key of its own
	nameless := newBox(t, "")
	l := pin(known)
	l.block(idD, true)
	s := home.servePeers(t, l, nil, nil)
	ask, state := post(PathAsk, greeting("%s", "")), post(PathState, greeting("%s", ""))
	withdraw, notice := post(PathWithdraw, `{"request":true}`), post(PathNotice, "")
	fill := func(request string, b *box) string {
		if b == nil {
			return strings.Replace(request, "%s", "b", 1)
		}
		id := string(b.identity.ClusterID)
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
	paths := []string{get(PathIDs), ask, state, withdraw, notice, get("/kube/api"), get("/metrics"), get("/"), post("/kube", "")}
	for _, tc := range []struct {
		name   string
		from   *box
		want   string // for the paths in this order
		reason string // why not
	}{
		{"nobody", nil, "200 401 401 401 401 401 401 401 401", ReasonNoCertificate},
		{"a key without ID", nameless, "200 401 401 401 401 401 401 401 401", ReasonNoCertificate},
		{"a stranger", stranger, "200 200 403 403 403 403 404 404 404", ReasonNotTrusted},
		{"a thief of an ID", thief, "200 200 403 403 403 403 404 404 404", ReasonNotTrusted},
		{"a known peer", known, "200 200 200 200 200 503 404 404 404", ReasonNoAPIServer},
		{"a blocked peer", shut, "200 403 403 403 403 403 403 403 403", ReasonBlocked},
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
	for reason, want := range map[RefusalReason]uint64{
		RefusedNoCertificate: 16, RefusedNotTrusted: 8, RefusedBlocked: 8, RefusedPath: 9, RefusedNoAPIServer: 1,
	} {
		if refused[reason] != want {
			t.Errorf("%s was counted %d times, not %d", reason, refused[reason], want)
		}
	}
}

// Without Peers there is nothing but /ids.
func TestWithoutPeers(t *testing.T) {
	home, other := newBox(t, idA), newBox(t, idB)
	s := home.serve(t, "127.0.0.1:0", nil)
	for _, request := range []string{post(PathAsk, greeting(idB, "")), post(PathNotice, ""), get("/kube/api")} {
		if got := visit(t, s, other).send(request); got.status != http.StatusNotFound || got.Reason != ReasonNoSuchPath {
			t.Errorf("%.20q: %+v", request, got)
		}
	}
	if got := visit(t, s, other).send("OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n"); got.status != http.StatusNotFound {
		t.Errorf("OPTIONS *: %+v", got)
	}
}

// A decision takes effect with the next request on the same connection.
func TestBlockedWhileConnected(t *testing.T) {
	home, other := newBox(t, idA), newBox(t, idB)
	l := pin(other)
	s := home.servePeers(t, l, nil, nil)
	v := visit(t, s, other)
	if got := v.send(post(PathState, greeting(idB, ""))); got.status != http.StatusOK {
		t.Fatalf("%+v", got)
	}
	if n := s.Stats().Known; n != 1 {
		t.Errorf("%d connections of known clusters", n)
	}
	l.block(idB, true)
	if got := v.send(post(PathState, greeting(idB, ""))); got.status != http.StatusForbidden || got.Reason != ReasonBlocked {
		t.Errorf("%+v", got)
	}
	if n := s.Stats().Known; n != 0 {
		t.Errorf("%d connections of known clusters", n)
	}
	l.block(idB, false)
	if got := visit(t, s, other).send(post(PathState, greeting(idB, ""))); got.status != http.StatusOK {
		t.Errorf("unblocked: %+v", got)
	}
}

// Who is trusted by a certificate that has ended gets nothing, also on connections and
// tunnels that are open, and everything again with a newer one. It may not even ask.
func TestSuspended(t *testing.T) {
	home, other := newBox(t, idA), newBox(t, idB)
	l := pin(other)
	a := newAPIServer(t)
	a.watchable(t)
	s, _ := a.hosting(t, home, l, nil)
	link := other.link(t, s, home)
	resp := watch(t, link, podsOfB+"?watch=true")
	v := visit(t, s, other)
	calls := []string{post(PathState, greeting(idB, "")), post(PathAsk, greeting(idB, "")), post(PathNotice, ""), get(PathGateway + "apis/discovery.liqo.io/v1alpha1/peeringrequests/" + string(idB))}
	if got := v.send(calls[0]); got.status != http.StatusOK {
		t.Fatalf("%+v", got)
	}
	l.end(true)
	s.Recheck(idB)
	if _, err := io.ReadAll(resp.Body); err == nil {
		t.Error("the watch goes on, or ends in good order")
	}
	for _, call := range calls {
		if got := visit(t, s, other).send(call); got.status != http.StatusForbidden || got.Reason != ReasonCertificateEnded {
			t.Errorf("%s: %+v", call, got)
		}
	}
	if _, err := link.Namespace(t.Context(), "shop"); err == nil || !strings.Contains(err.Error(), "fleet sign") {
		t.Errorf("for a namespace: %v", err)
	} else if said := (interface{ NotAdmitted() bool })(nil); errors.As(err, &said) && said.NotAdmitted() {
		t.Errorf("it looks as if all were taken back: %v", err)
	}
	if got := v.send(calls[0]); got.Reason != ReasonCertificateEnded {
		t.Errorf("on a connection that was open: %+v", got)
	}
	if got := s.Stats(); got.Refused[RefusedSuspended] < uint64(len(calls)) || got.Known != 0 {
		t.Errorf("%+v", got)
	}
	if got := visit(t, s, other).send(get(PathIDs)); got.status != http.StatusOK {
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
	home, other := newBox(t, idA), newBox(t, idB)
	l := pin(other)
	s := home.servePeers(t, l, nil, nil)
	v := visit(t, s, other)
	for range 5 {
		if got := v.send(post(PathState, greeting(idB, ""))); got.status != http.StatusOK {
			t.Fatalf("%+v", got)
		}
	}
	if l.admitted != 5 {
		t.Errorf("asked %d times", l.admitted)
	}
	for _, c := range l.callers {
		if c.ID != idB || c.Shown.Fingerprint != other.key.Fingerprint() || c.Standing != Known || c.Source.String() != "127.0.0.1" {
			t.Errorf("caller %+v", c)
		}
	}
}

func TestProofIsFoundOutOnce(t *testing.T) {
	home, other := newBox(t, idA), newBox(t, idB)
	s := NewServer(ServerConfig{Issuer: home.issuer, Identity: home.identify, Logger: home.logger(), Peers: pin(other)})
	chain, err := other.issuer.GetClientCertificate(nil)
	if err != nil {
		t.Fatal(err)
	}
	c, r := new(conn), &http.Request{TLS: &tls.ConnectionState{PeerCertificates: []*x509.Certificate{chain.Leaf, other.key.CA()}}}
	first := s.proofOf(r, c)
	if first.id != idB || first.problem != "" {
		t.Errorf("%+v", first)
	}
	if s.proofOf(r, c) != first {
		t.Error("found out again")
	}
}

func TestResumedSessionsKeepTheCaller(t *testing.T) {
	home, other, third := newBox(t, idA), newBox(t, idB), newBox(t, idC)
	l := pin(other)
	s := home.servePeers(t, l, nil, nil)
	cfg := &tls.Config{
		InsecureSkipVerify: true, ServerName: "x", ClientSessionCache: tls.NewLRUClientSessionCache(1),
		GetClientCertificate: other.issuer.GetClientCertificate,
	}
	for i := range 3 {
		if i == 2 {
			// What would be shown now is not asked for: the session says who began it.
			cfg.GetClientCertificate = third.issuer.GetClientCertificate
		}
		v := visitWith(t, s, cfg)
		if got := v.send(post(PathState, greeting(idB, ""))); got.status != http.StatusOK {
			t.Fatalf("connection %d: %+v", i, got)
		}
		if resumed := v.ConnectionState().DidResume; resumed != (i > 0) {
			t.Errorf("connection %d: resumed %v", i, resumed)
		}
		if c := l.callers[i]; c.ID != idB || c.Shown.Fingerprint != other.key.Fingerprint() {
			t.Errorf("connection %d: caller %+v", i, c)
		}
		v.Close()
	}
	l.block(idB, true)
	if got := visitWith(t, s, cfg).send(post(PathState, greeting(idB, ""))); got.Reason != ReasonBlocked {
		t.Errorf("blocked: %+v", got)
	}
}

// Whoever follows a rotated key finds the certificates to do so in Shown.
func TestCallersShowSuccessions(t *testing.T) {
	home := newBox(t, idA)
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
	second := newBox(t, idB)
	second.issuer = trust.NewIssuer(key, func() peer.ClusterID { return idB })
	l := pin()
	l.pinned[idB] = first.Fingerprint()
	s := home.servePeers(t, l, nil, nil)
	if got := visit(t, s, second).send(post(PathAsk, greeting(idB, ""))); got.status != http.StatusOK {
		t.Fatalf("%+v", got)
	}
	if l.callers[0].Standing != Stranger {
		t.Error("followed nine rotations: eight are shown")
	}
	chain, err := second.issuer.GetClientCertificate(nil)
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
	eventually(t, "count", func() bool { return s.Stats().Refused[RefusedHandshake] == 2 })
}

// A handshake that brings more than any honest one is not read to its end.
func TestHandshakeIsBounded(t *testing.T) {
	home, other := newBox(t, idA), newBox(t, idB)
	s := home.servePeers(t, pin(), nil, nil)
	chain, err := other.issuer.GetClientCertificate(nil)
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
	eventually(t, "count", func() bool { return s.Stats().Refused[RefusedHandshake] == 1 })

	// The bound ends with the first request: later ones bring more in all.
	v := visit(t, s, other)
	for i := range 40 {
		if got := v.send(post(PathAsk, greeting(idB, `,"later":"`+strings.Repeat("x", 8<<10)+`"`))); got.status != http.StatusOK {
			t.Fatalf("request %d: %+v", i, got)
		}
	}
}

// What goes wrong inside is logged here and not told there.
func TestWithdrawalThatFails(t *testing.T) {
	home, other := newBox(t, idA), newBox(t, idB)
	l := pin(other)
	l.broken = true
	var log strings.Builder
	s := home.servePeers(t, l, nil, func(s *Server) { s.cfg.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	v := visit(t, s, other)
	got := v.send(post(PathWithdraw, `{"request":true,"advertisement":true,"reason":"a\u001b[31mb\nc"}`))
	if got.status != http.StatusServiceUnavailable || got.Reason != ReasonFailed || got.header.Get("Retry-After") != "1" {
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
	if got := v.send(post(PathWithdraw, `{}`)); got.status != http.StatusOK || got.body != "{}" {
		t.Errorf("%+v", got)
	}
}
