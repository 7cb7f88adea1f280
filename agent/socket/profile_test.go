package socket

import (
	"bufio"
	"compress/gzip"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// raw sends one request over the socket, as curl does.
func raw(t *testing.T, s *Server, method, url, body string) (int, string) {
	t.Helper()
	transport := &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", s.cfg.Path)
		},
	}
	req, err := http.NewRequestWithContext(t.Context(), method, "http://agent"+url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(answer)
}

func TestExplain(t *testing.T) {
	s, _ := serveWith(t, ServerConfig{Backend: &memory{}, Explain: func(w io.Writer) error {
		_, err := io.WriteString(w, "nothing is pending")
		return err
	}})
	if status, body := raw(t, s, "GET", "/debug/peering", ""); status != http.StatusOK || body != "nothing is pending" {
		t.Errorf("%d %s", status, body)
	}
}

func TestProfiles(t *testing.T) {
	s, _ := serve(t, &memory{})
	for _, c := range []struct {
		method, url string
		status      int
		has         string
		packed      bool
	}{
		{"GET", "/debug/pprof/", 200, "goroutine\nheap\n", false},
		{"GET", "/debug/pprof/heap", 200, "", true},
		{"GET", "/debug/pprof/heap?gc=1", 200, "", true},
		{"GET", "/debug/pprof/goroutine?debug=1", 200, "goroutine profile: total", false},
		{"GET", "/debug/pprof/goroutine?debug=2", 200, "TestProfiles", false},
		{"GET", "/debug/pprof/profile?seconds=1", 200, "", true},
		{"GET", "/debug/pprof/trace?seconds=1", 200, "go 1.", false},
		{"GET", "/debug/pprof/profile?seconds=61", 400, "from 1 to 60", false},
		{"GET", "/debug/pprof/profile?seconds=0", 400, "from 1 to 60", false},
		{"GET", "/debug/pprof/trace?seconds=soon", 400, "from 1 to 60", false},
		{"GET", "/debug/pprof/heap?debug=7", 400, "from 0 to 2", false},
		{"GET", "/debug/pprof/heap?gc=yes", 400, "from 0 to 1", false},
		{"GET", "/debug/pprof/cmdline", 404, "there is no profile", false},
		{"POST", "/debug/pprof/heap", 404, "does not support POST", false},
		{"GET", "/debug/vars", 404, "does not support", false},
	} {
		status, body := raw(t, s, c.method, c.url, "")
		if status != c.status || !strings.Contains(body, c.has) {
			t.Errorf("%s %s: %d, want %d and %q:\n%.300s", c.method, c.url, status, c.status, c.has, body)
		}
		if _, err := gzip.NewReader(strings.NewReader(body)); (err == nil) != c.packed {
			t.Errorf("%s %s: a profile is there %t, want %t", c.method, c.url, err == nil, c.packed)
		}
	}
}

// TestOneRecordingAtATime: the second one is told so, and who goes away ends his.
func TestOneRecordingAtATime(t *testing.T) {
	s, _ := serve(t, &memory{})
	conn, err := net.Dial("unix", s.cfg.Path)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "GET /debug/pprof/profile?seconds=60 HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(conn).ReadString('\n'); err != nil || !strings.Contains(line, "200") {
		t.Fatalf("%q, %v", line, err) // which says that it began
	}
	if status, body := raw(t, s, "GET", "/debug/pprof/profile?seconds=1", ""); status != 503 || !strings.Contains(body, "another recording is in progress") {
		t.Errorf("the second one: %d %.300s", status, body)
	}
	conn.Close()
	for deadline := time.Now().Add(2 * time.Minute); ; {
		status, _ := raw(t, s, "GET", "/debug/pprof/profile?seconds=1", "")
		if status == 200 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the recording of a client that went away goes on")
		}
	}
}

func TestMetricsOnTheSocket(t *testing.T) {
	metrics := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "# what there is\n") })
	s := NewServer(ServerConfig{Path: filepath.Join(t.TempDir(), "agent.sock"), Backend: &memory{}, Level: new(slog.LevelVar),
		Metrics: metrics, Logger: slog.New(slog.DiscardHandler)})
	if err := s.Listen(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	if status, body := raw(t, s, "GET", "/metrics", ""); status != 200 || body != "# what there is\n" {
		t.Errorf("%d %s", status, body)
	}
	if status, _ := raw(t, s, "POST", "/metrics", ""); status != 404 {
		t.Errorf("POST: %d", status)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	without, _ := serve(t, &memory{})
	if status, _ := raw(t, without, "GET", "/metrics", ""); status != 404 {
		t.Errorf("without metrics: %d", status)
	}
}

// TestNothingOnTheDefaultMux: whoever serves that by mistake shows nothing of ours.
func TestNothingOnTheDefaultMux(t *testing.T) {
	for _, path := range []string{"/debug/pprof/", "/debug/pprof/heap", "/debug/vars", "/metrics"} {
		req, err := http.NewRequest("GET", path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, pattern := http.DefaultServeMux.Handler(req); pattern != "" {
			t.Errorf("%s is on net/http's default mux as %s", path, pattern)
		}
	}
}
