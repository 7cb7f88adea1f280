package reset

import (
	"context"
	"fmt"
	"log/slog"

	"liqo.io/agent/agent/config"
	"liqo.io/agent/agent/control"
	"liqo.io/agent/agent/statedir"
)

// Outcome is the result of Finish.
type Outcome int

// The outcomes.
const (
	// None: there was nothing to do. If peers still have to be notified, the session
	// does that.
	None Outcome = iota
	// Fresh: the agent continues with empty state.
	Fresh
	// Stop: the agent ends.
	Stop
)

// Finish carries out a reset whose peers were notified, before the state is opened. It
// may be interrupted and called again.
func Finish(ctx context.Context, cfg config.Config, progress *Progress, logger *slog.Logger) (Outcome, error) {
	dir := cfg.State.Dir
	r, found, err := statedir.PendingReset(dir)
	if err != nil {
		// The state itself may be intact; opening it reports damage.
		logger.Error("cannot tell whether a reset is in progress", "error", err)
		return None, nil
	}
	if !found || !r.Parted {
		return None, nil
	}
	view := viewOf(r, control.ResetClearing)
	view.Peers, view.Failed = progress.of(view)
	clearObjects(ctx, cfg, &view)
	if ctx.Err() != nil {
		return Stop, nil // the next start continues
	}
	clearNetwork(&view)
	left, err := statedir.Clear(ctx, dir, r)
	if err != nil {
		return None, fmt.Errorf("reset the state in %s: %w; the reset continues when the agent starts again", dir, err)
	}
	noteLeft(&view, left)
	view.Phase = control.ResetDone
	progress.set(view)
	for _, text := range view.Failed {
		logger.Warn("the reset is incomplete", "what", text)
	}
	logger.Info("the agent was reset", "by", r.By, "id", r.ID, "new-identity", r.Identity, "objects-deleted", len(view.Deleted), "stops", r.Stop)
	if r.Stop {
		return Stop, nil
	}
	return Fresh, nil
}
