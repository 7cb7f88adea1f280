//go:build linux

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"liqo.io/agent/agent/control"
	"liqo.io/agent/cli/command"
	"liqo.io/agent/cli/scan"
	"liqo.io/agent/internal/bed"
	"liqo.io/agent/internal/crowd"
	"liqo.io/agent/peer"
)

// exitCode is how a program ended, -1 when it did not run.
func exitCode(err error) int {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return exit.ExitCode()
	}
	return -1
}

// events reads the JSON lines that a running command of the agent's writes.
type events[T any] struct {
	t       *testing.T
	process *bed.Process
	read    int
}

func follow[T any](x *box, args ...string) *events[T] {
	x.t.Helper()
	p := x.host.Start(bed.Cmd{Name: strings.Join(args[:2], "-"), Args: append([]string{x.bin}, args...)})
	return &events[T]{t: x.t, process: p}
}

// next waits for a line that fits, skipping others.
func (e *events[T]) next(what string, fits func(T) bool) T {
	e.t.Helper()
	ctx, cancel := context.WithTimeout(e.t.Context(), soon)
	defer cancel()
	var found T
	if err := bed.Poll(ctx, func() error {
		lines := strings.SplitAfter(e.process.Log(), "\n")
		for ; e.read < len(lines) && strings.HasSuffix(lines[e.read], "\n"); e.read++ {
			var v T
			if err := json.Unmarshal([]byte(lines[e.read]), &v); err != nil {
				return fmt.Errorf("%q: %w", lines[e.read], err)
			}
			if fits(v) {
				found = v
				e.read++
				return nil
			}
		}
		return errors.New("no such line yet")
	}); err != nil {
		e.t.Fatalf("%s: %v; it wrote:\n%s", what, err, e.process.Log())
	}
	return found
}

// startCrowd simulates neighbours on a host of their own until the test ends.
func startCrowd(t *testing.T, b *bed.Bed, name string, opts crowd.Options) *crowd.Crowd {
	t.Helper()
	opts.Service = serviceName
	if opts.Port == 0 {
		opts.Port = 6447
	}
	host := b.AddHost(name, opts.First.Prev().String()+"/16")
	c, err := crowd.New(host, opts)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("crowd: %v", err)
		}
	})
	return c
}

func TestWatchIsLive(t *testing.T) {
	t.Parallel()
	b := bed.New(t)
	boxes := newBoxes(t, b, "barn", "mill")
	barn, mill := boxes[0], boxes[1]
	barn.start("--kubeconfig", "none")
	w := follow[control.WatchEvent](barn, "peers", "watch", "-o", "json")
	w.next("synced", func(e control.WatchEvent) bool { return e.Event == control.WatchSynced })
	mill.start("--kubeconfig", "none")
	millID := mill.id()
	is := func(kind, phase string) func(control.WatchEvent) bool {
		return func(e control.WatchEvent) bool {
			return e.Event == kind && e.Peer != nil && e.Peer.ID == millID && e.Peer.Phase == phase
		}
	}
	w.next("found", func(e control.WatchEvent) bool { return e.Event == control.WatchFound && e.Peer.ID == millID })
	barn.awaitPeer(millID, "Present")
	mill.configure("[cluster]\nname = \"windmill\"\n\n[discovery]\ncheck_interval = \"1s\"\n")
	mill.reload()
	w.next("renamed", func(e control.WatchEvent) bool {
		return is(control.WatchUpdated, "Present")(e) && e.Peer.Name == "windmill"
	})
	mill.stop()
	if e := w.next("lost", is(control.WatchLost, "Lost")); !strings.Contains(e.Peer.Reason, "goodbye") {
		t.Errorf("lost because %q", e.Peer.Reason)
	}
	again := follow[control.WatchEvent](barn, "peers", "watch", "-o", "json")
	again.next("synced without those that are gone", func(e control.WatchEvent) bool {
		if e.Event == control.WatchSnapshot && e.Peer.ID == millID {
			t.Errorf("a lost peer is part of the snapshot: %+v", e.Peer)
		}
		return e.Event == control.WatchSynced
	})
	barn.stop()
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	if err := w.process.Wait(ctx); exitCode(err) != 1 {
		t.Errorf("the watch of an agent that stopped: %v, want exit code 1", err)
	}
}

