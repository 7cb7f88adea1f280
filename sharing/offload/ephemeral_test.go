package offload

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"liqo.io/agent/sharing/workload"
)

// debugs adds ephemeral containers to a pod, as kubectl debug does.
func debugs(pod *corev1.Pod, names ...string) *corev1.Pod {
	for _, name := range names {
		pod.Spec.EphemeralContainers = append(pod.Spec.EphemeralContainers, corev1.EphemeralContainer{
			EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: name, Image: "registry/" + name},
		})
	}
	return pod
}

func TestPlanEphemeralContainers(t *testing.T) {
	mine := debugs(local(started), "one", "two")
	theirs := remote(local(), "copy-1", started)
	v := view{local: mine, remote: theirs, known: true, reachable: true, ready: true, origin: here, now: moment}
	next := func() string {
		t.Helper()
		s := plan(v)
		if s.verb == extend && !strings.Contains(string(s.patch), s.container) {
			t.Errorf("%s is added by %s", s.container, s.patch)
		}
		if s.status != nil {
			v.local.Status = *s.status
		}
		return string(s.verb) + " " + s.container
	}
	if got := next(); got != "extend one" {
		t.Errorf("first: %s", got)
	}
	v.state.extended = v.remote.ResourceVersion + string(plan(v).patch)
	if got := next(); got != " " {
		t.Errorf("before the answer is seen: %s", got)
	}
	v.remote = debugs(theirs.DeepCopy(), "one")
	v.remote.ResourceVersion = "8"
	if got := next(); got != "extend two" {
		t.Errorf("then: %s", got)
	}
	v.state.debug = map[string]*workload.Refusal{"two": {Reason: workload.ReasonRefusedByProvider, Message: "no"}}
	if got := next(); got != " " {
		t.Errorf("refused: %s", got)
	}
	if s := v.local.Status.EphemeralContainerStatuses; len(s) != 2 || s[0].State.Waiting == nil || s[1].State.Terminated == nil {
		t.Errorf("shown as %+v", s)
	}
	v.state.debug = nil // after a restart
	if got := next(); got != " " {
		t.Errorf("refused earlier: %s", got)
	}
}

// A provider that takes some ephemeral containers and refuses others is asked once for each, and
// what it refuses is told.
func TestEphemeralContainers(t *testing.T) {
	mine := debugs(podHere("web"), "bad-1", "bad-2", "good")
	mine.Status.Phase = corev1.PodRunning
	var mu sync.Mutex
	asked := make(map[string]int)
	n := between(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/pods"):
			listOrHang(w, r, []any{copyThere(podHere("web"), "1", corev1.PodRunning)})
		case r.Method == http.MethodGet:
			listOrHang(w, r, nil)
		case strings.HasSuffix(r.URL.Path, "/guest-shop/pods/web/ephemeralcontainers") && r.Method == http.MethodPatch:
			body, _ := io.ReadAll(r.Body)
			mu.Lock()
			defer mu.Unlock()
			for _, name := range []string{"bad-1", "good", "bad-2"} {
				if strings.Contains(string(body), `"`+name+`"`) {
					asked[name]++
				}
			}
			if strings.Contains(string(body), "bad-") {
				w.WriteHeader(http.StatusForbidden)
				fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,"message":"not from there"}`)
				return
			}
			fmt.Fprint(w, `{}`)
		default:
			fmt.Fprint(w, `{}`)
		}
	}, mine)
	told := func() (events, states int) {
		n.local.mu.Lock()
		defer n.local.mu.Unlock()
		for _, w := range n.local.writes {
			if strings.HasSuffix(w.path, "/events") && strings.Contains(w.body, "not from there") && strings.Contains(w.body, "RefusedByProvider") {
				events++
			}
		}
		for _, s := range n.local.pods[0].Status.EphemeralContainerStatuses {
			if s.State.Terminated != nil && strings.Contains(s.State.Terminated.Message, "not from there") {
				states++
			}
		}
		return events, states
	}
	for end := time.After(hang); ; {
		mu.Lock()
		good := asked["good"]
		mu.Unlock()
		if events, states := told(); events == 2 && states == 2 && good > 0 {
			break
		}
		select {
		case <-n.local.wrote:
		case <-time.After(10 * time.Millisecond): // the request for good writes nothing here
		case <-end:
			events, states := told()
			t.Fatalf("%d events and %d states tell of two refusals; asked %v", events, states, asked)
		}
	}
	for range 3 { // whatever happens, nothing is asked again
		for _, pc := range n.controllers() {
			pc.enqueueAll()
		}
		n.idle(t)
	}
	mu.Lock()
	defer mu.Unlock()
	if asked["bad-1"] != 1 || asked["bad-2"] != 1 || asked["good"] != 1 {
		t.Errorf("asked %v", asked)
	}
}

// idle waits until nothing is left in the queues.
func (n *neighbours) idle(t *testing.T) {
	t.Helper()
	for end := time.Now().Add(hang); ; time.Sleep(10 * time.Millisecond) {
		busy := 0
		for _, pc := range n.controllers() {
			busy += pc.queue.Len()
		}
		if busy == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d are queued", busy)
		}
	}
}
