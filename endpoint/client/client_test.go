package client

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"liqo.io/agent/internal/endpointtest"
	"liqo.io/agent/peer"
	"liqo.io/agent/trust"
)

// reasonOf runs Identify, which must fail with an *Error.
func reasonOf(t *testing.T, c *Client, target peer.Target) *Error {
	t.Helper()
	_, err := c.Identify(t.Context(), target)
	var e *Error
	if !errors.As(err, &e) {
		t.Fatalf("error %v", err)
	}
	return e
}

func TestIdentify(t *testing.T) {
	b := endpointtest.New(t, endpointtest.IDA)
	s := serve(t, b, "127.0.0.1:0")
	addr := at(s, "127.0.0.1")
	c := patient(Config{SelfFingerprint: endpointtest.New(t, endpointtest.IDB).Key.Fingerprint()})
	want := Result{Identity: b.Identity, Fingerprint: b.Key.Fingerprint(), Addr: addr, URL: "https://" + addr.String()}
	for name, target := range map[string]peer.Target{
		"learn":         {Addrs: endpointtest.Addrs(addr)},
		"pinned":        {ID: endpointtest.IDA, Fingerprint: b.Key.Fingerprint(), Addrs: endpointtest.Addrs(addr)},
		"again":         {ID: endpointtest.IDA, Fingerprint: b.Key.Fingerprint(), Addrs: endpointtest.Addrs(addr)},
		"mapped":        {Addrs: endpointtest.Addrs(netip.AddrPortFrom(netip.AddrFrom16(addr.Addr().As16()), addr.Port()))},
		"URL":           {URL: "https://" + addr.String() + "/"},
		"dead and then": {Fingerprint: b.Key.Fingerprint(), Addrs: endpointtest.Addrs(endpointtest.DeadPort(t), addr)},
		"dead then URL": {Fingerprint: b.Key.Fingerprint(), Addrs: endpointtest.Addrs(endpointtest.DeadPort(t)), URL: "https://" + addr.String()},
	} {
		got, err := c.Identify(t.Context(), target)
		if err != nil || !same(got, want) || !got.Shown.CA.Equal(b.Key.CA()) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
		if off := time.Since(got.Date); off < 0 || off > time.Minute {
			t.Errorf("%s: its clock says %v", name, got.Date)
		}
	}

	name := "https://localhost:" + addr.String()[strings.LastIndex(addr.String(), ":")+1:]
	got, err := c.Identify(t.Context(), peer.Target{URL: name})
	if err != nil || got.URL != name || got.Fingerprint != b.Key.Fingerprint() {
		t.Errorf("%s: %+v, %v", name, got, err)
	}
}

