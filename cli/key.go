package cli

import (
	urfave "github.com/urfave/cli/v2"

	"liqo.io/agent/cli/command"
	"liqo.io/agent/cli/render"
)

func keyCommand() command.Command {
	return command.Command{
		Name:     "key",
		Usage:    "show or rotate the key of this cluster",
		About:    "Show or rotate the key that identifies this cluster to others.",
		Examples: []string{"liqo-agent key show", "liqo-agent key rotate", "liqo-agent key csr --name farm.example.com"},
		Commands: []command.Command{
			keyShowCommand(),
			keyRotateCommand(),
			keyCSRCommand(),
		},
	}
}

func keyShowCommand() command.Command {
	return command.Command{
		Name:  "show",
		Usage: "show the fingerprint of the key",
		About: "Show the fingerprint of the key of this cluster, or with --pem its public key. The private key\n" +
			"never leaves the agent.",
		Examples: []string{"liqo-agent key show", "liqo-agent key show --pem > farm.pub.pem"},
		Agent:    true,
		Flags: []urfave.Flag{
			&urfave.BoolFlag{Name: "pem", Usage: "print only the public key, as PEM"},
		},
		Formats: []string{render.Text, render.JSON, render.YAML},
		Run:     showKey,
	}
}

func showKey(c *command.Call) error {
	client := c.Client()
	defer client.Close()
	k, err := client.Key(c.Ctx())
	switch {
	case err != nil:
		return err
	case c.Bool("pem"):
		c.Out.Printf("%s", render.CleanLines(k.PublicKey))
	case !c.Out.Value(k):
		follows := ""
		if k.Successions > 0 {
			follows = render.Count(k.Successions, "earlier key; peers that trust it follow automatically", "earlier keys; peers that trust one follow automatically")
		}
		c.Out.Fields("", [2]string{"Fingerprint", k.Fingerprint}, [2]string{"Replaces", follows}, [2]string{"Created", c.Out.When(k.CreatedAt)})
	}
	return nil
}

func keyRotateCommand() command.Command {
	return command.Command{
		Name:  "rotate",
		Usage: "replace the key of this cluster",
		About: "Create a new key for this cluster, signed by the old one. Peers that trust the old key follow\n" +
			"automatically, even those that are offline now. If you use a fleet certificate or a public\n" +
			"certificate, renew it.",
		Examples: []string{"liqo-agent key rotate", "liqo-agent key rotate --yes"},
		Agent:    true,
		Flags: []urfave.Flag{
			command.YesOption("do not ask"),
		},
		Formats: []string{render.Text, render.JSON, render.YAML},
		Run:     rotateKey,
	}
}

func rotateKey(c *command.Call) error {
	if err := c.Sure("Replace the key of this cluster?"); err != nil {
		return err
	}
	client := c.Client()
	defer client.Close()
	k, err := client.RotateKey(c.Ctx())
	if err != nil {
		return c.Interrupted(err)
	}
	if !c.Out.Value(k) {
		c.Out.Printf("New key: %s\n", render.Clean(k.Fingerprint))
	}
	return nil
}

func keyCSRCommand() command.Command {
	return command.Command{
		Name:  "csr",
		Usage: "print a certificate signing request",
		About: "Print a certificate signing request (CSR) for the key of this cluster and one or more host\n" +
			"names. Set the signed certificate as endpoint.certificate. Others then trust this cluster at\n" +
			"https:// URLs with these names, without comparing codes.",
		Examples: []string{"liqo-agent key csr --name farm.example.com > farm.csr"},
		Agent:    true,
		Flags: []urfave.Flag{
			command.ListFlag("name", "host `NAME`; can be repeated"),
		},
		Run: func(c *command.Call) error {
			names := c.List("name")
			if len(names) == 0 {
				return command.UsageError("key csr needs --name", "liqo-agent key csr --name farm.example.com")
			}
			client := c.Client()
			defer client.Close()
			csr, err := client.CSR(c.Ctx(), names)
			if err != nil {
				return err
			}
			c.Out.Printf("%s", render.CleanLines(csr))
			return nil
		},
	}
}
