package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/uuid"

	"liqo.io/agent/agent/config"
	"liqo.io/agent/kube/conn"
	"liqo.io/agent/peer"
	"liqo.io/agent/peering/install"
)

// Where a cluster ID can come from, as stored and shown.
const (
	originConfig    = "configuration"
	originGenerated = "generated"
)

// firstStartPatience is how long the very first start waits for an API server
// that is configured but does not answer yet, before it creates a new ID. A box that
// boots K3s and the agent together gets the ID of its cluster.
const firstStartPatience = 10 * time.Second

// askAgain is the pause between attempts during that time.
const askAgain = 500 * time.Millisecond

// identityStore is the part of the state that stores the cluster ID.
type identityStore interface {
	ClusterID(ctx context.Context) (peer.ClusterID, error)
	SetClusterID(ctx context.Context, id peer.ClusterID, origin string) error
}

// clusterID returns the ID of this cluster: the configured one; else the stored one;
// else the one in the API server (ConfigMap, control-plane node); else a new one. It
// stores the result.
//
// The ConfigMap outranks the store, but the store is asked first: it answers at
// once, and the peering controller reports a ConfigMap that disagrees as soon
// as an API server is there.
func clusterID(ctx context.Context, cfg config.Config, store identityStore, logger *slog.Logger) (peer.ClusterID, string, error) {
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
		return stored, "state", nil
	}
	id, origin, err := askForID(ctx, cfg)
	if ctx.Err() != nil {
		return "", "", ctx.Err()
	}
	if err != nil {
		id, origin = peer.ClusterID(uuid.NewString()), originGenerated
		logger.Info("created a cluster ID, because none is stored and the API server gave none", "id", id, "reason", err)
	}
	return id, origin, store.SetClusterID(ctx, id, origin)
}

// askForID asks the API server for the ID of this cluster. If one is configured, it
// tries for firstStartPatience: the API server may still be starting, or its node not
// be registered yet.
func askForID(ctx context.Context, cfg config.Config) (id peer.ClusterID, origin string, err error) {
	ctx, cancel := context.WithTimeout(ctx, firstStartPatience)
	defer cancel()
	for {
		id, origin, err = install.ClusterIDFromAPI(ctx, cfg.Cluster.Kubeconfig, cfg.Cluster.Namespace)
		if err == nil || errors.Is(err, conn.ErrNoKubeconfig) || errors.Is(err, conn.ErrSwitchedOff) {
			return id, origin, err
		}
		select {
		case <-ctx.Done():
			return "", "", err
		case <-time.After(askAgain):
		}
	}
}
