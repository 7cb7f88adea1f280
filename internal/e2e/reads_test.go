//go:build linux

package e2e

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/yaml"

	"liqo.io/agent/internal/bed"
	"liqo.io/agent/kube"
)

// thing is something that people do to a pod.
type thing struct {
	name string // and that of its pod
	on   string // the pod of another thing, in place of one of its own
	bare bool   // it has no pod but those of what is in also

	sh   string // what the container main of its pod runs in a shell; it sleeps by default
	main string // more of that container, in YAML
	spec string // more of the pod's spec
	meta string // more of its metadata
	also string // what else there is, in YAML, with NAMESPACE, NODE and IMAGE

	shows string // what the pod's status or events show, as a regular expression, before anything is done
	do    string // is done by a person then, by the functions of hands
	then  string // what is shown in the end

	chance  string            // events that come or do not, by chance
	differs map[string]string // part of what is seen, to the row of the documentation that says how it differs
}

// The parts of what a person sees.
const (
	inStatus = "status"
	inEvents = "events"
	inOutput = "output"
)

// sleeps is what pods do that are there for something else. The shell ends at once when it is told to.
const sleeps = `trap "exit 0" TERM; while true; do sleep 1000 & wait; done`

// pod is the thing's pod on a side, as JSON.
func (th *thing) pod(s *side) (string, error) {
	type object = map[string]any
	read := func(text string) (object, error) {
		out := object{}
		err := yaml.NewYAMLOrJSONDecoder(strings.NewReader(text), 4096).Decode(&out)
		if text == "" {
			err = nil
		}
		return out, err
	}
	main, err := read(th.main)
	spec, specErr := read(th.spec)
	meta, metaErr := read(th.meta)
	if err = errors.Join(err, specErr, metaErr); err != nil {
		return "", err
	}
	fill := func(into object, key string, value any) {
		if _, there := into[key]; !there {
			into[key] = value
		}
	}
	fill(main, "command", []string{"sh", "-c", cmp.Or(th.sh, sleeps)})
	main["name"] = "main"
	others, _ := spec["containers"].([]any)
	inits, _ := spec["initContainers"].([]any)
	spec["containers"] = append([]any{main}, others...)
	for _, c := range slices.Concat(inits, spec["containers"].([]any)) {
		fill(c.(object), "image", bed.Image)
		fill(c.(object), "imagePullPolicy", "Never")
	}
	fill(spec, "nodeSelector", object{"kubernetes.io/hostname": s.node})
	fill(spec, "terminationGracePeriodSeconds", 1)
	fill(spec, "automountServiceAccountToken", false)
	labels, _ := meta["labels"].(object)
	if labels == nil {
		labels = object{}
	}
	labels["thing"] = th.name
	meta["labels"], meta["name"], meta["namespace"] = labels, th.name, s.namespace
	text, err := json.Marshal(object{"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})
	return string(text), err
}

// side is one of the two places where things are done.
type side struct {
	x               *box
	namespace, node string
	things          []*thing

	pods   *kube.Cache[*corev1.Pod]
	events *kube.Cache[*corev1.Event]
}

// about returns the thing that an object of that name belongs to, "" for none.
func (s *side) about(name string) string {
	found := ""
	for _, th := range s.things {
		if (name == th.name || strings.HasPrefix(name, th.name+"-")) && len(th.name) > len(found) {
			found = th.name
		}
	}
	return found
}

// follow keeps the caches up to date.
func (s *side) follow(ctx context.Context, client *kube.Client, group *sync.WaitGroup) {
	s.pods = kube.NewCache(kube.Kind[*corev1.Pod]{
		Fresh: func() *corev1.Pod { return &corev1.Pod{} },
		Index: func(pod *corev1.Pod) []string { return []string{s.about(pod.Name)} },
	})
	s.events = kube.NewCache(kube.Kind[*corev1.Event]{
		Fresh: func() *corev1.Event { return &corev1.Event{} },
		Index: func(e *corev1.Event) []string { return []string{s.about(e.InvolvedObject.Name)} },
	})
	group.Go(func() { s.pods.Follow(ctx, client, kube.Query{Path: "/api/v1/namespaces/" + s.namespace + "/pods"}) })
	group.Go(func() {
		s.events.Follow(ctx, client, kube.Query{Path: "/api/v1/namespaces/" + s.namespace + "/events"})
	})
}

// unlike is what is never the same twice, with what stands for it here. The order matters.
var unlike = []struct {
	what *regexp.Regexp
	by   string
}{
	{regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`), "UID"},
	{regexp.MustCompile(`[0-9a-f]{64}`), "ID"},
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`), "TIME"},
	{regexp.MustCompile(`[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d [+-]\d{4}`), "TIME"},
	{regexp.MustCompile(`[A-Z][a-z]{2} +\d+ \d\d:\d\d`), "TIME"},
	{regexp.MustCompile(`\b(\d+(\.\d+)?(ns|µs|us|ms|s|m|h|d))+\b`), "DURATION"},
	{regexp.MustCompile(`\b10\.42(\.\d+){2}\b|\b241(\.\d+){3}\b`), "ADDRESS"},
	{regexp.MustCompile(`ADDRESS:[3-6]\d{4}\b|127\.0\.0\.1:[3-6]\d{4}\b`), "ADDRESS:PORT"},
	{regexp.MustCompile(`[ \t]+`), " "},
	{regexp.MustCompile(`(?m) +$`), ""},
}

// plain returns a text without what is never the same twice, and without the names of the side. A longer name that contains
// one of them, such as that of the provider's namespace, stays.
func (s *side) plain(text, thing string) string {
	for _, u := range unlike {
		text = u.what.ReplaceAllString(text, u.by)
	}
	for name, by := range map[string]string{s.namespace: "NAMESPACE", s.node: "NODE"} {
		text = regexp.MustCompile(`(^|[^-a-zA-Z0-9])`+name+`($|[^-a-zA-Z0-9])`).ReplaceAllString(text, "${1}"+by+"${2}")
	}
	// What controllers append to the names of their pods, and of sets of them.
	text = regexp.MustCompile(`\b`+thing+`(-[a-z0-9]{6,10}|-[0-9]+)?-[a-z0-9]{5}\b`).ReplaceAllString(text, thing+"-POD")
	return regexp.MustCompile(`\b`+thing+`-[a-z0-9]{8,10}\b`).ReplaceAllString(text, thing+"-SET")
}

// status is what a person sees of the pods of a thing.
func (s *side) status(thing string) string {
	var out []string
	for _, pod := range s.pods.By(thing) {
		out = append(out, s.statusOf(pod))
	}
	slices.Sort(out)
	return s.plain(strings.Join(out, "\n"), thing)
}

func (s *side) statusOf(pod *corev1.Pod) string {
	st := &pod.Status
	lines := []string{fmt.Sprintf("%s %s %s %s address=%t deleted=%t", st.Phase, st.Reason, st.Message, st.QOSClass, st.PodIP != "", pod.DeletionTimestamp != nil)}
	conditions := slices.Clone(st.Conditions)
	slices.SortFunc(conditions, func(a, b corev1.PodCondition) int { return cmp.Compare(a.Type, b.Type) })
	for _, c := range conditions {
		if c.Type == corev1.PodReadyToStartContainers && (st.Phase == corev1.PodSucceeded || st.Phase == corev1.PodFailed) {
			continue // a kubelet says some time after the end that the sandbox is gone; at a provider, the end is what is shown
		}
		lines = append(lines, fmt.Sprintf("%s=%s %s %s", c.Type, c.Status, c.Reason, c.Message))
	}
	for kind, list := range map[string][]corev1.ContainerStatus{"init": st.InitContainerStatuses, "container": st.ContainerStatuses, "ephemeral": st.EphemeralContainerStatuses} {
		for i := range list {
			c := &list[i]
			lines = append(lines, fmt.Sprintf("%s %s %s ready=%t started=%t restarted=%t is %s was %s", kind, c.Name, c.Image, c.Ready, c.Started != nil && *c.Started, c.RestartCount > 0, state(c.State), state(c.LastTerminationState)))
		}
	}
	slices.Sort(lines[1:])
	return strings.Join(lines, "\n")
}

func state(s corev1.ContainerState) string {
	switch {
	case s.Waiting != nil:
		return "waiting " + s.Waiting.Reason + ": " + s.Waiting.Message
	case s.Running != nil:
		return "running"
	case s.Terminated != nil:
		return fmt.Sprintf("terminated %d %d %s: %s", s.Terminated.ExitCode, s.Terminated.Signal, s.Terminated.Reason, s.Terminated.Message)
	}
	return "nothing"
}

// late are events about a kubelet that did not know of an object in time, or had no answer of a probe, which come on a busy machine.
var late = regexp.MustCompile(`failed to sync \S+ cache: timed out|object "\S+" not registered|timed out after DURATION|context deadline exceeded`)

// told are the events about a thing, each kind of them once.
func (s *side) told(th *thing) string {
	lines := make(map[string]bool)
	for _, e := range s.events.By(th.name) {
		line := s.plain(fmt.Sprintf("%s %s %s of %s%s: %s", e.Type, e.Reason, e.InvolvedObject.Kind, cmp.Or(e.ReportingController, e.Source.Component), " "+e.InvolvedObject.FieldPath, e.Message), th.name)
		if late.MatchString(line) || th.chance != "" && regexp.MustCompile(th.chance).MatchString(line) {
			continue
		}
		lines[line] = true
	}
	return strings.Join(slices.Sorted(maps.Keys(lines)), "\n")
}

// view is what is seen of a thing on one side, but for the output of what is done.
func (s *side) view(th *thing) map[string]string {
	if th.on != "" {
		return map[string]string{}
	}
	return map[string]string{inStatus: s.status(th.name), inEvents: s.told(th)}
}

// shown checks that the view has what it is to show.
func shown(view map[string]string, what string) error {
	text := view[inStatus] + "\n" + view[inEvents]
	if !regexp.MustCompile("(?s)" + what).MatchString(text) {
		return fmt.Errorf("it does not show %q:\n%s", what, text)
	}
	return nil
}

// hands are what people of one side do things with. What is to fail is said so by "no".
const hands = `set -eo pipefail
k() { kubectl -n $NS "$@"; }
no() { if "$@"; then echo "it did not fail"; else echo "failed with $?"; fi; }
until_is() { for _ in $(seq 300); do out=$("${@:2}" 2>&1) || true; [[ $out == *"$1"* ]] && return; sleep 0.2; done; echo "it never was $1: $out"; return 1; }
`

// run does on a side what a person does, and returns what that person reads.
func (s *side) run(th *thing) (string, error) {
	of := cmp.Or(th.on, th.name)
	out, err := s.x.tryShell("NS=" + s.namespace + " POD=" + of + " NODE=" + s.node + " IMAGE=" + bed.Image + "\n" + hands + th.do)
	return s.plain(out, of), err
}

// row is one of the table of what reads differently.
type row struct{ what, home, away string }

// differences reads that table.
func differences(t *testing.T) []row {
	t.Helper()
	page, err := os.ReadFile("../../docs/sharing.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n### What reads differently\n")
	section, _, _ = strings.Cut(section, "\n## ")
	var out []row
	for line := range strings.Lines(section) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), " | ")
		if what := strings.TrimSpace(cells[0]); len(cells) == 3 && what != "" && what != "---" {
			out = append(out, row{what, cells[1], cells[2]})
		}
	}
	return out
}

