package doctor

import (
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"liqo.io/agent/agent/config"
	"liqo.io/agent/agent/control"
	"liqo.io/agent/doctor/look"
	"liqo.io/agent/ifwatch"
	"liqo.io/agent/kube/conn"
	"liqo.io/agent/liqo/engine"
	"liqo.io/agent/peer"
	"liqo.io/agent/peering/reason"
	"liqo.io/agent/state"
)

// brief writes findings as "status code, status code".
func brief(findings []Finding) string {
	var out []string
	for _, f := range findings {
		text := string(f.Status)
		if f.Code != "" {
			text += " " + f.Code
		}
		out = append(out, text)
	}
	return strings.Join(out, ", ")
}

// judged compares findings with what is wanted, and checks that they say all that a
// person needs.
func judged(t *testing.T, name string, findings []Finding, want string) {
	t.Helper()
	if got := brief(findings); got != want {
		t.Errorf("%s: %s, want %s\n%+v", name, got, want, findings)
	}
	for _, f := range findings {
		if f.What == "" || strings.HasSuffix(f.What, ".") || (f.Status == Warning || f.Status == Error) && (f.Why == "" || len(f.Do) == 0 || f.Code == "") {
			t.Errorf("%s: something is missing in %+v", name, f)
		}
	}
}

func prefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }

func TestJudgeLinks(t *testing.T) {
	eth := look.Link{Name: "eth0", Up: true, Carrier: true, Multicast: true, Addrs: []netip.Prefix{prefix("10.0.0.1/24")}}
	cni := look.Link{Name: "cni0", Up: true, Addrs: []netip.Prefix{prefix("10.42.0.1/24")}}
	usual := ifwatch.Filter{Exclude: ifwatch.DefaultExclude()}
	used := func(addrs ...string) ifwatch.Snapshot {
		l := ifwatch.Link{Name: "eth0"}
		for _, a := range addrs {
			l.Addrs = append(l.Addrs, prefix(a))
		}
		return ifwatch.Snapshot{Links: []ifwatch.Link{l}}
	}
	for _, tc := range []struct {
		name, want string
		all        []look.Link
		used       ifwatch.Snapshot
	}{
		{"fine", "ok", []look.Link{eth, cni}, used("10.0.0.1/24", "fe80::1/64")},
		{"nothing", "error no-links", nil, ifwatch.Snapshot{}},
		{"no cable", "error no-links", []look.Link{{Name: "eth0", Up: true}, cni}, ifwatch.Snapshot{}},
		{"no address", "error no-address", []look.Link{eth}, used()},
		{"link-local", "warning only-link-local", []look.Link{eth}, used("fe80::1/64", "169.254.1.1/16")},
		{"overlap", "error network-overlap", []look.Link{eth, cni}, used("10.42.7.1/16")},
		{"link-local everywhere", "ok", []look.Link{eth, {Name: "veth1", Up: true, Addrs: []netip.Prefix{prefix("fe80::2/64")}}}, used("10.0.0.1/24", "fe80::1/64")},
	} {
		judged(t, tc.name, judgeLinks(tc.all, tc.used, usual), tc.want)
	}
	f := noLinks([]look.Link{{Name: "eth0"}, cni, {Name: "lo", Loopback: true}}, usual)
	if !strings.Contains(f.What, "switched off): eth0; excluded") || strings.Contains(f.What, "lo") && strings.Contains(f.What, " lo") {
		t.Errorf("%s", f.What)
	}
}

func TestJudgeNames(t *testing.T) {
	at := control.Names{Addresses: []string{"169.254.241.53"}}
	for _, tc := range []struct {
		name, want string
		known      control.Names
		silent     error
	}{
		{"answered", "ok", at, nil},
		{"nobody asks", "skipped", control.Names{}, nil},
		{"no cluster DNS", "warning names-unanswered", control.Names{Message: "the cluster DNS does not know kubernetes.default.svc.corp.lan.: NXDOMAIN"}, nil},
		{"no answer", "warning names-silent", at, errors.New("169.254.241.53: i/o timeout")},
	} {
		judged(t, tc.name, judgeNames(tc.known, tc.silent), tc.want)
	}
}

