package peers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	urfave "github.com/urfave/cli/v2"

	"liqo.io/agent/agent/control"
	"liqo.io/agent/cli/command"
	"liqo.io/agent/cli/render"
	"liqo.io/agent/peer"
)

const (
	// TokenFlag is the option for the token of an invite.
	TokenFlag = "token"
	// TokenVariable is the environment variable that keeps a token out of the list
	// of processes.
	TokenVariable = "LIQO_AGENT_TOKEN"
)

// ConnectCommand is "peers connect" as upstream Liqo calls it.
func ConnectCommand() command.Command {
	return called(connectCommand(), Word, "peers connect")
}

// DisconnectCommand is "peers disconnect" as upstream Liqo calls it.
func DisconnectCommand() command.Command {
	return called(disconnectCommand(), "unpeer", "peers disconnect")
}

// Word is what a peer is called on a command line.
const Word = "peer"

// called returns a command that does the same by another name.
func called(c command.Command, name, original string) command.Command {
	examples := make([]string, 0, len(c.Examples))
	for _, example := range c.Examples {
		examples = append(examples, strings.Replace(example, command.Name+" "+original, command.Name+" "+name, 1))
	}
	c.Name, c.Usage, c.Examples, c.Hidden = name, "the same as "+original, examples, true
	return c
}

func connectCommand() command.Command {
	return command.Command{
		Name:  "connect",
		Usage: "connect to a cluster and use its resources",
		Args:  "PEER|URL|ADDRESS",
		About: "Connect to a cluster and use its resources, now and whenever it is present (with --once, only\n" +
			"now). If its key is not trusted yet, compare the code on this screen with the code on the other\n" +
			"cluster. The command shows each step and waits until the cluster is connected. Ctrl-C stops the\n" +
			"waiting; connecting continues in the background.\n" +
			"--cpu and --memory bound what you are offered; they are remembered, and peers set changes them.\n" +
			"Give a URL or an address for a cluster that discovery does not find. With a token that\n" +
			"liqo-agent invite created on the other cluster, there is no code to compare. --token - reads the\n" +
			"token from standard input; the environment variable LIQO_AGENT_TOKEN can hold it too.\n" +
			"liqo-agent peer is the same command.\n" +
			command.PeerArgument,
		Examples: []string{"liqo-agent peers connect barn", "liqo-agent peers connect barn --cpu 2 --memory 4Gi", "liqo-agent peers connect 192.0.2.13", "liqo-agent peers connect https://barn.example.com:6447 --timeout 5m",
			"liqo-agent peers connect barn --fingerprint 0a1b... --no-wait", "liqo-agent peers connect --token - < token.txt"},
		Max:   1,
		Agent: true,
		Flags: slices.Concat([]urfave.Flag{
			&urfave.StringFlag{Name: TokenFlag, Usage: "`TOKEN` that liqo-agent invite created on the other cluster; - reads it from standard input"},
			&urfave.BoolFlag{Name: "once", Usage: "connect only now; do not remember it"}},
			amountFlags(), confirmFlags(), command.WaitFlags(time.Minute)),
		Formats: []string{render.Text, render.JSON, render.YAML},
		Words:   peerNames,
		Values:  map[string]func(context.Context) []command.Candidate{cpuFlag: amounts, memoryFlag: amounts},
		Run:     connectPeer,
	}
}

func connectPeer(c *command.Call) error {
	opts, ref, err := connectOptions(c)
	if err != nil {
		return err
	}
	client := c.Client()
	defer client.Close()
	var before *control.Peer
	if ref != "" {
		// How it was is only needed to tell old news from new.
		p, err := client.Peer(c.Ctx(), ref)
		if err == nil {
			before = &p
		}
		switch u := addressURL(ref); {
		case !errors.Is(err, control.ErrNotFound):
		case u != "":
			c.Note("no cluster is called %s; trying %s", ref, u)
			opts.URL, ref = u, ""
		case c.Path() == Word && isCommand(ref):
			return command.UsageError(fmt.Sprintf("no cluster is called %q; did you mean \"peers %s\"?", ref, ref), command.HelpOf("peers "+ref))
		}
	}
	p, err := confirming(c, client, false, func(fp peer.Fingerprint) (control.Peer, error) {
		opts.Fingerprint = fp
		return client.Connect(c.Ctx(), ref, opts)
	})
	if err != nil {
		return err
	}
	if c.Bool(command.NoWaitFlag) {
		if !c.Out.Value(p) {
			c.Out.Printf("Connecting to %s in the background. Progress: %s info %s\n", render.Clean(p.Label()), command.Name, render.Quoted(p.Label()))
		}
		return nil
	}
	w := &waiter{Call: c, client: client, peer: p, goal: connecting, before: before}
	return w.wait()
}

