package config

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"liqo.io/agent/internal/generated"
)

const (
	examplePath   = "../../liqo-agent.toml.example"
	referencePath = "../../docs/configuration.md"
)

// TestGeneratedFiles keeps the example and the reference in step with the
// table. After a change of the table: go test ./agent/config -update
func TestGeneratedFiles(t *testing.T) {
	for path, want := range map[string]string{examplePath: example(), referencePath: reference()} {
		generated.File(t, path, want)
	}
}

// TestExampleIsTheDefault loads the example as it is and with every line
// uncommented: both are the defaults, so no value in it is wrong.
func TestExampleIsTheDefault(t *testing.T) {
	commented, err := os.ReadFile(examplePath)
	if err != nil {
		t.Fatal(err)
	}
	settingsOnly, _, _ := strings.Cut(string(commented), "# "+peerDoc)
	live := regexp.MustCompile(`(?m)^#([a-z])`).ReplaceAllString(settingsOnly, "$1")
	if n := strings.Count(live, " = "); n < len(settings) {
		t.Fatalf("only %d of %d keys are in the example", n, len(settings))
	}
	for _, text := range []string{string(commented), live} {
		l, err := load(t, text)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(Default(), l.Config); diff != "" {
			t.Errorf("(-default +example):\n%s", diff)
		}
	}
	all := regexp.MustCompile(`(?m)^#([a-z\[])`).ReplaceAllString(string(commented), "$1")
	if l, err := load(t, all); err != nil || len(l.Config.Peers) != 1 || len(l.Config.SearchDomains) != 1 || len(l.Config.Networks) != 1 {
		t.Errorf("with everything uncommented: %v", err)
	}
}

func example() string {
	var b strings.Builder
	b.WriteString(`# Configuration of liqo-agent, in ` + DefaultPath + `.
#
# Each key is shown with its default, behind a "#". Remove the "#" to set a value. The file can be empty or missing.
# "liqo-agent config check" lists errors, "liqo-agent config show" prints the values in use.
# docs/configuration.md is the reference.
`)
	section := ""
	for _, s := range settings {
		name, key, _ := strings.Cut(s.key, ".")
		if name != section {
			section = name
			fmt.Fprintf(&b, "\n[%s]\n", name)
		} else {
			b.WriteByte('\n')
		}
		writeComment(&b, meaning(s))
		fmt.Fprintf(&b, "#%s = %s\n", key, toTOML(s.def))
	}
	writeExampleElement(&b, peerTable, peerDoc, peerSettings, map[string]any{
		"id": "0558de48-097b-4b7d-ba04-6bd2a0f9d24f", "url": "https://box.example.com:6447"})
	writeExampleElement(&b, searchDomainTable, searchDomainDoc, searchDomainSettings, map[string]any{"domain": "example.com"})
	writeExampleElement(&b, networkTable, networkDoc, networkSettings, map[string]any{"name": "home", "subnet": "192.168.7.0/24"})
	return b.String()
}

func writeExampleElement[T any](b *strings.Builder, name, doc string, table []setting[T], values map[string]any) {
	fmt.Fprintf(b, "\n# %s\n#[[%s]]\n", doc, name)
	for _, s := range table {
		v, ok := values[s.key]
		if !ok {
			v = s.def
		}
		writeComment(b, meaning(s))
		fmt.Fprintf(b, "#%s = %s\n", s.key, toTOML(v))
	}
}

// writeComment wraps text at 120 columns.
func writeComment(b *strings.Builder, text string) {
	line := "#"
	for word := range strings.FieldsSeq(text) {
		if len(line)+1+len(word) > 120 {
			b.WriteString(line + "\n")
			line = "#"
		}
		line += " " + word
	}
	b.WriteString(line + "\n")
}

func meaning[T any](s setting[T]) string {
	doc := s.doc
	if s.rule.allowed != "" {
		doc += " Allowed: " + s.rule.allowed + "."
	}
	return doc
}

