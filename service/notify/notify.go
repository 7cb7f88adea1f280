package notify

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"golang.org/x/sys/unix"

	"liqo.io/agent/peer/text"
)

// sendTimeout bounds how long a message waits for a service manager that does not read: a few of them fit into its
// socket, and then senders block (unix(7)).
const sendTimeout = time.Second

// Notifier tells the service manager how the agent is. Its methods may be called from any goroutine, block for a second
// or two at most, and do nothing on a nil Notifier. What cannot be sent is logged once; the last of Ready, Reloading and
// Stopping is sent again before the next message of any kind.
type Notifier struct {
	logger   *slog.Logger
	socket   string
	watchdog time.Duration

	mu     sync.Mutex
	phase  phase
	owed   string // the message about the phase that could not be sent
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
	socket := os.Getenv("NOTIFY_SOCKET")
	if socket == "" {
		return nil
	}
	watchdog, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		logger.Warn("the watchdog of the service manager is not served", "error", err)
	}
	return &Notifier{logger: logger, socket: socket, watchdog: watchdog}
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
func (n *Notifier) Status(said string) {
	if n == nil {
		return
	}
	said = text.Sentence(said)
	n.mu.Lock()
	defer n.mu.Unlock()
	if said == n.status {
		return
	}
	if n.settle() && n.send("STATUS="+said) {
		n.status = said
	}
}

func (n *Notifier) to(next phase, from func(now phase) bool, message string) {
	if n == nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if !from(n.phase) {
		return
	}
	n.phase, n.owed = next, message
	n.settle()
}

// settle sends what the service manager does not know yet about the phase, and reports whether it knows now.
func (n *Notifier) settle() bool {
	if n.owed != "" && n.send(n.owed) {
		n.owed = ""
	}
	return n.owed == ""
}

// send sends a message and reports whether it is on its way. The lock is held, so that messages arrive in the
// order of what they say.
func (n *Notifier) send(message string) bool {
	err := write(n.socket, message)
	if err != nil && !n.failed {
		n.logger.Warn("the service manager could not be notified of the state of the agent", "error", err)
	}
	n.failed = err != nil
	return err == nil
}

// write sends a message to the socket. It is daemon.SdNotify with a deadline: that one waits for ever, and whoever calls
// it, for a service manager that is stopped or busy.
func write(socket, message string) error {
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		return err
	}
	err = conn.SetWriteDeadline(time.Now().Add(sendTimeout))
	if err == nil {
		_, err = conn.Write([]byte(message))
	}
	return errors.Join(err, conn.Close())
}

// monotonic is the time of CLOCK_MONOTONIC in microseconds.
func monotonic() int64 {
	var now unix.Timespec
	// It fails only for clocks that do not exist.
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &now)
	return now.Nano() / int64(time.Microsecond)
}