// connectOptions reads the command line of connect. ref is the peer it names, ""
// for none.
func connectOptions(c *command.Call) (opts control.ConnectOptions, ref string, err error) {
	if err := c.CheckTimeout(); err != nil {
		return opts, "", err
	}
	opts = control.ConnectOptions{Once: c.Bool("once")}
	if opts.Asks, err = readAsks(c); err != nil {
		return opts, "", err
	}
	if len(c.Args) > 0 {
		ref = c.Args[0]
	}
	if strings.Contains(ref, "://") {
		opts.URL, err = control.CheckURL(ref)
		if err != nil {
			return opts, "", err
		}
		ref = ""
	}
	if opts.Token, err = token(c); err != nil {
		return opts, "", err
	}
	if ref == "" && opts.URL == "" && opts.Token == "" {
		return opts, "", command.UsageError(c.Path()+" needs PEER, a URL, an address or --token", command.HelpOf(c.Path()))
	}
	return opts, ref, nil
}

// usualPort is where agents listen unless they were told otherwise.
const usualPort = "6447"

// addressURL is the URL for an address, with or without a port, or a host name with
// one; "" for anything else.
func addressURL(text string) string {
	host, port := strings.Trim(text, "[]"), usualPort
	if _, err := netip.ParseAddr(host); err != nil {
		if host, port, err = net.SplitHostPort(text); err != nil {
			return ""
		}
	}
	u, err := control.CheckURL("https://" + net.JoinHostPort(host, port))
	if err != nil {
		return ""
	}
	return u
}

// token returns the token that was given in one of three ways, or "".
func token(c *command.Call) (string, error) {
	switch given := c.String(TokenFlag); given {
	case "":
	case "-":
		line, err := c.ReadLine()
		if errors.Is(err, command.ErrNothing) || err == nil && line == "" {
			return "", command.UsageError("--token -: there is no token on standard input", "liqo-agent peers connect --token - < FILE")
		}
		return line, c.Interrupted(err)
	default:
		return strings.TrimSpace(given), nil
	}
	return strings.TrimSpace(c.Options.Variable(TokenVariable)), nil
}

// disconnectPatience is longer than pods may take to leave as sharing.drain_timeout is
// by default.
const disconnectPatience = 10 * time.Minute

func disconnectCommand() command.Command {
	return command.Command{
		Name:  "disconnect",
		Usage: "disconnect from a cluster (--incoming: stop serving it)",
		Args:  "PEER",
		About: "Stop using the resources of a cluster, and do not connect to it again automatically. Our pods\n" +
			"leave it first, within sharing.drain_timeout. With --incoming, stop serving the cluster instead:\n" +
			"it no longer uses our resources, and its next request waits for your decision. The two\n" +
			"directions are independent.\n" +
			"The command shows the progress and waits until it is done. Ctrl-C stops the waiting;\n" +
			"disconnecting continues in the background.\n" +
			"liqo-agent unpeer is the same command.\n" +
			command.PeerArgument,
		Examples: []string{"liqo-agent peers disconnect barn", "liqo-agent peers disconnect --incoming silo"},
		Min:      1, Max: 1,
		Agent: true,
		Flags: append([]urfave.Flag{
			&urfave.BoolFlag{Name: "incoming", Usage: "end the incoming direction: the cluster stops using our resources"}},
			command.WaitFlags(disconnectPatience)...),
		Formats: []string{render.Text, render.JSON, render.YAML},
		Words:   peerNames,
		Run:     disconnectPeer,
	}
}

func disconnectPeer(c *command.Call) error {
	if err := c.CheckTimeout(); err != nil {
		return err
	}
	client := c.Client()
	defer client.Close()
	incoming := c.Bool("incoming")
	p, err := client.Disconnect(c.Ctx(), c.Args[0], incoming)
	if err != nil {
		return c.Interrupted(err)
	}
	goal := disconnecting
	if incoming {
		goal = evicting
	}
	if c.Bool(command.NoWaitFlag) {
		if !c.Out.Value(p) {
			c.Out.Printf("Disconnecting from %s in the background. Progress: %s info %s\n", render.Clean(p.Label()), command.Name, render.Quoted(p.Label()))
		}
		return nil
	}
	w := &waiter{Call: c, client: client, peer: p, goal: goal}
	return w.wait()
}
