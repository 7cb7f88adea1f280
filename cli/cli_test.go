package cli

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"liqo.io/agent/agent/control"
	"liqo.io/agent/peer"
	"liqo.io/agent/state"
)

var update = flag.Bool("update", false, "write the golden files anew")

// patience bounds waiting for what should happen at once.
const patience = 20 * time.Second

// now is the time in all tests.
var now = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func TestMain(m *testing.M) {
	if os.Getenv(programVariable) != "" {
		os.Exit(runAsProgram())
	}
	time.Local = time.UTC // for the same output everywhere
	os.Exit(m.Run())
}

// world is a machine with an agent, or without one.
type world struct {
	dir    string
	server *control.Server
	color  bool
}

func (w *world) socket() string { return filepath.Join(w.dir, "agent.sock") }

func (w *world) environ() []string {
	return []string{"LIQO_AGENT_STATE_SOCKET=" + w.socket(), "LIQO_AGENT_STATE_DIR=" + w.dir}
}

// run runs a command line and returns what it wrote and its exit code. The
// directory of the world reads $DIR in all output.
func (w *world) run(ctx context.Context, args ...string) (stdout, stderr string, code int) {
	var out, errs bytes.Buffer
	app := New(Options{Version: "1.2.3", Commit: "abcdef", Stdout: &out, Stderr: &errs, Environ: w.environ(), Color: w.color,
		Now: func() time.Time { return now }})
	code = Report(&errs, app.Run(ctx, append([]string{Name}, args...)))
	place := func(s string) string { return strings.ReplaceAll(s, w.dir, "$DIR") }
	return place(out.String()), place(errs.String()), code
}

// noAgent is a machine on which no agent runs or ever ran.
func noAgent(t *testing.T) *world { return &world{dir: t.TempDir()} }

// withAgent is a machine with an agent that answers from b.
func withAgent(t *testing.T, b control.Backend) *world {
	t.Helper()
	w := noAgent(t)
	w.server = control.NewServer(control.ServerConfig{Path: w.socket(), Backend: b, Level: new(slog.LevelVar),
		Logger: slog.New(slog.DiscardHandler), Now: func() time.Time { return now }})
	if err := w.server.Listen(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.server.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return w
}

// memory is a control.Backend that answers from memory.
type memory struct {
	mu     sync.Mutex
	status control.Status
	peers  []control.Peer
	events []peer.Event
}

func (m *memory) Status(context.Context) (control.Status, error) { return m.status, nil }

func (m *memory) Peers(context.Context) ([]control.Peer, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.peers), nil
}

func (m *memory) History(_ context.Context, q control.HistoryQuery) ([]peer.Event, error) {
	var out []peer.Event
	for _, e := range m.events {
		if (q.ID == "" || e.ID == q.ID) && !e.At.Before(q.Since) {
			out = append(out, e)
		}
	}
	if q.Limit > 0 && len(out) > q.Limit {
		out = out[len(out)-q.Limit:]
	}
	return out, nil
}

func (m *memory) SetAlias(_ context.Context, id peer.ClusterID, alias string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range m.peers {
		if m.peers[i].ID == string(id) {
			m.peers[i].Alias = alias
		}
	}
	return nil
}

func (m *memory) Config(context.Context) (control.Config, error) {
	return control.Config{Path: "/etc/x.toml", TOML: "[log]\nlevel = \"warn\"\n", Sources: map[string]string{"log.level": "file /etc/x.toml:2"}}, nil
}

const (
	idBarn = "0558de48-097b-4b7d-ba04-6bd2a0f9d24f"
	idSilo = "0558de48-1111-4b7d-ba04-6bd2a0f9d24f"
	idShed = "9c1b7c1e-5f0a-4f7e-8d0a-2b1f0c3d4e5f"
	idVan  = "d00dfeed-0000-4000-8000-000000000001"
)

var fpBarn = strings.Repeat("ab", 32)