func TestJudgeMDNSPort(t *testing.T) {
	agent, avahi := look.Holder{PID: 1, Name: "liqo-agent"}, look.Holder{PID: 2, Name: "avahi-daemon"}
	for _, tc := range []struct {
		name, want, says string
		port             look.Port
		runs             bool
	}{
		{"free", "ok", "free", look.Port{Shared: true}, false},
		{"ours", "ok", "in use by the agent", look.Port{Shared: true, Holders: []look.Holder{agent}}, true},
		{"shared", "ok", "shared with avahi-daemon (process 2)", look.Port{Shared: true, Holders: []look.Holder{agent, avahi}}, true},
		{"held", "error mdns-port", "avahi-daemon", look.Port{Holders: []look.Holder{avahi}}, false},
		{"held by nobody that can be seen", "error mdns-port", "another process", look.Port{}, false},
		{"held by somebody", "error mdns-port", "a process of user 7 (its name needs root)", look.Port{Holders: []look.Holder{{UID: 7}}, Unnamed: true}, false},
		{"ours, without root", "ok", "in use by the agent", look.Port{Shared: true, Holders: []look.Holder{{UID: 0}}, Unnamed: true}, true},
	} {
		got := judgeMDNSPort(tc.port, tc.runs)
		judged(t, tc.name, got, tc.want)
		if !strings.Contains(got[0].What, tc.says) {
			t.Errorf("%s: %s", tc.name, got[0].What)
		}
	}
}

func TestJudgeMulticast(t *testing.T) {
	link := ifwatch.Link{Name: "eth0", Addrs: []netip.Prefix{prefix("10.0.0.1/24"), prefix("fe80::1/64")}}
	on := ifwatch.Snapshot{Links: []ifwatch.Link{link}}
	barn := control.Peer{ID: "barn", Phase: string(peer.PhasePresent), Sources: []string{"Manual"}, Addresses: []string{"10.0.0.9:6447"}}
	with := func(change func(*control.Peer)) []control.Peer {
		p := barn
		change(&p)
		return []control.Peer{p}
	}
	works := look.Heard{Sent: 3, Echoes: 3}
	drop := look.Firewall{Rules: []string{"table inet f chain input udp dport 5353 drop"}}
	for _, tc := range []struct {
		name, want string
		heard      look.Heard
		peers      []control.Peer
		fire       look.Firewall
	}{
		{"alone", "ok", works, nil, look.Firewall{}},
		{"not sent", "error multicast-unsent", look.Heard{Unsent: 3}, nil, look.Firewall{}},
		{"not tried", "skipped", look.Heard{}, nil, look.Firewall{}},
		{"no echo", "error multicast-blocked", look.Heard{Sent: 3}, nil, drop},
		{"a harmless rule", "ok, info multicast-rule", works, nil, drop},
		{"a peer that is not heard", "warning multicast-isolated", works, []control.Peer{barn}, look.Firewall{}},
		{"a peer that is heard", "ok", look.Heard{Sent: 3, Echoes: 3, Clusters: []peer.Sighting{{ClusterID: "barn"}}}, []control.Peer{barn}, look.Firewall{}},
		{"a peer that the agent hears", "ok", works, with(func(p *control.Peer) { p.Sources = []string{"LAN", "Manual"} }), look.Firewall{}},
		{"a peer elsewhere", "ok", works, with(func(p *control.Peer) { p.Addresses = []string{"192.0.2.1:6447", "nonsense", "[fe80::9%eth7]:1"} }), look.Firewall{}},
		{"a peer that is gone", "ok", works, with(func(p *control.Peer) { p.Phase = string(peer.PhaseLost) }), look.Firewall{}},
	} {
		judged(t, tc.name, judgeMulticast(heard{tc.heard, on}, tc.peers, "", tc.fire), tc.want)
	}
}

