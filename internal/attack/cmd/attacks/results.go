package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"liqo.io/agent/internal/attack"
)

// event is what go test -json prints of an event (go doc test2json).
type event struct {
	Action, Package, Test, Output, Key, Value string
}

// result is what came of a test.
type result struct {
	ended    string // pass, fail or skip; empty: it did not end
	said     strings.Builder
	attempts []attack.Seen
}

// read adds the results of the tests of which it reads to results, by package and name, with those of their subtests in them. A
// package that failed without a test, such as one that does not compile, is there without a name of a test.
func read(in io.Reader, results map[string]*result) error {
	for events := json.NewDecoder(in); ; {
		var e event
		if err := events.Decode(&e); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("reading the output of go test -json: %w", err)
		}
		top, _, sub := strings.Cut(e.Test, "/")
		name := e.Package
		if top != "" {
			name += "." + top
		}
		r := results[name]
		if r == nil {
			r = new(result)
			results[name] = r
		}
		switch e.Action {
		case "output":
			r.said.WriteString(e.Output)
		case "attr":
			if e.Key != attack.Key {
				continue
			}
			var s attack.Seen
			if err := json.Unmarshal([]byte(e.Value), &s); err != nil {
				return fmt.Errorf("reading an attempt of %s: %w", name, err)
			}
			r.attempts = append(r.attempts, s)
		case "pass", "fail", "skip":
			if !sub {
				r.ended = e.Action
			}
		}
	}
}
