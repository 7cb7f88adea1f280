package usage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"liqo.io/agent/kube"
)

// meter measures one node. It may be used by any number of goroutines.
type meter struct {
	name   string
	now    func() time.Time
	logger *slog.Logger

	// turn is held, by one at a time, for everything below.
	turn   chan struct{}
	remote http.RoundTripper
	client *kube.Client // of remote
	due    time.Time    // nothing is asked before
	last   Report
	failed bool // the last measurement, which was logged
	total  counter
	// containers are the counters of all containers that run, whether the provider said
	// something about them this time or not.
	containers map[run]counter
}

// run is one run of a container: one that starts again is another.
type run struct {
	pod       types.UID
	container string
	id        string
	started   time.Time
}

func newMeter(name string, now func() time.Time, logger *slog.Logger) *meter {
	return &meter{name: name, now: now, logger: logger, turn: make(chan struct{}, 1)}
}

// report returns a measurement that is fresh enough. Who asks while one is being made
// waits for it.
func (m *meter) report(ctx context.Context, node Node) Report {
	ctx, cancel := context.WithTimeout(ctx, measureIn)
	defer cancel()
	select {
	case m.turn <- struct{}{}:
		defer func() { <-m.turn }()
	case <-ctx.Done():
		return Report{Node: m.name, Time: m.now()}
	}
	if m.now().Before(m.due) {
		return m.last
	}
	if err := m.connect(node.Remote); err != nil {
		m.complain(err)
		return Report{Node: m.name, Time: m.now()}
	}
	said, err := m.ask(ctx, node.Guests)
	if errors.Is(ctx.Err(), context.Canceled) { // the caller went away: who asks next asks again
		return Report{Node: m.name, Time: m.now()}
	}
	now := m.now()
	m.last = m.measure(node.Guests, said, err == nil, now)
	m.due = now.Add(freshFor)
	switch {
	case err == nil || len(said) > 0:
	case apierrors.IsForbidden(err):
		m.due = now.Add(refusedFor)
	default:
		m.due = now.Add(silentFor)
	}
	m.complain(err)
	return m.last
}

// connect makes the client of a provider.
func (m *meter) connect(remote http.RoundTripper) error {
	if m.client != nil && m.remote == remote {
		return nil
	}
	client, err := kube.New(&rest.Config{Host: "https://provider", Transport: remote})
	if err != nil {
		return err
	}
	m.client, m.remote = client, remote
	return nil
}

// complain logs why there are no measurements, once until there are.
func (m *meter) complain(err error) {
	if err != nil && !m.failed {
		m.logger.Info("A provider does not say what pods use, so kubectl top and autoscalers do not know; "+
			"find out whether kubectl top works at the provider.", "node", m.name, "error", err)
	}
	m.failed = err != nil
}

// ask returns what the provider says, by its namespaces, without those of which it says
// nothing, and why it does not.
func (m *meter) ask(ctx context.Context, guests map[string][]*corev1.Pod) (map[string]map[string]*podMetrics, error) {
	namespaces := slices.Sorted(maps.Keys(guests))
	answers, errs := make([]map[string]*podMetrics, len(namespaces)), make([]error, len(namespaces))
	var group errgroup.Group
	group.SetLimit(atOnce)
	for i, namespace := range namespaces {
		group.Go(func() error {
			var list podMetricsList
			errs[i] = m.client.Get(ctx, "/apis/metrics.k8s.io/v1beta1/namespaces/"+namespace+"/pods", &list)
			if errs[i] == nil {
				answers[i] = byName(list.Items)
			}
			return nil // the others are asked all the same
		})
	}
	_ = group.Wait() // there are no errors but errs
	said := make(map[string]map[string]*podMetrics)
	for i, namespace := range namespaces {
		if answers[i] != nil {
			said[namespace] = answers[i]
		}
	}
	// They are alike, mostly: one is enough.
	for _, err := range errs {
		if err != nil {
			return said, fmt.Errorf("%d of %d namespaces without metrics: %w", len(namespaces)-len(said), len(namespaces), err)
		}
	}
	return said, nil
}

func byName(pods podList) map[string]*podMetrics {
	out := make(map[string]*podMetrics, len(pods))
	for i := range pods {
		out[pods[i].Metadata.Name] = &pods[i]
	}
	return out
}

// measure takes in what a provider said.
func (m *meter) measure(guests map[string][]*corev1.Pod, said map[string]map[string]*podMetrics, whole bool, now time.Time) Report {
	r := Report{Node: m.name, Time: now, Whole: whole}
	before := m.containers
	m.containers = make(map[run]counter)
	var all sample
	for namespace, pods := range guests {
		for _, pod := range pods {
			runs := running(pod)
			for _, c := range runs {
				if counted, known := before[c]; known {
					m.containers[c] = counted
				}
			}
			samples := said[namespace][pod.Name].samples()
			if !complete(pod, samples) {
				continue
			}
			p := Pod{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID}
			if at := pod.Status.StartTime; at != nil {
				p.Started = at.Time
			}
			for _, c := range runs {
				s, known := samples[c.container]
				if !known {
					continue
				}
				counted := m.containers[c]
				counted.add(s.cores, now)
				m.containers[c] = counted
				p.Containers = append(p.Containers, Container{c.container, amount(counted, s)})
				all.cores += s.cores
				all.memory += s.memory
			}
			if p.Containers != nil {
				r.Pods = append(r.Pods, p)
			}
		}
	}
	slices.SortFunc(r.Pods, func(a, b Pod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	if whole {
		// A counter of its own: the sum of the others goes back when a pod ends.
		m.total.add(all.cores, now)
		r.Total = amount(m.total, all)
	}
	return r
}

// complete reports whether there is a sample of each container of a pod that runs. Half of
// a pod would look like one that uses half as much. Scrapers do not know init and ephemeral
// containers everywhere, so these may be left out.
func complete(pod *corev1.Pod, samples map[string]sample) bool {
	for i := range pod.Status.ContainerStatuses {
		s := &pod.Status.ContainerStatuses[i]
		if _, known := samples[s.Name]; s.State.Running != nil && !known {
			return false
		}
	}
	return true
}

func amount(c counter, s sample) Amount {
	return Amount{Since: c.since, Seconds: c.seconds, Cores: s.cores, Memory: s.memory}
}

// running returns the containers of a pod that run.
func running(pod *corev1.Pod) []run {
	var out []run
	for _, list := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses, pod.Status.EphemeralContainerStatuses} {
		for i := range list {
			if s := &list[i]; s.State.Running != nil {
				out = append(out, run{pod: pod.UID, container: s.Name, id: s.ContainerID, started: s.State.Running.StartedAt.UTC()})
			}
		}
	}
	return out
}