func TestIdentifyFailures(t *testing.T) {
	self, right, wrong := endpointtest.New(t, "self"), endpointtest.New(t, endpointtest.IDA), endpointtest.New(t, endpointtest.IDB)
	selfAddr := at(serve(t, self, "127.0.0.1:0"), "127.0.0.1")
	rightAddr := at(serve(t, right, "127.0.0.2:0"), "127.0.0.2")
	wrongAddr := at(serve(t, wrong, "127.0.0.3:0"), "127.0.0.3")
	dead := endpointtest.DeadPort(t)
	http := "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
	answers := func(text string) netip.AddrPort {
		return endpointtest.ListenTLS(t, "127.0.0.2", right, endpointtest.Answering(text))
	}

	plainHTTP := endpointtest.ListenRaw(t, "127.0.0.4", func(c net.Conn) {
		_, _ = io.WriteString(c, "HTTP/1.0 400 Bad Request\r\n\r\nThis is not HTTPS")
		endpointtest.Silent(c)
	})
	ssh := endpointtest.ListenRaw(t, "127.0.0.4", func(c net.Conn) {
		_, _ = io.WriteString(c, "SSH-2.0-OpenSSH_9.2p1\r\n")
		endpointtest.Silent(c)
	})
	hangup := endpointtest.ListenRaw(t, "127.0.0.4", func(net.Conn) {})
	mute := endpointtest.ListenRaw(t, "127.0.0.4", endpointtest.Silent)
	oldTLS := endpointtest.ListenRaw(t, "127.0.0.4", func(c net.Conn) {
		_ = tls.Server(c, &tls.Config{GetCertificate: right.Issuer.GetCertificate, MaxVersion: tls.VersionTLS12}).Handshake()
	})
	// A chain that shows the right CA behind a leaf of another.
	forged := endpointtest.ListenRaw(t, "127.0.0.4", func(c net.Conn) {
		leaf, _ := wrong.Issuer.GetCertificate(nil)
		cert := *leaf
		cert.Certificate = [][]byte{leaf.Certificate[0], right.Key.CA().Raw}
		_ = tls.Server(c, &tls.Config{Certificates: []tls.Certificate{cert}}).Handshake()
	})
	// The right chain shown by somebody who does not have its key.
	replayed := endpointtest.ListenRaw(t, "127.0.0.4", func(c net.Conn) {
		cert, _ := right.Issuer.GetCertificate(nil)
		other, _ := wrong.Issuer.GetCertificate(nil)
		_ = tls.Server(c, &tls.Config{Certificates: []tls.Certificate{{Certificate: cert.Certificate, PrivateKey: other.PrivateKey}}}).Handshake()
	})

	pin := right.Key.Fingerprint()
	for _, tc := range []struct {
		name   string
		target peer.Target
		want   Reason
		says   string
	}{
		{"no address", peer.Target{}, ReasonUnreachable, "no address"},
		{"unusable addresses", peer.Target{Addrs: endpointtest.Addrs(netip.MustParseAddrPort("[fe80::1]:6447"), netip.AddrPort{}, netip.MustParseAddrPort("224.0.0.251:1"))}, ReasonUnreachable, "without its interface"},
		{"refused", peer.Target{Addrs: endpointtest.Addrs(dead)}, ReasonUnreachable, "connection refused"},
		{"hangs up", peer.Target{Addrs: endpointtest.Addrs(hangup)}, ReasonUnreachable, "did not complete TLS"},
		{"silent", peer.Target{Addrs: endpointtest.Addrs(mute)}, ReasonUnreachable, "no answer in time"},
		{"HTTP", peer.Target{Addrs: endpointtest.Addrs(plainHTTP)}, ReasonNotTLS, "does not speak TLS"},
		{"SSH", peer.Target{Addrs: endpointtest.Addrs(ssh)}, ReasonNotTLS, "does not speak TLS"},
		{"TLS 1.2", peer.Target{Addrs: endpointtest.Addrs(oldTLS)}, ReasonNotTLS, "TLS 1.3"},
		{"forged chain", peer.Target{Fingerprint: pin, Addrs: endpointtest.Addrs(forged)}, ReasonBadAnswer, "not show the certificate"},
		{"replayed chain", peer.Target{Fingerprint: pin, Addrs: endpointtest.Addrs(replayed)}, ReasonNotTLS, "invalid signature"},
		{"wrong key", peer.Target{Fingerprint: pin, Addrs: endpointtest.Addrs(wrongAddr)}, ReasonWrongKey, wrong.Key.Fingerprint().String()},
		{"wrong key and dead", peer.Target{Fingerprint: pin, Addrs: endpointtest.Addrs(dead, wrongAddr, plainHTTP)}, ReasonWrongKey, "connection refused"},
		{"wrong ID", peer.Target{ID: endpointtest.IDB, Fingerprint: pin, Addrs: endpointtest.Addrs(rightAddr)}, ReasonWrongID, string(endpointtest.IDA)},
		{"wrong ID and wrong key", peer.Target{ID: endpointtest.IDB, Fingerprint: pin, Addrs: endpointtest.Addrs(wrongAddr, rightAddr)}, ReasonWrongID, string(endpointtest.IDA)},
		{"self", peer.Target{Addrs: endpointtest.Addrs(selfAddr)}, ReasonSelf, "itself"},
		{"self, pinned", peer.Target{Fingerprint: self.Key.Fingerprint(), Addrs: endpointtest.Addrs(dead)}, ReasonSelf, "own"},
		{"self and dead, pinned to another", peer.Target{Fingerprint: pin, Addrs: endpointtest.Addrs(selfAddr, dead)}, ReasonUnreachable, "itself"},
		{"self and dead, learning", peer.Target{Addrs: endpointtest.Addrs(dead, selfAddr)}, ReasonSelf, "refused"},
		{"not an agent", peer.Target{Addrs: endpointtest.Addrs(answers("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"))}, ReasonBadAnswer, "status 404"},
		{"redirect", peer.Target{Addrs: endpointtest.Addrs(answers("HTTP/1.1 302 Found\r\nLocation: https://" + rightAddr.String() + "/ids\r\n\r\n"))}, ReasonBadAnswer, "status 302"},
		{"not HTTP", peer.Target{Addrs: endpointtest.Addrs(answers("hello\r\n\r\n"))}, ReasonBadAnswer, "HTTP"},
		{"not JSON", peer.Target{Addrs: endpointtest.Addrs(answers(http + "\r\nhello"))}, ReasonBadAnswer, "something else"},
		{"no answer", peer.Target{Fingerprint: pin, Addrs: endpointtest.Addrs(answers(""))}, ReasonUnreachable, "broke"},
		{"half a header", peer.Target{Fingerprint: pin, Addrs: endpointtest.Addrs(answers("HTTP/1.1 200"))}, ReasonUnreachable, "broke"},
		{"gzip", peer.Target{Addrs: endpointtest.Addrs(answers(http + "Content-Encoding: gzip\r\n\r\n\x1f\x8b\x08"))}, ReasonBadAnswer, "something else"},
		{"announced gigabytes", peer.Target{Addrs: endpointtest.Addrs(answers(http + "Content-Length: 10000000000\r\n\r\n"))}, ReasonBadAnswer, "more than"},
		{"huge header", peer.Target{Addrs: endpointtest.Addrs(answers(http + strings.Repeat("X: y\r\n", 10000)))}, ReasonBadAnswer, "more than"},
		{"huge header line", peer.Target{Addrs: endpointtest.Addrs(answers(http + "X: " + strings.Repeat("y", 100000)))}, ReasonBadAnswer, "more than"},
		{"endless body", peer.Target{Addrs: endpointtest.Addrs(endpointtest.ListenTLS(t, "127.0.0.2", right, func(c *tls.Conn) {
			endpointtest.ReadRequest(c)
			_, err := io.WriteString(c, http+"\r\n")
			for err == nil {
				_, err = io.WriteString(c, strings.Repeat(" ", 1000))
			}
		}))}, ReasonBadAnswer, "more than"},
		{"right key is silent, wrong key elsewhere", peer.Target{Fingerprint: pin, Addrs: endpointtest.Addrs(wrongAddr, endpointtest.ListenTLS(t, "127.0.0.2", right, func(c *tls.Conn) { endpointtest.Silent(c) }))}, ReasonUnreachable, "no answer in time"},
		{"URL of another kind", peer.Target{URL: "http://127.0.0.1:1"}, ReasonUnreachable, "https://host:port"},
		{"URL without a port", peer.Target{URL: "https://127.0.0.1:0"}, ReasonUnreachable, "between 1 and 65535"},
		{"name that does not exist", peer.Target{URL: "https://no-such-host.invalid:6447"}, ReasonUnreachable, "no-such-host.invalid"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			// Time is up only where nothing else can end the attempt.
			c := New(Config{SelfFingerprint: self.Key.Fingerprint(), Timeout: endpointtest.Hang})
			if tc.says == "no answer in time" {
				c.attemptTimeout = 4 * time.Second
			}
			e := reasonOf(t, c, tc.target)
			for e.Reason != tc.want && c.attemptTimeout < time.Minute { // on a busy machine, it was up before the keys were proven
				c.attemptTimeout *= 4
				e = reasonOf(t, c, tc.target)
			}
			if e.Reason != tc.want {
				t.Errorf("reason %s (%v), want %s", e.Reason, e, tc.want)
			}
			if !strings.Contains(e.Error(), tc.says) {
				t.Errorf("error %q does not say %q", e, tc.says)
			}
			if tc.want == ReasonWrongKey && (e.Got != wrong.Key.Fingerprint() || e.Addr != wrongAddr) {
				t.Errorf("got %v at %v", e.Got, e.Addr)
			}
		})
	}
}

