//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// columns and rows are what is still readable at the width of a README.
	columns = 120
	rows    = 34
	// idleLimit is the longest that a cast waits for the next output.
	idleLimit = 1500 * time.Millisecond
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "record:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	flags := flag.NewFlagSet("record", flag.ContinueOnError)
	castPath := flags.String("cast", "", "`FILE` for the recording")
	svgPath := flags.String("svg", "", "`FILE` for the picture")
	from := flags.String("from", "", "draw the recording in `FILE` instead of making one")
	title := flags.String("title", "make demo", "what stands above the picture")
	still := flags.String("still", "", "where nothing is animated, show the screen that begins with the line that has this `TEXT`")
	if err := flags.Parse(args); err != nil {
		return err
	}
	var recording cast
	switch {
	case *from != "":
		text, err := os.ReadFile(*from)
		if err != nil {
			return err
		}
		if recording, err = decode(text); err != nil {
			return fmt.Errorf("%s: %w", *from, err)
		}
	case flags.NArg() == 0:
		return errors.New("no program was named; try: go run ./internal/bed/cmd/record -svg demo.svg bin/demo")
	default:
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
		defer stop()
		var err error
		if recording, err = record(ctx, flags.Args(), os.Stdout); err != nil {
			return err
		}
		recording.Title = *title
		recording = recording.hurry(idleLimit)
	}
	if err := recording.leaks(machine()); err != nil {
		return err
	}
	if *castPath != "" {
		if err := os.WriteFile(*castPath, recording.encode(), 0o644); err != nil {
			return err
		}
	}
	if *svgPath == "" {
		return nil
	}
	picture := draw(recording, *still)
	return os.WriteFile(*svgPath, picture, 0o644)
}

// machine returns what must not get into a recording: names and places that only
// mean something on this machine.
func machine() []string {
	var out []string
	if name, err := os.Hostname(); err == nil {
		out = append(out, name)
	}
	if dir, err := os.Getwd(); err == nil {
		out = append(out, dir)
	}
	// The boxes of the bed have a /root of their own.
	if home, err := os.UserHomeDir(); err == nil && home != "/root" {
		out = append(out, home)
	}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		out = append(out, string(bytes.TrimRight(u.Release[:], "\x00")))
	}
	return append(out, os.TempDir())
}

// leaks returns an error that names the first line with one of words in it.
func (c cast) leaks(words []string) error {
	var text strings.Builder
	for _, e := range c.Events {
		text.WriteString(e.Data)
	}
	for line := range strings.Lines(text.String()) {
		for _, word := range words {
			if word == "" || word == "/" {
				continue
			}
			if regexp.MustCompile(`(^|[^\w-])` + regexp.QuoteMeta(word) + `($|[^\w-])`).MatchString(line) {
				return fmt.Errorf("it prints %q, which is about this machine, and was not kept: %s", word, strings.TrimSpace(line))
			}
		}
	}
	return nil
}
