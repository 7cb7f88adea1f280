package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"syscall"
	"time"
)

func main() {
	os.Exit(run())
}

func run() int {
	what := flag.String("what", "", "what is built or tested, for the person who waits")
	dir := flag.String("C", ".", "directory of the command")
	fetch := flag.String("fetch", "", "directory of a module that is built next: its modules are downloaded meanwhile")
	flag.Parse()
	args := flag.Args()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	job := job{what: *what, dir: *dir, fetch: *fetch, out: newScreen(os.Stderr, isTerminal(os.Stderr))}
	var err error
	switch {
	case len(args) >= 2 && args[0] == "go" && args[1] == "build":
		err = job.build(ctx, args[2:])
	case len(args) >= 2 && args[0] == "go" && args[1] == "test":
		err = job.test(ctx, args[2:])
	default:
		err = errors.New("usage: progress [-what TEXT] [-C DIR] go build|test [ARGUMENTS]")
	}
	job.out.clear()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit) && exit.ExitCode() > 0:
		return exit.ExitCode()
	}
	fmt.Fprintf(os.Stderr, "progress: %s: %v\n", *what, err)
	return 1
}

// job is one command of go.
type job struct {
	what  string
	dir   string
	fetch string
	out   *screen
}

// command prepares a call of go that is interrupted, not killed, with ctx.
func (j *job) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = j.dir
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	return cmd
}

// isTerminal reports whether a line written to f can be overwritten.
func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0 && os.Getenv("TERM") != "dumb"
}

// forList are the arguments of go build that go list takes, too: all but the name of the result.
func forList(args []string) []string {
	out := slices.Clone(args)
	if i := slices.Index(out, "-o"); i >= 0 && i+1 < len(out) {
		out = slices.Delete(out, i, i+2)
	}
	return out
}
