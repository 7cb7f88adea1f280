package main

import (
	"cmp"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// event is a line of a test program about a test, as -test.v=test2json marks them.
var event = regexp.MustCompile(`^\x16?\s*(=== RUN  |--- PASS:|--- FAIL:|--- SKIP:) +(\S+)`)

// parseLog returns the tests that failed, and whether there was none at all. Of a test program that ended in the
// middle of tests, these have failed. Subtests stand for the tests they are part of.
func parseLog(text []byte) (failed []string, none bool) {
	var running []string
	none = true
	for line := range strings.Lines(string(text)) {
		// The mark may be in the middle of a line that a test has not ended.
		if i := strings.LastIndexByte(line, '\x16'); i > 0 {
			line = line[i:]
		}
		m := event.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		none = false
		name := m[2]
		switch {
		case strings.HasPrefix(m[1], "==="):
			running = append(running, name)
			continue
		case m[1] == "--- FAIL:":
			failed = append(failed, name)
		}
		running = slices.DeleteFunc(running, func(r string) bool { return r == name })
	}
	if len(failed) == 0 {
		failed = running
	}
	return leaves(failed), none
}

// leaves leaves out tests of which a subtest is named, too.
func leaves(names []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		return slices.ContainsFunc(names, func(other string) bool { return strings.HasPrefix(other, name+"/") })
	})
}

// replay is the command that runs the same tests under the same conditions.
func replay(pkg, run string, seed int64) string {
	s := fmt.Sprintf("make flakes N=1 SEED=%d PKG=%s", seed, pkg)
	if run != "" {
		s += fmt.Sprintf(" RUN='%s'", run)
	}
	return s
}

// logName is the file for the log of a run that failed.
func logName(pkg string, seed int64) string {
	name := strings.ReplaceAll(strings.Trim(pkg, "./"), "/", "-")
	return fmt.Sprintf("%s-%d.log", cmp.Or(name, "root"), seed)
}

// tell writes a line about a run, and more if it failed.
func tell(w io.Writer, o outcome, run string) {
	result := "ok"
	switch {
	case o.err != nil:
		result = "FAIL"
	case o.skipped:
		return
	}
	fmt.Fprintf(w, "%-4s %s  seed %d, %v, %s\n", result, o.binary.pkg, o.under.seed, o.under, o.took.Round(time.Millisecond))
	if o.err == nil {
		return
	}
	for _, name := range o.failed {
		fmt.Fprintf(w, "     %s\n", name)
	}
	fmt.Fprintf(w, "     %v; log: %s\n     again: %s\n", o.err, o.log, replay(o.binary.pkg, run, o.under.seed))
}

// summary is about all runs.
type summary struct {
	runs  map[string]int // by package
	fails map[[2]string][]int64
}

func newSummary() *summary {
	return &summary{runs: make(map[string]int), fails: make(map[[2]string][]int64)}
}

func (s *summary) add(o outcome) {
	if o.skipped && o.err == nil {
		return
	}
	s.runs[o.binary.pkg]++
	if o.err == nil {
		return
	}
	names := o.failed
	if len(names) == 0 {
		names = []string{"(no test)"} // it ended before or after them
	}
	for _, name := range names {
		key := [2]string{o.binary.pkg, name}
		s.fails[key] = append(s.fails[key], o.under.seed)
	}
}

// write writes the table, the worst first, and reports whether everything passed.
func (s *summary) write(w io.Writer) bool {
	total := 0
	for _, n := range s.runs {
		total += n
	}
	if len(s.fails) == 0 {
		fmt.Fprintf(w, "\nno test failed in %d runs of %d packages\n", total, len(s.runs))
		return true
	}
	var keys [][2]string
	for key := range s.fails {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, func(a, b [2]string) int {
		if d := len(s.fails[b]) - len(s.fails[a]); d != 0 {
			return d
		}
		return strings.Compare(a[0]+a[1], b[0]+b[1])
	})
	fmt.Fprintln(w)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "FAILED\tPACKAGE\tTEST\tSEEDS")
	for _, key := range keys {
		seeds := strings.Trim(fmt.Sprint(s.fails[key]), "[]")
		fmt.Fprintf(t, "%d of %d\t%s\t%s\t%s\n", len(s.fails[key]), s.runs[key[0]], key[0], key[1], seeds)
	}
	t.Flush()
	fmt.Fprintf(w, "\n%d tests failed at least once in %d runs of %d packages\n", len(keys), total, len(s.runs))
	return false
}
