package socket

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"liqo.io/agent/agent/control"
	"liqo.io/agent/agent/socket/client"
)

// reloader answers as a test says.
type reloader struct {
	answer     control.Reload
	err        error
	generation atomic.Int64
	asked      atomic.Int32
}

func (r *reloader) Reload(context.Context) (control.Reload, error) { return r.answer, r.err }

// Generation implements Reloader: the parts are there at the third question.
func (r *reloader) Generation() int64 {
	if r.asked.Add(1) == 3 {
		r.generation.Add(1)
	}
	return r.generation.Load()
}

func serveReloads(t *testing.T, r Reloader) *client.Client {
	t.Helper()
	_, c := serveWith(t, ServerConfig{Backend: &memory{}, Reloader: r})
	return c
}

func TestReload(t *testing.T) {
	c := serveReloads(t, &reloader{})
	got, err := c.Reload(t.Context())
	if err != nil || got.Changed == nil || got.Restart == nil {
		t.Errorf("%+v, %v: want empty arrays", got, err)
	}

	c = serveReloads(t, &reloader{err: &control.Error{Kind: control.ErrInvalid, Message: "bad configuration: log.level", Advice: "mend it"}})
	_, err = c.Reload(t.Context())
	var e *control.Error
	if !errors.Is(err, control.ErrInvalid) || !errors.As(err, &e) || e.Message != "bad configuration: log.level" || e.Advice != "mend it" {
		t.Errorf("error %v", err)
	}
}

// TestReloadWaits looks at a reload for which the parts are made anew: it is over when they are there.
func TestReloadWaits(t *testing.T) {
	r := &reloader{answer: control.Reload{Rebuilding: true, Generation: 4, Changed: []string{"discovery.service"}}}
	r.generation.Store(4)
	got, err := serveReloads(t, r).Reload(t.Context())
	if err != nil || got.Rebuilding || got.Generation != 5 || r.asked.Load() != 3 {
		t.Errorf("%+v, %v after %d questions", got, err, r.asked.Load())
	}

	r = &reloader{answer: control.Reload{Rebuilding: true, Generation: 9}}
	c := serveReloads(t, r)
	// A time that is over before the agent is asked for its parts is too short to say anything.
	for wait := 300 * time.Millisecond; r.asked.Load() == 0 && wait < 5*time.Minute; wait *= 2 {
		ctx, cancel := context.WithTimeout(t.Context(), wait)
		got, err = c.Reload(ctx)
		cancel()
	}
	if err == nil || !strings.Contains(err.Error(), "did not come back") {
		t.Errorf("%+v, %v: parts that never come", got, err)
	}
}

func TestServerThatCannotReload(t *testing.T) {
	_, err := serveReloads(t, nil).Reload(t.Context())
	if !errors.Is(err, control.ErrNotFound) {
		t.Errorf("error %v", err)
	}
}

func TestSelfCheck(t *testing.T) {
	b := &memory{}
	s := NewServer(ServerConfig{Backend: b, Level: new(slog.LevelVar), Logger: slog.New(slog.DiscardHandler)})
	if _, err := s.SelfCheck(t.Context()); err != nil {
		t.Error(err)
	}
	s.cfg.Backend = brokenBackend{b}
	if _, err := s.SelfCheck(t.Context()); err == nil || !strings.Contains(err.Error(), "500") || !strings.Contains(err.Error(), "out of order") {
		t.Errorf("error %v", err)
	}
}

// brokenBackend has no status.
type brokenBackend struct{ Backend }

// Status implements Backend.
func (brokenBackend) Status(context.Context) (control.Status, error) {
	return control.Status{}, errors.New("out of order")
}
