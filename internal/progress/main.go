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
	"strings"
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
	keep := flag.Bool("keep", false, "keep the program in the build cache, so that it is linked once and not in each clone")
	flag.Parse()
	args := flag.Args()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	job := job{what: *what, dir: *dir, fetch: *fetch, keep: *keep, out: newScreen(os.Stderr, isTerminal(os.Stderr))}
	var err error
	switch {
	case len(args) >= 2 && args[0] == "go" && args[1] == "build":
		err = job.build(ctx, args[2:])
	case len(args) >= 2 && slices.Contains(args, "test"):
		err = job.test(ctx, args)
	default:
		err = errors.New("usage: progress [-what TEXT] [-C DIR] [-keep] go build [ARGUMENTS], or [VARIABLE=VALUE...] go test [ARGUMENTS] [-- ... | ++ ...]")
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

// job is what one call of progress does.
type job struct {
	what  string
	dir   string
	fetch string
	keep  bool
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

// line is one command line: variables of the environment, go test and its arguments.
type line struct {
	env  []string
	args []string // of go
}

// lines takes command lines apart: what comes after "--" is to run beside the others, and after "++" when the one before has ended,
// however it did. Each element of the result is a sequence.
func lines(args []string) ([][]line, error) {
	out := [][]line{nil}
	for len(args) > 0 {
		end := slices.IndexFunc(args, func(a string) bool { return a == "--" || a == "++" })
		if end < 0 {
			end = len(args)
		}
		one := args[:end]
		variables := slices.IndexFunc(one, func(a string) bool { return !strings.Contains(a, "=") })
		if variables < 0 || len(one) < variables+2 || one[variables] != "go" || one[variables+1] != "test" {
			return nil, fmt.Errorf("%q is no go test", one)
		}
		last := &out[len(out)-1]
		*last = append(*last, line{env: one[:variables], args: one[variables+1:]})
		if end < len(args) && args[end] == "--" {
			out = append(out, nil)
		}
		args = args[min(end+1, len(args)):]
	}
	return out, nil
}

// isTerminal reports whether a line written to f can be overwritten.
func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0 && os.Getenv("TERM") != "dumb"
}

// withoutOutput takes the name of the result from the arguments of go build, "" if they have none. go list and go run take the rest, too.
func withoutOutput(args []string) (rest []string, output string) {
	i := slices.Index(args, "-o")
	if i < 0 || i+1 >= len(args) {
		return args, ""
	}
	return slices.Concat(args[:i], args[i+2:]), args[i+1]
}