// An address that another box or we ourselves hold must not keep the peer from
// being found at its others.
func TestOtherHoldersOfAnAddressAreStepped(t *testing.T) {
	self, right, wrong := endpointtest.New(t, "self"), endpointtest.New(t, endpointtest.IDA), endpointtest.New(t, endpointtest.IDB)
	list := endpointtest.Addrs(
		at(serve(t, self, "127.0.0.1:0"), "127.0.0.1"),
		at(serve(t, wrong, "127.0.0.3:0"), "127.0.0.3"),
		endpointtest.ListenRaw(t, "127.0.0.4", endpointtest.Silent),
		at(serve(t, right, "127.0.0.2:0"), "127.0.0.2"),
	)
	c := New(Config{SelfFingerprint: self.Key.Fingerprint(), Timeout: endpointtest.Hang})
	got, err := c.Identify(t.Context(), peer.Target{ID: endpointtest.IDA, Fingerprint: right.Key.Fingerprint(), Addrs: list})
	if err != nil || got.Addr != list[3] {
		t.Fatalf("%+v, %v", got, err)
	}
}

// Nothing of HTTP may reach a holder of the wrong key.
func TestNothingIsSentToTheWrongKey(t *testing.T) {
	wrong, right := endpointtest.New(t, endpointtest.IDB), endpointtest.New(t, endpointtest.IDA)
	leaked := make(chan int, 1)
	cfg := &tls.Config{GetCertificate: wrong.Issuer.GetCertificate, MinVersion: tls.VersionTLS13}
	addr := endpointtest.ListenRaw(t, "127.0.0.1", func(raw net.Conn) {
		c := tls.Server(raw, cfg)
		n, _ := c.Read(make([]byte, 100))
		leaked <- n
	})
	e := reasonOf(t, patient(Config{}), peer.Target{Fingerprint: right.Key.Fingerprint(), Addrs: endpointtest.Addrs(addr)})
	if n := <-leaked; n != 0 || e.Reason != ReasonWrongKey {
		t.Errorf("%d bytes were sent, %v", n, e)
	}
}

