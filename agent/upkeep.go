package agent

import (
	"context"
	"log/slog"
	"time"

	"liqo.io/agent/agent/config"
	"liqo.io/agent/health"
	"liqo.io/agent/kube/work"
)

const (
	// pruneInterval is how often history older than state.history is deleted.
	pruneInterval = 24 * time.Hour
	// againInterval is the pause after an attempt at which nothing could be deleted.
	againInterval = time.Hour
)

// database is what upkeep does with a state.Store.
type database interface {
	Check(ctx context.Context) error
	Prune(ctx context.Context, olderThan time.Duration) (int, error)
	Shrink(ctx context.Context) error
}

// upkeep looks after the database.
type upkeep struct {
	store    database
	settings func() config.Config
	seen     func(ctx context.Context) error // stores when each peer was last seen
	clock    func() error                    // why the clock cannot be believed, nil if it can
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
	wait := u.prune(ctx)
	if err := settle(); err != nil {
		u.logger.Debug("cannot give back the memory of the start", "error", err)
	}
	for work.Sleep(ctx, wait) == nil {
		wait = u.prune(ctx)
	}
	return nil
}

// prune deletes old history, gives back the memory that this and the check took, and returns when to do it again. By a
// clock that is ahead everything is old, so nothing is deleted while the clock cannot be believed: the bounds on rows hold
// without it. Neither is while it is not stored who was seen lately: a peer that has been there all the time, or came back
// with this start, would be forgotten.
func (u upkeep) prune(ctx context.Context) time.Duration {
	defer u.shrink(ctx)
	if err := u.clock(); err != nil {
		u.logger.Debug("old history is kept while the clock of this box cannot be believed", "why", err, "again", againInterval)
		return againInterval
	}
	if err := u.seen(ctx); err != nil {
		u.logger.Debug("old history is kept while it cannot be stored when peers were last seen", "error", err, "again", againInterval)
		return againInterval
	}
	if _, err := u.store.Prune(ctx, u.settings().State.History); err != nil && ctx.Err() == nil {
		u.logger.Warn("cannot delete old history", "error", err)
	}
	return pruneInterval
}

func (u upkeep) shrink(ctx context.Context) {
	if err := u.store.Shrink(ctx); err != nil && ctx.Err() == nil {
		u.logger.Debug("cannot give back the memory of the database", "error", err)
	}
}
