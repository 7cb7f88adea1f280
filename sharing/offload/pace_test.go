package offload

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"liqo.io/agent/internal/attack"
)

// A pod whose copy changes all the time is written now and then, as it is then; that it
// ends is written at once.
func TestAttackFlappingPod(t *testing.T) {
	const changes = 500
	local := podHere("web")
	local.Spec.RestartPolicy = corev1.RestartPolicyNever
	as := func(i int, phase corev1.PodPhase) *corev1.Pod {
		c := copyThere(local, fmt.Sprint(i+2), phase)
		ready := corev1.ConditionFalse
		if i%2 == 1 {
			ready = corev1.ConditionTrue
		}
		c.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}
		c.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", Ready: i%2 == 1, RestartCount: int32(i), State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
		return c
	}
	end := make(chan struct{})
	begun := time.Now()
	n := between(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("watch") == "" || r.URL.Query().Get("sendInitialEvents") != "" || !strings.HasSuffix(r.URL.Path, "/pods") {
			var items []any
			if strings.HasSuffix(r.URL.Path, "/pods") {
				items = append(items, as(0, corev1.PodRunning))
			}
			listOrHang(w, r, items)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		for i := 1; i < changes; i++ {
			fmt.Fprint(w, eventLine("MODIFIED", as(i, corev1.PodRunning)))
			w.(http.Flusher).Flush()
		}
		select {
		case <-end:
			fmt.Fprint(w, eventLine("MODIFIED", as(changes, corev1.PodRunning)))
			fmt.Fprint(w, eventLine("MODIFIED", as(changes+1, corev1.PodSucceeded)))
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		case <-r.Context().Done():
		}
	}, local)
	await := func(what, word string) []string {
		t.Helper()
		for deadline := time.After(hang); ; {
			all := n.local.statuses("web")
			if len(all) > 0 && strings.Contains(all[len(all)-1], word) {
				return all
			}
			select {
			case <-n.local.wrote:
			case <-deadline:
				t.Fatalf("%s is not written; last is %s", what, all[max(0, len(all)-1):])
			}
		}
	}
	written := await("the last state", fmt.Sprintf(`"restartCount":%d`, changes-1))
	if last := written[len(written)-1]; !strings.Contains(last, `"ready":true`) {
		t.Errorf("it is ready, and what is written last is %s", last)
	}
	most := podBurst + 1 + int(time.Since(begun).Seconds()*podRate)
	got := "its pause is kept"
	if len(written) > most {
		got = fmt.Sprintf("%d writes", len(written))
	}
	attack.Attempt{What: "change the state of a pod five hundred times", As: "provider", Want: "its pause is kept"}.Saw(t, got)

	close(end)
	await("the end", `"phase":"Succeeded"`)
}

// All pods of a provider together have a budget; ends do not wait for it.
func TestAttackFlappingPods(t *testing.T) {
	p := newPace()
	now := time.Now()
	running, succeeded := &corev1.PodStatus{Phase: corev1.PodRunning}, &corev1.PodStatus{Phase: corev1.PodSucceeded}
	const pods, minutes = 200, 5
	total := 0
	for second := range minutes * 60 {
		for i := range pods {
			for p.wait(key{aPod, "shop", fmt.Sprint(i)}, running, running, now) == 0 {
				total++
			}
		}
		if wait := p.wait(key{aPod, "shop", fmt.Sprint("ends", second)}, running, succeeded, now); wait != 0 {
			t.Fatalf("an end waits for %s", wait)
		}
		now = now.Add(time.Second)
	}
	got := "its budget is kept"
	if most := writeBurst + writeRate*minutes*60; total > most || total < most/2 {
		got = fmt.Sprintf("%d writes", total)
	}
	attack.Attempt{What: "change the state of 200 pods all the time", As: "provider", Want: "its budget is kept"}.Saw(t, got)
	now = now.Add(10 * time.Second)
	if p.wait(key{aPod, "shop", "ends0"}, running, running, now) != 0 {
		t.Error("the budget does not fill again")
	}
}
