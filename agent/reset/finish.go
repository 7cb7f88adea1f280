package reset

import (
	"context"
	"fmt"
	"log/slog"

	"liqo.io/agent/agent/config"
	"liqo.io/agent/agent/control"
	"liqo.io/agent/agent/statedir"
)

// Outcome is what became of a reset when the state is about to be opened.
type Outcome int

// The outcomes.
const (
	// None: there was nothing to do; a reset that still has peers to tell is a session's.
	None Outcome = iota
	// Fresh: the agent goes on as a new one.
	Fresh
	// Stop: the agent is not to go on.
	Stop
)

// Finish carries out a reset whose peers were told, before the state is opened. It can
// be cut off and called again.
func Finish(ctx context.Context, cfg config.Config, progress *Progress, logger *slog.Logger) (Outcome, error) {
	dir := cfg.State.Dir
	r, found, err := statedir.PendingReset(dir)
	if err != nil {
		// The state itself may be whole, and says so if not.
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
		return Stop, nil // the next start goes on
	}
	left, err := statedir.Clear(dir, r)
	if err != nil {
		return None, fmt.Errorf("reset the state in %s: %w; it goes on with the next start", dir, err)
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