func TestJudgeReach(t *testing.T) {
	call := func(name, outcome string) control.Reach {
		return control.Reach{Name: name, Outcome: outcome, Address: "10.0.0.1:6447", Error: map[bool]string{true: "it is too old"}[outcome == ""]}
	}
	for _, tc := range []struct {
		name, want, says, url string
		calls                 []control.Reach
		fire                  look.Firewall
	}{
		{name: "nobody", want: "ok", says: "no trusted peer is present"},
		{name: "all", want: "ok", says: "barn, silo can connect", calls: []control.Reach{call("barn", "reached"), call("silo", "reached")}},
		{name: "too old", want: "ok", says: "connect to it: barn (it is too old)", calls: []control.Reach{call("barn", "")}},
		{name: "none", want: "error endpoint-unreachable", says: "barn (timed-out at 10.0.0.1:6447)", calls: []control.Reach{call("barn", "timed-out"), call("silo", "refused")}},
		{name: "some", want: "warning endpoint-unreachable", says: "; silo can", calls: []control.Reach{call("barn", "timed-out"), call("silo", "reached")}},
		{name: "translated", want: "error endpoint-unreachable", says: "another program answers", calls: []control.Reach{call("barn", "other-key")}},
		{name: "announced elsewhere", want: "info endpoint-unreachable", says: "https://x:1, which was not tried", url: "https://x:1", calls: []control.Reach{call("barn", "refused")}},
		{name: "a rule", want: "error endpoint-unreachable", says: "drops them: -A INPUT -p tcp", calls: []control.Reach{call("barn", "timed-out")},
			fire: look.Firewall{Rules: []string{"-A INPUT -p tcp -m tcp --dport 6447 -j DROP"}}},
	} {
		got := judgeReach(tc.calls, 6447, tc.url, tc.fire)
		judged(t, tc.name, got, tc.want)
		if !strings.Contains(got[0].What, tc.says) {
			t.Errorf("%s: %s", tc.name, got[0].What)
		}
	}
	help := strings.Join(firewallHelp(look.Firewall{}, "tcp", 6447, "x"), "\n")
	for _, want := range []string{"ufw allow 6447/tcp", "firewall-cmd --permanent --add-port=6447/tcp", "nft insert rule"} {
		if !strings.Contains(help, want) {
			t.Errorf("no %q in %s", want, help)
		}
	}
	if help := firewallHelp(look.Firewall{Ufw: true}, "tcp", 1, "x"); len(help) != 2 || !strings.Contains(help[1], "ufw") {
		t.Errorf("with ufw: %q", help)
	}
}

func TestJudgeClusterID(t *testing.T) {
	key := peer.Fingerprint{1}
	us := self{"home", key.String()}
	own := []netip.Addr{netip.MustParseAddr("10.0.0.1")}
	at := func(id peer.ClusterID, fp peer.Fingerprint, addr string) peer.Sighting {
		return peer.Sighting{ClusterID: id, Fingerprint: fp, Addrs: []netip.AddrPort{netip.MustParseAddrPort(addr)}}
	}
	conflict := []control.Peer{{ID: "barn", Conflict: &control.Conflict{Address: "10.0.0.3:1", Fingerprint: strings.Repeat("ab", 32)}}}
	for _, tc := range []struct {
		name, want string
		us         self
		peers      []control.Peer
		clusters   []peer.Sighting
	}{
		{"nobody", "ok", us, nil, nil},
		{"ourselves and others", "ok", us, nil, []peer.Sighting{at("home", key, "10.0.0.1:6447"), at("barn", peer.Fingerprint{2}, "10.0.0.2:6447")}},
		{"another key", "error id-conflict", us, nil, []peer.Sighting{at("home", peer.Fingerprint{2}, "10.0.0.2:6447")}},
		{"a clone", "error id-clone", us, nil, []peer.Sighting{at("home", key, "10.0.0.2:6447")}},
		{"while we are stopped", "error id-clone", self{id: "home"}, nil, []peer.Sighting{at("home", key, "10.0.0.2:6447")}},
		{"a peer's", "error peer-conflict", us, conflict, nil},
	} {
		judged(t, tc.name, judgeClusterID(tc.us, tc.peers, tc.clusters, own), tc.want)
	}
}

