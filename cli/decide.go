package cli

import (
	"fmt"

	urfave "github.com/urfave/cli/v2"

	"liqo.io/agent/agent/control"
	"liqo.io/agent/peer"
)

func (a *App) peersRequestsCommand() *urfave.Command {
	return a.leaf(leaf{
		name:  "requests",
		usage: "list the clusters that want to use ours and wait for a decision",
		about: "List the clusters that want to use the resources of this one and wait for somebody to decide,\n" +
			"and those that were rejected and still ask.",
		examples: []string{"liqo-agent peers requests", "liqo-agent peers accept silo", "liqo-agent peers requests -o json | jq -r '.[].id'"},
		flags:    placeFlags(),
		formats:  []string{formatTable, formatJSON, formatYAML},
		values:   placeValues,
		run:      listRequests,
	})
}

func listRequests(c *call) error {
	client := c.client()
	defer client.Close()
	asked, err := client.Requests(c.Context.Context)
	if err != nil {
		return err
	}
	switch {
	case c.out.value(asked):
		return nil
	case len(asked) == 0:
		c.out.printf("Nobody waits for a decision.\n")
		return nil
	}
	rows := make([]row, 0, len(asked))
	for _, r := range asked {
		rows = append(rows, row{cells: []string{nameOf(r.Name, r.ID), r.ID, r.State, c.out.ago(r.Since), r.Code, r.Address, r.Message}})
	}
	c.out.table([]string{"NAME", "ID", "STATE", "SINCE", "CODE", "ADDRESS", "MESSAGE"}, rows)
	return nil
}

func (a *App) peersAcceptCommand() *urfave.Command {
	return a.leaf(leaf{
		name:  "accept",
		usage: "let a cluster use ours, now and in future",
		args:  "PEER",
		about: "Let a cluster use the resources of this one, now and in future, also before it asked. If its\n" +
			"key is not trusted yet, compare the code that is shown with the one shown there. Name it as\n" +
			"liqo-agent peers requests does, or as any other peer.",
		examples: []string{"liqo-agent peers accept silo", "liqo-agent peers accept 9c1b7c1e --fingerprint 0a1b..."},
		min:      1, max: 1,
		flags:   append(placeFlags(), confirmFlags()...),
		formats: []string{formatText, formatJSON, formatYAML},
		words:   a.askerNames,
		values:  placeValues,
		run: func(c *call) error {
			client := c.client()
			defer client.Close()
			p, err := c.confirming(client, false, func(fp peer.Fingerprint) (control.Peer, error) {
				return client.Accept(c.Context.Context, c.args[0], fp)
			})
			return c.told(p, err, "%s may use this cluster.", p.Label())
		},
	})
}

// decision describes a command that tells the agent one decision about one peer,
// and nothing else.
type decision struct {
	name, usage, about string
	example            string
	asks               bool // it is about those who wait for a decision
	call               func(c *call, client *control.Client) (control.Peer, error)
	told               string // with the peer's label
}

func (a *App) decisionCommand(d decision) *urfave.Command {
	words := a.peerNames
	if d.asks {
		words = a.askerNames
	}
	return a.leaf(leaf{
		name: d.name, usage: d.usage, about: d.about, args: "PEER",
		examples: []string{d.example},
		min:      1, max: 1,
		flags:   placeFlags(),
		formats: []string{formatText, formatJSON, formatYAML},
		words:   words,
		values:  placeValues,
		run: func(c *call) error {
			client := c.client()
			defer client.Close()
			p, err := d.call(c, client)
			return c.told(p, c.interrupted(err), d.told, p.Label())
		},
	})
}

// told ends a command whose decision was taken: by saying so, or by showing the
// peer.
func (c *call) told(p control.Peer, err error, format, label string) error {
	if err != nil {
		return err
	}
	if !c.out.value(p) {
		c.out.printf(format+"\n", clean(label))
	}
	return nil
}

func (a *App) peersRejectCommand() *urfave.Command {
	return a.decisionCommand(decision{
		name: "reject", usage: "refuse the request of a cluster", asks: true,
		about: "Refuse the request of a cluster that waits for a decision. It is told so. It stays refused\n" +
			"until it is accepted; to never hear of it again, block it.",
		example: "liqo-agent peers reject silo",
		call: func(c *call, client *control.Client) (control.Peer, error) {
			return client.Reject(c.Context.Context, c.args[0])
		},
		told: "The request of %s was rejected.",
	})
}

