//go:build linux

package main

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"liqo.io/agent/internal/generated"
)

// small has what the renderer knows: a heading, a line in several styles, one that is
// longer than the terminal, one that is overwritten, and characters of XML.
const small = `{"version":2,"width":24,"height":4,"title":"make <it>","env":{"TERM":"xterm-256color"}}
[0,"o","\u001b[1m== First\u001b[0m\r\nplain \u001b[32mgreen\u001b[39m \u001b[1;91mloud"]
[0.5,"i","typed"]
[0.5,"o","\u001b[m end\r\n"]
[2.25,"o","a<b & \"c\": twenty-four columns\r\n"]
[9,"o","12%\r99%\u001b[K done\r\n\r\n\u001b[1m== Second\u001b[0m\r\n"]
`

func TestDraw(t *testing.T) {
	c, err := decode([]byte(small))
	if err != nil {
		t.Fatal(err)
	}
	got := draw(c, "")
	generated.File(t, "testdata/small.svg", string(got))
	wellFormed(t, got)
	if still := string(draw(c, "plain green")); !strings.Contains(still, `transform="translate(0,-16)"`) {
		t.Errorf("the still screen is not that which begins with the second line:\n%s", still)
	}
}

func wellFormed(t *testing.T, text []byte) {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(string(text)))
	for {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

func TestScreen(t *testing.T) {
	for in, want := range map[string]string{
		"one\r\ntwo":               "one|two",
		"one\ntwo":                 "one|   two",
		"12345678901":              "1234567890|1",
		"ab\rc":                    "cb",
		"abc\b\bx":                 "axc",
		"a\tb":                     "a       b",
		"a\x1b[2Kb\x1b[?25l\x1b(c": "abc",
		"abc\r\x1b[K":              "",
		"a\x1b[38;5;1mb\x07\x7f":   "ab",
		"\x1b" + "[" + strings.Repeat("1", 100) + "m": strings.Repeat("1", 37) + "m",
	} {
		width := 10
		if strings.HasPrefix(in, "\x1b[1") {
			width = 80
		}
		for cut := range len(in) {
			s := newScreen(width)
			s.print(in[:cut])
			s.print(in[cut:])
			var lines []string
			for _, line := range s.lines[:s.height()] {
				lines = append(lines, plain(line))
			}
			if got := strings.Join(lines, "|"); got != want {
				t.Errorf("%q, parted after %d bytes, shows %q, want %q", in, cut, got, want)
			}
		}
	}
}

func TestStyles(t *testing.T) {
	s := newScreen(20)
	s.print("a\x1b[1mb\x1b[31mc\x1b[22md\x1b[39me\x1b[1;92mf\x1b[0mg\x1b[xm")
	var got []string
	for _, c := range s.lines[0][:7] {
		got = append(got, string(c.r)+":"+c.style.class())
	}
	if diff := cmp.Diff([]string{"a:", "b:b", "c:b c31", "d:c31", "e:", "f:b c92", "g:"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func FuzzScreen(f *testing.F) {
	f.Add("\x1b[1mbold\x1b[0m\r\n\ttab\b\x1b[Kx", uint8(10))
	f.Add("\x1b[\xff\x1b]0;title\x07", uint8(1))
	f.Fuzz(func(t *testing.T, text string, width uint8) {
		c := cast{Width: max(1, int(width)), Height: 3, Title: text, Events: []event{{0, text}, {time.Second, text}}}
		wellFormed(t, draw(c, text))
	})
}

func TestHurry(t *testing.T) {
	c := cast{Events: []event{{time.Second, "a"}, {2 * time.Second, "b"}, {time.Minute, "c"}, {61 * time.Second, "d"}}}
	got := c.hurry(1500 * time.Millisecond).Events
	want := []event{{time.Second, "a"}, {2 * time.Second, "b"}, {3500 * time.Millisecond, "c"}, {4500 * time.Millisecond, "d"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Nothing is shown before the recording has it, in proportion, and everything long
// enough to be read.
func TestPace(t *testing.T) {
	c, err := decode([]byte(small))
	if err != nil {
		t.Fatal(err)
	}
	_, frames, length := pace(c)
	if len(frames) != 3 {
		t.Fatalf("there are %d frames: %v", len(frames), frames)
	}
	for i, f := range frames[1:] {
		lines := f.height - frames[i].height
		if f.at-frames[i].at < perBurst || lines < 1 {
			t.Errorf("frame %d comes %s after the one before, with %d new lines", i+1, f.at-frames[i].at, lines)
		}
	}
	if wait := frames[2].at - frames[1].at; wait != 6750*time.Millisecond {
		t.Errorf("the wait of the recording is %s", wait)
	}
	if length < frames[2].at+atTheEnd {
		t.Errorf("it is %s long", length)
	}
}

func TestDecode(t *testing.T) {
	c, err := decode([]byte(small))
	if err != nil {
		t.Fatal(err)
	}
	again, err := decode(c.encode())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(c, again); diff != "" {
		t.Errorf("(-written +read):\n%s", diff)
	}
	const head = `{"version":2,"width":80,"height":24}` + "\n"
	for text, want := range map[string]string{
		"":                                     "read the header: EOF",
		`{"version":1,"width":80,"height":24}`: "want version 2",
		`{"version":2,"width":0,"height":24}`:  "want version 2 and a size",
		head:                                   "nothing was printed",
		head + `[1,"o"]`:                       "event 1 has 2 fields",
		head + `["1","o","x"]`:                 "not of the form",
		head + `[1,"o"`:                        "read event 1",
	} {
		if _, err := decode([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

func TestLeaks(t *testing.T) {
	c := cast{Events: []event{{0, "at build"}, {1, "er7:/src/agent\r\nfine builder77\r\n"}}}
	for word, want := range map[string]bool{"builder7": true, "/src/agent": true, "builder": false, "src/agen": false, "": false, "/": false} {
		if err := c.leaks([]string{"nothing", word}); (err != nil) != want {
			t.Errorf("%q: %v", word, err)
		}
	}
}

func TestRecord(t *testing.T) {
	var copied strings.Builder
	c, err := record(t.Context(), []string{"sh", "-c", `printf 'gr\303'; stty size; printf '\274n\n'; test -t 0 && echo "$TERM"`}, &copied)
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	for _, e := range c.Events {
		got.WriteString(e.Data)
	}
	if want := "34 120\r\n"; !strings.Contains(got.String(), want) || !strings.Contains(got.String(), "xterm-256color\r\n") {
		t.Errorf("it printed %q, want %q in it", got.String(), want)
	}
	if !strings.HasPrefix(copied.String(), "gr\xc3") {
		t.Errorf("what was copied is %q", copied.String())
	}
	if _, err := record(t.Context(), []string{"sh", "-c", "echo bad; exit 3"}, io.Discard); err == nil || !strings.Contains(err.Error(), "was not recorded: exit status 3") {
		t.Errorf("a program that fails: %v", err)
	}
	if _, err := record(t.Context(), []string{"/no/such/program"}, io.Discard); err == nil {
		t.Error("a program that does not exist was recorded")
	}
}

func TestComplete(t *testing.T) {
	for text, want := range map[string]int{"": 0, "a": 1, "aä": 3, "a\xc3": 1, "a\xe2\x80": 1, "\xf0\x9f\x98\x80": 4, "\xf0\x9f\x98": 0, "a\x80\x80\x80\x80\x80": 6, "\xff": 1} {
		if got := complete([]byte(text)); got != want {
			t.Errorf("complete(%q) = %d, want %d", text, got, want)
		}
	}
}
