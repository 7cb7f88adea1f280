//go:build linux

package bed

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	logTail      = 60              // lines of a log that a failed test shows
	pipeDelay    = 5 * time.Second // how long a killed process's children may keep its output open
	quitDeadline = 2 * time.Second // what one that does not end has to write its goroutines down
)

// Cmd describes a process to be started on a host.
type Cmd struct {
	// Args is the program, looked up in the host's PATH, and its arguments.
	Args []string
	// Env is added to the small environment all processes of a host have: nothing is inherited from
	// the test except settings of Go's runtime.
	Env []string
	// Dir is the working directory; empty means the host's home directory.
	Dir string
	// Name is the name of its log; empty means the program's.
	Name string
	// TimerSlack is how late the kernel may let its timers fire, in order to let some of them fire together; 0 means
	// what this process has.
	TimerSlack time.Duration
}

// Process is a running or ended process of a host. Its methods may be called from any goroutine.
type Process struct {
	// Name is the name of its log.
	Name string

	host *Host
	cmd  *exec.Cmd
	log  string        // file
	done chan struct{} // closed when it has ended
	err  error         // how it ended; valid after done
}

// Start starts a process and returns at once. What it writes goes into its log. It is killed at
// the end of the test if it still runs, together with all processes of its process group.
func (h *Host) Start(c Cmd) *Process {
	h.bed.t.Helper()
	p, err := h.start(c)
	if err != nil {
		h.bed.t.Fatalf("bed: %v", err)
	}
	return p
}

func (h *Host) start(c Cmd) (*Process, error) {
	name := c.Name
	if name == "" {
		name = filepath.Base(c.Args[0])
	}
	b := h.bed
	b.mu.Lock()
	b.logs++
	log := filepath.Join(b.dir, fmt.Sprintf("%03d-%s-%s.log", b.logs, h.Name, name))
	b.mu.Unlock()
	out, err := os.OpenFile(log, os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("host %s: log of %s: %w", h.Name, name, err)
	}
	defer out.Close()
	p := &Process{Name: name, host: h, log: log, done: make(chan struct{})}
	if p.cmd, err = h.launch(context.Background(), c, nil, out, out); err != nil {
		return nil, err
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	b.mu.Lock()
	b.processes = append(b.processes, p)
	b.mu.Unlock()
	return p, nil
}

// launch starts a process inside the host's namespaces in a process group of its own.
func (h *Host) launch(ctx context.Context, c Cmd, stdin io.Reader, stdout, stderr io.Writer) (*exec.Cmd, error) {
	var cmd *exec.Cmd
	err := h.ns.do(func() error {
		cmd = exec.CommandContext(ctx, c.Args[0], c.Args[1:]...)
		cmd.Env = append(h.environment(), c.Env...)
		cmd.Dir = c.Dir
		if cmd.Dir == "" {
			cmd.Dir = h.home()
		}
		cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, stdout, stderr
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		cmd.Cancel = func() error { return killGroup(cmd.Process.Pid) }
		cmd.WaitDelay = pipeDelay
		if c.TimerSlack > 0 {
			// A process begins with that of the thread that starts it, which does nothing else afterwards.
			if err := unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(c.TimerSlack.Nanoseconds()), 0, 0, 0); err != nil {
				return fmt.Errorf("set its timer slack: %w", err)
			}
		}
		return cmd.Start()
	})
	if err != nil {
		return nil, fmt.Errorf("host %s: start %s: %w", h.Name, strings.Join(c.Args, " "), err)
	}
	return cmd, nil
}

