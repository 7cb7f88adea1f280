package state

import (
	"context"
	"slices"
	"time"

	"liqo.io/agent/peer"
)

// maxDetailLength bounds the text of an event, in bytes: parts of it come from
// the network.
const maxDetailLength = 500

// eventOps adds events and keeps the history within its bounds, per peer
// first, so that one that flaps pushes out only its own past.
func (s *Store) eventOps(ctx context.Context, events []peer.Event) ([]op, error) {
	if len(events) == 0 {
		return nil, nil
	}
	if s.events < 0 {
		if err := s.conn.QueryRowContext(ctx, "SELECT count(*) FROM events").Scan(&s.events); err != nil {
			return nil, err
		}
	}
	var ops []op
	var ids []peer.ClusterID
	for _, e := range events {
		at := e.At
		if at.IsZero() {
			at = s.now()
		}
		ops = append(ops, op{"INSERT INTO events (at, cluster_id, kind, detail) VALUES (?, ?, ?, ?)",
			[]any{millis(at), string(e.ID), string(e.Kind), clip(e.Detail)}})
		ids = append(ids, e.ID)
	}
	slices.Sort(ids)
	for _, id := range slices.Compact(ids) {
		ops = append(ops, op{`DELETE FROM events WHERE cluster_id = ?1 AND id <=
			(SELECT id FROM events WHERE cluster_id = ?1 ORDER BY id DESC LIMIT 1 OFFSET ?2)`, []any{string(id), int64(s.limits.EventsPerPeer)}})
	}
	// The count errs upwards only (failed transactions, trimmed and forgotten
	// peers), so it is enough to count anew when it reaches the bound. Going
	// a little below makes that rare.
	if s.events += len(events); s.events > s.limits.Events {
		s.events = -1
		ops = append(ops, op{"DELETE FROM events WHERE id <= (SELECT id FROM events ORDER BY id DESC LIMIT 1 OFFSET ?)",
			[]any{int64(s.limits.Events - s.limits.Events/20)}})
	}
	return ops, nil
}

func clip(s string) string {
	if len(s) > maxDetailLength {
		return s[:maxDetailLength] + "..."
	}
	return s
}

// boundPeersOps makes room when new peers would exceed the bound: those go
// first that never proved a key, then those not seen for longest; never those
// somebody decided something about, and not the ones just being stored.
func (s *Store) boundPeersOps(ctx context.Context, storing []peer.Peer, fresh map[peer.ClusterID]bool) ([]op, error) {
	added := 0
	for _, isNew := range fresh {
		if isNew {
			added++
		}
	}
	if added == 0 {
		return nil, nil
	}
	var have int
	if err := s.conn.QueryRowContext(ctx, "SELECT count(*) FROM peers").Scan(&have); err != nil {
		return nil, err
	}
	excess := have + added - s.limits.Peers
	if excess <= 0 {
		return nil, nil
	}
	var ops []op
	err := query(ctx, s.conn, func(scan func(...any) error) error {
		var id peer.ClusterID
		if err := scan(&id); err != nil {
			return err
		}
		if _, current := fresh[id]; !current && len(ops) < excess {
			ops = append(ops, op{"DELETE FROM peers WHERE cluster_id = ?", []any{string(id)}})
		}
		return nil
	}, `SELECT cluster_id FROM peers WHERE `+undecided+`
		ORDER BY fingerprint IS NOT NULL, last_seen LIMIT ?`, int64(excess+len(storing)))
	return ops, err
}

// undecided selects the peers that nobody decided anything about.
const undecided = `cluster_id NOT IN
	(SELECT cluster_id FROM preferences UNION SELECT cluster_id FROM trust UNION SELECT cluster_id FROM peerings)`

// Prune drops what is older than olderThan: history, addresses a peer no
// longer has, invites that can no longer be used, and peers not seen since that
// nobody decided anything about. It returns the number of history entries and peers dropped. Flush LastSeen
// through Apply first: a peer that was there all the time is known by it.
func (s *Store) Prune(ctx context.Context, olderThan time.Duration) (int, error) {
	before := millis(s.now().Add(-olderThan))
	const (
		oldEvents    = "FROM events WHERE at < ?1"
		oldPeers     = "FROM peers WHERE last_seen < ?1 AND " + undecided
		oldEndpoints = "FROM endpoints WHERE gone_at < ?1"
		oldInvites   = "FROM invites WHERE min(expires_at, iif(used_at = 0, expires_at, used_at), iif(revoked_at = 0, expires_at, revoked_at)) < ?1"
	)
	var dropped int
	err := s.change(ctx, buffered, func(ctx context.Context) ([]op, error) {
		var events, peers, endpoints, invites int
		row := s.conn.QueryRowContext(ctx, "SELECT (SELECT count(*) "+oldEvents+"), (SELECT count(*) "+oldPeers+"), (SELECT count(*) "+oldEndpoints+"), (SELECT count(*) "+oldInvites+")", before)
		if err := row.Scan(&events, &peers, &endpoints, &invites); err != nil {
			return nil, err
		}
		if events+peers+endpoints+invites == 0 {
			return nil, nil
		}
		dropped = events + peers
		s.events = -1
		return []op{{"DELETE " + oldEvents, []any{before}}, {"DELETE " + oldPeers, []any{before}}, {"DELETE " + oldEndpoints, []any{before}},
			{"DELETE " + oldInvites, []any{before}}}, nil
	})
	if err != nil {
		return 0, err
	}
	return dropped, nil
}
