package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/google/uuid"

	"liqo.io/agent/agent/config"
	"liqo.io/agent/agent/control"
	"liqo.io/agent/agent/statedir"
	"liqo.io/agent/peer"
	"liqo.io/agent/peering"
	"liqo.io/agent/peering/admission"
	"liqo.io/agent/sharing/vnode"
	"liqo.io/agent/state"
)

// clearConfig is what of a reset concerns the API server.
func clearConfig(cfg config.Config, opts control.ResetOptions) peering.ClearConfig {
	return peering.ClearConfig{
		Kubeconfig: cfg.Cluster.Kubeconfig, Namespace: cfg.Cluster.Namespace, Webhook: admission.WebhookName, Offloading: vnode.OffloadingName,
		All: opts.All, CRDs: opts.CRDs, Identity: opts.Identity,
	}
}

// inventory adds to a plan what is in the API server.
func inventory(ctx context.Context, cfg config.Config, opts control.ResetOptions, plan *control.ResetPlan) {
	ctx, cancel := context.WithTimeout(ctx, planPatience)
	defer cancel()
	found, err := peering.Inventory(ctx, clearConfig(cfg, opts))
	plan.Deletes, plan.Keeps, plan.Unknown = found.Deleted, found.Kept, found.Failed
	if err != nil && !noServer(err) {
		plan.Unknown = append(plan.Unknown, err.Error())
	}
}

// noServer reports whether there is no API server that anything could be deleted in.
func noServer(err error) bool {
	return errors.Is(err, peering.ErrSwitchedOff) || errors.Is(err, peering.ErrNoKubeconfig)
}

// clearObjects takes what the agent made out of the API server.
func clearObjects(ctx context.Context, cfg config.Config, view *control.Reset) {
	ctx, cancel := context.WithTimeout(ctx, clearPatience)
	defer cancel()
	own := control.ResetOptions{Identity: view.Options.Identity}
	done, err := peering.Clear(ctx, clearConfig(cfg, own))
	view.Deleted, view.Kept = done.Deleted, done.Kept
	view.Failed = append(view.Failed, done.Failed...)
	if err != nil && !noServer(err) {
		view.Failed = append(view.Failed, fmt.Sprintf("what the agent made in the API server is still there: %v", err))
	}
}

// ClearPeoples deletes what people wrote, with opts.All, and the custom resource
// definitions, with opts.CRDs, and adds what became of it to a reset that has ended.
// The agent may do neither: kubeconfig is an administrator's, "" for that of K3s if
// it is there.
func ClearPeoples(ctx context.Context, cfg config.Config, kubeconfig string, opts control.ResetOptions, view *control.Reset) {
	ctx, cancel := context.WithTimeout(ctx, clearPatience)
	defer cancel()
	if _, err := os.Stat(peering.K3sKubeconfig); kubeconfig == "" && err == nil && cfg.Cluster.Kubeconfig != peering.KubeconfigNone {
		kubeconfig = peering.K3sKubeconfig
	}
	if kubeconfig != "" {
		cfg.Cluster.Kubeconfig = kubeconfig
	}
	opts.Identity = false // that was the agent's
	done, err := peering.ClearPeoples(ctx, clearConfig(cfg, opts))
	kept := view.Kept
	view.Kept = done.Kept
	for _, what := range kept {
		if !slices.Contains(done.Deleted, what) && !slices.Contains(view.Kept, what) {
			view.Kept = append(view.Kept, what)
		}
	}
	view.Deleted = append(view.Deleted, done.Deleted...)
	for _, what := range done.Failed {
		view.Failed = append(view.Failed, what+"; an administrator may delete it: --kubeconfig FILE")
	}
	if err != nil && !noServer(err) {
		view.Failed = append(view.Failed, fmt.Sprintf("what people wrote is still there: %v", err))
	}
}

// noteLeft adds the files that are not the agent's.
func noteLeft(view *control.Reset, left []string) {
	for _, name := range left {
		view.Kept = append(view.Kept, "file "+name)
	}
}

// PlanResetStopped is control.Backend's PlanReset for when no agent runs.
func PlanResetStopped(ctx context.Context, cfg config.Config, opts control.ResetOptions) control.ResetPlan {
	var plan control.ResetPlan
	report, err := statedir.Check(ctx, cfg.State.Dir)
	if err == nil {
		plan.ClusterID, plan.Fingerprint = report.Database.ClusterID, report.Key.Fingerprint
	}
	plan.ClusterName = clusterName(cfg.Cluster.Name, peer.ClusterID(plan.ClusterID))
	inventory(ctx, cfg, opts, &plan)
	return plan.WithoutNulls()
}

// ResetStopped resets an agent that does not run: what it made in the API server, as
// far as that answers, and its state directory. Peers are told nothing. It can be cut
// off and called again; an agent that starts meanwhile goes on with it. The error
// wraps state.ErrLocked when one runs.
func ResetStopped(ctx context.Context, cfg config.Config, opts control.ResetOptions, by string) (control.Reset, error) {
	if err := opts.Check(); err != nil {
		return control.Reset{}, err
	}
	dir := cfg.State.Dir
	if opts.Identity && cfg.Cluster.ID != "" {
		return control.Reset{}, fixedID(cfg.Cluster.ID)
	}
	release, err := state.Hold(filepath.Join(dir, statedir.Database))
	if err == nil {
		err = release()
	}
	if err == nil {
		err = statedir.Resume(dir)
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
			unknown = fmt.Sprintf("the cluster ID cannot be read, so that the API server's is taken at the next start: %v", err)
		}
	}
	r.Parted = true
	if err := statedir.BeginReset(dir, r); err != nil {
		return control.Reset{}, fmt.Errorf("begin the reset: %w", err)
	}
	view := resetView(r, control.ResetClearing)
	if unknown != "" {
		view.Failed = append(view.Failed, unknown)
	}
	clearObjects(ctx, cfg, &view)
	left, err := statedir.Clear(dir, r)
	if err != nil {
		return view, err
	}
	noteLeft(&view, left)
	view.Phase = control.ResetDone
	return view.WithoutNulls(), nil
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

// ResetPending reports whether a reset was begun in a state directory that has not
// ended.
func ResetPending(dir string) (bool, error) {
	_, found, err := statedir.PendingReset(dir)
	return found, err
}