// environment is what all processes of a host start with.
func (h *Host) environment() []string {
	env := []string{insideEnv + "=1", "PATH=" + hostPath, "HOME=" + h.home(), "USER=root", "LANG=C.UTF-8", "TERM=dumb"}
	for _, name := range []string{"GODEBUG", "GOGC", "GOMAXPROCS", "GORACE", "GOTRACEBACK", "GOCOVERDIR", "LIQO_BIN"} {
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	return env
}

func (h *Host) home() string { return filepath.Join(h.dir, "home") }

// Run runs a program to its end and returns what it wrote to standard output. The error of a program
// that failed says what it wrote to standard error. Ending ctx kills it.
func (h *Host) Run(ctx context.Context, args ...string) (string, error) {
	return h.RunInput(ctx, "", args...)
}

// RunInput is Run with something on standard input.
func (h *Host) RunInput(ctx context.Context, input string, args ...string) (string, error) {
	var stdout, stderr strings.Builder
	cmd, err := h.launch(ctx, Cmd{Args: args}, strings.NewReader(input), &stdout, &stderr)
	if err != nil {
		return "", err
	}
	if err := cmd.Wait(); err != nil {
		return stdout.String(), fmt.Errorf("host %s: %s: %w\n%s", h.Name, strings.Join(args, " "),
			errors.Join(err, context.Cause(ctx)), strings.TrimSpace(stderr.String()))
	}
	return stdout.String(), nil
}

// PID returns the process ID inside the bed.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Wait waits for the end of the process and returns nil if it ended with exit code 0, and how it ended
// if not.
func (p *Process) Wait(ctx context.Context) error {
	select {
	case <-p.done:
		if p.err != nil {
			return fmt.Errorf("%s on %s: %w", p.Name, p.host.Name, p.err)
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%s on %s still runs: %w", p.Name, p.host.Name, context.Cause(ctx))
	}
}

// Signal sends a signal to the process.
func (p *Process) Signal(s os.Signal) error {
	if err := p.cmd.Process.Signal(s); err != nil {
		return fmt.Errorf("%v to %s on %s: %w", s, p.Name, p.host.Name, err)
	}
	return nil
}

// Stop sends SIGTERM and waits for the end. A process that ends in any other way than with exit
// code 0 is an error; one that does not end in time is made to write its goroutines to its log, if
// it is a Go program, and killed, which is an error too.
func (p *Process) Stop() error {
	if err := p.Signal(unix.SIGTERM); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), Hang)
	defer cancel()
	err := p.Wait(ctx)
	if ctx.Err() == nil {
		return err
	}
	if quitErr := p.Signal(unix.SIGQUIT); quitErr == nil {
		select {
		case <-p.done:
		case <-time.After(quitDeadline):
		}
	}
	return errors.Join(err, p.Kill())
}

// Kill kills the process and its process group with SIGKILL and waits for its end. That it has ended
// already is no error.
func (p *Process) Kill() error {
	if err := killGroup(p.PID()); err != nil {
		return fmt.Errorf("kill %s on %s: %w", p.Name, p.host.Name, err)
	}
	<-p.done
	return nil
}

func killGroup(pid int) error {
	if err := unix.Kill(-pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
		return err
	}
	return nil
}

// Log returns what the process has written so far.
func (p *Process) Log() string {
	b, err := os.ReadFile(p.log)
	if err != nil {
		return "(no log: " + err.Error() + ")"
	}
	return string(b)
}

// WaitLog waits until the process has written a text. It fails at once if the process ends without.
func (p *Process) WaitLog(ctx context.Context, text string) error {
	return p.poll(ctx, func() error {
		if strings.Contains(p.Log(), text) {
			return nil
		}
		return fmt.Errorf("%s on %s has not written %q", p.Name, p.host.Name, text)
	})
}

// poll is [Poll] for what the process has to run for. It fails at once if the process ends without.
func (p *Process) poll(ctx context.Context, condition func() error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	err := Poll(ctx, func() error {
		select {
		case <-p.done:
			// One more look: it may have done it last.
			cancel(fmt.Errorf("%s has ended: %s", p.Name, p.state()))
		default:
		}
		return condition()
	})
	if err != nil {
		return fmt.Errorf("%w; the log of %s ends with:\n%s", err, p.Name, tail(p.Log(), 20))
	}
	return nil
}

// state says in a few words what has become of the process.
func (p *Process) state() string {
	select {
	case <-p.done:
		return p.cmd.ProcessState.String()
	default:
		return "running as process " + strconv.Itoa(p.PID())
	}
}

// tail returns the last n lines of a text.
func tail(text string, n int) string {
	lines := strings.SplitAfter(text, "\n")
	if len(lines) <= n {
		return text
	}
	return fmt.Sprintf("(%d lines before)\n", len(lines)-n) + strings.Join(lines[len(lines)-n:], "")
}