func (a *App) peersBlockCommand() *urfave.Command {
	return a.decisionCommand(decision{
		name: "block", usage: "have nothing to do with a cluster, in either direction",
		about: "End everything with a cluster and refuse it in both directions until it is unblocked. The host that\nvouched for it is blocked, too: a public certificate for it makes nobody trusted.\n" + peerArgument, example: "liqo-agent peers block silo",
		call: func(c *call, client *control.Client) (control.Peer, error) {
			return client.Block(c.Context.Context, c.args[0])
		},
		told: "%s is blocked.",
	})
}

func (a *App) peersUnblockCommand() *urfave.Command {
	return a.decisionCommand(decision{
		name: "unblock", usage: "undo block",
		about: "Undo liqo-agent peers block. What was ended stays so until somebody connects or accepts.\n" + peerArgument, example: "liqo-agent peers unblock silo",
		call: func(c *call, client *control.Client) (control.Peer, error) {
			return client.Unblock(c.Context.Context, c.args[0])
		},
		told: "%s is not blocked any more.",
	})
}

func (a *App) peersTrustCommand() *urfave.Command {
	return a.leaf(leaf{
		name:  "trust",
		usage: "say that the key which a cluster shows is its own, or with --remove that it is not",
		args:  "PEER",
		about: "Trust the key that a cluster shows, after comparing the code with the one shown there. This is\n" +
			"also how a key that changed is accepted. With --remove nothing is trusted to be that cluster any\n" +
			"more, and what there is between the two ends. " + peerArgument,
		examples: []string{"liqo-agent peers trust barn", "liqo-agent peers trust barn --fingerprint 0a1b...", "liqo-agent peers trust barn --remove"},
		min:      1, max: 1,
		flags:   append(append(placeFlags(), confirmFlags()...), &urfave.BoolFlag{Name: "remove", Usage: "do not trust its key any more"}),
		formats: []string{formatText, formatJSON, formatYAML},
		words:   a.askerNames,
		values:  placeValues,
		run:     trustPeer,
	})
}

func trustPeer(c *call) error {
	remove := c.Bool("remove")
	if remove && (c.IsSet(fingerprintFlag) || c.Bool(yesFlag)) {
		return &usageError{message: "peers trust: --remove goes with neither --fingerprint nor --yes", try: helpOf("peers trust")}
	}
	client := c.client()
	defer client.Close()
	if remove {
		p, err := client.Distrust(c.Context.Context, c.args[0])
		return c.told(p, c.interrupted(err), "The key of %s is not trusted.", p.Label())
	}
	p, err := c.confirming(client, true, func(fp peer.Fingerprint) (control.Peer, error) {
		return client.Trust(c.Context.Context, c.args[0], fp)
	})
	return c.told(p, err, "The key of %s is trusted.", p.Label())
}

func (a *App) peersSetCommand() *urfave.Command {
	choices := []string{"yes", "no", "default"}
	return a.leaf(leaf{
		name:  "set",
		usage: "change what is remembered about a cluster",
		args:  "PEER",
		about: "Change what is remembered about a cluster until it is forgotten: whether to connect to it when\n" +
			"it is there, whether to let it in when it asks ('default' is what the configuration says), a note,\n" +
			"a name of your own, and where to look for it when it does not show up by itself. '' removes a\n" +
			"value. " + peerArgument,
		examples: []string{"liqo-agent peers set barn --auto-connect no --note 'leaking roof'", "liqo-agent peers set barn --url https://barn.example.com:6447",
			"liqo-agent peers set barn --alias ''"},
		min: 1, max: 1,
		flags: append(placeFlags(),
			&urfave.StringFlag{Name: "auto-connect", Usage: "connect to it when it is there: `yes|no|default`"},
			&urfave.StringFlag{Name: "auto-accept", Usage: "let it in when it asks: `yes|no|default`"},
			&urfave.StringFlag{Name: "note", Usage: "a `TEXT` for yourself"},
			&urfave.StringFlag{Name: "alias", Usage: "a `NAME` of your own"},
			&urfave.StringFlag{Name: "url", Usage: "where to look for it, as `URL`"}),
		formats: []string{formatText, formatJSON, formatYAML},
		words:   a.peerNames,
		values:  withPlaces(map[string][]string{"auto-connect": choices, "auto-accept": choices}),
		run:     setPeer,
	})
}