var quoted = regexp.MustCompile("`([^`]+)`")

// fits checks a difference against the row that is about it: what a cell quotes is in the text of its side, and not in the
// other one's.
func (r row) fits(home, away string) error {
	if home == away {
		return fmt.Errorf("there is no difference, but the documentation has one: %q", r.what)
	}
	for _, cell := range []struct{ text, here, there string }{{r.home, home, away}, {r.away, away, home}} {
		for _, word := range quoted.FindAllStringSubmatch(cell.text, -1) {
			if !strings.Contains(cell.here, word[1]) || strings.Contains(cell.there, word[1]) {
				return fmt.Errorf("%q of the documentation's %q is not what differs:\n%s\n--- at the provider:\n%s", word[1], r.what, home, away)
			}
		}
	}
	return nil
}

// compare checks that a thing looks alike on both sides, but for what the rows say.
func (th *thing) compare(home, away map[string]string, rows map[string]row) error {
	var errs []error
	differing := make(map[string][2]string) // by row
	for _, part := range slices.Sorted(maps.Keys(home)) {
		if name, differs := th.differs[part]; differs {
			both := differing[name]
			differing[name] = [2]string{both[0] + home[part] + "\n", both[1] + away[part] + "\n"}
		} else if home[part] != away[part] {
			errs = append(errs, fmt.Errorf("%s at home:\n%s\n--- at the provider:\n%s", part, home[part], away[part]))
		}
	}
	for name, both := range differing {
		errs = append(errs, rows[name].fits(both[0], both[1]))
	}
	return errors.Join(errs...)
}

