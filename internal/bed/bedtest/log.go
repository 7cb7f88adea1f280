package bedtest

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
)

// Log keeps what loggers write, and can be read meanwhile. The zero value is an empty one.
type Log struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Logger returns a logger that writes everything to l, debug messages included.
func (l *Log) Logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// Write implements io.Writer.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

// String returns all of it.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// Lines returns the lines of at least that level, and those without a level.
func (l *Log) Lines(least slog.Level) []string {
	var out []string
	for line := range strings.Lines(l.String()) {
		line = strings.TrimSuffix(line, "\n")
		var level slog.Level
		_, rest, _ := strings.Cut(line, "level=")
		name, _, _ := strings.Cut(rest, " ")
		if level.UnmarshalText([]byte(name)) != nil || level >= least {
			out = append(out, line)
		}
	}
	return out
}
