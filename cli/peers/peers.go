package peers

import (
	"fmt"
	"slices"
	"strings"

	urfave "github.com/urfave/cli/v2"

	"liqo.io/agent/agent/control"
	"liqo.io/agent/cli/command"
	"liqo.io/agent/cli/render"
	"liqo.io/agent/peer"
)

// Command returns the commands about peers.
func Command() command.Command {
	return command.Command{
		Name:  "peers",
		Usage: "list, connect and manage other clusters",
		About: "Show the clusters that were found and what happened to them, use their resources, and decide who\n" +
			"may use yours.\n" +
			command.PeerArgument,
		Examples: []string{"liqo-agent peers list", "liqo-agent peers connect barn", "liqo-agent peers requests", "liqo-agent peers accept silo"},
		Commands: []command.Command{
			listCommand(), showCommand(), watchCommand(), historyCommand(),
			connectCommand(), disconnectCommand(),
			requestsCommand(), acceptCommand(), rejectCommand(), blockCommand(), unblockCommand(),
			trustCommand(), setCommand(), aliasCommand(), forgetCommand(),
		},
	}
}

// isCommand reports whether one of the commands about peers has that name.
func isCommand(name string) bool {
	return slices.ContainsFunc(Command().Commands, func(c command.Command) bool { return c.Name == name })
}

func listCommand() command.Command {
	return command.Command{
		Name:  "list",
		Usage: "list other clusters",
		About: "List the clusters that are present, and those with a peering. With --all, also list clusters\n" +
			"that were present earlier. If the agent is not running, the list comes from its database.",
		Examples: []string{"liqo-agent peers list", "liqo-agent peers list --all -o wide",
			"liqo-agent peers list -o json | jq -r '.[] | select(.verified) | .url'"},
		Agent:   true,
		Flags:   []urfave.Flag{&urfave.BoolFlag{Name: "all", Aliases: []string{"a"}, Usage: "include clusters that are not present"}},
		Formats: []string{render.Table, render.Wide, render.JSON, render.YAML},
		Run:     listPeers,
	}
}

func listPeers(c *command.Call) error {
	src, err := openSource(c)
	if err != nil {
		return err
	}
	defer src.close()
	known, err := src.peers(c.Ctx())
	if err != nil {
		return err
	}
	shown := known
	if !c.Bool("all") && !src.offline() {
		shown = slices.DeleteFunc(slices.Clone(known), func(p control.Peer) bool { return !p.Listed() })
	}
	switch {
	case c.Out.Value(shown):
	case len(shown) > 0:
		printPeers(c.Out, shown, c.Format == render.Wide)
	case src.offline():
		c.Out.Printf("No clusters found yet.\nStart the agent (%s), or scan the network: liqo-agent scan\n", c.Options.StartCommand())
	default:
		c.Out.Printf("No clusters are present.\n")
		if len(known) > 0 {
			c.Out.Printf("%s known: liqo-agent peers list --all\n", render.Count(len(known), "cluster is", "clusters are"))
		} else {
			c.Out.Printf("Check discovery: liqo-agent status\nScan the network: liqo-agent scan\n")
		}
	}
	return nil
}

func printPeers(p *render.Printer, peers []control.Peer, wide bool) {
	header := []string{"NAME", "ID", "PHASE", "TRUST", "OUTGOING", "INCOMING", "ADDRESS", "LAST SEEN"}
	if wide {
		header = []string{"NAME", "CLUSTER NAME", "ID", "PHASE", "TRUST", "OUTGOING", "INCOMING", "SOURCE", "ENDPOINT", "LINKS", "NAMESPACE",
			"FINGERPRINT", "CODE", "FOREIGNCLUSTER", "NOTE", "KNOWN FOR", "LAST SEEN", "REASON"}
	}
	short := idPrefix(peers)
	rows := make([]render.Row, 0, len(peers))
	for _, q := range peers {
		r := render.Row{Color: phaseColor(q)}
		if wide {
			r.Cells = []string{q.Label(), q.Name, q.ID, phaseText(q), TrustWord(q), OutgoingWord(q), IncomingWord(q), q.Source, endpointOf(q),
				strings.Join(q.Links, ","), q.Namespace, q.Fingerprint, q.Code, q.ForeignCluster, q.Preferences.Note, p.Since(q.FirstSeen),
				p.Ago(q.LastSeen), q.Reason}
		} else {
			r.Cells = []string{q.Label(), q.ID[:min(short, len(q.ID))], phaseText(q), TrustWord(q), OutgoingWord(q), IncomingWord(q), addressOf(q),
				p.Ago(q.LastSeen)}
		}
		rows = append(rows, r)
	}
	p.Table(header, rows)
}

