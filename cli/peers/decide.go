package peers

import (
	"cmp"
	"context"
	"fmt"

	urfave "github.com/urfave/cli/v2"

	"liqo.io/agent/agent/control"
	"liqo.io/agent/agent/socket/client"
	"liqo.io/agent/cli/command"
	"liqo.io/agent/cli/render"
	"liqo.io/agent/peer"
)

func requestsCommand() command.Command {
	return command.Command{
		Name:  "requests",
		Usage: "list clusters that ask to use this one",
		About: "List the clusters that ask to use the resources of this one and wait for your decision, and\n" +
			"those that were rejected and still ask.",
		Examples: []string{"liqo-agent peers requests", "liqo-agent peers accept silo", "liqo-agent peers requests -o json | jq -r '.[].id'"},
		Agent:    true,
		Formats:  []string{render.Table, render.JSON, render.YAML},
		Run:      listRequests,
	}
}

func listRequests(c *command.Call) error {
	client := c.Client()
	defer client.Close()
	asked, err := client.Requests(c.Ctx())
	if err != nil {
		return err
	}
	switch {
	case c.Out.Value(asked):
		return nil
	case len(asked) == 0:
		c.Out.Printf("No requests.\n")
		return nil
	}
	rows := make([]render.Row, 0, len(asked))
	for _, r := range asked {
		rows = append(rows, render.Row{Cells: []string{cmp.Or(r.Name, r.ID), r.ID, r.State, c.Out.Ago(r.Since), r.Code, r.Address, r.Message}})
	}
	c.Out.Table([]string{"NAME", "ID", "STATE", "SINCE", "CODE", "ADDRESS", "MESSAGE"}, rows)
	return nil
}

func acceptCommand() command.Command {
	return command.Command{
		Name:  "accept",
		Usage: "let a cluster use this one",
		Args:  "PEER",
		About: "Let a cluster use the resources of this one, now and in future. You can accept a cluster before\n" +
			"it asks. If its key is not trusted yet, compare the code on this screen with the code on the\n" +
			"other cluster.\n" +
			command.PeerArgument,
		Examples: []string{"liqo-agent peers accept silo", "liqo-agent peers accept 9c1b7c1e --fingerprint 0a1b..."},
		Min:      1, Max: 1,
		Agent:   true,
		Flags:   confirmFlags(),
		Formats: []string{render.Text, render.JSON, render.YAML},
		Words:   askerNames,
		Run: func(c *command.Call) error {
			client := c.Client()
			defer client.Close()
			p, err := confirming(c, client, false, func(fp peer.Fingerprint) (control.Peer, error) {
				return client.Accept(c.Ctx(), c.Args[0], fp)
			})
			return told(c, p, err, "%s may use this cluster.", p.Label())
		},
	}
}

// decision describes a command that tells the agent one decision about one peer,
// and nothing else.
type decision struct {
	name, usage, about string
	example            string
	asks               bool // it is about those who wait for a decision
	call               func(client *client.Client, ctx context.Context, ref string) (control.Peer, error)
	told               string // with the peer's label
}

func decisionCommand(d decision) command.Command {
	words := peerNames
	if d.asks {
		words = askerNames
	}
	return command.Command{
		Name: d.name, Usage: d.usage, About: d.about, Args: "PEER",
		Examples: []string{d.example},
		Min:      1, Max: 1,
		Agent:   true,
		Formats: []string{render.Text, render.JSON, render.YAML},
		Words:   words,
		Run: func(c *command.Call) error {
			client := c.Client()
			defer client.Close()
			p, err := d.call(client, c.Ctx(), c.Args[0])
			return told(c, p, c.Interrupted(err), d.told, p.Label())
		},
	}
}

// told ends a command whose decision was taken: by saying so, or by showing the
// peer.
func told(c *command.Call, p control.Peer, err error, format, label string) error {
	if err != nil {
		return err
	}
	if !c.Out.Value(p) {
		c.Out.Printf(format+"\n", render.Clean(label))
	}
	return nil
}

func rejectCommand() command.Command {
	return decisionCommand(decision{
		name: "reject", usage: "reject the request of a cluster", asks: true,
		about: "Reject the request of a cluster that waits for your decision. The cluster is told. The rejection\n" +
			"holds until you accept the cluster. To ignore a cluster completely, block it.",
		example: "liqo-agent peers reject silo",
		call:    (*client.Client).Reject,
		told:    "Rejected the request of %s.",
	})
}

func blockCommand() command.Command {
	return decisionCommand(decision{
		name: "block", usage: "block a cluster in both directions",
		about: "End all peerings with a cluster, and refuse it in both directions until you unblock it. The host\n" +
			"name that a public certificate vouched for is blocked too.\n" +
			command.PeerArgument,
		example: "liqo-agent peers block silo",
		call:    (*client.Client).Block,
		told:    "Blocked %s.",
	})
}

