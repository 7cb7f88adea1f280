package conn

import (
	"context"
	"log/slog"

	"k8s.io/klog/v2"
)

// BridgeKlog sends what client-go logs through klog to logger, all of it at
// debug level: client-go reports each failed attempt, while the Controller
// reports what becomes of them. Its verbose output, down to the bodies of
// requests, is left out at any level. klog's logger belongs to the whole process: call
// this once, before any goroutine uses client-go.
func BridgeKlog(logger *slog.Logger) {
	klog.SetSlogLogger(slog.New(quiet{logger.Handler()}).With("component", "client-go"))
}

// quiet is a slog.Handler that hands every record on at debug level.
type quiet struct{ next slog.Handler }

func (q quiet) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelInfo && q.next.Enabled(ctx, slog.LevelDebug)
}

func (q quiet) Handle(ctx context.Context, r slog.Record) error {
	// klog hands errors over without asking whether they are wanted.
	if !q.Enabled(ctx, r.Level) {
		return nil
	}
	r.Level = slog.LevelDebug
	return q.next.Handle(ctx, r)
}

func (q quiet) WithAttrs(attrs []slog.Attr) slog.Handler { return quiet{q.next.WithAttrs(attrs)} }

func (q quiet) WithGroup(name string) slog.Handler { return quiet{q.next.WithGroup(name)} }
