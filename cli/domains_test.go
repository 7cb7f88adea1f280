package cli

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
	"liqo.io/agent/peer"
	"liqo.io/agent/state"
)

// found is what a look at a domain of these tests gives.
func found(at time.Time) func(*control.Domain) {
	return func(d *control.Domain) {
		d.LastQuery, d.NextQuery, d.Outcome, d.AnsweredBy = at, at.Add(time.Minute), "Found", "192.0.2.53:53"
		d.Entries = []control.DomainEntry{{Name: "barn.example.info", URL: "https://barn.example.info:6447", ClusterID: idBarn, Cluster: "barn"}}
	}
}

// TestDomainsAdd: the first look is waited for, and what it finds is printed.
func TestDomainsAdd(t *testing.T) {
	m := farm()
	w := withAgent(t, m)
	m.decided = func(verb string) {
		if verb == "add-domain" {
			m.domain("example.info", found(now))
		}
	}
	stdout, stderr, code := w.run(t.Context(), "domains", "add", "Example.info", "--server", "tls://192.0.2.53", "--autojoin", "--min-interval", "5s", "--max-interval", "10m")
	if code != ExitOK {
		t.Errorf("exit code %d", code)
	}
	golden(t, "domains-add", "$ liqo-agent domains add\n"+stdout+"--- stderr\n"+stderr)
	if heard := m.heard(); len(heard) != 1 || heard[0] != "add-domain example.info server=tls://192.0.2.53 autojoin=true 5s..10m0s" {
		t.Errorf("the agent heard %q", heard)
	}

	// Again, and nothing is different: it is looked at all the same.
	m.decided = func(verb string) {
		if verb == "ask-domain" {
			m.domain("example.info", found(now.Add(time.Second)))
		}
	}
	stdout, _, code = w.run(t.Context(), "domains", "add", "example.info", "-o", "json", "--no-autojoin")
	if code != ExitOK || !strings.Contains(stdout, `"lastQuery": "2026-11-21T12:00:01Z"`) {
		t.Errorf("again: exit code %d, %s", code, stdout)
	}
	if heard := strings.Join(m.heard(), "; "); heard != "add-domain example.info server= autojoin=false 0s..0s; ask-domain example.info" {
		t.Errorf("the agent heard %s", heard)
	}

	stdout, _, code = w.run(t.Context(), "domains", "add", "example.edu", "--no-wait")
	if code != ExitOK || stdout != "Looking in example.edu goes on in the background. See what was found: liqo-agent domains show example.edu\n" {
		t.Errorf("--no-wait: exit code %d, %s", code, stdout)
	}
	m.heard()

	m.fail = &control.Error{Kind: control.ErrRefused, Message: "example.com is in the configuration file, which has the last word", Advice: "edit it there"}
	_, stderr, code = w.run(t.Context(), "domains", "add", "example.com")
	if code != ExitRefused || !strings.Contains(stderr, "has the last word\ntry: edit it there\n") {
		t.Errorf("refused: exit code %d, %s", code, stderr)
	}
}

