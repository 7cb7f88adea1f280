package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"liqo.io/agent/agent/config"
	"liqo.io/agent/agent/control"
	"liqo.io/agent/agent/socket/client"
	"liqo.io/agent/service/notify"
)

// supervised is an agent under a service manager that listens.
type supervised struct {
	t     *testing.T
	agent *Agent
	conn  *net.UnixConn
	stop  func() error
}

// startSupervised starts an agent that uses no network, with a watchdog of d.
func startSupervised(t *testing.T, d time.Duration) *supervised {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("NOTIFY_SOCKET", path)
	t.Setenv("WATCHDOG_USEC", fmt.Sprint(d.Microseconds()))
	t.Setenv("WATCHDOG_PID", "")
	logger := slog.New(slog.DiscardHandler)
	a, err := New(Options{
		Load: func() (*config.Loaded, error) {
			return config.Load(config.Options{Set: []string{
				"cluster.kubeconfig=none", "cluster.name=barn", "cluster.admission_listen=127.0.0.1:0", "state.dir=" + dir,
				"state.socket=" + filepath.Join(dir, "agent.sock"), "discovery.interfaces=nothing-is-called-so", "endpoint.listen=127.0.0.1:0",
			}})
		},
		Logger: logger, Level: new(slog.LevelVar), Notify: notify.New(logger),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	s := &supervised{t: t, agent: a, conn: conn, stop: func() error { cancel(); return <-done }}
	t.Cleanup(func() {
		cancel()
		_ = conn.Close()
	})
	return s
}

// until reads messages until one begins with want, and returns it; it fails when there is one that begins with not.
func (s *supervised) until(want, not string) string {
	s.t.Helper()
	deadline := time.Now().Add(5 * time.Minute)
	for {
		message := s.next(time.Until(deadline))
		switch {
		case message == "":
			s.t.Fatalf("no %s came", want)
		case strings.HasPrefix(message, want):
			return message
		case not != "" && strings.HasPrefix(message, not):
			s.t.Fatalf("%s before %s", message, want)
		}
	}
}

func (s *supervised) next(wait time.Duration) string {
	s.t.Helper()
	if err := s.conn.SetReadDeadline(time.Now().Add(wait)); err != nil {
		s.t.Fatal(err)
	}
	buf := make([]byte, 4096)
	n, err := s.conn.Read(buf)
	if err != nil {
		return ""
	}
	return string(buf[:n])
}

// TestNotifies goes through a life under a service manager. In the middle, an owner goroutine hangs.
func TestNotifies(t *testing.T) {
	s := startSupervised(t, 400*time.Millisecond)
	s.until("READY=1", "WATCHDOG=1\nREADY")
	if got := s.until("STATUS=", ""); !strings.HasPrefix(got, "STATUS=barn: 0 peers") {
		t.Errorf("sent %q", got)
	}
	s.until("WATCHDOG=1", "")
	s.until("WATCHDOG=1", "")
	s.agent.Reload()
	s.until("RELOADING=1\nMONOTONIC_USEC=", "READY=1")
	s.until("READY=1", "")

	// The goroutine that owns the configuration hangs while it reads the file.
	hang, load := make(chan struct{}), s.agent.opts.Load
	s.agent.opts.Load = func() (*config.Loaded, error) { <-hang; return load() }
	s.agent.Reload()
	s.until("RELOADING=1", "")
	// A check that was under way may still pass, which is one sign of life. Without the owner's answer there would be one every 200 ms.
	signs := 0
	for end := time.Now().Add(2 * time.Second); ; {
		message := s.next(time.Until(end))
		if message == "" {
			break
		}
		if strings.HasPrefix(message, "WATCHDOG=1") {
			signs++
		}
		if signs > 1 || strings.HasPrefix(message, "READY=1") {
			t.Fatalf("sent %q while an owner hangs", message)
		}
	}
	close(hang)
	s.until("READY=1", "")
	s.until("WATCHDOG=1", "")

	ended := make(chan error, 1)
	go func() { ended <- s.stop() }()
	s.until("STOPPING=1", "")
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestReloadOverTheSocket looks at what who asks for a reload is told.
func TestReloadOverTheSocket(t *testing.T) {
	s := startSupervised(t, time.Hour)
	s.until("READY=1", "")
	go func() { // until the test closes the socket
		buf := make([]byte, 4096)
		for {
			if _, err := s.conn.Read(buf); err != nil {
				return
			}
		}
	}()
	load := s.agent.opts.Load
	var set []string
	// Only the goroutine that reloads calls it, between two answers.
	s.agent.opts.Load = func() (*config.Loaded, error) {
		loaded, err := load()
		if err != nil {
			return nil, err
		}
		more, err := config.Load(config.Options{Set: set})
		if err != nil {
			return nil, err
		}
		changed := *loaded
		changed.Config.Log.Level, changed.Config.Endpoint.MaxConnections = more.Config.Log.Level, more.Config.Endpoint.MaxConnections
		changed.Config.Discovery.Service = more.Config.Discovery.Service
		if listen := more.Config.Endpoint.Listen; listen != config.Default().Endpoint.Listen {
			changed.Config.Endpoint.Listen = listen
		}
		return &changed, nil
	}
	other, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	taken := other.Addr().String()
	client := client.New(s.agent.settings.Config().State.Socket)
	defer client.Close()
	for _, tc := range []struct {
		name             string
		set              []string
		changed, restart string
		generation       int64
		fault            string
	}{
		{name: "nothing", generation: 1},
		{name: "at once", set: []string{"log.level=debug"}, changed: "[log.level]", generation: 1},
		{name: "later", set: []string{"log.level=debug", "endpoint.max_connections=9"}, changed: "[endpoint.max_connections]", restart: "[endpoint.max_connections]", generation: 1},
		{name: "still later", set: []string{"log.level=debug", "endpoint.max_connections=9"}, restart: "[endpoint.max_connections]", generation: 1},
		{name: "bad", set: []string{"log.level=loud"}, fault: "log.level"},
		{name: "taken back", changed: "[endpoint.max_connections log.level]", generation: 1},
		{name: "parts made anew", set: []string{"discovery.service=_other._tcp"}, changed: "[discovery.service]", generation: 2},
		{name: "after that", set: []string{"discovery.service=_other._tcp"}, generation: 2},
		{name: "a port that is taken", set: []string{"discovery.service=_other._tcp", "endpoint.listen=" + taken}, changed: "[endpoint.listen]", restart: "[endpoint.listen]", generation: 2},
		{name: "parts made anew beside it", set: []string{"endpoint.listen=" + taken}, changed: "[discovery.service]", restart: "[endpoint.listen]", generation: 3},
		{name: "both taken back", changed: "[endpoint.listen]", generation: 3},
	} {
		set = tc.set
		got, err := client.Reload(t.Context())
		if tc.fault != "" {
			if !errors.Is(err, control.ErrInvalid) || !strings.Contains(err.Error(), tc.fault) {
				t.Errorf("%s: %v", tc.name, err)
			}
			continue
		}
		if err != nil {
			t.Fatalf("%s: %v", tc.name, err)
		}
		for what, pair := range map[string][2]string{"changed": {list(got.Changed), tc.changed}, "restart": {list(got.Restart), tc.restart}} {
			if pair[0] != pair[1] {
				t.Errorf("%s: %s %s, want %s", tc.name, what, pair[0], pair[1])
			}
		}
		if got.Generation != tc.generation || got.Rebuilding {
			t.Errorf("%s: %+v", tc.name, got)
		}
	}
	if err := s.stop(); err != nil {
		t.Error(err)
	}
}

func list(keys []string) string {
	if len(keys) == 0 {
		return ""
	}
	return fmt.Sprint(keys)
}
