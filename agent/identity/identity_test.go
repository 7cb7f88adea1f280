package identity

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"testing"

	"liqo.io/agent/agent/config"
	"liqo.io/agent/peer"
	"liqo.io/agent/state"
)

func openStore(t *testing.T) *state.Store {
	t.Helper()
	s, err := state.Open(t.Context(), filepath.Join(t.TempDir(), "agent.db"), state.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func offline(id string) config.Config {
	cfg := config.Default()
	cfg.Cluster.ID, cfg.Cluster.Kubeconfig = id, "none"
	return cfg
}

func TestClusterID(t *testing.T) {
	discard := slog.New(slog.DiscardHandler)
	for _, tc := range []struct {
		name, configured, stored string
		want, origin             string // want "" is any new UUID
	}{
		{"a new cluster", "", "", "", "generated"},
		{"known from before", "", "known", "known", "state"},
		{"configured", "wanted", "", "wanted", "configuration"},
		{"configured anew", "wanted", "known", "wanted", "configuration"},
		{"configured as it was", "known", "known", "known", "configuration"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			store := openStore(t)
			if tc.stored != "" {
				if err := store.SetClusterID(t.Context(), peer.ClusterID(tc.stored), "test"); err != nil {
					t.Fatal(err)
				}
			}
			id, origin, err := ClusterID(t.Context(), offline(tc.configured), store, discard)
			if err != nil || origin != tc.origin || tc.want != "" && string(id) != tc.want {
				t.Errorf("ClusterID = %s from %s, %v; want %s from %s", id, origin, err, tc.want, tc.origin)
			}
			if _, err := peer.ParseClusterID(string(id)); err != nil {
				t.Error(err)
			}
			if kept, err := store.ClusterID(t.Context()); err != nil || kept != id {
				t.Errorf("the store has %q, %v", kept, err)
			}
			again, _, err := ClusterID(t.Context(), offline(tc.configured), store, discard)
			if err != nil || again != id {
				t.Errorf("the second time %s, %v", again, err)
			}
		})
	}
}

func TestClusterIDThatCannotBeStoredIsAnError(t *testing.T) {
	if _, _, err := ClusterID(t.Context(), offline(""), brokenStore{}, slog.New(slog.DiscardHandler)); !errors.Is(err, errBroken) {
		t.Errorf("err = %v", err)
	}
}

var errBroken = errors.New("broken")

type brokenStore struct{}

func (brokenStore) ClusterID(context.Context) (peer.ClusterID, error) { return "", nil }

func (brokenStore) SetClusterID(context.Context, peer.ClusterID, string) error { return errBroken }
