package domains_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"liqo.io/agent/agent/control"
	"liqo.io/agent/cli"
	"liqo.io/agent/cli/command"
	"liqo.io/agent/internal/clitest"
	"liqo.io/agent/peer"
	"liqo.io/agent/state"
)

// found is what a look at a domain of these tests gives.
func found(at time.Time) func(*control.Domain) {
	return func(d *control.Domain) {
		d.LastQuery, d.NextQuery, d.Outcome, d.AnsweredBy = at, at.Add(time.Minute), "Found", "192.0.2.53:53"
		d.Entries = []control.DomainEntry{{Name: "barn.example.info", URL: "https://barn.example.info:6447", ClusterID: clitest.Barn, Cluster: "barn"}}
	}
}

// TestDomainsAdd: the first look is waited for, and what it finds is printed.
func TestDomainsAdd(t *testing.T) {
	m := clitest.Farm()
	w := clitest.WithAgent(t, cli.New, m)
	m.Decided = func(verb string) {
		if verb == "add-domain" {
			m.Domain("example.info", found(clitest.Now))
		}
	}
	stdout, stderr, code := w.Run(t.Context(), "domains", "add", "Example.info", "--server", "tls://192.0.2.53", "--autojoin", "--min-interval", "5s", "--max-interval", "10m")
	if code != command.ExitOK {
		t.Errorf("exit code %d", code)
	}
	clitest.Golden(t, "domains-add", "$ liqo-agent domains add\n"+stdout+"--- stderr\n"+stderr)
	if heard := m.Heard(); len(heard) != 1 || heard[0] != "add-domain example.info server=tls://192.0.2.53 autojoin=true 5s..10m0s" {
		t.Errorf("the agent heard %q", heard)
	}

	// Again, and nothing is different: it is looked at all the same.
	m.Decided = func(verb string) {
		if verb == "ask-domain" {
			m.Domain("example.info", found(clitest.Now.Add(time.Second)))
		}
	}
	stdout, _, code = w.Run(t.Context(), "domains", "add", "example.info", "-o", "json", "--no-autojoin")
	if code != command.ExitOK || !strings.Contains(stdout, `"lastQuery": "2026-11-21T12:00:01Z"`) {
		t.Errorf("again: exit code %d, %s", code, stdout)
	}
	if heard := strings.Join(m.Heard(), "; "); heard != "add-domain example.info server= autojoin=false 0s..0s; ask-domain example.info" {
		t.Errorf("the agent heard %s", heard)
	}

	stdout, _, code = w.Run(t.Context(), "domains", "add", "example.edu", "--no-wait")
	if code != command.ExitOK || stdout != "Querying example.edu in the background. Result: liqo-agent domains show example.edu\n" {
		t.Errorf("--no-wait: exit code %d, %s", code, stdout)
	}
	m.Heard()

	m.Fail = &control.Error{Kind: control.ErrRefused, Message: "example.com is in the configuration file, which takes precedence", Advice: "edit it there"}
	_, stderr, code = w.Run(t.Context(), "domains", "add", "example.com")
	if code != command.ExitRefused || !strings.Contains(stderr, "takes precedence\ntry: edit it there\n") {
		t.Errorf("refused: exit code %d, %s", code, stderr)
	}
}

// TestDomainsWaiting: it is said what is waited for, and what is when nobody waits
// any longer.
func TestDomainsWaiting(t *testing.T) {
	m := clitest.Farm()
	w := clitest.WithAgent(t, cli.New, m)
	w.Pace = command.Pace{Settle: time.Millisecond, Believe: time.Millisecond}
	_, stderr, code := w.Run(t.Context(), "domains", "add", "example.info", "--timeout", "50ms")
	if code != command.ExitTimeout || stderr != "liqo-agent: querying example.info takes longer than 50ms and continues in the background; waiting for: an answer from the DNS servers\ntry: liqo-agent domains show example.info\n" {
		t.Errorf("nobody answers: exit code %d, %s", code, stderr)
	}
	pending := func(n int) func(*control.Domain) {
		return func(d *control.Domain) {
			found(clitest.Now)(d)
			for range n {
				d.Entries = append(d.Entries, control.DomainEntry{Name: "x", URL: "https://x:1", Reason: "NotAskedYet"})
			}
		}
	}
	for n, want := range map[int]string{1: "an answer from 1 entry\n", 2: "an answer from 2 entries\n"} {
		m.Decided = func(string) {
			m.Domain("example.info", func(d *control.Domain) { pending(n)(d); d.LastQuery = clitest.Now.Add(time.Duration(n) * time.Hour) })
		}
		m.Domain("example.info", func(d *control.Domain) { d.LastQuery = clitest.Now })
		_, stderr, code = w.Run(t.Context(), "domains", "refresh", "example.info", "--timeout", "50ms")
		if code != command.ExitTimeout || !strings.Contains(stderr, "waiting for: "+want) {
			t.Errorf("%d are asked: exit code %d, %s", n, code, stderr)
		}
	}

	// The answer comes while it waits.
	m.Domain("example.info", func(d *control.Domain) { *d = control.Domain{Name: "example.info", LastQuery: clitest.Now} })
	m.Decided = nil
	out, text, seen := untilWaiting()
	done := make(chan int, 1)
	go func() {
		_, code := w.RunTo(t.Context(), out, "domains", "refresh", "example.info")
		done <- code
	}()
	await(t, seen)
	m.Domain("example.info", found(clitest.Now.Add(time.Minute)))
	if code := await(t, done); code != command.ExitOK {
		t.Errorf("exit code %d", code)
	}
	clitest.Golden(t, "domains-refresh", "$ liqo-agent domains refresh\n"+text.String())

	// Ctrl-C, and somebody who removes the domain.
	out, _, seen = untilWaiting()
	ctx, interrupt := context.WithCancel(t.Context())
	go func() {
		stderr, code := w.RunTo(ctx, out, "domains", "refresh", "example.info")
		if !strings.Contains(stderr, "querying example.info continues in the background\ntry: liqo-agent domains show example.info\n") {
			code = -1
		}
		done <- code
	}()
	await(t, seen)
	interrupt()
	if code := await(t, done); code != command.ExitInterrupted {
		t.Errorf("interrupted: exit code %d", code)
	}
	out, _, seen = untilWaiting()
	go func() {
		stderr, code := w.RunTo(t.Context(), out, "domains", "refresh", "example.info")
		if !strings.Contains(stderr, "example.info is no longer a search domain: it was removed meanwhile") {
			code = -1
		}
		done <- code
	}()
	await(t, seen)
	if _, stderr, code := w.Run(t.Context(), "domains", "remove", "example.info"); code != command.ExitOK {
		t.Errorf("remove: exit code %d, %s", code, stderr)
	}
	if code := await(t, done); code != command.ExitError {
		t.Errorf("removed: exit code %d", code)
	}
}

