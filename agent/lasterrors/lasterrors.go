package lasterrors

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
	// maxEntries bounds the warnings and errors that are kept.
	maxEntries = 8
	// maxText bounds the text of each, in bytes.
	maxText = 400
)

// Log keeps the newest warnings and errors that were logged, and counts repeated ones.
// The zero value is empty. It is safe for concurrent use.
type Log struct {
	mu  sync.Mutex
	all []control.LogEntry // the oldest first
}

// Recording returns a logger that also keeps its warnings and errors in l.
func (l *Log) Recording(logger *slog.Logger) *slog.Logger {
	return slog.New(&handler{Handler: logger.Handler(), log: l})
}

// List returns the entries, the newest first.
func (l *Log) List() []control.LogEntry {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := slices.Clone(l.all)
	slices.Reverse(out)
	return out
}

func (l *Log) add(at time.Time, level slog.Level, message string) {
	message = text.Clip(strings.ToValidUTF8(message, ""), maxText)
	entry := control.LogEntry{At: at.UTC().Truncate(time.Second), Level: strings.ToLower(level.String()), Text: message, Count: 1}
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := slices.IndexFunc(l.all, func(e control.LogEntry) bool { return e.Text == message && e.Level == entry.Level }); i >= 0 {
		entry.Count += l.all[i].Count
		l.all = slices.Delete(l.all, i, i+1)
	}
	if len(l.all) >= maxEntries {
		l.all = slices.Delete(l.all, 0, 1)
	}
	l.all = append(l.all, entry)
}

// handler adds the records that it passes on to a Log.
type handler struct {
	slog.Handler
	log *Log
}

// Enabled implements slog.Handler: warnings and errors are kept even where they are
// not logged.
func (h *handler) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelWarn || h.Handler.Enabled(ctx, level)
}

// Handle implements slog.Handler.
func (h *handler) Handle(ctx context.Context, r slog.Record) error {
	if r.Level >= slog.LevelWarn {
		message := r.Message
		r.Attrs(func(a slog.Attr) bool {
			if a.Key == "error" {
				message += ": " + a.Value.String()
			}
			return true
		})
		h.log.add(r.Time, r.Level, message)
	}
	if !h.Handler.Enabled(ctx, r.Level) {
		return nil
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &handler{Handler: h.Handler.WithAttrs(attrs), log: h.log}
}

// WithGroup implements slog.Handler.
func (h *handler) WithGroup(name string) slog.Handler {
	return &handler{Handler: h.Handler.WithGroup(name), log: h.log}
}
