package kubelet

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	"liqo.io/agent/throttle"
)

// provider is the way to an API server that answers as a test wants it.
type provider struct {
	transport
	upgrade func(r *http.Request) (net.Conn, *http.Response, error)
}

func (p provider) Upgrade(_ context.Context, r *http.Request) (net.Conn, *http.Response, error) {
	return p.upgrade(r)
}

// newHandler returns a handler for pods that all run at a provider, for any caller
// with the token "good".
func newHandler(t *testing.T, ctx context.Context, p provider) *handler {
	t.Helper()
	api := &reviewer{tokens: map[string]string{"good": "admin", "other": "helper"}, allowed: map[string]bool{
		"helper create nodes/proxy liqo-far": true,
		"admin get nodes/proxy liqo-far":     true, "admin create nodes/proxy liqo-far": true, "admin get nodes/metrics ": true, "admin get nodes/proxy ": true}}
	return &handler{ctx: ctx, usage: meters{}, gate: newGate(clientOf(t, api), nil), logger: slog.New(slog.DiscardHandler), proven: func() {}, streams: throttle.NewSlots[string](2, 3),
		find: func(namespace, pod string) (Place, bool) {
			if pod == "gone" {
				return Place{}, false
			}
			return Place{ID: "far", Node: "liqo-far", Namespace: "there-" + namespace, Name: pod, Upstream: p}, true
		}}
}

// serve serves such a handler.
func serve(t *testing.T, ctx context.Context, p provider) (*handler, *httptest.Server) {
	t.Helper()
	h := newHandler(t, ctx, p)
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return h, server
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer good")
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return answer.StatusCode, "broken off after " + string(text)
	}
	return answer.StatusCode, strings.TrimSpace(string(text))
}

func TestAnswers(t *testing.T) {
	answers := map[string]func(w http.ResponseWriter){
		"fine": func(w http.ResponseWriter) { _, _ = io.WriteString(w, "a line") },
		"waiting": func(w http.ResponseWriter) {
			status(w, 400, "container \"main\" is waiting to start: ContainerCreating")
		},
		"denied":  func(w http.ResponseWriter) { status(w, 403, "not yours") },
		"unknown": func(w http.ResponseWriter) { status(w, 401, "who are you") },
		"page":    func(w http.ResponseWriter) { w.WriteHeader(503); _, _ = io.WriteString(w, "<b>\x1b[31m") },
		"moved":   func(w http.ResponseWriter) { w.WriteHeader(302) },
	}
	up := provider{transport: transport{http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" {
			t.Error("the provider is told about the caller")
		}
		answers[strings.Split(r.URL.Path, "/")[6]](w)
	})}}
	_, server := serve(t, t.Context(), up)
	for pod, want := range map[string]struct {
		status int
		text   string
	}{
		"fine":    {200, "a line"},
		"waiting": {400, "container \"main\" is waiting to start: ContainerCreating"},
		"denied":  {403, "provider far refuses the request: not yours"},
		"unknown": {502, "provider far does not let this cluster in: who are you"},
		"page":    {503, "<b> [31m"},
		"moved":   {502, "provider far answered with the unexpected status 302"},
	} {
		if code, text := get(t, server.URL+"/containerLogs/shop/"+pod+"/main"); code != want.status || text != want.text {
			t.Errorf("%s: %d %q", pod, code, text)
		}
	}
	if code, text := get(t, server.URL+"/containerLogs/shop/gone/main"); code != 404 || !strings.Contains(text, "not at any provider") {
		t.Errorf("a pod that is not there: %d %s", code, text)
	}
	if code, text := get(t, server.URL+"/exec/shop/fine/main?output=1&command=id"); code != 400 || !strings.Contains(text, "not an upgrade") {
		t.Errorf("exec without an upgrade: %d %s", code, text)
	}
	if code, text := get(t, server.URL+"/metrics/resource"); code != 200 || !strings.Contains(text, "\nresource_scrape_error 0") {
		t.Errorf("metrics: %d %s", code, text)
	}
	answer, err := http.Get(server.URL + "/containerLogs/shop/fine/main")
	if err != nil || answer.StatusCode != http.StatusUnauthorized {
		t.Errorf("anonymous: %v, %v", answer, err)
	}
}