// TestDomainsWaiting: it is said what is waited for, and what is when nobody waits
// any longer.
func TestDomainsWaiting(t *testing.T) {
	m := farm()
	w := withAgent(t, m)
	w.pace = pace{settle: time.Millisecond, believe: time.Millisecond}
	_, stderr, code := w.run(t.Context(), "domains", "add", "example.info", "--timeout", "50ms")
	if code != ExitTimeout || stderr != "liqo-agent: looking in example.info takes longer than 50ms and goes on in the background; what is missing: the DNS servers answer\ntry: liqo-agent domains show example.info\n" {
		t.Errorf("nobody answers: exit code %d, %s", code, stderr)
	}
	pending := func(n int) func(*control.Domain) {
		return func(d *control.Domain) {
			found(now)(d)
			for range n {
				d.Entries = append(d.Entries, control.DomainEntry{Name: "x", URL: "https://x:1", Reason: reasonAsking})
			}
		}
	}
	for n, want := range map[int]string{1: "1 place that it lists answers\n", 2: "2 places that it lists answer\n"} {
		m.decided = func(string) {
			m.domain("example.info", func(d *control.Domain) { pending(n)(d); d.LastQuery = now.Add(time.Duration(n) * time.Hour) })
		}
		m.domain("example.info", func(d *control.Domain) { d.LastQuery = now })
		_, stderr, code = w.run(t.Context(), "domains", "refresh", "example.info", "--timeout", "50ms")
		if code != ExitTimeout || !strings.Contains(stderr, "what is missing: "+want) {
			t.Errorf("%d are asked: exit code %d, %s", n, code, stderr)
		}
	}

	// The answer comes while it waits.
	m.domain("example.info", func(d *control.Domain) { *d = control.Domain{Name: "example.info", LastQuery: now} })
	m.decided = nil
	out, text, seen := untilWaiting()
	done := make(chan int, 1)
	go func() {
		_, code := w.runTo(t.Context(), out, "domains", "refresh", "example.info")
		done <- code
	}()
	await(t, seen)
	m.domain("example.info", found(now.Add(time.Minute)))
	if code := await(t, done); code != ExitOK {
		t.Errorf("exit code %d", code)
	}
	golden(t, "domains-refresh", "$ liqo-agent domains refresh\n"+text.String())

	// Ctrl-C, and somebody who removes the domain.
	out, _, seen = untilWaiting()
	ctx, interrupt := context.WithCancel(t.Context())
	go func() {
		stderr, code := w.runTo(ctx, out, "domains", "refresh", "example.info")
		if !strings.Contains(stderr, "looking in example.info goes on in the background\ntry: liqo-agent domains show example.info\n") {
			code = -1
		}
		done <- code
	}()
	await(t, seen)
	interrupt()
	if code := await(t, done); code != ExitInterrupted {
		t.Errorf("interrupted: exit code %d", code)
	}
	out, _, seen = untilWaiting()
	go func() {
		stderr, code := w.runTo(t.Context(), out, "domains", "refresh", "example.info")
		if !strings.Contains(stderr, "example.info is no search domain any more: somebody removed it meanwhile") {
			code = -1
		}
		done <- code
	}()
	await(t, seen)
	if _, stderr, code := w.run(t.Context(), "domains", "remove", "example.info"); code != ExitOK {
		t.Errorf("remove: exit code %d, %s", code, stderr)
	}
	if code := await(t, done); code != ExitError {
		t.Errorf("removed: exit code %d", code)
	}
}

// await waits for what should happen at once.
func await[T any](t *testing.T, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		t.Fatal("what should happen at once does not")
	}
	return *new(T)
}

// untilWaiting returns an output, and a channel that is closed when it says that
// something is waited for.
func untilWaiting() (io.Writer, *strings.Builder, <-chan struct{}) {
	out, seen := new(strings.Builder), make(chan struct{})
	tell := sync.OnceFunc(func() { close(seen) })
	return lines(func(line string) {
		out.WriteString(line + "\n")
		if strings.HasPrefix(line, "WAIT ") {
			tell()
		}
	}), out, seen
}

