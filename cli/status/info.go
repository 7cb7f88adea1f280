package status

import (
	"cmp"
	"slices"
	"strings"

	urfave "github.com/urfave/cli/v2"

	"liqo.io/agent/agent/control"
	"liqo.io/agent/agent/socket/client"
	"liqo.io/agent/cli/command"
	"liqo.io/agent/cli/peers"
	"liqo.io/agent/cli/render"
	"liqo.io/agent/peer"
)

// InfoCommand returns the command that shows the peerings of this cluster.
func InfoCommand() command.Command {
	return command.Command{
		Name:  "info",
		Usage: "show the peerings of this cluster",
		Args:  "[[peer] PEER...]",
		About: "Show this cluster and its peerings. With names, show everything about the peerings with these\n" +
			"clusters; info peer does so for all of them. --get prints one field of the JSON output, named by\n" +
			"its path; for several clusters, one line each.\n" +
			command.PeerArgument,
		Examples: []string{"liqo-agent info", "liqo-agent info peer barn", "liqo-agent info barn silo", "liqo-agent info barn -o json",
			"liqo-agent info barn --get outgoing.joined", "liqo-agent info --get cluster.clusterId"},
		Max:   -1,
		Agent: true,
		Flags: []urfave.Flag{
			&urfave.StringFlag{Name: "get", Usage: "print only this `FIELD`, such as trust.method or outgoing.steps.0.text"},
		},
		Formats: []string{render.Table, render.JSON, render.YAML},
		Words:   peers.MoreNames,
		Run:     showInfo,
	}
}

const noPeerings = "No peerings. List other clusters: liqo-agent peers list\n"

// overview is what "info" shows without names.
type overview struct {
	Cluster  control.Identity       `json:"cluster"`
	Peering  control.PeeringStatus  `json:"peering"`
	Sharing  control.Sharing        `json:"sharing"`
	Network  control.NetworkSummary `json:"network"`
	Trust    control.TrustStatus    `json:"trust"`
	Problems []control.Problem      `json:"problems"`
	Peers    []control.Peer         `json:"peers"` // with which there is a peering, or is to be one
}

func showInfo(c *command.Call) error {
	client := c.Client()
	defer client.Close()
	refs, every := c.Args, false
	if len(refs) > 0 && refs[0] == peers.Word {
		refs = refs[1:]
		every = len(refs) == 0
	}
	if len(refs) == 0 {
		view, err := overviewOf(c, client)
		if err != nil {
			return err
		}
		if every {
			return showPeers(c, view.Peers, true)
		}
		if path := c.String("get"); path != "" {
			return get(c, path, view)
		}
		if !c.Out.Value(view) {
			printOverview(c.Out, view)
		}
		return nil
	}
	named := make([]control.Peer, 0, len(refs))
	for _, ref := range refs {
		p, err := client.Peer(c.Ctx(), ref)
		if err != nil {
			return err
		}
		named = append(named, p)
	}
	return showPeers(c, named, len(named) > 1)
}

// showPeers shows everything about peers, or one field of each; in JSON as an array, if
// list is set.
func showPeers(c *command.Call, shown []control.Peer, list bool) error {
	if path := c.String("get"); path != "" {
		for _, p := range shown {
			if err := get(c, path, p); err != nil {
				return err
			}
		}
		return nil
	}
	if list && c.Out.Value(shown) || !list && c.Out.Value(shown[0]) {
		return nil
	}
	if len(shown) == 0 {
		c.Out.Printf(noPeerings)
	}
	for i, p := range shown {
		if i > 0 {
			c.Out.Printf("\n")
		}
		peers.Print(c.Out, p)
	}
	return nil
}

func overviewOf(c *command.Call, client *client.Client) (overview, error) {
	st, err := client.Status(c.Ctx())
	if err != nil {
		return overview{}, err
	}
	known, err := client.Peers(c.Ctx(), true)
	if err != nil {
		return overview{}, err
	}
	active := slices.DeleteFunc(known, func(p control.Peer) bool {
		return p.Outgoing.Over() && p.Incoming.Over() && p.Request == nil
	})
	return overview{Cluster: st.Identity, Peering: st.Peering, Sharing: st.Sharing, Network: st.Network, Trust: st.Trust, Problems: st.Problems, Peers: active}, nil
}

func printOverview(p *render.Printer, v overview) {
	p.Fields("", [2]string{"Cluster", render.Named(v.Cluster.Name, v.Cluster.ClusterID)}, [2]string{"Namespace", v.Cluster.Namespace},
		[2]string{"Fingerprint", v.Cluster.Fingerprint}, [2]string{"Peering", peeringText(v.Peering)},
		[2]string{"Offers", offeringText(v.Sharing.Offering)}, [2]string{"Uses", usingText(v.Sharing.Using)},
		[2]string{"Network", networkText(v.Network)}, [2]string{"Trust", trustText(v.Trust, p.Now)})
	if v.Trust.Open != "" {
		p.Printf("\n%s\n", p.Paint(render.Red, render.Clean(openText(v.Trust))))
	}
	p.Printf("\n")
	if len(v.Peers) == 0 {
		p.Printf(noPeerings)
	} else {
		rows := make([]render.Row, 0, len(v.Peers))
		for _, q := range v.Peers {
			health, color := healthOf(q)
			rows = append(rows, render.Row{Cells: []string{q.Label(), peers.RoleText(q.Role), peers.OutgoingWord(q), peers.IncomingWord(q), peers.TrustWord(q), health}, Color: color})
		}
		p.Table([]string{"NAME", "ROLE", "OUTGOING", "INCOMING", "TRUST", "HEALTH"}, rows)
	}
	printSharing(p, v.Sharing, 0)
	if len(v.Problems) > 0 {
		p.Printf("\n%s: liqo-agent status\n", render.Count(len(v.Problems), "problem", "problems"))
	}
}

// healthOf says in a few words what is the matter with the peerings with a peer,
// or that nothing is.
func healthOf(p control.Peer) (text, color string) {
	var parts []string
	if p.Conflict != nil {
		parts = append(parts, "another key uses this ID")
	}
	if p.Phase != string(peer.PhasePresent) {
		part := strings.ToLower(p.Phase)
		if p.Reason != "" {
			part += ": " + p.Reason
		}
		parts = append(parts, part)
	}
	for _, d := range []control.Direction{p.Outgoing, p.Incoming} {
		if d.Message != "" && !d.Over() && d.Reason != peers.Joined {
			parts = append(parts, d.Message)
		}
	}
	if one := p.Sharing.Provider; one != nil && one.Node != "" && !one.Ready && p.Outgoing.Joined {
		parts = append(parts, "its node is not ready: "+cmp.Or(one.Message, one.Reason))
	}
	if p.Request != nil && p.Request.State == requestPending && p.Incoming.Message == "" {
		parts = append(parts, "request pending: liqo-agent peers requests")
	}
	if len(parts) > 0 {
		color = render.Yellow
		if p.Conflict != nil {
			color = render.Red
		}
		return strings.Join(parts, "; "), color
	}
	return "ok", ""
}

// requestPending is the state of a request that nobody decided about.
const requestPending = "Pending"
