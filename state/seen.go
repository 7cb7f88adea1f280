package state

import (
	"context"

	"liqo.io/agent/peer"
)

// Seen returns the peers that some source saw when they were last stored: at
// the start of an agent, those that were there when the last one ended.
func (s *Store) Seen(ctx context.Context) (map[peer.ClusterID]bool, error) {
	seen := make(map[peer.ClusterID]bool)
	err := s.read(ctx, func(ctx context.Context) error {
		return query(ctx, s.conn, func(scan func(...any) error) error {
			var id peer.ClusterID
			if err := scan(&id); err != nil {
				return err
			}
			seen[id] = true
			return nil
		}, `SELECT DISTINCT cluster_id FROM sightings`)
	})
	return seen, err
}
