package state

import (
	"context"
	"slices"
	"time"

	"liqo.io/agent/peer"
)

type eventRow struct {
	id rowID
	peer.Event
}

var eventTable = describe(table[eventRow]{
	// A time that is long ago is one of a wrong clock if something before it is not as old: a machine that begins in 1970 until
	// it is told the time would lose all that happened until then.
	aspects: aspects{name: "events", ofPeer: true, expired: "at < ?1 AND id < coalesce((SELECT min(id) FROM events WHERE at >= ?1), 1 << 62)"},
	columns: func(e *eventRow) []column {
		return []column{{"id", &e.id, key}, {"at", at(&e.At), value}, {"cluster_id", &e.ID, value}, {"kind", &e.Kind, value},
			{"detail", clipped(&e.Detail), value}}
	},
})

// HistoryQuery selects events. The zero value selects all.
type HistoryQuery struct {
	ID    peer.ClusterID // "" is every peer
	Since time.Time      // zero is from the beginning
	Limit int            // the newest so many; 0 is all
}

// History returns the selected events, oldest first.
func (s *Store) History(ctx context.Context, q HistoryQuery) (events []peer.Event, err error) {
	limit := q.Limit
	if limit <= 0 {
		limit = -1
	}
	which, args := ofPeer(q.ID)
	rows, err := eventTable.rows(ctx, s, which+" AND at >= ? ORDER BY id DESC LIMIT ?", append(args, millis(q.Since), int64(limit))...)
	for _, row := range slices.Backward(rows) {
		events = append(events, row.Event)
	}
	return events, err
}

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
	var b batch
	var ids []peer.ClusterID
	for _, e := range events {
		if e.At.IsZero() {
			e.At = s.now()
		}
		b.add(eventTable.change(nil, &eventRow{Event: e}))
		ids = append(ids, e.ID)
	}
	slices.Sort(ids)
	for _, id := range slices.Compact(ids) {
		b.ops = append(b.ops, eventTable.keep(s.limits.EventsPerPeer, "cluster_id = ?", "id DESC", string(id)))
	}
	// The count errs upwards only (failed transactions, trimmed and forgotten
	// peers), so it is enough to count anew when it reaches the bound. Going
	// a little below makes that rare.
	if s.events += len(events); s.events > s.limits.Events {
		s.events = -1
		b.ops = append(b.ops, eventTable.keep(s.limits.Events-s.limits.Events/20, "true", "id DESC"))
	}
	return b.ops, b.err
}