// scan --watch from the first answer to the end of a TTL.
func TestScanWatch(t *testing.T) {
	t.Parallel()
	b := bed.New(t)
	visitor := &box{t: t, host: b.AddHost("visitor", "10.77.0.9/16"), bin: bed.Binary(t, "liqo-agent")}
	c := startCrowd(t, b, "town", crowd.Options{Size: 3, First: netip.MustParseAddr("10.77.8.2"), Endpoints: true})
	eve := newAttacker(t, b, "eve", netip.MustParseAddr("10.77.0.66"))
	w := follow[scan.Neighbour](visitor, "scan", "--watch", "-o", "json")
	is := func(event, id string) func(scan.Neighbour) bool {
		return func(n scan.Neighbour) bool { return n.Event == event && n.ID == id }
	}
	first := w.next("found", func(n scan.Neighbour) bool { return n.Event == "found" })
	if first.Verified || first.Addr == "" || first.Instance == "" || first.Reason == "" {
		t.Errorf("found = %+v", first)
	}
	verified := w.next("verified", func(n scan.Neighbour) bool { return n.Event == "updated" && n.Verified })
	if verified.URL == "" || verified.Reason != "" {
		t.Errorf("verified = %+v", verified)
	}

	// Nobody answers at this one's address. Once that is known, its TTL is short.
	ghost := bogus(1, netip.MustParseAddr("10.77.0.66"))
	eve.say(ghost.all()...)
	w.next("the ghost is found", is("found", ghost.id))
	unverified := w.next("the ghost was asked", func(n scan.Neighbour) bool { return is("updated", ghost.id)(n) && n.Reason != "not asked yet" })
	if unverified.Verified || unverified.URL != "" {
		t.Errorf("a ghost is verified: %+v", unverified)
	}
	ghost.ttl = 3
	eve.say(ghost.all()...)
	if lost := w.next("the ghost's TTL ends", is("lost", ghost.id)); lost.Reason != "expired" {
		t.Errorf("lost because %q, want expired", lost.Reason)
	}

	leaving := c.Boxes[1]
	if err := c.Goodbye(1); err != nil {
		t.Fatal(err)
	}
	if lost := w.next("goodbye", is("lost", string(leaving.ID))); lost.Reason != "goodbye" {
		t.Errorf("lost because %q, want goodbye", lost.Reason)
	}
	if err := w.process.Stop(); err != nil {
		t.Errorf("an interrupted watch is no failure: %v", err)
	}

	eve.say(ghost.all()...)
	t.Run("one look", func(t *testing.T) {
		visitor.eventually("all were verified within two seconds", func() error { // a busy machine takes longer
			list, err := cliJSON[[]scan.Neighbour](visitor, "scan", "--timeout", "2s")
			if err != nil {
				return err
			}
			verified := 0
			for _, n := range list {
				if n.ID == ghost.id || n.Event != "" {
					t.Errorf("neighbour = %+v", n)
				}
				if n.Verified {
					verified++
				}
			}
			if len(list) != 2 || verified != 2 {
				return fmt.Errorf("%+v", list)
			}
			return nil
		})
	})
	t.Run("unverified ones are listed as such", func(t *testing.T) {
		for _, args := range [][]string{{"scan", "--no-verify"}, {"scan", "--no-verify", "-o", "wide"}} {
			visitor.eventually(fmt.Sprint(args, " lists both"), func() error {
				out, err := visitor.cli(args...)
				if err == nil && strings.Count(out, "no (not asked)") != 2 {
					err = errors.New(out)
				}
				return err
			})
		}
	})
	t.Run("nobody answers", func(t *testing.T) {
		out, err := visitor.cli("scan", "--service", "_nosuch._tcp", "--timeout", "1s")
		if err != nil || !strings.Contains(out, "No answer for") || !strings.Contains(out, "--timeout") {
			t.Errorf("%v\n%s", err, out)
		}
	})
	t.Run("no such interface", func(t *testing.T) {
		_, err := visitor.cli("scan", "--interface", "wlan7")
		if exitCode(err) != 1 || !strings.Contains(err.Error(), "wlan7") || !strings.Contains(err.Error(), "try:") {
			t.Errorf("%v", err)
		}
	})
}

