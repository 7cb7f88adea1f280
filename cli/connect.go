package cli

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"

	urfave "github.com/urfave/cli/v2"

	"liqo.io/agent/agent/control"
	"liqo.io/agent/peer"
)

const (
	tokenFlag   = "token"
	timeoutFlag = "timeout"
	noWaitFlag  = "no-wait"
	// tokenVariable keeps a token out of the list of processes.
	tokenVariable = "LIQO_AGENT_TOKEN"
)

// waitFlags are the options of commands that wait for what they began.
func waitFlags(timeout time.Duration) []urfave.Flag {
	return []urfave.Flag{
		&urfave.DurationFlag{Name: timeoutFlag, Value: timeout, Usage: "how long to wait, as `DURATION`; 0 = as long as it takes"},
		&urfave.BoolFlag{Name: noWaitFlag, Usage: "do not wait: it goes on in the background"},
	}
}

func (a *App) peersConnectCommand() *urfave.Command { return a.leaf(a.connectLeaf()) }

// peerCommand is "peers connect" as upstream Liqo calls it.
func (a *App) peerCommand() *urfave.Command {
	l := a.connectLeaf()
	return a.leaf(l.called(peerWord, "peers connect"))
}

// unpeerCommand is "peers disconnect" as upstream Liqo calls it.
func (a *App) unpeerCommand() *urfave.Command {
	l := a.disconnectLeaf()
	return a.leaf(l.called("unpeer", "peers disconnect"))
}

const peerWord = "peer"

// called returns a leaf that does the same by another name.
func (l leaf) called(name, original string) leaf {
	examples := make([]string, 0, len(l.examples))
	for _, example := range l.examples {
		examples = append(examples, strings.Replace(example, Name+" "+original, Name+" "+name, 1))
	}
	l.name, l.usage, l.examples, l.hidden = name, "the same as "+original, examples, true
	return l
}

func (a *App) connectLeaf() leaf {
	return leaf{
		name:  "connect",
		usage: "use the resources of a cluster, now and whenever it is there",
		args:  "PEER|URL|ADDRESS",
		about: "Use the resources of a cluster, now and, unless --once is given, whenever it is there. If its\n" +
			"key is not trusted yet, compare the code that is shown with the one shown there. Then wait until\n" +
			"it is connected, and say what is being waited for; with Ctrl-C it goes on in the background.\n" +
			"A URL or an address names a cluster that does not show up by itself. With a token, made there by liqo-agent\n" +
			"invite, nothing has to be compared; '-' reads it from standard input, and the environment\n" +
			"variable " + tokenVariable + " may hold it. liqo-agent peer does the same. " + peerArgument,
		examples: []string{"liqo-agent peers connect barn", "liqo-agent peers connect 192.0.2.13", "liqo-agent peers connect https://barn.example.com:6447 --timeout 5m",
			"liqo-agent peers connect barn --fingerprint 0a1b... --no-wait", "liqo-agent peers connect --token - < token.txt"},
		max: 1,
		flags: append(append(append(placeFlags(),
			&urfave.StringFlag{Name: tokenFlag, Usage: "a `TOKEN` made there by liqo-agent invite; - reads it from standard input"},
			&urfave.BoolFlag{Name: "once", Usage: "only now: do not remember it"}),
			confirmFlags()...), waitFlags(time.Minute)...),
		formats: []string{formatText, formatJSON, formatYAML},
		words:   a.peerNames,
		values:  placeValues,
		run:     connectPeer,
	}
}

func connectPeer(c *call) error {
	opts, ref, err := c.connectOptions()
	if err != nil {
		return err
	}
	client := c.client()
	defer client.Close()
	var before *control.Peer
	if ref != "" {
		// How it was is only needed to tell old news from new.
		p, err := client.Peer(c.Context.Context, ref)
		if err == nil {
			before = &p
		}
		switch u := addressURL(ref); {
		case !errors.Is(err, control.ErrNotFound):
		case u != "":
			c.note("nobody is called %s; trying %s", ref, u)
			opts.URL, ref = u, ""
		case c.Command.Name == peerWord && findCommand(c.app.peersCommand().Subcommands, ref) != nil:
			return &usageError{message: fmt.Sprintf("nobody is called %q; did you mean \"peers %s\"?", ref, ref), try: helpOf("peers " + ref)}
		}
	}
	p, err := c.confirming(client, false, func(fp peer.Fingerprint) (control.Peer, error) {
		opts.Fingerprint = fp
		return client.Connect(c.Context.Context, ref, opts)
	})
	if err != nil {
		return err
	}
	if c.Bool(noWaitFlag) {
		if !c.out.value(p) {
			c.out.printf("Connecting to %s goes on in the background. See how far it is: %s info %s\n", clean(p.Label()), Name, quoted(p.Label()))
		}
		return nil
	}
	w := &waiter{call: c, client: client, peer: p, goal: connecting, before: before}
	return w.wait()
}

