package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// burnArg makes this program keep one processor busy until it is killed.
const burnArg = "burn-a-processor"

// binary is the compiled tests of a package.
type binary struct {
	pkg  string // as go test takes it: ./mdnssvc
	dir  string // where go test would run them
	path string
}

// outcome is what came out of one run.
type outcome struct {
	binary  binary
	under   conditions
	took    time.Duration
	err     error    // how the test program ended; nil if it passed
	failed  []string // tests
	skipped bool     // no test matched
	log     string   // file, if it was kept
}

// runner runs compiled tests.
type runner struct {
	run     string        // only tests that match
	timeout time.Duration // of a run by itself
	logs    string        // directory for the logs of failed runs
}

// once runs tests under conditions. The error is of this program, not of the tests.
func (r *runner) once(ctx context.Context, b binary, c conditions) (outcome, error) {
	out := outcome{binary: b, under: c}
	file, err := os.CreateTemp(r.logs, ".running-")
	if err != nil {
		return out, err
	}
	defer os.Remove(file.Name())
	defer file.Close()

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for range c.busy {
		burner := exec.Command("/proc/self/exe", burnArg)
		wait, err := start(ctx, burner)
		if err != nil {
			return out, err
		}
		defer func() { cancel(); _ = wait() }() // it is killed
	}
	for range c.twins {
		end, err := r.twin(ctx, b, c)
		if err != nil {
			return out, err
		}
		defer end()
	}
	cmd := r.command(b, c, 1)
	cmd.Stdout, cmd.Stderr = file, file
	began := time.Now()
	wait, err := start(ctx, cmd)
	if err != nil {
		return out, err
	}
	stopping, done := context.WithCancel(ctx)
	stopped := make(chan error, 1)
	go func() { stopped <- disturb(stopping, cmd.Process.Pid, c) }()
	out.err = wait()
	out.took = time.Since(began)
	done()
	if err := <-stopped; err != nil {
		return out, err
	}
	if err := ctx.Err(); err != nil {
		return out, err
	}
	text, err := os.ReadFile(file.Name())
	if err != nil {
		return out, err
	}
	out.failed, out.skipped = parseLog(text)
	if out.err == nil {
		return out, nil
	}
	out.log = filepath.Join(r.logs, logName(b.pkg, c.seed))
	head := fmt.Sprintf("# %s, seed %d, %v: %v\n# %s\n", b.pkg, c.seed, c, out.err, replay(b.pkg, r.run, c.seed))
	return out, os.WriteFile(out.log, append([]byte(head), text...), 0o644)
}

// command runs tests so many times.
func (r *runner) command(b binary, c conditions, times int) *exec.Cmd {
	limit := r.timeout * time.Duration(1+c.twins)
	cmd := exec.Command(b.path, "-test.v=test2json", "-test.paniconexit0", "-test.count="+strconv.Itoa(times),
		"-test.shuffle="+strconv.FormatInt(c.seed, 10), "-test.timeout="+limit.String(), "-test.run="+r.run)
	cmd.Dir = b.dir
	cmd.Env = append(os.Environ(), "GOMAXPROCS="+strconv.Itoa(c.procs), "PWD="+b.dir)
	return cmd
}

// twin runs the tests until end is called. How they go is not looked at.
func (r *runner) twin(ctx context.Context, b binary, c conditions) (end func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer func() {
		if err != nil {
			cancel()
		}
	}()
	// It is killed, and cannot remove what it has written.
	dir, err := os.MkdirTemp("", "twin-")
	if err != nil {
		return nil, err
	}
	cmd := r.command(b, c, 1_000_000)
	cmd.Env = append(cmd.Env, "TMPDIR="+dir)
	wait, err := start(ctx, cmd)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return func() { cancel(); _ = wait(); _ = os.RemoveAll(dir) }, nil
}

// disturb stops the tests for moments until ctx ends.
func disturb(ctx context.Context, root int, c conditions) error {
	if c.stops.pause == 0 {
		return nil
	}
	r := random(c.seed + 1)
	for {
		gap, pause := c.stops.next(r)
		if !sleep(ctx, gap) {
			return nil
		}
		resume, err := stopTree(root, c.who)
		if err == nil {
			sleep(ctx, pause)
		}
		resume()
		if err != nil {
			return fmt.Errorf("stop the tests: %w", err)
		}
	}
}

// sleep reports whether it was not cut short.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// start starts a command that is killed, with all below it, at the end of ctx, and with this program
// in any case. wait returns how it ended.
func start(ctx context.Context, cmd *exec.Cmd) (wait func() error, err error) {
	// A group of its own, so that Ctrl-C arrives here only.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: unix.SIGKILL}
	started, ended := make(chan error), make(chan error, 1)
	go func() {
		// To the kernel, the parent is the thread, and it must last as long as the process.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			ended <- cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { killTree(cmd.Process.Pid) })
	return func() error { defer stop(); return <-ended }, nil
}

// burn keeps one processor busy.
func burn() {
	runtime.GOMAXPROCS(1)
	for n := uint64(0); ; n++ { // computes, and never waits
	}
}
