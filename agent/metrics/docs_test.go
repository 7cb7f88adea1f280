package metrics

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"sigs.k8s.io/yaml"

	"liqo.io/agent/internal/generated"
)

const (
	docs       = "../../docs/metrics.md"
	alertsFile = "../../packaging/monitoring/alerts.yaml"
	dashboard  = "../../packaging/monitoring/dashboard.json"
)

func reference() string {
	var b strings.Builder
	for _, s := range sections() {
		fmt.Fprintf(&b, "\n### %s\n\n| metric | type | labels | meaning |\n| --- | --- | --- | --- |\n", s.title)
		for _, f := range s.families {
			labels := ""
			for i, l := range f.labels {
				if i > 0 {
					labels += ", "
				}
				labels += "`" + l + "`"
			}
			fmt.Fprintf(&b, "| `%s%s` | %s | %s | %s |\n", prefix, f.name, f.kind, labels, strings.ReplaceAll(f.help, "|", `\|`))
		}
	}
	return b.String() + "\n"
}

func TestTheListIsInTheDocs(t *testing.T) {
	const begin, end = "<!-- Generated from agent/metrics: go test ./agent/metrics -update -->\n", "<!-- End of what is generated -->\n"
	generated.Section(t, docs, begin, end, reference())
}

// catalogue is every metric that there is, with its labels.
type catalogue struct {
	types  map[string]dto.MetricType
	labels map[string]map[string]bool
}

func everything(t *testing.T) catalogue {
	c := catalogue{types: make(map[string]dto.MetricType), labels: make(map[string]map[string]bool)}
	for name, f := range gather(t, full()) {
		labels := map[string]bool{"job": true, "instance": true}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = true
			}
		}
		names := []string{name}
		if f.GetType() == dto.MetricType_HISTOGRAM {
			names = []string{name + "_bucket", name + "_sum", name + "_count"}
		}
		for _, n := range names {
			c.types[n], c.labels[n] = f.GetType(), maps.Clone(labels)
		}
		if f.GetType() == dto.MetricType_HISTOGRAM {
			c.labels[name+"_bucket"]["le"] = true
		}
	}
	c.types["up"], c.labels["up"] = dto.MetricType_GAUGE, map[string]bool{"job": true, "instance": true}
	return c
}

var (
	metricName = regexp.MustCompile(`\b(?:liqo_agent|process|go)_[a-z0-9_]+\b|\bup\b`)
	selector   = regexp.MustCompile(`\b((?:liqo_agent|process|go)_[a-z0-9_]+|up)\{([^}]*)\}`)
	matcher    = regexp.MustCompile(`([a-z_]+)\s*(?:=~|!~|!=|=)`)
	counted    = regexp.MustCompile(`\b(rate|increase|irate)\(([a-z0-9_]+)`)
	changing   = regexp.MustCompile(`\bchanges\(([a-z0-9_]+)`)
	grouping   = regexp.MustCompile(`\b(?:by|on|group_left|without|ignoring)\s*\(([^)]*)\)`)
)

// check finds what an expression says about metrics that is not so.
func (c catalogue) check(expr string) (wrong []string, names []string) {
	complain := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	known := map[string]bool{}
	for _, name := range metricName.FindAllString(expr, -1) {
		if _, there := c.types[name]; !there {
			complain("there is no metric %s", name)
			continue
		}
		names = append(names, name)
		maps.Copy(known, c.labels[name])
		counts := c.types[name] != dto.MetricType_GAUGE && c.types[name] != dto.MetricType_SUMMARY
		used := slices.ContainsFunc(counted.FindAllStringSubmatch(expr, -1), func(m []string) bool { return m[2] == name })
		if counts != used {
			complain("%s is a %s: only of a counter there is a rate, and of a counter nothing else makes sense", name, c.types[name])
		}
	}
	for _, m := range changing.FindAllStringSubmatch(expr, -1) {
		if c.types[m[1]] != dto.MetricType_GAUGE {
			complain("changes() of %s, which is no gauge", m[1])
		}
	}
	for _, m := range selector.FindAllStringSubmatch(expr, -1) {
		for _, l := range matcher.FindAllStringSubmatch(m[2], -1) {
			if !c.labels[m[1]][l[1]] {
				complain("%s has no label %s", m[1], l[1])
			}
		}
	}
	for _, m := range grouping.FindAllStringSubmatch(expr, -1) {
		for l := range strings.SplitSeq(m[1], ",") {
			if !known[strings.TrimSpace(l)] {
				complain("none of the metrics has a label %s", l)
			}
		}
	}
	return wrong, names
}