func unblockCommand() command.Command {
	return decisionCommand(decision{
		name: "unblock", usage: "unblock a cluster",
		about: "Unblock a cluster. Peerings that the block ended stay ended until you connect or accept again.\n" +
			command.PeerArgument,
		example: "liqo-agent peers unblock silo",
		call:    (*client.Client).Unblock,
		told:    "Unblocked %s.",
	})
}

func trustCommand() command.Command {
	return command.Command{
		Name:  "trust",
		Usage: "mark a peer's key as trusted (--remove: as not trusted)",
		Args:  "PEER",
		About: "Mark the key that a cluster shows as trusted. First compare the code with the code on the other\n" +
			"cluster. This is also how you accept a key that changed. With --remove, no key of that cluster\n" +
			"is trusted any more, and the peerings with it end.\n" +
			command.PeerArgument,
		Examples: []string{"liqo-agent peers trust barn", "liqo-agent peers trust barn --fingerprint 0a1b...", "liqo-agent peers trust barn --remove"},
		Min:      1, Max: 1,
		Agent:   true,
		Flags:   append(confirmFlags(), &urfave.BoolFlag{Name: "remove", Usage: "do not trust the key any more"}),
		Formats: []string{render.Text, render.JSON, render.YAML},
		Words:   askerNames,
		Run:     trustPeer,
	}
}

func trustPeer(c *command.Call) error {
	remove := c.Bool("remove")
	if remove && (c.IsSet(fingerprintFlag) || c.Bool(command.YesFlag)) {
		return command.UsageError("peers trust: --remove cannot be used with --fingerprint or --yes", command.HelpOf("peers trust"))
	}
	client := c.Client()
	defer client.Close()
	if remove {
		p, err := client.Distrust(c.Ctx(), c.Args[0])
		return told(c, p, c.Interrupted(err), "The key of %s is no longer trusted.", p.Label())
	}
	p, err := confirming(c, client, true, func(fp peer.Fingerprint) (control.Peer, error) {
		return client.Trust(c.Ctx(), c.Args[0], fp)
	})
	return told(c, p, err, "The key of %s is trusted.", p.Label())
}

func setCommand() command.Command {
	choices := func(context.Context) []command.Candidate { return command.Fixed("yes", "no", "default") }
	return command.Command{
		Name:  "set",
		Usage: "change the preferences for a cluster",
		Args:  "PEER",
		About: "Change the preferences for a cluster: whether to connect to it and whether to accept its\n" +
			"requests ('default' follows the configuration), how much of its resources to ask for ('default'\n" +
			"is as much as it offers), a note, an alias, and a URL if discovery does not find it. They last\n" +
			"until the cluster is forgotten. '' removes a value. A change of the amounts changes the node\n" +
			"of the cluster at once.\n" +
			command.PeerArgument,
		Examples: []string{"liqo-agent peers set barn --auto-connect no --note 'leaking roof'", "liqo-agent peers set barn --url https://barn.example.com:6447",
			"liqo-agent peers set barn --alias ''", "liqo-agent peers set barn --cpu 4 --memory default"},
		Min: 1, Max: 1,
		Agent: true,
		Flags: append([]urfave.Flag{
			&urfave.StringFlag{Name: "auto-connect", Usage: "connect when it is present: `yes|no|default`"},
			&urfave.StringFlag{Name: "auto-accept", Usage: "accept its requests: `yes|no|default`"},
			&urfave.StringFlag{Name: "note", Usage: "a `TEXT` for yourself"},
			&urfave.StringFlag{Name: "alias", Usage: "your own `NAME` for it"},
			&urfave.StringFlag{Name: "url", Usage: "`URL` of its endpoint"}}, amountFlags()...),
		Formats: []string{render.Text, render.JSON, render.YAML},
		Words:   peerNames,
		Values: map[string]func(context.Context) []command.Candidate{
			"auto-connect": choices, "auto-accept": choices, cpuFlag: amounts, memoryFlag: amounts},
		Run: setPeer,
	}
}

func setPeer(c *command.Call) error {
	patch, err := readPatch(c)
	if err != nil {
		return err
	}
	alias := c.IsSet("alias")
	if patch == (control.PreferencesPatch{}) && !alias {
		return command.UsageError("peers set: no preference given", command.HelpOf("peers set"))
	}
	client := c.Client()
	defer client.Close()
	ctx := c.Ctx()
	ref := c.Args[0]
	var p control.Peer
	if alias { // first: it may be taken, and then nothing is to change
		if p, err = client.SetAlias(ctx, ref, c.String("alias")); err != nil {
			return c.Interrupted(err)
		}
		ref = p.ID
	}
	if patch != (control.PreferencesPatch{}) {
		if p, err = client.Set(ctx, ref, patch); err != nil {
			return c.Interrupted(err)
		}
	}
	if c.Out.Value(p) {
		return nil
	}
	text := remembered(p.Preferences)
	if text == "" {
		text = "as configured"
	}
	c.Out.Fields("", [2]string{"Name", p.Name}, [2]string{"Alias", p.Alias}, [2]string{"ID", p.ID}, [2]string{"Note", p.Preferences.Note},
		[2]string{"Preferences", text}, [2]string{"URL", p.Preferences.URL})
	return nil
}