func TestJudgeClock(t *testing.T) {
	now := time.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC)
	second, hour := time.Second, -time.Hour
	skew := func(s float64) []control.Reach {
		return []control.Reach{{Name: "barn", SkewSeconds: &s}, {Name: "old"}}
	}
	unknown := errors.New("operation not permitted")
	for _, tc := range []struct {
		name, want, says string
		clocks
	}{
		{"fine", "ok", "synchronised, and agrees with the API server, barn", clocks{synced: true, server: &second, peers: skew(0.2)}},
		{"nobody to ask", "ok", "synchronised; no other clock could be queried", clocks{synced: true}},
		{"in 1970", "error clock-off", "before this program was built", clocks{now: time.Unix(0, 0), synced: true}},
		{"server off", "warning clock-off", "that of the API server is 1h0m0s behind", clocks{synced: true, server: &hour}},
		{"peer off", "warning clock-off", "that of barn is 3 days behind", clocks{synced: true, server: &second, peers: skew(-86400 * 3)}},
		{"not kept", "info clock-unsynchronised", "not synchronised (NTP), but agrees with the API server", clocks{server: &second}},
		{"not kept, nobody to ask", "info clock-unsynchronised", "not synchronised (NTP), and no other clock could be queried", clocks{}},
		{"not known", "ok", "agrees with the API server; it is unknown whether it is synchronised (operation", clocks{syncError: unknown, server: &second}},
		{"not known, nobody to ask", "skipped", "it is unknown whether the clock is right", clocks{syncError: unknown}},
		{"not known, server off", "warning clock-off", "that of the API server is 1h0m0s behind", clocks{syncError: unknown, server: &hour}},
	} {
		if tc.now.IsZero() {
			tc.now = now
		}
		tc.built = now.AddDate(0, -10, 0)
		got := judgeClock(tc.clocks)
		judged(t, tc.name, got, tc.want)
		if !strings.Contains(got[0].What, tc.says) {
			t.Errorf("%s: %s", tc.name, got[0].What)
		}
	}
	if got := ahead(-72 * time.Hour); got != "3 days behind" {
		t.Error(got)
	}
}

func TestJudgeAPIServer(t *testing.T) {
	there := found{place: "/k", server: "https://x:6443", latency: time.Millisecond}
	failing := func(err error) found { f := there; f.err = err; return f }
	slow := there
	slow.latency = 3 * time.Second
	for _, tc := range []struct {
		name, want string
		api        found
		err        error
		running    *control.Kubernetes
		root       bool
	}{
		{"fine", "ok", there, nil, nil, true},
		{"slow", "warning api-slow", slow, nil, nil, true},
		{"out of the agent's sight", "error kubeconfig-hidden", there, nil, &control.Kubernetes{LastError: "no kubeconfig found"}, true},
		{"the agent is about to connect", "ok", there, nil, &control.Kubernetes{Kubeconfig: "/k"}, true},
		{"the agent is connected", "ok", there, nil, &control.Kubernetes{Connected: true, Kubeconfig: "/k"}, true},
		{"switched off", "skipped", found{}, conn.ErrSwitchedOff, nil, true},
		{"none", "warning kubeconfig-missing", found{}, conn.ErrNoKubeconfig, nil, true},
		{"not for us", "skipped", found{}, fs.ErrPermission, nil, false},
		{"not for us, but for the agent", "ok", found{}, fs.ErrPermission, &control.Kubernetes{Connected: true}, false},
		{"not even for root", "error kubeconfig-unusable", found{}, fs.ErrPermission, nil, true},
		{"bad configuration", "skipped", found{}, errNoConfig, nil, true},
		{"refused", "error api-unreachable", failing(syscall.ECONNREFUSED), nil, nil, true},
		{"another authority", "error api-credentials", failing(x509.UnknownAuthorityError{}), nil, nil, true},
	} {
		judged(t, tc.name, []Finding{judgeAPIServer(tc.api, tc.err, tc.running, tc.root)}, tc.want)
	}
}

