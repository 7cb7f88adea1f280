package peers

import (
	"fmt"

	"liqo.io/agent/agent/control"
	"liqo.io/agent/cli/command"
	"liqo.io/agent/cli/render"
)

func watchCommand() command.Command {
	return command.Command{
		Name:  "watch",
		Usage: "show live when clusters come and go",
		About: "Show the clusters that are present, then a line for each cluster that is found, changes or is\n" +
			"lost, until interrupted. With -o json each line is a JSON object; its \"event\" is snapshot,\n" +
			"synced (the snapshot is complete), found, updated or lost.",
		Examples: []string{"liqo-agent peers watch", `liqo-agent peers watch -o json | jq -r 'select(.event == "lost") | .peer.name'`},
		Agent:    true,
		Formats:  []string{render.Table, render.JSON},
		Run:      watchPeers,
	}
}

func watchPeers(c *command.Call) error {
	client := c.Client()
	defer client.Close()
	synced, snapshot, header := false, 0, false
	return client.Watch(c.Ctx(), func(ev control.WatchEvent) error {
		if c.Format == render.JSON {
			c.Out.Line(ev)
		} else {
			if ev.Peer != nil && !header {
				header = true
				c.Out.Printf(watchLine+"\n", "TIME", "EVENT", "NAME", "ID", "PHASE", "ADDRESS")
			}
			change(c.Out, ev)
		}
		switch ev.Event {
		case control.WatchSnapshot:
			snapshot++
		case control.WatchSynced:
			synced = true
			if snapshot == 0 && c.Format != render.JSON {
				c.Out.Printf("No clusters are present; waiting for one.\n")
			}
		}
		if !synced {
			return nil // a long snapshot is written in few pieces
		}
		return c.Out.Flush()
	})
}

// watchLine has fixed columns: what comes later is not known yet.
const watchLine = "%-8s  %-8s  %-24s  %-8s  %-11s  %s"

func change(p *render.Printer, ev control.WatchEvent) {
	if ev.Peer == nil {
		return
	}
	q := *ev.Peer
	where := render.Clean(addressOf(q))
	if q.Reason != "" {
		where += "  (" + render.Clean(q.Reason) + ")"
	}
	p.Colored(phaseColor(q), fmt.Sprintf(watchLine, ev.At.Local().Format("15:04:05"), render.Clean(ev.Event), render.Clean(q.Label()),
		render.Clean(q.ID[:min(8, len(q.ID))]), render.Clean(q.Phase), where))
}
