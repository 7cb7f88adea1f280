//go:build linux

package main

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"liqo.io/agent/internal/mdnscheck"
)

// demands is what each RFC demands: how often the words of RFC 2119 stand in each of its sections, counted in its text
// without what only defines the words. RFC 1035 is older than the words: of it, the sections that are about messages.
var demands = map[string]string{
	"RFC 6762": `
		2: MUST ×2; 3: MUST ×2, SHOULD; 4: MUST ×2; 5: MUST; 5.1: MUST NOT; 5.2: MUST ×5, MUST NOT, SHOULD ×5; 5.4: SHOULD ×5, SHOULD NOT ×2; 5.5: SHOULD ×2;
		6: MUST ×12, MUST NOT ×5, SHOULD ×4, SHOULD NOT; 6.1: MUST ×4, MUST NOT ×4, REQUIRED, SHOULD ×2; 6.2: MUST, MUST NOT ×2, SHOULD ×2; 6.3: MUST, SHOULD;
		6.4: SHOULD ×2; 6.5: MUST ×2; 6.6: MUST ×2; 6.7: MUST ×3, MUST NOT, SHOULD NOT; 7.1: MUST, MUST NOT ×2, SHOULD NOT; 7.2: MUST ×3, SHOULD; 7.3: SHOULD;
		7.4: SHOULD; 8: MUST; 8.1: MUST ×5, MUST NOT, SHOULD ×5, SHOULD NOT; 8.2: MUST; 8.3: MUST ×3, MUST NOT ×2; 8.4: MUST ×3, SHOULD, SHOULD NOT;
		9: MUST ×3; 10: SHOULD; 10.1: SHOULD, SHOULD NOT; 10.2: MUST ×4, MUST NOT ×3; 10.4: MUST, SHOULD; 10.5: SHOULD, SHOULD NOT; 11: MUST, SHOULD ×3;
		13: SHOULD ×2; 14: MUST, SHOULD; 15.1: SHOULD; 16: MUST ×2, MUST NOT ×2; 17: MUST NOT ×2, SHOULD ×2, SHOULD NOT; 18.1: MUST ×3, SHOULD ×3;
		18.2: MUST ×2; 18.3: MUST ×2; 18.4: MUST ×4; 18.5: MUST ×2, SHOULD ×2; 18.6: MUST, SHOULD; 18.7: MUST ×2; 18.8: MUST ×2; 18.9: MUST ×2; 18.10: MUST ×2;
		18.11: MUST ×2; 18.14: MUST ×2, MUST NOT ×2, REQUIRED, SHOULD ×5; 21: MUST NOT; 22.1: MUST NOT, SHOULD ×8, SHOULD NOT ×5; C: MUST`,
	"RFC 6763": `
		4.1.1: MUST NOT, SHOULD, SHOULD NOT ×3; 4.3: MUST; 5: MUST, SHOULD; 6: MUST; 6.1: MUST, MUST NOT; 6.2: NOT RECOMMENDED; 6.3: MUST, MUST NOT;
		6.4: MUST ×4, SHOULD, SHOULD NOT; 6.5: MUST NOT, SHOULD NOT; 6.7: SHOULD; 8: MUST NOT; 11: SHOULD NOT; 12: MUST, RECOMMENDED, SHOULD ×2; 12.1: SHOULD;
		12.2: SHOULD`,
	"RFC 2782": `
		Applicability Statement: MUST ×2, SHOULD NOT; The format of the SRV RR: MUST ×2, MUST NOT, SHOULD ×4; Usage rules: MUST ×2, SHOULD, SHOULD NOT`,
	"RFC 1035": `
		2.3.1: rule; 2.3.3: rule; 2.3.4: rule; 3.1: rule; 3.2.1: rule; 3.3: rule; 3.3.1: rule; 3.3.14: rule; 3.4.1: rule; 4.1.1: rule; 4.1.2: rule;
		4.1.3: rule; 4.1.4: rule; 4.2.1: rule; 4.2.2: rule; 5: rule; 6: rule; 7.2: rule; 7.3: rule; 7.4: rule`,
	"RFC 7858": `
		3.1: MUST ×3, MUST NOT ×4, SHOULD; 3.3: MUST ×3, SHOULD ×2; 3.4: MUST ×3, MUST NOT, SHOULD ×6, SHOULD NOT; 4.2: MUST ×4, SHOULD ×2; 5: SHOULD; 8: MUST`,
	"RFC 8446": `
		2: MUST ×2, MUST NOT; 2.1: MUST; 2.2: MUST, SHOULD; 4: MUST ×2; 4.1.1: MUST ×4; 4.1.2: MUST ×14, MUST NOT, REQUIRED, SHOULD ×3;
		4.1.3: MUST ×16, SHOULD ×2; 4.1.4: MUST ×10, MUST NOT, SHOULD, SHOULD NOT; 4.2: MUST ×3, MUST NOT ×2; 4.2.1: MUST ×14, MUST NOT ×2, SHOULD;
		4.2.2: MUST ×2, MUST NOT; 4.2.3: MUST ×13, MUST NOT ×3, SHOULD, SHOULD NOT; 4.2.4: SHOULD; 4.2.5: MUST ×4, MUST NOT ×2; 4.2.6: MUST NOT ×2;
		4.2.7: MUST NOT, SHOULD ×2; 4.2.8: MUST ×9, MUST NOT ×4; 4.2.8.1: MUST; 4.2.8.2: MUST; 4.2.9: MUST ×4, MUST NOT ×3, SHOULD NOT;
		4.2.10: MUST ×9, MUST NOT ×3, SHOULD, SHOULD NOT ×2; 4.2.11: MUST ×11, SHOULD ×6, SHOULD NOT; 4.2.11.1: MUST NOT; 4.2.11.3: MUST; 4.3.1: MUST ×3;
		4.3.2: MUST ×4, MUST NOT, SHALL, SHOULD; 4.4.2: MUST ×10, MUST NOT, SHALL, SHOULD ×3; 4.4.2.1: MUST ×3, MUST NOT ×2;
		4.4.2.2: MUST ×6, MUST NOT, SHOULD ×2, SHOULD NOT; 4.4.2.3: MUST ×3, SHOULD; 4.4.2.4: MUST ×2, RECOMMENDED ×2; 4.4.3: MUST ×9, MUST NOT;
		4.4.4: MUST ×2; 4.5: MUST ×2, MUST NOT ×2; 4.6.1: MUST ×5, MUST NOT ×2, RECOMMENDED, SHOULD ×2, SHOULD NOT; 4.6.2: MUST ×6; 4.6.3: MUST ×6, SHALL;
		5: MUST ×4, MUST NOT; 5.1: MUST ×9, MUST NOT ×8, SHOULD; 5.2: MUST ×3, MUST NOT ×2; 5.3: MUST ×2, MUST NOT; 5.4: MUST ×4, MUST NOT ×2; 5.5: SHOULD;
		6: MUST ×6, MUST NOT, SHOULD ×3; 6.1: MUST ×4, SHOULD; 6.2: MUST ×3, SHOULD ×3; 7.1: SHOULD; 7.2: SHOULD; 7.4.2: MUST, MUST NOT, SHOULD ×2;
		7.5: MUST, MUST NOT, RECOMMENDED, SHOULD; 8: MUST ×3, SHOULD ×2; 8.2: MUST ×2, MUST NOT, SHOULD; 9.1: MUST ×3, SHOULD ×2;
		9.2: MUST ×7, REQUIRED ×6, SHOULD; 9.3: MUST ×9, MUST NOT; 11: REQUIRED ×2; A.1: SHOULD; B: MUST NOT; B.3.1.4: MUST NOT; C.1: RECOMMENDED; C.2: SHOULD;
		C.3: RECOMMENDED; C.4: SHOULD ×2, SHOULD NOT; C.5: MUST NOT; D: MUST, SHOULD ×3; D.1: MUST, NOT RECOMMENDED, SHOULD, SHOULD NOT; D.2: MUST ×4;
		D.3: MUST, SHOULD, SHOULD NOT; D.4: MUST; D.5: MUST, MUST NOT ×9, NOT RECOMMENDED, SHOULD, SHOULD NOT; E.1: MUST, MUST NOT; E.1.1: SHOULD NOT;
		E.1.4: SHOULD ×2; E.5: MUST, MUST NOT ×4; E.5.1: SHOULD NOT`,
}

