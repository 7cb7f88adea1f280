//go:build linux

package main

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"slices"
	"strings"
	"time"
)

// The measures of the picture, in pixels, and its pace.
const (
	fontSize   = 12
	charWidth  = 7.2
	lineHeight = 16
	margin     = 12
	titleBar   = 30

	// What is printed at once stays for a moment, and each of its lines for as long as
	// it takes to glance at it.
	perBurst = 400 * time.Millisecond
	perLine  = 140 * time.Millisecond
	// atTheEnd is how long the last screen stays, until everything begins again.
	atTheEnd = 4 * time.Second
)

// colours are those of the terminal: on dark ground, since the picture brings its
// own into light pages as well as dark ones.
var colours = map[int]string{
	30: "#484f58", 31: "#ff7b72", 32: "#3fb950", 33: "#d29922", 34: "#58a6ff", 35: "#bc8cff", 36: "#39c5cf", 37: "#b1bac4",
	90: "#6e7681", 91: "#ffa198", 92: "#56d364", 93: "#e3b341", 94: "#79c0ff", 95: "#d2a8ff", 96: "#56d4dd", 97: "#f0f6fc",
}

// frame is a moment at which the screen changed: how many lines there were.
type frame struct {
	at     time.Duration
	height int
}

// pace returns the text, and when which part of it is shown. It waits where the
// recording does, and otherwise for as long as reading takes.
func pace(c cast) (*screen, []frame, time.Duration) {
	s := newScreen(c.Width)
	var frames []frame
	var now, before time.Duration
	for _, e := range c.Events {
		height := s.height()
		s.print(e.Data)
		if s.height() == height {
			continue
		}
		// What is new stays for as long as it takes to read it; what was there before
		// stayed at least as long as the recording waited here.
		if len(frames) > 0 {
			now = max(now, frames[len(frames)-1].at+e.At-before)
		}
		before = e.At
		frames = append(frames, frame{now, s.height()})
		now += perBurst + time.Duration(s.height()-height)*perLine
	}
	return s, frames, now + atTheEnd
}

// draw returns the picture of a recording. Where nothing is animated, it shows the
// screen that begins with the first line that has still in it, else the last one.
func draw(c cast, still string) []byte {
	s, frames, length := pace(c)
	width := int(float64(c.Width)*charWidth) + 2*margin
	inner := c.Height * lineHeight
	height := titleBar + inner + margin
	lines := s.lines[:s.height()]

	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img" aria-labelledby="t d" xml:space="preserve">`+"\n", width, height, width, height)
	fmt.Fprintf(&b, `<title id="t">%s</title>`+"\n", escape(c.Title))
	fmt.Fprintf(&b, `<desc id="d">%s</desc>`+"\n", escape(strings.Join(chapters(lines), "; ")))
	b.WriteString("<style>\n")
	fmt.Fprintf(&b, "text{font:%dpx ui-monospace,SFMono-Regular,Menlo,Consolas,\"DejaVu Sans Mono\",monospace;white-space:pre;fill:#b1bac4}\n", fontSize)
	b.WriteString(".b{font-weight:bold;fill:#f0f6fc}\n")
	for _, n := range used(lines) {
		fmt.Fprintf(&b, ".c%d{fill:%s}\n", n, colours[n])
	}
	fmt.Fprintf(&b, "#s{animation:s %.1fs step-end infinite}\n@keyframes s{\n", length.Seconds())
	for _, f := range frames {
		fmt.Fprintf(&b, "%.3f%%{transform:translateY(%dpx)}\n", 100*f.at.Seconds()/length.Seconds(), scroll(f.height, c.Height))
	}
	b.WriteString("}\n@media (prefers-reduced-motion:reduce){#s{animation:none}}\n</style>\n")
	fmt.Fprintf(&b, `<rect x="0.5" y="0.5" width="%d" height="%d" rx="8" fill="#0d1117" stroke="#30363d"/>`+"\n", width-1, height-1)
	for i, colour := range []string{"#ff5f57", "#febc2e", "#28c840"} {
		fmt.Fprintf(&b, `<circle cx="%d" cy="15" r="5" fill="%s"/>`+"\n", 18+i*18, colour)
	}
	fmt.Fprintf(&b, `<text x="%d" y="19" text-anchor="middle">%s</text>`+"\n", width/2, escape(c.Title))
	fmt.Fprintf(&b, `<clipPath id="c"><rect x="0" y="%d" width="%d" height="%d"/></clipPath>`+"\n", titleBar, width, inner)
	fmt.Fprintf(&b, `<g clip-path="url(#c)"><g id="s" transform="translate(0,%d)">`+"\n", scroll(stillHeight(lines, still, c.Height), c.Height))
	for i, line := range lines {
		writeLine(&b, line, titleBar+i*lineHeight+fontSize)
	}
	b.WriteString("</g></g>\n</svg>\n")
	return b.Bytes()
}