func TestJudgeForeign(t *testing.T) {
	ours := map[string][]string{"foreignclusters.discovery.liqo.io": {"v1alpha1"}}
	theirs := map[string][]string{"foreignclusters.discovery.liqo.io": {"v1alpha1"}, "foreignclusters.core.liqo.io": {"v1beta1"}}
	ready, ill := &engine.Installation{ID: "barn", Version: "v1.2.0"}, &engine.Installation{ID: "barn", Version: "v1.2.0", Problem: "not ready: liqo-webhook"}
	for name, c := range map[string]struct {
		found foreignLiqo
		want  string
	}{
		"ours":                         {foreignLiqo{served: ours, setting: engine.OnlyBuiltin}, "ok"},
		"none to drive":                {foreignLiqo{served: ours, setting: engine.Auto}, "ok"},
		"none, and it is wanted":       {foreignLiqo{served: ours, setting: engine.OnlyLiqo}, "error liqo-missing"},
		"another":                      {foreignLiqo{served: theirs, setting: engine.OnlyBuiltin, found: ready}, "warning foreign-liqo"},
		"one that cannot be seen":      {foreignLiqo{served: theirs, setting: engine.OnlyBuiltin, err: errors.New("forbidden")}, "warning foreign-liqo"},
		"an old one in our group":      {foreignLiqo{served: map[string][]string{"resourcerequests.discovery.liqo.io": {"v1alpha1"}}, setting: engine.Auto}, "warning foreign-liqo"},
		"an old one, 1.x is wanted":    {foreignLiqo{served: map[string][]string{"resourcerequests.discovery.liqo.io": {"v1alpha1"}}, setting: engine.OnlyLiqo}, "error liqo-missing"},
		"driven":                       {foreignLiqo{served: theirs, setting: engine.Auto, found: ready}, "ok"},
		"driven, without a module":     {foreignLiqo{served: theirs, setting: engine.Auto, found: ready, missing: []string{"geneve"}}, "ok, info liqo-modules"},
		"not ready":                    {foreignLiqo{served: theirs, setting: engine.OnlyLiqo, found: ill}, "warning liqo-unusable"},
		"to drive, and cannot be seen": {foreignLiqo{served: theirs, setting: engine.Auto, err: errors.New("forbidden")}, "skipped"},
	} {
		findings := c.found.judge()
		judged(t, name, findings, c.want)
		for _, f := range findings {
			for _, do := range f.Do {
				if strings.Contains(do, fmt.Sprintf("set peering.engine = %q", c.found.setting)) {
					t.Errorf("%s: to be set as it is: %s", name, do)
				}
			}
		}
	}
}

func TestJudgeState(t *testing.T) {
	dir := look.File{Path: "/s", Mode: fs.ModeDir | 0o750, UID: 7, GID: 7}
	file := func(name string, mode fs.FileMode, uid int) look.File {
		return look.File{Path: "/s/" + name, Mode: mode, UID: uid, GID: 7}
	}
	open := dir
	open.Mode = fs.ModeDir | 0o777
	for _, tc := range []struct {
		name, want string
		files      []look.File
	}{
		{"fine", "", []look.File{dir, file("cluster.key", 0o600, 7), file("agent.db", 0o640, 7)}},
		{"open directory", "error state-exposed", []look.File{open}},
		{"open key", "error key-exposed", []look.File{dir, file("cluster.key", 0o640, 7)}},
		{"open database", "error state-exposed", []look.File{dir, file("agent.db", 0o666, 7)}},
		{"root's database", "warning state-owner", []look.File{dir, file("agent.db", 0o640, 0)}},
	} {
		judged(t, tc.name, judgeModes(tc.files), tc.want)
	}
	for err, want := range map[error]string{
		state.ErrNoDatabase: "skipped", state.ErrNewerSchema: "error state-newer", state.ErrOlderSchema: "info state-older",
		state.ErrDamaged: "error state-damaged", state.ErrReadOnly: "skipped", errors.New("x"): "warning state-unreadable",
	} {
		f, bad := judgeDatabase(err, false)
		judged(t, err.Error(), []Finding{f}, want)
		if !bad {
			t.Errorf("%v is fine", err)
		}
	}
}

