package endpoint

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"liqo.io/agent/endpoint/client"
	"liqo.io/agent/endpoint/guard"
	"liqo.io/agent/internal/endpointtest"
	"liqo.io/agent/peer"
)

func TestIDsWithCurl(t *testing.T) {
	curl, err := exec.LookPath("curl")
	if err != nil {
		t.Skip("curl is not installed")
	}
	b := endpointtest.New(t, endpointtest.IDA)
	s := serve(t, b, "127.0.0.1:0", nil)
	base := "https://" + at(s, "127.0.0.1").String()
	const want = `{"clusterId":"0558de48-097b-4b7d-ba04-6bd2a0f9d24f","clusterName":"box <0558de48-097b-4b7d-ba04-6bd2a0f9d24f>","guestNamespace":"liqo"}`
	run := func(args ...string) string {
		t.Helper()
		out, err := exec.Command(curl, append([]string{"--silent", "--show-error", "--insecure", "--noproxy", "*"}, args...)...).CombinedOutput()
		if err != nil {
			t.Errorf("curl %v: %v\n%s", args, err, out)
		}
		return string(out)
	}
	if got := run(base + "/ids"); got != want {
		t.Errorf("/ids = %s", got)
	}
	head := run("--head", base+"/ids")
	for _, line := range []string{"HTTP/1.1 200", "Content-Type: application/json\r\n", fmt.Sprintf("Content-Length: %d\r\n", len(want))} {
		if !strings.Contains(head, line) {
			t.Errorf("HEAD lacks %q:\n%s", line, head)
		}
	}
	if strings.Contains(head, "Server:") {
		t.Errorf("a server banner:\n%s", head)
	}
	if got := run("--include", "--request", "DELETE", base+"/ids"); !strings.Contains(got, "405") || !strings.Contains(got, "Allow: GET, HEAD\r\n") || !strings.HasSuffix(got, `{"error":"use GET or HEAD","reason":"BadRequest"}`) {
		t.Errorf("DELETE:\n%s", got)
	}
	for _, path := range []string{"/", "/ids/", "//ids", "/ids/../ids%00"} {
		if got := run("--include", "--path-as-is", base+path); !strings.Contains(got, "404") || !strings.HasSuffix(got, `"reason":"NoSuchPath"}`) {
			t.Errorf("%s:\n%s", path, got)
		}
	}
	if got := run("--include", "--request", "GET", "--data", "x", base+"/ids"); !strings.Contains(got, "413") {
		t.Errorf("GET with a body:\n%s", got)
	}
	if out, err := exec.Command(curl, "--silent", "--show-error", "--insecure", "--tls-max", "1.2", base+"/ids").CombinedOutput(); err == nil {
		t.Errorf("TLS 1.2 is served: %s", out)
	}
}

func TestDualStackAndPort(t *testing.T) {
	b := endpointtest.New(t, endpointtest.IDA)
	s := NewServer(ServerConfig{Listen: ":0", Issuer: b.Issuer, Identity: b.Identify, Logger: b.Logger()})
	patient(s)
	if s.Port() != 0 {
		t.Error("a port before Listen")
	}
	if err := s.Listen(context.Background()); err != nil {
		t.Fatal(err)
	}
	if err := s.Listen(context.Background()); err == nil {
		t.Error("listens twice")
	}
	endpointtest.Start(t, s)
	c := client.New(client.Config{Timeout: endpointtest.Hang})
	for _, ip := range []string{"127.0.0.1", "127.9.9.9", "::1"} {
		got, err := c.Identify(t.Context(), peer.Target{Addrs: endpointtest.Addrs(at(s, ip))})
		if err != nil && ip == "::1" && errors.Is(err, syscall.EADDRNOTAVAIL) {
			t.Skip("no IPv6 here")
		}
		if err != nil || got.Identity != b.Identity {
			t.Errorf("%s: %v, %v", ip, got, err)
		}
	}
}

func TestListenErrors(t *testing.T) {
	b := endpointtest.New(t, endpointtest.IDA)
	s := serve(t, b, "127.0.0.1:0", nil)
	for _, tc := range []struct{ listen, says string }{
		{at(s, "127.0.0.1").String(), "ss -ltnp"},
		{"192.0.2.1:6447", `":6447"`},
		{"nonsense", "set endpoint.listen"},
		{":99999", "set endpoint.listen"},
	} {
		err := NewServer(ServerConfig{Listen: tc.listen, Issuer: b.Issuer}).Listen(t.Context())
		if err == nil || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: error %v does not say %q", tc.listen, err, tc.says)
		}
	}
}

