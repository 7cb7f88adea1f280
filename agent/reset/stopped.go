package reset

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/google/uuid"

	"liqo.io/agent/agent/config"
	"liqo.io/agent/agent/control"
	"liqo.io/agent/agent/statedir"
	"liqo.io/agent/peer"
	"liqo.io/agent/state"
)

// PlanStopped is the PlanReset of a Resetter for when no agent runs.
func PlanStopped(ctx context.Context, cfg config.Config, opts control.ResetOptions) control.ResetPlan {
	var plan control.ResetPlan
	report, err := statedir.Check(ctx, cfg.State.Dir)
	if err == nil {
		plan.ClusterID, plan.Fingerprint = report.Database.ClusterID, report.Key.Fingerprint
	}
	plan.ClusterName = cfg.Cluster.NameOf(peer.ClusterID(plan.ClusterID))
	inventory(ctx, cfg, opts, &plan)
	return control.Filled(plan)
}

// Stopped resets an agent that does not run: its objects in the API server, if that
// answers, its part of this machine's network, and its state directory. It does not notify peers. It may be interrupted and
// called again; an agent that starts meanwhile continues it. The error wraps
// state.ErrLocked if an agent runs.
func Stopped(ctx context.Context, cfg config.Config, opts control.ResetOptions, by string) (control.Reset, error) {
	if err := opts.Check(); err != nil {
		return control.Reset{}, err
	}
	dir := cfg.State.Dir
	if opts.Identity && cfg.Cluster.ID != "" {
		return control.Reset{}, fixedID(cfg.Cluster.ID)
	}
	release, err := state.Hold(ctx, filepath.Join(dir, statedir.Database))
	if err == nil {
		err = release()
	}
	if err == nil {
		err = statedir.Resume(ctx, dir)
	}
	if err != nil {
		return control.Reset{}, err
	}
	r, pending, err := statedir.PendingReset(dir)
	if err != nil {
		return control.Reset{}, err
	}
	var unknown string
	if !pending {
		r = statedir.Reset{Identity: opts.Identity, By: by, At: time.Now().UTC().Truncate(time.Second)}
		if r.ID, err = idAfterReset(ctx, dir, opts.Identity); err != nil {
			unknown = fmt.Sprintf("the cluster ID cannot be read, so the agent uses that of the API server at the next start: %v", err)
		}
	}
	r.Parted = true
	if err := ctx.Err(); err != nil { // nothing has begun, and the ID may be unknown only for that
		return control.Reset{}, err
	}
	if err := statedir.BeginReset(dir, r); err != nil {
		return control.Reset{}, fmt.Errorf("begin the reset: %w", err)
	}
	view := viewOf(r, control.ResetClearing)
	if unknown != "" {
		view.Failed = append(view.Failed, unknown)
	}
	clearObjects(ctx, cfg, &view)
	if err := ctx.Err(); err != nil {
		return view, err
	}
	clearNetwork(&view)
	left, err := statedir.Clear(ctx, dir, r)
	if err != nil {
		return view, err
	}
	noteLeft(&view, left)
	view.Phase = control.ResetDone
	return control.Filled(view), nil
}

// idAfterReset is this cluster's ID after a reset, "" when there is none yet.
func idAfterReset(ctx context.Context, dir string, fresh bool) (peer.ClusterID, error) {
	if fresh {
		return peer.ClusterID(uuid.NewString()), nil
	}
	found, err := state.Examine(ctx, filepath.Join(dir, statedir.Database))
	if errors.Is(err, state.ErrNoDatabase) {
		id, _, err := statedir.Claim(dir) // of a reset before it
		return id, err
	}
	return found.ClusterID, err
}

// Pending reports whether a reset was begun in a state directory that has not
// ended.
func Pending(dir string) (bool, error) {
	_, found, err := statedir.PendingReset(dir)
	return found, err
}
