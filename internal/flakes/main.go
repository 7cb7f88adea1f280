package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	if len(os.Args) == 2 && os.Args[1] == burnArg {
		burn()
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	passed, err := hunt(ctx, os.Args[1:])
	switch {
	case errors.Is(err, flag.ErrHelp):
		os.Exit(2)
	case err != nil:
		fmt.Fprintln(os.Stderr, "flakes:", err)
		os.Exit(1)
	case !passed:
		os.Exit(1)
	}
}

// hunt compiles the tests and runs them round after round.
func hunt(ctx context.Context, args []string) (passed bool, err error) {
	flags := flag.NewFlagSet("flakes", flag.ContinueOnError)
	var (
		rounds = flags.Int("n", 10, "how often each package is run; 0: until -for is over")
		bound  = flags.Duration("for", 0, "begin no run after this time (2h)")
		seed   = flags.Int64("seed", 0, "seed of the first run; the next has the next (0: from the clock)")
		pkgs   = flags.String("pkg", "./...", "packages")
		run    = flags.String("run", "", "only tests that match")
		race   = flags.Bool("race", true, "compile with the race detector")
		limit  = flags.Duration("timeout", 20*time.Minute, "how long one run may take; multiplied by the number of copies that run together")
		dir    = flags.String("dir", "bin/flakes", "where the logs of failed runs and the compiled tests are kept")
	)
	var gcflags []string
	flags.Func("gcflags", "what go test -race gets as -gcflags; as often as needed", func(s string) error {
		gcflags = append(gcflags, "-gcflags="+s)
		return nil
	})
	if err := flags.Parse(args); err != nil {
		return false, err
	}
	if *rounds <= 0 && *bound <= 0 {
		return false, errors.New("without -n, -for has to say when it is enough")
	}
	if *seed == 0 {
		*seed = time.Now().Unix()
	}
	logs, err := filepath.Abs(*dir)
	if err != nil {
		return false, err
	}
	binaries, err := compile(ctx, filepath.Join(logs, "tests"), strings.Fields(*pkgs), *race, gcflags)
	if err != nil {
		return false, err
	}
	if len(binaries) == 0 {
		return false, fmt.Errorf("no tests in %s", *pkgs)
	}
	if *bound > 0 {
		fmt.Printf("running %d packages for %v, from seed %d\n", len(binaries), *bound, *seed)
	} else {
		fmt.Printf("running %d packages %d times, from seed %d\n", len(binaries), *rounds, *seed)
	}
	r := &runner{run: *run, timeout: *limit, logs: logs}
	total, began := newSummary(), time.Now()
	defer func() { passed = total.write(os.Stdout) && err == nil }()
	for round := 0; *rounds <= 0 || round < *rounds; round++ {
		for _, i := range random(*seed + int64(round)).Perm(len(binaries)) {
			if *bound > 0 && time.Since(began) > *bound {
				return
			}
			o, err := r.once(ctx, binaries[i], conditionsOf(*seed, runtime.NumCPU()))
			*seed++
			if err != nil {
				if ctx.Err() != nil {
					return false, errors.New("interrupted; everything it started is ended")
				}
				return false, err
			}
			total.add(o)
			tell(os.Stdout, o, *run)
		}
	}
	if len(total.runs) == 0 {
		return false, fmt.Errorf("no test matches %q", *run)
	}
	return
}

// compile compiles the tests of packages once. Packages without tests are left out. gcflags are for the race detector.
func compile(ctx context.Context, dir string, pkgs []string, race bool, gcflags []string) ([]binary, error) {
	args := append([]string{"list", "-f", "{{if or .TestGoFiles .XTestGoFiles}}{{.Dir}}{{end}}"}, pkgs...)
	list, err := output(ctx, args...)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	here, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	dirs := strings.Fields(list)
	var out []binary
	for i, folder := range dirs {
		rel, err := filepath.Rel(here, folder)
		if err != nil {
			return nil, err
		}
		b := binary{pkg: "./" + filepath.ToSlash(rel), dir: folder}
		b.path = filepath.Join(dir, strings.TrimSuffix(logName(b.pkg, 0), "-0.log")+".test")
		fmt.Fprintf(os.Stderr, "compiling tests: %d of %d, %s\n", i+1, len(dirs), b.pkg)
		args := []string{"test", "-c", "-vet=off", "-ldflags=-s -w", "-o", b.path, b.pkg}
		if race {
			args = slices.Insert(args, 2, append(gcflags, "-race")...)
		}
		if _, err := output(ctx, args...); err != nil {
			return nil, err
		}
		out = append(out, b)
	}
	return out, nil
}

// output runs the go command.
func output(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Stderr = os.Stderr
	if slices.Contains(args, "-race") {
		cmd.Env = append(os.Environ(), "CGO_ENABLED=1")
	}
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("go %s: %w", strings.Join(args, " "), err)
	}
	return string(out), nil
}
