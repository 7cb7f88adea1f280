package reset

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"liqo.io/agent/agent/config"
	"liqo.io/agent/agent/control"
	"liqo.io/agent/kube/conn"
	"liqo.io/agent/peering/admission"
	"liqo.io/agent/peering/install"
	"liqo.io/agent/sharing/vnode"
)

const (
	// clearPatience bounds the deleting in the API server.
	clearPatience = time.Minute
	// planPatience bounds the listing of it.
	planPatience = 8 * time.Second
)

// uninstallConfig is what of a reset concerns the API server.
func uninstallConfig(cfg config.Config, opts control.ResetOptions) install.UninstallConfig {
	return install.UninstallConfig{
		Kubeconfig: cfg.Cluster.Kubeconfig, Namespace: cfg.Cluster.Namespace, Webhook: admission.WebhookName, Offloading: vnode.OffloadingName,
		All: opts.All, CRDs: opts.CRDs, Identity: opts.Identity,
	}
}

// inventory adds to a plan what is in the API server.
func inventory(ctx context.Context, cfg config.Config, opts control.ResetOptions, plan *control.ResetPlan) {
	ctx, cancel := context.WithTimeout(ctx, planPatience)
	defer cancel()
	found, err := install.Inventory(ctx, uninstallConfig(cfg, opts))
	plan.Deletes, plan.Keeps, plan.Unknown = found.Deleted, found.Kept, found.Failed
	if err != nil && !noServer(err) {
		plan.Unknown = append(plan.Unknown, err.Error())
	}
}

// noServer reports whether there is no API server that anything could be deleted in.
func noServer(err error) bool {
	return errors.Is(err, conn.ErrSwitchedOff) || errors.Is(err, conn.ErrNoKubeconfig)
}

// clearObjects takes what the agent made out of the API server.
func clearObjects(ctx context.Context, cfg config.Config, view *control.Reset) {
	ctx, cancel := context.WithTimeout(ctx, clearPatience)
	defer cancel()
	own := control.ResetOptions{Identity: view.Options.Identity}
	done, err := install.Uninstall(ctx, uninstallConfig(cfg, own))
	view.Deleted, view.Kept = done.Deleted, done.Kept
	view.Failed = append(view.Failed, done.Failed...)
	if err != nil && !noServer(err) {
		view.Failed = append(view.Failed, fmt.Sprintf("what the agent made in the API server is still there: %v", err))
	}
}

// UninstallPeoples deletes what people wrote, with opts.All, and the custom resource
// definitions, with opts.CRDs, and adds what became of it to a reset that has ended.
// The agent may do neither: kubeconfig is an administrator's, "" for that of K3s if
// it is there.
func UninstallPeoples(ctx context.Context, cfg config.Config, kubeconfig string, opts control.ResetOptions, view *control.Reset) {
	ctx, cancel := context.WithTimeout(ctx, clearPatience)
	defer cancel()
	if _, err := os.Stat(conn.K3sKubeconfig); kubeconfig == "" && err == nil && cfg.Cluster.Kubeconfig != conn.KubeconfigNone {
		kubeconfig = conn.K3sKubeconfig
	}
	if kubeconfig != "" {
		cfg.Cluster.Kubeconfig = kubeconfig
	}
	opts.Identity = false // that was the agent's
	done, err := install.UninstallPeoples(ctx, uninstallConfig(cfg, opts))
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