func reference() string {
	var b strings.Builder
	b.WriteString(`# Configuration

<!-- Generated from agent/config/table.go: go test ./agent/config -update -->

liqo-agent reads one TOML file: ` + "`" + DefaultPath + "`" + `, or the one that ` + "`--config`" + ` names. The file is optional, and every key has
a default. ` + "`liqo-agent.toml.example`" + ` lists all keys.

The first of these sources that has a key wins:

1. the ClusterConfig ` + "`liqo-configuration`" + ` in the cluster, for [some keys](#at-runtime)
2. an option of its own, such as ` + "`--listen`" + `
3. ` + "`--set section.key=value`" + `, which can be repeated; commas separate the values of a list
4. the environment variable ` + "`LIQO_AGENT_SECTION_KEY`" + `, such as ` + "`" + EnvName("log.level") + "`" + `
5. the file
6. the default

` + "`liqo-agent config check`" + ` lists all errors. ` + "`liqo-agent config show`" + ` prints the values in use and the source of each.

` + "`systemctl reload liqo-agent`" + ` (SIGHUP) reloads the configuration. If it has errors, or is gone, the agent logs that and keeps the old settings. In the
column *reload*, "no" means that a change needs a restart. "restart of discovery" takes effect at once; clusters on the LAN are then
discovered again.

Durations have a unit: ` + "`\"30s\"`, `\"15m\"`, `\"36h\"`, `\"90d\"`" + `.
`)
	for _, section := range sections {
		fmt.Fprintf(&b, "\n## [%s]\n\n%s\n\n| key | default | allowed | reload | meaning |\n| --- | --- | --- | --- | --- |\n", section.name, section.doc)
		for _, s := range settings {
			if name, key, _ := strings.Cut(s.key, "."); name == section.name {
				writeRow(&b, key, s)
			}
		}
	}
	writeTable(&b, peerTable, peerDoc, peerSettings)
	writeTable(&b, searchDomainTable, searchDomainDoc, searchDomainSettings)
	b.WriteString(`
Search domains also come from SearchDomain objects in the cluster (` + "`kubectl get searchdomains`" + `) and from ` + "`liqo-agent domains add`" + `, which
works without an API server. If several sources name the same domain, one counts: a SearchDomain object (the oldest), then the file,
then the command line. ` + "`liqo-agent domains list -o wide`" + ` shows the sources that do not count.
`)
	writeTable(&b, networkTable, networkDoc, networkSettings)
	fmt.Fprintf(&b, `
Everything at home, silent elsewhere:

%s%s%s

The first rule matches an interface with an address in that subnet and a default route to that router. The second rule has no
condition and matches all other interfaces; without it, [discovery] alone would apply there.

Rules apply to one interface each: a machine in two networks can be active in one and silent in the other. While the hardware address of
the router is unknown, the interface is silent, for at most five seconds; then the condition does not match. `+"`liqo-agent status`"+` shows which
rule applies to which interface, and why. A joined peer stays joined in every network from which it can be reached.
`, "```toml\n", networkExample, "```")
	b.WriteString(`
## At runtime

You can set these keys in the cluster too, in the ClusterConfig ` + "`liqo-configuration`" + `, which the agent creates empty. Its values override all
other sources and take effect at once. Remove a field, or delete the object, to go back to the other sources. ` + "`kubectl get clusterconfigs`" + `
shows the values in use, whatever their source.

    kubectl patch clusterconfigs liqo-configuration --patch '{"spec":{"discoveryConfig":{"enableAdvertisement": false}}}' --type 'merge'

| field of ` + "`spec`" + ` | key |
| --- | --- |
`)
	for _, one := range runtimeKeys {
		fmt.Fprintf(&b, "| `%s` | `%s` |\n", one.field, one.key)
	}
	b.WriteString(`
For ` + "`acceptPolicy`, `AutoAcceptMax` means `auto` and `Manual` means `manual`. `liqo-agent config show` and `liqo-agent status`" + ` show
` + "`ClusterConfig liqo-configuration`" + ` as the source of these values. The agent stores them in its database, so that they apply from its start, before
the API server answers. With ` + "`cluster.kubeconfig = \"none\"`" + `, the ClusterConfig is not used.
`)
	return b.String()
}

// networkExample is in the reference.
const networkExample = `[[network]]
name = "home"
subnet = "192.168.7.0/24"
gateway_mac = "00:00:5e:00:53:01"

[[network]]
name = "elsewhere"
advertise = false
discover = false
autojoin = false
`

// runtimeKeys are the fields of a ClusterConfig that stand for a key.
var runtimeKeys = []struct{ field, key string }{
	{"discoveryConfig.clusterName", "cluster.name"},
	{"discoveryConfig.enableDiscovery", "discovery.enable_discovery"},
	{"discoveryConfig.enableAdvertisement", "discovery.enable_advertisement"},
	{"discoveryConfig.autojoin", "discovery.autojoin"},
	{"discoveryConfig.autojoinUntrusted", "discovery.autojoin_untrusted"},
	{"discoveryConfig.ttl (seconds)", "discovery.ttl"},
	{"discoveryConfig.domain", "discovery.domain"},
	{"discoveryConfig.service", "discovery.service"},
	{"authConfig.allowEmptyToken", "trust.allow_empty_token"},
	{"advertisementConfig.outgoingConfig.enableBroadcaster", "sharing.enable"},
	{"advertisementConfig.outgoingConfig.resourceSharingPercentage", "sharing.percentage"},
	{"advertisementConfig.ingoingConfig.acceptPolicy", "sharing.accept_policy"},
	{"advertisementConfig.ingoingConfig.maxAcceptableAdvertisement", "sharing.max_accepted"},
	{"advertisementConfig.keepaliveThreshold", "sharing.keepalive_threshold"},
	{"advertisementConfig.keepaliveRetryTime (seconds)", "sharing.keepalive_retry"},
}

// TestReferenceIsRight: the example loads as what is said about it, and what can be
// set at runtime needs no restart.
func TestReferenceIsRight(t *testing.T) {
	l, err := load(t, networkExample)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]Network{{Name: "home", Subnet: "192.168.7.0/24", GatewayMAC: "00:00:5e:00:53:01", Advertise: true, Discover: true, Autojoin: true},
		{Name: "elsewhere"}}, l.Config.Networks); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, one := range runtimeKeys {
		s, ok := find(settings, one.key)
		if !ok || s.restart {
			t.Errorf("%s: there %t, needs a restart %t", one.key, ok, s.restart)
		}
	}
}

func writeTable[T any](b *strings.Builder, name, doc string, table []setting[T]) {
	fmt.Fprintf(b, "\n## [[%s]]\n\n%s Only in the file.\n\n| key | default | allowed | reload | meaning |\n| --- | --- | --- | --- | --- |\n", name, doc)
	for _, s := range table {
		writeRow(b, s.key, s)
	}
}

func writeRow[T any](b *strings.Builder, key string, s setting[T]) {
	reload := "yes"
	switch {
	case s.rebuild:
		reload = "restart of discovery"
	case s.restart:
		reload = "no"
	}
	allowed := s.rule.allowed
	if allowed == "" {
		var t T
		allowed = typeName(s.field(&t))
	}
	cell := func(text string) string { return strings.NewReplacer("|", `\|`, "*", `\*`).Replace(text) }
	fmt.Fprintf(b, "| `%s` | `%s` | %s | %s | %s |\n", key, toTOML(s.def), cell(allowed), reload, cell(s.doc))
}