func TestJudgeDisk(t *testing.T) {
	d := look.Disk{Bytes: 1 << 34, FreeBytes: 1 << 33, Inodes: 1e6, FreeInodes: 5e5}
	with := func(change func(*look.Disk)) look.Disk { c := d; change(&c); return c }
	for _, tc := range []struct {
		name, want string
		disk       look.Disk
	}{
		{"fine", "", d},
		{"uncounted inodes", "", with(func(d *look.Disk) { d.Inodes, d.FreeInodes = 0, 0 })},
		{"full", "error disk-full", with(func(d *look.Disk) { d.FreeBytes = 1 << 20 })},
		{"low", "warning disk-low", with(func(d *look.Disk) { d.FreeBytes = 32 << 20 })},
		{"no inodes", "error disk-full", with(func(d *look.Disk) { d.FreeInodes = 3 })},
		{"few inodes", "warning disk-low", with(func(d *look.Disk) { d.FreeInodes = 900 })},
		{"read-only", "error disk-read-only", with(func(d *look.Disk) { d.ReadOnly = true; d.FreeBytes = 0 })},
	} {
		judged(t, tc.name, judgeSpace(tc.disk, "/s"), tc.want)
	}
	ms := func(n ...int) (out []time.Duration) {
		for _, n := range n {
			out = append(out, time.Duration(n)*time.Millisecond)
		}
		return out
	}
	for _, tc := range []struct {
		name, want string
		took       []time.Duration
		err        error
	}{
		{"fast", "ok", ms(1, 5, 900), nil}, {"slow", "warning disk-slow", ms(1, 300, 900), nil}, {"very slow", "error disk-slow", ms(1, 2500, 9000), nil},
		{"not finished", "skipped", nil, nil}, {"not allowed", "skipped", nil, fs.ErrPermission}, {"broken", "error disk-write", nil, syscall.EIO},
	} {
		judged(t, tc.name, []Finding{judgeSync(tc.took, tc.err, d, "/s", false)}, tc.want)
	}
	card := judgeSync(ms(300), nil, look.Disk{Card: true, Device: "mmcblk0p2"}, "/s", true)
	if !strings.Contains(strings.Join(card.Do, " "), "SD card or eMMC (mmcblk0p2)") {
		t.Errorf("%+v", card)
	}
}

func TestJudgeResources(t *testing.T) {
	r := resources{total: 4 << 30, available: 1 << 30, limits: look.Limits{Files: 20, MaxFiles: 1024, Memory: 40 << 20, MemoryMax: 256 << 20}}
	with := func(change func(*resources)) resources { c := r; change(&c); return c }
	for _, tc := range []struct {
		name, want string
		r          resources
	}{
		{"fine", "ok", r}, {"unknown", "ok", resources{}},
		{"near its limit", "warning memory-limit", with(func(r *resources) { r.limits.Memory = 250 << 20 })},
		{"killed", "warning memory-killed", with(func(r *resources) { r.limits.OOMKills = 2 })},
		{"none left", "warning memory-low", with(func(r *resources) { r.available = 1 << 20 })},
		{"many files", "warning files-limit", with(func(r *resources) { r.limits.Files = 1000 })},
		{"few drops", "ok", with(func(r *resources) { r.packets = control.Packets{Received: 10_000, SocketDrops: 3} })},
		{"a full ARP table", "warning arp-table", with(func(r *resources) { r.arp = look.ARPTable{Entries: 1000, Most: 1024, Forced: true} })},
		{"room in the ARP table", "ok", with(func(r *resources) { r.arp = look.ARPTable{Entries: 500, Most: 1024, Forced: true} })},
		{"an ARP table that somebody filled", "ok", with(func(r *resources) { r.arp = look.ARPTable{Entries: 5000, Most: 1024} })},
		{"many drops", "warning socket-drops", with(func(r *resources) { r.packets = control.Packets{Received: 10_000, SocketDrops: 500} })},
	} {
		judged(t, tc.name, judgeResources(tc.r), tc.want)
	}
}