const (
	cpuFlag    = "cpu"
	memoryFlag = "memory"
	// noAmount is for as much as there is.
	noAmount = "default"
)

// amountFlags are the options for how much a cluster is asked for.
func amountFlags() []urfave.Flag {
	return []urfave.Flag{
		&urfave.StringFlag{Name: cpuFlag, Usage: "how much CPU to ask for at most, as in 2 or 500m: `AMOUNT|default`"},
		&urfave.StringFlag{Name: memoryFlag, Usage: "how much memory to ask for at most, as in 4Gi: `AMOUNT|default`"}}
}

func amounts(context.Context) []command.Candidate { return command.Fixed(noAmount) }

// readAsks reads these options.
func readAsks(c *command.Call) (control.Asks, error) {
	var out control.Asks
	for name, into := range map[string]**string{cpuFlag: &out.CPU, memoryFlag: &out.Memory} {
		if c.IsSet(name) {
			amount := c.String(name)
			if amount == noAmount {
				amount = ""
			}
			*into = &amount
		}
	}
	return out, out.Check()
}

// readPatch reads the options of set.
func readPatch(c *command.Call) (control.PreferencesPatch, error) {
	var out control.PreferencesPatch
	for name, into := range map[string]**control.Choice{"auto-connect": &out.AutoConnect, "auto-accept": &out.AutoAccept} {
		if !c.IsSet(name) {
			continue
		}
		choices := map[string]control.Choice{"yes": control.Yes, "no": control.No, "default": control.Undecided}
		choice, ok := choices[c.String(name)]
		if !ok {
			return out, command.UsageError(fmt.Sprintf("--%s %q: want yes, no or default", name, c.String(name)), command.HelpOf("peers set"))
		}
		*into = &choice
	}
	var err error
	if out.Asks, err = readAsks(c); err != nil {
		return out, err
	}
	if c.IsSet("note") {
		note := c.String("note")
		if err := control.CheckNote(note); err != nil {
			return out, err
		}
		out.Note = &note
	}
	if c.IsSet("url") {
		u, err := control.CheckURL(c.String("url"))
		if err != nil {
			return out, err
		}
		out.URL = &u
	}
	return out, nil
}

func forgetCommand() command.Command {
	return command.Command{
		Name:  "forget",
		Usage: "forget a cluster",
		Args:  "PEER",
		About: "Forget everything about a cluster: its trusted key, preferences, alias and note. A peering with\n" +
			"it ends first, and the command waits until our pods have left. Ctrl-C stops the waiting: the\n" +
			"cluster is then disconnected, not forgotten. A cluster that is still present is found again, as\n" +
			"an unknown one.\n" +
			command.PeerArgument,
		Examples: []string{"liqo-agent peers forget shed", "liqo-agent peers forget shed --yes"},
		Min:      1, Max: 1,
		Agent:   true,
		Flags:   []urfave.Flag{command.YesOption("do not ask")},
		Formats: []string{render.Text, render.JSON, render.YAML},
		Words:   peerNames,
		Run:     forgetPeer,
	}
}

func forgetPeer(c *command.Call) error {
	client := c.Client()
	defer client.Close()
	p, err := client.Peer(c.Ctx(), c.Args[0])
	if err != nil {
		return c.Interrupted(err)
	}
	if err := c.Sure(fmt.Sprintf("Forget everything about %s?%s", render.Clean(render.Named(p.Label(), p.ID)), losing(p))); err != nil {
		return err
	}
	if d := p.Outgoing; p.Phase == string(peer.PhasePresent) && !d.Over() && d.Reason != control.ReasonUnknown {
		if p, err = client.Disconnect(c.Ctx(), p.ID, false); err != nil {
			return c.Interrupted(err)
		}
		if err := (&waiter{Call: c, client: client, peer: p, goal: forgetting}).wait(); err != nil {
			return err
		}
	}
	// By its ID: it is the one that was asked about.
	left, err := client.Forget(c.Ctx(), p.ID)
	if err != nil {
		return c.Interrupted(err)
	}
	return told(c, left, nil, "%s is forgotten.", p.Label())
}

// losing says what ends when a peer is forgotten.
func losing(p control.Peer) string {
	text := ""
	if p.Outgoing.Wanted || p.Outgoing.Joined {
		text += " This cluster stops using its resources."
	}
	if p.Incoming.Joined {
		text += " It stops using ours."
	}
	return text
}
