package state

import (
	"context"
	"database/sql"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"liqo.io/agent/peer"
)

const peerColumns = `SELECT p.cluster_id, p.name, p.namespace, p.fingerprint, p.source, p.url, p.version, p.links, p.ttl,
	p.first_seen, p.last_seen, ifnull(f.alias, '') FROM peers p LEFT JOIN preferences f USING (cluster_id)`

// Peers returns every stored peer with its current addresses, or the last ones
// it had, sorted by cluster ID. Phase is Lost: whether it is there now is not
// a thing to remember.
func (s *Store) Peers(ctx context.Context) ([]peer.Peer, error) {
	var peers []peer.Peer
	err := s.read(ctx, func(ctx context.Context) (err error) {
		peers, err = s.peers(ctx, "")
		return err
	})
	return peers, err
}

// peers returns the peer with the given ID, or all.
func (s *Store) peers(ctx context.Context, id peer.ClusterID) ([]peer.Peer, error) {
	where, args := "", []any(nil)
	if id != "" {
		where, args = " WHERE cluster_id = ?", []any{string(id)}
	}
	var peers []peer.Peer
	index := map[peer.ClusterID]int{}
	err := query(ctx, s.conn, func(scan func(...any) error) error {
		p := peer.Peer{Phase: peer.PhaseLost}
		var fingerprint []byte
		var links string
		var ttl, first, last int64
		if err := scan(&p.ID, &p.Name, &p.Namespace, &fingerprint, &p.Source, &p.URL, &p.Version, &links, &ttl, &first, &last, &p.Alias); err != nil {
			return err
		}
		p.Links = splitList(links)
		copy(p.Fingerprint[:], fingerprint)
		p.TTL = time.Duration(ttl) * time.Millisecond
		p.FirstSeen, p.LastSeen = fromMillis(first), fromMillis(last)
		index[p.ID] = len(peers)
		peers = append(peers, p)
		return nil
	}, peerColumns+where+" ORDER BY cluster_id", args...)
	if err != nil {
		return nil, err
	}
	if where != "" {
		where = " AND cluster_id = ?"
	}
	err = query(ctx, s.conn, func(scan func(...any) error) error {
		var id peer.ClusterID
		var ip, zone string
		var port uint16
		if err := scan(&id, &ip, &zone, &port); err != nil {
			return err
		}
		addr, valid := joinAddr(ip, zone, port)
		if i, known := index[id]; known && valid {
			peers[i].Addrs = append(peers[i].Addrs, addr)
		}
		return nil
	}, "SELECT cluster_id, ip, zone, port FROM endpoints WHERE gone_at IS NULL"+where, args...)
	for i := range peers {
		slices.SortFunc(peers[i].Addrs, netip.AddrPort.Compare)
	}
	return peers, err
}

// Endpoint is an address a peer's key was seen at.
type Endpoint struct {
	Addr        netip.AddrPort
	Fingerprint peer.Fingerprint // the key that was there; zero when none was proven
	Source      peer.Source
	Link        string // network interface; "" when unknown
	FirstSeen   time.Time
	GoneAt      time.Time // zero: the peer's last known state still has it
}

// Endpoints returns the addresses of a peer, current ones first, then those it
// had, latest first.
func (s *Store) Endpoints(ctx context.Context, id peer.ClusterID) ([]Endpoint, error) {
	var endpoints []Endpoint
	err := s.read(ctx, func(ctx context.Context) error {
		return query(ctx, s.conn, func(scan func(...any) error) error {
			var e Endpoint
			var ip, zone string
			var port uint16
			var fingerprint []byte
			var first int64
			var gone sql.NullInt64
			if err := scan(&ip, &zone, &port, &fingerprint, &e.Source, &e.Link, &first, &gone); err != nil {
				return err
			}
			var valid bool
			if e.Addr, valid = joinAddr(ip, zone, port); !valid {
				return nil
			}
			copy(e.Fingerprint[:], fingerprint)
			e.FirstSeen, e.GoneAt = fromMillis(first), fromMillis(gone.Int64)
			endpoints = append(endpoints, e)
			return nil
		}, `SELECT ip, zone, port, fingerprint, source, link, first_seen, gone_at FROM endpoints WHERE cluster_id = ?
			ORDER BY gone_at IS NOT NULL, gone_at DESC, ip, zone, port`, string(id))
	})
	return endpoints, err
}

