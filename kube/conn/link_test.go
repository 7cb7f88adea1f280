package conn

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"
)

// TestLink drives a link through the ends of requests and checks when the
// connection counts as lost, and what is logged.
func TestLink(t *testing.T) {
	var log bytes.Buffer
	now := time.Unix(1_800_000_000, 0)
	l := &Link{log: slog.New(slog.NewTextHandler(&log, nil)), now: func() time.Time { return now }}
	lines := func(want int, text string) {
		t.Helper()
		got := strings.Split(strings.TrimSpace(log.String()), "\n")
		if log.Len() == 0 {
			got = nil
		}
		if len(got) != want || want > 0 && !strings.Contains(got[len(got)-1], text) {
			t.Fatalf("%d lines, want %d ending in %q:\n%s", len(got), want, text, log.String())
		}
	}
	var lost error
	var status int
	var failure error
	var takes time.Duration
	transport := l.wrap(transportFunc(func(*http.Request) (*http.Response, error) {
		now = now.Add(takes)
		if failure != nil {
			return nil, failure
		}
		return &http.Response{StatusCode: status, Status: "injected"}, nil
	}))
	send := func(ctx context.Context, method string, code int, err error) {
		status, failure = code, err
		req, _ := http.NewRequestWithContext(ctx, method, "https://server/", nil)
		_, _ = transport.RoundTrip(req)
	}
	ctx := t.Context()
	refused := errors.New("connection refused")

	l.waiting(ErrNoKubeconfig)
	l.waiting(ErrNoKubeconfig)
	lines(1, "no API server is known yet")
	l.trying("https://server", "/file")
	for range 3 {
		l.waiting(refused)
	}
	lines(2, "waiting for the API server")
	l.connected(func(err error) { lost = err })
	lines(3, "connected")

	// Faults between successes never add up.
	for range 10 {
		now = now.Add(time.Second)
		send(ctx, http.MethodGet, 0, refused)
		send(ctx, http.MethodPatch, http.StatusServiceUnavailable, nil)
		send(ctx, http.MethodPatch, http.StatusConflict, nil)
	}
	if lost != nil || l.Status().Writes != 20 {
		t.Fatalf("lost %v after %d writes", lost, l.Status().Writes)
	}
	// Nothing is stored of a question.
	for _, path := range []string{"/apis/authorization.k8s.io/v1/subjectaccessreviews", "/apis/authentication.k8s.io/v1/tokenreviews", "/apis/rbac.authorization.k8s.io/v1/clusterroles"} {
		status, failure = http.StatusCreated, nil
		req, _ := http.NewRequestWithContext(ctx, http.MethodPost, "https://server"+path, nil)
		_, _ = transport.RoundTrip(req)
	}
	if l.Status().Writes != 21 {
		t.Fatalf("%d writes", l.Status().Writes)
	}
	// A request that we gave up says nothing.
	canceled, cancel := context.WithCancel(ctx)
	cancel()
	for range 5 {
		now = now.Add(time.Second)
		send(canceled, http.MethodGet, 0, context.Canceled)
	}
	if lost != nil {
		t.Fatal("lost by our own doing")
	}
	// Nor does a request that took long while others were answered.
	send(ctx, http.MethodGet, http.StatusOK, nil)
	l.failed(now.Add(-time.Minute), refused)
	if lost != nil {
		t.Fatal("lost while the server answers")
	}
	send(ctx, http.MethodGet, http.StatusOK, nil)
	// One long silence is enough.
	takes = 10 * time.Second
	send(ctx, http.MethodGet, 0, context.DeadlineExceeded)
	if !errors.Is(lost, errLost) {
		t.Fatal("a server that does not answer for ten seconds is not lost")
	}
	l.disconnected(lost)
	l.waiting(refused)
	lines(4, "lost the connection")
	if s := l.Status(); s.Connected || s.LastError != "connection refused" || s.Since != now {
		t.Errorf("status = %+v", s)
	}
	// Errors of the server over some time count as well; so do refused credentials.
	for _, code := range []int{http.StatusInternalServerError, http.StatusUnauthorized} {
		lost, takes = nil, 0
		l.connected(func(err error) { lost = err })
		for range 3 {
			send(ctx, http.MethodGet, code, nil)
			now = now.Add(patience / 2)
		}
		if lost == nil {
			t.Errorf("status %d for %v is not a loss", code, patience)
		}
		l.disconnected(lost)
	}
	l.connected(func(error) {})
	l.disconnected(errKubeconfigReplaced)
	lines(10, "kubeconfig was replaced")
	l.connected(func(error) {})
	l.disconnected(context.Canceled)
	lines(11, "connected") // the agent ends: nothing to report
	l.connected(func(error) {})
	l.disconnected(errors.New("this cluster's key is now another"))
	lines(12, "connected") // its parts begin anew: nothing was lost
}

type transportFunc func(*http.Request) (*http.Response, error)

func (f transportFunc) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }
