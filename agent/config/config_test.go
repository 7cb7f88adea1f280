package config

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func write(t testing.TB, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "liqo-agent.toml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func load(t testing.TB, text string) (*Loaded, error) {
	t.Helper()
	return Load(Options{Path: write(t, text), PathExplicit: true})
}

// TestTable checks the table itself: every default obeys its own rule, every
// field appears once, every section is documented.
func TestTable(t *testing.T) {
	var c Config
	fields := map[any]string{}
	for _, s := range settings {
		name, _, _ := strings.Cut(s.key, ".")
		if !slices.ContainsFunc(sections, func(d struct{ name, doc string }) bool { return d.name == name }) {
			t.Errorf("%s: its section is not documented", s.key)
		}
		if other, double := fields[s.field(&c)]; double {
			t.Errorf("%s and %s are one field", s.key, other)
		}
		fields[s.field(&c)] = s.key
		if err := s.rule.accepts(s.def); err != nil {
			t.Errorf("%s: the default %s", s.key, err)
		}
		if !strings.HasSuffix(s.doc, ".") {
			t.Errorf("%s: its description is no sentence", s.key)
		}
	}
	if len(Keys()) != len(settings) {
		t.Error("Keys is not complete")
	}
	d := Default()
	d.Discovery.ExcludeInterfaces[0] = "changed"
	if Default().Discovery.ExcludeInterfaces[0] == "changed" {
		t.Error("two defaults share memory")
	}
}

func TestPrecedence(t *testing.T) {
	path := write(t, "# comment\n[log]\nlevel = \"warn\"\n\n[endpoint]\n  listen = \":1\"\n[discovery]\ninterfaces = [\n \"a\", # x\n \"b\"]\ncheck_interval = \"2s\"\n\n[state]\nhistory='1d12h'\n")
	opts := Options{Path: path, PathExplicit: true,
		Env:   []string{"HOME=/root", "LIQO_AGENT_ENDPOINT_LISTEN=:2", "LIQO_AGENT_DISCOVERY_AUTOJOIN=false", "LIQO_AGENT_SERVICE_HOST=10.0.0.1", "LIQO_AGENT_STATE_DIR=/env"},
		Set:   []string{"endpoint.listen=:3", "discovery.exclude_interfaces= x*, y ,", "state.dir=/set", "discovery.max_neighbours=7"},
		Flags: map[string]string{"state.dir": "/flag"}}
	l, err := Load(opts)
	if err != nil {
		t.Fatal(err)
	}
	want := Default()
	want.Log.Level = "warn"
	want.Endpoint.Listen = ":3"
	want.Discovery.Interfaces = []string{"a", "b"}
	want.Discovery.CheckInterval = 2 * time.Second
	want.Discovery.Autojoin = false
	want.Discovery.ExcludeInterfaces = []string{"x*", "y"}
	want.Discovery.MaxNeighbours = 7
	want.State.History = 36 * time.Hour
	want.State.Dir = "/flag"
	if diff := cmp.Diff(want, l.Config); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for key, source := range map[string]string{
		"log.level":                    "file " + path + " line 3",
		"discovery.interfaces":         "file " + path + " line 8",
		"discovery.check_interval":     "file " + path + " line 11",
		"state.history":                "file " + path + " line 14",
		"endpoint.listen":              "--set",
		"discovery.autojoin":           "environment LIQO_AGENT_DISCOVERY_AUTOJOIN",
		"discovery.exclude_interfaces": "--set",
		"state.dir":                    "flag",
		"log.format":                   "default",
	} {
		if l.Sources[key] != source {
			t.Errorf("%s comes from %q, want %q", key, l.Sources[key], source)
		}
	}
	if len(l.Sources) != len(settings) || l.Path != path {
		t.Errorf("%d sources, path %q", len(l.Sources), l.Path)
	}
}

func TestArrays(t *testing.T) {
	path := write(t, "[[peer]]\nid = \"a\"\nurl = \"https://[2001:db8::1]:6447\"\nconnect = \"auto\"\n\n[[search_domain]]\ndomain = \"example.com\"\nserver = \"192.0.2.53\"\n[[peer]]\nid = \"b\"\nfingerprint = \"sha256:"+strings.Repeat("ab", 32)+"\"\n")
	l, err := Load(Options{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]StaticPeer{{ID: "a", URL: "https://[2001:db8::1]:6447", Connect: "auto"}, {ID: "b", Fingerprint: "sha256:" + strings.Repeat("ab", 32)}}, l.Config.Peers); diff != "" {
		t.Errorf("peers (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]SearchDomain{{Domain: "example.com", Autojoin: true, Server: "192.0.2.53", MinInterval: 30 * time.Second, MaxInterval: time.Hour}}, l.Config.SearchDomains); diff != "" {
		t.Errorf("search domains (-want +got):\n%s", diff)
	}
	if got, want := l.Sources["peer[1]"], "file "+path+" line 9"; got != want {
		t.Errorf("peer[1] comes from %q, want %q", got, want)
	}
}

// TestFaults gives one fault each and wants the whole line.
func TestFaults(t *testing.T) {
	for _, tc := range []struct{ text, want string }{
		{"[discovery]\ncheck_intervall = \"5s\"", "line 2: discovery.check_intervall is no key that liqo-agent knows; did you mean discovery.check_interval?"},
		{"[endpoint]\ncheck_interval = \"5s\"", "line 2: endpoint.check_interval is no key that liqo-agent knows; did you mean discovery.check_interval?"},
		{"check_interval = \"5s\"", "line 1: check_interval is no key that liqo-agent knows; did you mean discovery.check_interval?"},
		{"[Log]\nlevel = \"info\"", "line 1: [Log] is no key that liqo-agent knows; did you mean log?"},
		{"[discovry]\nx = 1\ny = 2", "line 1: [discovry] is no key that liqo-agent knows; did you mean discovery?"},
		{"[log]\nqwertyuiop = 1", "line 2: log.qwertyuiop is no key that liqo-agent knows"},
		{"log = 1", "line 1: log must be a table: write [log] on a line of its own, and its keys below"},
		{"[peer]\nid = \"a\"", "line 1: peer must be a list of tables: write [[peer]] on a line of its own, and its keys below"},
		{"[log]\nlevel = \"loud\"", `line 2: log.level = "loud": must be "debug", "info", "warn" or "error"`},
		{"[log]\nlevel = 3", "line 2: log.level = 3: must be a string"},
		{"[discovery]\nautojoin = \"yes\"", `line 2: discovery.autojoin = "yes": must be true or false`},
		{"[discovery]\ncheck_interval = 30", `line 2: discovery.check_interval = 30: must be a duration such as "30s", "15m" or "90d", with its unit and in quotes`},
		{"[discovery]\ncheck_interval = \"30\"", `line 2: discovery.check_interval = "30": must be a duration such as "30s", "15m" or "90d"`},
		{"[discovery]\ncheck_interval = \"2h\"", `line 2: discovery.check_interval = "2h": must be between 1s and 1h`},
		{"[discovery]\ncheck_interval = \"20m\"", `default: discovery.lost_after = "15m": must not be shorter than discovery.check_interval, which is 20m`},
		{"[discovery]\nmax_neighbours = 0", "line 2: discovery.max_neighbours = 0: must be between 1 and 100000"},
		{"[discovery]\nmax_neighbours = 1e3", "line 2: discovery.max_neighbours = 1000: must be a whole number"},
		{"[discovery]\nmax_neighbours = 99999999999", "line 2: discovery.max_neighbours = 99999999999: must be a whole number"},
		{"[discovery]\ninterfaces = \"eth0\"", `line 2: discovery.interfaces = "eth0": must be a list of strings such as ["eth*"]`},
		{"[discovery]\ninterfaces = [1]", `line 2: discovery.interfaces = [1]: must be a list of strings such as ["eth*"]`},
		{"[sharing]\nlabels = [\"zone[\"]", `line 2: sharing.labels = ["zone["]: must be a list of label names or globs such as "topology.kubernetes.io/*": "zone[" is neither`},
		{"[discovery]\ninterfaces = [\"eth[\"]", `line 2: discovery.interfaces = ["eth["]: must be a list of interface names or globs such as "eth*": interface pattern "eth[" is not a glob`},
		{"[discovery]\nservice = \"liqo\"", `line 2: discovery.service = "liqo": must be a TCP service type such as "_liqo._tcp" (RFC 6763 section 7)`},
		{"[discovery]\nservice = \"_sixteen-letters1._tcp\"", "the name has 16 characters, at most 15 are allowed"},
		{"[discovery]\ndomain = \"local..\"", `line 2: discovery.domain = "local..": must be a domain name such as "example.com"`},
		{"[cluster]\nid = \"Barn\"", `line 2: cluster.id = "Barn": must be empty or a cluster ID: lower-case letters, digits and inner hyphens, at most 63`},
		{"[cluster]\nname = \"\\u001b[31m\"", "contains characters that cannot be printed"},
		{"[cluster]\nadmission_listen = \"0.0.0.0:6446\"", "others than this machine could reach it"},
		{"[cluster]\nadmission_listen = \":6446\"", `must be a loopback address and port such as "127.0.0.1:6446"`},
		{"[cluster]\nnamespace = \"\"", "must be a Kubernetes namespace"},
		{"[state]\nsocket = \"/" + strings.Repeat("x", 107) + "\"", "must be a path of at most 107 bytes: it has 108"},
		{"[state]\ndir = \"\"", `line 2: state.dir = "": must be a path`},
		{"[endpoint]\nlisten = \"6447\"", `line 2: endpoint.listen = "6447": must be an address and port such as ":6447" or "192.0.2.1:6447"`},
		{"[endpoint]\nlisten = \":65536\"", `"65536" is not a port (0 to 65535)`},
		{"[endpoint]\nadvertise_url = \"http://a:1\"", "it does not begin with https://"},
		{"[endpoint]\nadvertise_url = \"https://a\"", "the port is missing"},
		{"[endpoint]\nadvertise_url = \"https://a:1/x\"", "it has more than a host and a port"},
		{"[endpoint]\nadvertise_url = \"https://a_b-:1\"", `"a_b-" is neither an IP address nor a host name`},
		{"[sharing]\npercentage = 101", "line 2: sharing.percentage = 101: must be between 0 and 100"},
		{"[[peer]]\nurl = \"https://a:1\"", "line 1: peer[0].id is missing"},
		{"[[peer]]\nid = \"a\"\n[[peer]]\nid = \"b\"\n[[peer]]\nid = \"a\"", `line 6: peer[2].id = "a": is that of peer[0], too; merge the two`},
		{"[[peer]]\nid = \"a\"\nconect = \"auto\"", "line 3: peer[0].conect is no key that liqo-agent knows; did you mean connect?"},
		{"[[peer]]\nid = \"a\"\nconnect = \"yes\"", `line 3: peer[0].connect = "yes": must be "", "auto" or "never"`},
		{"[[peer]]\nid = \"a\"\nfingerprint = \"12\"", "must be empty or the 64 hexadecimal digits of a SHA-256"},
		{"[[search_domain]]\ndomain = \"-x\"", `line 2: search_domain[0].domain = "-x": must be a domain name`},
		{"[[search_domain]]\ndomain = \"x.org\"\nserver = \"a b\"", "must be empty or a DNS server such as"},
		{"[[search_domain]]\ndomain = \"x.org\"\nserver = \"tls://\"", `search_domain[0].server = "tls://": must be empty or a DNS server such as`},
		{"[[search_domain]]\ndomain = \"x.org\"\nserver = \"https://192.0.2.53\"", `must be empty or a DNS server such as`},
		{"[[search_domain]]\ndomain = \"x.org\"\nserver = \"192.0.2.53:0\"", `"0" is not a port (1 to 65535)`},
		{"[[search_domain]]\ndomain = \"x.org\"\nserver = \"fe80::1%" + strings.Repeat("x", 300) + "\"", `must be empty or a DNS server such as`},
		{"[[search_domain]]\nserver = \"192.0.2.53\"", "line 1: search_domain[0].domain is missing"},
		{"[[search_domain]]\ndomain = \"Example.org\"\n[[search_domain]]\ndomain = \"example.ORG.\"", `line 4: search_domain[1].domain = "example.org": is that of search_domain[0], too; merge the two`},
		{"[[search_domain]]\ndomain = \"x.org\"\nmin_interval = \"500ms\"", `line 3: search_domain[0].min_interval = "500ms": must be between 1s and 1d`},
		{"[[search_domain]]\ndomain = \"x.org\"\nmax_interval = \"25h\"", `line 3: search_domain[0].max_interval = "25h": must be between 1s and 1d`},
		{"[[search_domain]]\ndomain = \"x.org\"\nmin_interval = \"2h\"", `line 3: search_domain[0].min_interval = "2h": must not be longer than max_interval, which is 1h`},
		{"[[search_domain]]\ndomain = \"x.org\"\nmax_interval = \"29s\"", `line 3: search_domain[0].max_interval = "29s": must not be shorter than min_interval, which is 30s`},
		{"[[search_domain]]\ndomain = \"x.org\"\nmin_interval = \"20s\"\nmax_interval = \"10s\"", `line 4: search_domain[0].max_interval = "10s": must not be shorter than min_interval, which is 20s`},
		{"[[search_domain]]\ndomain = \"x.org\"\nmin_interval = \"x\"\nmax_interval = \"10s\"", `line 3: search_domain[0].min_interval = "x": must be a duration`},
		{"[discovery]\nttl = \"9s\"", `line 2: discovery.ttl = "9s": must be between 10s and 1d`},
		{"[discovery]\nttl = \"25h\"", `line 2: discovery.ttl = "25h": must be between 10s and 1d`},
		{"[[network]]\nadvertise = false", "line 1: network[0].name is missing"},
		{"[[network]]\nname = \"\"", "network[0].name = \"\": must be 1 to 63 bytes of printable text"},
		{"[[network]]\nname = \"home\"\n[[network]]\nname = \"home\"", `line 4: network[1].name = "home": is that of network[0], too; merge the two`},
		{"[[network]]\nname = \"home\"\ninterface = \"eth[\"", `network[0].interface = "eth[": must be empty or the name of an interface or a glob such as "wlan*"`},
		{"[[network]]\nname = \"home\"\nsubnet = \"192.168.7.0\"", `network[0].subnet = "192.168.7.0": must be empty or a network such as`},
		{"[[network]]\nname = \"home\"\nsubnet = \"192.168.7.1/24\"", `an address in it is given; the network is 192.168.7.0/24`},
		{"[[network]]\nname = \"home\"\ngateway_mac = \"00:00:5e:00:53\"", `network[0].gateway_mac = "00:00:5e:00:53": must be empty or the hardware address of a router`},
		{"[[network]]\nname = \"home\"\ngateway_mac = \"01:00:5e:00:53:01\"", "it is one of a group, which no router has"},
		{"[[network]]\nname = \"home\"\ngateway_mac = \"00:00:5e:00:53:01:02:03\"", "must be empty or the hardware address of a router"},
		{"[[network]]\nname = \"home\"\nautojoin = 1", "line 3: network[0].autojoin = 1: must be true or false"},
		{"[network]\nname = \"home\"", "line 1: network must be a list of tables: write [[network]] on a line of its own, and its keys below"},
		{"[netwrok]\nname = \"home\"", "line 1: [netwrok] is no key that liqo-agent knows; did you mean network?"},
		{"[log]\nlevel = \"info\"\n[log]\n", "line 3: not TOML: "},
		{"\n\nlevel = ", "line 3: not TOML: "},
		{"[log]\nlevel = \"a\xff\"", "line 2: byte 0xff is not UTF-8 text; save the file as UTF-8"},
	} {
		_, err := load(t, tc.text)
		var faults Faults
		if !errors.As(err, &faults) || len(faults) != 1 || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%q:\n got %v\nwant %s", tc.text, err, tc.want)
		}
	}
}

// TestAllFaultsAtOnce wants every fault of every source in one error, in the
// order of the file, the environment and the command line.
func TestAllFaultsAtOnce(t *testing.T) {
	path := write(t, "[log]\nlevel = \"loud\"\n\n[discovery]\nautojoin = 1\nservcie = \"x\"\n\n[[peer]]\nid = \"X\"\n")
	_, err := Load(Options{Path: path, PathExplicit: true,
		Env: []string{"LIQO_AGENT_LOG_LEVL=x", "LIQO_AGENT_SHARING_PERCENTAGE=half"},
		Set: []string{"metrics.listen", "network.name=x", "peer.id=x", "log.fromat=json", "discovery.autojoin=maybe"}, Flags: map[string]string{"log.format": "xml"}})
	want := "bad configuration, with 10 faults:" +
		"\n  file " + path + ` line 2: log.level = "loud": must be "debug", "info", "warn" or "error"` +
		"\n  file " + path + " line 5: discovery.autojoin = 1: must be true or false" +
		"\n  file " + path + " line 6: discovery.servcie is no key that liqo-agent knows; did you mean discovery.service?" +
		"\n  file " + path + ` line 9: peer[0].id = "X": must be a cluster ID: lower-case letters, digits and inner hyphens, at most 63` +
		"\n  environment LIQO_AGENT_SHARING_PERCENTAGE: sharing.percentage = \"half\": must be a whole number" +
		"\n  environment LIQO_AGENT_LOG_LEVL: log.levl is no key that liqo-agent knows; did you mean log.level?" +
		"\n  --set: \"metrics.listen\" is not of the form section.key=value" +
		"\n  --set: network.name can be set in the file only" +
		"\n  --set: peer.id can be set in the file only" +
		"\n  --set: log.fromat is no key that liqo-agent knows; did you mean log.format?" +
		"\n  --set: discovery.autojoin = \"maybe\": must be true or false" +
		"\n  flag: log.format = \"xml\": must be \"auto\", \"text\" or \"json\""
	want = strings.Replace(want, "10 faults", "12 faults", 1)
	if err == nil || err.Error() != want {
		t.Errorf("got:\n%v\nwant:\n%s", err, want)
	}
}

func TestFiles(t *testing.T) {
	dir := t.TempDir()
	large := filepath.Join(dir, "large")
	if err := errors.Join(os.WriteFile(large, nil, 0o600), os.Truncate(large, 100<<20), syscall.Mkfifo(filepath.Join(dir, "fifo"), 0o600)); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		dir:                           "is a directory; name the file in it",
		filepath.Join(dir, "fifo"):    "is not a regular file",
		large:                         "is larger than 1024 KiB; is it the right file?",
		filepath.Join(dir, "missing"): "does not exist",
	} {
		_, err := Load(Options{Path: path, PathExplicit: true})
		if err == nil || !strings.Contains(err.Error(), "file "+path+": "+want) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
	if _, err := Load(Options{Path: filepath.Join(dir, "missing"), PathExplicit: true}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing file that was named: %v", err)
	}
	l, err := Load(Options{Path: filepath.Join(dir, "missing")})
	if err != nil || l.Path != "" || !cmp.Equal(l.Config, Default()) {
		t.Errorf("a missing file that nobody named: %+v, %v", l, err)
	}
	for _, text := range []string{"", "\ufeff[log]\r\nlevel = \"info\"\r\n"} {
		if l, err := load(t, text); err != nil || !cmp.Equal(l.Config, Default()) {
			t.Errorf("%q: %v", text, err)
		}
	}
	if os.Getuid() != 0 {
		path := write(t, "")
		if err := os.Chmod(path, 0); err != nil {
			t.Fatal(err)
		}
		if _, err := Load(Options{Path: path}); !errors.Is(err, fs.ErrPermission) {
			t.Errorf("an unreadable file: %v", err)
		}
	}
}

func TestDurations(t *testing.T) {
	for text, want := range map[string]time.Duration{"90d": 90 * day, "1d12h": 36 * time.Hour, "0d": 0, "15m": 15 * time.Minute, "1m30s": 90 * time.Second, "250ms": 250 * time.Millisecond} {
		if got, err := parseDuration(text); err != nil || got != want {
			t.Errorf("parseDuration(%q) = %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "d", "5", "-1d", "1d-2h", "99999d", "1.5d", "5 m", "1h1d", "292y", "50000d2562047h"} {
		if got, err := parseDuration(text); err == nil {
			t.Errorf("parseDuration(%q) = %v", text, got)
		}
	}
	for want, d := range map[string]time.Duration{"90d": 90 * day, "36h": 36 * time.Hour, "15m": 15 * time.Minute, "1m30s": 90 * time.Second, "1h5m": 65 * time.Minute, "10s": 10 * time.Second, "10m": 10 * time.Minute, "0s": 0, "10h": 10 * time.Hour} {
		if got := formatDuration(d); got != want {
			t.Errorf("formatDuration(%v) = %q, want %q", d, got, want)
		}
	}
}

func TestChanged(t *testing.T) {
	a, b := Default(), Default()
	if keys, rebuild, restart := Changed(a, b); len(keys)+len(rebuild)+len(restart) > 0 {
		t.Errorf("Changed = %v, %v, %v between equals", keys, rebuild, restart)
	}
	b.Log.Level, b.Endpoint.Listen, b.Discovery.Interfaces = "debug", ":1", []string{"eth0"}
	b.Peers = []StaticPeer{{ID: "a"}}
	b.SearchDomains = []SearchDomain{{Domain: "example.com"}}
	b.Networks = []Network{{Name: "home"}}
	b.Discovery.Service, b.Discovery.Domain = "_other._tcp", "lan"
	keys, rebuild, restart := Changed(a, b)
	if want := []string{"discovery.service", "discovery.domain"}; !slices.Equal(rebuild, want) {
		t.Errorf("need new parts: %v, want %v", rebuild, want)
	}
	if want := []string{"discovery.service", "discovery.domain", "discovery.interfaces", "endpoint.listen", "log.level", "peer", "search_domain", "network"}; !slices.Equal(keys, want) {
		t.Errorf("changed: %v, want %v", keys, want)
	}
	if want := []string{"endpoint.listen"}; !slices.Equal(restart, want) {
		t.Errorf("need a restart: %v, want %v", restart, want)
	}
}

// TestHeld: what waits for a restart stays, with where it is from, and nothing else.
func TestHeld(t *testing.T) {
	start := &Loaded{Config: Default(), Sources: map[string]string{"endpoint.listen": "default", "log.level": "default"}}
	now := &Loaded{Config: Default(), Sources: map[string]string{"endpoint.listen": "--set", "log.level": "--set"}, Path: "/f"}
	now.Config.Endpoint.Listen, now.Config.Log.Level = ":1", "debug"
	held := now.Held(start)
	if held.Config.Endpoint.Listen != ":6447" || held.Sources["endpoint.listen"] != "default" || held.Config.Log.Level != "debug" || held.Sources["log.level"] != "--set" || held.Path != "/f" {
		t.Errorf("%+v", held)
	}
	if now.Config.Endpoint.Listen != ":1" || now.Sources["endpoint.listen"] != "--set" {
		t.Error("the original was changed")
	}
	if _, rebuild, restart := Changed(start.Config, held.Config); len(rebuild)+len(restart) > 0 {
		t.Errorf("%v, %v differ", rebuild, restart)
	}
}

// TestWriteTOML: what is printed loads as what it was printed from.
func TestWriteTOML(t *testing.T) {
	path := write(t, "[cluster]\nname = \"Halle 3 \\\"Süd\\\" \\\\\"\n[[peer]]\nid = \"a\"\n[[search_domain]]\ndomain = \"example.com\"\nautojoin = false\n[[network]]\nname = \"at home\"\ndiscover = false\n")
	l, err := Load(Options{Path: path, Set: []string{"discovery.interfaces=a,b"}, Env: []string{"LIQO_AGENT_STATE_DIR=/tmp/\x01\n\"x\""}})
	if err != nil {
		t.Fatal(err)
	}
	for _, withSources := range []bool{true, false} {
		var b bytes.Buffer
		if err := l.WriteTOML(&b, withSources); err != nil {
			t.Fatal(err)
		}
		again, err := load(t, b.String())
		if err != nil {
			t.Fatalf("%v in\n%s", err, &b)
		}
		if diff := cmp.Diff(l.Config, again.Config); diff != "" {
			t.Errorf("(-before +after):\n%s", diff)
		}
		for _, comment := range []string{"  # default\n", "  # --set\n", "  # environment LIQO_AGENT_STATE_DIR\n", fmt.Sprintf("[[peer]]  # file %s line 3\n", path), fmt.Sprintf("[[network]]  # file %s line 8\n", path)} {
			if strings.Contains(b.String(), comment) != withSources {
				t.Errorf("%q in the output with sources=%v:\n%s", comment, withSources, &b)
			}
		}
	}
}

func FuzzLoad(f *testing.F) {
	f.Add([]byte(example()))
	f.Add([]byte("[log]\nlevel = \"loud\"\n[[peer]]\nid='a'\n[[peer]]\n[discovery]\ninterfaces=[\"\"\"x\n\"\"\", 'y#']\n"))
	f.Add([]byte("[[search_domain]]\ndomain = \"Example.COM.\"\nmin_interval = \"2h\"\nmax_interval = \"3h\"\n[[network]]\nname = \"h\"\nsubnet = \"::/0\"\ngateway_mac = \"00-00-5E-00-53-01\"\n"))
	f.Add([]byte("a.b.c = {x = [1, {y = '''\n'''}]}\n[log]\n\"level\" = 'info'\n"))
	f.Add([]byte("\ufeff[[peer.x]]\n[peer]\n"))
	f.Add([]byte("log = [[1],[2]]\nx = 1979-05-27T07:32:00Z\ny = nan\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		l := loader{Loaded: Loaded{Config: Default(), Sources: map[string]string{}}}
		l.parse("file x", string(text))
		keyLines(string(text)) // also what is no TOML must not make it hang
		if len(l.faults) > 0 {
			if l.faults.Error() == "" {
				t.Error("a fault without words")
			}
			return
		}
		var b bytes.Buffer
		if err := l.WriteTOML(&b, true); err != nil {
			t.Fatal(err)
		}
		again := loader{Loaded: Loaded{Config: Default(), Sources: map[string]string{}}}
		again.parse("file x", b.String())
		if len(again.faults) > 0 || !cmp.Equal(l.Config, again.Config) {
			t.Errorf("%v\n%s\nloads as something else than\n%s", again.faults, &b, text)
		}
	})
}