func TestRepeatedChecksResume(t *testing.T) {
	b := endpointtest.New(t, endpointtest.IDA)
	p := servePeer(t, b, "127.0.0.1:0", echo)
	c := patient(Config{})
	target := peer.Target{Addrs: endpointtest.Addrs(p.addr)}
	check := func(wantResumed int32) {
		t.Helper()
		got, err := c.Identify(t.Context(), target)
		if err != nil || got.Fingerprint != b.Key.Fingerprint() {
			t.Fatalf("%v, %v", got, err)
		}
		if resumed := p.resumed.Load(); resumed != wantResumed {
			t.Errorf("%d resumed, want %d", resumed, wantResumed)
		}
	}
	check(0)
	check(0) // without an expected key there is no session to use
	target.Fingerprint = b.Key.Fingerprint()
	check(1) // learning left one behind
	check(2)
	// The session survives a clock that runs long past every certificate.
	c.start = c.start.Add(-3 * 24 * time.Hour)
	check(3)
	// It does not live for ever.
	c.start = c.start.Add(-30 * 24 * time.Hour)
	check(3)
	check(4)
	c.Forget(b.Key.Fingerprint())
	check(4)
}

func TestResumptionKeepsThePin(t *testing.T) {
	before, after := endpointtest.New(t, endpointtest.IDA), endpointtest.New(t, endpointtest.IDA)
	p := servePeer(t, before, "127.0.0.1:0", echo)
	c := patient(Config{})
	target := peer.Target{ID: endpointtest.IDA, Fingerprint: before.Key.Fingerprint(), Addrs: endpointtest.Addrs(p.addr)}
	for range 2 {
		if _, err := c.Identify(t.Context(), target); err != nil {
			t.Fatal(err)
		}
	}
	// Another key behind the same port, even with the same ticket keys.
	tickets := [32]byte{1}
	p.tls.SetSessionTicketKeys([][32]byte{tickets})
	if _, err := c.Identify(t.Context(), target); err != nil {
		t.Fatal(err)
	}
	other := servePeer(t, after, "127.0.0.2:0", echo)
	other.tls.SetSessionTicketKeys([][32]byte{{2}})
	target.Addrs = endpointtest.Addrs(other.addr)
	if e := reasonOf(t, c, target); e.Reason != ReasonWrongKey || e.Got != after.Key.Fingerprint() {
		t.Errorf("%v", e)
	}
	// The refusal leaves the peer's session alone, and makes none for it out
	// of the impostor's.
	target.Addrs = endpointtest.Addrs(p.addr)
	if _, err := c.Identify(t.Context(), target); err != nil {
		t.Error(err)
	}
	// A session that ended up under the wrong key is refused by its certificates.
	session, ok := c.sessions.get(before.Key.Fingerprint(), 0)
	if !ok {
		t.Fatal("no session")
	}
	c.sessions.put(after.Key.Fingerprint(), session)
	target.Fingerprint = after.Key.Fingerprint()
	if e := reasonOf(t, c, target); e.Reason != ReasonWrongKey || e.Got != before.Key.Fingerprint() {
		t.Errorf("%v", e)
	}
}

