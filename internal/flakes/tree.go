package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// process is what /proc says about one.
type process struct {
	pid, parent int
	state       byte // R, S, D for an uninterruptible wait, T for stopped, Z for ended
}

// processes reads all of /proc. Those that end meanwhile are left out.
func processes() ([]process, error) {
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return nil, err
	}
	var out []process
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		if p, err := parseStat(text); err == nil {
			out = append(out, p)
		}
	}
	if len(out) == 0 {
		return nil, errors.New("/proc shows no processes")
	}
	return out, nil
}

// parseStat reads /proc/PID/stat. The name in it may contain anything, parentheses too.
func parseStat(text []byte) (process, error) {
	open, end := bytes.IndexByte(text, '('), bytes.LastIndexByte(text, ')')
	if open < 0 || end < open {
		return process{}, fmt.Errorf("not the state of a process: %q", text)
	}
	fields := bytes.Fields(text[end+1:])
	if len(fields) < 2 || len(fields[0]) != 1 {
		return process{}, fmt.Errorf("not the state of a process: %q", text)
	}
	pid, err := strconv.Atoi(string(bytes.TrimSpace(text[:open])))
	if err != nil {
		return process{}, err
	}
	parent, err := strconv.Atoi(string(fields[1]))
	return process{pid: pid, parent: parent, state: fields[0][0]}, err
}

// generations returns a process, its children, theirs, and so on.
func generations(all []process, root int) (out [][]process) {
	next := slices.DeleteFunc(slices.Clone(all), func(p process) bool { return p.pid != root })
	for len(next) > 0 {
		out = append(out, next)
		parents := next
		next = nil
		for _, parent := range parents {
			for _, p := range all {
				if p.parent == parent.pid {
					next = append(next, p)
				}
			}
		}
	}
	return out
}

// descendants returns a process and all below it, parents first.
func descendants(all []process, root int) []process {
	return slices.Concat(generations(all, root)...)
}

// testPrograms are how many processes, from the root down, are the test program: a test that runs in
// namespaces of its own is a process that waits, and its copy inside.
func testPrograms(tree []process) int {
	self := func(p process) string {
		target, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", p.pid))
		if err != nil {
			return ""
		}
		return target
	}
	n := 1
	for n < len(tree) && n < 2 && tree[n].parent == tree[0].pid && self(tree[n]) == self(tree[0]) {
		n++
	}
	return n
}

// stopTree stops processes of the tree below root, and returns what ends that. The test program is
// stopped first and continued last, and processes that are stopped already are left alone: a test
// that stops some by itself must not see them continue. Nor do parents see their children stop: some,
// like nsenter, would then stop themselves when they continue.
func stopTree(root int, who victim) (resume func(), err error) {
	var stopped []int
	resume = func() {
		for _, pid := range slices.Backward(stopped) {
			_ = unix.Kill(pid, unix.SIGCONT) // it may have been killed meanwhile
		}
	}
	all, err := processes()
	if err != nil {
		return resume, err
	}
	stop := func(list []process) error {
		before := len(stopped)
		for _, p := range list {
			if p.state != 'T' && p.state != 't' && p.state != 'Z' && !slices.Contains(stopped, p.pid) && unix.Kill(p.pid, unix.SIGSTOP) == nil {
				stopped = append(stopped, p.pid)
			}
		}
		return waitStopped(stopped[before:])
	}
	tree := descendants(all, root)
	if len(tree) == 0 {
		return resume, nil // it has ended
	}
	if err := stop(tree[:testPrograms(tree)]); err != nil || who == program {
		return resume, err
	}
	// From now on nobody else stops processes; but those that still run start others.
	for range 3 {
		if all, err = processes(); err != nil {
			return resume, err
		}
		before := len(stopped)
		for _, generation := range generations(all, root) {
			if err := stop(generation); err != nil {
				return resume, err
			}
		}
		if len(stopped) == before {
			break
		}
	}
	return resume, nil
}

// waitStopped waits until processes that were sent SIGSTOP have stopped, or ended. Somebody may have one
// continue in that moment, so it is sent again. One in an uninterruptible wait, which may be for a file
// system of the test program, stops when that is over, before it does anything else.
func waitStopped(pids []int) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute) // they need a processor to stop
	defer cancel()
	for _, pid := range pids {
		for {
			text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
			if err != nil {
				break // it has ended
			}
			p, err := parseStat(text)
			if err != nil {
				return err
			}
			if slices.Contains([]byte("TtZD"), p.state) {
				break
			}
			select {
			case <-ctx.Done():
				return fmt.Errorf("process %d does not stop", pid)
			case <-time.After(100 * time.Microsecond):
				_ = unix.Kill(pid, unix.SIGSTOP) // it may have ended
			}
		}
	}
	return nil
}

// killTree kills a process and all below it.
func killTree(root int) {
	all, err := processes()
	if err != nil {
		all = []process{{pid: root}}
	}
	for _, p := range descendants(all, root) {
		_ = unix.Kill(p.pid, unix.SIGKILL) // it may have ended
	}
}