func farm() *memory {
	return &memory{
		peers: []control.Peer{
			{ID: idBarn, Name: "barn", Phase: "Present", Source: "LAN", URL: "https://192.0.2.7:6447", Addresses: []string{"192.0.2.7:6447", "[fe80::7%eth0]:6447"},
				Links: []string{"eth0", "eth1"}, Fingerprint: fpBarn, Namespace: "liqo", Version: "1", TTLSeconds: 120, Verified: true, Remembered: true,
				ForeignCluster: idBarn, FirstSeen: now.Add(-72 * time.Hour), LastSeen: now.Add(-12 * time.Second)},
			{ID: idSilo, Name: "silo", Alias: "Halle 3", Phase: "Unreachable", Reason: "connect to 192.0.2.8:6447: connection refused", Source: "LAN",
				URL: "https://192.0.2.8:6447", Addresses: []string{"192.0.2.8:6447"}, Links: []string{"eth0"}, Fingerprint: strings.Repeat("cd", 32),
				Namespace: "liqo", Version: "1", TTLSeconds: 120, Failures: 2, Verified: true, Remembered: true, FirstSeen: now.Add(-time.Hour), LastSeen: now.Add(-5 * time.Minute),
				Conflict: &control.Conflict{Fingerprint: strings.Repeat("ef", 32), Address: "192.0.2.66:6447", Since: now.Add(-time.Minute)}},
			{ID: idShed, Name: "shed", Phase: "Lost", Reason: "goodbye", Source: "LAN", Addresses: []string{}, Links: []string{}, Fingerprint: strings.Repeat("12", 32),
				Verified: true, Remembered: true, FirstSeen: now.Add(-240 * time.Hour), LastSeen: now.Add(-49 * time.Hour)},
			// What a hostile neighbour would like to send to a terminal.
			{ID: idVan, Name: "van\x1b[31m\u202e", Phase: "Unverified", Reason: "not\nasked yet", Source: "LAN", Addresses: []string{"192.0.2.9:6447"}, Links: []string{"eth0"}},
		},
		events: []peer.Event{
			{At: now.Add(-73 * time.Hour), ID: "11111111-2222-4333-8444-555555555555", Kind: peer.EventLost, Detail: "expired"},
			{At: now.Add(-72 * time.Hour), ID: idBarn, Kind: peer.EventAppeared, Detail: "on eth0 at 192.0.2.5:6447"},
			{At: now.Add(-2 * time.Hour), ID: idBarn, Kind: peer.EventAddressChanged, Detail: "192.0.2.5:6447 -> 192.0.2.7:6447"},
			{At: now.Add(-time.Minute), ID: idSilo, Kind: peer.EventConflict, Detail: "another key at 192.0.2.66:6447"},
		},
		status: control.Status{
			Version:   "1.2.3",
			Identity:  control.Identity{ClusterID: idVan, Name: "farm", Namespace: "liqo", Fingerprint: strings.Repeat("77", 32), IDOrigin: "ConfigMap"},
			StartedAt: now.Add(-3 * time.Hour),
			Links:     []control.Link{{Name: "eth0", Addresses: []string{"192.0.2.1/24"}}, {Name: "eth1", Addresses: []string{}}},
			Discovery: control.Discovery{Enabled: true, Service: "_liqo._tcp", Domain: "local"},
			Advertisement: control.Advertisement{
				Enabled: true, Established: true, Instance: idVan,
			},
			Endpoint:   control.Endpoint{Listen: ":6447", Port: 6447, Connections: 1},
			Kubernetes: control.Kubernetes{Server: "https://127.0.0.1:6443", LastError: "connection refused", Kubeconfig: "/etc/rancher/k3s/k3s.yaml"},
			State:      control.State{Path: "/var/lib/liqo-agent/agent.db"},
			Peers:      map[string]int{"Present": 1, "Unverified": 1, "Unreachable": 1, "Lost": 1},
			Packets:    control.Packets{Received: 1200, Sent: 34},
			Drops:      map[string]uint64{"mdns:malformed": 2, "mdns:off-link": 5},
			Problems:   []control.Problem{{Text: "somebody at 192.0.2.66 shows the cluster ID of silo with another key", Remedy: "find out which of the two is the copy"}},
		},
	}
}

func TestGolden(t *testing.T) {
	full, empty, none := withAgent(t, farm()), withAgent(t, &memory{}), noAgent(t)
	onlyLost := withAgent(t, &memory{peers: farm().peers[2:3]})
	colored := withAgent(t, farm())
	colored.color = true
	for _, tc := range []struct {
		name string
		w    *world
		args string
		code int
	}{
		{"list", full, "peers list", 0},
		{"list-all", full, "peers list --all", 0},
		{"list-wide", full, "peers list -a -o wide", 0},
		{"list-json", full, "peers list --all -o json", 0},
		{"list-yaml", full, "peers list -oyaml", 0},
		{"list-color", colored, "peers list --all", 0},
		{"list-empty", empty, "peers list", 0},
		{"list-empty-json", empty, "peers list -o json", 0},
		{"list-only-lost", onlyLost, "peers list", 0},
		{"list-none", none, "peers list", ExitNotRunning},
		{"show", full, "peers show barn", 0},
		{"show-conflict", full, "peers show 0558de48-1", 0},
		{"show-hostile", full, "peers show d00d", 0},
		{"show-json", full, "peers show barn -o json", 0},
		{"show-ambiguous", full, "peers show 0558", ExitNotFound},
		{"show-unknown", full, "peers show cellar", ExitNotFound},
		{"history", full, "peers history", 0},
		{"history-one", full, "peers history barn --since 1d", 0},
		{"history-json", full, "peers history --limit 1 -o json", 0},
		{"history-empty", full, "peers history --since 10s", 0},
		{"history-bad-since", full, "peers history --since yesterday", ExitUsage},
		{"status", full, "status", 0},
		{"status-json", full, "status -o json", 0},
		{"status-empty", empty, "status", 0},
		{"status-none", none, "status", ExitNotRunning},
		{"alias", full, "peers alias 9c1b cellar", 0},
		{"alias-taken", full, "peers alias barn cellar", ExitUsage},
		{"alias-remove", full, "peers alias cellar --remove", 0},
		{"alias-forgotten", full, "peers alias barn", ExitUsage},
		{"alias-long", full, "peers alias barn -- Halle-3-" + strings.Repeat("x", 60), ExitUsage},
		{"log-level", full, "log level", 0},
		{"log-level-set", full, "log level debug", 0},
		{"log-level-changed", full, "log level", 0},
		{"log-level-wrong", full, "log level loud", ExitUsage},
		{"config-running", full, "config show --running -o json", 0},
		{"watch-none", none, "peers watch", ExitNotRunning},
		{"unknown-command", none, "peers lsit", ExitUsage},
		{"unknown-option", none, "peers list --al", ExitUsage},
		{"scan-bad-service", none, "scan --service http", ExitUsage},
		{"scan-bad-timeout", none, "scan --timeout 0s --interface lo", ExitUsage},
		{"scan-no-link", none, "scan --interface nosuch*", ExitError},
		{"completion-unknown", none, "completion tcsh", ExitUsage},
	} {
		t.Run(tc.name, func(t *testing.T) {
			stdout, stderr, code := tc.w.run(t.Context(), strings.Fields(tc.args)...)
			if code != tc.code {
				t.Errorf("exit code %d, want %d", code, tc.code)
			}
			golden(t, tc.name, "$ liqo-agent "+tc.args+"\n"+stdout+"--- stderr\n"+stderr)
		})
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("output differs from %s (-want +got):\n%s", path, diff)
	}
}

