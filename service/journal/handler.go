package journal

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"syscall"
)

// Connected reports whether f is the stream that systemd connected to the journal: JOURNAL_STREAM in environ
// ("NAME=value" each) has its device and inode (systemd.exec(5)). A stream that was redirected since is not.
func Connected(environ []string, f *os.File) bool {
	stream := ""
	for _, pair := range environ {
		if value, ok := strings.CutPrefix(pair, "JOURNAL_STREAM="); ok {
			stream = value
		}
	}
	if stream == "" || f == nil {
		return false
	}
	info, err := f.Stat()
	if err != nil {
		return false
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && stream == fmt.Sprintf("%d:%d", st.Dev, st.Ino)
}

// NewHandler returns a handler that writes each record as one line to w, behind the prefix that stands for its level,
// with one call of Write. make builds the handler that formats the records; it must write each with one call.
func NewHandler(w io.Writer, make func(io.Writer) slog.Handler) slog.Handler {
	line := &line{to: w}
	return &handler{line: line, inner: make(line)}
}

// handler formats with inner, which writes to line.
type handler struct {
	line  *line
	inner slog.Handler
}

// line is the one record that is being written, shared by all handlers that write to the same place.
type line struct {
	to io.Writer

	mu     sync.Mutex
	prefix string
	buf    bytes.Buffer
}

// Write implements io.Writer. The lock is held by Handle.
func (l *line) Write(p []byte) (int, error) {
	l.buf.Reset()
	l.buf.WriteString(l.prefix)
	l.buf.Write(p)
	if _, err := l.to.Write(l.buf.Bytes()); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Enabled implements slog.Handler.
func (h *handler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.inner.Enabled(ctx, level)
}

// Handle implements slog.Handler.
func (h *handler) Handle(ctx context.Context, r slog.Record) error {
	h.line.mu.Lock()
	defer h.line.mu.Unlock()
	h.line.prefix = Prefix(r.Level)
	return h.inner.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &handler{line: h.line, inner: h.inner.WithAttrs(attrs)}
}

// WithGroup implements slog.Handler.
func (h *handler) WithGroup(name string) slog.Handler {
	return &handler{line: h.line, inner: h.inner.WithGroup(name)}
}

// Prefix is what stands for a level at the beginning of a line (sd-daemon(3), syslog(3)): errors are <3>,
// warnings <4>, information is <6>, everything below is <7>.
func Prefix(level slog.Level) string {
	switch {
	case level >= slog.LevelError:
		return "<3>"
	case level >= slog.LevelWarn:
		return "<4>"
	case level >= slog.LevelInfo:
		return "<6>"
	}
	return "<7>"
}
