package state

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"liqo.io/agent/peer"
)

// Change is a set of changes that belong together: all of them are kept, or
// none. The parts are applied in the order of the fields.
type Change struct {
	// Forget drops everything about these peers: what was seen, what happened
	// and what was decided, trust in their keys included. It is on the disk when
	// the call returns.
	Forget []peer.ClusterID
	// Kept is what is remembered all the same of the peerings with those in Forget.
	Kept map[peer.ClusterID]Peering
	// Unsee drops what was seen of these peers. What happened and what was decided stays.
	Unsee []peer.ClusterID
	// Peers are stored as last seen. An empty field or list never erases a
	// known one, so that a peer that is gone keeps the addresses it had.
	// Alias, Phase, Reason, Failures and Conflict are not stored: the first
	// belongs to the preferences, the others are about now.
	Peers []peer.Peer
	// Sightings replace all stored ones of each peer named.
	Sightings map[peer.ClusterID][]peer.Sighting
	// LastSeen moves when a peer was last seen, forwards only.
	LastSeen map[peer.ClusterID]time.Time
	// Events are added to the history.
	Events []peer.Event
}

// Apply stores c in one transaction, or in none when everything in it is
// stored already. A peer's LastSeen alone is no change: it is stored with the
// next one, or through Change.LastSeen. Sightings and LastSeen of peers that
// are not stored are ignored. What exceeds the Store's Limits pushes out what
// is oldest.
//
// When the error wraps ErrFull the same change may be applied again later.
func (s *Store) Apply(ctx context.Context, c Change) error {
	durable := buffered
	if len(c.Forget) > 0 {
		durable = onDisk // a person's decision
	}
	return s.change(ctx, durable, func(ctx context.Context) ([]op, error) {
		var b batch
		for _, id := range c.Forget {
			b.add(s.forgetOps(ctx, id))
			b.add(peeringTable.change(nil, c.Kept[id].row(id)))
		}
		for _, id := range c.Unsee {
			known, err := s.exists(ctx, "SELECT 1 FROM peers WHERE cluster_id = ?", string(id))
			if err != nil {
				return nil, err
			}
			if known { // with addresses and sightings
				b.add([]op{{"DELETE FROM peers WHERE cluster_id = ?", []any{string(id)}}}, nil)
			}
		}
		ids := slices.Collect(maps.Keys(c.Sightings))
		for _, p := range c.Peers {
			ids = append(ids, p.ID)
		}
		all, err := s.stored(ctx, ids)
		if err != nil {
			return nil, err
		}
		for _, id := range slices.Concat(c.Forget, c.Unsee) { // it starts anew
			delete(all.peers, id)
			delete(all.endpoints, id)
			delete(all.sightings, id)
		}
		added := map[peer.ClusterID]bool{}
		for _, p := range c.Peers {
			have, known := all.peers[p.ID]
			want := merged(have, p, s.now())
			if known {
				b.add(peerTable.change(&have, &want))
			} else {
				added[p.ID] = true
				b.add(peerTable.change(nil, &want))
			}
			b.add(s.endpointOps(want, all.endpoints[p.ID], c.Sightings[p.ID]))
		}
		for _, id := range slices.Sorted(maps.Keys(c.Sightings)) {
			if _, known := all.peers[id]; known || added[id] {
				b.add(s.sightingOps(id, c.Sightings[id], all.sightings[id]))
			}
		}
		for _, id := range slices.Sorted(maps.Keys(c.LastSeen)) {
			at := millis(c.LastSeen[id])
			behind, err := s.exists(ctx, "SELECT 1 FROM peers WHERE cluster_id = ? AND last_seen < ?", string(id), at)
			if err != nil {
				return nil, err
			}
			if behind || added[id] {
				b.add([]op{{"UPDATE peers SET last_seen = max(last_seen, ?) WHERE cluster_id = ?", []any{at, string(id)}}}, nil)
			}
		}
		if len(added) > 0 {
			b.add(s.boundPeersOps(c.Peers))
		}
		b.add(s.eventOps(ctx, c.Events))
		return b.ops, b.err
	})
}

func (s *Store) exists(ctx context.Context, text string, args ...any) (bool, error) {
	var one int
	err := s.conn.QueryRowContext(ctx, text, args...).Scan(&one)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	return err == nil, err
}

func (s *Store) forgetOps(ctx context.Context, id peer.ClusterID) ([]op, error) {
	var ops []op
	for _, t := range tables {
		if !t.about().ofPeer {
			continue
		}
		rows := " FROM " + t.about().name + " WHERE cluster_id = ?"
		known, err := s.exists(ctx, "SELECT 1"+rows+" LIMIT 1", string(id))
		if err != nil {
			return nil, err
		}
		if known {
			ops = append(ops, op{"DELETE" + rows, []any{string(id)}})
		}
	}
	return ops, nil
}

// merged returns p with what it does not say filled in from the stored value,
// in the order in which it is stored.
func merged(have, p peer.Peer, now time.Time) peer.Peer {
	p = p.Clone()
	p.Addrs = slices.DeleteFunc(p.Addrs, func(a netip.AddrPort) bool { return !a.IsValid() })
	p.Name, p.Namespace = cmp.Or(p.Name, have.Name), cmp.Or(p.Namespace, have.Namespace)
	p.Source, p.URL, p.Version = cmp.Or(p.Source, have.Source), cmp.Or(p.URL, have.URL), cmp.Or(p.Version, have.Version)
	p.Fingerprint, p.TTL = cmp.Or(p.Fingerprint, have.Fingerprint), cmp.Or(p.TTL.Truncate(time.Millisecond), have.TTL)
	if len(p.Links) == 0 {
		p.Links = have.Links
	}
	if len(p.Addrs) == 0 {
		p.Addrs = have.Addrs
	}
	slices.Sort(p.Links)
	p.Links = slices.Compact(p.Links)
	slices.SortFunc(p.Addrs, netip.AddrPort.Compare)
	p.Addrs = slices.Compact(p.Addrs)
	if p.FirstSeen.IsZero() {
		p.FirstSeen = now
	}
	if p.LastSeen.IsZero() {
		p.LastSeen = now
	}
	return p
}

