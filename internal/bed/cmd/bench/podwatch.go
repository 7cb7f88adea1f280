//go:build linux

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"liqo.io/agent/internal/bed"
	"liqo.io/agent/sharing/workload"
)

// sighting is when something was first seen of one pod. All API servers are looked
// at by this process, so that there is one clock; what objects say of themselves has
// seconds only. Zero is never.
type sighting struct {
	name, namespace, uid string
	origin               string // UID of the pod that it stands for
	created              time.Time
	bound                time.Time // to a node
	ready                time.Time
	gone                 time.Time
	said                 map[string]time.Time // the messages of its status
}

// podWatch sees all pods of an API server from when it is made, those included that
// are gone.
type podWatch struct {
	version string // up to which events came; of the goroutine that takes them

	mu    sync.Mutex
	pods  map[string]sighting // by UID
	ended error
}

// watchPods follows the pods that a query selects until the scenario is over.
func (r *scenarioRun) watchPods(k *bed.Kube, query string) *podWatch {
	client, err := rest.HTTPClientFor(k.RESTConfig())
	if err != nil {
		r.Fatalf("%v", err)
	}
	base := k.RESTConfig().Host + "/api/v1/pods?watch=true&allowWatchBookmarks=true&timeoutSeconds=3600&" + query + "&resourceVersion="
	w := &podWatch{pods: make(map[string]sighting), version: "0"}
	open := func() (*json.Decoder, io.Closer, error) {
		request, err := http.NewRequestWithContext(r.Context(), "GET", base+w.version, nil)
		if err != nil {
			return nil, nil, err
		}
		answer, err := client.Do(request)
		if err != nil {
			return nil, nil, err
		}
		if answer.StatusCode != http.StatusOK {
			answer.Body.Close()
			return nil, nil, errors.New(answer.Status)
		}
		return json.NewDecoder(answer.Body), answer.Body, nil
	}
	events, body, err := open()
	if err != nil {
		r.Fatalf("%s: watching pods: %v", k.Host.Name, err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			err := w.follow(events)
			body.Close()
			// An API server ends a watch when it likes: it goes on from there.
			if errors.Is(err, io.EOF) {
				events, body, err = open()
			}
			if err != nil {
				w.end(fmt.Errorf("%s: watching pods: %w", k.Host.Name, err))
				return
			}
		}
	}()
	// The context of the scenario has ended by then.
	r.Cleanup(func() { <-done })
	return w
}

// follow takes in events until they end.
func (w *podWatch) follow(events *json.Decoder) error {
	for {
		var event struct {
			Type   string
			Object corev1.Pod
		}
		if err := events.Decode(&event); err != nil {
			return err
		}
		if event.Type == "ERROR" {
			return errors.New("the API server does not go on")
		}
		w.version = event.Object.ResourceVersion
		if event.Type != "BOOKMARK" {
			w.take(event.Type == "DELETED", &event.Object)
		}
	}
}

func (w *podWatch) end(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = err
}

func (w *podWatch) take(deleted bool, pod *corev1.Pod) {
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	uid := string(pod.UID)
	s, known := w.pods[uid]
	if !known {
		s = sighting{name: pod.Name, namespace: pod.Namespace, uid: uid, origin: pod.Annotations[workload.AnnotationOriginUID],
			created: now, said: make(map[string]time.Time)}
	}
	if s.bound.IsZero() && pod.Spec.NodeName != "" {
		s.bound = now
	}
	for _, c := range pod.Status.Conditions {
		if s.ready.IsZero() && c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue && pod.Status.Phase == corev1.PodRunning {
			s.ready = now
		}
	}
	if _, ok := s.said[pod.Status.Message]; !ok {
		s.said[pod.Status.Message] = now
	}
	if deleted {
		s.gone = now
	}
	w.pods[uid] = s
}

// pick returns what was seen of the pods that match, in the order in which they
// came.
func (w *podWatch) pick(match func(sighting) bool) ([]sighting, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []sighting
	for _, s := range w.pods {
		if match(s) {
			s.said = maps.Clone(s.said)
			out = append(out, s)
		}
	}
	slices.SortFunc(out, func(a, b sighting) int { return a.created.Compare(b.created) })
	return out, w.ended
}

// await waits until exactly so many pods match and returns them.
func (w *podWatch) await(r *scenarioRun, d time.Duration, what string, want int, match func(sighting) bool) []sighting {
	r.await(d, what, func() error {
		w.mu.Lock()
		defer w.mu.Unlock()
		n := 0
		for _, s := range w.pods {
			if match(s) {
				n++
			}
		}
		if w.ended == nil && n != want {
			return fmt.Errorf("%d of %d", n, want)
		}
		return w.ended
	})
	out, err := w.pick(match)
	if err != nil {
		r.Fatalf("%v", err)
	}
	return out
}

// awaitUID waits until one pod is as wanted.
func (w *podWatch) awaitUID(r *scenarioRun, what, uid string, want func(sighting) bool) sighting {
	return w.await(r, time.Minute, what, 1, func(s sighting) bool { return s.uid == uid && want(s) })[0]
}

// byOrigin returns what was seen of the pods that stand for others, by the UIDs of
// those.
func (w *podWatch) byOrigin(r *scenarioRun) map[string][]sighting {
	all, err := w.pick(func(sighting) bool { return true })
	if err != nil {
		r.Fatalf("%v", err)
	}
	out := make(map[string][]sighting)
	for _, s := range all {
		out[s.origin] = append(out[s.origin], s)
	}
	return out
}

func isReady(s sighting) bool { return !s.ready.IsZero() && s.gone.IsZero() }
func isThere(s sighting) bool { return s.gone.IsZero() }
