package cli

import (
	urfave "github.com/urfave/cli/v2"
)

func (a *App) keyCommand() *urfave.Command {
	return a.branch("key", "show or renew the key of this cluster",
		"Show or renew the key by which others recognise this cluster.",
		[]string{"liqo-agent key show", "liqo-agent key rotate", "liqo-agent key csr --name farm.example.com"},
		a.keyShowCommand(), a.keyRotateCommand(), a.keyCSRCommand())
}

func (a *App) keyShowCommand() *urfave.Command {
	return a.leaf(leaf{
		name:     "show",
		usage:    "show the fingerprint of the key of this cluster",
		about:    "Show the fingerprint of the key of this cluster, or with --pem its public half. The private half\nnever leaves the agent.",
		examples: []string{"liqo-agent key show", "liqo-agent key show --pem > farm.pub.pem"},
		flags:    append(placeFlags(), &urfave.BoolFlag{Name: "pem", Usage: "print the public key in PEM, and nothing else"}),
		formats:  []string{formatText, formatJSON, formatYAML},
		values:   placeValues,
		run:      showKey,
	})
}

func showKey(c *call) error {
	client := c.client()
	defer client.Close()
	k, err := client.Key(c.Context.Context)
	switch {
	case err != nil:
		return err
	case c.Bool("pem"):
		c.out.printf("%s", cleanLines(k.PublicKey))
	case !c.out.value(k):
		follows := ""
		if k.Successions > 0 {
			follows = count(k.Successions, "earlier key, from which peers follow by themselves", "earlier keys, from which peers follow by themselves")
		}
		c.out.fields("", [2]string{"Fingerprint", k.Fingerprint}, [2]string{"Follows", follows}, [2]string{"Made", c.out.when(k.CreatedAt)})
	}
	return nil
}

func (a *App) keyRotateCommand() *urfave.Command {
	return a.leaf(leaf{
		name:  "rotate",
		usage: "replace the key of this cluster by a new one",
		about: "Make a new key for this cluster, signed by the old one. Peers that trust the old one follow by\n" +
			"themselves, also those that are away now. A fleet certificate, and a public certificate of the\n" +
			"endpoint, have to be made anew.",
		examples: []string{"liqo-agent key rotate", "liqo-agent key rotate --yes"},
		flags:    append(placeFlags(), &urfave.BoolFlag{Name: yesFlag, Aliases: []string{"y"}, Usage: "do not ask"}),
		formats:  []string{formatText, formatJSON, formatYAML},
		values:   placeValues,
		run:      rotateKey,
	})
}

func rotateKey(c *call) error {
	if err := c.sure("Replace the key of this cluster?"); err != nil {
		return err
	}
	client := c.client()
	defer client.Close()
	k, err := client.RotateKey(c.Context.Context)
	if err != nil {
		return c.interrupted(err)
	}
	if !c.out.value(k) {
		c.out.printf("The new key has the fingerprint %s\n", clean(k.Fingerprint))
	}
	return nil
}

func (a *App) keyCSRCommand() *urfave.Command {
	return a.leaf(leaf{
		name:  "csr",
		usage: "print a request for a public certificate of the key",
		about: "Print a certificate signing request of the key of this cluster for one or more host names. With\n" +
			"the certificate that a public authority makes of it (endpoint.certificate in the configuration),\n" +
			"others trust this cluster at https:// URLs of these names without comparing codes.",
		examples: []string{"liqo-agent key csr --name farm.example.com > farm.csr"},
		flags:    append(placeFlags(), &urfave.StringSliceFlag{Name: "name", Usage: "a host `NAME`; may be given more than once"}),
		values:   placeValues,
		run: func(c *call) error {
			names := c.StringSlice("name")
			if len(names) == 0 {
				return &usageError{message: "key csr needs --name", try: "liqo-agent key csr --name farm.example.com"}
			}
			client := c.client()
			defer client.Close()
			csr, err := client.CSR(c.Context.Context, names)
			if err != nil {
				return err
			}
			c.out.printf("%s", cleanLines(csr))
			return nil
		},
	})
}
