package state

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"liqo.io/agent/peer"
)

var peerTable = describe(table[peer.Peer]{
	aspects: aspects{name: "peers", ofPeer: true, expired: "last_seen < ?1", unlessDecided: true},
	columns: func(p *peer.Peer) []column {
		return []column{{"cluster_id", (*clusterID)(&p.ID), key}, {"name", &p.Name, value}, {"namespace", &p.Namespace, value},
			{"fingerprint", (*hash)(&p.Fingerprint), value}, {"source", &p.Source, value}, {"url", &p.URL, value}, {"version", &p.Version, value},
			{"links", (*list)(&p.Links), value}, {"ttl", (*span)(&p.TTL), value},
			{"first_seen", at(&p.FirstSeen), once}, {"last_seen", at(&p.LastSeen), latest}}
	},
})

// endpointRow is an address a peer's key was seen at.
type endpointRow struct {
	id          peer.ClusterID
	ip, zone    string
	port        uint16
	Fingerprint peer.Fingerprint // the key that was there; zero when none was proven
	Source      peer.Source
	Link        string // network interface; "" when unknown
	FirstSeen   time.Time
	GoneAt      time.Time // zero: the peer's last known state still has it

	Addr netip.AddrPort // ip, zone and port
}

var endpointTable = describe(table[endpointRow]{
	aspects: aspects{name: "endpoints", ofPeer: true, expired: "gone_at < ?1"},
	columns: func(e *endpointRow) []column {
		return []column{{"cluster_id", (*clusterID)(&e.id), key}, {"ip", &e.ip, key}, {"zone", &e.zone, key}, {"port", &e.port, key},
			{"fingerprint", (*hash)(&e.Fingerprint), value}, {"source", &e.Source, along}, {"link", &e.Link, along},
			{"first_seen", at(&e.FirstSeen), once}, {"gone_at", atOrNull(&e.GoneAt), value}}
	},
})

// endpoints returns the rows that which selects. An address that a bit error on the
// disk has changed beyond reading is left out: it will be observed again.
func (s *Store) endpoints(ctx context.Context, which string, args ...any) (readable []endpointRow, err error) {
	rows, err := endpointTable.read(ctx, s.conn, which, args...)
	for _, e := range rows {
		var ok bool
		if e.Addr, ok = joinAddr(e.ip, e.zone, e.port); ok {
			readable = append(readable, e)
		}
	}
	return readable, err
}

type sightingRow struct {
	peer.Sighting
	changedAt time.Time
}

var sightingTable = describe(table[sightingRow]{
	aspects: aspects{name: "sightings", ofPeer: true},
	columns: func(r *sightingRow) []column {
		return []column{{"cluster_id", (*clusterID)(&r.ClusterID), key}, {"source", &r.Source, key}, {"link", &r.Link, key}, {"domain", &r.Domain, key},
			{"instance", &r.Instance, key}, {"cluster_name", &r.ClusterName, value}, {"namespace", &r.Namespace, value},
			{"fingerprint", (*hash)(&r.Fingerprint), value}, {"version", &r.Version, value}, {"addrs", (*addresses)(&r.Addrs), value},
			{"url", &r.URL, value}, {"ttl", (*span)(&r.TTL), value}, {"changed_at", at(&r.changedAt), along}}
	},
})

// ofPeer selects the rows of the peer with that ID, or all.
func ofPeer(id peer.ClusterID) (which string, args []any) {
	if id == "" {
		return "WHERE true", nil
	}
	return "WHERE cluster_id = ?", []any{string(id)}
}

// stored is what is stored of peers, by their IDs.
type stored struct {
	peers     map[peer.ClusterID]peer.Peer     // with their addresses
	endpoints map[peer.ClusterID][]endpointRow // those that they have, or had last
	sightings map[peer.ClusterID][]sightingRow
}

