package text

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

func TestClip(t *testing.T) {
	for _, tc := range []struct {
		in    string
		limit int
		want  string
	}{
		{"", 0, ""},
		{"abc", 3, "abc"},
		{"abcdef", 5, "ab..."},
		{"abcdef", 3, "..."},
		{"abcdef", 2, "ab"},
		{"abcdef", 0, ""},
		{"ääää", 8, "ääää"},
		{"ääääß", 8, "ää..."},
		{"ääääß", 2, "ä"},
		{"a\x80\x80\x80\x80\x80\x80\x80\x80", 8, "a\x80..."},
	} {
		if got := Clip(tc.in, tc.limit); got != tc.want {
			t.Errorf("Clip(%q, %d) = %q, want %q", tc.in, tc.limit, got, tc.want)
		}
	}
	if got := Excerpt(strings.Repeat("x", 1000)); len(got) != maxExcerpt || !strings.HasSuffix(got, mark) {
		t.Errorf("%q", got)
	}
}

func TestLine(t *testing.T) {
	for in, want := range map[string]string{
		"":                                "",
		"It is so.":                       "It is so.",
		"Halle 3 / Süd":                   "Halle 3 / Süd",
		" a\n\tb\x1b[31m\u202e \xff":      "a b [31m",
		"a\u00a0b\u2028c\x00d\ufffde":     "a b c d\ufffde",
		"\r\n":                            "",
		"a  b":                            "a b",
		strings.Repeat("ä", 40):           strings.Repeat("ä", 23) + mark,
		"\n" + strings.Repeat("x", 1<<10): strings.Repeat("x", 47) + mark,
	} {
		if got := Line(in, 50); got != want {
			t.Errorf("Line(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestLines(t *testing.T) {
	for in, want := range map[string]string{
		"a\r\n\tb  c\n":         "a\n\tb  c\n",
		"\x1b[2Jgone\u202e\xff": "[2Jgone",
		strings.Repeat("ä", 40): strings.Repeat("ä", 23) + mark,
	} {
		if got := Lines(in, 50); got != want {
			t.Errorf("Lines(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestList(t *testing.T) {
	items := []string{"a", "b", "c", "d"}
	for most, want := range map[int]string{4: "a, b, c, d", 9: "a, b, c, d", 3: "a, b, c, and 1 more", 1: "a, and 3 more"} {
		if got := List(items, most, ", "); got != want {
			t.Errorf("%d: %q, want %q", most, got, want)
		}
	}
	if got := List(items, 2, "; "); got != "a; b; and 2 more" {
		t.Errorf("%q", got)
	}
	if got := List(nil, 2, ", "); got != "" {
		t.Errorf("%q", got)
	}
}

// FuzzText holds that whatever comes in, what goes out is bounded and printable, and
// that doing it twice changes nothing.
func FuzzText(f *testing.F) {
	f.Add("It is so.", 10)
	f.Add("\x00\xff\u2028"+strings.Repeat("ä", 400), 500)
	f.Add(" a\x80\x80 b", 3)
	f.Fuzz(func(t *testing.T, s string, limit int) {
		limit = min(max(limit, 0), 1<<16)
		clipped := Clip(s, limit)
		if len(clipped) > limit || utf8.ValidString(s) && !utf8.ValidString(clipped) || Clip(clipped, limit) != clipped {
			t.Errorf("Clip(%q, %d) = %q", s, limit, clipped)
		}
		line := Line(s, limit)
		if len(line) > limit || !Printable(line) || Line(line, limit) != line {
			t.Errorf("Line(%q, %d) = %q, then %q", s, limit, line, Line(line, limit))
		}
		lines := Lines(s, limit)
		if len(lines) > limit || !Printable(strings.NewReplacer("\n", "", "\t", "").Replace(lines)) || Lines(lines, limit) != lines {
			t.Errorf("Lines(%q, %d) = %q, then %q", s, limit, lines, Lines(lines, limit))
		}
	})
}

func TestDuration(t *testing.T) {
	for want, d := range map[string]time.Duration{
		"0s": 0, "90ms": 90 * time.Millisecond, "30s": 30 * time.Second, "15m": 15 * time.Minute, "1m30s": 90 * time.Second, "10m": 10 * time.Minute, "36h": 36 * time.Hour,
		"1h5m": 65 * time.Minute, "1h0m5s": time.Hour + 5*time.Second, "-2h": -2 * time.Hour,
	} {
		if got := Duration(d); got != want {
			t.Errorf("Duration(%d) = %q, want %q", d, got, want)
		}
	}
}
