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
	"testing"
	"time"

	"liqo.io/agent/agent/control"
	"liqo.io/agent/internal/generated"
	"liqo.io/agent/peer"
	"liqo.io/agent/state"
)

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
	stop   func() // ends the agent
	color  bool

	terminal bool      // somebody can be asked
	stdin    io.Reader // what is typed
	env      []string
	pace     pace
	examiner examiner // nil = the real one
	service  bool     // the agent is a service of the machine
}

func (w *world) socket() string { return filepath.Join(w.dir, "agent.sock") }

func (w *world) environ() []string {
	return append([]string{"LIQO_AGENT_STATE_SOCKET=" + w.socket(), "LIQO_AGENT_STATE_DIR=" + w.dir}, w.env...)
}

// run runs a command line and returns what it wrote and its exit code. The
// directory of the world reads $DIR in all output.
func (w *world) run(ctx context.Context, args ...string) (stdout, stderr string, code int) {
	var out bytes.Buffer
	stderr, code = w.runTo(ctx, &out, args...)
	return w.place(out.String()), stderr, code
}

// runTo is run with an output that can be looked at meanwhile.
func (w *world) runTo(ctx context.Context, stdout io.Writer, args ...string) (stderr string, code int) {
	var errs bytes.Buffer
	app := New(Options{Version: "1.2.3", Commit: "abcdef", Stdin: w.stdin, Stdout: stdout, Stderr: &errs, Environ: w.environ(), Color: w.color,
		Interactive: w.terminal, Now: func() time.Time { return now }})
	app.starts = func() string { return control.RunAgent }
	if w.service {
		app.starts = func() string { return "sudo systemctl start liqo-agent" }
	}
	if w.pace != (pace{}) {
		app.pace = w.pace
	}
	if w.examiner != nil {
		app.examiner = w.examiner
	}
	code = Report(&errs, app.Run(ctx, append([]string{Name}, args...)))
	return w.place(errs.String()), code
}

func (w *world) place(s string) string { return strings.ReplaceAll(s, w.dir, "$DIR") }

// noAgent is a machine on which no agent runs or ever ran.
func noAgent(t *testing.T) *world { return &world{dir: t.TempDir()} }