// stored returns what is stored of peers. However many are stored, only these are read.
func (s *Store) stored(ctx context.Context, ids []peer.ClusterID) (stored, error) {
	all := stored{map[peer.ClusterID]peer.Peer{}, map[peer.ClusterID][]endpointRow{}, map[peer.ClusterID][]sightingRow{}}
	list, err := json.Marshal(ids)
	if err != nil {
		return all, err
	}
	const these = "WHERE cluster_id IN (SELECT value FROM json_each(?))"
	peers, err := peerTable.read(ctx, s.conn, these, string(list))
	if err != nil {
		return all, err
	}
	endpoints, err := s.endpoints(ctx, these+" AND gone_at IS NULL", string(list))
	if err != nil {
		return all, err
	}
	sightings, err := sightingTable.read(ctx, s.conn, these, string(list))
	if err != nil {
		return all, err
	}
	for _, seen := range sightings {
		all.sightings[seen.ClusterID] = append(all.sightings[seen.ClusterID], seen)
	}
	for _, e := range endpoints {
		all.endpoints[e.id] = append(all.endpoints[e.id], e)
	}
	for _, p := range peers {
		for _, e := range all.endpoints[p.ID] {
			p.Addrs = append(p.Addrs, e.Addr)
		}
		slices.SortFunc(p.Addrs, netip.AddrPort.Compare)
		all.peers[p.ID] = p
	}
	return all, nil
}

// Peers returns every stored peer with its current addresses, or the last ones
// it had, sorted by cluster ID. Phase is Lost: whether it is there now is not
// a thing to remember.
func (s *Store) Peers(ctx context.Context) ([]peer.Peer, error) { return s.peers(ctx, "WHERE true") }

// Standing returns those of Peers that some source saw when they were last stored, and
// those that somebody decided something about; all of them if there are few.
func (s *Store) Standing(ctx context.Context) ([]peer.Peer, error) {
	return s.peers(ctx, "WHERE "+standing)
}

// Others returns those of Peers that are not among those of Standing: as many at most,
// the ones that were seen last.
func (s *Store) Others(ctx context.Context, most int) ([]peer.Peer, error) {
	return s.peers(ctx, "WHERE cluster_id IN (SELECT cluster_id FROM peers WHERE NOT "+standing+" ORDER BY last_seen DESC LIMIT ?)", int64(most))
}

// fewPeers is how many peers are read as fast as some of them.
const fewPeers = 1000

// standing selects the rows of the peers of Standing.
var standing = fmt.Sprintf("((SELECT count(*) FROM (SELECT 1 FROM peers LIMIT %d)) <= %d OR cluster_id IN (SELECT cluster_id FROM sightings UNION %s))",
	fewPeers+1, fewPeers, decided())

// peers returns the peers that which selects.
func (s *Store) peers(ctx context.Context, which string, args ...any) (peers []peer.Peer, err error) {
	err = s.read(ctx, func(ctx context.Context) (err error) {
		if peers, err = peerTable.read(ctx, s.conn, which, args...); err != nil {
			return err
		}
		endpoints, err := s.endpoints(ctx, "WHERE gone_at IS NULL AND cluster_id IN (SELECT cluster_id FROM peers "+which+")", args...)
		if err != nil {
			return err
		}
		rulings, err := s.rulings(ctx, "")
		slices.SortFunc(peers, func(a, b peer.Peer) int { return cmp.Compare(a.ID, b.ID) })
		for _, e := range endpoints {
			i, known := slices.BinarySearchFunc(peers, e.id, func(p peer.Peer, id peer.ClusterID) int { return cmp.Compare(p.ID, id) })
			if known {
				peers[i].Addrs = append(peers[i].Addrs, e.Addr)
			}
		}
		for i := range peers {
			p := &peers[i]
			slices.SortFunc(p.Addrs, netip.AddrPort.Compare)
			p.Phase, p.Alias = peer.PhaseLost, rulings[p.ID].Preferences.Alias
		}
		return err
	})
	return peers, err
}

// Seen returns the sightings of the peers that some source saw when they were last
// stored: at the start of an agent, of those that were there when the last one ended.
func (s *Store) Seen(ctx context.Context) (map[peer.ClusterID][]peer.Sighting, error) {
	rows, err := sightingTable.rows(ctx, s, "")
	seen := make(map[peer.ClusterID][]peer.Sighting)
	for _, row := range rows {
		seen[row.ClusterID] = append(seen[row.ClusterID], row.Sighting)
	}
	return seen, err
}
