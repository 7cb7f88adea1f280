package doctor

import (
	"context"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"

	"liqo.io/agent/agent/control"
	"liqo.io/agent/peer"
)

// databaseName is the file in the state directory.
const databaseName = "agent.db"

// self is who this cluster is, as far as that can be known.
type self struct {
	id  peer.ClusterID
	key string // fingerprint; "" = not known
}

// whoAreWe asks the agent, or else its database.
func (b *Box) whoAreWe(ctx context.Context) (self, []control.Peer, error) {
	says, err := b.agentSays(ctx)
	if err == nil {
		return self{peer.ClusterID(says.status.Identity.ClusterID), says.status.Identity.Fingerprint}, says.peers, nil
	}
	kept, dbErr := b.ask.database(ctx, filepath.Join(b.stateDir, databaseName))
	if dbErr != nil {
		return self{}, nil, err
	}
	return self{id: kept.id}, nil, nil
}

func checkClusterID(ctx context.Context, b *Box) []Finding {
	us, peers, err := b.whoAreWe(ctx)
	if err != nil {
		f := unasked(err)
		f.What += ", and its database does not contain the cluster ID"
		return []Finding{f}
	}
	found, heardErr := b.listen(ctx)
	all, err := b.ask.links()
	if heardErr != nil || err != nil {
		found.Clusters = nil
	}
	var own []netip.Addr
	for _, l := range all {
		for _, p := range l.Addrs {
			own = append(own, p.Addr())
		}
	}
	return judgeClusterID(us, peers, found.Clusters, own)
}

// judgeClusterID looks for others with our ID, and for peers whose ID somebody else
// shows. own are this machine's addresses.
func judgeClusterID(us self, peers []control.Peer, clusters []peer.Sighting, own []netip.Addr) []Finding {
	var out []Finding
	remedy := []string{"find out which of the two is a copy", "on the copy: sudo systemctl stop liqo-agent, delete its state directory, set cluster.id in its configuration " +
		"(or the ConfigMap cluster-id) to a new UUID, and start the agent"}
	for _, c := range clusters {
		if c.ClusterID != us.id {
			continue
		}
		at := place(c)
		switch {
		case us.key != "" && c.Fingerprint.String() != us.key:
			out = append(out, Finding{Code: "id-conflict", Status: Error,
				What: fmt.Sprintf("a cluster with another key shows the ID of this one, %s, at %s", us.id, at),
				Why:  "peers keep to the cluster that they knew first, and refuse the other one", Do: remedy})
		case !slices.ContainsFunc(c.Addrs, func(a netip.AddrPort) bool { return slices.Contains(own, a.Addr().WithZone("")) }):
			out = append(out, Finding{Code: "id-clone", Status: Error,
				What: fmt.Sprintf("somebody at %s shows the ID of this cluster, %s, and %s", at, us.id, sameKey(us)),
				Why:  "peers cannot distinguish a complete copy from this box: they reach one or the other, and what they share ends up on either", Do: remedy})
		}
	}
	for _, p := range peers {
		if c := p.Conflict; c != nil {
			out = append(out, Finding{Code: "peer-conflict", Status: Error,
				What: fmt.Sprintf("somebody at %s shows the cluster ID of %s with another key (%.16s...)", c.Address, p.Label(), c.Fingerprint),
				Why:  "one of the two is a copy, or somebody impersonates that cluster; the known one was not changed",
				Do: []string{"find out which of the two is a copy, and give the copy a new ID",
					"if its key was replaced on purpose, compare the code, then: liqo-agent peers trust " + p.ID}})
		}
	}
	if len(out) == 0 {
		out = append(out, fine("no other cluster shows %s", us.id))
	}
	return out
}

func sameKey(us self) string {
	if us.key == "" {
		return "the agent is not running here"
	}
	return "holds its key"
}

func place(s peer.Sighting) string {
	if len(s.Addrs) == 0 {
		return "an unknown address"
	}
	return s.Addrs[0].String()
}
