package render

import (
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func TestWrap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		words := rapid.SliceOf(rapid.StringMatching(`[a-zäß]{1,30}`)).Draw(t, "words")
		width := rapid.IntRange(1, 40).Draw(t, "width")
		text := strings.Join(words, " ")
		lines := wrap(text, width)
		if got := strings.Join(lines, " "); got != text {
			t.Fatalf("wrap(%q, %d) = %q", text, width, lines)
		}
		for i, line := range lines {
			if n := utf8.RuneCountInString(line); n > width && strings.Contains(line, " ") {
				t.Fatalf("line %q has %d columns, of %d", line, n, width)
			}
			if i > 0 {
				before := lines[i-1] + " " + strings.Fields(line)[0]
				if utf8.RuneCountInString(before) <= width {
					t.Fatalf("%q would have had room for the next word: %q", lines[i-1], lines)
				}
			}
		}
	})
}
