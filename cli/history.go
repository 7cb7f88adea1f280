package cli

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	urfave "github.com/urfave/cli/v2"

	"liqo.io/agent/peer"
)

func (a *App) peersHistoryCommand() *urfave.Command {
	return a.leaf(leaf{
		name:  "history",
		usage: "show what happened to the clusters",
		args:  "[PEER]",
		about: "Show what happened to all clusters or to one, oldest first: appeared, trusted, joined, lost,\n" +
			"returned and so on, with who did it and why. " + peerArgument +
			"\nWhen the agent is not running, its database is read.",
		examples: []string{"liqo-agent peers history", "liqo-agent peers history barn --since 7d", "liqo-agent peers history --since 2026-11-20 --limit 0 -o json"},
		max:      1,
		flags: append(placeFlags(),
			&urfave.StringFlag{Name: "since", Usage: "only what happened after `TIME`: 90m, 12h, 7d, 2026-11-21 or 2026-11-21T08:00:00Z"},
			&urfave.IntFlag{Name: "limit", Value: 100, Usage: "the newest `N` entries, 0 for all"}),
		formats: []string{formatTable, formatJSON, formatYAML},
		words:   a.peerNames,
		values:  placeValues,
		run:     showHistory,
	})
}

func showHistory(c *call) error {
	since, err := parseSince(c.String("since"), c.out.now)
	if err != nil {
		return &usageError{message: err.Error(), try: c.Command.HelpName + " --since 7d"}
	}
	limit := c.Int("limit")
	if limit < 0 {
		return &usageError{message: fmt.Sprintf("--limit %d: want a number, 0 for all", limit), try: c.Command.HelpName + " --limit 0"}
	}
	ref := ""
	if len(c.args) > 0 {
		ref = c.args[0]
	}
	src, err := c.open()
	if err != nil {
		return err
	}
	defer src.close()
	events, err := src.history(c.Context.Context, ref, since, limit)
	if err != nil {
		return err
	}
	if c.out.value(events) {
		return nil
	}
	if len(events) == 0 {
		c.out.printf("Nothing has happened%s.\n", sinceText(since))
		return nil
	}
	rows := make([]row, 0, len(events))
	for _, e := range events {
		name := e.Name
		if name == "" {
			name = e.ID
		}
		rows = append(rows, row{cells: []string{stamp(e.At), name, e.Kind, e.Detail}, color: kindColor(e.Kind)})
	}
	c.out.table([]string{"TIME", "NAME", "EVENT", "DETAIL"}, rows)
	return nil
}

func kindColor(kind string) string {
	switch peer.EventKind(kind) {
	case peer.EventConflict, peer.EventIdentityChanged, peer.EventKeyRefused:
		return colorRed
	case peer.EventLost, peer.EventUnreachable, peer.EventUnjoined, peer.EventUnserved, peer.EventRejected, peer.EventDistrusted, peer.EventSuspended,
		peer.EventBlocked:
		return colorYellow
	}
	return ""
}

func sinceText(since time.Time) string {
	if since.IsZero() {
		return " yet"
	}
	return " since " + stamp(since)
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
