package metrics

import (
	"bufio"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"liqo.io/agent/internal/leak"
)

// hang is the patience of listeners in tests that are not about it: none of their requests is to come too late.
const hang = 5 * time.Minute

// serving runs a listener on a port of its own until the test ends.
func serving(t *testing.T, patience time.Duration) (l *Listener, stop func() error) {
	t.Helper()
	others := goleak.IgnoreCurrent()
	t.Cleanup(func() { leak.Check(t, others) })
	l = NewListener(New(full, quiet()).Handler(), quiet())
	l.patient = patience
	if err := l.Listen(t.Context(), "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- l.Run(ctx) }()
	stop = func() error {
		cancel()
		err := <-ended
		ended <- err
		return err
	}
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
	return l, stop
}

// ask sends one request over a connection of its own.
func ask(t *testing.T, method, url string) (int, string) {
	t.Helper()
	status, body, err := try(t, method, url)
	if err != nil {
		t.Fatal(err)
	}
	return status, body
}

// try is ask, for a listener that may have too little patience on a busy machine.
func try(t *testing.T, method, url string) (int, string, error) {
	t.Helper()
	transport := &http.Transport{DisableKeepAlives: true}
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(body), err
}

func TestOnlyTheMetrics(t *testing.T) {
	l, _ := serving(t, hang)
	base := "http://" + l.Addr().String()
	for _, c := range []struct {
		method, path string
		status       int
		has          string
	}{
		{"GET", "/metrics", 200, "liqo_agent_ready 1"},
		{"HEAD", "/metrics", 200, ""},
		{"GET", "/healthz", 200, "ok\n"},
		{"POST", "/metrics", 405, ""},
		{"DELETE", "/healthz", 405, ""},
		{"GET", "/", 404, ""},
		{"GET", "/metrics/", 404, ""},
		{"GET", "/debug/pprof/", 404, ""},
		{"GET", "/debug/pprof/profile", 404, ""},
		{"GET", "/v1/status", 404, ""},
		{"GET", "/debug/vars", 404, ""},
	} {
		status, body := ask(t, c.method, base+c.path)
		if status != c.status || !strings.Contains(body, c.has) {
			t.Errorf("%s %s: %d, want %d:\n%.200s", c.method, c.path, status, c.status, body)
		}
	}
}

func TestBadAddresses(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for _, address := range []string{taken.Addr().String(), "127.0.0.1:99999", "192.0.2.1:1", "nowhere.invalid:1"} {
		l := NewListener(http.NotFoundHandler(), quiet())
		err := l.Listen(t.Context(), address)
		if err == nil || !strings.Contains(err.Error(), address) || !strings.Contains(err.Error(), "metrics.listen") {
			t.Errorf("%s: %v", address, err)
		}
		if l.Addr() != nil {
			t.Errorf("%s: something is bound: %s", address, l.Addr())
		}
	}
}

// ownPort returns a port that is free at all addresses, and that nobody else gets by chance: those that the kernel chooses begin at 32768.
func ownPort(t *testing.T) string {
	t.Helper()
	for {
		port := strconv.Itoa(20_000 + rand.IntN(10_000))
		l, err := net.Listen("tcp", ":"+port)
		if errors.Is(err, unix.EADDRINUSE) {
			continue
		}
		if err == nil {
			err = l.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
		return port
	}
}

// TestAnotherPort: it changes while it is served, may be the same port at other
// addresses, and the one before stays in use when the next one cannot be had.
func TestAnotherPort(t *testing.T) {
	l, stop := serving(t, hang)
	port := ownPort(t)
	first := "127.0.0.1:" + port
	if err := l.Listen(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	for _, next := range []string{"0.0.0.0:" + port, "127.0.0.1:" + port, "127.0.0.1:0"} {
		if err := l.Listen(t.Context(), next); err != nil {
			t.Fatal(err)
		}
		if status, _ := ask(t, "GET", "http://"+strings.Replace(l.Addr().String(), "0.0.0.0", "127.0.0.1", 1)+"/healthz"); status != 200 {
			t.Errorf("at %s: status %d", next, status)
		}
	}
	before := l.Addr().String()
	if before == first {
		t.Fatal("the first port was to be given back")
	}
	if conn, err := net.Dial("tcp", first); err == nil {
		conn.Close()
		t.Error("the first port still answers")
	}
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	// The one before was "any free port", and another one is as good.
	if err := l.Listen(t.Context(), taken.Addr().String()); err == nil {
		t.Error("a port that is taken was bound")
	}
	if status, _ := ask(t, "GET", "http://"+l.Addr().String()+"/healthz"); status != 200 {
		t.Errorf("after a port that cannot be had: status %d", status)
	}
	last := "127.0.0.1:" + ownPort(t)
	if err := l.Listen(t.Context(), last); err != nil {
		t.Fatal(err)
	}
	if err := l.Listen(t.Context(), ""); err != nil || l.Addr() != nil {
		t.Errorf("%v, bound %v", err, l.Addr())
	}
	if conn, err := net.Dial("tcp", last); err == nil {
		conn.Close()
		t.Error("it still answers although there is to be no port")
	}
	if err := l.Listen(t.Context(), last); err != nil {
		t.Error(err)
	}
	if status, _ := ask(t, "GET", "http://"+last+"/healthz"); status != 200 {
		t.Errorf("switched on again: status %d", status)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	if again, err := net.Listen("tcp", last); err != nil {
		t.Errorf("the port is not given back at the end: %v", err)
	} else {
		again.Close()
	}
}

// TestLostPort: Run says so, and binds it again when it is called again.
func TestLostPort(t *testing.T) {
	l := NewListener(New(full, quiet()).Handler(), quiet())
	l.patient = hang
	if err := l.Listen(t.Context(), "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { ended <- l.Run(ctx) }()
	if status, _ := ask(t, "GET", "http://"+l.Addr().String()+"/healthz"); status != 200 {
		t.Fatal(status)
	}
	l.mu.Lock()
	_ = l.bound.Close()
	l.mu.Unlock()
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "metrics at 127.0.0.1") {
		t.Errorf("Run ended with %v", err)
	}
	go func() { ended <- l.Run(ctx) }()
	deadline := time.Now().Add(2 * time.Minute)
	for l.Addr() == nil && time.Now().Before(deadline) {
		time.Sleep(time.Millisecond)
	}
	if status, _ := ask(t, "GET", "http://"+l.Addr().String()+"/healthz"); status != 200 {
		t.Error(status)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestIdlersAndTalkers: who says nothing is hung up on, and so is who says too much.
// Those who hold every connection keep others waiting no longer than that.
func TestIdlersAndTalkers(t *testing.T) {
	const patience = 500 * time.Millisecond
	l, _ := serving(t, patience)
	begun := time.Now()
	for range maxConns {
		conn, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	var status int
	var err error
	for {
		if status, _, err = try(t, "GET", "http://"+l.Addr().String()+"/metrics"); err == nil || time.Since(begun) > hang {
			break
		}
	}
	if err != nil || status != 200 {
		t.Errorf("status %d, %v", status, err)
	}
	if waited := time.Since(begun); waited < patience/2 {
		t.Errorf("it took %s to get rid of idlers; the limit is %s", waited, patience)
	}
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(2 * time.Minute))
	if _, err := io.WriteString(conn, "GET /metrics HTTP/1.1\r\nHost: x\r\nX-Long: "+strings.Repeat("a", 64<<10)+"\r\n\r\n"); err != nil {
		return // hung up on while writing
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err == nil && !strings.Contains(line, "431") {
		t.Errorf("to a header of 64 KiB: %q", line)
	}
}
