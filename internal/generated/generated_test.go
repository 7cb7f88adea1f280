package generated

import "testing"

func TestReplace(t *testing.T) {
	for _, c := range []struct {
		name, text, begin, end, want string
		ok                           bool
	}{
		{"between", "a[old]b", "[", "]", "a[new]b", true},
		{"nothing there yet", "a[]b", "[", "]", "a[new]b", true},
		{"from the beginning", "old|b", "", "|", "new|b", true},
		{"to the end", "a|old", "|", "", "a|new", true},
		{"no begin", "a old]b", "[", "]", "", false},
		{"no end", "a[old b", "[", "]", "", false},
		{"the end first", "a]old[b", "[", "]", "", false},
		{"two places", "a[x]b[y]c", "[", "]", "", false},
		{"two ends", "a[x]b]", "[", "]", "a[new]b]", true},
	} {
		if got, ok := replace(c.text, c.begin, c.end, "new"); got != c.want || ok != c.ok {
			t.Errorf("%s: %q, %v", c.name, got, ok)
		}
	}
}