func TestNewNameShowsAtOnce(t *testing.T) {
	b := endpointtest.New(t, endpointtest.IDA)
	var name atomic.Value
	name.Store("before")
	s := serve(t, b, "127.0.0.1:0", func(s *Server) {
		s.cfg.Identity = func() peer.Identity {
			id := b.Identity
			id.ClusterName = name.Load().(string)
			return id
		}
	})
	c := client.New(client.Config{Timeout: endpointtest.Hang})
	for _, want := range []string{"before", "after"} {
		name.Store(want)
		got, err := c.Identify(t.Context(), peer.Target{Addrs: endpointtest.Addrs(at(s, "127.0.0.1"))})
		if err != nil || got.Identity.ClusterName != want {
			t.Errorf("%v, %v", got, err)
		}
	}
}

// dialTLS connects like an arbitrary client.
func dialTLS(t *testing.T, s *Server, cfg *tls.Config) (*tls.Conn, error) {
	t.Helper()
	if cfg == nil {
		cfg = &tls.Config{}
	}
	cfg.InsecureSkipVerify = true
	c, err := tls.Dial("tcp", at(s, "127.0.0.1").String(), cfg)
	if err == nil {
		t.Cleanup(func() { c.Close() })
		_ = c.SetDeadline(time.Now().Add(endpointtest.Hang))
	}
	return c, err
}

func getIDs(c net.Conn) (*http.Response, error) {
	if _, err := io.WriteString(c, "GET /ids HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		return nil, err
	}
	return http.ReadResponse(bufio.NewReader(c), nil)
}

// A client may have any of the three ways to agree on a key, and no other one.
func TestKeyExchanges(t *testing.T) {
	s := serve(t, endpointtest.New(t, endpointtest.IDA), "127.0.0.1:0", nil)
	for curve, served := range map[tls.CurveID]bool{tls.X25519MLKEM768: true, tls.X25519: true, tls.CurveP256: true, tls.CurveP384: false} {
		c, err := dialTLS(t, s, &tls.Config{CurvePreferences: []tls.CurveID{curve}})
		if (err == nil) != served || served && c.ConnectionState().CurveID != curve {
			t.Errorf("%v: %v", curve, err)
		}
	}
	// The first choice of the client may be one that has to be asked for again.
	c, err := dialTLS(t, s, &tls.Config{CurvePreferences: []tls.CurveID{tls.CurveP384, tls.CurveP256}})
	if err != nil || c.ConnectionState().CurveID != tls.CurveP256 {
		t.Errorf("P-384 before P-256: %v", err)
	}
}

// The end of a connection is announced, so that nobody can feign it (RFC 8446 section 6.1).
func TestConnectionsEndProperly(t *testing.T) {
	s := serve(t, endpointtest.New(t, endpointtest.IDA), "127.0.0.1:0", nil)
	c, err := dialTLS(t, s, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(c, "GET /ids HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(c); err != nil || !bytes.Contains(b, []byte("clusterId")) {
		t.Errorf("read %q, %v: without close_notify the end is unexpected", b, err)
	}
}

func TestClientCertificates(t *testing.T) {
	s := serve(t, endpointtest.New(t, endpointtest.IDA), "127.0.0.1:0", nil)
	other := endpointtest.New(t, endpointtest.IDB)
	c, err := dialTLS(t, s, &tls.Config{GetClientCertificate: other.Issuer.GetClientCertificate})
	if err != nil {
		t.Fatal(err)
	}
	if resp, err := getIDs(c); err != nil || resp.StatusCode != http.StatusOK {
		t.Errorf("a peer's certificate: %v, %v", resp, err)
	}

	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageDigitalSignature}
	parent := *other.Key.CA()
	parent.PublicKey = nil
	der, err := x509.CreateCertificate(rand.Reader, template, &parent, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	forged := tls.Certificate{Certificate: [][]byte{der, other.Key.CA().Raw}, PrivateKey: key}
	c, err = dialTLS(t, s, &tls.Config{Certificates: []tls.Certificate{forged}})
	if err == nil {
		// With TLS 1.3 the refusal reaches the client with its first read.
		_, err = getIDs(c)
	}
	if err == nil {
		t.Error("a forged client certificate is accepted")
	}
	endpointtest.Eventually(t, "count the failed handshake", func() bool { return s.Stats().Refused[guard.RefusedHandshake] == 1 })
}

func TestOneSourceCannotTakeAll(t *testing.T) {
	b := endpointtest.New(t, endpointtest.IDA)
	s := serve(t, b, "127.0.0.1:0", func(s *Server) { s.guard.PerSource = 5 })
	var held []net.Conn
	for range 30 {
		c, err := net.Dial("tcp", at(s, "127.0.0.1").String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		held = append(held, c)
	}
	endpointtest.Eventually(t, "refuse the excess", func() bool { return s.Stats().Refused[guard.RefusedSource] == 25 })
	if st := s.Stats(); st.Open != 5 || st.Accepted != 5 {
		t.Errorf("%+v", st)
	}
	// Another source is served meanwhile.
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 77)}}
	raw, err := d.Dial("tcp", at(s, "127.0.0.1").String())
	if err != nil {
		t.Fatal(err)
	}
	c := tls.Client(raw, &tls.Config{InsecureSkipVerify: true})
	defer c.Close()
	if resp, err := getIDs(c); err != nil || resp.StatusCode != http.StatusOK {
		t.Errorf("%v, %v", resp, err)
	}
	for _, c := range held {
		c.Close()
	}
	c.Close()
	endpointtest.Eventually(t, "give the places back", func() bool {
		st := s.Stats()
		return st.Open == 0 && st.Waiting == 0 && s.guard.Held(netip.MustParseAddr("127.0.0.1")) == 0
	})
}

