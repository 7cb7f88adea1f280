package usage

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"liqo.io/agent/internal/attack"
	"liqo.io/agent/internal/bubble"
	"liqo.io/agent/internal/kubetest"
)

// pod is a pod of shop whose containers run since a time.
func pod(name string, since time.Time, containers ...string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID("uid-" + name)}}
	p.Status.Phase = corev1.PodRunning
	for _, c := range containers {
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, corev1.ContainerStatus{
			Name: c, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(since)}}})
	}
	return p
}

// said is an answer of a metrics API: of each line name, container, CPU and memory.
func said(lines ...string) string {
	var items []string
	for _, line := range lines {
		f := strings.Fields(line)
		items = append(items, fmt.Sprintf(`{"metadata":{"name":%q,"namespace":"away"},"timestamp":"9999-99-99T00:00:00Z","window":"-1s","containers":[{"name":%q,"usage":{"cpu":%q,"memory":%q}}]}`, f[0], f[1], f[2], f[3]))
	}
	return `{"kind":"PodMetricsList","apiVersion":"metrics.k8s.io/v1beta1","items":[` + strings.Join(items, ",") + `]}`
}

// scene is one virtual node, "liqo-birch", and its provider.
type scene struct {
	*Usage
	server *kubetest.Server

	mu     sync.Mutex
	guests map[string][]*corev1.Pod
	log    bytes.Buffer
}

func newScene(answer kubetest.Answer, pods ...*corev1.Pod) *scene {
	s := &scene{server: kubetest.New(answer), guests: map[string][]*corev1.Pod{"away": pods}}
	s.Usage = New(Config{
		Node: func(name string) (Node, bool) {
			s.mu.Lock()
			defer s.mu.Unlock()
			return Node{Remote: s.server, Guests: s.guests}, name == "liqo-birch"
		},
		Names:  func() []string { return []string{"liqo-birch", "liqo-gone"} },
		Logger: slog.New(slog.NewTextHandler(&s.log, nil)),
	})
	return s
}

func (s *scene) run(pods ...*corev1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.guests = map[string][]*corev1.Pod{"away": pods}
}

func (s *scene) says(lines ...string) {
	s.server.Say(func(*http.Request, string) (int, string) { return http.StatusOK, said(lines...) })
}

func (s *scene) report(t *testing.T) Report {
	t.Helper()
	r, known := s.Node(t.Context(), "liqo-birch")
	if !known {
		t.Fatal("there is no such node")
	}
	return r
}

// container returns what a report says of the only container of a pod.
func (r Report) container(pod string) (Amount, bool) {
	for _, p := range r.Pods {
		if p.Name == pod {
			return p.Containers[0].Amount, true
		}
	}
	return Amount{}, false
}

// begins reports whether a counter begins with a report: before it, also to who reads what is written of it, but not much.
func begins(a Amount, r Report) bool {
	since, err := strconv.ParseFloat(float(float64(a.Since.UnixMilli())/1000), 64)
	return err == nil && time.Unix(0, int64(since*1e9)).Before(time.UnixMilli(r.Time.UnixMilli())) && r.Time.Sub(a.Since) < time.Second
}

func near(a, b float64) bool { return math.Abs(a-b) < 1e-6 }

// Rates become counters that only grow while a container runs, also when the provider
// leaves it out for once, and begin anew with it.
func TestCountersGrow(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		begin := time.Now()
		s := newScene(nil, pod("web", begin, "main"), pod("db", begin, "main"))
		s.says("web main 500m 64Mi", "db main 1 1Gi")
		r := s.report(t)
		web, _ := r.container("web")
		if !r.Whole || len(r.Pods) != 2 || web.Seconds != least || web.Memory != 64<<20 || web.Cores != 0.5 || !begins(web, r) || r.Pods[1].UID != "uid-web" || r.Pods[1].Namespace != "shop" {
			t.Fatalf("at first: %+v", r)
		}
		time.Sleep(20 * time.Second)
		r = s.report(t)
		if web, _ = r.container("web"); !near(web.Seconds, 10) || begins(web, r) {
			t.Errorf("after 20 s of half a core: %+v", web)
		}
		if !near(r.Total.Seconds, 30) || !near(r.Total.Cores, 1.5) || r.Total.Memory != 1<<30+64<<20 {
			t.Errorf("in all: %+v", r.Total)
		}
		since := web.Since

		s.says("db main 1 1Gi")
		time.Sleep(20 * time.Second)
		r = s.report(t)
		if _, there := r.container("web"); there || !near(r.Total.Seconds, 50) {
			t.Errorf("when web is left out: %+v", r)
		}
		s.says("web main 250m 64Mi", "db main 0 1Gi")
		time.Sleep(20 * time.Second)
		r = s.report(t)
		if web, _ = r.container("web"); !near(web.Seconds, 20) || !web.Since.Equal(since) {
			t.Errorf("when it is there again: %+v", web)
		}
		if db, _ := r.container("db"); !near(db.Seconds, 40) {
			t.Errorf("an idle container: %+v", db)
		}
		total := r.Total.Seconds

		// A pod that ends takes nothing from the total, and one that starts again is another run.
		s.run(pod("web", time.Now(), "main"))
		s.says("web main 250m 64Mi", "db main 5 5Gi")
		time.Sleep(20 * time.Second)
		r = s.report(t)
		if web, _ = r.container("web"); web.Seconds != least || !begins(web, r) || len(r.Pods) != 1 || !near(r.Total.Seconds, total+5) {
			t.Errorf("after a restart: %+v", r)
		}
	})
}

