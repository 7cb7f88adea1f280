package cli

import (
	"context"
	"fmt"
	"slices"
	"time"

	urfave "github.com/urfave/cli/v2"

	"liqo.io/agent/agent/control"
	"liqo.io/agent/agent/socket/client"
	"liqo.io/agent/cli/command"
	"liqo.io/agent/cli/render"
)

func inviteCommand() command.Command {
	return command.Command{
		Name:  "invite",
		Usage: "let a cluster in with a one-time token",
		About: "Create a token that lets one cluster use this one, once. It also tells that cluster the key of\n" +
			"this one, so nobody compares codes. Keep the token secret: whoever uses it first is let in.\n" +
			"Without a subcommand, it is invite create.",
		Examples: []string{"liqo-agent invite --ttl 1h", "liqo-agent invite list", "liqo-agent invite revoke 0a1b"},
		Commands: []command.Command{
			inviteCreateCommand(),
			inviteListCommand(),
			inviteRevokeCommand(),
		},
		Default: "create",
	}
}

func inviteCreateCommand() command.Command {
	return command.Command{
		Name:  "create",
		Usage: "create an invite and print its token",
		About: "Create an invite and print its token, which is shown only once. On the other cluster, run\n" +
			"liqo-agent peers connect --token TOKEN. The token works once, until it expires or is revoked.",
		Examples: []string{"liqo-agent invite", "liqo-agent invite create --ttl 15m --note 'for the van' --url https://farm.example.com:6447",
			"liqo-agent invite | ssh barn sudo liqo-agent peers connect --token -"},
		Agent: true,
		Flags: []urfave.Flag{
			&urfave.DurationFlag{Name: "ttl", Value: time.Hour, Usage: "validity of the token, as `DURATION`: 1m to 720h"},
			&urfave.StringFlag{Name: "note", Usage: "`TEXT` to recognise the invite in the list"},
			&urfave.StringFlag{Name: "url", Usage: "`URL` of this cluster, for a cluster that cannot discover it"},
		},
		Formats: []string{render.Text, render.JSON, render.YAML},
		Run:     createInvite,
	}
}

func createInvite(c *command.Call) error {
	ttl := c.Duration("ttl")
	if ttl < control.MinInviteTTL || ttl > control.MaxInviteTTL {
		return command.UsageError(fmt.Sprintf("--ttl %s: want 1m to 720h", ttl), "liqo-agent invite --ttl 1h")
	}
	client := c.Client()
	defer client.Close()
	made, err := client.Invite(c.Ctx(), control.InviteOptions{TTL: ttl, Note: c.String("note"), URL: c.String("url")})
	if err != nil {
		return c.Interrupted(err)
	}
	if c.Out.Value(made) {
		return nil
	}
	c.Out.Printf("%s\n", render.Clean(made.Token))
	if err := c.Out.Flush(); err != nil {
		return err
	}
	// Only the token is on standard output, so that it can be piped.
	c.Note("valid once, for %s; on the other cluster, run: liqo-agent peers connect --token TOKEN", render.Span(ttl))
	return nil
}

func inviteListCommand() command.Command {
	return command.Command{
		Name:  "list",
		Usage: "list invites",
		About: "List the open invites, and those that were used, expired or revoked recently. Tokens are not\n" +
			"stored.",
		Examples: []string{"liqo-agent invite list", "liqo-agent invite list -o json"},
		Agent:    true,
		Formats:  []string{render.Table, render.JSON, render.YAML},
		Run:      listInvites,
	}
}

func listInvites(c *command.Call) error {
	client := c.Client()
	defer client.Close()
	made, err := client.Invites(c.Ctx())
	switch {
	case err != nil:
		return err
	case c.Out.Value(made):
		return nil
	case len(made) == 0:
		c.Out.Printf("No invites. Create one: liqo-agent invite\n")
		return nil
	}
	rows := make([]render.Row, 0, len(made))
	for _, i := range made {
		r := render.Row{Cells: []string{i.ID, i.State, c.Out.Ago(i.CreatedAt), until(c.Out, i), i.CreatedBy, i.UsedBy, i.Note}}
		if i.State != control.InviteOpen {
			r.Color = render.Dim
		}
		rows = append(rows, r)
	}
	c.Out.Table([]string{"ID", "STATE", "CREATED", "EXPIRES", "BY", "USED BY", "NOTE"}, rows)
	return nil
}

// until says how long an open invite is still valid.
func until(p *render.Printer, i control.Invite) string {
	if i.State != control.InviteOpen || i.ExpiresAt.IsZero() {
		return ""
	}
	return "in " + render.Span(i.ExpiresAt.Sub(p.Now))
}

func inviteRevokeCommand() command.Command {
	return command.Command{
		Name:  "revoke",
		Usage: "revoke an invite",
		Args:  "ID",
		About: "Revoke an invite: its token no longer works. ID is from liqo-agent invite list; its first\n" +
			"characters are enough.",
		Examples: []string{"liqo-agent invite revoke 0a1b2c3d4e5f6071"},
		Min:      1, Max: 1,
		Agent: true,
		Words: inviteIDs,
		Run: func(c *command.Call) error {
			client := c.Client()
			defer client.Close()
			if err := client.RevokeInvite(c.Ctx(), c.Args[0]); err != nil {
				return c.Interrupted(err)
			}
			c.Out.Printf("The invite is revoked.\n")
			return nil
		},
	}
}

// inviteIDs offers the invites that can be used.
func inviteIDs(ctx context.Context, t command.Typed) []command.Candidate {
	return command.Listed(ctx, t, func(c *client.Client, ctx context.Context) ([]control.Invite, error) {
		made, err := c.Invites(ctx)
		return slices.DeleteFunc(made, func(i control.Invite) bool { return i.State != control.InviteOpen }), err
	}, func(i control.Invite) command.Candidate { return command.Candidate{Value: i.ID, Text: i.Note} })
}
