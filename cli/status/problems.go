package status

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"liqo.io/agent/agent/control"
	"liqo.io/agent/cli/render"
)

// fewProblems is how many problems status shows with what to do about them.
const fewProblems = 8

// problems lists what is the matter, the worst first as it comes.
func problems(p *render.Printer, all []control.Problem) {
	if len(all) == 0 {
		p.Printf("\nNo problems.\n")
		return
	}
	p.Printf("\nProblems:\n")
	for _, q := range all[:min(len(all), fewProblems)] {
		color := render.Red
		if q.Severity == severityWarning {
			color = render.Yellow
		}
		var notes []string
		for _, note := range []string{q.Code, p.Since(q.Since)} {
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
		p.Item("  - ", text, color)
		if q.Remedy != "" {
			p.Item("    ", "try: "+q.Remedy, "")
		}
	}
	if len(all) > fewProblems {
		p.Item("  - ", moreProblems(all[fewProblems:])+"; all of them: liqo-agent status -o json", "")
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
func lastErrors(p *render.Printer, all []control.LogEntry) {
	shown := 0
	for _, e := range all {
		if shown == fewErrors || p.Now.Sub(e.At) > recentErrors {
			break
		}
		if shown == 0 {
			p.Printf("\nLogged in the last hour:\n")
		}
		shown++
		text := e.Level + ": " + e.Text
		if e.Count > 1 {
			text += fmt.Sprintf(" (%d times)", e.Count)
		}
		p.Item("  - ", p.Ago(e.At)+", "+text, "")
	}
}
