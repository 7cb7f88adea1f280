package state

import (
	"context"
	"database/sql"
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
		var ops []op
		for _, id := range c.Forget {
			forget, err := s.forgetOps(ctx, id)
			if err != nil {
				return nil, err
			}
			ops = append(ops, forget...)
			if kept := c.Kept[id]; kept != (Peering{}) {
				ops = append(ops, peeringOp(id, kept))
			}
		}
		stored, err := s.storedFor(ctx, c)
		if err != nil {
			return nil, err
		}
		fresh := map[peer.ClusterID]bool{}
		for _, p := range c.Peers {
			if _, err := peer.ParseClusterID(string(p.ID)); err != nil {
				return nil, err
			}
			peerOps, isNew := s.peerOps(p, stored.peers[p.ID], c.Sightings[p.ID])
			fresh[p.ID] = isNew
			ops = append(ops, peerOps...)
		}
		for _, id := range slices.Sorted(maps.Keys(c.Sightings)) {
			ops = append(ops, s.sightingOps(id, c.Sightings[id], stored.sightings[id])...)
		}
		for _, id := range slices.Sorted(maps.Keys(c.LastSeen)) {
			at := millis(c.LastSeen[id])
			behind, err := s.exists(ctx, "SELECT 1 FROM peers WHERE cluster_id = ? AND last_seen < ?", string(id), at)
			if err != nil {
				return nil, err
			}
			if behind || fresh[id] {
				ops = append(ops, op{"UPDATE peers SET last_seen = max(last_seen, ?) WHERE cluster_id = ?", []any{at, string(id)}})
			}
		}
		boundOps, err := s.boundPeersOps(ctx, c.Peers, fresh)
		if err != nil {
			return nil, err
		}
		ops = append(ops, boundOps...)
		eventOps, err := s.eventOps(ctx, c.Events)
		if err != nil {
			return nil, err
		}
		return append(ops, eventOps...), nil
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
	for _, table := range []string{"peers", "preferences", "trust", "peerings", "events"} { // endpoints and sightings go along with peers
		known, err := s.exists(ctx, "SELECT 1 FROM "+table+" WHERE cluster_id = ? LIMIT 1", string(id))
		if err != nil {
			return nil, err
		}
		if known {
			ops = append(ops, op{"DELETE FROM " + table + " WHERE cluster_id = ?", []any{string(id)}})
		}
	}
	return ops, nil
}

// stored is what a Change is compared with.
type stored struct {
	peers     map[peer.ClusterID]peer.Peer
	sightings map[peer.ClusterID][]peer.Sighting
}

// fewPeers is the number of peers up to which each is looked up by itself. To
// read the whole table once is cheaper than many look-ups, and a start on a
// busy LAN brings peers by the hundred.
const fewPeers = 10

// storedFor reads what is stored of the peers in c. A peer that c forgets is
// not stored: it starts anew.
func (s *Store) storedFor(ctx context.Context, c Change) (stored, error) {
	ids := slices.Collect(maps.Keys(c.Sightings))
	for _, p := range c.Peers {
		ids = append(ids, p.ID)
	}
	slices.Sort(ids)
	if ids = slices.Compact(ids); len(ids) > fewPeers {
		ids = []peer.ClusterID{""}
	}
	all := stored{map[peer.ClusterID]peer.Peer{}, map[peer.ClusterID][]peer.Sighting{}}
	for _, id := range ids {
		peers, err := s.peers(ctx, id)
		if err != nil {
			return all, err
		}
		for _, p := range peers {
			all.peers[p.ID] = p
		}
		sightings, err := s.sightings(ctx, id)
		if err != nil {
			return all, err
		}
		for _, seen := range sightings {
			all.sightings[seen.ClusterID] = append(all.sightings[seen.ClusterID], seen)
		}
	}
	for _, id := range c.Forget {
		delete(all.peers, id)
		delete(all.sightings, id)
	}
	return all, nil
}

// peerOps compares p with what is stored of it, the zero Peer if nothing is,
// and returns what has to change.
func (s *Store) peerOps(p, have peer.Peer, seen []peer.Sighting) (ops []op, isNew bool) {
	now := s.now()
	isNew = have.ID == ""
	want := merged(have, p, now)
	if isNew || !slices.Equal(want.Links, have.Links) || want.Name != have.Name || want.Namespace != have.Namespace ||
		want.Fingerprint != have.Fingerprint || want.Source != have.Source || want.URL != have.URL ||
		want.Version != have.Version || want.TTL != have.TTL {
		ops = append(ops, op{`INSERT INTO peers (cluster_id, name, namespace, fingerprint, source, url, version, links, ttl, first_seen, last_seen)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
			ON CONFLICT (cluster_id) DO UPDATE SET name = excluded.name, namespace = excluded.namespace, fingerprint = excluded.fingerprint,
			source = excluded.source, url = excluded.url, version = excluded.version, links = excluded.links, ttl = excluded.ttl,
			last_seen = max(last_seen, excluded.last_seen)`,
			[]any{string(want.ID), want.Name, want.Namespace, fingerprintColumn(want.Fingerprint), string(want.Source), want.URL,
				want.Version, strings.Join(want.Links, listSeparator), want.TTL.Milliseconds(), millis(want.FirstSeen), millis(want.LastSeen)}})
	}
	return append(ops, s.endpointOps(want, have, seen, now)...), isNew
}

