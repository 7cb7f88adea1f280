package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"
)

// test runs one or more go test side by side or one after another, passes on what they print, package by package, and counts
// the packages that are finished. It looks for packages among the arguments that begin with a dot.
func (j *job) test(ctx context.Context, args []string) error {
	all, err := lines(args)
	if err != nil {
		return err
	}
	read, write := io.Pipe()
	var mu sync.Mutex // one package's output at a time
	total, done, began := 0, 0, time.Now()
	sequences := make([][]*exec.Cmd, len(all))
	for i, sequence := range all {
		for _, l := range sequence {
			named := slices.DeleteFunc(slices.Clone(l.args), func(a string) bool { return !strings.HasPrefix(a, ".") })
			names, err := j.command(ctx, append([]string{"list"}, named...)...).Output()
			if err != nil {
				return fmt.Errorf("list the packages: %w", err)
			}
			total += bytes.Count(names, []byte("\n"))
			cmd := j.command(ctx, l.args...)
			cmd.Env = append(os.Environ(), l.env...)
			cmd.Stdout, cmd.Stderr = &packages{mu: &mu, w: write}, os.Stderr
			sequences[i] = append(sequences[i], cmd)
		}
	}
	errs := make([]error, len(sequences))
	var group sync.WaitGroup
	for i, sequence := range sequences {
		group.Go(func() {
			for _, cmd := range sequence {
				errs[i] = errors.Join(errs[i], cmd.Run())
				cmd.Stdout.(*packages).flush()
			}
		})
	}
	go func() {
		group.Wait()
		write.Close()
	}()
	j.follow(read, func(line string) bool {
		j.out.clear()
		fmt.Println(line)
		if finished(line) {
			done++
		}
		return true
	}, func() (string, time.Duration) {
		text := fmt.Sprintf("%s: %d of %d packages finished after %s", j.what, done, total, time.Since(began).Round(time.Second))
		if done == 0 {
			text += ", the longest come first"
		}
		return text, worthTelling + 1
	})
	return errors.Join(errs...)
}

// packages passes on what go test writes, the lines of a package all at once.
type packages struct {
	mu  *sync.Mutex // guards w
	w   io.Writer
	buf []byte
}

// Write is io.Writer.
func (p *packages) Write(b []byte) (int, error) {
	p.buf = append(p.buf, b...)
	ready, start := 0, 0
	for {
		end := bytes.IndexByte(p.buf[start:], '\n')
		if end < 0 {
			break
		}
		end += start + 1
		if finished(string(p.buf[start:end])) {
			ready = end
		}
		start = end
	}
	p.pass(ready)
	return len(b), nil
}

// flush passes on what is left, after the end.
func (p *packages) flush() { p.pass(len(p.buf)) }

func (p *packages) pass(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, _ = p.w.Write(p.buf[:n]) // follow reads until all is said
	p.buf = p.buf[n:]
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
