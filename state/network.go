package state

import (
	"context"
	"database/sql/driver"
	"net/netip"
	"strings"

	"liqo.io/agent/peer"
)

// NetworkBlocks are the addresses under which the pods of two clusters know each other.
type NetworkBlocks struct {
	Pods   []netip.Prefix // of the peer's pods, in their cluster
	Theirs []netip.Prefix // what this cluster chose for them
	Ours   []netip.Prefix // what the peer chose for this cluster's pods
}

type networkRow struct {
	id peer.ClusterID
	NetworkBlocks
}

var networkTable = describe(table[networkRow]{
	aspects: aspects{name: "network", ofPeer: true},
	columns: func(r *networkRow) []column {
		return []column{{"cluster_id", (*clusterID)(&r.id), key}, {"pods", (*prefixes)(&r.Pods), value},
			{"theirs", (*prefixes)(&r.Theirs), value}, {"ours", (*prefixes)(&r.Ours), value}}
	},
})

// prefixes are a list of ranges of addresses. Those that a bit error on the disk has changed
// beyond reading are left out: they will be agreed on again.
type prefixes []netip.Prefix

func (p *prefixes) Scan(src any) error {
	var joined string
	err := (words{of: &joined}).Scan(src)
	*p = nil
	for _, word := range strings.Fields(joined) {
		if one, wrong := netip.ParsePrefix(word); wrong == nil {
			*p = append(*p, one)
		}
	}
	return err
}

func (p *prefixes) Value() (driver.Value, error) {
	kept := make([]string, 0, len(*p))
	for _, one := range *p {
		kept = append(kept, one.String())
	}
	return strings.Join(kept, " "), nil
}

// Networks returns the stored blocks of every peer that has any.
func (s *Store) Networks(ctx context.Context) (map[peer.ClusterID]NetworkBlocks, error) {
	rows, err := networkTable.rows(ctx, s, "")
	all := make(map[peer.ClusterID]NetworkBlocks, len(rows))
	for _, row := range rows {
		all[row.id] = row.NetworkBlocks
	}
	return all, err
}

// SetNetwork stores the blocks of a peer, and none if b has none. They are on the disk when the call returns.
// Nothing is written when they are stored just so already.
func (s *Store) SetNetwork(ctx context.Context, id peer.ClusterID, b NetworkBlocks) error {
	return s.change(ctx, onDisk, func(ctx context.Context) ([]op, error) {
		have, err := networkTable.one(ctx, s.conn, "WHERE cluster_id = ?", string(id))
		if err != nil {
			return nil, err
		}
		if len(b.Pods)+len(b.Theirs)+len(b.Ours) == 0 {
			return networkTable.change(have, nil)
		}
		return networkTable.change(have, &networkRow{id, b})
	})
}
