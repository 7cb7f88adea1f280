package socket

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"liqo.io/agent/agent/control"
	"liqo.io/agent/agent/socket/client"
	"liqo.io/agent/internal/leak"
	"liqo.io/agent/peer"
)

func TestMain(m *testing.M) {
	if path := os.Getenv(helperSocket); path != "" {
		helperMain(path)
		return
	}
	leak.Main(m)
}

const (
	idBarn = "0558de48-097b-4b7d-ba04-6bd2a0f9d24f"
	idSilo = "0558de49-1111-4b7d-ba04-6bd2a0f9d24f"
)

func twoPeers() []control.Peer {
	return []control.Peer{
		{ID: idSilo, Name: "silo", Phase: "Lost", Verified: true, Addresses: []string{}, Links: []string{}, Remembered: true},
		{ID: idBarn, Name: "barn", Phase: "Present", Verified: true, Addresses: []string{"192.0.2.7:6447"}, Links: []string{"eth0"}},
	}
}

// serve runs a server on a socket of its own until the test ends.
func serve(t *testing.T, b Backend) (*Server, *client.Client) {
	t.Helper()
	return serveWith(t, ServerConfig{Backend: b})
}

// serveWith is serve with more than a backend.
func serveWith(t *testing.T, cfg ServerConfig) (*Server, *client.Client) {
	t.Helper()
	cfg.Path, cfg.Level, cfg.Logger = filepath.Join(t.TempDir(), "run", "agent.sock"), new(slog.LevelVar), slog.New(slog.DiscardHandler)
	s := NewServer(cfg)
	if err := s.Listen(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	c := client.New(s.cfg.Path)
	t.Cleanup(func() {
		c.Close()
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
		if _, err := os.Lstat(s.cfg.Path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the socket is still there after Run: %v", err)
		}
	})
	return s, c
}

func TestRoundTrip(t *testing.T) {
	m := &memory{peers: twoPeers(), status: control.Status{Version: "1", Identity: control.Identity{ClusterID: "own", Name: "farm"}, StartedAt: time.Now().Add(-90 * time.Second)},
		events: []peer.Event{{At: time.Unix(5, 0).UTC(), ID: idBarn, Kind: peer.EventAppeared, Detail: "on eth0"}, {ID: "gone"}, {ID: "own"}}}
	_, c := serve(t, m)
	ctx := t.Context()

	st, err := c.Status(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if st.LogLevel != "info" || st.UptimeSeconds < 90 || st.Links == nil || st.Problems == nil || st.Peers == nil || st.Drops == nil || st.Domains == nil || st.Networks == nil {
		t.Errorf("status = %+v", st)
	}

	present, err := c.Peers(ctx, false)
	if err != nil || len(present) != 1 || !cmp.Equal(present[0], m.peers[1].Complete()) {
		t.Errorf("Peers = %+v, %v", present, err)
	}
	all, err := c.Peers(ctx, true)
	if err != nil || len(all) != 2 || all[0].Name != "barn" {
		t.Errorf("Peers(all) = %+v, %v", all, err)
	}

	if p, err := c.SetAlias(ctx, "silo", "Halle 3 / Süd"); err != nil || p.Alias != "Halle 3 / Süd" {
		t.Errorf("SetAlias = %+v, %v", p, err)
	}
	if p, err := c.Peer(ctx, "Halle 3 / Süd"); err != nil || p.ID != idSilo {
		t.Errorf("Peer by alias = %+v, %v", p, err)
	}

	since := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	events, err := c.History(ctx, "barn", since, 7)
	if err != nil || len(events) != 3 || events[0].Name != "barn" || events[1].Name != "" || events[2].Name != "farm" {
		t.Errorf("History = %+v, %v", events, err)
	}
	if want := (control.HistoryQuery{ID: idBarn, Since: since, Limit: 7}); m.asked != want {
		t.Errorf("the backend was asked %+v, want %+v", m.asked, want)
	}
	forgotten := "11111111-2222-4333-8444-555555555555"
	if _, err := c.History(ctx, forgotten, time.Time{}, 0); err != nil || m.asked.ID != peer.ClusterID(forgotten) {
		t.Errorf("the history of a forgotten peer: %v, asked %+v", err, m.asked)
	}

	if cfg, err := c.Config(ctx); err != nil || cfg.Sources["log.level"] != "default" {
		t.Errorf("Config = %+v, %v", cfg, err)
	}
	if err := c.SetLogLevel(ctx, "DEBUG"); err != nil {
		t.Error(err)
	}
	if level, err := c.LogLevel(ctx); err != nil || level != "debug" {
		t.Errorf("LogLevel = %q, %v", level, err)
	}
}

func TestErrorsSayWhatToDo(t *testing.T) {
	m := &memory{peers: twoPeers()}
	_, c := serve(t, m)
	ctx := t.Context()
	for _, tc := range []struct {
		name string
		call func() error
		kind error
		text string
		try  string
	}{
		{"unknown peer", func() error { _, err := c.Peer(ctx, "shed"); return err }, control.ErrNotFound,
			`no peer is called "shed"`, "liqo-agent peers list --all"},
		{"ambiguous prefix", func() error { _, err := c.Peer(ctx, "0558"); return err }, control.ErrAmbiguous,
			`"0558" matches 2 peers: barn (` + idBarn + `), silo (` + idSilo + `)`, "use more of the ID, or name one: liqo-agent peers alias ID NAME"},
		{"wrong level", func() error { return c.SetLogLevel(ctx, "loud") }, control.ErrInvalid, `log level "loud": want debug, info, warn or error`, ""},
		{"an ID as alias", func() error { _, err := c.SetAlias(ctx, "barn", idSilo); return err }, control.ErrInvalid,
			`alias "` + idSilo + `" is the ID of another cluster`, "choose another name"},
		{"alias like an option", func() error { _, err := c.SetAlias(ctx, "barn", "-o"); return err }, control.ErrInvalid,
			`alias "-o" begins with a hyphen, so it would be taken for an option`, ""},
		{"alias with escape", func() error { _, err := c.SetAlias(ctx, "barn", "\x1b[2J"); return err }, control.ErrInvalid,
			`alias "\x1b[2J" contains characters that cannot be printed`, ""},
		{"nothing named", func() error { _, err := c.Peer(ctx, "%"); return err }, control.ErrNotFound, `no peer is called "%"`, "liqo-agent peers list --all"},
	} {
		err := tc.call()
		if !errors.Is(err, tc.kind) {
			t.Errorf("%s: error %v is not %v", tc.name, err, tc.kind)
			continue
		}
		var e *control.Error
		if !errors.As(err, &e) || e.Error() != tc.text || e.Try() != tc.try {
			t.Errorf("%s:\n got %q try %q\nwant %q try %q", tc.name, e.Error(), e.Try(), tc.text, tc.try)
		}
	}

	m.mu.Lock()
	m.fail = fmt.Errorf("wrapped: %w", &control.Error{Message: "the disk is full", Advice: "make room"})
	m.mu.Unlock()
	_, err := c.Peers(ctx, false)
	var e *control.Error
	if !errors.As(err, &e) || e.Message != "wrapped: the disk is full" || e.Advice != "make room" || e.Kind != nil {
		t.Errorf("a backend's error arrives as %#v", err)
	}
}

func TestRawRequests(t *testing.T) {
	s, _ := serve(t, &memory{peers: twoPeers()})
	for _, tc := range []struct {
		method, path, body string
		status             int
		want               string
	}{
		{"GET", "/v1/peers?all=perhaps", "", 400, `want 1 or 0`},
		{"GET", "/v1/history?limit=-1", "", 400, `want a number`},
		{"GET", "/v1/history?since=yesterday", "", 400, `want a time like`},
		{"PUT", "/v1/log/level", `{"level":"info","more":1}`, 400, `unknown field`},
		{"PUT", "/v1/log/level", `{"level":"` + strings.Repeat("x", maxBody) + `"}`, 400, `too large`},
		{"GET", "/v2/peers", "", 404, `does not support GET /v2/peers`},
		{"DELETE", "/v1/peers", "", 404, `does not support DELETE /v1/peers`},
		{"GET", "/v1/peers", "", 200, `"addresses":["192.0.2.7:6447"]`},
		{"GET", "/v1/peers", "", 200, `"sources":[],"domains":[]`},
	} {
		status, answer := raw(t, s, tc.method, tc.path, tc.body)
		if status != tc.status || !strings.Contains(answer, tc.want) || !json.Valid([]byte(answer)) {
			t.Errorf("%s %s: %d %s, want %d with %q", tc.method, tc.path, status, answer, tc.status, tc.want)
		}
	}
}

func TestListen(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	listen := func(path string) (*Server, error) {
		s := NewServer(ServerConfig{Path: path, Backend: &memory{}, Level: new(slog.LevelVar), Logger: log})
		return s, s.Listen(t.Context())
	}

	t.Run("mode", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "a", "b", "agent.sock")
		s, err := listen(path)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = s.sock.Close() }()
		info, err := os.Stat(path)
		if err != nil || info.Mode().Perm() != 0o660 {
			t.Errorf("socket: %v, %v", info.Mode(), err)
		}
		entries, err := os.ReadDir(filepath.Dir(path))
		if err != nil || len(entries) != 1 {
			t.Errorf("next to the socket there is %v, %v", entries, err)
		}
	})
	t.Run("stale", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "agent.sock")
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		l.SetUnlinkOnClose(false)
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		s, err := listen(path)
		if err != nil {
			t.Fatalf("a stale socket is not replaced: %v", err)
		}
		if err := s.sock.Close(); err != nil {
			t.Error(err)
		}
	})
	t.Run("in use", func(t *testing.T) {
		s, c := serve(t, &memory{})
		if _, err := listen(s.cfg.Path); !errors.Is(err, control.ErrInUse) {
			t.Errorf("error = %v, want ErrInUse", err)
		}
		if _, err := c.Status(t.Context()); err != nil {
			t.Errorf("the first agent no longer answers: %v", err)
		}
	})
	t.Run("not a socket", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "agent.sock")
		if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := listen(path); err == nil || !strings.Contains(err.Error(), "not a socket") {
			t.Errorf("error = %v", err)
		}
		if raw, err := os.ReadFile(path); err != nil || string(raw) != "precious" {
			t.Errorf("the file is now %q, %v", raw, err)
		}
	})
	t.Run("long path", func(t *testing.T) {
		_, err := listen(filepath.Join(t.TempDir(), strings.Repeat("x", 120)))
		if err == nil || !strings.Contains(err.Error(), "at most 107 are allowed") {
			t.Errorf("error = %v", err)
		}
	})
	t.Run("replaced", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "agent.sock")
		s, err := listen(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := s.sock.Close(); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(path); err != nil {
			t.Errorf("a file that is not ours was removed: %v", err)
		}
	})
}
