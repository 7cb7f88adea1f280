package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"liqo.io/agent/agent/control"
)

// screenWidth is how wide the status is at most, in columns, but for words that are
// longer.
const screenWidth = 100

// wrap breaks a text at spaces into lines of at most width columns. It has at least
// one line.
func wrap(text string, width int) []string {
	var lines []string
	line, columns := "", 0
	for _, word := range strings.Fields(text) {
		n := utf8.RuneCountInString(word)
		if line != "" && columns+1+n > width {
			lines, line, columns = append(lines, line), "", 0
		}
		if line != "" {
			line, columns = line+" ", columns+1
		}
		line, columns = line+word, columns+n
	}
	return append(lines, line)
}

// groups writes "Name:  value" lines like fields, all values in one column and
// wrapped, with an empty line between groups. Lines without a value are left out, and
// groups without lines.
func (p *printer) groups(groups ...[][2]string) {
	widest := 0
	for _, group := range groups {
		for _, kv := range group {
			if kv[1] != "" {
				widest = max(widest, utf8.RuneCountInString(kv[0]))
			}
		}
	}
	indent, first := widest+len(":  "), true
	for _, group := range groups {
		begun := false
		for _, kv := range group {
			if kv[1] == "" {
				continue
			}
			if !begun && !first {
				p.printf("\n")
			}
			begun, first = true, false
			for i, line := range wrap(clean(kv[1]), screenWidth-indent) {
				name := ""
				if i == 0 {
					name = kv[0] + ":"
				}
				p.printf("%-*s%s\n", indent, name, line)
			}
		}
	}
}

// item writes a text with a mark in front of its first line and the others below it.
func (p *printer) item(mark, text, color string) {
	for i, line := range wrap(clean(text), screenWidth-len(mark)) {
		if i > 0 {
			mark = strings.Repeat(" ", len(mark))
		}
		if p.color && color != "" {
			line = color + line + colorReset
		}
		p.printf("%s%s\n", mark, line)
	}
}

// fewProblems is how many problems status shows with what to do about them.
const fewProblems = 8

// problems lists what is the matter, the worst first as it comes.
func (p *printer) problems(all []control.Problem) {
	if len(all) == 0 {
		p.printf("\nNo problems.\n")
		return
	}
	p.printf("\nProblems:\n")
	for _, q := range all[:min(len(all), fewProblems)] {
		color := colorRed
		if q.Severity == severityWarning {
			color = colorYellow
		}
		var notes []string
		for _, note := range []string{q.Code, p.since(q.Since)} {
			if note != "" {
				notes = append(notes, note)
			}
		}
		text := q.Text
		if q.Severity != "" {
			text = q.Severity + ": " + text
		}
		if len(notes) > 0 {
			text += " (" + strings.Join(notes, ", ") + ")"
		}
		p.item("  - ", text, color)
		if q.Remedy != "" {
			p.item("    ", "try: "+q.Remedy, "")
		}
	}
	if len(all) > fewProblems {
		p.item("  - ", moreProblems(all[fewProblems:])+"; all of them: liqo-agent status -o json", "")
	}
}

// severityWarning is the severity of what works for now.
const severityWarning = "warning"

// moreProblems counts problems by code, in the order in which they come.
func moreProblems(rest []control.Problem) string {
	var codes []string
	counts := make(map[string]int)
	for _, q := range rest {
		code := cmp.Or(q.Code, "other")
		if counts[code]++; counts[code] == 1 {
			codes = append(codes, code)
		}
	}
	for i, code := range codes {
		if n := counts[code]; n > 1 {
			codes[i] = fmt.Sprintf("%s (%d)", code, n)
		}
	}
	return fmt.Sprintf("and %d more: %s", len(rest), strings.Join(codes, ", "))
}

// hasProblem reports whether there is a problem of a kind.
func hasProblem(all []control.Problem, code string) bool {
	return slices.ContainsFunc(all, func(q control.Problem) bool { return q.Code == code })
}

const (
	// fewErrors is how many of the last errors status shows, and recentErrors how old
	// they may be.
	fewErrors    = 3
	recentErrors = time.Hour
)

// lastErrors lists what was logged in the last hour.
func (p *printer) lastErrors(all []control.LogEntry) {
	shown := 0
	for _, e := range all {
		if shown == fewErrors || p.now.Sub(e.At) > recentErrors {
			break
		}
		if shown == 0 {
			p.printf("\nLogged in the last hour:\n")
		}
		shown++
		text := e.Level + ": " + e.Text
		if e.Count > 1 {
			text += fmt.Sprintf(" (%d times)", e.Count)
		}
		p.item("  - ", p.ago(e.At)+", "+text, "")
	}
}
