// Command attacks reads what go test -json prints, and writes the attempts in it as a table: what was tried, as whom, what was
// expected and what was seen. It ends with status 1 if a test failed, or if there was no attempt at all.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"liqo.io/agent/internal/attack"
)

func main() {
	if err := run(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "attacks:", err)
		os.Exit(1)
	}
}

// event is what go test -json prints of an event (go doc test2json).
type event struct {
	Action, Package, Test, Output, Key, Value string
}

// run writes the table of what it reads, after what the tests that failed had to say.
func run(in io.Reader, out io.Writer) error {
	var seen []attack.Seen
	var failed []string
	said := map[string]*strings.Builder{} // by package and test
	for lines := json.NewDecoder(in); ; {
		var e event
		if err := lines.Decode(&e); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return fmt.Errorf("reading the output of go test -json: %w", err)
		}
		name := strings.TrimSuffix(e.Package+"."+e.Test, ".")
		switch e.Action {
		case "attr":
			if e.Key != attack.Key {
				continue
			}
			var s attack.Seen
			if err := json.Unmarshal([]byte(e.Value), &s); err != nil {
				return fmt.Errorf("reading an attempt of %s: %w", name, err)
			}
			seen = append(seen, s)
		case "output", "build-output":
			if said[name] == nil {
				said[name] = new(strings.Builder)
			}
			said[name].WriteString(e.Output)
		case "pass", "skip":
			delete(said, name)
		case "fail", "build-fail":
			failed = append(failed, name)
		}
	}
	for _, name := range failed {
		if text := said[name]; text != nil {
			fmt.Fprintf(out, "%s:\n%s\n", name, text)
		}
	}
	slices.SortStableFunc(seen, func(a, b attack.Seen) int { return strings.Compare(a.As, b.As) })
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "AS\tATTACK\tEXPECTED\tSEEN")
	for _, s := range seen {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", s.As, s.What, s.Want, s.Got)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	switch {
	case len(failed) > 0:
		return fmt.Errorf("failed: %s", strings.Join(failed, ", "))
	case len(seen) == 0:
		return errors.New("no attack was tried")
	}
	return nil
}
