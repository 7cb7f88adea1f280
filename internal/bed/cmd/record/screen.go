//go:build linux

package main

import "strings"

// style is how a character looks.
type style struct {
	bold   bool
	colour int // 30 to 37 and 90 to 97 as in ECMA-48, 0 is the usual one
}

// cell is one character on the screen.
type cell struct {
	r     rune
	style style
}

// screen is a terminal with everything that scrolled off its top. It knows what
// programs use that print lines: line feed, carriage return, backspace, tab, and of
// the control sequences of ECMA-48 the style (SGR) and erasing to the end of the
// line (EL). It skips all others.
type screen struct {
	width    int
	lines    [][]cell
	row, col int
	style    style
	pending  string // the beginning of a control sequence
}

func newScreen(width int) *screen { return &screen{width: width, lines: make([][]cell, 1)} }

// print has the terminal read text. Sequences may be parted anywhere.
func (s *screen) print(text string) {
	text = s.pending + text
	s.pending = ""
	for i, r := range text {
		switch {
		case len(s.pending) > 0:
			s.pending += string(r)
			s.control()
		case r == 0x1b:
			s.pending = text[i : i+1]
		case r == '\n':
			s.newline()
		case r == '\r':
			s.col = 0
		case r == '\b':
			s.col = max(0, s.col-1)
		case r == '\t':
			s.col = min((s.col/8+1)*8, s.width-1)
		case r >= ' ' && r != 0x7f:
			s.put(r)
		}
	}
}

func (s *screen) newline() {
	s.row++
	if s.row == len(s.lines) {
		s.lines = append(s.lines, nil)
	}
}

func (s *screen) put(r rune) {
	if s.col >= s.width {
		s.newline()
		s.col = 0
	}
	line := s.lines[s.row]
	for len(line) <= s.col {
		line = append(line, cell{r: ' '})
	}
	line[s.col] = cell{r, s.style}
	s.lines[s.row] = line
	s.col++
}

// maxSequence bounds a control sequence, in bytes; what is longer is none.
const maxSequence = 64

// control does what pending says, once it is complete.
func (s *screen) control() {
	p := s.pending
	last := p[len(p)-1]
	switch {
	case len(p) > maxSequence:
		s.pending = ""
	case len(p) == 2 && last != '[':
		s.pending = "" // a sequence of two characters
	case len(p) > 2 && last >= 0x40 && last <= 0x7e:
		s.pending = ""
		switch parameters := p[2 : len(p)-1]; last {
		case 'm':
			s.restyle(parameters)
		case 'K':
			if line := s.lines[s.row]; (parameters == "" || parameters == "0") && s.col < len(line) {
				s.lines[s.row] = line[:s.col]
			}
		}
	}
}

func (s *screen) restyle(parameters string) {
	for _, p := range strings.Split(parameters, ";") {
		n := 0
		for _, digit := range p {
			if digit < '0' || digit > '9' || n > 1000 {
				return
			}
			n = n*10 + int(digit-'0')
		}
		switch {
		case n == 0:
			s.style = style{}
		case n == 1:
			s.style.bold = true
		case n == 22:
			s.style.bold = false
		case n >= 30 && n <= 37, n >= 90 && n <= 97:
			s.style.colour = n
		case n == 39:
			s.style.colour = 0
		case n == 38, n == 48:
			return // colours of a larger palette: what follows are no styles
		}
	}
}

// height is the number of lines that something was printed on.
func (s *screen) height() int {
	n := len(s.lines)
	for n > 0 && len(s.lines[n-1]) == 0 {
		n--
	}
	return n
}