func status(w http.ResponseWriter, code int, message string) {
	w.WriteHeader(code)
	_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"`+strings.ReplaceAll(message, `"`, `\"`)+`"}`)
}

// begin sends an upgrade and returns the connection and the answer.
func begin(t *testing.T, server *httptest.Server, header http.Header) (net.Conn, *bufio.Reader, *http.Response) {
	t.Helper()
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(2 * time.Minute))
	r, err := http.NewRequest(http.MethodPost, server.URL+"/exec/shop/web/main?output=1&input=1&command=id", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header = header
	if r.Header.Get("Authorization") == "" {
		r.Header.Set("Authorization", "Bearer good")
	}
	r.Header.Set("Connection", "Upgrade")
	if err := r.Write(conn); err != nil {
		t.Fatal(err)
	}
	reader := bufio.NewReader(conn)
	answer, err := http.ReadResponse(reader, r)
	if err != nil {
		t.Fatal(err)
	}
	return conn, reader, answer
}

func TestStreams(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	far := make(chan net.Conn, 3)
	sent := make(chan *http.Request, 2)
	up := provider{upgrade: func(r *http.Request) (net.Conn, *http.Response, error) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, nil, err
		}
		defer l.Close()
		near, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			return nil, nil, err
		}
		there, err := l.Accept()
		if err != nil {
			return nil, nil, err
		}
		sent <- r
		far <- there
		return near, &http.Response{StatusCode: 101, Header: http.Header{"Upgrade": {"SPDY/3.1"}, "Connection": {"Upgrade"},
			"X-Stream-Protocol-Version": {"v4.channel.k8s.io"}, "Set-Cookie": {"a=b"}}}, nil
	}}
	h, server := serve(t, ctx, up)
	conn, reader, answer := begin(t, server, http.Header{"Upgrade": {"SPDY/3.1"}, "Cookie": {"c=d"}, "X-Remote-User": {"root"},
		"X-Stream-Protocol-Version": {"v5.channel.k8s.io", "v4.channel.k8s.io"}})
	if answer.StatusCode != 101 || answer.Header.Get("X-Stream-Protocol-Version") != "v4.channel.k8s.io" || answer.Header.Get("Set-Cookie") != "" {
		t.Fatalf("answer: %d %v", answer.StatusCode, answer.Header)
	}
	r, there := <-sent, <-far
	if want := (http.Header{"Connection": {"Upgrade"}, "Upgrade": {"SPDY/3.1"}, "User-Agent": {"liqo-agent"},
		"X-Stream-Protocol-Version": {"v5.channel.k8s.io", "v4.channel.k8s.io"}}); !reflect.DeepEqual(r.Header, want) {
		t.Errorf("the provider got %v", r.Header)
	}
	if want := "/api/v1/namespaces/there-shop/pods/web/exec?command=id&container=main&stdin=true&stdout=true"; r.URL.RequestURI() != want || r.Method != "POST" {
		t.Errorf("the provider got %s %s", r.Method, r.URL.RequestURI())
	}
	// What is said before the end of one direction arrives, and so does the answer to
	// all of it.
	want := bytes.Repeat([]byte("there and back "), 10_000)
	go func() {
		_, _ = conn.Write(want)
		_ = conn.(*net.TCPConn).CloseWrite()
	}()
	got, err := io.ReadAll(there)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("there: %d bytes, %v", len(got), err)
	}
	all := frame(errorStream, "all of it")
	if _, err := there.Write(all); err != nil {
		t.Error(err)
	}
	_ = there.Close()
	if got, err := io.ReadAll(reader); err != nil || !bytes.Equal(got, all) {
		t.Errorf("back: %q, %v", got, err)
	}
	_ = conn.Close()

	for deadline := time.Now().Add(2 * time.Minute); h.streams.Taken() > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the stream that ended keeps its place")
		}
	}

	// Streams that are open end with the run, and there is a limit to them.
	for range 2 {
		if _, _, answer := begin(t, server, http.Header{"Upgrade": {"SPDY/3.1"}}); answer.StatusCode != 101 {
			t.Fatalf("answer: %d", answer.StatusCode)
		}
		<-sent
	}
	if _, _, answer := begin(t, server, http.Header{"Upgrade": {"SPDY/3.1"}}); answer.StatusCode != http.StatusTooManyRequests {
		t.Errorf("one more: %d", answer.StatusCode)
	}
	if _, _, answer := begin(t, server, http.Header{"Upgrade": {"SPDY/3.1"}, "Authorization": {"Bearer other"}}); answer.StatusCode != 101 {
		t.Errorf("another caller: %d", answer.StatusCode)
	}
	<-sent
	stop()
	h.wait()
	if code, _ := get(t, server.URL+"/healthz"); code != http.StatusServiceUnavailable {
		t.Errorf("after the end: %d", code)
	}
	for range 3 {
		if _, err := io.ReadAll(<-far); err != nil && !errors.Is(err, io.EOF) {
			t.Logf("a stream ended with %v", err)
		}
	}
}

func TestUpgradesThatFail(t *testing.T) {
	up := provider{upgrade: func(r *http.Request) (net.Conn, *http.Response, error) {
		if r.Header.Get("Upgrade") == "websocket" {
			return nil, nil, errors.New("the cable is out")
		}
		body := `{"kind":"Status","message":"pods \"web\" not found"}`
		return nil, &http.Response{StatusCode: 404, Body: io.NopCloser(strings.NewReader(body))}, nil
	}}
	_, server := serve(t, t.Context(), up)
	for protocol, want := range map[string]int{"SPDY/3.1": 404, "websocket": 502, "h2c": 400} {
		if _, _, answer := begin(t, server, http.Header{"Upgrade": {protocol}}); answer.StatusCode != want {
			t.Errorf("%s: %d", protocol, answer.StatusCode)
		}
	}
}

func TestUpgradeHeader(t *testing.T) {
	got, err := upgrade(http.Header{"Connection": {"keep-alive, upgrade"}, "Upgrade": {"websocket"}, "Origin": {"https://box"},
		"Sec-Websocket-Key": {"k"}, "Sec-Websocket-Version": {"13"},
		"Sec-Websocket-Protocol": {"base64url.bearer.authorization.k8s.io.c2VjcmV0, v4.channel.k8s.io"}})
	want := http.Header{"Connection": {"Upgrade"}, "Upgrade": {"websocket"}, "Sec-Websocket-Key": {"k"}, "Sec-Websocket-Version": {"13"},
		"Sec-Websocket-Protocol": {"v4.channel.k8s.io"}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v, %v", got, err)
	}
	for _, header := range []http.Header{
		{},
		{"Connection": {"Upgrade"}},
		{"Upgrade": {"SPDY/3.1"}},
		{"Connection": {"Upgrade"}, "Upgrade": {"TLS/1.0"}},
		{"Connection": {"Upgrade"}, "Upgrade": {"SPDY/3.1"}, "X-Stream-Protocol-Version": make([]string, maxProtocols+1)},
	} {
		if got, err := upgrade(header); err == nil {
			t.Errorf("%v became %v", header, got)
		}
	}
}

// TestLogThatBreaksOff: what is not all of a log must not look like all of it.
func TestLogThatBreaksOff(t *testing.T) {
	up := provider{}
	broken := brokenLog{}
	_, server := serve(t, t.Context(), up)
	server.Config.Handler.(*handler).find = func(string, string) (Place, bool) { return Place{ID: "far", Node: "liqo-far", Upstream: broken}, true }
	if code, text := get(t, server.URL+"/containerLogs/shop/web/main"); code != 200 || text != "broken off after half" {
		t.Errorf("%d %q", code, text)
	}
}

type brokenLog struct{ provider }

func (brokenLog) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: 200, Body: io.NopCloser(io.MultiReader(strings.NewReader("half"), failing{}))}, nil
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errors.New("reset") }