// merged returns p with what it does not say filled in from the stored value,
// in the precision and order in which it is stored.
func merged(have, p peer.Peer, now time.Time) peer.Peer {
	pick := func(field *string, old string) {
		if *field == "" {
			*field = old
		}
	}
	p = p.Clone()
	p.Addrs = validAddrs(p.Addrs)
	pick(&p.Name, have.Name)
	pick(&p.Namespace, have.Namespace)
	pick((*string)(&p.Source), string(have.Source))
	pick(&p.URL, have.URL)
	pick(&p.Version, have.Version)
	if p.Fingerprint.IsZero() {
		p.Fingerprint = have.Fingerprint
	}
	if p.TTL = p.TTL.Truncate(time.Millisecond); p.TTL == 0 {
		p.TTL = have.TTL
	}
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
func (s *Store) endpointOps(want, have peer.Peer, seen []peer.Sighting, now time.Time) []op {
	var ops []op
	addrs := want.Addrs[:min(len(want.Addrs), s.limits.Endpoints)]
	for _, a := range addrs {
		if have.Fingerprint == want.Fingerprint && slices.Contains(have.Addrs, a) {
			continue
		}
		source, link := want.Source, ""
		for _, sighting := range seen {
			if slices.Contains(sighting.Addrs, a) {
				source, link = sighting.Source, sighting.Link
				break
			}
		}
		ops = append(ops, op{`INSERT INTO endpoints (cluster_id, ip, zone, port, fingerprint, source, link, first_seen) VALUES (?, ?, ?, ?, ?, ?, ?, ?)
			ON CONFLICT (cluster_id, ip, zone, port) DO UPDATE SET fingerprint = excluded.fingerprint, source = excluded.source,
			link = excluded.link, gone_at = NULL`,
			[]any{string(want.ID), a.Addr().WithZone("").String(), a.Addr().Zone(), int64(a.Port()), fingerprintColumn(want.Fingerprint),
				string(source), link, millis(now)}})
	}
	for _, a := range have.Addrs {
		if !slices.Contains(addrs, a) {
			ops = append(ops, op{"UPDATE endpoints SET gone_at = ? WHERE cluster_id = ? AND ip = ? AND zone = ? AND port = ?",
				[]any{millis(now), string(want.ID), a.Addr().WithZone("").String(), a.Addr().Zone(), int64(a.Port())}})
		}
	}
	if len(ops) == 0 || have.ID == "" {
		return ops // nothing changed, or nothing old to drop
	}
	return append(ops, op{`DELETE FROM endpoints WHERE cluster_id = ?1 AND (ip, zone, port) IN (
		SELECT ip, zone, port FROM endpoints WHERE cluster_id = ?1 AND gone_at IS NOT NULL
		ORDER BY gone_at DESC LIMIT -1 OFFSET ?2)`, []any{string(want.ID), int64(s.limits.Endpoints - len(addrs))}})
}

// sightingOps makes the stored sightings of a peer those given. Those of a
// peer that is not stored, and is not about to be, come to nothing.
func (s *Store) sightingOps(id peer.ClusterID, seen, have []peer.Sighting) []op {
	want := map[peer.Key]peer.Sighting{}
	for _, sighting := range seen {
		sighting.ClusterID = id
		sighting.TTL = sighting.TTL.Truncate(time.Millisecond)
		sighting.Addrs = validAddrs(sighting.Addrs)
		if _, double := want[sighting.Key()]; double || len(want) < s.limits.Sightings {
			want[sighting.Key()] = sighting
		}
	}
	var ops []op
	for _, old := range have {
		if now, there := want[old.Key()]; there && now.Equal(old) {
			delete(want, old.Key())
		} else if !there {
			ops = append(ops, op{"DELETE FROM sightings WHERE cluster_id = ? AND source = ? AND link = ? AND domain = ? AND instance = ?",
				[]any{string(id), string(old.Source), old.Link, old.Domain, old.Instance}})
		}
	}
	for _, sighting := range seen { // in their order, for the same result every time
		w, changed := want[sighting.Key()]
		if !changed {
			continue
		}
		delete(want, sighting.Key())
		ops = append(ops, op{`INSERT OR REPLACE INTO sightings
			(cluster_id, source, link, domain, instance, cluster_name, namespace, fingerprint, version, addrs, url, ttl, changed_at)
			SELECT cluster_id, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ? FROM peers WHERE cluster_id = ?`,
			[]any{string(w.Source), w.Link, w.Domain, w.Instance, w.ClusterName, w.Namespace, fingerprintColumn(w.Fingerprint), w.Version,
				encodeAddrs(w.Addrs), w.URL, w.TTL.Milliseconds(), millis(s.now()), string(id)}})
	}
	return ops
}

func fingerprintColumn(f peer.Fingerprint) any {
	if f.IsZero() {
		return nil
	}
	return f[:]
}
