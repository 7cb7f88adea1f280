package client

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"
)

// TestInterruptedAnswer: Ctrl-C in the middle of an answer reads as before it.
func TestInterruptedAnswer(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	interrupt := func() {}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "[{")
		w.(http.Flusher).Flush()
		interrupt()
		<-r.Context().Done()
	}))
	server.Listener = l
	server.Start()
	defer server.Close()
	c := New(path)
	defer c.Close()
	for what, ask := range map[string]func(context.Context) error{
		"an answer":  func(ctx context.Context) error { _, err := c.Adverts(ctx); return err },
		"a raw body": func(ctx context.Context) error { _, err := c.Fetch(ctx, "/metrics", 100); return err },
	} {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		interrupt = cancel
		if err := ask(ctx); !errors.Is(err, context.Canceled) || err.Error() != "interrupted before the agent answered" {
			t.Errorf("%s: %v", what, err)
		}
	}
}