func TestRenewedCertificateIsTheSamePeer(t *testing.T) {
	dir := t.TempDir()
	key, err := trust.LoadOrCreateKey(dir)
	if err != nil {
		t.Fatal(err)
	}
	var id atomic.Value
	id.Store(endpointtest.IDA)
	issuer := trust.NewIssuer(key, func() peer.ClusterID { return id.Load().(peer.ClusterID) })
	b := &endpointtest.Box{Key: key, Issuer: issuer, Identity: peer.Identity{ClusterID: endpointtest.IDA, ClusterName: "x", GuestNamespace: "liqo"}}
	s := serve(t, b, "127.0.0.1:0")
	first, err := issuer.GetCertificate(nil)
	if err != nil {
		t.Fatal(err)
	}
	c := patient(Config{})
	target := peer.Target{Fingerprint: key.Fingerprint(), Addrs: endpointtest.Addrs(at(s, "127.0.0.1"))}
	for _, step := range []func(){
		func() {},
		func() { id.Store(endpointtest.IDB) },  // makes the issuer renew its leaf; the session lives on
		func() { c.Forget(key.Fingerprint()) }, // a full handshake with the new leaf
		func() { id.Store(endpointtest.IDA); c.start = time.Now() }, // and back
	} {
		step()
		if _, err := c.Identify(t.Context(), target); err != nil {
			t.Error(err)
		}
	}
	if last, err := issuer.GetCertificate(nil); err != nil || last.Leaf.Equal(first.Leaf) {
		t.Errorf("the certificate was not renewed: %v", err)
	}
}