// A flood of connections that never say anything fills the server; then new
// ones push out those that are stale, and a request is served all the same.
func TestFloodOfSilentConnections(t *testing.T) {
	b := endpointtest.New(t, endpointtest.IDA)
	var mu sync.Mutex
	now := time.Now() // stands still: nobody grows stale by chance
	s := serve(t, b, "127.0.0.1:0", func(s *Server) {
		s.guard.Limit, s.guard.PerSource = 20, 1000
		s.guard.Now = func() time.Time {
			mu.Lock()
			defer mu.Unlock()
			return now
		}
	})
	for range 100 {
		c, err := net.Dial("tcp", at(s, "127.0.0.1").String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	endpointtest.Eventually(t, "refuse the excess", func() bool { return s.Stats().Refused[guard.RefusedFull] == 80 })
	mu.Lock()
	now = now.Add(2 * guard.StaleAfter)
	mu.Unlock()
	got, err := client.New(client.Config{Timeout: endpointtest.Hang}).Identify(t.Context(), peer.Target{Addrs: endpointtest.Addrs(at(s, "127.0.0.1"))})
	if err != nil || got.Identity != b.Identity {
		t.Fatalf("%v, %v", got, err)
	}
	if st := s.Stats(); st.Refused[guard.RefusedStale] != 1 || st.Open > 20 {
		t.Errorf("%+v", st)
	}
}

func TestSlowClientsAreCutOff(t *testing.T) {
	b := endpointtest.New(t, endpointtest.IDA)
	s := serve(t, b, "127.0.0.1:0", func(s *Server) {
		// A handshake that does end, which is not counted, has the time for a header, on a busy machine, too.
		s.times = timeouts{recheck: time.Minute, header: 5 * time.Second, read: 6 * time.Second, write: 6 * time.Second,
			idle: time.Second, shutdown: time.Second}
	})
	drip := func(c net.Conn) error {
		for {
			if _, err := c.Write([]byte("a")); err != nil {
				return err
			}
			time.Sleep(5 * time.Millisecond) // the attack, not a wait
		}
	}
	var shaken atomic.Uint64 // handshakes that ended, as far as clients know
	shake := func(raw net.Conn) (*tls.Conn, error) {
		c := tls.Client(raw, &tls.Config{InsecureSkipVerify: true})
		err := c.Handshake()
		if err == nil {
			shaken.Add(1)
		}
		return c, err
	}
	var wg sync.WaitGroup
	for name, attack := range map[string]func(raw net.Conn) error{
		"no handshake": func(raw net.Conn) error { _, err := raw.Read(make([]byte, 1)); return err },
		"half a handshake": func(raw net.Conn) error {
			_, _ = raw.Write([]byte{22, 3, 1, 2, 0})
			return drip(raw)
		},
		"no request": func(raw net.Conn) error {
			c, err := shake(raw)
			if err == nil {
				_, err = c.Read(make([]byte, 1))
			}
			return err
		},
		"dripping header": func(raw net.Conn) error {
			c, err := shake(raw)
			if err != nil {
				return err
			}
			_, _ = io.WriteString(c, "GET /ids HTTP/1.1\r\nX: ")
			return drip(c)
		},
		"idle": func(raw net.Conn) error {
			c, err := shake(raw)
			if err != nil {
				return err
			}
			if _, err := getIDs(c); err != nil {
				return fmt.Errorf("not served: %w", err)
			}
			_, err = io.Copy(io.Discard, c)
			return errors.Join(err, io.EOF)
		},
	} {
		raw, err := net.Dial("tcp", at(s, "127.0.0.1").String())
		if err != nil {
			t.Fatal(err)
		}
		_ = raw.SetDeadline(time.Now().Add(endpointtest.Hang))
		wg.Go(func() {
			defer raw.Close()
			if err := attack(raw); err == nil || errors.Is(err, syscall.ETIMEDOUT) || strings.Contains(err.Error(), "i/o timeout") {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
	wg.Wait()
	endpointtest.Eventually(t, "close all", func() bool { return s.Stats().Open == 0 })
	// On a busy machine a handshake may end too late for the server.
	st := s.Stats()
	if n := st.Refused[guard.RefusedHandshake]; n < 5-shaken.Load() || n > 5 || n == 2 && st.Refused[guard.RefusedSilent] == 0 {
		t.Errorf("%+v after %d handshakes", st, shaken.Load())
	}
}

func TestLargeRequests(t *testing.T) {
	s := serve(t, endpointtest.New(t, endpointtest.IDA), "127.0.0.1:0", nil)
	for _, tc := range []struct {
		name, request string
		status        int
	}{
		{"header of 7 KiB", "GET /ids HTTP/1.1\r\nHost: x\r\nX: " + strings.Repeat("a", 7<<10) + "\r\n\r\n", 200},
		{"header of 9 KiB", "GET /ids HTTP/1.1\r\nHost: x\r\nX: " + strings.Repeat("a", 9<<10) + "\r\n\r\n", 431},
		{"long path", "GET /" + strings.Repeat("a", 9<<10) + " HTTP/1.1\r\nHost: x\r\n\r\n", 431},
		{"announced body", "GET /ids HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000\r\n\r\n", 413},
		{"garbage", "\x00\x01\x02\r\n\r\n", 400},
	} {
		c, err := dialTLS(t, s, nil)
		if err != nil {
			t.Fatal(err)
		}
		// The server may answer and close before it has read everything.
		_, _ = io.WriteString(c, tc.request)
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil || resp.StatusCode != tc.status {
			t.Errorf("%s: %v, %v", tc.name, resp, err)
		}
	}

	// An endless body: the connection ends although the client never does.
	c, err := dialTLS(t, s, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.WriteString(c, "POST /ids HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
	chunk := "1000\r\n" + strings.Repeat("a", 0x1000) + "\r\n"
	sent := 0
	for ; err == nil; sent += len(chunk) {
		_, err = io.WriteString(c, chunk)
	}
	if errors.Is(err, syscall.ETIMEDOUT) || sent > 64<<20 {
		t.Errorf("took %d bytes, %v", sent, err)
	}
}

func TestHandshakesGiveTheirProcessorBack(t *testing.T) {
	b := endpointtest.New(t, endpointtest.IDA)
	s := serve(t, b, "127.0.0.1:0", func(s *Server) { s.guard.Handshakes = make(chan struct{}, 1) })
	// Clients that stop after their ClientHello must not hold it.
	for range 4 {
		raw, err := net.Dial("tcp", at(s, "127.0.0.1").String())
		if err != nil {
			t.Fatal(err)
		}
		defer raw.Close()
		hello := tls.Client(&mute{Conn: raw}, &tls.Config{InsecureSkipVerify: true})
		if err := hello.Handshake(); err == nil {
			t.Fatal("the handshake ended")
		}
	}
	for range 3 {
		if _, err := client.New(client.Config{Timeout: endpointtest.Hang}).Identify(t.Context(), peer.Target{Addrs: endpointtest.Addrs(at(s, "127.0.0.1"))}); err != nil {
			t.Fatal(err)
		}
	}
	endpointtest.Eventually(t, "give it back", func() bool { return len(s.guard.Handshakes) == 0 })
}

// mute lets a ClientHello out and nothing in.
type mute struct{ net.Conn }

func (m *mute) Read([]byte) (int, error) { return 0, io.EOF }

func (m *mute) Close() error { return nil }

func TestShutdownIsBounded(t *testing.T) {
	b := endpointtest.New(t, endpointtest.IDA)
	entered, release := make(chan struct{}), make(chan struct{})
	s := NewServer(ServerConfig{Listen: "127.0.0.1:0", Issuer: b.Issuer, Logger: b.Logger(),
		Identity: func() peer.Identity {
			close(entered)
			<-release
			return b.Identity
		}})
	patient(s)
	s.times.shutdown = 50 * time.Millisecond
	if err := s.Listen(t.Context()); err != nil {
		t.Fatal(err)
	}
	stop := endpointtest.Start(t, s)
	idle, err := net.Dial("tcp", at(s, "127.0.0.1").String())
	if err != nil {
		t.Fatal(err)
	}
	defer idle.Close()
	c, err := dialTLS(t, s, nil)
	if err != nil {
		t.Fatal(err)
	}
	failed := make(chan error, 1)
	go func() {
		_, err := getIDs(c)
		failed <- err
	}()
	<-entered
	stop() // returns although a request is under way and a connection is silent
	if err := <-failed; err == nil {
		t.Error("the request was answered")
	}
	if s.Port() != 0 || s.Stats().Open != 0 {
		t.Errorf("port %d, %+v", s.Port(), s.Stats())
	}
	close(release)
}

func TestRunMayBeCalledAgain(t *testing.T) {
	b := endpointtest.New(t, endpointtest.IDA)
	s := NewServer(ServerConfig{Listen: "127.0.0.1:0", Issuer: b.Issuer, Logger: b.Logger(),
		Identity: b.Identify})
	patient(s)
	for range 2 {
		stop := endpointtest.Start(t, s)
		endpointtest.Eventually(t, "listen", func() bool { return s.Port() != 0 })
		if _, err := client.New(client.Config{Timeout: endpointtest.Hang}).Identify(t.Context(), peer.Target{Addrs: endpointtest.Addrs(at(s, "127.0.0.1"))}); err != nil {
			t.Error(err)
		}
		stop()
	}
}

func TestStrangersAreQuiet(t *testing.T) {
	var out bytes.Buffer
	w := &strangers{logger: slog.New(slog.NewTextHandler(&out, nil))}
	fmt.Fprint(w, "http: TLS handshake error from 10.0.0.1:1: EOF")
	if out.Len() != 0 {
		t.Errorf("logged at the default level: %s", &out)
	}
	fmt.Fprint(w, "http: panic serving 10.0.0.1:1: oops")
	if !strings.Contains(out.String(), "level=ERROR") {
		t.Errorf("a panic is not shown: %s", &out)
	}
	out.Reset()
	w.logger = slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))
	for range 1000 {
		fmt.Fprint(w, "http: TLS handshake error from 10.0.0.1:1: EOF")
	}
	if n := strings.Count(out.String(), "\n"); n == 0 || n > 100 {
		t.Errorf("%d lines at debug level", n)
	}
}

// lines takes what is logged, line by line.
type lines chan string

func (l lines) Write(p []byte) (int, error) {
	l <- string(p)
	return len(p), nil
}

// TestPanic: a request that makes the agent panic ends its connection and nothing else, and
// the log says where it happened.
func TestPanic(t *testing.T) {
	b := endpointtest.New(t, endpointtest.IDA)
	logged := make(lines, 16)
	var broken atomic.Bool
	s := serve(t, b, "127.0.0.1:0", func(s *Server) {
		s.cfg.Logger = slog.New(slog.NewTextHandler(logged, &slog.HandlerOptions{Level: slog.LevelError}))
		s.cfg.Identity = func() peer.Identity {
			if broken.Load() {
				panic("nobody knows")
			}
			return b.Identify()
		}
	})
	broken.Store(true)
	if got := visit(t, s, nil).send(get("/ids")); got.err == nil {
		t.Errorf("it is answered with %d %s", got.status, got.body)
	}
	if line := <-logged; !strings.Contains(line, "nobody knows") || !strings.Contains(line, "endpoint.(*Server).serveIDs") {
		t.Errorf("logged: %s", line)
	}
	broken.Store(false)
	if got := visit(t, s, nil).send(get("/ids")); got.status != http.StatusOK {
		t.Errorf("afterwards: %d %s %v", got.status, got.body, got.err)
	}
}