// idPrefix returns how much of the IDs tells all of them apart: at least 8.
func idPrefix(peers []control.Peer) int {
	ids := make([]string, 0, len(peers))
	for _, p := range peers {
		ids = append(ids, p.ID)
	}
	slices.Sort(ids)
	n := 8
	for i := 1; i < len(ids); i++ {
		same := 0
		for same < min(len(ids[i]), len(ids[i-1])) && ids[i][same] == ids[i-1][same] {
			same++
		}
		if ids[i] != ids[i-1] {
			n = max(n, same+1)
		}
	}
	return n
}

func phaseText(p control.Peer) string {
	if p.Conflict != nil {
		return p.Phase + " (conflict)"
	}
	return p.Phase
}

func phaseColor(p control.Peer) string {
	switch {
	case p.Conflict != nil:
		return render.Red
	case p.Phase == string(peer.PhasePresent):
		return ""
	case p.Phase == string(peer.PhaseLost):
		return render.Dim
	}
	return render.Yellow
}

// addressOf is where the peer is: where it answered, else its first candidate.
func addressOf(p control.Peer) string {
	if p.URL != "" {
		return strings.TrimPrefix(p.URL, "https://")
	}
	if len(p.Addresses) > 0 {
		return p.Addresses[0]
	}
	return ""
}

func endpointOf(p control.Peer) string {
	if p.URL != "" {
		return p.URL
	}
	return addressOf(p)
}

func showCommand() command.Command {
	return command.Command{
		Name:  "show",
		Usage: "show everything about a cluster",
		Args:  "PEER",
		About: "Show everything that is known about a cluster. If the agent is not running, it comes from its\n" +
			"database.\n" +
			command.PeerArgument,
		Examples: []string{"liqo-agent peers show barn", "liqo-agent peers show 0558de48 -o json"},
		Min:      1, Max: 1,
		Agent:   true,
		Formats: []string{render.Text, render.JSON, render.YAML},
		Words:   peerNames,
		Run:     showPeer,
	}
}

func showPeer(c *command.Call) error {
	src, err := openSource(c)
	if err != nil {
		return err
	}
	defer src.close()
	p, err := src.peer(c.Ctx(), c.Args[0])
	if err != nil {
		return err
	}
	if c.Out.Value(p) {
		return nil
	}
	Print(c.Out, p)
	return nil
}

func ttlText(seconds int64) string {
	if seconds == 0 {
		return ""
	}
	return fmt.Sprintf("%ds", seconds)
}

func failuresText(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("%d in a row", n)
}

func aliasCommand() command.Command {
	return command.Command{
		Name:  "alias",
		Usage: "give a cluster a local name",
		Args:  "PEER NAME",
		About: "Give a cluster a name of your own. All commands accept and show it. It exists on this machine\n" +
			"only.\n" +
			command.PeerArgument,
		Examples: []string{"liqo-agent peers alias 0558de48 barn", "liqo-agent peers alias --remove barn"},
		Min:      1, Max: 2,
		Agent:   true,
		Flags:   []urfave.Flag{&urfave.BoolFlag{Name: "remove", Usage: "remove the alias"}},
		Formats: []string{render.Text, render.JSON},
		Words:   peerNames,
		Run:     aliasPeer,
	}
}

func aliasPeer(c *command.Call) error {
	remove := c.Bool("remove")
	if remove != (len(c.Args) == 1) {
		return command.UsageError("give PEER and NAME, or PEER and --remove", c.Name()+" --help")
	}
	alias := ""
	if !remove {
		alias = c.Args[1]
	}
	client := c.Client()
	defer client.Close()
	p, err := client.SetAlias(c.Ctx(), c.Args[0], alias)
	switch {
	case err != nil:
		return err
	case c.Out.Value(p):
	case alias == "":
		c.Out.Printf("%s has no alias now.\n", render.Clean(p.Label()))
	default:
		c.Out.Printf("%s is called %s now.\n", render.Clean(p.ID), render.Clean(alias))
	}
	return nil
}
