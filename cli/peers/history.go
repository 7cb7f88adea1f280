package peers

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	urfave "github.com/urfave/cli/v2"

	"liqo.io/agent/cli/command"
	"liqo.io/agent/cli/render"
	"liqo.io/agent/peer"
)

func historyCommand() command.Command {
	return command.Command{
		Name:  "history",
		Usage: "show the history of clusters",
		Args:  "[PEER]",
		About: "Show what happened to all clusters or to one, oldest first: appeared, trusted, joined, lost and\n" +
			"so on, with the reason and who did it. If the agent is not running, it comes from its database.\n" +
			command.PeerArgument,
		Examples: []string{"liqo-agent peers history", "liqo-agent peers history barn --since 7d", "liqo-agent peers history --since 2026-11-20 --limit 0 -o json"},
		Max:      1,
		Agent:    true,
		Flags: []urfave.Flag{
			&urfave.StringFlag{Name: "since", Usage: "only entries after `TIME`: 90m, 12h, 7d, 2026-11-21 or 2026-11-21T08:00:00Z"},
			&urfave.IntFlag{Name: "limit", Value: 100, Usage: "show the newest `N` entries; 0 = all"}},
		Formats: []string{render.Table, render.JSON, render.YAML},
		Words:   peerNames,
		Run:     showHistory,
	}
}

func showHistory(c *command.Call) error {
	since, err := parseSince(c.String("since"), c.Out.Now)
	if err != nil {
		return command.UsageError(err.Error(), c.Name()+" --since 7d")
	}
	limit := c.Int("limit")
	if limit < 0 {
		return command.UsageError(fmt.Sprintf("--limit %d: want a number, 0 for all", limit), c.Name()+" --limit 0")
	}
	ref := ""
	if len(c.Args) > 0 {
		ref = c.Args[0]
	}
	src, err := openSource(c)
	if err != nil {
		return err
	}
	defer src.close()
	events, err := src.history(c.Ctx(), ref, since, limit)
	if err != nil {
		return err
	}
	if c.Out.Value(events) {
		return nil
	}
	if len(events) == 0 {
		c.Out.Printf("No events%s.\n", sinceText(since))
		return nil
	}
	rows := make([]render.Row, 0, len(events))
	for _, e := range events {
		name := e.Name
		if name == "" {
			name = e.ID
		}
		rows = append(rows, render.Row{Cells: []string{render.Stamp(e.At), name, e.Kind, e.Detail}, Color: kindColor(e.Kind)})
	}
	c.Out.Table([]string{"TIME", "NAME", "EVENT", "DETAIL"}, rows)
	return nil
}

func kindColor(kind string) string {
	switch peer.EventKind(kind) {
	case peer.EventConflict, peer.EventIdentityChanged, peer.EventKeyRefused:
		return render.Red
	case peer.EventLost, peer.EventUnreachable, peer.EventUnjoined, peer.EventUnserved, peer.EventRejected, peer.EventDistrusted, peer.EventSuspended,
		peer.EventBlocked:
		return render.Yellow
	}
	return ""
}

func sinceText(since time.Time) string {
	if since.IsZero() {
		return " yet"
	}
	return " since " + render.Stamp(since)
}

// parseSince reads a time, a date, or a duration before now, which may be in
// days; "" is the zero time.
func parseSince(s string, now time.Time) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	if days, ok := strings.CutSuffix(s, "d"); ok {
		if n, err := strconv.Atoi(days); err == nil && n >= 0 {
			return now.AddDate(0, 0, -n), nil
		}
	}
	if d, err := time.ParseDuration(s); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	for _, layout := range []string{time.RFC3339, time.DateTime, "2006-01-02 15:04", time.DateOnly} {
		if t, err := time.ParseInLocation(layout, s, time.Local); err == nil {
			return t, nil
		}
	}
	return time.Time{}, fmt.Errorf("--since %q: want 90m, 12h, 7d, 2026-11-21 or 2026-11-21T08:00:00Z", s)
}
