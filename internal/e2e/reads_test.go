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
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/yaml"

	"liqo.io/agent/internal/bed"
	"liqo.io/agent/kube"
)

// thing is something that people do to a pod.
type thing struct {
	name string // and that of its pod
	on   string // the thing whose pod it is done to, after that and what comes before it in the table
	bare bool   // it has no pod but those of what is in also

	sh   string // what the container main of its pod runs in a shell; it sleeps by default
	main string // more of that container, in YAML
	spec string // more of the pod's spec
	meta string // more of its metadata
	also string // what else there is, in YAML, with NAMESPACE, NODE and IMAGE

	shows string // what the pod's status or events show, as a regular expression, before anything is done
	do    string // is done by a person then, by the functions of hands
	then  string // what is shown in the end

	chance  string            // events that come or do not, by chance of the kubelet, as a regular expression
	differs map[string]string // part of what is seen, to the row of the documentation that says how it differs
}

// The parts of what a person sees.
const (
	inStatus = "status"
	inEvents = "events"
	inOutput = "output"
)

// sleeps is what pods do that are there for something else. The shell ends at once when it is told to, so pods have all the time
// for it, and not a second, which a busy machine may need to tell it.
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
	dir             string // for files of those who do things

	pods   *kube.Cache[*corev1.Pod]
	events *kube.Cache[*corev1.Event]
	plains sync.Map // texts to what plain made of them
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
	{regexp.MustCompile(`\(combined from similar events\): `), ""}, // of more than ten in ten minutes
	{regexp.MustCompile(`[ \t]+`), " "},
	{regexp.MustCompile(`(?m) +$`), ""},
}

// plain returns a text without what is never the same twice, and without the names of the side. A longer name that contains
// one of them, such as that of the provider's namespace, stays.
func (s *side) plain(text, thing string) string {
	type key struct{ text, thing string }
	of := key{text, thing}
	if known, there := s.plains.Load(of); there {
		return known.(string)
	}
	text = s.plainOf(text, thing)
	s.plains.Store(of, text)
	return text
}