// Sightings returns what each source said about a peer when it last changed.
func (s *Store) Sightings(ctx context.Context, id peer.ClusterID) ([]peer.Sighting, error) {
	var sightings []peer.Sighting
	err := s.read(ctx, func(ctx context.Context) (err error) {
		if id != "" {
			sightings, err = s.sightings(ctx, id)
		}
		return err
	})
	return sightings, err
}

// sightings returns the sightings of the peer with the given ID, or all.
func (s *Store) sightings(ctx context.Context, id peer.ClusterID) ([]peer.Sighting, error) {
	where, args := "", []any(nil)
	if id != "" {
		where, args = " WHERE cluster_id = ?", []any{string(id)}
	}
	var sightings []peer.Sighting
	err := query(ctx, s.conn, func(scan func(...any) error) error {
		var seen peer.Sighting
		var fingerprint []byte
		var addrs string
		var ttl int64
		if err := scan(&seen.ClusterID, &seen.Source, &seen.Link, &seen.Domain, &seen.Instance, &seen.ClusterName, &seen.Namespace, &fingerprint, &seen.Version, &addrs, &seen.URL, &ttl); err != nil {
			return err
		}
		seen.Addrs = decodeAddrs(addrs)
		copy(seen.Fingerprint[:], fingerprint)
		seen.TTL = time.Duration(ttl) * time.Millisecond
		sightings = append(sightings, seen)
		return nil
	}, `SELECT cluster_id, source, link, domain, instance, cluster_name, namespace, fingerprint, version, addrs, url, ttl
		FROM sightings`+where+" ORDER BY cluster_id, source, link, domain, instance", args...)
	return sightings, err
}

// HistoryQuery selects events. The zero value selects all.
type HistoryQuery struct {
	ID    peer.ClusterID // "" is every peer
	Since time.Time      // zero is from the beginning
	Limit int            // the newest so many; 0 is all
}

// History returns the selected events, oldest first.
func (s *Store) History(ctx context.Context, q HistoryQuery) ([]peer.Event, error) {
	limit := q.Limit
	if limit <= 0 {
		limit = -1
	}
	var events []peer.Event
	err := s.read(ctx, func(ctx context.Context) error {
		return query(ctx, s.conn, func(scan func(...any) error) error {
			var e peer.Event
			var at int64
			if err := scan(&at, &e.ID, &e.Kind, &e.Detail); err != nil {
				return err
			}
			e.At = fromMillis(at)
			events = append(events, e)
			return nil
		}, "SELECT at, cluster_id, kind, detail FROM events WHERE (?1 = '' OR cluster_id = ?1) AND at >= ?2 ORDER BY id DESC LIMIT ?3",
			string(q.ID), millis(q.Since), int64(limit))
	})
	slices.Reverse(events)
	return events, err
}

// Lists are kept in one column with a separator that neither an interface name
// nor an address can contain (the kernel refuses '/' and white space in names).
// The bytes between are kept as they are, so every zone reads back.
const listSeparator = "/"

func splitList(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(text, listSeparator)
}

func encodeAddrs(addrs []netip.AddrPort) string {
	words := make([]string, 0, len(addrs))
	for _, a := range addrs {
		words = append(words, fmt.Sprintf("%s %d %s", a.Addr().WithZone(""), a.Port(), a.Addr().Zone()))
	}
	return strings.Join(words, listSeparator)
}

func decodeAddrs(text string) []netip.AddrPort {
	var addrs []netip.AddrPort
	for _, word := range splitList(text) {
		ip, rest, _ := strings.Cut(word, " ")
		port, zone, _ := strings.Cut(rest, " ")
		number, err := strconv.ParseUint(port, 10, 16)
		if addr, ok := joinAddr(ip, zone, uint16(number)); ok && err == nil {
			addrs = append(addrs, addr)
		}
	}
	return addrs
}

// joinAddr reads an address back. One that a bit error on the disk has changed
// beyond reading is left out: it will be observed again.
func joinAddr(ip, zone string, port uint16) (netip.AddrPort, bool) {
	addr, err := netip.ParseAddr(ip)
	return netip.AddrPortFrom(addr.WithZone(zone), port), err == nil
}

func validAddrs(addrs []netip.AddrPort) []netip.AddrPort {
	return slices.DeleteFunc(slices.Clone(addrs), func(a netip.AddrPort) bool { return !a.IsValid() })
}
