package reset

import (
	"context"
	"log/slog"
	"time"

	"liqo.io/agent/agent/config"
	"liqo.io/agent/agent/statedir"
	"liqo.io/agent/kube/work"
	"liqo.io/agent/peer"
	"liqo.io/agent/peering/install"
)

// claimFirst and claimLast bound the pause between two questions whether the API
// server says who we are by now.
const (
	claimFirst = time.Second
	claimLast  = 5 * time.Minute
)

// Claim has the API server say which cluster this is after a restore or a reset.
type Claim struct {
	id       peer.ClusterID
	settings func() config.Config
	logger   *slog.Logger
	disputed chan struct{} // the API server has another ID; capacity 1
}

// NewClaim returns the claim of the cluster id. settings is the configuration in use.
func NewClaim(id peer.ClusterID, settings func() config.Config, logger *slog.Logger) *Claim {
	return &Claim{id: id, settings: settings, logger: logger, disputed: make(chan struct{}, 1)}
}

// Stands reports whether the ID of this cluster goes before that in the API server.
func (c *Claim) Stands() bool {
	id, _, err := statedir.Claim(c.settings().State.Dir)
	return err == nil && id != "" && id == c.id
}

// Disputed has Run write our ID to the API server, which has another one. It does not
// block.
func (c *Claim) Disputed() {
	work.Wake(c.disputed)
}

// Run asks the API server until it has our ID. There is nothing to do when no restore
// or reset came before.
func (c *Claim) Run(ctx context.Context) error {
	for pause := claimFirst; c.Stands(); pause = min(2*pause, claimLast) {
		settings := c.settings()
		before, err := install.ClaimClusterID(ctx, settings.Cluster.Kubeconfig, settings.Cluster.Namespace, c.id)
		if err == nil && before != "" {
			if before != c.id {
				c.logger.Warn("the API server had another ID for this cluster; it has the ID of this key now", "before", before, "id", c.id)
			}
			return statedir.Claimed(settings.State.Dir)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-c.disputed:
		case <-time.After(pause):
		}
	}
	return nil
}
