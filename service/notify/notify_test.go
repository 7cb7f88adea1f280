package notify

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"liqo.io/agent/internal/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

// manager is a service manager that listens.
type manager struct {
	t    *testing.T
	conn *net.UnixConn
}

// newManager listens on a socket that NOTIFY_SOCKET names.
func newManager(t *testing.T) *manager {
	t.Helper()
	path := filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	t.Setenv("NOTIFY_SOCKET", path)
	t.Setenv("WATCHDOG_USEC", "")
	t.Setenv("WATCHDOG_PID", "")
	return &manager{t, conn}
}

// next returns the next message, "" when none comes for a while.
func (m *manager) next(wait time.Duration) string {
	m.t.Helper()
	if err := m.conn.SetReadDeadline(time.Now().Add(wait)); err != nil {
		m.t.Fatal(err)
	}
	buf := make([]byte, 4096)
	n, err := m.conn.Read(buf)
	if err != nil {
		return ""
	}
	return string(buf[:n])
}

// all returns what was sent until now.
func (m *manager) all() []string {
	m.t.Helper()
	var out []string
	raw, err := m.conn.SyscallConn()
	if err != nil {
		m.t.Fatal(err)
	}
	// What was sent is in the socket's queue already: it is read without waiting, and without a deadline that a busy machine may miss.
	err = raw.Control(func(fd uintptr) {
		buf := make([]byte, 4096)
		for {
			n, _, err := unix.Recvfrom(int(fd), buf, unix.MSG_DONTWAIT)
			if err != nil {
				return
			}
			out = append(out, string(buf[:n]))
		}
	})
	if err != nil {
		m.t.Fatal(err)
	}
	return out
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

func TestNobodyToTell(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "")
	t.Setenv("WATCHDOG_USEC", "1000000")
	n := New(quiet())
	if n.On() || n.Watched() {
		t.Errorf("notifier %v", n)
	}
	n.Ready()
	n.Reloading()
	n.Stopping()
	n.Status("fine")
	n.Watch(t.Context(), func(context.Context) error { t.Error("checked"); return nil })
}

func TestPhases(t *testing.T) {
	m := newManager(t)
	n := New(quiet())
	if !n.On() || n.Watched() {
		t.Fatalf("on %t, watched %t", n.On(), n.Watched())
	}
	steps := []struct {
		name string
		do   func()
		want []string // how each message begins
	}{
		{"reloading before it is ready", n.Reloading, nil},
		{"status while starting", func() { n.Status("starting") }, []string{"STATUS=starting"}},
		{"ready", n.Ready, []string{"READY=1"}},
		{"ready twice", n.Ready, nil},
		{"reloading", n.Reloading, []string{"RELOADING=1\nMONOTONIC_USEC="}},
		{"reloading twice", n.Reloading, nil},
		{"ready again", n.Ready, []string{"READY=1"}},
		{"the same status", func() { n.Status("starting") }, nil},
		{"another one", func() { n.Status("barn: 1 peer\nREADY=0\x1b[31m") }, []string{"STATUS=barn: 1 peer READY=0 [31m"}},
		{"stopping", n.Stopping, []string{"STOPPING=1"}},
		{"stopping twice", n.Stopping, nil},
		{"ready after the end", n.Ready, nil},
		{"reloading after the end", n.Reloading, nil},
	}
	for _, step := range steps {
		step.do()
		got := m.all()
		if !slices.EqualFunc(got, step.want, strings.HasPrefix) {
			t.Errorf("%s: sent %q, want %q", step.name, got, step.want)
		}
	}
}

func TestMonotonicTime(t *testing.T) {
	m := newManager(t)
	n := New(quiet())
	n.Ready()
	before := monotonic()
	n.Reloading()
	after := monotonic()
	var at int64
	if _, err := fmt.Sscanf(m.all()[1], "RELOADING=1\nMONOTONIC_USEC=%d", &at); err != nil || at < before || at > after || before <= 0 {
		t.Errorf("%d, %v; want one between %d and %d", at, err, before, after)
	}
}

func TestLongStatus(t *testing.T) {
	m := newManager(t)
	n := New(quiet())
	for _, text := range []string{strings.Repeat("x", 10_000), strings.Repeat("ü", 400)} {
		n.Status(text)
		got := m.next(time.Second)
		if len(got) < 100 || len(got) > 520 || !utf8.ValidString(got) || strings.Contains(got, "\n") {
			t.Errorf("%.20q became %d bytes: %q", text, len(got), got)
		}
	}
}

// TestManagerGone looks at a service manager that does not take messages: it is logged once, and what was not sent is
// sent again when it is back.
func TestManagerGone(t *testing.T) {
	m := newManager(t)
	var log bytes.Buffer
	n := New(slog.New(slog.NewTextHandler(&log, nil)))
	path := n.socket
	n.socket = filepath.Join(t.TempDir(), "nothing")
	n.Ready()
	n.Status("fine")
	if got := strings.Count(log.String(), "could not be notified"); got != 1 {
		t.Errorf("logged %d times:\n%s", got, log.String())
	}
	n.socket = path
	n.Status("fine")
	if got := m.all(); !slices.Equal(got, []string{"READY=1", "STATUS=fine"}) {
		t.Errorf("sent %q", got)
	}
}

