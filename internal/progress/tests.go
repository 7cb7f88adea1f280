package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"
	"time"
)

// test runs go test, passes on what it prints, and counts the packages that are finished. It looks for
// packages among the arguments that begin with a dot.
func (j *job) test(ctx context.Context, args []string) error {
	list := []string{"list"}
	for _, a := range args {
		if strings.HasPrefix(a, ".") {
			list = append(list, a)
		}
	}
	names, err := j.command(ctx, list...).Output()
	if err != nil {
		return fmt.Errorf("list the packages: %w", err)
	}
	total, done, began := bytes.Count(names, []byte("\n")), 0, time.Now()
	cmd := j.command(ctx, append([]string{"test"}, args...)...)
	cmd.Stderr = os.Stderr
	lines, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	j.follow(lines, func(line string) bool {
		j.out.clear()
		fmt.Println(line)
		if finished(line) {
			done++
		}
		return true
	}, func() (string, time.Duration) {
		text := fmt.Sprintf("%s: %d of %d packages finished after %s", j.what, done, total, time.Since(began).Round(time.Second))
		if done == 0 {
			text += ", compiling"
		}
		return text, worthTelling + 1
	})
	return cmd.Wait()
}

// finished reports whether go test says with a line that it is done with a package.
func finished(line string) bool {
	for _, prefix := range []string{"ok  \t", "FAIL\t", "?   \t"} {
		if strings.HasPrefix(line, prefix) {
			return true
		}
	}
	return false
}