func TestJudgeAgent(t *testing.T) {
	judged(t, "fine", judgeAgent(control.Status{Version: "1"}, "1"), "ok")
	judged(t, "another version", judgeAgent(control.Status{Version: "1"}, "2"), "warning agent-version")
	judged(t, "problems", judgeAgent(control.Status{Version: "1", Problems: []control.Problem{
		{Code: "disk-full", Severity: "error", Text: "x", Remedy: "y"}, {Code: "open-to-anybody", Severity: "warning", Text: "x", Remedy: "y"}}}, "1"),
		"error disk-full, warning open-to-anybody")
	for _, tc := range []struct {
		name, want string
		unit       look.Unit
		runs       bool
	}{
		{"fine", "ok", look.Unit{Loaded: true, Active: "active", Enabled: "enabled"}, true},
		{"by hand", "info service-missing", look.Unit{}, true},
		{"not there", "skipped", look.Unit{}, false},
		{"disabled", "warning service-disabled", look.Unit{Loaded: true, Active: "active", Enabled: "disabled"}, true},
		{"failed", "error service-failed", look.Unit{Loaded: true, Active: "failed", Enabled: "enabled", Result: "exit-code"}, false},
		{"restarts", "warning service-restarts", look.Unit{Loaded: true, Active: "active", Enabled: "enabled", Restarts: 9}, true},
	} {
		judged(t, tc.name, judgeUnit(tc.unit, tc.runs), tc.want)
	}
}

func TestJudgeConfig(t *testing.T) {
	plain, err := config.Load(config.Options{Path: "/nonexistent"})
	if err != nil {
		t.Fatal(err)
	}
	changed, faults := plain.Override("file x line 1", map[string]any{"log.level": "debug"})
	open, faults2 := plain.Override("file x line 1", map[string]any{"trust.allow_empty_token": true})
	if len(faults)+len(faults2) > 0 {
		t.Fatal(faults, faults2)
	}
	used := func(l *config.Loaded, sources map[string]string) *control.Config {
		var text strings.Builder
		if err := l.WriteTOML(&text, false); err != nil {
			t.Fatal(err)
		}
		return &control.Config{TOML: text.String(), Sources: sources}
	}
	for _, tc := range []struct {
		name, want string
		loaded     *config.Loaded
		used       *control.Config
	}{
		{"defaults", "ok", plain, nil},
		{"in use", "ok", changed, used(changed, nil)},
		{"not in use", "warning restart-needed", changed, used(plain, nil)},
		{"set by an option of the agent", "ok", plain, used(changed, map[string]string{"log.level": "flag"})},
		{"set by the ClusterConfig", "ok", plain, used(changed, map[string]string{"log.level": "ClusterConfig liqo-configuration"})},
		{"set by the environment", "info config-environment", plain, used(changed, map[string]string{"log.level": "environment LIQO_AGENT_LOG_LEVEL"})},
		{"open", "warning open-to-anybody", open, used(open, nil)},
	} {
		judged(t, tc.name, judgeConfig(tc.loaded, tc.used), tc.want)
	}
}

