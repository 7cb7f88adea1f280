package main

import (
	"path"
	"regexp"
	"slices"
	"strings"
)

// row is one line of a table of attempts in the document.
type row struct {
	as       string // the heading above the table
	what     string
	expected string
	tests    []string // as the document names them: endpoint.TestRates
}

// columns are those of a table of attempts.
var columns = []string{"attempt", "what happens", "shown by"}

var (
	testName = regexp.MustCompile("`([a-z0-9/]+\\.(?:Test|Fuzz)\\w+)`")
	linkText = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
)

// parse returns the rows of all tables of attempts that a document in Markdown has.
func parse(document string) []row {
	var out []row
	heading, inside := "", false
	for line := range strings.Lines(document) {
		line = strings.TrimSpace(line)
		cells := strings.Split(strings.Trim(line, "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		switch {
		case strings.HasPrefix(line, "## "):
			heading, inside = strings.TrimPrefix(line, "## "), false
		case !strings.HasPrefix(line, "|"):
			inside = false
		case slices.Equal(cells, columns):
			inside = true
		case inside && len(cells) == len(columns) && strings.Trim(cells[0], "-") != "":
			r := row{as: heading, what: plain(cells[0]), expected: plain(cells[1])}
			for _, m := range testName.FindAllStringSubmatch(cells[2], -1) {
				r.tests = append(r.tests, m[1])
			}
			out = append(out, r)
		}
	}
	return out
}

// plain is text without the marks of Markdown.
func plain(text string) string {
	return strings.NewReplacer("`", "", "*", "").Replace(linkText.ReplaceAllString(text, "$1"))
}

// selection is what go test is told to run in a module.
type selection struct{ names, packages []string }

// tests returns what is to be run of rows, by the directory of the module it is in: the innermost of modules, or ".".
func tests(rows []row, modules []string) map[string]selection {
	out := make(map[string]selection)
	for _, r := range rows {
		for _, test := range r.tests {
			folder, home := strings.TrimSuffix(test, path.Ext(test)), "."
			for _, m := range modules {
				if strings.HasPrefix(folder+"/", m+"/") && (home == "." || len(m) > len(home)) {
					home = m
				}
			}
			s := out[home]
			s.names = append(s.names, strings.TrimPrefix(path.Ext(test), "."))
			s.packages = append(s.packages, "./"+strings.TrimPrefix(strings.TrimPrefix(folder, home), "/"))
			out[home] = s
		}
	}
	for home, s := range out {
		slices.Sort(s.names)
		slices.Sort(s.packages)
		out[home] = selection{slices.Compact(s.names), slices.Compact(s.packages)}
	}
	return out
}