// TestDomainsWithoutAgent: the file and the database say which domains there are,
// by the same precedence as in the agent.
func TestDomainsWithoutAgent(t *testing.T) {
	w := noAgent(t)
	const file = "agent.toml"
	home, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	text := "[[search_domain]]\ndomain = \"Example.com.\"\nautojoin = false\n\n[[search_domain]]\ndomain = \"example.net\"\nserver = \"tls://192.0.2.53\"\nmin_interval = \"5s\"\n"
	if err := os.WriteFile(filepath.Join(w.dir, file), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	check := func(name, args string, want int) {
		t.Helper()
		t.Chdir(w.dir) // the path of the file is in a table, whose columns are as wide as it is long
		stdout, stderr, code := w.run(t.Context(), strings.Fields(args)...)
		t.Chdir(home)
		if code != want {
			t.Errorf("%s: exit code %d, want %d", args, code, want)
		}
		golden(t, name, "$ liqo-agent "+args+"\n"+stdout+"--- stderr\n"+stderr)
	}
	check("domains-offline-file", "domains list --config "+file, 0)

	store, err := state.Open(t.Context(), filepath.Join(w.dir, databaseName), state.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	yes := true
	err = errors.Join(
		store.SetSearchDomain(t.Context(), state.SearchDomain{Domain: "example.com", MinInterval: time.Second, MaxInterval: time.Hour, By: "user bob (command line)", At: now}),
		store.SetSearchDomain(t.Context(), state.SearchDomain{Domain: "a.example", Autojoin: &yes, Server: "192.0.2.9", MinInterval: time.Second, MaxInterval: time.Hour, By: "user alice (command line)", At: now}),
		store.SetSearchDomain(t.Context(), state.SearchDomain{Domain: "b.example", MinInterval: time.Second, MaxInterval: time.Hour, By: "user alice (command line)", At: now}),
		store.SetClusterID(t.Context(), peer.ClusterID(idFarm), "test"), store.Close())
	if err != nil {
		t.Fatal(err)
	}
	check("domains-offline", "domains list --config "+file, 0)
	check("domains-offline-json", "domains list -o json --config "+file, 0)
	check("domains-offline-show", "domains show example.com --config "+file, 0)
	check("domains-offline-remove", "domains remove a.example --config "+file, ExitNotRunning)
	t.Chdir(w.dir)
	if err := os.WriteFile(file, []byte("[[search_domain]]\ndomian = \"x\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, stderr, code := w.run(t.Context(), "domains", "list", "--config", file, "--socket", w.socket(), "--state-dir", w.dir)
	if code != ExitOK || !strings.Contains(stderr, "the search domains of the configuration file are not shown: ") || !strings.Contains(stderr, "domian") {
		t.Errorf("with a bad file: exit code %d, %s", code, stderr)
	}
	if err := os.WriteFile(filepath.Join(w.dir, databaseName), bytes.Repeat([]byte("no database "), 1000), 0o600); err != nil {
		t.Fatal(err)
	}
	_, stderr, code = w.run(t.Context(), "domains", "list")
	if code != ExitNotRunning || !strings.Contains(stderr, "damaged") {
		t.Errorf("with a damaged database: exit code %d, %s", code, stderr)
	}
}

// TestAdviceOnDomains: whatever can be wrong, there is something to do about it.
func TestAdviceOnDomains(t *testing.T) {
	for _, outcome := range []string{"NoData", "NoName", "ServerFailure", "Refused", "Timeout", "Unreachable", "BadAnswer"} {
		if outcomeAdvice(control.Domain{Name: "example.com", Outcome: outcome}) == "" {
			t.Errorf("no advice on %s", outcome)
		}
	}
	for source, want := range map[string]string{
		"command line (user alice)": "liqo-agent domains add example.com --server ADDRESS",
		"file /etc/x.toml line 3":   "set its server in file /etc/x.toml line 3",
		"SearchDomain example":      "set the server of SearchDomain example",
	} {
		if got := outcomeAdvice(control.Domain{Name: "example.com", Outcome: "Timeout", Source: source}); !strings.HasSuffix(got, want) {
			t.Errorf("advice on a domain from %s: %s, want %s", source, got, want)
		}
	}
	for _, outcome := range []string{"", "Found"} {
		if advice := outcomeAdvice(control.Domain{Outcome: outcome}); advice != "" {
			t.Errorf("advice on %q: %s", outcome, advice)
		}
	}
}

// TestStatusTexts: a switch says where it is set when that is not where one looks
// first, and many domains do not fill the screen.
func TestStatusTexts(t *testing.T) {
	runtime, file := "ClusterConfig liqo-configuration", "file /etc/x.toml line 3"
	many := make([]control.DomainSummary, 0, 6)
	for _, outcome := range []string{"Found", "Found", "Timeout", "", "NoName", "Found"} {
		many = append(many, control.DomainSummary{Domain: "example.com", Outcome: outcome, Clusters: 2 * len(outcome) / 5, Message: "m"})
	}
	silent := control.Status{
		Discovery: control.Discovery{Enabled: true, Service: "_liqo._tcp", Domain: "local"}, Advertisement: control.Advertisement{Enabled: true},
		Links: []control.Link{{Name: "a"}, {Name: "b"}}, Networks: []control.LinkNetwork{{Link: "a", Rule: "r"}, {Link: "b", Rule: "r"}},
	}
	half := silent
	half.Networks = []control.LinkNetwork{{Link: "a", Rule: "r"}, {Link: "b", Rule: "s", Discover: true, Advertise: true}}
	for _, tc := range []struct{ got, want string }{
		{discoveryText(control.Status{Discovery: control.Discovery{Enabled: true, Service: "_liqo._tcp", Domain: "local", Source: runtime}}), "_liqo._tcp.local on no interface (" + runtime + ")"},
		{discoveryText(control.Status{Discovery: control.Discovery{Enabled: true, Service: "_liqo._tcp", Domain: "local", Source: file}}), "_liqo._tcp.local on no interface"},
		{discoveryText(control.Status{Discovery: control.Discovery{Source: file}}), "off (discovery.enable_discovery = false, " + file + ")"},
		{discoveryText(control.Status{}), "off (discovery.enable_discovery = false)"},
		{advertisementText(control.Status{Advertisement: control.Advertisement{Enabled: true, Instance: "x", Established: true, Source: "default"}}), "on, announced as x"},
		{advertisementText(control.Status{Advertisement: control.Advertisement{Enabled: true, Source: "--set"}}), "on, not announced yet (--set)"},
		{advertisementText(control.Status{Advertisement: control.Advertisement{Source: runtime}}), "off (discovery.enable_advertisement = false, " + runtime + ")"},
		{autojoinText(control.Autojoin{Enabled: true, Source: "default"}), "on"},
		{autojoinText(control.Autojoin{Enabled: true, Untrusted: true}), "on, also of clusters that nobody trusts (discovery.autojoin_untrusted)"},
		{autojoinText(control.Autojoin{Untrusted: true, Source: "default"}), "off (discovery.autojoin = false)"},
		{searchDomainsText(nil), ""},
		{searchDomainsText(many), "3 Found, 1 NoName, 1 Timeout, 1 not looked at yet, 10 clusters (liqo-agent domains list)"},
		{networksText([]control.LinkNetwork{{Link: "a", Advertise: true, Discover: true, Autojoin: true}, {Link: "b", Rule: "r", Discover: true, Autojoin: true}, {Link: "c", Rule: "s", Why: "w"}}),
			"a everything (no rule fits); b only discovers and joins (rule r); c silent (rule s: w)"},
		{networksText([]control.LinkNetwork{{Link: "a", Why: "no network rule holds on a"}, {Link: "b", Rule: "r", Why: `network "r": interface * on b`}}),
			"a silent (no rule fits); b silent (rule r: interface *)"},
		{discoveryText(silent), "_liqo._tcp.local on no interface: the network rules leave out a, b"},
		{advertisementText(silent), "on no interface: the network rules leave out a, b"},
		{discoveryText(half), "_liqo._tcp.local on b"},
		{advertisementText(half), "on, not announced yet"},
		{sourcesText(control.Peer{Source: "LAN"}), "LAN"},
		{sourcesText(control.Peer{Source: "Manual", Sources: []string{"Manual", "WAN"}, Domains: []string{"b", "c"}}), "Manual, WAN (in b, c)"},
	} {
		if tc.got != tc.want {
			t.Errorf("got  %s\nwant %s", tc.got, tc.want)
		}
	}
}