// scroll is how far the text is moved so that the last of so many lines is the last
// one in the window. What was not printed yet is below the window.
func scroll(height, window int) int { return (window - height) * lineHeight }

// stillHeight is how many lines there are on and above the screen that is shown
// where nothing moves.
func stillHeight(lines [][]cell, still string, window int) int {
	if still != "" {
		for i, line := range lines {
			if strings.Contains(plain(line), still) {
				return min(i+window, len(lines))
			}
		}
	}
	return len(lines)
}

// chapters are the headings of what was printed: bold lines that begin as those of
// the demo do.
func chapters(lines [][]cell) []string {
	var out []string
	for _, line := range lines {
		if title, ok := strings.CutPrefix(plain(line), "== "); ok && line[0].style.bold {
			out = append(out, title)
		}
	}
	return out
}

// used are the colours in lines, in order.
func used(lines [][]cell) []int {
	var out []int
	for _, line := range lines {
		for _, c := range line {
			if c.style.colour != 0 && !slices.Contains(out, c.style.colour) {
				out = append(out, c.style.colour)
			}
		}
	}
	slices.Sort(out)
	return out
}

func plain(line []cell) string {
	var b strings.Builder
	for _, c := range line {
		b.WriteRune(c.r)
	}
	return strings.TrimRight(b.String(), " ")
}

// writeLine writes one line of text, with its length: fonts differ in how wide
// their characters are, and columns have to stay columns.
func writeLine(b *bytes.Buffer, line []cell, y int) {
	text := plain(line)
	if text == "" {
		return
	}
	line = line[:len([]rune(text))]
	fmt.Fprintf(b, `<text x="%d" y="%d" textLength="%.1f"`, margin, y, float64(len(line))*charWidth)
	if first := line[0].style; first != (style{}) && !slices.ContainsFunc(line, func(c cell) bool { return c.style != first }) {
		fmt.Fprintf(b, ` class="%s">%s</text>`+"\n", first.class(), escape(text))
		return
	}
	b.WriteByte('>')
	for len(line) > 0 {
		n := slices.IndexFunc(line, func(c cell) bool { return c.style != line[0].style })
		if n < 0 {
			n = len(line)
		}
		run := make([]rune, n)
		for i := range run {
			run[i] = line[i].r
		}
		if line[0].style == (style{}) {
			b.WriteString(escape(string(run)))
		} else {
			fmt.Fprintf(b, `<tspan class="%s">%s</tspan>`, line[0].style.class(), escape(string(run)))
		}
		line = line[n:]
	}
	b.WriteString("</text>\n")
}

func (s style) class() string {
	var out []string
	if s.bold {
		out = append(out, "b")
	}
	if s.colour != 0 {
		out = append(out, fmt.Sprintf("c%d", s.colour))
	}
	return strings.Join(out, " ")
}

func escape(text string) string {
	var b bytes.Buffer
	// A buffer takes everything.
	_ = xml.EscapeText(&b, []byte(text))
	return strings.NewReplacer("&#34;", `"`, "&#39;", "'").Replace(b.String())
}