func TestTheCheckOfExpressions(t *testing.T) {
	c := everything(t)
	for expr, right := range map[string]bool{
		`liqo_agent_peers{phase="Lost"} > 3`:                                           true,
		`sum by (le) (rate(liqo_agent_apiserver_request_duration_seconds_bucket[5m]))`: true,
		`liqo_agent_peerz > 3`:                                                         false,
		`liqo_agent_peers{phaze="Lost"}`:                                               false,
		`sum by (verb) (liqo_agent_peers)`:                                             false,
		`rate(liqo_agent_peers[5m])`:                                                   false,
		`liqo_agent_mdns_packets_sent_total > 3`:                                       false,
		`rate(liqo_agent_apiserver_request_duration_seconds[5m])`:                      false,
		`changes(liqo_agent_mdns_packets_sent_total[5m])`:                              false,
		`up{job="x"} == 0 and on (instance) liqo_agent_ready == 1`:                     true,
		`process_open_fds{job="a"} > 0.8 * process_max_fds{job!=""}`:                   true,
	} {
		if wrong, _ := c.check(expr); (len(wrong) == 0) != right {
			t.Errorf("%s: %v", expr, wrong)
		}
	}
}

// rules is the form of a file of Prometheus's rules, and nothing else is taken.
type rules struct {
	Groups []struct {
		Name  string `json:"name"`
		Rules []struct {
			Alert       string            `json:"alert"`
			Expr        string            `json:"expr"`
			For         string            `json:"for"`
			Labels      map[string]string `json:"labels"`
			Annotations map[string]string `json:"annotations"`
		} `json:"rules"`
	} `json:"groups"`
}

func TestAlerts(t *testing.T) {
	text, err := os.ReadFile(alertsFile)
	if err != nil {
		t.Fatal(err)
	}
	var file rules
	if err := yaml.UnmarshalStrict(text, &file); err != nil {
		t.Fatal(err)
	}
	manual, err := os.ReadFile(docs)
	if err != nil {
		t.Fatal(err)
	}
	c := everything(t)
	label := regexp.MustCompile(`\$labels\.([a-z_]+)`)
	length := regexp.MustCompile(`^[1-9][0-9]*[smh]$`)
	seen := make(map[string]bool)
	for _, g := range file.Groups {
		for _, r := range g.Rules {
			wrong, names := c.check(r.Expr)
			for _, w := range wrong {
				t.Errorf("%s: %s", r.Alert, w)
			}
			switch {
			case seen[r.Alert] || !strings.HasPrefix(r.Alert, "LiqoAgent"):
				t.Errorf("%s is there twice, or has another name than the others", r.Alert)
			case len(names) == 0:
				t.Errorf("%s is about no metric", r.Alert)
			case r.For != "" && !length.MatchString(r.For):
				t.Errorf("%s is to last %q", r.Alert, r.For)
			case !slices.Contains([]string{"critical", "warning", "info"}, r.Labels["severity"]) || len(r.Labels) != 1:
				t.Errorf("%s has the labels %v", r.Alert, r.Labels)
			case len(r.Annotations) != 3 || r.Annotations["summary"] == "" || !strings.HasSuffix(r.Annotations["description"], "."):
				t.Errorf("%s: the annotations are to be a summary, a description of whole sentences, and a runbook_url: %v", r.Alert, r.Annotations)
			case r.Annotations["runbook_url"] != "docs/metrics.md#"+strings.ToLower(r.Alert) || !strings.Contains(string(manual), "\n### "+r.Alert+"\n"):
				t.Errorf("%s: docs/metrics.md has no heading for it, or %s is another one", r.Alert, r.Annotations["runbook_url"])
			}
			seen[r.Alert] = true
			for _, m := range label.FindAllStringSubmatch(r.Annotations["summary"]+r.Annotations["description"], -1) {
				if !slices.ContainsFunc(names, func(n string) bool { return c.labels[n][m[1]] }) {
					t.Errorf("%s: its text has a label %s, and its metrics have none", r.Alert, m[1])
				}
			}
		}
	}
	for _, m := range regexp.MustCompile(`(?m)^### (LiqoAgent\w+)$`).FindAllStringSubmatch(string(manual), -1) {
		if !seen[m[1]] {
			t.Errorf("docs/metrics.md explains %s, and there is no such alert", m[1])
		}
	}
	if len(seen) < 20 {
		t.Errorf("only %d alerts were found", len(seen))
	}
}