// However many ask, the provider is asked once in a while; and not at all if nobody asks.
func TestProviderIsAskedOnce(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := newScene(func(*http.Request, string) (int, string) {
			time.Sleep(time.Second)
			return http.StatusOK, said("web main 1 1Gi")
		}, pod("web", time.Now(), "main"))
		time.Sleep(time.Hour)
		ask := func(n int) {
			t.Helper()
			var group sync.WaitGroup
			for range n {
				group.Go(func() {
					if all := s.All(t.Context()); len(all) != 1 || len(all[0].Pods) != 1 {
						t.Errorf("%+v", all)
					}
				})
			}
			group.Wait()
		}
		ask(50)
		time.Sleep(freshFor - 2*time.Second)
		ask(1)
		if sent := s.server.Take(); len(sent) != 1 || sent[0] != "GET /apis/metrics.k8s.io/v1beta1/namespaces/away/pods " {
			t.Errorf("%q", sent)
		}
		time.Sleep(2 * time.Second)
		ask(50)
		if sent := s.server.Take(); len(sent) != 1 {
			t.Errorf("%q", sent)
		}
		if _, known := s.Node(t.Context(), "alder"); known {
			t.Error("a node of nobody is known")
		}
	})
}

// slow answers after a while, or when nobody waits any more.
type slow struct{ http.RoundTripper }

func (s slow) RoundTrip(r *http.Request) (*http.Response, error) {
	if strings.Contains(r.URL.Path, "/slow/") {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	return s.RoundTripper.RoundTrip(r)
}

// CloseIdleConnections has nothing to close.
func (slow) CloseIdleConnections() {}

// What does not answer holds up nothing else, and there is no total without it. What a
// caller who went away did not wait for is asked again.
func TestSlowProvider(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		server := kubetest.New(func(*http.Request, string) (int, string) { return http.StatusOK, said("web main 1 1Gi") })
		away := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "other", Name: "web"}}
		guests := map[string][]*corev1.Pod{"slow": {away}}
		for i := range 3 * atOnce {
			guests[fmt.Sprint("away-", i)] = []*corev1.Pod{pod("web", time.Now(), "main")}
		}
		nodes := map[string]Node{
			"dead": {Remote: slow{server}, Guests: map[string][]*corev1.Pod{"slow": {away}}},
			"half": {Remote: slow{server}, Guests: guests},
			"good": {Remote: slow{server}, Guests: map[string][]*corev1.Pod{"away": {pod("web", time.Now(), "main")}}},
			"idle": {Remote: slow{server}},
		}
		u := New(Config{
			Node:   func(name string) (Node, bool) { n, known := nodes[name]; return n, known },
			Names:  func() []string { return []string{"half", "good", "dead", "idle"} },
			Logger: slog.New(slog.DiscardHandler),
		})
		begin := time.Now()
		if r, _ := u.Node(t.Context(), "good"); time.Since(begin) != 0 || !r.Whole {
			t.Errorf("the good one: %+v after %v", r, time.Since(begin))
		}
		all := u.All(t.Context())
		if took := time.Since(begin); took != measureIn || len(all) != 4 {
			t.Fatalf("%d reports after %v", len(all), took)
		}
		for i, want := range []struct {
			node  string
			whole bool
			pods  int
		}{{"dead", false, 0}, {"good", true, 1}, {"half", false, 3 * atOnce}, {"idle", true, 0}} {
			if r := all[i]; r.Node != want.node || r.Whole != want.whole || len(r.Pods) != want.pods {
				t.Errorf("%+v, want %+v", r, want)
			}
		}
		time.Sleep(time.Hour)
		server.Take()
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if r, _ := u.Node(gone, "good"); r.Whole {
			t.Errorf("who went away got %+v", r)
		}
		if r, _ := u.Node(t.Context(), "good"); !r.Whole {
			t.Errorf("the next one got %+v", r)
		}
	})
}

