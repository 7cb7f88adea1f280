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
	"os"
	"os/exec"
	"os/signal"
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
	names, packages := tests(rows)
	command := append(args[1:], "-json", "-run", "^("+strings.Join(names, "|")+")$")
	cmd := exec.CommandContext(ctx, command[0], append(command[1:], packages...)...)
	cmd.Stderr = os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	results, err := read(pipe)
	// That tests failed is in what they printed.
	if waited := cmd.Wait(); err == nil && len(results) == 0 {
		err = waited
	}
	if err != nil {
		return fmt.Errorf("running the tests: %w", err)
	}
	return write(out, rows, results)
}