func TestDashboard(t *testing.T) {
	text, err := os.ReadFile(dashboard)
	if err != nil {
		t.Fatal(err)
	}
	type place struct{ H, W, X, Y int }
	var board struct {
		Title, UID    string
		SchemaVersion int
		Templating    struct {
			List []struct{ Name, Type, Definition string }
		}
		Panels []struct {
			ID          int
			Type, Title string
			GridPos     place
			Datasource  struct{ Type, UID string }
			Targets     []struct {
				RefID, Expr string
				Datasource  struct{ UID string }
			}
		}
	}
	if err := json.Unmarshal(text, &board); err != nil {
		t.Fatal(err)
	}
	if board.Title == "" || board.UID == "" || board.SchemaVersion < 36 || len(board.Templating.List) < 3 {
		t.Errorf("the frame of the dashboard is not complete: %q %q %d %v", board.Title, board.UID, board.SchemaVersion, board.Templating.List)
	}
	variables := []string{"__rate_interval"}
	c := everything(t)
	for _, v := range board.Templating.List {
		variables = append(variables, v.Name)
		if v.Type == "query" {
			if wrong, names := c.check(v.Definition); len(wrong) > 0 || len(names) != 1 {
				t.Errorf("variable %s: %v", v.Name, wrong)
			}
		}
	}
	variable := regexp.MustCompile(`\$\{?(\w+)`)
	taken := make(map[[2]int]string)
	ids := make(map[int]bool)
	shown := make(map[string]bool)
	for _, p := range board.Panels {
		if ids[p.ID] || p.ID == 0 || p.Title == "" {
			t.Errorf("panel %q has the number %d, as another one has", p.Title, p.ID)
		}
		ids[p.ID] = true
		if p.GridPos.W < 1 || p.GridPos.H < 1 || p.GridPos.X+p.GridPos.W > 24 {
			t.Errorf("panel %q is not within the grid: %+v", p.Title, p.GridPos)
		}
		for x := range p.GridPos.W {
			for y := range p.GridPos.H {
				at := [2]int{p.GridPos.X + x, p.GridPos.Y + y}
				if other, both := taken[at]; both {
					t.Fatalf("panels %q and %q are in one place", other, p.Title)
				}
				taken[at] = p.Title
			}
		}
		if p.Type == "row" {
			continue
		}
		if len(p.Targets) == 0 || p.Datasource.UID != "${datasource}" {
			t.Errorf("panel %q shows nothing, or of a source of its own", p.Title)
		}
		for _, target := range p.Targets {
			wrong, names := c.check(target.Expr)
			for _, w := range wrong {
				t.Errorf("panel %q: %s", p.Title, w)
			}
			for _, n := range names {
				shown[n] = true
			}
			for _, v := range variable.FindAllStringSubmatch(target.Expr, -1) {
				if !slices.Contains(variables, v[1]) {
					t.Errorf("panel %q: there is no variable %s", p.Title, v[1])
				}
			}
			if !strings.Contains(target.Expr, `job="$job"`) || !strings.Contains(target.Expr, `instance=~"$instance"`) {
				t.Errorf("panel %q does not follow the choice of boxes: %s", p.Title, target.Expr)
			}
		}
	}
	if len(shown) < 40 {
		t.Errorf("the dashboard shows only %d metrics", len(shown))
	}
}

// TestDocsNameMetricsThatExist: in the documentation, too.
func TestDocsNameMetricsThatExist(t *testing.T) {
	text, err := os.ReadFile(docs)
	if err != nil {
		t.Fatal(err)
	}
	c := everything(t)
	found := 0
	for _, name := range regexp.MustCompile("`("+prefix+"[a-z0-9_]+)").FindAllStringSubmatch(string(text), -1) {
		found++
		_, plain := c.types[name[1]]
		_, spread := c.types[name[1]+"_bucket"]
		if !plain && !spread {
			t.Errorf("there is no metric %s", name[1])
		}
	}
	if found < 60 {
		t.Errorf("only %d metrics were found", found)
	}
}
