package identity

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/uuid"

	"liqo.io/agent/agent/config"
	"liqo.io/agent/kube/conn"
	"liqo.io/agent/kube/work"
	"liqo.io/agent/peer"
	"liqo.io/agent/peering/install"
)

// Origins of a cluster ID, as stored and shown. An API server has others.
const (
	originConfig    = "configuration"
	originState     = "state"
	originGenerated = "generated"
)

const (
	// patience is how long the first start waits for an API server that is configured
	// but does not answer yet, before it creates a new ID. A box that boots K3s and the
	// agent together gets the ID of its cluster.
	patience = 10 * time.Second
	// retryPause is the pause between attempts during that time.
	retryPause = 500 * time.Millisecond
)

// Store stores the cluster ID.
type Store interface {
	ClusterID(ctx context.Context) (peer.ClusterID, error)
	SetClusterID(ctx context.Context, id peer.ClusterID, origin string) error
}

// ClusterID returns the ID of this cluster and its origin: the configured ID; else the
// stored one; else that in the API server (ConfigMap, control-plane node); else a new
// one. It stores the result.
//
// The ConfigMap takes precedence over the store, but the store is read first: it answers
// at once, and the peering controller reports another ID in the ConfigMap as soon as it
// is connected.
func ClusterID(ctx context.Context, cfg config.Config, store Store, logger *slog.Logger) (peer.ClusterID, string, error) {
	stored, err := store.ClusterID(ctx)
	if err != nil {
		return "", "", fmt.Errorf("read our cluster ID: %w", err)
	}
	if cfg.Cluster.ID != "" {
		id, err := peer.ParseClusterID(cfg.Cluster.ID)
		if err != nil {
			return "", "", fmt.Errorf("cluster.id: %w", err)
		}
		if id != stored {
			err = store.SetClusterID(ctx, id, originConfig)
		}
		return id, originConfig, err
	}
	if stored != "" {
		return stored, originState, nil
	}
	id, origin, err := fromAPI(ctx, cfg)
	if ctx.Err() != nil {
		return "", "", ctx.Err()
	}
	if err != nil {
		id, origin = peer.ClusterID(uuid.NewString()), originGenerated
		logger.Info("created a cluster ID, because none is stored and the API server gave none", "id", id, "reason", err)
	}
	return id, origin, store.SetClusterID(ctx, id, origin)
}

// fromAPI reads the ID of this cluster from the API server. If one is configured, it
// tries until patience ends: the API server may still be starting, or its node not be
// registered yet.
func fromAPI(ctx context.Context, cfg config.Config) (id peer.ClusterID, origin string, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		id, origin, err = install.ClusterIDFromAPI(ctx, cfg.Cluster.Kubeconfig, cfg.Cluster.Namespace)
		if err == nil || errors.Is(err, conn.ErrNoKubeconfig) || errors.Is(err, conn.ErrSwitchedOff) {
			return id, origin, err
		}
		if work.Sleep(ctx, retryPause) != nil {
			return "", "", err
		}
	}
}
