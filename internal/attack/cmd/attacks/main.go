// Command attacks runs the tests that docs/security.md names in its tables of attempts, and prints a table of what was tried, as
// whom, what is expected and what was seen. It ends with status 1 if anything was seen that is not expected.
//
//	attacks docs/security.md go test ARGS...
//
// It adds to the command what tests to run, and in which packages.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "attacks:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	if len(args) < 2 {
		return errors.New("say the document and the command that runs tests: attacks docs/security.md go test")
	}
	text, err := os.ReadFile(args[0])
	if err != nil {
		return err
	}
	rows := parse(string(text))
	if len(rows) == 0 {
		return fmt.Errorf("%s has no table with the columns %s", args[0], strings.Join(columns, ", "))
	}
	results := make(map[string]*result)
	for module, run := range tests(rows, modules()) {
		if err := run.in(ctx, module, args[1:], results); err != nil {
			return fmt.Errorf("running the tests of module %s: %w", module, err)
		}
	}
	return write(out, rows, results)
}

// modules returns the directories below this one that are modules of their own.
func modules() []string {
	var out []string
	_ = filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		if err == nil && d.Name() == "go.mod" {
			out = append(out, filepath.Dir(name))
		}
		return nil // what cannot be read has no tests that can be run
	})
	return out
}

// in runs tests in the directory of a module, by a command that runs tests, and adds what came of them to results.
func (s selection) in(ctx context.Context, module string, command []string, results map[string]*result) error {
	cmd := exec.CommandContext(ctx, command[0], slices.Concat(command[1:], []string{"-json", "-run", "^(" + strings.Join(s.names, "|") + ")$"}, s.packages)...)
	cmd.Dir, cmd.Stderr = module, os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	before := len(results)
	err = read(pipe, results)
	// That tests failed is in what they printed.
	if waited := cmd.Wait(); err == nil && len(results) == before {
		err = waited
	}
	return err
}