// TestManagerDoesNotRead looks at a service manager that is stopped: the agent must not be.
func TestManagerDoesNotRead(t *testing.T) {
	m := newManager(t)
	n := New(quiet())
	n.Ready()
	for i := 0; !n.failed; i++ {
		if i > 10_000 {
			t.Fatalf("%d messages, and none was refused", i)
		}
		n.Status(fmt.Sprint(i))
	}
	n.Stopping() // waits for its own second, and no more: else this never ends
	m.all()
	n.Status("the end")
	if got := m.all(); !slices.Equal(got, []string{"STOPPING=1", "STATUS=the end"}) {
		t.Errorf("sent %q", got)
	}
}

func TestWatchdogOfAnotherProcess(t *testing.T) {
	newManager(t)
	t.Setenv("WATCHDOG_USEC", "1000000")
	t.Setenv("WATCHDOG_PID", "1")
	if New(quiet()).Watched() {
		t.Error("the watchdog of another process is served")
	}
	t.Setenv("WATCHDOG_PID", "")
	t.Setenv("WATCHDOG_USEC", "soon")
	if New(quiet()).Watched() {
		t.Error("a watchdog without a time is served")
	}
}

// lines are those of a log.
type lines chan string

func (l lines) Write(p []byte) (int, error) {
	l <- string(p)
	return len(p), nil
}

// watch runs Watch until the test ends, with a watchdog of d.
func watch(t *testing.T, d time.Duration, check func(context.Context) error) (*manager, lines, func()) {
	t.Helper()
	m := newManager(t)
	t.Setenv("WATCHDOG_USEC", fmt.Sprint(d.Microseconds()))
	log := make(lines, 10_000)
	n := New(slog.New(slog.NewTextHandler(log, nil)))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { n.Watch(ctx, check); close(done) }()
	stop := func() {
		cancel()
		<-done
	}
	t.Cleanup(stop)
	return m, log, stop
}

func TestWatch(t *testing.T) {
	var checks atomic.Int32
	started := time.Now()
	m, _, stop := watch(t, 200*time.Millisecond, func(context.Context) error { checks.Add(1); return nil })
	for range 5 {
		if got := m.next(5 * time.Second); got != "WATCHDOG=1" {
			t.Fatalf("sent %q", got)
		}
	}
	// The first is at once, the others half of 200 ms apart each.
	if took := time.Since(started); took < 350*time.Millisecond {
		t.Errorf("5 signs of life within %s: too many wake-ups", took)
	}
	stop()
	signs := 5 + len(m.all())
	if got := m.next(200 * time.Millisecond); got != "" {
		t.Errorf("sent %q after the end", got)
	}
	// The end may come between a check and its sign of life.
	if n := int(checks.Load()); n < signs || n > signs+1 {
		t.Errorf("%d checks for %d signs of life", n, signs)
	}
}

// TestWatchHung looks at a check that does not come back: no sign of life is sent, whatever passes, and no second check
// is started. Once it is back, so are the signs.
func TestWatchHung(t *testing.T) {
	hang, hangs := make(chan struct{}), make(chan struct{})
	var checks atomic.Int32
	m, log, stop := watch(t, 40*time.Millisecond, func(context.Context) error {
		if checks.Add(1) == 2 {
			close(hangs)
			<-hang
		}
		return nil
	})
	if got := m.next(5 * time.Second); got != "WATCHDOG=1" {
		t.Fatalf("sent %q", got)
	}
	<-hangs
	if line := <-log; !strings.Contains(line, "does not return") {
		t.Errorf("logged %s", line)
	}
	if got := m.next(200 * time.Millisecond); got != "" {
		t.Errorf("sent %q while the check hangs", got)
	}
	if n := checks.Load(); n != 2 {
		t.Errorf("%d checks, want the second one to be waited for", n)
	}
	close(hang)
	if got := m.next(5 * time.Second); got != "WATCHDOG=1" {
		t.Errorf("sent %q after the check came back", got)
	}
	stop()
}

func TestWatchFailing(t *testing.T) {
	var checks atomic.Int32
	m, log, stop := watch(t, 100*time.Millisecond, func(ctx context.Context) error {
		if _, bounded := ctx.Deadline(); !bounded {
			t.Error("a check has no deadline")
		}
		if n := checks.Add(1); n < 4 {
			return errors.New("the recorder hangs")
		}
		return nil
	})
	if got := m.next(5 * time.Second); got != "WATCHDOG=1" {
		t.Fatalf("sent %q", got)
	}
	stop()
	close(log)
	failures := 0
	for line := range log {
		if strings.Contains(line, "the recorder hangs") {
			failures++
		}
	}
	if failures != 3 || checks.Load() < 4 {
		t.Errorf("%d checks, %d failures logged", checks.Load(), failures)
	}
}