// Whatever the format, nothing that came from the network reaches a terminal
// as an escape sequence.
func TestNothingControlsTheTerminal(t *testing.T) {
	m := farm()
	for i := range m.peers {
		m.peers[i].Name = "a\x1b]0;x\x07\u009b2J\x7f\r\n\u202eb\xff"
		m.peers[i].Reason = m.peers[i].Name
		m.peers[i].Links = []string{m.peers[i].Name}
	}
	m.events[1].Detail = m.peers[0].Name
	m.status.Problems[0].Text = m.peers[0].Name
	w := withAgent(t, m)
	for _, args := range []string{"peers list -a", "peers list -a -o wide", "peers list -a -o json", "peers list -a -o yaml", "peers show 9c1b",
		"peers show 9c1b -o json", "peers show 0558", "peers history", "peers history -o json", "status", "status -o json"} {
		stdout, stderr, _ := w.run(t.Context(), strings.Fields(args)...)
		for _, bad := range []string{"\x1b", "\x07", "\u009b", "\x7f", "\r"} {
			if strings.Contains(stdout+stderr, bad) {
				t.Errorf("%s writes %q", args, bad)
			}
		}
	}
}

func TestWithoutAgentTheDatabaseIsRead(t *testing.T) {
	w := noAgent(t)
	store, err := state.Open(t.Context(), filepath.Join(w.dir, databaseName), state.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	fp, err := peer.ParseFingerprint(fpBarn)
	if err != nil {
		t.Fatal(err)
	}
	err = store.Apply(t.Context(), state.Change{
		Peers: []peer.Peer{{ID: idBarn, Name: "barn", Namespace: "liqo", Fingerprint: fp, Phase: peer.PhasePresent, Source: peer.LAN,
			URL: "https://192.0.2.7:6447", Version: "1", FirstSeen: now.Add(-time.Hour), LastSeen: now.Add(-time.Minute)}},
		Events: []peer.Event{{At: now.Add(-time.Hour), ID: idBarn, Kind: peer.EventAppeared, Detail: "on eth0"}},
	})
	if err := errors.Join(err, store.SetAlias(t.Context(), idBarn, "b"), store.Close()); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		args string
		code int
	}{
		"offline-list":    {"peers list", 0},
		"offline-show":    {"peers show b", 0},
		"offline-unknown": {"peers show cellar", ExitNotFound},
		"offline-history": {"peers history barn", 0},
		"offline-alias":   {"peers alias barn c", ExitNotRunning},
	} {
		stdout, stderr, code := w.run(t.Context(), strings.Fields(tc.args)...)
		if code != tc.code {
			t.Errorf("%s: exit code %d, want %d", tc.args, code, tc.code)
		}
		golden(t, name, "$ liqo-agent "+tc.args+"\n"+stdout+"--- stderr\n"+stderr)
	}
	if err := os.WriteFile(filepath.Join(w.dir, databaseName), bytes.Repeat([]byte("no database "), 1000), 0o600); err != nil {
		t.Fatal(err)
	}
	_, stderr, code := w.run(t.Context(), "peers", "list")
	if code != ExitNotRunning || !strings.Contains(stderr, "damaged") || !strings.Contains(stderr, "try: sudo liqo-agent run") {
		t.Errorf("with a damaged database: exit code %d, %s", code, stderr)
	}
}
