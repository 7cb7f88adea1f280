package cli

import (
	"cmp"
	"slices"
	"strings"

	urfave "github.com/urfave/cli/v2"

	"liqo.io/agent/agent/control"
	"liqo.io/agent/peer"
)

func (a *App) infoCommand() *urfave.Command {
	return a.leaf(leaf{
		name:  "info",
		usage: "show the peerings of this cluster, or everything about some",
		args:  "[[peer] PEER...]",
		about: "Show who this cluster is and how its peerings are, or with names everything about the peerings\n" +
			"with these clusters; info peer shows that about all of them. --get prints one field of the JSON output instead, named by its path; of\n" +
			"several clusters one on each line. " + peerArgument,
		examples: []string{"liqo-agent info", "liqo-agent info peer barn", "liqo-agent info barn silo", "liqo-agent info barn -o json",
			"liqo-agent info barn --get outgoing.joined", "liqo-agent info --get cluster.clusterId"},
		max:     -1,
		flags:   append(placeFlags(), &urfave.StringFlag{Name: "get", Usage: "print only this `FIELD`, such as trust.method or outgoing.steps.0.text"}),
		formats: []string{formatTable, formatJSON, formatYAML},
		words:   a.morePeerNames,
		values:  placeValues,
		run:     showInfo,
	})
}

const noPeerings = "There are no peerings. See who is there: liqo-agent peers list\n"

// overview is what "info" shows without names.
type overview struct {
	Cluster  control.Identity      `json:"cluster"`
	Peering  control.PeeringStatus `json:"peering"`
	Sharing  control.Sharing       `json:"sharing"`
	Trust    control.TrustStatus   `json:"trust"`
	Problems []control.Problem     `json:"problems"`
	Peers    []control.Peer        `json:"peers"` // with which there is a peering, or is to be one
}

func showInfo(c *call) error {
	client := c.client()
	defer client.Close()
	refs, every := c.args, false
	if len(refs) > 0 && refs[0] == peerWord {
		refs = refs[1:]
		every = len(refs) == 0
	}
	if len(refs) == 0 {
		view, err := c.overview(client)
		if err != nil {
			return err
		}
		if every {
			return c.showPeers(view.Peers, true)
		}
		if path := c.String("get"); path != "" {
			return c.get(path, view)
		}
		if !c.out.value(view) {
			c.out.overview(view)
		}
		return nil
	}
	peers := make([]control.Peer, 0, len(refs))
	for _, ref := range refs {
		p, err := client.Peer(c.Context.Context, ref)
		if err != nil {
			return err
		}
		peers = append(peers, p)
	}
	return c.showPeers(peers, len(peers) > 1)
}

// showPeers shows everything about peers, or one field of each; in JSON as an array, if
// list is set.
func (c *call) showPeers(peers []control.Peer, list bool) error {
	if path := c.String("get"); path != "" {
		for _, p := range peers {
			if err := c.get(path, p); err != nil {
				return err
			}
		}
		return nil
	}
	if list && c.out.value(peers) || !list && c.out.value(peers[0]) {
		return nil
	}
	if len(peers) == 0 {
		c.out.printf(noPeerings)
	}
	for i, p := range peers {
		if i > 0 {
			c.out.printf("\n")
		}
		c.out.peer(p)
	}
	return nil
}

func (c *call) overview(client *control.Client) (overview, error) {
	st, err := client.Status(c.Context.Context)
	if err != nil {
		return overview{}, err
	}
	known, err := client.Peers(c.Context.Context, true)
	if err != nil {
		return overview{}, err
	}
	active := slices.DeleteFunc(known, func(p control.Peer) bool {
		return p.Outgoing.Over() && p.Incoming.Over() && p.Request == nil
	})
	return overview{Cluster: st.Identity, Peering: st.Peering, Sharing: st.Sharing, Trust: st.Trust, Problems: st.Problems, Peers: active}, nil
}

func (p *printer) overview(v overview) {
	p.fields("", [2]string{"Cluster", named(v.Cluster.Name, v.Cluster.ClusterID)}, [2]string{"Namespace", v.Cluster.Namespace},
		[2]string{"Fingerprint", v.Cluster.Fingerprint}, [2]string{"Peering", peeringText(v.Peering)},
		[2]string{"Offers", offeringText(v.Sharing.Offering)}, [2]string{"Uses", usingText(v.Sharing.Using)}, [2]string{"Trust", trustText(v.Trust, p.now)})
	if v.Trust.Open != "" {
		p.printf("\n%s\n", p.red(openText(v.Trust)))
	}
	p.printf("\n")
	if len(v.Peers) == 0 {
		p.printf(noPeerings)
	} else {
		rows := make([]row, 0, len(v.Peers))
		for _, q := range v.Peers {
			health, color := healthOf(q)
			rows = append(rows, row{cells: []string{q.Label(), roleText(q.Role), outgoingWord(q), incomingWord(q), trustWord(q), health}, color: color})
		}
		p.table([]string{"NAME", "ROLE", "OUTGOING", "INCOMING", "TRUST", "HEALTH"}, rows)
	}
	p.sharing(v.Sharing, 0)
	if len(v.Problems) > 0 {
		p.printf("\n%s: liqo-agent status\n", count(len(v.Problems), "problem", "problems"))
	}
}

// healthOf says in a few words what is the matter with the peerings with a peer,
// or that nothing is.
func healthOf(p control.Peer) (text, color string) {
	var parts []string
	if p.Conflict != nil {
		parts = append(parts, "another key shows this ID")
	}
	if p.Phase != string(peer.PhasePresent) {
		part := strings.ToLower(p.Phase)
		if p.Reason != "" {
			part += ": " + p.Reason
		}
		parts = append(parts, part)
	}
	for _, d := range []control.Direction{p.Outgoing, p.Incoming} {
		if d.Message != "" && !d.Over() && d.Reason != joinedWord {
			parts = append(parts, d.Message)
		}
	}
	if one := p.Sharing.Provider; one != nil && one.Node != "" && !one.Ready && p.Outgoing.Joined {
		parts = append(parts, "its node is not ready: "+cmp.Or(one.Message, one.Reason))
	}
	if p.Request != nil && p.Request.State == requestPending && p.Incoming.Message == "" {
		parts = append(parts, "waits for a decision here: liqo-agent peers requests")
	}
	if len(parts) > 0 {
		color = colorYellow
		if p.Conflict != nil {
			color = colorRed
		}
		return strings.Join(parts, "; "), color
	}
	return "ok", ""
}

// requestPending is the state of a request that nobody decided about.
const requestPending = "Pending"
