package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"time"

	"liqo.io/agent/agent/control"
)

func mustDuration(t *testing.T, s string) time.Duration {
	t.Helper()
	d, err := time.ParseDuration(s)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// lines calls each for every line written to the writer it returns.
func lines(each func(string)) io.Writer { return &lineWriter{each: each} }

type lineWriter struct {
	each func(string)
	rest bytes.Buffer
}

func (l *lineWriter) Write(b []byte) (int, error) {
	l.rest.Write(b)
	for {
		line, err := l.rest.ReadString('\n')
		if err != nil {
			l.rest.WriteString(line)
			return len(b), nil
		}
		l.each(strings.TrimSuffix(line, "\n"))
	}
}

// watch runs "peers watch" with the options and publishes two changes once the
// snapshot is complete; it ends after the second.
func watch(t *testing.T, w *world, options ...string) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	van := farm().peers[3]
	barn := farm().peers[0]
	barn.Phase, barn.Reason = "Lost", "goodbye"
	var out []string
	stdout := lines(func(line string) {
		out = append(out, line)
		switch {
		case strings.Contains(line, "synced"), strings.Contains(line, "waiting for one"), strings.Contains(line, "snapshot  van"):
			w.server.Publish(control.WatchEvent{Event: control.WatchFound, Peer: &van})
			w.server.Publish(control.WatchEvent{Event: control.WatchLost, Peer: &barn})
		case strings.Contains(line, "goodbye"):
			cancel()
		}
	})
	var errs bytes.Buffer
	app := New(Options{Stdout: stdout, Stderr: &errs, Environ: w.environ(), Now: func() time.Time { return now }})
	if code := Report(&errs, app.Run(ctx, append([]string{Name, "peers", "watch"}, options...))); code != ExitOK {
		t.Fatalf("exit code %d: %s", code, errs.String())
	}
	return out
}

func TestWatchTable(t *testing.T) {
	golden(t, "watch", strings.Join(watch(t, withAgent(t, farm())), "\n")+"\n")
	golden(t, "watch-empty", strings.Join(watch(t, withAgent(t, &memory{})), "\n")+"\n")
}

func TestWatchJSON(t *testing.T) {
	var events []string
	for _, line := range watch(t, withAgent(t, farm()), "-o", "json") {
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
