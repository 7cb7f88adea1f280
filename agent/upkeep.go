package agent

import (
	"context"
	"log/slog"
	"time"

	"liqo.io/agent/agent/config"
	"liqo.io/agent/health"
	"liqo.io/agent/kube/work"
	"liqo.io/agent/state"
)

// pruneInterval is how often history older than state.history is deleted.
const pruneInterval = 24 * time.Hour

// upkeep looks after the database.
type upkeep struct {
	store    *state.Store
	settings func() config.Config
	tracker  *health.Tracker
	logger   *slog.Logger
}

// Run checks the whole database once, and deletes old history once a day, until ctx ends.
func (u upkeep) Run(ctx context.Context) error {
	// At the start, discovery comes first.
	if work.Sleep(ctx, time.Minute) != nil {
		return nil
	}
	if err := u.store.Check(ctx); err != nil && ctx.Err() == nil {
		u.tracker.Report(health.StateDamaged, err)
	}
	u.prune(ctx)
	if err := settle(); err != nil {
		u.logger.Debug("cannot give back the memory of the start", "error", err)
	}
	for work.Sleep(ctx, pruneInterval) == nil {
		u.prune(ctx)
	}
	return nil
}

// prune deletes old history, and gives back the memory that this took.
func (u upkeep) prune(ctx context.Context) {
	if _, err := u.store.Prune(ctx, u.settings().State.History); err != nil && ctx.Err() == nil {
		u.logger.Warn("cannot delete old history", "error", err)
	}
	if err := u.store.Shrink(ctx); err != nil && ctx.Err() == nil {
		u.logger.Debug("cannot give back the memory of the database", "error", err)
	}
}
