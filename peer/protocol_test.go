package peer

import "testing"

func TestParseProtocol(t *testing.T) {
	for text, want := range map[string]Protocol{
		"":                      {1, 1},
		"1":                     {1, 1},
		"2":                     {2, 2},
		"1-3":                   {1, 3},
		"3-3":                   {3, 3},
		"9999":                  {9999, 9999},
		"0":                     {},
		"-1":                    {},
		"1-":                    {},
		"3-1":                   {},
		"01":                    {},
		"+1":                    {},
		"1 - 2":                 {},
		"1-2-3":                 {},
		"10000":                 {},
		"one":                   {},
		"1.0":                   {},
		"１":                     {},
		"999999999999999999999": {},
	} {
		got, err := ParseProtocol(text)
		if got != want || (err == nil) != (want != Protocol{}) {
			t.Errorf("%q: %v, %v; want %v", text, got, err, want)
		}
		if err == nil {
			if again, err := ParseProtocol(got.String()); again != got || err != nil {
				t.Errorf("%q: %q is read as %v: %v", text, got, again, err)
			}
		}
	}
}

func TestCommonProtocol(t *testing.T) {
	for _, c := range []struct {
		ours, theirs string
		want         int // 0: none
	}{
		{"1", "1", 1},
		{"1", "1-2", 1},
		{"1-2", "1-2", 2},
		{"1-3", "2-5", 3},
		{"1", "2", 0},
		{"1-2", "3-4", 0},
		{"2-3", "3-4", 3},
	} {
		ours, err := ParseProtocol(c.ours)
		if err != nil {
			t.Fatal(err)
		}
		theirs, err := ParseProtocol(c.theirs)
		if err != nil {
			t.Fatal(err)
		}
		for _, pair := range [][2]Protocol{{ours, theirs}, {theirs, ours}} {
			got, ok := pair[0].Common(pair[1])
			if ok != (c.want != 0) || ok && got != c.want {
				t.Errorf("%v and %v: %d %v, want %d", pair[0], pair[1], got, ok, c.want)
			}
		}
	}
}

// TestSpoken holds the build to a range that makes sense, whatever the linker said.
func TestSpoken(t *testing.T) {
	if p, err := ParseProtocol(spoken); err != nil || p != Spoken() {
		t.Errorf("this build speaks %q: %v", spoken, err)
	}
}

func FuzzParseProtocol(f *testing.F) {
	f.Add("1")
	f.Add("1-3")
	f.Fuzz(func(t *testing.T, text string) {
		p, err := ParseProtocol(text)
		if err == nil && (p.Oldest < 1 || p.Newest < p.Oldest || p.Newest > maxProtocol) {
			t.Errorf("%q is %v", text, p)
		}
	})
}