func TestJudgePeers(t *testing.T) {
	now := time.Now()
	p := control.Peer{ID: "barn", Name: "barn", Phase: string(peer.PhasePresent), Outgoing: control.Direction{Wanted: true, Joined: true}}
	gone, strange, newer := p, p, p
	gone.Phase, gone.LastSeen, gone.Reason = string(peer.PhaseUnreachable), now.Add(-time.Hour), "no answer"
	strange.Outgoing = control.Direction{}
	strange.Phase = string(peer.PhaseLost)
	newer.Outgoing.Reason = reason.Incompatible
	judged(t, "nobody", judgePeers([]control.Peer{strange}, now), "ok")
	judged(t, "there", judgePeers([]control.Peer{p, strange}, now), "ok")
	judged(t, "gone", judgePeers([]control.Peer{p, gone}, now), "warning peer-unreachable")
	judged(t, "newer", judgePeers([]control.Peer{newer}, now), "error peer-version")
}

func TestJudgePolicies(t *testing.T) {
	node := func(name, version, args string) (n policyNode) {
		n.Metadata.Name, n.Status.NodeInfo.KubeletVersion = name, version
		n.Metadata.Annotations = map[string]string{annotationArgs: args}
		return n
	}
	pod := func(node, key, value, phase string) (p policyPod) {
		p.Metadata.Labels, p.Spec.NodeName, p.Status.Phase = map[string]string{key: value}, node, phase
		return p
	}
	virtual := node("peer", "v1.36.3", "")
	virtual.Metadata.Labels = map[string]string{"liqo.io/type": "virtual-node"}
	const k3s, other = "v1.36.3+k3s1", "v1.36.3"
	for _, tc := range []struct {
		name, want string
		nodes      []policyNode
		pods       []policyPod
	}{
		{"K3s", "ok", []policyNode{node("a", k3s, `["server","--disable","traefik"]`), virtual}, nil},
		{"no nodes", "skipped", nil, nil},
		{"K3s without arguments", "ok", []policyNode{node("a", k3s, "")}, nil},
		{"K3s, switched off", "warning no-network-policies", []policyNode{node("a", k3s, `["server","--disable-network-policy"]`)}, nil},
		{"K3s, switched off before another argument", "warning no-network-policies", []policyNode{node("a", k3s, `["server","--disable-network-policy","--debug"]`)}, nil},
		{"K3s, switched off in the file", "warning no-network-policies", []policyNode{node("a", k3s, `["server","--disable-network-policy","true"]`)}, nil},
		{"K3s, with another spelling", "warning no-network-policies", []policyNode{node("a", k3s, `["server","--disable-network-policy=true"]`)}, nil},
		{"K3s, not switched off", "ok", []policyNode{node("a", k3s, `["server","--disable-network-policy=false"]`), node("b", k3s, `["agent","--disable-network-policy","false"]`)}, nil},
		{"K3s, something else instead", "ok", []policyNode{node("a", k3s, `["server","--disable-network-policy"]`)}, []policyPod{pod("a", "k8s-app", "cilium", "Running")}},
		{"another Kubernetes", "warning no-network-policies", []policyNode{node("a", other, "")}, []policyPod{pod("a", "app", "web", "Running")}},
		{"with Calico", "ok", []policyNode{node("a", other, ""), virtual}, []policyPod{pod("a", "k8s-app", "calico-node", "Running")}},
		{"with Calico on one node", "warning no-network-policies", []policyNode{node("a", other, ""), node("b", other, "")}, []policyPod{pod("a", "k8s-app", "calico-node", "Running")}},
		{"with Calico that does not run", "warning no-network-policies", []policyNode{node("a", other, "")}, []policyPod{pod("a", "k8s-app", "calico-node", "Pending")}},
		{"many nodes", "warning no-network-policies", []policyNode{node("a", other, ""), node("b", other, ""), node("c", other, ""), node("d", other, ""), node("e", other, "")}, nil},
	} {
		judged(t, tc.name, []Finding{judgePolicies(tc.nodes, tc.pods)}, tc.want)
	}
}
