package cli

import (
	"context"
	"errors"
	"strings"
	"time"

	urfave "github.com/urfave/cli/v2"

	"liqo.io/agent/agent/control"
)

func (a *App) advertsCommand() *urfave.Command {
	return a.branch("adverts", "show what other clusters offer, accept it or refuse it",
		"Show what the clusters offer whose resources this one is to use (their Advertisements), and\n"+
			"decide about it. With sharing.accept_policy = \"auto\" the agent accepts offers by itself.",
		[]string{"liqo-agent adverts list", "liqo-agent adverts accept barn"},
		a.advertsListCommand(), a.advertsShowCommand(),
		a.advertCommand("accept", "use what a cluster offers",
			"Use what a cluster offers, whatever sharing.accept_policy and sharing.max_accepted say: a node is\n"+
				"made that stands for it. The decision holds until the offer is withdrawn, or refused.\n"+peerArgument, true, "The offer of %s is accepted."),
		a.advertCommand("refuse", "do not use what a cluster offers",
			"Do not use what a cluster offers, whatever sharing.accept_policy says. A node that stands for it\n"+
				"is drained and removed; the peering stays. The decision holds until the offer is withdrawn, or\n"+
				"accepted. "+peerArgument, false, "The offer of %s is refused."))
}

func (a *App) advertsListCommand() *urfave.Command {
	return a.leaf(leaf{
		name:  "list",
		usage: "list what other clusters offer",
		about: "List what the clusters offer whose resources this one is to use, what was decided about it, and\n" +
			"the nodes that stand for it.",
		examples: []string{"liqo-agent adverts list", "liqo-agent adverts list -o json | jq -r '.[] | select(.status == \"Pending\") | .name'"},
		flags:    placeFlags(),
		formats:  []string{formatTable, formatJSON, formatYAML},
		values:   placeValues,
		run: func(c *call) error {
			client := c.client()
			defer client.Close()
			known, err := client.Adverts(c.Context.Context)
			switch {
			case err != nil:
				return c.withoutOffers(err)
			case c.out.value(known):
			case len(known) == 0:
				c.out.printf("No cluster offers anything to this one.\nUse the resources of one: liqo-agent peers connect PEER\n")
			default:
				c.out.adverts(known)
			}
			return nil
		},
	})
}

func (a *App) advertsShowCommand() *urfave.Command {
	return a.leaf(leaf{
		name:  "show",
		usage: "show everything that a cluster offers",
		args:  "PEER",
		about: "Show what a cluster offers, until when, what was decided about it and by whom, and how the node\n" +
			"stands that was made for it. " + peerArgument,
		examples: []string{"liqo-agent adverts show barn", "liqo-agent adverts show barn -o json | jq .resources"},
		min:      1, max: 1,
		flags:   placeFlags(),
		formats: []string{formatText, formatJSON, formatYAML},
		words:   a.advertNames,
		values:  placeValues,
		run: func(c *call) error {
			client := c.client()
			defer client.Close()
			one, err := client.Advert(c.Context.Context, c.args[0])
			if err != nil {
				return c.withoutOffers(err)
			}
			if !c.out.value(one) {
				c.out.advert(one)
			}
			return nil
		},
	})
}

// advertCommand is a decision about an offer.
func (a *App) advertCommand(name, usage, about string, accept bool, told string) *urfave.Command {
	return a.leaf(leaf{
		name: name, usage: usage, about: about, args: "PEER",
		examples: []string{"liqo-agent adverts " + name + " barn"},
		min:      1, max: 1,
		flags:   placeFlags(),
		formats: []string{formatText, formatJSON, formatYAML},
		words:   a.advertNames,
		values:  placeValues,
		run: func(c *call) error {
			client := c.client()
			defer client.Close()
			one, err := client.DecideAdvert(c.Context.Context, c.args[0], accept)
			if err != nil {
				return c.interrupted(c.withoutOffers(err))
			}
			if !c.out.value(one) {
				c.out.printf(told+"\n", clean(one.Name))
			}
			return nil
		},
	})
}

// withoutOffers says where offers are when the agent is not there to tell.
func (c *call) withoutOffers(err error) error {
	if errors.Is(err, control.ErrNotRunning) {
		c.note("offers are kept in the API server of this cluster only; to see them there: kubectl get advertisements")
	}
	return err
}

// advertNames offers the clusters that offer something.
func (a *App) advertNames(ctx context.Context, t typed) []candidate {
	client := a.asked(t)
	if client == nil || t.arguments > 0 {
		return nil
	}
	defer client.Close()
	known, err := client.Adverts(ctx)
	if err != nil {
		return nil // there is nothing to offer, and no place for an error
	}
	out := make([]candidate, 0, len(known))
	for _, one := range known {
		out = append(out, candidate{value: one.Name, text: one.Status + ", " + amountsText(one.Resources)})
	}
	return out
}

func (p *printer) adverts(known []control.Advert) {
	rows := make([]row, 0, len(known))
	for _, one := range known {
		r := row{cells: []string{one.Name, one.Status, one.Resources["cpu"], one.Resources["memory"], one.Resources["pods"], one.Arch, nodeWord(one), p.since(one.CreatedAt), one.Reason}}
		if one.Status != control.AdvertAccepted || one.Expired || one.Node != "" && !one.NodeReady {
			r.color = colorYellow
		}
		rows = append(rows, r)
	}
	p.table([]string{"PEER", "STATUS", "CPU", "MEMORY", "PODS", "ARCH", "NODE", "AGE", "REASON"}, rows)
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

// advert writes everything about one offer.
func (p *printer) advert(one control.Advert) {
	status := one.Status
	if one.Message != "" {
		status += ": " + one.Message
	}
	platform := strings.Trim(one.OS+"/"+one.Arch, "/")
	p.fields("",
		[2]string{"Peer", one.Name}, [2]string{"ID", one.ID}, [2]string{"Status", status}, [2]string{"Reason", one.Reason}, [2]string{"Decided with", one.DecidedBy},
		[2]string{"Resources", amountsText(one.Resources)}, [2]string{"Platform", platform}, [2]string{"Labels", pairsText(one.Labels)},
		[2]string{"Images", imagesText(one.Images)}, [2]string{"Offered", p.when(one.OfferedAt) + byTheirClock(one.OfferedAt)}, [2]string{"Until", p.offeredUntil(one)},
		[2]string{"Node", nodeText(one.Node, one.NodeReady, one.NodeReason, one.NodeMessage, one.Pods)}, [2]string{"Here since", p.when(one.CreatedAt)},
	)
	if one.Status == control.AdvertPending {
		// By its ID: what a cluster calls itself is not to be pasted into a shell.
		p.printf("\nTo use it: liqo-agent adverts accept %s\nNot to: liqo-agent adverts refuse %s\n", clean(one.ID), clean(one.ID))
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
func (p *printer) offeredUntil(one control.Advert) string {
	if one.ExpiresAt.IsZero() {
		return ""
	}
	text := stamp(one.ExpiresAt) + byTheirClock(one.ExpiresAt) + ", unless it is renewed"
	if one.Expired {
		text += "; it was not, and has ended"
	}
	return text
}