// levels counts words such as "MUST ×2, SHOULD" of a section.
func levels(t *testing.T, into map[string]int, section, text string) {
	t.Helper()
	for word := range strings.SplitSeq(text, ", ") {
		word, times, several := strings.Cut(strings.TrimSpace(word), " ×")
		n := 1
		if several {
			var err error
			if n, err = strconv.Atoi(times); err != nil {
				t.Fatalf("section %s: %q: %v", section, text, err)
			}
		}
		into[section+" "+word] += n
	}
}

// Every requirement of the standards is in docs/conformance.md once, with a test that exists or a reason why there is none.
func TestConformance(t *testing.T) {
	b, err := os.ReadFile("docs/conformance.md")
	if err != nil {
		t.Fatal(err)
	}
	tests := tests(t)
	checks := make(map[string]bool)
	for _, c := range mdnscheck.Checks() {
		if checks[c.Name] {
			t.Errorf("two checks are called %q", c.Name)
		}
		checks[c.Name] = true
	}
	testName := regexp.MustCompile(`^((?:[a-z]+/)*[a-z]+\.(?:Test|Fuzz)\w+)(?:/(.+))?$`)
	// reference reports whether a code span names a test, and complains if that does not exist.
	reference := func(row, span string) bool {
		if name, ok := strings.CutPrefix(span, "mdnscheck: "); ok {
			if !checks[name] {
				t.Errorf("%s: there is no check %q", row, name)
			}
			return true
		}
		m := testName.FindStringSubmatch(span)
		if m == nil {
			return false
		}
		names, ok := tests[m[1]]
		switch {
		case !ok:
			t.Errorf("%s: there is no test %s", row, m[1])
		case m[2] != "" && !names[m[2]]:
			t.Errorf("%s: %s has no subtest %q", row, m[1], m[2])
		}
		return true
	}
	found := make(map[string]bool)
	for _, section := range strings.Split(string(b), "\n## ")[1:] {
		title, text, _ := strings.Cut(section, "\n")
		rfc, _, _ := strings.Cut(title, ":")
		listed, ok := demands[rfc]
		if !ok {
			for _, span := range codeSpan.FindAllString(text, -1) {
				reference(title, strings.Trim(span, "`"))
			}
			continue
		}
		found[rfc] = true
		want, got, seen := make(map[string]int), make(map[string]int), make(map[string]bool)
		for item := range strings.SplitSeq(listed, ";") {
			number, words, _ := strings.Cut(strings.TrimSpace(item), ": ")
			levels(t, want, number, words)
		}
		for line := range strings.Lines(text) {
			cells := strings.Split(strings.Trim(line, "| \n"), " | ")
			if !strings.HasPrefix(line, "| ") || cells[0] == "§" || cells[0] == "---" {
				continue
			}
			row := fmt.Sprintf("%s, %s", rfc, strings.Join(cells[:min(3, len(cells))], " "))
			if len(cells) != 4 || cells[2] == "" {
				t.Errorf("%s: %d cells, want section, level, requirement, and what shows it", row, len(cells))
				continue
			}
			if key := cells[0] + " " + cells[2]; seen[key] {
				t.Errorf("%s is there twice", row)
			} else {
				seen[key] = true
			}
			levels(t, got, cells[0], cells[1])
			named := false
			for _, span := range codeSpan.FindAllString(cells[3], -1) {
				named = reference(row, strings.Trim(span, "`")) || named
			}
			if !named && len(cells[3]) < len("not used") {
				t.Errorf("%s: neither a test nor a reason", row)
			}
		}
		for word, n := range want {
			if got[word] != n {
				t.Errorf("%s, section %s: %d in docs/conformance.md, %d in the RFC", rfc, word, got[word], n)
			}
		}
		for word := range got {
			if want[word] == 0 {
				t.Errorf("%s, section %s: not in the RFC", rfc, word)
			}
		}
	}
	for rfc := range demands {
		if found[rfc] {
			continue
		}
		t.Errorf("docs/conformance.md says nothing about %s", rfc)
	}
}
