package main

import (
	"fmt"
	"time"
)

const (
	// cost is what compiling a byte of Go takes one processor: measured over Kubernetes, with which
	// a first guess is made. What is observed soon outweighs it.
	cost = 3 * time.Microsecond
	// trust is how many bytes have to be compiled before the observed speed counts as much.
	trust = 2 << 20
	// linking is what a byte takes to be linked, as a share of what it takes to be compiled.
	linking = 0.03
)

// estimate follows a build and says how long the rest may take. Packages are as expensive as
// their files are long.
type estimate struct {
	stale    map[string]int64 // not yet begun, with their sizes
	total    int
	done     int
	work     float64 // bytes to be compiled, with linking as bytes
	finished float64
	cpus     int
}

func newEstimate(units []unit, cpus int) *estimate {
	e := &estimate{stale: make(map[string]int64), cpus: cpus}
	for _, u := range units {
		// A single program is linked, even if nothing is compiled; one processor does that.
		e.work += float64(u.bytes) * linking * float64(cpus)
		if u.stale {
			e.stale[u.path] = u.bytes
			e.work += float64(u.bytes)
			e.total++
		}
	}
	return e
}

// started notes that a package is being compiled, and reports whether line is the name of one.
func (e *estimate) started(line string) bool {
	size, known := e.stale[line]
	if !known {
		return false
	}
	delete(e.stale, line)
	e.done++
	e.finished += float64(size)
	return true
}

// left is how long the rest may take.
func (e *estimate) left(elapsed time.Duration) time.Duration {
	guess := float64(cost) / float64(e.cpus)
	perByte := (guess*trust + float64(elapsed)) / (trust + e.finished)
	if e.finished < trust {
		// What has begun has not ended: a few packages say nothing about the speed.
		perByte = guess
	}
	return time.Duration(perByte * (e.work - e.finished))
}

func (e *estimate) text(elapsed time.Duration) string {
	if e.total > 0 && e.done == e.total {
		return fmt.Sprintf("%s of %s packages, linking", number(e.done), number(e.total))
	}
	return fmt.Sprintf("%s of %s packages, %s left", number(e.done), number(e.total), about(e.left(elapsed)))
}

// about is a duration as people say it who do not want to promise too much.
func about(d time.Duration) string {
	switch {
	case d < 50*time.Second:
		return "less than a minute"
	default:
		return fmt.Sprintf("about %d min", int(d.Round(time.Minute)/time.Minute))
	}
}

// number writes n with a comma before each three digits.
func number(n int) string {
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%s,%03d", number(n/1000), n%1000)
}
