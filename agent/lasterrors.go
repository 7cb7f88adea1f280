package agent

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"liqo.io/agent/agent/control"
	"liqo.io/agent/peer/text"
)

const (
	// maxLastErrors is how many of the newest warnings and errors of the log are kept
	// for status.
	maxLastErrors = 8
	// maxLastError bounds the text of each, in bytes.
	maxLastError = 400
)

// lastErrors keeps the newest warnings and errors that were logged. What is logged
// again is counted. It is safe for concurrent use.
type lastErrors struct {
	mu  sync.Mutex
	all []control.LogEntry // the oldest first
}

// recording returns a logger that also keeps its warnings and errors in l.
func (l *lastErrors) recording(logger *slog.Logger) *slog.Logger {
	return slog.New(&keeping{Handler: logger.Handler(), kept: l})
}

// list returns what is kept, the newest first.
func (l *lastErrors) list() []control.LogEntry {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := slices.Clone(l.all)
	slices.Reverse(out)
	return out
}

func (l *lastErrors) add(at time.Time, level slog.Level, said string) {
	said = text.Clip(strings.ToValidUTF8(said, ""), maxLastError)
	entry := control.LogEntry{At: at.UTC().Truncate(time.Second), Level: strings.ToLower(level.String()), Text: said, Count: 1}
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := slices.IndexFunc(l.all, func(e control.LogEntry) bool { return e.Text == said && e.Level == entry.Level }); i >= 0 {
		entry.Count += l.all[i].Count
		l.all = slices.Delete(l.all, i, i+1)
	}
	if len(l.all) >= maxLastErrors {
		l.all = slices.Delete(l.all, 0, 1)
	}
	l.all = append(l.all, entry)
}

// keeping is a handler that keeps what it passes on.
type keeping struct {
	slog.Handler
	kept *lastErrors
}

// Enabled implements slog.Handler: warnings and errors are kept even where they are
// not logged.
func (k *keeping) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelWarn || k.Handler.Enabled(ctx, level)
}

// Handle implements slog.Handler.
func (k *keeping) Handle(ctx context.Context, r slog.Record) error {
	if r.Level >= slog.LevelWarn {
		text := r.Message
		r.Attrs(func(a slog.Attr) bool {
			if a.Key == "error" {
				text += ": " + a.Value.String()
			}
			return true
		})
		k.kept.add(r.Time, r.Level, text)
	}
	if !k.Handler.Enabled(ctx, r.Level) {
		return nil
	}
	return k.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (k *keeping) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &keeping{Handler: k.Handler.WithAttrs(attrs), kept: k.kept}
}

// WithGroup implements slog.Handler.
func (k *keeping) WithGroup(name string) slog.Handler {
	return &keeping{Handler: k.Handler.WithGroup(name), kept: k.kept}
}