// A provider without metrics is left alone for a while, and there is one line in the log.
func TestNoMetrics(t *testing.T) {
	for _, test := range []struct {
		status int
		reason metav1.StatusReason
		again  time.Duration
	}{{http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, silentFor}, {http.StatusForbidden, metav1.StatusReasonForbidden, refusedFor}} {
		bubble.Test(t, func(t *testing.T) {
			s := newScene(func(*http.Request, string) (int, string) { return kubetest.Failure(test.status, test.reason) }, pod("web", time.Now(), "main"))
			for range 3 {
				for range 3 {
					if r := s.report(t); r.Whole || len(r.Pods) > 0 {
						t.Errorf("%+v", r)
					}
					time.Sleep(test.again / 3)
				}
				if sent := s.server.Take(); len(sent) != 1 {
					t.Errorf("%d: %d questions", test.status, len(sent))
				}
			}
			if lines := strings.Count(s.log.String(), "\n"); lines != 1 || !strings.Contains(s.log.String(), "said the test") {
				t.Errorf("%s", s.log.String())
			}
			s.says("web main 1 1Gi")
			time.Sleep(test.again)
			if r := s.report(t); !r.Whole || len(r.Pods) != 1 {
				t.Errorf("%+v", r)
			}
		})
	}
}

// Nothing comes of what makes no sense, and of what is about others, and what is written
// can be read.
func TestAttackMetrics(t *testing.T) {
	many := strings.Repeat(`{"name":"main","usage":{"cpu":"1","memory":"1"}},`, maxContainers+1)
	for name, text := range map[string]string{
		"negative":            said("web main -1 1Gi"),
		"negative memory":     said("web main 1 -1"),
		"huge":                said("web main 18446744073709551615n 1Gi"),
		"huge memory":         said("web main 1 9223372036854775807"),
		"beyond 64 bits":      said("web main 9e99 1Gi"),
		"not a number":        said("web main NaN 1Gi"),
		"infinite":            said("web main Inf 1Gi"),
		"long":                said("web main " + strings.Repeat("9", 100_000) + " 1Gi"),
		"nothing":             strings.Replace(said("web main 1 1Gi"), `"cpu":"1"`, `"cpu":""`, 1),
		"endless digits":      said("web main 1e-999999999 1Gi"),
		"a number":            strings.Replace(said("web main 1 1Gi"), `"cpu":"1"`, `"cpu":1`, 1),
		"another pod":         said("kube-apiserver main 1 1Gi"),
		"another container":   said("web other 1 1Gi"),
		"a name with a quote": `{"items":[{"metadata":{"name":"web\"} 1\nnode_cpu_usage_seconds_total 9"},"containers":[{"name":"main","usage":{"cpu":"1","memory":"1"}}]}]}`,
		"half of a pod":       `{"items":[{"metadata":{"name":"web"},"containers":[]}]}`,
		"a container twice":   `{"items":[{"metadata":{"name":"web"},"containers":[{"name":"main","usage":{"cpu":"1","memory":"1"}},{"name":"main","usage":{"cpu":"1","memory":"1"}}]}]}`,
		"many containers":     `{"items":[{"metadata":{"name":"web"},"containers":[` + strings.TrimSuffix(many, ",") + `]}]}`,
		"many pods":           `{"items":[` + strings.Repeat(`{},`, maxPods) + `{}]}`,
		"no array":            `{"items":{"web":1}}`,
		"deep":                `{"items":` + strings.Repeat("[", 100_000),
		"too large":           `{"items":[{"metadata":{"name":"` + strings.Repeat("x", 5<<20) + `"}}]}`,
		"null":                `{"items":null}`,
		"a Status as a list":  `{"kind":"Status","status":"Failure"}`,
		"something else":      `<html>`,
	} {
		s := newScene(func(*http.Request, string) (int, string) { return http.StatusOK, text }, pod("web", time.Now(), "main"))
		r := s.report(t)
		written(t, r)
		got := "nothing"
		if len(r.Pods) > 0 {
			got = fmt.Sprint(r.Pods)
		}
		attack.Attempt{What: "say what pods use: " + name, As: "provider", Want: "nothing"}.Saw(t, got)
	}
}

// written fails unless reports can be written and read.
func written(t *testing.T, reports ...Report) string {
	t.Helper()
	var text, doc bytes.Buffer
	if err := WriteResource(&text, reports); err != nil {
		t.Fatal(err)
	}
	if err := WriteSummary(&doc, reports); err != nil {
		t.Fatal(err)
	}
	var into summary
	if err := json.Unmarshal(doc.Bytes(), &into); err != nil {
		t.Fatalf("%v: %s", err, doc.String())
	}
	for line := range strings.Lines(text.String()) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		var value float64
		_, rest, _ := strings.Cut(line, " ")
		if _, err := fmt.Sscan(rest, &value); err != nil || value < 0 || math.IsInf(value, 0) {
			t.Fatalf("line %q: %v", line, err)
		}
	}
	return text.String() + doc.String()
}