// TestPodsReadAsAtHome does what people do to pods, at home and next door at the same time, and compares what they see. What
// differs is what docs/sharing.md says, no more and no less.
func TestPodsReadAsAtHome(t *testing.T) {
	t.Parallel()
	if whole() {
		t.Skip("it starts 180 pods, and what kubelets say at the same moment can differ on a busy machine; make reads runs it")
	}
	rows, needed := make(map[string]row), make(map[string]bool)
	for _, r := range differences(t) {
		rows[r.what] = r
	}
	all := things()
	names := make(map[string]bool)
	for _, th := range all {
		if names[th.name] {
			t.Fatalf("there are two things %s", th.name)
		}
		names[th.name] = true
		for _, name := range th.differs {
			if _, there := rows[name]; !there {
				t.Errorf("%s: the table of docs/sharing.md has no row %q", th.name, name)
			}
			needed[name] = true
		}
	}
	for name := range rows {
		if !needed[name] {
			t.Errorf("nothing here needs the row %q of docs/sharing.md", name)
		}
	}
	p := newContainersPair(t, "percentage = 100\n", bed.ControllerConfig{})
	a := p.a
	sides := []*side{{x: a, namespace: "here", node: a.host.Name, things: all}, {x: a, namespace: "away", node: p.b.asNode(), things: all}}
	home, away := sides[0], sides[1]
	client, err := kube.New(a.kube.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	var following sync.WaitGroup
	defer func() { cancel(); following.Wait(); client.Close() }()
	for _, s := range sides {
		a.apply("apiVersion: v1\nkind: Namespace\nmetadata: {name: " + s.namespace + ", labels: {liqo.io/enabled: \"true\"}}\n")
		s.follow(ctx, client, &following)
		for _, path := range []string{"serviceaccounts/default", "configmaps/kube-root-ca.crt"} {
			a.eventually("namespace "+s.namespace+" has "+path, func() error {
				_, found, err := get[map[string]any](a, "/api/v1/namespaces/"+s.namespace+"/"+path)
				if err == nil && !found {
					err = errors.New("not yet")
				}
				return err
			})
		}
	}
	var group sync.WaitGroup
	busy := make(chan struct{}, 4) // people at a time
	for _, th := range all {
		group.Go(func() {
			if err := th.happens(ctx, home, away, rows, busy); err != nil {
				t.Errorf("%s: %v", th.name, err)
			}
		})
	}
	group.Wait()
}

// happens does a thing on both sides, and compares.
func (th *thing) happens(ctx context.Context, home, away *side, rows map[string]row, busy chan struct{}) error {
	sides := []*side{home, away}
	for _, s := range sides {
		manifests := strings.NewReplacer("NAMESPACE", s.namespace, "NODE", s.node, "IMAGE", bed.Image).Replace(th.also)
		if th.on == "" && !th.bare {
			pod, err := th.pod(s)
			if err != nil {
				return err
			}
			manifests += "\n---\n" + pod
		}
		if err := s.x.kube.Apply(ctx, manifests); err != nil {
			return err
		}
	}
	of := th
	if th.on != "" {
		of = &thing{name: th.on}
	}
	for _, s := range sides {
		if _, differs := th.differs[inStatus]; differs && s == away {
			continue
		}
		if err := bed.Poll(ctx, func() error { return shown(s.view(of), cmp.Or(th.shows, "Ready=True")) }); err != nil {
			return fmt.Errorf("in namespace %s: %w", s.namespace, err)
		}
	}
	outputs, errs := make([]string, 2), make([]error, 2)
	if th.do != "" {
		var group sync.WaitGroup
		for i, s := range sides {
			group.Go(func() {
				busy <- struct{}{}
				defer func() { <-busy }()
				outputs[i], errs[i] = s.run(th)
			})
		}
		group.Wait()
	}
	for i, err := range errs {
		if err != nil {
			return fmt.Errorf("in namespace %s: %w\n%s", sides[i].namespace, err, outputs[i])
		}
	}
	return bed.Poll(ctx, func() error {
		views := []map[string]string{home.view(th), away.view(th)}
		for i := range views {
			views[i][inOutput] = outputs[i]
		}
		if th.on == "" {
			if err := shown(views[0], cmp.Or(th.then, th.shows, "Ready=True")); err != nil {
				return fmt.Errorf("in the end, at home: %w", err)
			}
		}
		return th.compare(views[0], views[1], rows)
	})
}