func TestCancelSaysNothingAboutThePeer(t *testing.T) {
	connected := make(chan struct{}, 1)
	addr := endpointtest.ListenRaw(t, "127.0.0.1", func(c net.Conn) {
		connected <- struct{}{}
		endpointtest.Silent(c)
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-connected
		cancel()
	}()
	_, err := patient(Config{}).Identify(ctx, peer.Target{Addrs: endpointtest.Addrs(addr)})
	var e *Error
	if !errors.Is(err, context.Canceled) || errors.As(err, &e) {
		t.Errorf("%v", err)
	}
}

// One address leaves time for those that are tried after it.
func TestTimeoutOfOneAddress(t *testing.T) {
	for all, one := range map[time.Duration]time.Duration{
		0: 3 * time.Second, time.Second: 3 * time.Second, DefaultTimeout: 3 * time.Second, time.Minute: 36 * time.Second,
	} {
		if got := New(Config{Timeout: all}).attemptTimeout; got != one {
			t.Errorf("%v of %v, want %v", got, all, one)
		}
	}
}

func TestTimeoutCoversEverything(t *testing.T) {
	var list []netip.AddrPort
	for range 10 {
		list = append(list, endpointtest.ListenRaw(t, "127.0.0.1", endpointtest.Silent))
	}
	untried := len(list)
	// On a busy machine fewer may have begun when a short time is over.
	for timeout := 2 * time.Second; untried > 10-maxParallel && timeout < endpointtest.Hang; timeout *= 4 {
		c := New(Config{Timeout: timeout})
		c.headStart, c.attemptTimeout = time.Millisecond, timeout
		e := reasonOf(t, c, peer.Target{Addrs: list})
		if e.Reason != ReasonUnreachable || len(e.Others) != 9 {
			t.Errorf("%v, %d others", e, len(e.Others))
		}
		untried = 0
		for _, o := range append(e.Others, e) {
			if strings.Contains(o.Err.Error(), "no time left") {
				untried++
			}
		}
	}
	if untried != 10-maxParallel {
		t.Errorf("%d were not tried, want %d: not more than %d at a time", untried, 10-maxParallel, maxParallel)
	}
}

func TestOrder(t *testing.T) {
	ap := netip.MustParseAddrPort
	many := make([]netip.AddrPort, 0, 40)
	for i := range 40 {
		many = append(many, netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i + 1)}), 1))
	}
	for _, tc := range []struct {
		name     string
		in, want []netip.AddrPort
		failures int
	}{
		{"families take turns", endpointtest.Addrs(ap("10.0.0.1:1"), ap("10.0.0.2:1"), ap("[fd00::1]:1"), ap("[fd00::2]:1"), ap("[fd00::3]:1")),
			endpointtest.Addrs(ap("10.0.0.1:1"), ap("[fd00::1]:1"), ap("10.0.0.2:1"), ap("[fd00::2]:1"), ap("[fd00::3]:1")), 0},
		{"first family first", endpointtest.Addrs(ap("[fd00::1]:1"), ap("[fd00::2]:1"), ap("10.0.0.1:1")),
			endpointtest.Addrs(ap("[fd00::1]:1"), ap("10.0.0.1:1"), ap("[fd00::2]:1")), 0},
		{"link-local last", endpointtest.Addrs(ap("[fe80::1%eth0]:1"), ap("169.254.0.1:1"), ap("10.0.0.1:1")),
			endpointtest.Addrs(ap("10.0.0.1:1"), ap("[fe80::1%eth0]:1"), ap("169.254.0.1:1")), 0},
		{"twice", endpointtest.Addrs(ap("10.0.0.1:1"), ap("[::ffff:10.0.0.1]:1"), ap("10.0.0.1:2")), endpointtest.Addrs(ap("10.0.0.1:1"), ap("10.0.0.1:2")), 0},
		{"unusable", endpointtest.Addrs(ap("0.0.0.0:1"), ap("10.0.0.1:0"), ap("[fe80::1]:1"), ap("[ff02::fb%eth0]:1"), ap("255.255.255.255:1")), nil, 5},
		{"too many", many, many[:maxCandidates], 1},
	} {
		got, failures := order(tc.in)
		if len(got) != len(tc.want) || len(failures) != tc.failures {
			t.Errorf("%s: %v, %v", tc.name, got, failures)
			continue
		}
		for i := range got {
			if got[i].addr != tc.want[i] {
				t.Errorf("%s: %v, want %v", tc.name, got, tc.want)
				break
			}
		}
	}
}

