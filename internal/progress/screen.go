package main

import (
	"fmt"
	"io"
	"time"
)

const (
	// worthTelling is how long something has to take for plain lines to be written about it.
	worthTelling = 10 * time.Second
	// every is how often a plain line is written.
	every = 30 * time.Second
)

// screen shows the state of a command: in one line that is overwritten if it is a terminal, else in
// plain lines.
type screen struct {
	w        io.Writer
	terminal bool
	shown    bool      // there is a line to be overwritten
	last     time.Time // of the last plain line
}

func newScreen(w io.Writer, terminal bool) *screen {
	return &screen{w: w, terminal: terminal}
}

// status shows the state of what takes a time as a whole.
func (s *screen) status(text string, whole time.Duration) {
	switch {
	case s.terminal:
		// Without wrapping: only a line that stays one can be overwritten.
		fmt.Fprintf(s.w, "\r\x1b[?7l%s\x1b[K\x1b[?7h", text)
		s.shown = true
	case whole > worthTelling && time.Since(s.last) >= every:
		fmt.Fprintln(s.w, text)
		s.last = time.Now()
	}
}

// line writes a line that stays.
func (s *screen) line(text string) {
	s.clear()
	fmt.Fprintln(s.w, text)
}

// clear removes the line of a terminal.
func (s *screen) clear() {
	if s.shown {
		fmt.Fprint(s.w, "\r\x1b[K")
		s.shown = false
	}
}