// await waits for what should happen at once.
func await[T any](t *testing.T, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(clitest.Patience):
		t.Fatal("what should happen at once does not")
	}
	return *new(T)
}

// untilWaiting returns an output, and a channel that is closed when it says that
// something is waited for.
func untilWaiting() (io.Writer, *strings.Builder, <-chan struct{}) {
	out, seen := new(strings.Builder), make(chan struct{})
	tell := sync.OnceFunc(func() { close(seen) })
	return clitest.Lines(func(line string) {
		out.WriteString(line + "\n")
		if strings.HasPrefix(line, "WAIT ") {
			tell()
		}
	}), out, seen
}

// TestDomainsWithoutAgent: the file and the database say which domains there are,
// by the same precedence as in the agent.
func TestDomainsWithoutAgent(t *testing.T) {
	w := clitest.NoAgent(t, cli.New)
	const file = "agent.toml"
	home, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	text := "[[search_domain]]\ndomain = \"Example.com.\"\nautojoin = false\n\n[[search_domain]]\ndomain = \"example.net\"\nserver = \"tls://192.0.2.53\"\nmin_interval = \"5s\"\n"
	if err := os.WriteFile(filepath.Join(w.Dir, file), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	check := func(name, args string, want int) {
		t.Helper()
		t.Chdir(w.Dir) // the path of the file is in a table, whose columns are as wide as it is long
		stdout, stderr, code := w.Run(t.Context(), strings.Fields(args)...)
		t.Chdir(home)
		if code != want {
			t.Errorf("%s: exit code %d, want %d", args, code, want)
		}
		clitest.Golden(t, name, "$ liqo-agent "+args+"\n"+stdout+"--- stderr\n"+stderr)
	}
	check("domains-offline-file", "domains list --config "+file, 0)

	store, err := state.Open(t.Context(), filepath.Join(w.Dir, command.DatabaseName), state.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	yes := true
	err = errors.Join(
		store.SetSearchDomain(t.Context(), state.SearchDomain{Domain: "example.com", MinInterval: time.Second, MaxInterval: time.Hour, By: "user bob (command line)", At: clitest.Now}),
		store.SetSearchDomain(t.Context(), state.SearchDomain{Domain: "a.example", Autojoin: &yes, Server: "192.0.2.9", MinInterval: time.Second, MaxInterval: time.Hour, By: "user alice (command line)", At: clitest.Now}),
		store.SetSearchDomain(t.Context(), state.SearchDomain{Domain: "b.example", MinInterval: time.Second, MaxInterval: time.Hour, By: "user alice (command line)", At: clitest.Now}),
		store.SetClusterID(t.Context(), peer.ClusterID(clitest.FarmID), "test"), store.Close())
	if err != nil {
		t.Fatal(err)
	}
	check("domains-offline", "domains list --config "+file, 0)
	check("domains-offline-json", "domains list -o json --config "+file, 0)
	check("domains-offline-show", "domains show example.com --config "+file, 0)
	check("domains-offline-remove", "domains remove a.example --config "+file, command.ExitNotRunning)
	t.Chdir(w.Dir)
	if err := os.WriteFile(file, []byte("[[search_domain]]\ndomian = \"x\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, stderr, code := w.Run(t.Context(), "domains", "list", "--config", file, "--socket", w.Socket(), "--state-dir", w.Dir)
	if code != command.ExitOK || !strings.Contains(stderr, "the search domains of the configuration file are not shown: ") || !strings.Contains(stderr, "domian") {
		t.Errorf("with a bad file: exit code %d, %s", code, stderr)
	}
	if err := os.WriteFile(filepath.Join(w.Dir, command.DatabaseName), bytes.Repeat([]byte("no database "), 1000), 0o600); err != nil {
		t.Fatal(err)
	}
	_, stderr, code = w.Run(t.Context(), "domains", "list")
	if code != command.ExitNotRunning || !strings.Contains(stderr, "damaged") {
		t.Errorf("with a damaged database: exit code %d, %s", code, stderr)
	}
}
