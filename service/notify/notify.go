package notify

import (
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/coreos/go-systemd/v22/daemon"
	"golang.org/x/sys/unix"
)

// maxStatus bounds the bytes of a status: it is one line on somebody's screen.
const maxStatus = 512

// Notifier tells the service manager how the agent is. Its methods may be called from any goroutine, do
// not block for long, and do nothing on a nil Notifier. What cannot be sent is logged once.
type Notifier struct {
	logger   *slog.Logger
	watchdog time.Duration

	mu     sync.Mutex
	phase  phase
	status string // the last one sent
	failed bool   // the last message could not be sent
}

// phase is what the service manager was told last.
type phase int

const (
	starting phase = iota
	ready
	reloading
	stopping
)

// New returns the Notifier of this process, or nil when no service manager asked to be told: the
// environment has no NOTIFY_SOCKET.
func New(logger *slog.Logger) *Notifier {
	if os.Getenv("NOTIFY_SOCKET") == "" {
		return nil
	}
	watchdog, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		logger.Warn("the watchdog of the service manager is not served", "error", err)
	}
	return &Notifier{logger: logger, watchdog: watchdog}
}

// On reports whether there is anybody to tell.
func (n *Notifier) On() bool { return n != nil }

// Ready says that the agent is up, or that a reload is over (READY=1).
func (n *Notifier) Ready() {
	n.to(ready, func(now phase) bool { return now == starting || now == reloading }, daemon.SdNotifyReady)
}

// Reloading says that the configuration is being read again (RELOADING=1, with the monotonic time that
// sd_notify(3) asks for). Ready ends it.
func (n *Notifier) Reloading() {
	n.to(reloading, func(now phase) bool { return now == ready }, fmt.Sprintf("%s\nMONOTONIC_USEC=%d", daemon.SdNotifyReloading, monotonic()))
}

// Stopping says that the agent ends (STOPPING=1). It is the last word: Ready and Reloading say nothing after it.
func (n *Notifier) Stopping() {
	n.to(stopping, func(now phase) bool { return now != stopping }, daemon.SdNotifyStopping)
}

// Status shows a line in systemctl status (STATUS=). It is sent only if it differs from the last one.
func (n *Notifier) Status(text string) {
	if n == nil {
		return
	}
	text = line(text)
	n.mu.Lock()
	defer n.mu.Unlock()
	if text == n.status {
		return
	}
	if n.send("STATUS=" + text) {
		n.status = text
	}
}

func (n *Notifier) to(next phase, from func(now phase) bool, message string) {
	if n == nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if from(n.phase) && n.send(message) {
		n.phase = next
	}
}

// send sends a message and reports whether it is on its way. The lock is held, so that messages arrive in the
// order of what they say.
func (n *Notifier) send(message string) bool {
	_, err := daemon.SdNotify(false, message)
	if err != nil && !n.failed {
		n.logger.Warn("the service manager could not be told how the agent is", "error", err)
	}
	n.failed = err != nil
	return err == nil
}

// line makes one line of a text, of bytes that every terminal and log can take.
func line(text string) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || !unicode.IsPrint(r) && r != ' ' {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "?"))
	if len(text) > maxStatus {
		text = strings.ToValidUTF8(text[:maxStatus-3], "") + "..."
	}
	return text
}

// monotonic is the time of CLOCK_MONOTONIC in microseconds.
func monotonic() int64 {
	var now unix.Timespec
	// It fails only for clocks that do not exist.
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &now)
	return now.Nano() / int64(time.Microsecond)
}
