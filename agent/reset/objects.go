package reset

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"liqo.io/agent/agent/config"
	"liqo.io/agent/agent/connect"
	"liqo.io/agent/agent/control"
	"liqo.io/agent/kube/conn"
	"liqo.io/agent/network"
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

// inventory adds the objects in the API server to a plan.
func inventory(ctx context.Context, cfg config.Config, opts control.ResetOptions, plan *control.ResetPlan) {
	ctx, cancel := context.WithTimeout(ctx, planPatience)
	defer cancel()
	found, err := install.Inventory(ctx, uninstallConfig(cfg, opts))
	plan.Deletes, plan.Keeps, plan.Unknown = found.Deleted, found.Kept, found.Failed
	if err != nil && !noServer(err) {
		plan.Unknown = append(plan.Unknown, err.Error())
	}
}

// noServer reports whether no API server is configured.
func noServer(err error) bool {
	return errors.Is(err, conn.ErrSwitchedOff) || errors.Is(err, conn.ErrNoKubeconfig)
}

// clearObjects deletes the objects of the agent from the API server.
func clearObjects(ctx context.Context, cfg config.Config, view *control.Reset) {
	ctx, cancel := context.WithTimeout(ctx, clearPatience)
	defer cancel()
	own := control.ResetOptions{Identity: view.Options.Identity}
	done, err := install.Uninstall(ctx, uninstallConfig(cfg, own))
	view.Deleted, view.Kept = done.Deleted, done.Kept
	view.Failed = append(view.Failed, done.Failed...)
	if err != nil && !noServer(err) {
		view.Failed = append(view.Failed, fmt.Sprintf("the objects of the agent are still in the API server: %v", err))
	}
}

// clearNetwork removes what outlives the agent in the network of this machine.
func clearNetwork(view *control.Reset) {
	if err := network.Clear(connect.Device); err != nil {
		view.Failed = append(view.Failed, fmt.Sprintf("the network with other clusters is still set up on this machine, until it is restarted: %v", err))
	}
}

// UninstallPeoples deletes the objects that people wrote, with opts.All, and the custom
// resource definitions, with opts.CRDs, and adds the result to a reset that has ended.
// The agent has no right to do either: kubeconfig is an administrator's, "" for that of
// K3s if it exists.
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
		view.Failed = append(view.Failed, fmt.Sprintf("the objects that people wrote are still in the API server: %v", err))
	}
}

// noteLeft adds the files that are not the agent's.
func noteLeft(view *control.Reset, left []string) {
	for _, name := range left {
		view.Kept = append(view.Kept, "file "+name)
	}
}
