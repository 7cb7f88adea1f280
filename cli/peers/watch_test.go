package peers_test

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"liqo.io/agent/agent/control"
	"liqo.io/agent/cli"
	"liqo.io/agent/cli/command"
	"liqo.io/agent/internal/clitest"
)

// watch runs "peers watch" with the options and publishes two changes once the
// snapshot is complete; it ends after the second.
func watch(t *testing.T, w *clitest.World, options ...string) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), clitest.Patience)
	defer cancel()
	van := clitest.Farm().Has.Peers[3]
	barn := clitest.Farm().Has.Peers[0]
	barn.Phase, barn.Reason = "Lost", "goodbye"
	var out []string
	stdout := clitest.Lines(func(line string) {
		out = append(out, line)
		switch {
		case strings.Contains(line, "synced"), strings.Contains(line, "waiting for one"), strings.Contains(line, "snapshot  van"):
			w.Server.Publish(control.WatchEvent{Event: control.WatchFound, Peer: &van})
			w.Server.Publish(control.WatchEvent{Event: control.WatchLost, Peer: &barn})
		case strings.Contains(line, "goodbye"):
			cancel()
		}
	})
	var errs bytes.Buffer
	app := cli.New(command.Options{Stdout: stdout, Stderr: &errs, Environ: w.Environ(), Now: func() time.Time { return clitest.Now }})
	if code := command.Report(&errs, app.Run(ctx, append([]string{command.Name, "peers", "watch"}, options...))); code != command.ExitOK {
		t.Fatalf("exit code %d: %s", code, errs.String())
	}
	return out
}

func TestWatchTable(t *testing.T) {
	clitest.Golden(t, "watch", strings.Join(watch(t, clitest.WithAgent(t, cli.New, clitest.Farm())), "\n")+"\n")
	clitest.Golden(t, "watch-empty", strings.Join(watch(t, clitest.WithAgent(t, cli.New, &clitest.Memory{})), "\n")+"\n")
}

func TestWatchJSON(t *testing.T) {
	var events []string
	for _, line := range watch(t, clitest.WithAgent(t, cli.New, clitest.Farm()), "-o", "json") {
		var ev control.WatchEvent
		if err := json.Unmarshal([]byte(line), &ev); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		name := ""
		if ev.Peer != nil {
			name = " " + ev.Peer.ID[:4]
		}
		events = append(events, ev.Event+name)
	}
	want := "snapshot 0558, snapshot 0558, snapshot d00d, synced, found d00d, lost 0558"
	if got := strings.Join(events, ", "); got != want {
		t.Errorf("events %s, want %s", got, want)
	}
}
