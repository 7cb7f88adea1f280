package admission

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"liqo.io/agent/api"
	"liqo.io/agent/internal/leak"
	"liqo.io/agent/peer"
)

func TestMain(m *testing.M) { leak.Main(m) }

// hang bounds what takes forever if it fails. It says nothing about how fast anything is.
const hang = 5 * time.Minute

// serving is a Server at work and a client that trusts it as an API server does.
type serving struct {
	*Server
	log    *logBuffer
	client *http.Client
	url    string
}

type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// serve runs a Server on a port of its own until the test ends.
func serve(t *testing.T, times timeouts, standing func(peer.ClusterID) Policy) *serving {
	t.Helper()
	log := &logBuffer{}
	s, err := NewServer(Config{
		Listen: "127.0.0.1:0", Dir: t.TempDir(), Policy: standing,
		Logger: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Listen(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.times = times
	r := &serving{Server: s, log: log}
	r.url, r.client = dial(t, s)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		r.client.CloseIdleConnections()
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return r
}

// dial takes what an API server needs out of the configuration.
func dial(t *testing.T, s *Server) (url string, client *http.Client) {
	t.Helper()
	config := s.Webhook()["webhooks"].([]any)[0].(map[string]any)["clientConfig"].(map[string]any)
	bundle, err := base64.StdEncoding.DecodeString(config["caBundle"].(string))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(bundle) {
		t.Fatal("no certificate in the bundle")
	}
	return config["url"].(string), &http.Client{
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, MaxIdleConnsPerHost: 2 * maxConns},
		Timeout:   hang,
	}
}

// post returns the status and the body of the answer.
func (r *serving) post(t *testing.T, contentType, body string) (int, string) {
	t.Helper()
	answer, err := r.client.Post(r.url, contentType, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(text)
}

// unhurried are timeouts of which none closes a connection that is needed, on a machine as slow as may be.
var unhurried = timeouts{header: hang, read: hang, write: hang, idle: hang, shutdown: defaultTimeouts.shutdown}

func trusting(peer.ClusterID) Policy { return Policy{Pinned: true, Accept: api.RequestAccepted} }

func TestServer(t *testing.T) {
	r := serve(t, unhurried, func(id peer.ClusterID) Policy {
		return Policy{Pinned: id == barn, Accept: api.RequestPending}
	})
	create := reviewText("CREATE", api.PeerUserPrefix("liqo")+barn, api.PeerGroup, strings.Replace(objectText, `"finalizers":["f"],`, "", 1), "null")
	t.Run("answers", func(t *testing.T) {
		for _, tc := range []struct {
			name, review string
			allowed      bool
			want         string
		}{
			{"held", create, true, `"warnings":["the request waits`},
			{"other peer", strings.Replace(create, api.PeerUserPrefix("liqo")+barn, api.PeerUserPrefix("liqo")+"mallory", 1), false, `"code":403`},
			{"unknown", strings.ReplaceAll(create, barn, "shed"), false, `{"reason":"NotTrusted"`},
			{"bad object", reviewText("CREATE", "a", "b", "7", "null"), false, `"code":400`},
		} {
			code, body := r.post(t, "application/json; charset=utf-8", tc.review)
			var a answer
			if err := json.Unmarshal([]byte(body), &a); err != nil || code != http.StatusOK {
				t.Fatalf("%s: %d %v %s", tc.name, code, err, body)
			}
			if a.Response.UID != "705ab4f5-6393-11e8-b7cc-42010a800002" || a.APIVersion != reviewVersion || a.Kind != reviewKind ||
				a.Response.Allowed != tc.allowed || !strings.Contains(body, tc.want) {
				t.Errorf("%s: %s", tc.name, body)
			}
		}
	})
	t.Run("no review", func(t *testing.T) {
		for _, tc := range []struct {
			name, contentType, body string
			code                    int
			want                    string
		}{
			{"no JSON", "application/json", "hello", http.StatusBadRequest, "no AdmissionReview"},
			{"empty", "application/json", "", http.StatusBadRequest, "no AdmissionReview"},
			{"no request", "application/json", `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1"}`, http.StatusBadRequest, "without a request"},
			{"no uid", "application/json", strings.Replace(create, "705ab4f5-6393-11e8-b7cc-42010a800002", "", 1), http.StatusBadRequest, "without a usable uid"},
			{"YAML", "application/yaml", create, http.StatusUnsupportedMediaType, "application/json"},
			{"nothing", "", create, http.StatusUnsupportedMediaType, ""},
			{"too large", "application/json", strings.Repeat(" ", maxBody) + create, http.StatusRequestEntityTooLarge, fmt.Sprint(maxBody)},
		} {
			if code, body := r.post(t, tc.contentType, tc.body); code != tc.code || !strings.Contains(body, tc.want) {
				t.Errorf("%s: %d %s", tc.name, code, body)
			}
		}
		// Exactly as large as allowed is not too large.
		if code, body := r.post(t, "application/json", create+strings.Repeat(" ", maxBody-len(create))); code != http.StatusOK {
			t.Errorf("%d %s", code, body)
		}
	})
	t.Run("elsewhere", func(t *testing.T) {
		base := strings.TrimSuffix(r.url, admitPath)
		for request, want := range map[string]int{
			"GET " + admitPath: http.StatusMethodNotAllowed, "PUT " + admitPath: http.StatusMethodNotAllowed,
			"POST /": http.StatusNotFound, "POST " + admitPath + "/x": http.StatusNotFound, "GET /metrics": http.StatusNotFound,
		} {
			method, path, _ := strings.Cut(request, " ")
			q, err := http.NewRequestWithContext(t.Context(), method, base+path, strings.NewReader(create))
			if err != nil {
				t.Fatal(err)
			}
			q.Header.Set("Content-Type", "application/json")
			answer, err := r.client.Do(q)
			if err != nil {
				t.Fatal(err)
			}
			answer.Body.Close()
			if answer.StatusCode != want {
				t.Errorf("%s: %d", request, answer.StatusCode)
			}
		}
	})
	t.Run("log", func(t *testing.T) {
		for range 50 {
			r.post(t, "application/json", "hello")
		}
		log := r.log.String()
		if n := strings.Count(log, "level=WARN") + strings.Count(log, "was refused"); n == 0 || n > 10 {
			t.Errorf("%d lines about refusals:\n%s", n, log)
		}
		if !strings.Contains(log, "cause=NotTrusted") || !strings.Contains(log, "cause=OtherName") {
			t.Errorf("the log does not say why:\n%s", log)
		}
	})
}

func TestListen(t *testing.T) {
	logger := slog.New(slog.DiscardHandler)
	for _, listen := range []string{":6446", "0.0.0.0:6446", "10.0.0.1:6446", "127.0.0.2:6446", "localhost:6446", "127.0.0.1", "[::]:6446", "[::1%lo]:6446", "x"} {
		if _, err := NewServer(Config{Listen: listen, Dir: t.TempDir(), Logger: logger}); err == nil || !strings.Contains(err.Error(), "127.0.0.1") {
			t.Errorf("%s: %v", listen, err)
		}
	}
	t.Run("default", func(t *testing.T) {
		s, err := NewServer(Config{Dir: t.TempDir(), Logger: logger})
		if err != nil || s.listen.String() != "127.0.0.1:6446" || s.Port() != 0 || s.Webhook() != nil {
			t.Errorf("%+v, %v", s, err)
		}
	})
	t.Run("taken port", func(t *testing.T) {
		taken, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer taken.Close()
		log := &logBuffer{}
		s, err := NewServer(Config{Listen: taken.Addr().String(), Dir: t.TempDir(), Logger: slog.New(slog.NewTextHandler(log, nil)), Policy: trusting})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Listen(t.Context()); err != nil {
			t.Fatal(err)
		}
		defer s.listener.Close()
		if port := s.Port(); port == 0 || strings.HasSuffix(taken.Addr().String(), fmt.Sprint(":", port)) {
			t.Errorf("port %d", port)
		}
		if url, _ := dial(t, s); url != fmt.Sprintf("https://127.0.0.1:%d%s", s.Port(), admitPath) {
			t.Errorf("url %s", url)
		}
		if !strings.Contains(log.String(), "is in use") {
			t.Errorf("log: %s", log)
		}
		if err := s.Listen(t.Context()); err == nil {
			t.Error("it listens twice")
		}
	})
	t.Run("IPv6", func(t *testing.T) {
		s, err := NewServer(Config{Listen: "[::1]:0", Dir: t.TempDir(), Logger: logger, Policy: trusting})
		if err != nil {
			t.Fatal(err)
		}
		s.times = unhurried
		ctx, cancel := context.WithCancel(t.Context())
		if err := s.Listen(ctx); err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- s.Run(ctx) }()
		url, client := dial(t, s)
		answer, err := client.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		client.CloseIdleConnections()
		cancel()
		if err := <-done; err != nil || s.Port() != 0 {
			t.Errorf("%v, port %d", err, s.Port())
		}
	})
}

// TestConfigurationIsStable: the same after a restart, and as JSON would be.
func TestConfigurationIsStable(t *testing.T) {
	dir, log := t.TempDir(), slog.New(slog.DiscardHandler)
	var texts []string
	listen := "[::1]:0" // where next to nobody else takes the port in between
	for range 2 {
		s, err := NewServer(Config{Listen: listen, Dir: dir, Logger: log, Policy: trusting})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		if err := s.Listen(ctx); err != nil {
			t.Fatal(err)
		}
		listen = fmt.Sprintf("[::1]:%d", s.Port())
		text, err := json.Marshal(s.Webhook())
		if err != nil {
			t.Fatal(err)
		}
		var back any
		if err := json.Unmarshal(text, &back); err != nil || fmt.Sprint(back) != fmt.Sprint(any(s.Webhook())) {
			t.Errorf("%v: as JSON it is %v", err, back)
		}
		texts = append(texts, string(text))
		cancel()
		if err := s.Run(ctx); err != nil {
			t.Errorf("Run: %v", err)
		}
	}
	if texts[0] != texts[1] {
		t.Errorf("it changed:\n%s\n%s", texts[0], texts[1])
	}
}

const tooMany = 3 * maxConns

// TestBurst: the API server gets all its answers, in turn, however much it asks at
// once, and whatever others hold on to.
func TestBurst(t *testing.T) {
	// Each of the requests has a handshake of its own, and all of them together need two seconds of a processor with the race detector.
	r := serve(t, unhurried, trusting)

	// Others ask something once and keep their connections.
	for i := range maxConns {
		_, client := dial(t, r.Server)
		defer client.CloseIdleConnections()
		answer, err := client.Get(r.url)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, answer.Body); err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if i == 0 && answer.Close || i == maxConns-1 && !answer.Close {
			t.Errorf("connection %d ends with its answer: %v", i, answer.Close)
		}
	}

	create := reviewText("CREATE", api.PeerUserPrefix("liqo")+barn, api.PeerGroup, strings.Replace(objectText, `"finalizers":["f"],`, "", 1), "null")
	failed := make(chan error)
	for range tooMany {
		go func() {
			answer, err := r.client.Post(r.url, "application/json", strings.NewReader(create))
			if err == nil {
				_, err = io.Copy(io.Discard, answer.Body)
				answer.Body.Close()
				if answer.StatusCode != http.StatusOK {
					err = errors.New(answer.Status)
				}
			}
			failed <- err
		}()
	}
	for range tooMany {
		if err := <-failed; err != nil {
			t.Error(err)
		}
	}
}

// TestSilentConnections: those on which nothing is asked, or half of something,
// end by themselves, and the others get their turn.
func TestSilentConnections(t *testing.T) {
	times := unhurried
	times.header = 3 * time.Second
	r := serve(t, times, trusting)
	var open []net.Conn
	address, _ := r.address()
	for i := range tooMany {
		c, err := net.Dial("tcp", address.String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if i%2 == 0 {
			if _, err := c.Write([]byte{22, 3, 1}); err != nil { // the beginning of a TLS record
				t.Fatal(err)
			}
		}
		open = append(open, c)
	}
	for _, c := range open {
		if err := c.SetReadDeadline(time.Now().Add(hang)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal("a connection is held open for good")
		}
	}
	// One that asks has its handshake within that time, too, unless the machine is too busy: then it comes again.
	for end := time.Now().Add(hang); ; {
		answer, err := r.client.Post(r.url, "application/json", strings.NewReader("{}"))
		if err != nil && time.Now().Before(end) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if answer.StatusCode != http.StatusBadRequest {
			t.Error(answer.Status)
		}
		return
	}
}