// connectOptions reads the command line of connect. ref is the peer it names, ""
// for none.
func (c *call) connectOptions() (opts control.ConnectOptions, ref string, err error) {
	if err := c.checkTimeout(); err != nil {
		return opts, "", err
	}
	opts = control.ConnectOptions{Once: c.Bool("once")}
	if len(c.args) > 0 {
		ref = c.args[0]
	}
	if strings.Contains(ref, "://") {
		opts.URL, err = control.CheckURL(ref)
		if err != nil {
			return opts, "", err
		}
		ref = ""
	}
	if opts.Token, err = c.token(); err != nil {
		return opts, "", err
	}
	if ref == "" && opts.URL == "" && opts.Token == "" {
		return opts, "", &usageError{message: pathOf(c.Context) + " needs PEER, a URL, an address or --token", try: helpOf(pathOf(c.Context))}
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
func (c *call) token() (string, error) {
	switch given := c.String(tokenFlag); given {
	case "":
	case "-":
		line, err := c.readLine(c.Context.Context)
		if errors.Is(err, errNothing) || err == nil && line == "" {
			return "", &usageError{message: "--token -: there is no token on standard input", try: "liqo-agent peers connect --token - < FILE"}
		}
		return line, c.interrupted(err)
	default:
		return strings.TrimSpace(given), nil
	}
	for _, pair := range c.app.opts.Environ {
		if value, ok := strings.CutPrefix(pair, tokenVariable+"="); ok {
			return strings.TrimSpace(value), nil
		}
	}
	return "", nil
}

func (c *call) checkTimeout() error {
	if d := c.Duration(timeoutFlag); d < 0 {
		return &usageError{message: fmt.Sprintf("--%s %s: want a duration, 0 for no limit", timeoutFlag, d), try: c.Command.HelpName + " --timeout 5m"}
	}
	return nil
}

// disconnectPatience is longer than pods may take to leave as sharing.drain_timeout is
// by default.
const disconnectPatience = 10 * time.Minute

func (a *App) peersDisconnectCommand() *urfave.Command { return a.leaf(a.disconnectLeaf()) }

func (a *App) disconnectLeaf() leaf {
	return leaf{
		name:  "disconnect",
		usage: "stop using the resources of a cluster, or with --incoming end its using ours",
		args:  "PEER",
		about: "Stop using the resources of a cluster and remember that, so that it is not connected again by\n" +
			"itself. Our pods leave it first, within sharing.drain_timeout. With --incoming end that it uses\n" +
			"ours: its next request waits for a person. The two are independent. Either is waited for, and how\n" +
			"far it is is told; with Ctrl-C it goes on in the background. liqo-agent unpeer does the same.\n" + peerArgument,
		examples: []string{"liqo-agent peers disconnect barn", "liqo-agent peers disconnect --incoming silo"},
		min:      1, max: 1,
		flags: append(append(placeFlags(),
			&urfave.BoolFlag{Name: "incoming", Usage: "end that the cluster uses our resources, rather than that we use its"}),
			waitFlags(disconnectPatience)...),
		formats: []string{formatText, formatJSON, formatYAML},
		words:   a.peerNames,
		values:  placeValues,
		run:     disconnectPeer,
	}
}

func disconnectPeer(c *call) error {
	if err := c.checkTimeout(); err != nil {
		return err
	}
	client := c.client()
	defer client.Close()
	incoming := c.Bool("incoming")
	p, err := client.Disconnect(c.Context.Context, c.args[0], incoming)
	if err != nil {
		return c.interrupted(err)
	}
	goal := disconnecting
	if incoming {
		goal = evicting
	}
	if c.Bool(noWaitFlag) {
		if !c.out.value(p) {
			c.out.printf("Disconnecting from %s goes on in the background. See how far it is: %s info %s\n", clean(p.Label()), Name, quoted(p.Label()))
		}
		return nil
	}
	w := &waiter{call: c, client: client, peer: p, goal: goal}
	return w.wait()
}