// endpointOps records where the peer is now, and since when it no longer is
// where it was.
func (s *Store) endpointOps(p peer.Peer, have []endpointRow, seen []peer.Sighting) ([]op, error) {
	var b batch
	now := s.now()
	addrs := p.Addrs[:min(len(p.Addrs), s.limits.Endpoints)]
	for _, a := range addrs {
		want := endpointRow{id: p.ID, ip: a.Addr().WithZone("").String(), zone: a.Addr().Zone(), port: a.Port(),
			Fingerprint: p.Fingerprint, Source: p.Source, FirstSeen: now}
		for _, sighting := range slices.Backward(seen) {
			if slices.Contains(sighting.Addrs, a) {
				want.Source, want.Link = sighting.Source, sighting.Link
			}
		}
		var old *endpointRow
		if i := slices.IndexFunc(have, func(e endpointRow) bool { return e.Addr == a }); i >= 0 {
			old = &have[i]
		}
		b.add(endpointTable.change(old, &want))
	}
	for _, old := range have {
		if !slices.Contains(addrs, old.Addr) {
			gone := old
			gone.GoneAt = now
			b.add(endpointTable.change(&old, &gone))
		}
	}
	if len(b.ops) > 0 {
		b.add([]op{endpointTable.keep(s.limits.Endpoints-len(addrs), "cluster_id = ? AND gone_at IS NOT NULL", "gone_at DESC", string(p.ID))}, nil)
	}
	return b.ops, b.err
}

// sightingOps makes the stored sightings of a peer those given.
func (s *Store) sightingOps(id peer.ClusterID, seen []peer.Sighting, have []sightingRow) ([]op, error) {
	old, want := map[peer.Key]*sightingRow{}, map[peer.Key]*sightingRow{}
	for i := range have {
		old[have[i].Key()] = &have[i]
	}
	var keys []peer.Key // in their order, for the same result every time
	for _, sighting := range seen {
		key := sighting.Key()
		if want[key] == nil {
			if len(want) >= s.limits.Sightings {
				continue
			}
			keys = append(keys, key)
		}
		sighting.ClusterID = id
		want[key] = &sightingRow{sighting, s.now()}
	}
	var b batch
	for _, row := range have {
		if want[row.Key()] == nil {
			b.add(sightingTable.change(&row, nil))
		}
	}
	for _, key := range keys {
		b.add(sightingTable.change(old[key], want[key]))
	}
	return b.ops, b.err
}

// boundPeersOps makes room when new peers exceed the bound: those go first that
// never proved a key, then those not seen for longest; never those somebody decided
// something about, and not the ones just being stored.
func (s *Store) boundPeersOps(storing []peer.Peer) ([]op, error) {
	ids := make([]peer.ClusterID, 0, len(storing))
	for _, p := range storing {
		ids = append(ids, p.ID)
	}
	list, err := json.Marshal(ids)
	return []op{{`DELETE FROM peers WHERE cluster_id IN (SELECT cluster_id FROM peers
		WHERE cluster_id NOT IN (SELECT value FROM json_each(?1)) AND ` + undecided() + `
		ORDER BY fingerprint IS NOT NULL, last_seen LIMIT max(0, (SELECT count(*) FROM peers) - ?2))`, []any{string(list), int64(s.limits.Peers)}}}, err
}

// undecided selects the rows of peers that nobody decided anything about.
func undecided() string { return "cluster_id NOT IN (" + decided() + ")" }

// decided selects the IDs of the peers that somebody decided something about.
func decided() string {
	var selects []string
	for _, t := range tables {
		if t.about().decided {
			selects = append(selects, "SELECT cluster_id FROM "+t.about().name)
		}
	}
	return strings.Join(selects, " UNION ")
}

// Prune drops what is older than olderThan: history, addresses a peer no
// longer has, invites that can no longer be used, and peers not seen since that
// nobody decided anything about. It returns the number of rows dropped. Flush LastSeen
// through Apply first: a peer that was there all the time is known by it.
func (s *Store) Prune(ctx context.Context, olderThan time.Duration) (int, error) {
	before := millis(s.now().Add(-olderThan))
	dropped := 0
	err := s.change(ctx, buffered, func(ctx context.Context) ([]op, error) {
		var ops []op
		for _, t := range tables {
			if t.about().expired == "" {
				continue
			}
			rows := " FROM " + t.about().name + " WHERE " + t.about().expired
			if t.about().unlessDecided {
				rows += " AND " + undecided()
			}
			var n int
			if err := s.conn.QueryRowContext(ctx, "SELECT count(*)"+rows, before).Scan(&n); err != nil {
				return nil, err
			}
			if dropped += n; n > 0 {
				ops = append(ops, op{"DELETE" + rows, []any{before}})
			}
		}
		if len(ops) > 0 {
			s.events = -1
		}
		return ops, nil
	})
	if err != nil {
		return 0, err
	}
	return dropped, nil
}
