package cli

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	urfave "github.com/urfave/cli/v2"

	"liqo.io/agent/agent/control"
	"liqo.io/agent/peer"
)

const peerArgument = "Name a peer by its alias, its cluster name or the beginning of its ID."

func (a *App) peersCommand() *urfave.Command {
	return a.branch("peers", "show other clusters, connect to them, let them in",
		"Show the clusters that were found and what happened to them, use the resources of others, and\n"+
			"decide who may use ours. "+peerArgument,
		[]string{"liqo-agent peers list", "liqo-agent peers connect barn", "liqo-agent peers requests", "liqo-agent peers accept silo"},
		a.peersListCommand(), a.peersShowCommand(), a.peersWatchCommand(), a.peersHistoryCommand(),
		a.peersConnectCommand(), a.peersDisconnectCommand(),
		a.peersRequestsCommand(), a.peersAcceptCommand(), a.peersRejectCommand(), a.peersBlockCommand(), a.peersUnblockCommand(),
		a.peersTrustCommand(), a.peersSetCommand(), a.peersAliasCommand(), a.peersForgetCommand())
}

func (a *App) peersListCommand() *urfave.Command {
	return a.leaf(leaf{
		name:  "list",
		usage: "list the clusters that are there",
		about: "List the clusters that are there now, and those with which there is a peering; with --all also\n" +
			"those that are merely remembered. " +
			"When the agent is not running, what it remembered is read from its database.",
		examples: []string{"liqo-agent peers list", "liqo-agent peers list --all -o wide",
			"liqo-agent peers list -o json | jq -r '.[] | select(.verified) | .url'"},
		flags: append(placeFlags(), &urfave.BoolFlag{Name: "all", Aliases: []string{"a"},
			Usage: "include clusters that are not there now"}),
		formats: []string{formatTable, formatWide, formatJSON, formatYAML},
		values:  placeValues,
		run:     listPeers,
	})
}

func listPeers(c *call) error {
	src, err := c.open()
	if err != nil {
		return err
	}
	defer src.close()
	known, err := src.peers(c.Context.Context)
	if err != nil {
		return err
	}
	shown := known
	if !c.Bool("all") && !src.offline() {
		shown = slices.DeleteFunc(slices.Clone(known), func(p control.Peer) bool { return !p.Listed() })
	}
	switch {
	case c.out.value(shown):
	case len(shown) > 0:
		c.out.peers(shown, c.format == formatWide)
	case src.offline():
		c.out.printf("No cluster was ever found.\nStart the agent (%s), or look at the network once: liqo-agent scan\n", c.app.starts())
	default:
		c.out.printf("No cluster is there now.\n")
		if len(known) > 0 {
			c.out.printf("%s remembered: liqo-agent peers list --all\n", count(len(known), "is", "are"))
		} else {
			c.out.printf("See whether discovery works: liqo-agent status\nLook at the network once: liqo-agent scan\n")
		}
	}
	return nil
}

func count(n int, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + more
}

func (p *printer) peers(peers []control.Peer, wide bool) {
	header := []string{"NAME", "ID", "PHASE", "TRUST", "OUTGOING", "INCOMING", "ADDRESS", "LAST SEEN"}
	if wide {
		header = []string{"NAME", "CLUSTER NAME", "ID", "PHASE", "TRUST", "OUTGOING", "INCOMING", "SOURCE", "ENDPOINT", "LINKS", "NAMESPACE",
			"FINGERPRINT", "CODE", "FOREIGNCLUSTER", "NOTE", "KNOWN FOR", "LAST SEEN", "REASON"}
	}
	short := idPrefix(peers)
	rows := make([]row, 0, len(peers))
	for _, q := range peers {
		r := row{color: phaseColor(q)}
		if wide {
			r.cells = []string{q.Label(), q.Name, q.ID, phaseText(q), trustWord(q), outgoingWord(q), incomingWord(q), q.Source, endpointOf(q),
				strings.Join(q.Links, ","), q.Namespace, q.Fingerprint, q.Code, q.ForeignCluster, q.Preferences.Note, p.since(q.FirstSeen),
				p.ago(q.LastSeen), q.Reason}
		} else {
			r.cells = []string{q.Label(), q.ID[:min(short, len(q.ID))], phaseText(q), trustWord(q), outgoingWord(q), incomingWord(q), addressOf(q),
				p.ago(q.LastSeen)}
		}
		rows = append(rows, r)
	}
	p.table(header, rows)
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
		return colorRed
	case p.Phase == string(peer.PhasePresent):
		return ""
	case p.Phase == string(peer.PhaseLost):
		return colorDim
	}
	return colorYellow
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

func (a *App) peersShowCommand() *urfave.Command {
	return a.leaf(leaf{
		name:  "show",
		usage: "show everything known about one cluster",
		args:  "PEER",
		about: "Show everything known about one cluster. " + peerArgument +
			"\nWhen the agent is not running, what it remembered is read from its database.",
		examples: []string{"liqo-agent peers show barn", "liqo-agent peers show 0558de48 -o json"},
		min:      1, max: 1,
		flags:   placeFlags(),
		formats: []string{formatText, formatJSON, formatYAML},
		words:   a.peerNames,
		values:  placeValues,
		run:     showPeer,
	})
}

func showPeer(c *call) error {
	src, err := c.open()
	if err != nil {
		return err
	}
	defer src.close()
	p, err := src.peer(c.Context.Context, c.args[0])
	if err != nil {
		return err
	}
	if c.out.value(p) {
		return nil
	}
	c.out.peer(p)
	return nil
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
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

// when writes a time with how long ago it was.
func (p *printer) when(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return fmt.Sprintf("%s (%s)", stamp(t), p.ago(t))
}

func (a *App) peersAliasCommand() *urfave.Command {
	return a.leaf(leaf{
		name:  "alias",
		usage: "give a cluster a name of your own",
		args:  "PEER NAME",
		about: "Give a cluster a name of your own, which all commands accept and show. It is kept on this\n" +
			"machine only. " + peerArgument,
		examples: []string{"liqo-agent peers alias 0558de48 barn", "liqo-agent peers alias --remove barn"},
		min:      1, max: 2,
		flags:   append(placeFlags(), &urfave.BoolFlag{Name: "remove", Usage: "remove the alias"}),
		formats: []string{formatText, formatJSON},
		words:   a.peerNames,
		values:  placeValues,
		run:     aliasPeer,
	})
}

func aliasPeer(c *call) error {
	remove := c.Bool("remove")
	if remove != (len(c.args) == 1) {
		return &usageError{message: "name the peer and its alias, or the peer alone with --remove", try: c.Command.HelpName + " --help"}
	}
	alias := ""
	if !remove {
		alias = c.args[1]
	}
	client := c.client()
	defer client.Close()
	p, err := client.SetAlias(c.Context.Context, c.args[0], alias)
	switch {
	case err != nil:
		return err
	case c.out.value(p):
	case alias == "":
		c.out.printf("%s has no alias now.\n", clean(p.Label()))
	default:
		c.out.printf("%s is called %s now.\n", clean(p.ID), clean(alias))
	}
	return nil
}
