package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// module is what import paths of packages begin with.
const module = "liqo.io/agent/"

// write writes what failed tests said, and then the table: for each row of the document whether it held, and below it the
// attempts that its tests reported.
func write(out io.Writer, rows []row, results map[string]*result) error {
	shown, failed := make(map[string]bool), 0
	for name, r := range results {
		if r.ended == "fail" {
			failed++
			fmt.Fprintf(out, "%s:\n%s\n", name, &r.said)
		}
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	line(table, "AS", "ATTACK", "EXPECTED", "SEEN")
	for _, r := range rows {
		line(table, r.as, r.what, r.expected, seen(r, results))
		for _, test := range r.tests {
			if results[module+test] == nil || shown[test] {
				continue
			}
			shown[test] = true
			for _, s := range results[module+test].attempts {
				line(table, "  "+s.As, "  "+s.What, s.Want, s.Got)
			}
		}
	}
	if err := table.Flush(); err != nil {
		return err
	}
	missing := make(map[string]bool) // several rows may name one test
	for _, r := range rows {
		for _, test := range r.tests {
			if results[module+test] == nil {
				missing[test] = true
			}
		}
	}
	if failed+len(missing) > 0 {
		return fmt.Errorf("%d tests and packages failed, %d tests were not run", failed, len(missing))
	}
	return nil
}

// seen says what came of the tests of a row.
func seen(r row, results map[string]*result) string {
	if len(r.tests) == 0 {
		return "no test"
	}
	var not []string
	for _, test := range r.tests {
		switch result := results[module+test]; {
		case result == nil:
			not = append(not, "not run: "+test)
		case result.ended == "skip":
			not = append(not, "left out: "+test)
		case result.ended != "pass":
			not = append(not, "FAILED: "+test)
		}
	}
	if len(not) == 0 {
		return "as expected"
	}
	return strings.Join(not, " ")
}

// line writes one line of the table, as several if cells are long.
func line(out io.Writer, cells ...string) {
	widths := []int{28, 48, 56, 40}
	var columns [4][]string
	high := 0
	for i, cell := range cells {
		columns[i] = wrap(cell, widths[i])
		high = max(high, len(columns[i]))
	}
	for at := range high {
		for i, lines := range columns {
			if at < len(lines) {
				fmt.Fprint(out, lines[at])
			}
			if i < len(columns)-1 {
				fmt.Fprint(out, "\t")
			}
		}
		fmt.Fprintln(out)
	}
}

// wrap breaks text between words into lines of at most width characters, where its words allow that. Each begins as the text does.
func wrap(text string, width int) []string {
	indent := text[:len(text)-len(strings.TrimLeft(text, " "))]
	var lines []string
	for _, word := range strings.Fields(text) {
		if last := len(lines) - 1; last >= 0 && len(lines[last])+1+len(word) <= width {
			lines[last] += " " + word
		} else {
			lines = append(lines, indent+word)
		}
	}
	return lines
}