// withAgent is a machine with an agent that answers from b.
func withAgent(t *testing.T, b control.Backend) *world {
	t.Helper()
	w := noAgent(t)
	if m, ok := b.(*memory); ok {
		m.publish = func(id string) {
			w.server.Publish(control.WatchEvent{Event: control.WatchUpdated, Peer: &control.Peer{ID: id}})
		}
	}
	w.server = control.NewServer(control.ServerConfig{Path: w.socket(), Backend: b, Level: new(slog.LevelVar),
		Logger: slog.New(slog.DiscardHandler), Now: func() time.Time { return now }})
	if err := w.server.Listen(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	w.stop = stop
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

const (
	idBarn = "0558de48-097b-4b7d-ba04-6bd2a0f9d24f"
	idSilo = "0558de48-1111-4b7d-ba04-6bd2a0f9d24f"
	idShed = "9c1b7c1e-5f0a-4f7e-8d0a-2b1f0c3d4e5f"
	idVan  = "d00dfeed-0000-4000-8000-000000000001"

	idFarm    = "fa120000-5f0a-4f7e-8d0a-2b1f0c3d4e5f"
	idTractor = "7ac70000-5f0a-4f7e-8d0a-2b1f0c3d4e5f"
)

// allSteps are the steps of connecting to a peer, of which so many are done.
func allSteps(done int) []control.Step {
	steps := []control.Step{
		{Name: "reachable", Text: "(remote) the cluster answers"},
		{Name: "trusted", Text: "(local) its key is trusted"},
		{Name: "let-in", Text: "(remote) this cluster is let in"},
		{Name: "requested", Text: "(remote) the PeeringRequest is there"},
		{Name: "accepted", Text: "(remote) the PeeringRequest is accepted"},
		{Name: "offered", Text: "(local) its Advertisement is there"},
		{Name: "offer-accepted", Text: "(local) its Advertisement is accepted"},
	}
	for i := range steps {
		steps[i].Done = i < done
	}
	return steps
}

var fpBarn = strings.Repeat("ab", 32)

func farm() *memory {
	return &memory{
		peers: []control.Peer{
			{ID: idBarn, Name: "barn", Phase: "Present", Source: "LAN", URL: "https://192.0.2.7:6447", Addresses: []string{"192.0.2.7:6447", "[fe80::7%eth0]:6447"},
				Sources: []string{"LAN", "WAN"}, Domains: []string{"example.com", "lab.example.com"}, Links: []string{"eth0", "eth1"}, Fingerprint: fpBarn, Namespace: "liqo", Version: "1", TTLSeconds: 120, Verified: true, Remembered: true,
				ForeignCluster: idBarn, FirstSeen: now.Add(-72 * time.Hour), LastSeen: now.Add(-12 * time.Second),
				Code: "aaaaa-bbbbb-ccccc-ddddd-eeeee-fffff-ggggg-hhhhh", Role: "ConsumerAndProvider",
				Trust: control.Trust{Mode: control.Trusted, Method: string(peer.TrustPerson), By: "user alice (command line)", At: now.Add(-71 * time.Hour),
					Detail: "followed the key's rotation from 1234", Fingerprint: fpBarn},
				Outgoing: control.Direction{Wanted: true, Joined: true, Reason: "Joined", Message: "Its offer is accepted.", Since: now.Add(-70 * time.Hour), Steps: allSteps(7)},
				Incoming: control.Direction{Wanted: true, Joined: true, Since: now.Add(-time.Hour)},
				Sharing: control.PeerSharing{Provider: &control.Provider{ID: idBarn, Name: "barn", Node: idBarn, Ready: true, Offered: map[string]string{"cpu": "3500m", "memory": "6Gi"}, Pods: 3},
					Consumer: &control.Consumer{ID: idBarn, Name: "barn", Promised: map[string]string{"cpu": "1"}, Used: map[string]string{"cpu": "500m"}, Pods: 2, Namespaces: 1}},
				Preferences: control.Preferences{AutoConnect: control.Yes, AutoAccept: control.Yes, Note: "leaking roof", URL: "https://barn.example:6447"}},
			{ID: idSilo, Name: "silo", Alias: "Halle 3", Phase: "Unreachable", Reason: "connect to 192.0.2.8:6447: connection refused", Source: "LAN",
				URL: "https://192.0.2.8:6447", Addresses: []string{"192.0.2.8:6447"}, Links: []string{"eth0"}, Fingerprint: strings.Repeat("cd", 32),
				Namespace: "liqo", Version: "1", TTLSeconds: 120, Failures: 2, Verified: true, Remembered: true, FirstSeen: now.Add(-time.Hour), LastSeen: now.Add(-5 * time.Minute),
				Conflict: &control.Conflict{Fingerprint: strings.Repeat("ef", 32), Address: "192.0.2.66:6447", Since: now.Add(-time.Minute)},
				Trust: control.Trust{Mode: control.Trusted, Method: string(peer.TrustFleet), By: "fleet CA Acme", At: now.Add(-time.Hour), Fingerprint: strings.Repeat("ce", 32),
					Until: now.Add(-10 * time.Minute), Suspended: now.Add(-9 * time.Minute)},
				Outgoing: control.Direction{Wanted: true, Reason: control.ReasonAwaitingAcceptance, Message: "The provider has not decided yet.",
					Since: now.Add(-time.Minute), Steps: allSteps(4)},
				Request: &control.Request{ID: idSilo, Name: "silo", Kind: control.KindRequest, State: "Pending", Since: now.Add(-2 * time.Minute), Address: "192.0.2.8"}},
			{ID: idShed, Name: "shed", Phase: "Lost", Reason: "goodbye", Source: "LAN", Addresses: []string{}, Links: []string{}, Fingerprint: strings.Repeat("12", 32),
				Verified: true, Remembered: true, FirstSeen: now.Add(-240 * time.Hour), LastSeen: now.Add(-49 * time.Hour),
				Outgoing: control.Direction{Reason: "Disconnected", Message: "The cluster is not to be joined.", Steps: allSteps(2)}, Incoming: control.Direction{Reason: "Unknown", Message: "no API server"},
				Trust: control.Trust{Mode: control.Untrusted}, Preferences: control.Preferences{AutoConnect: control.No, AutoAccept: control.No, Blocked: true}},
			// What a hostile neighbour would like to send to a terminal.
			{ID: idVan, Name: "van\x1b[31m\u202e", Phase: "Unverified", Reason: "not\nasked yet", Source: "LAN", Addresses: []string{"192.0.2.9:6447"}, Links: []string{"eth0"}},
		},
		events: []peer.Event{
			{At: now.Add(-73 * time.Hour), ID: "11111111-2222-4333-8444-555555555555", Kind: peer.EventLost, Detail: "expired"},
			{At: now.Add(-72 * time.Hour), ID: idBarn, Kind: peer.EventAppeared, Detail: "on eth0 at 192.0.2.5:6447"},
			{At: now.Add(-2 * time.Hour), ID: idBarn, Kind: peer.EventAddressChanged, Detail: "192.0.2.5:6447 -> 192.0.2.7:6447"},
			{At: now.Add(-time.Hour), ID: idBarn, Kind: peer.EventTrusted, Detail: "by user alice (command line), who confirmed the code"},
			{At: now.Add(-59 * time.Minute), ID: idBarn, Kind: peer.EventJoined, Detail: "barn accepted"},
			{At: now.Add(-50 * time.Minute), ID: idShed, Kind: peer.EventBlocked, Detail: "by user alice (command line)"},
			{At: now.Add(-40 * time.Minute), ID: idFarm, Kind: peer.EventInviteCreated, Detail: "0a1b2c3d4e5f6071 for 1h by user alice (command line)"},
			{At: now.Add(-30 * time.Minute), ID: idSilo, Kind: peer.EventKeyRefused, Detail: "192.0.2.66:6447 shows another key"},
			{At: now.Add(-time.Minute), ID: idSilo, Kind: peer.EventConflict, Detail: "another key at 192.0.2.66:6447"},
		},
		requests: []control.Request{
			{ID: idSilo, Name: "silo", Kind: control.KindRequest, State: "Pending", Since: now.Add(-2 * time.Minute), Address: "192.0.2.8"},
			{ID: idTractor, Name: "tractor\x1b[2J", Kind: control.KindAsk, State: "Refused", Since: now.Add(-3 * time.Hour), Code: "zzzzz-yyyyy", Fingerprint: strings.Repeat("34", 32),
				Address: "192.0.2.11", Message: "its key was not there before"},
		},
		invites: []control.Invite{
			{ID: "0a1b2c3d4e5f6071", State: control.InviteOpen, Note: "for the van", CreatedAt: now.Add(-10 * time.Minute), CreatedBy: "user alice (command line)", ExpiresAt: now.Add(50 * time.Minute)},
			{ID: "0f0f0f0f0f0f0f0f", State: control.InviteUsed, CreatedAt: now.Add(-time.Hour), CreatedBy: "user root (command line)", ExpiresAt: now, UsedAt: now.Add(-30 * time.Minute), UsedBy: idBarn},
		},
		domains: []control.Domain{
			{Name: "example.com", Source: "file /etc/liqo-agent/liqo-agent.toml line 7", Autojoin: new(bool), MinIntervalSeconds: 30, MaxIntervalSeconds: 3600,
				Ignored: []string{"command line (user alice)"}, LastQuery: now.Add(-time.Minute), NextQuery: now.Add(5 * time.Minute), Outcome: "Found", Message: "5 entries",
				AnsweredBy: "192.0.2.53:53", Authenticated: true, Browsed: []string{"lab.example.com", "van.example.com"},
				Entries: []control.DomainEntry{
					{Name: "barn.example.com", URL: "https://barn.example.com:6447", ClusterID: idBarn, Cluster: "barn"},
					{Name: "barn2.example.com", URL: "https://barn.example.com:6448", ClusterID: idBarn, Cluster: "barn"},
					{Name: "farm.example.com", URL: "https://farm.example.com:6447", ClusterID: idFarm, Cluster: "farm", Reason: "ThisCluster", Message: "it is this cluster"},
					{Name: "new.example.com", URL: "https://new.example.com:6447", Reason: "NotAskedYet"},
					{Name: "old.example.com", Reason: "NoSRV", Message: "the name has no SRV record"},
					{Name: "older.example.com", Reason: "NoSRV", Message: "the name has no SRV record"},
					{Name: "van\x1b[2J.example.com", URL: "https://van.example.com:6447", Reason: "Unreachable", Message: "connect: connection \u202erefused"},
				}},
			{Name: "example.net", Source: "SearchDomain other", Server: "tls://192.0.2.54", MinIntervalSeconds: 30, MaxIntervalSeconds: 3600, LastQuery: now.Add(-2 * time.Hour),
				NextQuery: now, Outcome: "Timeout", Message: "192.0.2.54:853 did not answer within 5s"},
			{Name: "example.org", Source: "command line (user alice)", MinIntervalSeconds: 5, MaxIntervalSeconds: 60, LastQuery: now.Add(-time.Second),
				NextQuery: now.Add(time.Minute), Outcome: "NoName", Message: "192.0.2.53:53 knows no such name", AnsweredBy: "192.0.2.53:53"},
			{Name: "lab.example.com", Source: "command line (user alice)", MinIntervalSeconds: 30, MaxIntervalSeconds: 3600},
		},
		adverts: []control.Advert{
			{ID: idBarn, Name: "barn", Status: control.AdvertAccepted, Reason: "Joined", Message: "The offer is accepted.",
				Resources: map[string]string{"cpu": "3500m", "memory": "6Gi", "pods": "90", "example.com/gpu": "1", "ephemeral-storage": "40Gi"},
				Labels:    map[string]string{"kubernetes.io/arch": "arm64", "kubernetes.io/os": "linux", "topology.kubernetes.io/zone": "a"}, Arch: "arm64", OS: "linux",
				Images: []string{"a:1", "b:1", "c:1", "d:1", "e:1", "f:1", "g:1"}, OfferedAt: now.Add(-time.Hour), ExpiresAt: now.Add(5 * time.Hour), CreatedAt: now.Add(-70 * time.Hour),
				Node: idBarn, NodeReady: true, NodeReason: "ProviderReady", NodeMessage: "the kubelet is posting ready status", Pods: 3},
			{ID: idSilo, Name: "Halle 3", Status: control.AdvertPending, Reason: "AwaitingDecision", Message: "Somebody has to decide.",
				Resources: map[string]string{"cpu": "1", "memory": "512Mi"}, Arch: "amd64", CreatedAt: now.Add(-time.Minute), OfferedAt: now.AddDate(-20, 0, 0), ExpiresAt: now.AddDate(-20, 0, 1)},
			{ID: idShed, Name: "shed\x1b[2J", Status: control.AdvertRefused, Reason: "RefusedByPerson", Message: "Refused by user alice (command line).", DecidedBy: "liqo-agent-intent",
				Expired: true, ExpiresAt: now.Add(-time.Hour), CreatedAt: now.Add(-49 * time.Hour), Node: idShed, NodeReason: "Draining", NodeMessage: "2 pods are left.", Pods: 2},
		},
		status: control.Status{
			Version: "1.2.3", Protocol: "1-2",
			Identity:  control.Identity{ClusterID: idFarm, Name: "farm", Namespace: "liqo", Fingerprint: strings.Repeat("77", 32), IDOrigin: "ConfigMap"},
			StartedAt: now.Add(-3 * time.Hour),
			Links:     []control.Link{{Name: "eth0", Addresses: []string{"192.0.2.1/24"}}, {Name: "eth1", Addresses: []string{}}},
			Discovery: control.Discovery{Enabled: true, Service: "_liqo._tcp", Domain: "local"},
			Advertisement: control.Advertisement{
				Enabled: true, Established: true, Instance: idFarm, Source: "default",
			},
			Autojoin: control.Autojoin{Source: "ClusterConfig liqo-configuration", NotJoined: []control.NotJoined{{ID: idSilo, Name: "Halle 3", Reason: "TrustedByPerson",
				Message: "autojoin is on for the search domain example.com, but its key is trusted by a person's word, which joins nobody by itself. Join it with: liqo-agent peers connect silo"}}},
			Domains: []control.DomainSummary{{Domain: "example.com", Outcome: "Found", Clusters: 1, Source: "file x"}, {Domain: "example.net", Outcome: "Timeout", Message: "192.0.2.54 did not answer"},
				{Domain: "lab.example.com"}},
			Networks: []control.LinkNetwork{{Link: "eth0", Rule: "home", Advertise: true, Discover: true, Autojoin: true, Why: "192.0.2.1 is in 192.0.2.0/24"},
				{Link: "eth1", Rule: "elsewhere"}},
			Endpoint:   control.Endpoint{Listen: ":6447", Port: 6447, Connections: 1},
			Kubernetes: control.Kubernetes{Server: "https://127.0.0.1:6443", LastError: "connection refused", Kubeconfig: "/etc/rancher/k3s/k3s.yaml"},
			State:      control.State{Path: "/var/lib/liqo-agent/agent.db"},
			Peers:      map[string]int{"Present": 1, "Unverified": 1, "Unreachable": 1, "Lost": 1},
			Sharing: control.Sharing{
				Offering: control.Offering{Enabled: true, Percentage: 50, Overcommit: 150, Source: "default", Pool: map[string]string{"cpu": "2", "memory": "3Gi", "pods": "50"},
					Consumers: []control.Consumer{{ID: idBarn, Name: "barn", Promised: map[string]string{"cpu": "1", "memory": "1Gi"}, Used: map[string]string{"cpu": "500m"}, Pods: 2, Namespaces: 1},
						{ID: idVan, Name: "van\u202e", Ending: true}}},
				Using: control.Using{Enabled: true, Policy: "auto", MaxAccepted: 128, Source: "ClusterConfig liqo-configuration", Accepted: 1, Pending: 1, Refused: 1,
					Providers: []control.Provider{{ID: idBarn, Name: "barn", Node: idBarn, Ready: true, Offered: map[string]string{"cpu": "3500m", "memory": "6Gi"}, Pods: 3},
						{ID: idShed, Name: "shed", Node: idShed, Reason: "Draining", Message: "2 pods are left.", Pods: 2}}},
			},
			Peering: control.PeeringStatus{Wanted: 2, Joined: 1, Serving: 1, Requests: 2, Invites: 1},
			Trust: control.TrustStatus{Accept: "all", Open: "trust.accept = \"all\"", FleetCA: &control.FleetCA{Name: "Acme", Path: "/etc/liqo-agent/fleet.pem",
				Fingerprint: strings.Repeat("fa", 32), NotAfter: now.Add(24 * time.Hour)}},
			Packets: control.Packets{Received: 1200, Sent: 34},
			Drops:   map[string]uint64{"mdns:malformed": 2, "mdns:off-link": 5},
			Problems: []control.Problem{
				{Code: "peer-conflict", Severity: "error", Text: "somebody at 192.0.2.66 shows the cluster ID of silo with another key", Remedy: "find out which of the two is the copy", Since: now.Add(-12 * time.Minute)},
				{Code: "open-to-anybody", Severity: "warning", Text: "anybody who can reach this agent is trusted: trust.accept is \"all\"", Remedy: "fine in a playground; elsewhere, take the setting back", Since: now.Add(-3 * time.Hour)}},
			LastErrors: []control.LogEntry{{At: now.Add(-2 * time.Minute), Level: "error", Text: "carrying out a decision failed:\x1b[2J no", Count: 3}, {At: now.Add(-2 * time.Hour), Level: "warn", Text: "old", Count: 1}},
		},
	}
}

func TestGolden(t *testing.T) {
	full, empty, none := withAgent(t, farm()), withAgent(t, &memory{}), noAgent(t)
	onlyLost := withAgent(t, &memory{peers: farm().peers[2:3]})
	left := farm().peers[2:3]
	left[0].Outgoing.Joined = true
	saidGoodbye := withAgent(t, &memory{peers: left})
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
		{"list-said-goodbye", saidGoodbye, "peers list", 0},
		{"list-none", none, "peers list", ExitNotRunning},
		{"list-none-service", &world{dir: t.TempDir(), service: true}, "peers list", ExitNotRunning},
		{"show", full, "peers show barn", 0},
		{"show-conflict", full, "peers show 0558de48-1", 0},
		{"show-blocked", full, "peers show shed", 0},
		{"show-hostile", full, "peers show d00d", 0},
		{"show-json", full, "peers show barn -o json", 0},
		{"show-ambiguous", full, "peers show 0558", ExitNotFound},
		{"show-unknown", full, "peers show cellar", ExitNotFound},
		{"requests", full, "peers requests", 0},
		{"requests-json", full, "peers requests -o json", 0},
		{"requests-empty", empty, "peers requests", 0},
		{"invite-list", full, "invite list", 0},
		{"invite-list-json", full, "invite list -o json", 0},
		{"invite-list-empty", empty, "invite list", 0},
		{"info", full, "info", 0},
		{"info-color", colored, "info", 0},
		{"info-json", full, "info -o json", 0},
		{"info-empty", empty, "info", 0},
		{"info-peers", full, "info barn 0558de48-1", 0},
		{"info-peer-json", full, "info barn -o json", 0},
		{"info-peer", full, "info peer barn", 0},
		{"info-peer-all", full, "info peer", 0},
		{"info-peer-none", empty, "info peer", 0},
		{"info-peer-get", full, "info peer barn silo --get id", 0},
		{"info-unknown", full, "info barn cellar", ExitNotFound},
		{"domains-list", full, "domains list", 0},
		{"domains-list-wide", full, "domains list -o wide", 0},
		{"domains-list-json", full, "domains list -o json", 0},
		{"domains-list-color", colored, "domains list", 0},
		{"domains-list-empty", empty, "domains list", 0},
		{"domains-list-empty-json", empty, "domains list -o json", 0},
		{"domains-list-none", none, "domains list", 0},
		{"domains-show", full, "domains show Example.COM.", 0},
		{"domains-show-timeout", full, "domains show example.net", 0},
		{"domains-show-no-name", full, "domains show example.org", 0},
		{"domains-show-new", full, "domains show lab.example.com", 0},
		{"domains-show-json", full, "domains show example.org -o json", 0},
		{"domains-show-unknown", full, "domains show example.info", ExitNotFound},
		{"domains-add-none", none, "domains add example.com", ExitNotRunning},
		{"domains-add-both", full, "domains add example.com --autojoin --no-autojoin", ExitUsage},
		{"domains-add-interval", full, "domains add example.com --min-interval 500ms", ExitUsage},
		{"domains-add-bad", full, "domains add https://example.com", ExitUsage},
		{"domains-add-bad-server", full, "domains add example.com --server https://192.0.2.53", ExitUsage},
		{"domains-add-bad-timeout", full, "domains add example.com --timeout -1s", ExitUsage},
		{"domains-remove-unknown", full, "domains remove example.info", ExitNotFound},
		{"domains-refresh-unknown", full, "domains refresh example.info", ExitNotFound},
		{"adverts-list", full, "adverts list", 0},
		{"adverts-list-color", colored, "adverts list", 0},
		{"adverts-list-json", full, "adverts list -o json", 0},
		{"adverts-list-yaml", empty, "adverts list -o yaml", 0},
		{"adverts-list-empty", empty, "adverts list", 0},
		{"adverts-list-none", none, "adverts list", ExitNotRunning},
		{"adverts-show", full, "adverts show barn", 0},
		{"adverts-show-pending", full, "adverts show 0558de48-1", 0},
		{"adverts-show-refused", full, "adverts show shed", 0},
		{"adverts-show-json", full, "adverts show barn -o json", 0},
		{"adverts-show-unknown", full, "adverts show cellar", ExitNotFound},
		{"adverts-show-nothing", full, "adverts show d00d", ExitNotFound},
		{"adverts-accept-none", none, "adverts accept barn", ExitNotRunning},
		{"adverts-accept-ambiguous", full, "adverts accept 0558", ExitNotFound},
		{"key-show", full, "key show", 0},
		{"key-show-json", full, "key show -o json", 0},
		{"key-show-pem", full, "key show --pem", 0},
		{"key-csr", full, "key csr --name a.example --name b.example", 0},
		{"key-csr-none", full, "key csr", ExitUsage},
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
		{"config-running-text", full, "config show --running", 0},
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
	generated.File(t, filepath.Join("testdata", name+".golden"), got)
}

// Whatever the format, nothing that came from the network reaches a terminal
// as an escape sequence.
func TestNothingControlsTheTerminal(t *testing.T) {
	m := farm()
	for i := range m.peers {
		m.peers[i].Name = "a\x1b]0;x\x07\u009b2J\x7f\r\n\u202eb\xff"
		m.peers[i].Reason = m.peers[i].Name
		m.peers[i].Links = []string{m.peers[i].Name}
		bad := m.peers[i].Name
		m.peers[i].Trust.By, m.peers[i].Trust.Detail, m.peers[i].Code, m.peers[i].Role = bad, bad, bad, bad
		m.peers[i].Preferences.Note, m.peers[i].Preferences.URL = bad, bad
		d := control.Direction{Wanted: true, Reason: bad, Message: bad, Steps: []control.Step{{Name: bad, Text: bad}}}
		m.peers[i].Outgoing, m.peers[i].Incoming = d, d
		m.peers[i].Request = &control.Request{State: bad, Address: bad, Message: bad}
	}
	for i := range m.requests {
		r := &m.requests[i]
		r.Name, r.State, r.Code, r.Address, r.Message = m.peers[0].Name, m.peers[0].Name, m.peers[0].Name, m.peers[0].Name, m.peers[0].Name
	}
	m.invites[0].Note, m.invites[0].CreatedBy, m.invites[1].UsedBy = m.peers[0].Name, m.peers[0].Name, m.peers[0].Name
	m.status.Trust.Open, m.status.Trust.FleetCA.Name = m.peers[0].Name, m.peers[0].Name
	m.events[1].Detail = m.peers[0].Name
	bad := m.peers[0].Name
	m.status.Problems[0].Text = bad
	m.peers[0].Sources, m.peers[0].Domains = []string{bad}, []string{bad}
	m.status.Discovery.Source, m.status.Advertisement.Source, m.status.Autojoin.Source = bad, bad, bad
	m.status.Domains[0] = control.DomainSummary{Domain: bad, Outcome: bad, Message: bad, Source: bad}
	m.status.Networks[0] = control.LinkNetwork{Link: bad, Rule: bad, Why: bad}
	m.domains[0] = control.Domain{Name: "example.com", Server: bad, Source: bad, Ignored: []string{bad}, Outcome: bad, Message: bad, AnsweredBy: bad, Browsed: []string{bad},
		LastQuery: now, Entries: []control.DomainEntry{{Name: bad, URL: bad, ClusterID: bad, Cluster: bad, Message: bad}, {Name: bad, Reason: bad, Message: bad}}}
	m.adverts[0].Name, m.adverts[0].Reason, m.adverts[0].Message, m.adverts[0].NodeMessage, m.adverts[0].Arch, m.adverts[0].DecidedBy = bad, bad, bad, bad, bad, bad
	m.adverts[0].Resources, m.adverts[0].Labels, m.adverts[0].Images, m.adverts[0].NodeReady = map[string]string{bad: bad, "cpu": bad}, map[string]string{bad: bad}, []string{bad}, false
	m.status.Sharing.Using.Providers[0] = control.Provider{Name: bad, Node: bad, Reason: bad, Message: bad, Offered: map[string]string{bad: bad}}
	m.status.Sharing.Offering.Consumers[0] = control.Consumer{Name: bad, Used: map[string]string{bad: bad}, Promised: map[string]string{bad: bad}}
	m.status.Sharing.Offering.Message = bad
	m.peers[0].Sharing = control.PeerSharing{Provider: &m.status.Sharing.Using.Providers[0], Consumer: &m.status.Sharing.Offering.Consumers[0]}
	w := withAgent(t, m)
	for _, args := range []string{"peers list -a", "peers list -a -o wide", "peers list -a -o json", "peers list -a -o yaml", "peers show 9c1b",
		"peers show 9c1b -o json", "peers show 0558", "peers history", "peers history -o json", "status", "status -o json",
		"domains list", "domains list -o wide", "domains list -o json", "domains show example.com", "domains show example.com -o yaml", "domains add example.com --no-wait",
		"domains refresh example.com --timeout 1ms", "peers requests", "peers requests -o json", "peers requests -o yaml", "adverts list", "adverts list -o json", "adverts show 0558de48-0", "adverts show 0558de48-0 -o yaml", "adverts accept 0558de48-0", "invite list", "invite list -o json", "info", "info -o json", "info 9c1b", "info 9c1b -o yaml",
		"info 9c1b --get outgoing", "info 9c1b 9c1b --get outgoing.message", "peers accept 0558de48-1", "peers accept 9c1b --yes", "peers connect 9c1b --no-wait --yes",
		"peers connect 9c1b --timeout 1ms --yes", "peers reject 9c1b", "peers forget 9c1b --yes", "peers disconnect 9c1b --no-wait", "peers set 9c1b --note x"} {
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
			URL: "https://192.0.2.7:6447", Version: "1", FirstSeen: now.Add(-time.Hour), LastSeen: now.Add(-time.Minute)},
			{ID: idShed, Name: "shed", Fingerprint: fp, Phase: peer.PhaseLost, Source: peer.LAN, FirstSeen: now.Add(-time.Hour), LastSeen: now.Add(-time.Minute)}},
		Events: []peer.Event{{At: now.Add(-time.Hour), ID: idBarn, Kind: peer.EventAppeared, Detail: "on eth0"}},
	})
	err = errors.Join(err, store.SetRuling(t.Context(), idBarn, state.Ruling{
		Pin:         state.Pin{Pin: peer.Pin{ID: idBarn, Fingerprint: fp, Method: peer.TrustInvite, By: "user alice (command line)", At: now.Add(-time.Hour)}, Basis: fp},
		Preferences: state.Preferences{AutoConnect: state.Yes, AutoAccept: state.No, Note: "roof"},
	}), store.SetRuling(t.Context(), idShed, state.Ruling{Distrust: state.Distrust{Fingerprint: fp, By: "kubectl", At: now.Add(-time.Hour)},
		Preferences: state.Preferences{Blocked: state.Yes}}))
	if err := errors.Join(err, store.SetAlias(t.Context(), idBarn, "b"), store.Close()); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		args string
		code int
	}{
		"offline-list":    {"peers list", 0},
		"offline-show":    {"peers show b", 0},
		"offline-shut":    {"peers show shed", 0},
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