// The largest amounts fit into what scrapers calculate with, and a counter begins anew
// before it does not.
func TestLargest(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := newScene(nil, pod("web", time.Now(), "main"))
		s.says("web main 10000 256Ti")
		last, again := Amount{}, 0
		for range 200 {
			r := s.report(t)
			written(t, r)
			a, there := r.container("web")
			switch {
			case !there || a.Seconds > maxSeconds:
				t.Fatalf("%+v", r)
			case a.Since.Equal(last.Since) && a.Seconds < last.Seconds:
				t.Fatalf("from %+v back to %+v", last, a)
			case !a.Since.Equal(last.Since):
				again++
				if a.Since.Before(last.Since) || !begins(a, r) {
					t.Fatalf("%+v begins anew at %v", a, r.Time)
				}
			}
			last = a
			time.Sleep(10 * time.Hour)
		}
		if again < 5 {
			t.Errorf("it began %d times", again)
		}
	})
}

func TestFormats(t *testing.T) {
	at := time.Date(2026, 11, 25, 12, 0, 0, 123_000_000, time.FixedZone("", 3600))
	one := Report{Node: "liqo-birch", Time: at, Whole: true, Total: Amount{at, 12.5, 0.5, 2048}, Pods: []Pod{
		{Namespace: "shop", Name: "web", UID: "u", Containers: []Container{{"main", Amount{at, 12.5, 0.5, 2048}}}}}}
	text := written(t, one)
	for _, want := range []string{
		`container_cpu_usage_seconds_total{container="main",namespace="shop",pod="web"} 12.5 1795604400123` + "\n",
		`container_memory_working_set_bytes{container="main",namespace="shop",pod="web"} 2048 1795604400123` + "\n",
		`container_start_time_seconds{container="main",namespace="shop",pod="web"} 1.795604400123e+09` + "\n",
		"\nnode_cpu_usage_seconds_total 12.5 1795604400123\n", "\nnode_memory_working_set_bytes 2048 1795604400123\n", "\nresource_scrape_error 0\n",
		`"nodeName":"liqo-birch","startTime":"2026-11-25T11:00:00Z","cpu":{"time":"2026-11-25T11:00:00Z","usageNanoCores":500000000,"usageCoreNanoSeconds":12500000000}`,
		`"podRef":{"name":"web","namespace":"shop","uid":"u"},"startTime":null`, `"workingSetBytes":2048`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	half := one
	half.Whole = false
	empty := Report{Node: "liqo-cedar", Time: at, Whole: true, Total: Amount{Since: at, Seconds: least}}
	for name, test := range map[string]struct {
		reports []Report
		node    bool
		failed  string
	}{
		"a part":  {[]Report{half}, false, "1"},
		"two":     {[]Report{one, empty}, false, "0"},
		"no pods": {[]Report{empty}, true, "0"},
		"none":    {nil, false, "0"},
	} {
		text := written(t, test.reports...)
		if strings.Contains(text, "\nnode_memory_working_set_bytes ") != test.node || !strings.Contains(text, "\nresource_scrape_error "+test.failed+"\n") {
			t.Errorf("%s:\n%s", name, text)
		}
	}
	if text := written(t, empty); !strings.Contains(text, "\nnode_memory_working_set_bytes 1 ") {
		t.Errorf("metrics-server drops\n%s", text)
	}
}

// FuzzDecode: what comes of an answer is bounded, and can be written.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(said("web main 500m 64Mi")))
	f.Add([]byte(said("web main 9e99 1Gi", "db main -1 1")))
	f.Add([]byte(`{"items":[{"metadata":{"name":"web"},"containers":[{"name":"main","usage":{"cpu":"1n","memory":"1Ki"}}]},{"containers":null}]}`))
	f.Add([]byte(`{"items":null}`))
	begin := time.Unix(1_800_000_000, 0)
	f.Fuzz(func(t *testing.T, text []byte) {
		var list podMetricsList
		if json.Unmarshal(text, &list) != nil {
			return
		}
		m := newMeter("n", time.Now, slog.New(slog.DiscardHandler))
		guests := map[string][]*corev1.Pod{"away": {pod("web", begin, "main")}}
		last := Amount{}
		for i := range 3 {
			r := m.measure(guests, map[string]map[string]*podMetrics{"away": byName(list.Items)}, true, begin.Add(time.Duration(i)*time.Hour))
			written(t, r)
			if len(r.Pods) == 0 {
				continue
			}
			a := r.Pods[0].Containers[0].Amount
			if a.Seconds < last.Seconds || !(a.Seconds <= maxSeconds) || !(a.Memory >= 0 && a.Memory <= maxMemory) {
				t.Fatalf("%+v after %+v", a, last)
			}
			last = a
		}
	})
}