func TestURLOfALinkLocalAddress(t *testing.T) {
	addr := netip.MustParseAddrPort("[fe80::1%eth0]:6447")
	if got := endpointURL(addr); got != "https://[fe80::1%25eth0]:6447" {
		t.Error(got)
	}
	if got := hostOf(candidate{addr: addr}); got != "[fe80::1]:6447" {
		t.Error(got)
	}
	back, err := resolve(t.Context(), endpointURL(addr))
	if err != nil || len(back) != 1 || back[0].addr != addr || back[0].url != endpointURL(addr) {
		t.Errorf("%v, %v", back, err)
	}
}

func TestMemoryIsBounded(t *testing.T) {
	m := newSessionCache(3)
	fp := func(i byte) peer.Fingerprint { return peer.Fingerprint{i} }
	known := func(fp peer.Fingerprint) bool { _, ok := m.byKey[fp]; return ok }
	for i := range byte(10) {
		m.touch(fp(i + 1))
		m.touch(fp(1)) // in use all the time
	}
	if len(m.byKey) != 3 || m.used.Len() != 3 || !known(fp(1)) || known(fp(2)) {
		t.Errorf("%d entries", len(m.byKey))
	}
	m.forget(fp(1))
	if len(m.byKey) != 2 || known(fp(1)) {
		t.Error("not forgotten")
	}
	m.forget(fp(77))
	m.drop(fp(77))
}

// Many neighbours at once, as after a power cut.
func TestManyAtOnce(t *testing.T) {
	b := endpointtest.New(t, endpointtest.IDA)
	// How long it takes is for the benchmarks to say.
	p := servePeer(t, b, "127.0.0.1:0", echo)
	c := patient(Config{})
	var wg sync.WaitGroup
	for range 200 {
		wg.Go(func() {
			if _, err := c.Identify(t.Context(), peer.Target{ID: endpointtest.IDA, Fingerprint: b.Key.Fingerprint(), Addrs: endpointtest.Addrs(p.addr)}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

func FuzzReadAnswer(f *testing.F) {
	const body = `{"clusterId":"a","clusterName":"b","guestNamespace":"c"}`
	f.Add("HTTP/1.1 200 OK\r\nContent-Length: 56\r\n\r\n" + body)
	f.Add("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n38\r\n" + body + "\r\n0\r\n\r\n")
	f.Add("HTTP/1.1 200 OK\r\n\r\n" + body)
	f.Add("HTTP/1.1 200 OK\r\nLiqo-Protocol: 2-3\r\n\r\n" + body)
	f.Add("HTTP/1.1 200 OK\r\nLiqo-Protocol: 3-2\r\n\r\n" + body)
	f.Add("HTTP/1.1 100 Continue\r\n\r\n")
	f.Add("HTTP/1.1 302 Found\r\nLocation: /\r\n\r\n")
	f.Add("HTTP/1.1 200 OK\r\n\r\n{\"clusterId\":1}")
	f.Add("HTTP/1.1 200 OK\r\n\r\n{\"clusterId\":null,\"clusterName\":[],\"guestNamespace\":{}}")
	f.Fuzz(func(t *testing.T, text string) {
		r := bufio.NewReader(&limitedReader{from: strings.NewReader(text), left: maxResponse})
		said, _, err := readIdentity(r)
		if err != nil {
			return
		}
		id := said.identity
		if p := said.protocol; p.Oldest < 1 || p.Newest < p.Oldest {
			t.Errorf("accepted protocol %+v", p)
		}
		if again, err := peer.ParseClusterID(string(id.ClusterID)); err != nil || again != id.ClusterID {
			t.Errorf("accepted ID %q", id.ClusterID)
		}
		if _, err := peer.ParseClusterName(id.ClusterName); err != nil {
			t.Errorf("accepted name %q", id.ClusterName)
		}
		if _, err := peer.ParseNamespace(id.GuestNamespace); err != nil {
			t.Errorf("accepted namespace %q", id.GuestNamespace)
		}
	})
}