func setPeer(c *call) error {
	patch, err := c.patch()
	if err != nil {
		return err
	}
	alias := c.IsSet("alias")
	if patch == (control.PreferencesPatch{}) && !alias {
		return &usageError{message: "peers set needs something to change", try: helpOf("peers set")}
	}
	client := c.client()
	defer client.Close()
	ctx := c.Context.Context
	ref := c.args[0]
	var p control.Peer
	if patch != (control.PreferencesPatch{}) {
		if p, err = client.Set(ctx, ref, patch); err != nil {
			return c.interrupted(err)
		}
		ref = p.ID
	}
	if alias {
		if p, err = client.SetAlias(ctx, ref, c.String("alias")); err != nil {
			return c.interrupted(err)
		}
	}
	if c.out.value(p) {
		return nil
	}
	text := remembered(p.Preferences)
	if text == "" {
		text = "what the configuration says"
	}
	c.out.fields("", [2]string{"Name", p.Name}, [2]string{"Alias", p.Alias}, [2]string{"ID", p.ID}, [2]string{"Note", p.Preferences.Note},
		[2]string{"Remembered", text}, [2]string{"Looked for at", p.Preferences.URL})
	return nil
}

// patch reads the options of set.
func (c *call) patch() (control.PreferencesPatch, error) {
	var out control.PreferencesPatch
	for name, into := range map[string]**control.Choice{"auto-connect": &out.AutoConnect, "auto-accept": &out.AutoAccept} {
		if !c.IsSet(name) {
			continue
		}
		choices := map[string]control.Choice{"yes": control.Yes, "no": control.No, "default": control.Undecided}
		choice, ok := choices[c.String(name)]
		if !ok {
			return out, &usageError{message: fmt.Sprintf("--%s %q: want yes, no or default", name, c.String(name)), try: helpOf("peers set")}
		}
		*into = &choice
	}
	if c.IsSet("note") {
		note := c.String("note")
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

func (a *App) peersForgetCommand() *urfave.Command {
	return a.leaf(leaf{
		name:  "forget",
		usage: "drop everything that is remembered about a cluster",
		args:  "PEER",
		about: "Drop everything that is remembered about a cluster: that its key is trusted, preferences,\n" +
			"alias, note. What there is between the two ends first: our pods leave it, which is waited for;\n" +
			"with Ctrl-C it is disconnected and not forgotten. If it is there it is found again, as one that\n" +
			"nobody knows. " + peerArgument,
		examples: []string{"liqo-agent peers forget shed", "liqo-agent peers forget shed --yes"},
		min:      1, max: 1,
		flags:   append(placeFlags(), &urfave.BoolFlag{Name: yesFlag, Aliases: []string{"y"}, Usage: "do not ask"}),
		formats: []string{formatText, formatJSON, formatYAML},
		words:   a.peerNames,
		values:  placeValues,
		run:     forgetPeer,
	})
}

func forgetPeer(c *call) error {
	client := c.client()
	defer client.Close()
	p, err := client.Peer(c.Context.Context, c.args[0])
	if err != nil {
		return c.interrupted(err)
	}
	if err := c.sure(fmt.Sprintf("Forget everything about %s?%s", clean(named(p.Label(), p.ID)), losing(p))); err != nil {
		return err
	}
	if d := p.Outgoing; p.Phase == string(peer.PhasePresent) && !d.Over() && d.Reason != control.ReasonUnknown {
		if p, err = client.Disconnect(c.Context.Context, p.ID, false); err != nil {
			return c.interrupted(err)
		}
		if err := (&waiter{call: c, client: client, peer: p, goal: forgetting}).wait(); err != nil {
			return err
		}
	}
	// By its ID: it is the one that was asked about.
	left, err := client.Forget(c.Context.Context, p.ID)
	if err != nil {
		return c.interrupted(err)
	}
	return c.told(left, nil, "%s is forgotten.", p.Label())
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
