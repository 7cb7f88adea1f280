package cli

import (
	urfave "github.com/urfave/cli/v2"

	"liqo.io/agent/agent/control"
)

func (a *App) peersWatchCommand() *urfave.Command {
	return a.leaf(leaf{
		name:  "watch",
		usage: "show clusters coming and going, live",
		about: "Show the clusters that are there, and then a line for each that is found, changes or is\n" +
			"lost, until interrupted. With -o json each line is a JSON object: its \"event\" is snapshot,\n" +
			"synced (the snapshot is complete), found, updated or lost.",
		examples: []string{"liqo-agent peers watch", `liqo-agent peers watch -o json | jq -r 'select(.event == "lost") | .peer.name'`},
		flags:    placeFlags(),
		formats:  []string{formatTable, formatJSON},
		values:   placeValues,
		run:      watchPeers,
	})
}

func watchPeers(c *call) error {
	client := c.client()
	defer client.Close()
	synced, snapshot, header := false, 0, false
	return client.Watch(c.Context.Context, func(ev control.WatchEvent) error {
		if c.format == formatJSON {
			raw, err := encodeJSON(ev, "")
			if err != nil {
				return err
			}
			c.out.write(raw)
		} else {
			if ev.Peer != nil && !header {
				header = true
				c.out.printf(watchLine, "TIME", "EVENT", "NAME", "ID", "PHASE", "ADDRESS")
			}
			c.out.change(ev)
		}
		switch ev.Event {
		case control.WatchSnapshot:
			snapshot++
		case control.WatchSynced:
			synced = true
			if snapshot == 0 && c.format != formatJSON {
				c.out.printf("No cluster is there now; waiting for one.\n")
			}
		}
		if !synced {
			return nil // a long snapshot is written in few pieces
		}
		return c.out.flush()
	})
}

// watchLine has fixed columns: what comes later is not known yet.
const watchLine = "%-8s  %-8s  %-24s  %-8s  %-11s  %s\n"

func (p *printer) change(ev control.WatchEvent) {
	if ev.Peer == nil {
		return
	}
	q := *ev.Peer
	where := clean(addressOf(q))
	if q.Reason != "" {
		where += "  (" + clean(q.Reason) + ")"
	}
	color, reset := phaseColor(q), colorReset
	if !p.color || color == "" {
		color, reset = "", ""
	}
	p.printf(color+watchLine[:len(watchLine)-1]+reset+"\n", ev.At.Local().Format("15:04:05"), clean(ev.Event), clean(q.Label()),
		clean(q.ID[:min(8, len(q.ID))]), clean(q.Phase), where)
}
