// Command liqo-agent finds the Liqo clusters around this one and lets them
// find it. See package cli for its commands.
package main

import (
	"context"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"liqo.io/agent/cli"
	"liqo.io/agent/cli/command"
)

// Set by the linker (-X main.version=... -X main.commit=...).
var version, commit string

func main() {
	// Each place in the code that a heap profile has seen keeps a page of memory. With one
	// sample in 4 MB instead of 512 KB these are a few hundred kilobytes, not 1.5 MB, and
	// what grows without bound still shows.
	if runtime.MemProfileRate == 512<<10 { // GODEBUG=memprofilerate has not changed it
		runtime.MemProfileRate = 4 << 20
	}
	os.Exit(run())
}

func run() int {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go stopOnSignal(cancel)
	v, c := buildInfo(version, commit)
	err := cli.New(command.Options{
		Version: v,
		Commit:  c,
		Stdin:   os.Stdin,
		Stdout:  os.Stdout,
		Stderr:  os.Stderr,
		Environ: os.Environ(),
		Color:   takesColor(os.Stdout),
		Screen:  isTerminal(os.Stdout),
		Now:     time.Now,
		// Questions are written to standard error, so that output can be redirected.
		Interactive: isTerminal(os.Stdin) && isTerminal(os.Stderr),
	}).Run(ctx, os.Args)
	return command.Report(os.Stderr, err)
}

// stopOnSignal has the program stop in an orderly way at the first SIGINT or
// SIGTERM, and at once at the second.
func stopOnSignal(stop func()) {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	<-signals
	stop()
	if second, ok := (<-signals).(syscall.Signal); ok {
		os.Exit(128 + int(second))
	}
}

// takesColor reports whether f is a terminal on which colour is wanted
// (https://no-color.org).
func takesColor(f *os.File) bool {
	if os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb" || os.Getenv("TERM") == "" {
		return false
	}
	return isTerminal(f)
}

func isTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// buildInfo returns what the linker was told, else what the Go tool recorded.
func buildInfo(version, commit string) (string, string) {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{}
	}
	if version == "" {
		version = info.Main.Version
	}
	if version == "" || version == "(devel)" {
		version = "0.0.0-dev"
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && commit == "" {
			commit = s.Value[:min(12, len(s.Value))]
		}
	}
	return version, commit
}
