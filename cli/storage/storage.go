package storage

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	urfave "github.com/urfave/cli/v2"
	"k8s.io/apimachinery/pkg/api/resource"

	"liqo.io/agent/agent/control"
	"liqo.io/agent/agent/socket/client"
	"liqo.io/agent/cli/command"
	"liqo.io/agent/cli/render"
)

// Command returns the commands about storage.
func Command() command.Command {
	return command.Command{
		Name:     "storage",
		Usage:    "show what claims keep at other clusters, and others keep here",
		About:    "Show where the data of PersistentVolumeClaims of this cluster is, and those of consumers here.",
		Examples: []string{"liqo-agent storage list"},
		Commands: []command.Command{listCommand(), reclaimCommand()},
	}
}

func listCommand() command.Command {
	return command.Command{
		Name:  "list",
		Usage: "list claims at other clusters, and those of others here",
		About: "List the claims of the agent's storage class with the cluster that has their data, and how many claims\n" +
			"each consumer has in this cluster. SIZE is what they ask for. Claims of a consumer whose peering has\n" +
			"ended are Retained: they are removed at the time shown, or by storage reclaim.",
		Examples: []string{"liqo-agent storage list", "liqo-agent storage list -o json | jq -r '.own[] | select(.state == \"Parted\") | .claim'"},
		Agent:    true,
		Formats:  []string{render.Table, render.JSON, render.YAML},
		Run: func(c *command.Call) error {
			client := c.Client()
			defer client.Close()
			known, err := client.Storage(c.Ctx())
			if err != nil {
				return err
			}
			if !c.Out.Value(known) {
				printStorage(c.Out, known)
			}
			return nil
		},
	}
}

func printStorage(p *render.Printer, known control.Storage) {
	if len(known.Own) == 0 {
		p.Printf("No claim of this cluster is at a provider. Claims of class %s are, if their first pod runs there.\n", render.Clean(known.Class))
	} else {
		rows := make([]render.Row, 0, len(known.Own))
		for _, o := range known.Own {
			r := render.Row{Cells: []string{o.Namespace, o.Claim, cmp.Or(o.Name, o.ID, "this cluster"), size(o.Bytes), o.State, p.Ago(o.Since)}}
			if o.State != "Bound" && o.State != "Home" {
				r.Color = render.Yellow
			}
			rows = append(rows, r)
		}
		p.Table([]string{"NAMESPACE", "CLAIM", "AT", "SIZE", "STATE", "SINCE"}, rows)
		for _, o := range known.Own {
			if o.Message != "" {
				p.Item("  - ", fmt.Sprintf("%s/%s: %s", o.Namespace, o.Claim, o.Message), "")
			}
		}
	}
	p.Printf("\n")
	if len(known.Guests) == 0 {
		if known.OfferedBytes == 0 {
			p.Printf("This cluster offers no storage (sharing.storage).\n")
		} else {
			p.Printf("No other cluster has claims here. %s are offered.\n", size(known.OfferedBytes))
		}
		return
	}
	rows := make([]render.Row, 0, len(known.Guests))
	for _, g := range known.Guests {
		until := ""
		r := render.Row{}
		if g.State == control.StorageRetained {
			until, r.Color = render.Stamp(g.Until), render.Yellow
		}
		r.Cells = []string{cmp.Or(g.Name, g.ID), fmt.Sprint(g.Claims), size(g.Bytes), g.State, until}
		rows = append(rows, r)
	}
	p.Table([]string{"CONSUMER", "CLAIMS", "SIZE", "STATE", "UNTIL"}, rows)
}

func reclaimCommand() command.Command {
	return command.Command{
		Name:  "reclaim",
		Usage: "remove the retained claims of a cluster, with their data",
		Args:  "PEER",
		About: "Remove the claims that a cluster had here, with their data, before the time of sharing.storage_keep is over.\n" +
			"Its peering has to be over. PEER is its name or ID, as in storage list.",
		Examples: []string{"liqo-agent storage reclaim shed", "liqo-agent storage reclaim shed --yes"},
		Min:      1, Max: 1,
		Agent:   true,
		Flags:   []urfave.Flag{command.YesOption("do not ask")},
		Formats: []string{render.Text, render.JSON, render.YAML},
		Words:   guestNames,
		Run:     reclaim,
	}
}

// guestNames offers those who have claims here.
func guestNames(ctx context.Context, t command.Typed) []command.Candidate {
	return command.Listed(ctx, t, func(c *client.Client, ctx context.Context) ([]control.GuestStorage, error) {
		known, err := c.Storage(ctx)
		return known.Guests, err
	}, func(g control.GuestStorage) command.Candidate {
		return command.Candidate{Value: cmp.Or(g.Name, g.ID), Text: g.State}
	})
}

// size writes bytes as in a claim.
func size(bytes int64) string { return resource.NewQuantity(bytes, resource.BinarySI).String() }

func reclaim(c *command.Call) error {
	client := c.Client()
	defer client.Close()
	known, err := client.Storage(c.Ctx())
	if err != nil {
		return err
	}
	var found []control.GuestStorage
	for _, g := range known.Guests {
		if g.ID == c.Args[0] || g.Name == c.Args[0] || len(c.Args[0]) >= 8 && strings.HasPrefix(g.ID, c.Args[0]) {
			found = append(found, g)
		}
	}
	switch {
	case len(found) == 0:
		return &command.Error{Message: fmt.Sprintf("%q has no claims in this cluster", c.Args[0]), Advice: command.Name + " storage list", Code: command.ExitNotFound}
	case len(found) > 1:
		return command.UsageError(fmt.Sprintf("%q means %d clusters: use the ID", c.Args[0], len(found)), command.Name+" storage list -o json")
	}
	g := found[0]
	if err := c.Sure(fmt.Sprintf("Remove %s of %s with %s of data? It cannot be undone.", render.Count(g.Claims, "claim", "claims"), render.Clean(render.Named(g.Name, g.ID)), size(g.Bytes))); err != nil {
		return err
	}
	removed, err := client.ReclaimStorage(c.Ctx(), g.ID)
	if err != nil {
		return c.Interrupted(err)
	}
	if !c.Out.Value(removed) {
		c.Out.Printf("%s of %s are being removed.\n", render.Count(removed.Claims, "claim", "claims"), render.Clean(cmp.Or(g.Name, g.ID)))
	}
	return nil
}