func (s *side) plainOf(text, thing string) string {
	// What controllers append to the names of their pods, and of sets of them. First of all: 48s4h is one, and not a duration.
	text = regexp.MustCompile(`\b`+thing+`(-[a-z0-9]{6,10}|-[0-9]+)?-[a-z0-9]{5}\b`).ReplaceAllString(text, thing+"-POD")
	text = regexp.MustCompile(`\b`+thing+`-[a-z0-9]{8,10}\b`).ReplaceAllString(text, thing+"-SET")
	for _, u := range unlike {
		text = u.what.ReplaceAllString(text, u.by)
	}
	for name, by := range map[string]string{s.namespace: "NAMESPACE", s.node: "NODE"} {
		text = regexp.MustCompile(`(^|[^-a-zA-Z0-9])`+name+`($|[^-a-zA-Z0-9])`).ReplaceAllString(text, "${1}"+by+"${2}")
	}
	return text
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

// late are events about a kubelet that was too slow, which come on a busy machine: it did not know of an object in time, had no answer
// of a probe or of its container runtime, which goes on with what it asks for again, or did not renew its node's lease. And it may stop
// a pod in the middle of a probe.
var late = regexp.MustCompile(`failed to sync \S+ cache: timed out|object "\S+" not registered|timed out after DURATION|context deadline exceeded|errored and resulted in unknown state: .*[cC]ancel|name "\S+" is reserved for|SandboxChanged|NodeNotReady`)

// told are the events about a thing, each kind of them once: how often something is said is a matter of time.
func (s *side) told(of *thing, chance []*regexp.Regexp) string {
	lines := make(map[string]bool)
	for _, e := range s.events.By(of.name) {
		line := s.plain(fmt.Sprintf("%s %s %s of %s%s: %s", e.Type, e.Reason, e.InvolvedObject.Kind, cmp.Or(e.ReportingController, e.Source.Component), " "+e.InvolvedObject.FieldPath, e.Message), of.name)
		if !slices.ContainsFunc(chance, func(r *regexp.Regexp) bool { return r.MatchString(line) }) {
			lines[line] = true
		}
	}
	return strings.Join(slices.Sorted(maps.Keys(lines)), "\n")
}

// history is what one side has shown of a thing. The states of two kubelets' pods come and go at different times, above all on a
// busy machine, so what is compared is not what both show at one moment, but what both have come to.
type history struct {
	side   *side
	of     *thing // with the pod
	chance []*regexp.Regexp

	status, events string
	reached        map[string]bool // each status in which the thing showed what it is to show
}

// look looks again, and checks that there is what is to be shown. The status with it counts as reached.
func (h *history) look(what *regexp.Regexp) error {
	h.status, h.events = h.side.status(h.of.name), h.side.told(h.of, h.chance)
	if text := h.status + "\n" + h.events; !what.MatchString(text) {
		return fmt.Errorf("in namespace %s, it does not show %q:\n%s", h.side.namespace, what, text)
	}
	h.reached[h.status] = true
	return nil
}

// view is the latest of what was seen, but with the status that the other side reached, too, if there is one.
func (h *history) view(other *history, output string) map[string]string {
	status := h.status
	for _, s := range slices.Sorted(maps.Keys(h.reached)) {
		if other.reached[s] {
			status = s
			break
		}
	}
	return map[string]string{inStatus: status, inEvents: h.events, inOutput: output}
}

// hands are what people of one side do things with. What is to fail is said so by "no". Files are in a directory that is new, also
// for who does something again: what an earlier attempt has written would be taken for what this one is to see.
const hands = `set -eo pipefail
cd "$(mktemp -d)"
export GOGC=off # kubectl lives too short for it
k() { kubectl -n $NS "$@"; }
no() { if "$@"; then echo "it did not fail"; else echo "failed with $?"; fi; }
until_is() { for _ in $(seq 200); do out=$("${@:2}" 2>&1) || true; [[ $out == *"$1"* ]] && return; sleep 1; done; echo "it never was $1: $out"; return 1; }
`

// unheard matches what kubectl says of an API server that did not answer in ten seconds.
var unheard = regexp.MustCompile(`Unable to connect to the server|TLS handshake timeout|http2: client connection lost`)

// logged matches what kubectl logs of a watch whose next event is read in the moment in which it has seen enough.
var logged = regexp.MustCompile(`(?m)^[IWE]\d{4} .* reflector\.go:\d+\] .*watch ended with error.*\n`)

// run does on a side what a person does, and returns what that person reads. Who gets no answer does all of it again.
func (s *side) run(ctx context.Context, th *thing) (out string, err error) {
	of := cmp.Or(th.on, th.name)
	_ = bed.Poll(ctx, func() error { // what is left of it is in out and err
		out, err = s.x.tryShell("export TMPDIR=" + s.dir + " NS=" + s.namespace + " POD=" + of + " NODE=" + s.node + " IMAGE=" + bed.Image + "\n" + hands + th.do)
		if unheard.MatchString(out) {
			return errors.New("no answer")
		}
		return nil
	})
	return s.plain(logged.ReplaceAllString(out, ""), of), err
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
		t.Skip("it takes over a hundred seconds of processor time; make reads runs it, and CI")
	}
	rows, needed := make(map[string]row), make(map[string]bool)
	for _, r := range differences(t) {
		rows[r.what] = r
	}
	all := things()
	names, done := make(map[string]bool), make(map[string][]*thing) // by the thing with the pod
	for _, th := range all {
		if names[th.name] {
			t.Fatalf("there are two things %s", th.name)
		}
		names[th.name] = true
		pod := cmp.Or(th.on, th.name)
		if !names[pod] {
			t.Fatalf("%s comes before %s, whose pod it needs", th.name, pod)
		}
		done[pod] = append(done[pod], th)
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
	sides := []*side{{x: a, namespace: "here", node: a.host.Name, things: all, dir: t.TempDir()}, {x: a, namespace: "away", node: p.b.asNode(), things: all, dir: t.TempDir()}}
	client, err := kube.New(a.kube.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
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
	// Few at a time: kubelets that have to start everything at once take minutes for a pod. The longest come first.
	pods := slices.SortedStableFunc(maps.Keys(done), func(a, b string) int { return cmp.Or(cmp.Compare(len(done[b]), len(done[a])), cmp.Compare(a, b)) })
	next := make(chan string)
	var group sync.WaitGroup
	for range 6 {
		group.Go(func() {
			for pod := range next {
				for _, th := range done[pod] {
					begin := time.Now()
					if err := th.happens(ctx, done[pod][0], sides, rows); err != nil {
						t.Errorf("%s: %v", th.name, err)
						// A fault that all of them show would take hours otherwise.
						time.AfterFunc(soon/5, cancel)
						break
					}
					reads := "as at home"
					for _, row := range th.differs {
						reads = "differs by " + strconv.Quote(row)
					}
					t.Logf("%-20s %4.0f s  %s", th.name, time.Since(begin).Seconds(), reads)
				}
				done[pod][0].ends(ctx, sides)
			}
		})
	}
	for _, pod := range pods {
		select {
		case next <- pod:
		case <-ctx.Done():
			t.Errorf("%s: nothing was done, after what failed", pod)
		}
	}
	close(next)
	group.Wait()
}

// starts makes the pod of a thing on both sides, and what else there is.
func (th *thing) starts(ctx context.Context, sides []*side) error {
	for _, s := range sides {
		manifests := strings.NewReplacer("NAMESPACE", s.namespace, "NODE", s.node, "IMAGE", bed.Image).Replace(th.also)
		if !th.bare {
			pod, err := th.pod(s)
			if err != nil {
				return err
			}
			manifests += "\n---\n" + pod
		}
		if err := bed.Poll(ctx, func() error { return s.x.kube.Apply(ctx, manifests) }); err != nil {
			return err
		}
	}
	return nil
}

// ends deletes the pod of a thing, whose probes and restarts would cost the other ones processor time.
func (th *thing) ends(ctx context.Context, sides []*side) {
	for _, s := range sides {
		// If it stays, nothing is wrong but the time that the others take.
		_, _ = s.x.kube.Request(ctx, "DELETE", "/api/v1/namespaces/"+s.namespace+"/pods/"+th.name+"?gracePeriodSeconds=0", "", nil)
	}
}

// happens does a thing on both sides, to the pod of one that happened before or to its own, and compares.
func (th *thing) happens(ctx context.Context, of *thing, sides []*side, rows map[string]row) error {
	ctx, cancel := context.WithTimeout(ctx, soon)
	defer cancel()
	if th == of {
		if err := th.starts(ctx, sides); err != nil {
			return err
		}
	}
	chance := []*regexp.Regexp{late}
	for _, events := range []string{of.chance, th.chance} {
		if events != "" {
			chance = append(chance, regexp.MustCompile(events))
		}
	}
	// await waits until both sides showed something, and what they reached satisfies check.
	await := func(what string, check func(home, away *history) error) error {
		shows := regexp.MustCompile("(?s)" + what)
		home := &history{side: sides[0], of: of, chance: chance, reached: make(map[string]bool)}
		away := &history{side: sides[1], of: of, chance: chance, reached: make(map[string]bool)}
		return bed.Poll(ctx, func() error {
			errs := []error{home.look(shows), away.look(shows)}
			if _, differs := th.differs[inStatus]; differs {
				errs[1] = nil
			}
			for i, h := range []*history{home, away} {
				if len(h.reached) > 0 {
					errs[i] = nil
				}
			}
			if err := errors.Join(errs...); err != nil {
				return err
			}
			return check(home, away)
		})
	}
	before := cmp.Or(th.shows, of.then, of.shows, "Ready=True")
	if err := await(before, func(*history, *history) error { return nil }); err != nil {
		return err
	}
	outputs, errs := make([]string, 2), make([]error, 2)
	if th.do != "" {
		var group sync.WaitGroup
		for i, s := range sides {
			group.Go(func() { outputs[i], errs[i] = s.run(ctx, th) })
		}
		group.Wait()
	}
	for i, err := range errs {
		if err != nil {
			return fmt.Errorf("in namespace %s: %w\n%s", sides[i].namespace, err, outputs[i])
		}
	}
	return await(cmp.Or(th.then, before), func(home, away *history) error {
		a, b := home.view(away, outputs[0]), away.view(home, outputs[1])
		if err := th.compare(a, b, rows); err != nil {
			return err
		}
		return th.notices(a, b, rows)
	})
}

// faults are what an agent could do wrong with what it passes on.
var faults = map[string]func(events string) string{
	"another source": func(events string) string { return strings.Replace(events, " of kubelet ", " of liqo-agent ", 1) },
	"another name":   func(events string) string { return strings.Replace(events, "NAMESPACE", "guest-NAMESPACE", 1) },
	"another reason": func(events string) string {
		return regexp.MustCompile(`^(\w+) \w+`).ReplaceAllString(events, "$1 Other")
	},
	"one too few":  func(events string) string { _, rest, _ := strings.Cut(events, "\n"); return rest },
	"one too many": func(events string) string { return events + "\nWarning Other Pod of kubelet : Other" },
}

// notices checks that events that the agent passed on with a fault would be a difference, where there is none.
func (th *thing) notices(home, away map[string]string, rows map[string]row) error {
	if _, differs := th.differs[inEvents]; differs {
		return nil
	}
	for what, fault := range faults {
		faulty := maps.Clone(away)
		if faulty[inEvents] = fault(away[inEvents]); faulty[inEvents] != away[inEvents] && th.compare(home, faulty, rows) == nil {
			return fmt.Errorf("%s among the events at the provider is not noticed", what)
		}
	}
	return nil
}
