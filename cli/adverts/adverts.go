package adverts

import (
	"context"
	"errors"
	"strings"
	"time"

	"liqo.io/agent/agent/control"
	"liqo.io/agent/agent/socket/client"
	"liqo.io/agent/cli/command"
	"liqo.io/agent/cli/render"
)

// Command returns the commands about the offers of other clusters.
func Command() command.Command {
	return command.Command{
		Name:  "adverts",
		Usage: "show, accept or refuse what other clusters offer",
		About: "Show what other clusters offer to this one (their Advertisements), and accept or refuse it. With\n" +
			"sharing.accept_policy = \"auto\", the agent accepts offers automatically.",
		Examples: []string{"liqo-agent adverts list", "liqo-agent adverts accept barn"},
		Commands: []command.Command{
			listCommand(),
			showCommand(),
			decisionCommand("accept", "accept the offer of a cluster",
				"Accept what a cluster offers, regardless of sharing.accept_policy and sharing.max_accepted. The agent\n"+
					"creates a node for it. The decision holds until the offer is withdrawn, or you refuse it.\n"+
					command.PeerArgument, true, "Accepted the offer of %s."),
			decisionCommand("refuse", "refuse the offer of a cluster",
				"Refuse what a cluster offers, regardless of sharing.accept_policy. Its node is drained and removed;\n"+
					"the peering stays. The decision holds until the offer is withdrawn, or you accept it.\n"+
					command.PeerArgument, false, "Refused the offer of %s."),
		},
	}
}

func listCommand() command.Command {
	return command.Command{
		Name:     "list",
		Usage:    "list the offers of other clusters",
		About:    "List what other clusters offer to this one, the decision about each offer, and its node.",
		Examples: []string{"liqo-agent adverts list", "liqo-agent adverts list -o json | jq -r '.[] | select(.status == \"Pending\") | .name'"},
		Agent:    true,
		Formats:  []string{render.Table, render.JSON, render.YAML},
		Run: func(c *command.Call) error {
			client := c.Client()
			defer client.Close()
			known, err := client.Adverts(c.Ctx())
			switch {
			case err != nil:
				return withoutOffers(c, err)
			case c.Out.Value(known):
			case len(known) == 0:
				c.Out.Printf("No offers. Connect to a cluster to get one: liqo-agent peers connect PEER\n")
			default:
				printAdverts(c.Out, known)
			}
			return nil
		},
	}
}

func showCommand() command.Command {
	return command.Command{
		Name:  "show",
		Usage: "show the offer of a cluster",
		Args:  "PEER",
		About: "Show what a cluster offers and until when, the decision about the offer and who made it, and the\n" +
			"state of its node.\n" +
			command.PeerArgument,
		Examples: []string{"liqo-agent adverts show barn", "liqo-agent adverts show barn -o json | jq .resources"},
		Min:      1, Max: 1,
		Agent:   true,
		Formats: []string{render.Text, render.JSON, render.YAML},
		Words:   advertNames,
		Run: func(c *command.Call) error {
			client := c.Client()
			defer client.Close()
			one, err := client.Advert(c.Ctx(), c.Args[0])
			if err != nil {
				return withoutOffers(c, err)
			}
			if !c.Out.Value(one) {
				printAdvert(c.Out, one)
			}
			return nil
		},
	}
}

// decisionCommand is a decision about an offer.
func decisionCommand(name, usage, about string, accept bool, told string) command.Command {
	return command.Command{
		Name: name, Usage: usage, About: about, Args: "PEER",
		Examples: []string{"liqo-agent adverts " + name + " barn"},
		Min:      1, Max: 1,
		Agent:   true,
		Formats: []string{render.Text, render.JSON, render.YAML},
		Words:   advertNames,
		Run: func(c *command.Call) error {
			client := c.Client()
			defer client.Close()
			one, err := client.DecideAdvert(c.Ctx(), c.Args[0], accept)
			if err != nil {
				return c.Interrupted(withoutOffers(c, err))
			}
			if !c.Out.Value(one) {
				c.Out.Printf(told+"\n", render.Clean(one.Name))
			}
			return nil
		},
	}
}

// withoutOffers says where offers are when the agent is not there to tell.
func withoutOffers(c *command.Call, err error) error {
	if errors.Is(err, control.ErrNotRunning) {
		c.Note("offers are stored only in the API server of this cluster; to list them: kubectl get advertisements")
	}
	return err
}

// advertNames offers the clusters that offer something.
func advertNames(ctx context.Context, t command.Typed) []command.Candidate {
	return command.Listed(ctx, t, (*client.Client).Adverts, func(one control.Advert) command.Candidate {
		return command.Candidate{Value: one.Name, Text: one.Status + ", " + AmountsText(one.Resources)}
	})
}

func printAdverts(p *render.Printer, known []control.Advert) {
	rows := make([]render.Row, 0, len(known))
	for _, one := range known {
		r := render.Row{Cells: []string{one.Name, one.Status, one.Resources["cpu"], one.Resources["memory"], one.Resources["pods"], one.Arch, nodeWord(one), p.Since(one.CreatedAt), one.Reason}}
		if one.Status != control.AdvertAccepted || one.Expired || one.Node != "" && !one.NodeReady {
			r.Color = render.Yellow
		}
		rows = append(rows, r)
	}
	p.Table([]string{"PEER", "STATUS", "CPU", "MEMORY", "PODS", "ARCH", "NODE", "AGE", "REASON"}, rows)
}

// nodeWord is whether there is a node for an offer, in a word or two.
func nodeWord(one control.Advert) string {
	switch {
	case one.Node == "":
		return ""
	case one.NodeReady:
		return "ready"
	case one.NodeReason != "":
		return one.NodeReason
	}
	return "not ready"
}

// printAdvert writes everything about one offer.
func printAdvert(p *render.Printer, one control.Advert) {
	status := one.Status
	if one.Message != "" {
		status += ": " + one.Message
	}
	platform := strings.Trim(one.OS+"/"+one.Arch, "/")
	p.Fields("",
		[2]string{"Peer", one.Name}, [2]string{"ID", one.ID}, [2]string{"Status", status}, [2]string{"Reason", one.Reason}, [2]string{"Decided with", one.DecidedBy},
		[2]string{"Resources", AmountsText(one.Resources)}, [2]string{"Platform", platform}, [2]string{"Labels", pairsText(one.Labels)},
		[2]string{"Images", imagesText(one.Images)}, [2]string{"Offered", p.When(one.OfferedAt) + byTheirClock(one.OfferedAt)}, [2]string{"Until", offeredUntil(p, one)},
		[2]string{"Node", nodeText(one.Node, one.NodeReady, one.NodeReason, one.NodeMessage, one.Pods)}, [2]string{"Received", p.When(one.CreatedAt)},
	)
	if one.Status == control.AdvertPending {
		// By its ID: what a cluster calls itself is not to be pasted into a shell.
		p.Printf("\nAccept it: liqo-agent adverts accept %s\nRefuse it: liqo-agent adverts refuse %s\n", render.Clean(one.ID), render.Clean(one.ID))
	}
}

// byTheirClock says whose clock shows a time.
func byTheirClock(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return ", by the provider's clock"
}

// offeredUntil says when an offer ends.
func offeredUntil(p *render.Printer, one control.Advert) string {
	if one.ExpiresAt.IsZero() {
		return ""
	}
	text := render.Stamp(one.ExpiresAt) + byTheirClock(one.ExpiresAt) + ", unless it is renewed"
	if one.Expired {
		text += "; it has expired"
	}
	return text
}
