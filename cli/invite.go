package cli

import (
	"fmt"
	"time"

	urfave "github.com/urfave/cli/v2"

	"liqo.io/agent/agent/control"
)

func (a *App) inviteCommand() *urfave.Command {
	group := a.branch("invite", "make a token that lets one cluster in, without comparing codes",
		"Make a token that lets one cluster use this one, once, and tells it by which key to recognise\n"+
			"this one. It is a secret: whoever has it first is let in. Alone it is the same as invite create.",
		[]string{"liqo-agent invite --ttl 1h", "liqo-agent invite list", "liqo-agent invite revoke 0a1b"},
		a.inviteCreateCommand(), a.inviteListCommand(), a.inviteRevokeCommand())
	a.defaults[group] = "create"
	return group
}

func (a *App) inviteCreateCommand() *urfave.Command {
	return a.leaf(leaf{
		name:  "create",
		usage: "make an invite and print its token",
		about: "Make an invite and print its token, which is shown only now. Whoever has it connects with\n" +
			"liqo-agent peers connect --token TOKEN, until it was used once, expires or is revoked.",
		examples: []string{"liqo-agent invite", "liqo-agent invite create --ttl 15m --note 'for the van' --url https://farm.example.com:6447",
			"liqo-agent invite | ssh barn sudo liqo-agent peers connect --token -"},
		flags: append(placeFlags(),
			&urfave.DurationFlag{Name: "ttl", Value: time.Hour, Usage: "how long it is valid, as `DURATION`: 1m to 720h"},
			&urfave.StringFlag{Name: "note", Usage: "a `TEXT` to recognise it by in the list"},
			&urfave.StringFlag{Name: "url", Usage: "where its bearer finds this cluster, as `URL`, if it cannot see it"}),
		formats: []string{formatText, formatJSON, formatYAML},
		values:  placeValues,
		run:     createInvite,
	})
}

func createInvite(c *call) error {
	ttl := c.Duration("ttl")
	if ttl < control.MinInviteTTL || ttl > control.MaxInviteTTL {
		return &usageError{message: fmt.Sprintf("--ttl %s: want 1m to 720h", ttl), try: "liqo-agent invite --ttl 1h"}
	}
	client := c.client()
	defer client.Close()
	made, err := client.Invite(c.Context.Context, control.InviteOptions{TTL: ttl, Note: c.String("note"), URL: c.String("url")})
	if err != nil {
		return c.interrupted(err)
	}
	if c.out.value(made) {
		return nil
	}
	c.out.printf("%s\n", clean(made.Token))
	if err := c.out.flush(); err != nil {
		return err
	}
	// Only the token is on standard output, so that it can be piped.
	c.note("valid once, for %s; on the other cluster: liqo-agent peers connect --token TOKEN", span(ttl))
	return nil
}

func (a *App) inviteListCommand() *urfave.Command {
	return a.leaf(leaf{
		name:     "list",
		usage:    "list invites",
		about:    "List the invites that can be used, and those used, expired or revoked lately. The tokens are not kept.",
		examples: []string{"liqo-agent invite list", "liqo-agent invite list -o json"},
		flags:    placeFlags(),
		formats:  []string{formatTable, formatJSON, formatYAML},
		values:   placeValues,
		run:      listInvites,
	})
}

func listInvites(c *call) error {
	client := c.client()
	defer client.Close()
	made, err := client.Invites(c.Context.Context)
	switch {
	case err != nil:
		return err
	case c.out.value(made):
		return nil
	case len(made) == 0:
		c.out.printf("There are no invites. Make one: liqo-agent invite\n")
		return nil
	}
	rows := make([]row, 0, len(made))
	for _, i := range made {
		r := row{cells: []string{i.ID, i.State, c.out.ago(i.CreatedAt), c.out.until(i), i.CreatedBy, i.UsedBy, i.Note}}
		if i.State != control.InviteOpen {
			r.color = colorDim
		}
		rows = append(rows, r)
	}
	c.out.table([]string{"ID", "STATE", "MADE", "EXPIRES", "BY", "USED BY", "NOTE"}, rows)
	return nil
}

// until says how long an open invite is still valid.
func (p *printer) until(i control.Invite) string {
	if i.State != control.InviteOpen || i.ExpiresAt.IsZero() {
		return ""
	}
	return "in " + span(i.ExpiresAt.Sub(p.now))
}

func (a *App) inviteRevokeCommand() *urfave.Command {
	return a.leaf(leaf{
		name:     "revoke",
		usage:    "make an invite useless",
		args:     "ID",
		about:    "Make an invite useless. Its ID, or the beginning of it, is in liqo-agent invite list.",
		examples: []string{"liqo-agent invite revoke 0a1b2c3d4e5f6071"},
		min:      1, max: 1,
		flags:  placeFlags(),
		words:  a.inviteIDs,
		values: placeValues,
		run: func(c *call) error {
			client := c.client()
			defer client.Close()
			if err := client.RevokeInvite(c.Context.Context, c.args[0]); err != nil {
				return c.interrupted(err)
			}
			c.out.printf("The invite cannot be used any more.\n")
			return nil
		},
	})
}