// What goes wrong says what to do, with the exit codes of docs/cli.md.
func TestErrorsSayWhatToDo(t *testing.T) {
	b := bed.New(t)
	boxes := newBoxes(t, b, "barn", "mill")
	barn, mill := boxes[0], boxes[1]
	check := func(t *testing.T, err error, code int, texts ...string) {
		t.Helper()
		if got := exitCode(err); got != code {
			t.Errorf("exit code %d, want %d: %v", got, code, err)
		}
		for _, text := range texts {
			if err == nil || !strings.Contains(err.Error(), text) {
				t.Errorf("%v\nlacks %q", err, text)
			}
		}
	}

	t.Run("not running and never was", func(t *testing.T) {
		for _, args := range [][]string{{"peers", "list"}, {"status"}, {"peers", "watch"}, {"log", "level"}, {"peers", "show", "x"}, {"peers", "history"}} {
			_, err := barn.cli(args...)
			check(t, err, command.ExitNotRunning, "the agent is not running", "try: sudo liqo-agent run")
		}
	})
	barn.start("--kubeconfig", "none")
	t.Run("nobody is there", func(t *testing.T) {
		out, err := barn.cli("peers", "list")
		if err != nil || !strings.Contains(out, "No clusters are present") || !strings.Contains(out, "liqo-agent status") {
			t.Errorf("%v\n%s", err, out)
		}
		if out, err := barn.cli("peers", "list", "-o", "json"); err != nil || strings.TrimSpace(out) != "[]" {
			t.Errorf("%v\n%q", err, out)
		}
		if out, err := barn.cli("peers", "history"); err != nil || out == "" {
			t.Errorf("%v\n%q", err, out)
		}
	})
	mill.start("--kubeconfig", "none")
	millID := mill.id()
	barn.awaitPeer(millID, "Present")
	t.Run("another user", func(t *testing.T) {
		if ids, err := os.ReadFile("/proc/self/uid_map"); err != nil || strings.HasSuffix(strings.TrimSpace(string(ids)), " 1") {
			t.Skip("there is only one user in a user namespace of somebody who is not root")
		}
		// The programs are where only root can look: a copy is needed.
		if _, err := barn.host.Run(t.Context(), "install", "-m", "755", barn.bin, "/usr/local/bin/agent-copy"); err != nil {
			t.Fatal(err)
		}
		as := func(args ...string) error {
			_, err := barn.host.Run(t.Context(), append([]string{"setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "agent-copy"}, args...)...)
			return err
		}
		for _, args := range [][]string{{"status"}, {"peers", "list"}, {"peers", "watch"}} {
			check(t, as(args...), 1, "no permission to use /run/liqo-agent/agent.sock", "try: ", "sudo")
		}
		if err := as("scan", "--timeout", "1s"); err != nil {
			t.Errorf("a scan needs no privilege: %v", err)
		}
	})
	t.Run("no such peer", func(t *testing.T) {
		_, err := barn.cli("peers", "show", "nobody")
		check(t, err, command.ExitNotFound, `"nobody"`, "try: liqo-agent peers list --all")
	})
	t.Run("wrong command lines", func(t *testing.T) {
		for _, args := range [][]string{{"peer", "list"}, {"peers", "lst"}, {"peers", "list", "--al"}, {"peers", "show"},
			{"peers", "list", "-o", "xml"}, {"scan", "--service", "http"}, {"scan", "--timeout", "0s"},
			{"completion", "tcsh"}} {
			_, err := barn.cli(args...)
			check(t, err, command.ExitUsage, "try:")
		}
		_, err := barn.cli("log", "level", "loud")
		check(t, err, command.ExitUsage, "want debug, info, warn or error")
	})
	t.Run("a bad setting keeps the agent from starting", func(t *testing.T) {
		_, err := mill.cli("run", "--set", "discovery.check_interval=never", "--set", "log.levl=info")
		check(t, err, 1, "discovery.check_interval", "log.level")
	})
	t.Run("stopped", func(t *testing.T) {
		barn.stop()
		out, err := barn.cli("peers", "list")
		if err != nil || !strings.Contains(out, "mill") {
			t.Errorf("%v\n%s", err, out)
		}
		_, err = barn.cli("peers", "watch")
		check(t, err, command.ExitNotRunning, "not running")
	})
}

// The same peer by ID, by the beginning of it, by name and by alias; and names
// that fit several.
func TestNamingPeers(t *testing.T) {
	b := bed.New(t)
	barn := newBoxes(t, b, "barn")[0]
	barn.start("--kubeconfig", "none")
	c := startCrowd(t, b, "town", crowd.Options{Size: 20, First: netip.MustParseAddr("10.77.0.101"), Endpoints: true})
	barn.eventually("all are there", func() error {
		if n := barn.mustStatus().Peers[string(peer.PhasePresent)]; n != len(c.Boxes) {
			return fmt.Errorf("%d are", n)
		}
		return nil
	})
	id := string(c.Boxes[2].ID)
	for _, ref := range []string{id, id[:12], id[:8], c.Boxes[2].Name} {
		p, err := cliJSON[control.Peer](barn, "peers", "show", ref)
		if err != nil || p.ID != id {
			t.Errorf("%s names %s, %v", ref, p.ID, err)
		}
	}
	// 00000001 to 00000014: this fits sixteen or more.
	if _, err := barn.cli("peers", "show", "000000"); exitCode(err) != command.ExitNotFound || !strings.Contains(err.Error(), "matches 20 peers") ||
		!strings.Contains(err.Error(), "12 more") || !strings.Contains(err.Error(), "try:") {
		t.Errorf("ambiguous: %v", err)
	}
	if _, err := barn.cli("peers", "alias", id, "crowd-5"); err != nil {
		t.Fatal(err)
	}
	if p, err := cliJSON[control.Peer](barn, "peers", "show", "crowd-5"); err != nil || p.ID != id {
		t.Errorf("an alias does not come before a name: %s, %v", p.ID, err)
	}
	if _, err := barn.cli("peers", "alias", "crowd-7", "crowd-5"); err == nil || !strings.Contains(err.Error(), "already") {
		t.Errorf("one alias for two: %v", err)
	}
	barn.stop()
	barn.start("--kubeconfig", "none")
	if p, err := cliJSON[control.Peer](barn, "peers", "show", "crowd-5"); err != nil || p.ID != id || p.Alias != "crowd-5" {
		t.Errorf("the alias was forgotten: %+v, %v", p, err)
	}
}

func TestConfigAndLogLevel(t *testing.T) {
	t.Parallel()
	b := bed.New(t)
	barn := newBoxes(t, b, "barn")[0]
	barn.host.WriteFile("/tmp/bad.toml", `
[discovery]
check_interval = "soon"
max_neighbours = -3
enable_discovry = true
interfaces = ["["]
[endpoint]
listen = "nowhere"
[log]
level = "loud"
[nonsense]
x = 1
`)
	_, err := barn.cli("config", "check", "/tmp/bad.toml")
	if exitCode(err) == 0 {
		t.Error("a bad file is fine")
	}
	for _, text := range []string{"7 faults", "line 3", "discovery.check_interval", `"soon"`, "max_neighbours = -3: must be between",
		"did you mean discovery.enable_discovery?", "discovery.interfaces", "endpoint.listen", `"debug", "info"`, "[nonsense]"} {
		if !strings.Contains(fmt.Sprint(err), text) {
			t.Errorf("lacks %q: %v", text, err)
		}
	}

	barn.configure("[discovery]\nmax_neighbours = 77\n")
	out, err := barn.host.Run(t.Context(), "env", "LIQO_AGENT_LOG_FORMAT=json", "LIQO_AGENT_DISCOVERY_MAX_NEIGHBOURS=88",
		barn.bin, "config", "show", "--name", "farm", "--set", "discovery.lost_after=1h", "-o", "json")
	var shown struct {
		Path    string
		Values  map[string]map[string]any
		Sources map[string]string
	}
	if err == nil {
		err = json.Unmarshal([]byte(out), &shown)
	}
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string][2]string{
		"log.format":               {"json", "environment LIQO_AGENT_LOG_FORMAT"},
		"log.level":                {"info", "default"},
		"discovery.max_neighbours": {"88", "environment LIQO_AGENT_DISCOVERY_MAX_NEIGHBOURS"},
		"discovery.check_interval": {"1s", "file"},
		"discovery.lost_after":     {"1h", "--set"},
		"cluster.name":             {"farm", "flag"},
	} {
		section, name, _ := strings.Cut(key, ".")
		if got := fmt.Sprint(shown.Values[section][name]); got != want[0] || !strings.HasPrefix(shown.Sources[key], want[1]) {
			t.Errorf("%s = %s from %s, want %s from %s", key, got, shown.Sources[key], want[0], want[1])
		}
	}

	// What the environment says is what runs.
	barn.agent = barn.host.Start(bed.Cmd{Name: "liqo-agent", Args: []string{barn.bin, "run", "--kubeconfig", "none"},
		Env: []string{"LIQO_AGENT_LOG_FORMAT=json", "LIQO_AGENT_ENDPOINT_LISTEN=:7001", "LIQO_AGENT_CLUSTER_NAME=silo"}})
	barn.eventually("the agent answers", func() error { _, err := barn.status(); return err })
	if st := barn.mustStatus(); st.Endpoint.Port != 7001 || st.Identity.Name != "silo" {
		t.Errorf("status = %+v", st)
	}
	if running, err := barn.cli("config", "show", "--running"); err != nil || !strings.Contains(running, `listen = ":7001"`) {
		t.Errorf("%v\n%s", err, running)
	}
	for line := range strings.Lines(barn.agent.Log()) {
		if !json.Valid([]byte(line)) {
			t.Errorf("not JSON: %s", line)
		}
	}

	debugLines := func() int { return strings.Count(barn.agent.Log(), `"level":"DEBUG"`) }
	if n := debugLines(); n != 0 {
		t.Errorf("%d lines of debug at level info", n)
	}
	if _, err := barn.cli("log", "level", "debug"); err != nil {
		t.Fatal(err)
	}
	if out, err := barn.cli("log", "level"); err != nil || strings.TrimSpace(out) != "debug" {
		t.Errorf("level %q, %v", out, err)
	}
	eve := newAttacker(t, b, "eve", netip.MustParseAddr("10.77.0.66"))
	// Each instance is a new one, that a line at level debug is about.
	ghosts := 0
	haunt := func() {
		ghosts++
		ghost := bogus(ghosts, eve.addr)
		ghost.port, ghost.id = 9, "not an id"
		eve.say(ghost.all()...)
	}
	barn.eventually("debug lines are written", func() error {
		haunt()
		if debugLines() == 0 {
			return errors.New("none yet")
		}
		return nil
	})
	if _, err := barn.cli("log", "level", "info"); err != nil {
		t.Fatal(err)
	}
	hears := func() {
		t.Helper()
		from := barn.mustStatus().Packets.Received
		barn.eventually("ten packets arrive", func() error {
			haunt()
			if n := barn.mustStatus().Packets.Received - from; n < 10 {
				return fmt.Errorf("%d have", n)
			}
			return nil
		})
	}
	hears() // with them, a line that was being written when the level changed has come
	before := debugLines()
	hears()
	barn.reload()
	barn.eventually("the configuration was read again", func() error {
		if !strings.Contains(barn.agent.Log(), "reloaded") {
			return errors.New("not yet")
		}
		return nil
	})
	if n := debugLines(); n != before {
		t.Errorf("%d lines of debug after going back to info", n-before)
	}
}

// The completion script in a real bash, with the real program and agent.
func TestCompletionInBash(t *testing.T) {
	b := bed.New(t)
	boxes := newBoxes(t, b, "barn", "mill")
	barn, mill := boxes[0], boxes[1]
	barn.start("--kubeconfig", "none")
	mill.start("--kubeconfig", "none")
	barn.awaitPeer(mill.id(), "Present")
	for line, want := range map[string][]string{
		"pee":                  {"peers"},
		"peers sh":             {"show"},
		"peers show ":          {"mill"},
		"peers show mi":        {"mill"},
		"peers list --output ": {"json", "table", "wide", "yaml"},
		"log level de":         {"debug"},
	} {
		words := strings.Split("liqo-agent "+line, " ")
		script := fmt.Sprintf(`PATH=%s:$PATH; source <(liqo-agent completion bash)
COMP_WORDS=(%s) COMP_CWORD=%d COMP_LINE=%q COMP_POINT=%d
[[ %q == *" " ]] && COMP_WORDS+=("")
complete -p liqo-agent | sed -n 's/.*-F \([^ ]*\).*/\1/p' >/tmp/function
$(</tmp/function) liqo-agent
printf '%%s\n' "${COMPREPLY[@]}"`, filepath.Dir(barn.bin), strings.Join(words, " "), len(words)-1, "liqo-agent "+line, len("liqo-agent "+line), line)
		// It completes to nothing if the agent does not answer within half a second, as on a busy machine.
		barn.eventually(fmt.Sprintf("%q completes to %q", line, want), func() error {
			out, err := barn.host.Run(t.Context(), "bash", "-c", script)
			got := strings.Fields(out)
			slices.Sort(got)
			if err == nil && !slices.Equal(got, want) {
				err = fmt.Errorf("it completes to %q", got)
			}
			return err
		})
	}
}

// A table for people is not coloured in a pipe, and JSON is the same whoever asks.
func TestOutputIntoAPipe(t *testing.T) {
	b := bed.New(t)
	barn := newBoxes(t, b, "barn")[0]
	barn.start("--kubeconfig", "none")
	started := time.Now()
	for _, args := range [][]string{{"status"}, {"peers", "list"}, {"version"}, {"help"}, {"peers", "--help"}, {"crds"}} {
		out, err := barn.cli(args...)
		if err != nil || out == "" || strings.Contains(out, "\x1b") {
			t.Errorf("%v: %v\n%q", args, err, out)
		}
	}
	t.Logf("six commands took %v", time.Since(started))
}
