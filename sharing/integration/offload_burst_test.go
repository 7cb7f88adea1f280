package integration

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"liqo.io/agent/internal/bed/bedtest"
	"liqo.io/agent/kube"
	"liqo.io/agent/sharing/workload"
)

// burst creates many pods at once and restarts the agent in the middle.
func burst(p *pair) {
	const many = 30
	t, ctx := p.t, p.t.Context()
	ns, guest := "crowd", guestNamespace("crowd")
	agent := p.run()

	// Which copies there were of each pod, as a watch tells.
	var mu sync.Mutex
	copies := map[string]map[types.UID]bool{}
	beyond := kube.NewCache(kube.Kind[*corev1.Pod]{Fresh: func() *corev1.Pod { return &corev1.Pod{} }, Changed: func(_, pod *corev1.Pod) {
		if pod == nil || pod.Namespace != guest {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		if copies[pod.Name] == nil {
			copies[pod.Name] = map[types.UID]bool{}
		}
		copies[pod.Name][pod.UID] = true
	}})
	watching, cancel := context.WithCancel(ctx)
	var group sync.WaitGroup
	group.Go(func() { beyond.Follow(watching, p.b, kube.Query{Path: "/api/v1/pods"}) })
	defer group.Wait()
	defer cancel()
	<-beyond.Synced()

	began := time.Now()
	var creators sync.WaitGroup
	for w := range 10 {
		creators.Go(func() {
			for i := w; i < many; i += 10 {
				if err := p.a.Create(ctx, "/api/v1/namespaces/"+ns+"/pods", virtualPod(ns, fmt.Sprintf("burst-%d", i)), nil); err != nil {
					t.Error(err)
				}
			}
		})
	}
	bedtest.Within(t, "a third of the copies", func() error {
		mu.Lock()
		defer mu.Unlock()
		if n := len(copies); n < many/3 {
			return fmt.Errorf("%d", n)
		}
		return nil
	})
	agent.stop()
	agent = p.run()
	creators.Wait()
	bedtest.Within(t, "all pods to run", func() error {
		if c := agent.Count(providerID); c.Running != many || c.Bound != many {
			return fmt.Errorf("%+v", c)
		}
		return nil
	})
	t.Logf("%d pods with a restart in between: all run after %v", many, time.Since(began).Round(time.Millisecond))
	if there := len(p.list(p.b, guest)); there != many {
		t.Errorf("%d pods there, want %d", there, many)
	}
	mu.Lock()
	for name, uids := range copies {
		if len(uids) != 1 {
			t.Errorf("pod %s had %d copies", name, len(uids))
		}
	}
	mu.Unlock()

	began = time.Now()
	// A busy API server needs longer for all of them than a request may take.
	bedtest.Within(t, "the pods to be deleted", func() error {
		return p.a.Delete(ctx, "/api/v1/namespaces/"+ns+"/pods", metav1.DeleteOptions{})
	})
	bedtest.Within(t, "the end of the pods", func() error {
		if c := agent.Count(providerID); c.Bound > 0 {
			return fmt.Errorf("%+v", c)
		}
		if a, b := p.list(p.a, ns), p.list(p.b, guest); len(a)+len(b) > 0 {
			return fmt.Errorf("%d here and %d there are left", len(a), len(b))
		}
		return nil
	})
	t.Logf("%d pods deleted after %v", many, time.Since(began).Round(time.Millisecond))
}

// leftovers is about what a pod left at the provider that was removed here while no
// agent ran.
func leftovers(p *pair) {
	t, ctx := p.t, p.t.Context()
	ns, guest := "past", guestNamespace("past")
	a := p.run()
	p.create(virtualPod(ns, "old"))
	stays := p.create(virtualPod(ns, "stays"))
	await(t, p.a, ns, "old", phase(corev1.PodRunning))
	await(t, p.a, ns, "stays", phase(corev1.PodRunning))
	staysThere := await(t, p.b, guest, "stays", there)
	ghost := p.sub(t, "ghost") // of which nothing but the namespace is left
	ghost.create(virtualPod("ghost", "alone"))
	await(t, p.a, "ghost", "alone", phase(corev1.PodRunning))
	a.stop()
	ghost.remove("ghost", "alone")
	p.remove(ns, "old")
	p.remove(ns, "stays")
	fresh := p.create(virtualPod(ns, "stays")) // the same name
	p.run()
	awaitGone(t, p.kubeB, podPath(guest, "old"))
	awaitGone(t, p.kubeB, podPath(guestNamespace("ghost"), "alone"))
	theirs := await(t, p.b, guest, "stays", func(pod *corev1.Pod) error {
		if pod.UID == staysThere.UID {
			return errors.New("it is that of the earlier pod")
		}
		return nil
	})
	if theirs.Annotations[workload.AnnotationOriginUID] != string(fresh.UID) || fresh.UID == stays.UID {
		t.Errorf("the copy stands for %s, want %s", theirs.Annotations[workload.AnnotationOriginUID], fresh.UID)
	}
	// What the provider removes altogether is made anew, and its pods have failed.
	p.must(p.b.Delete(ctx, "/api/v1/namespaces/"+guest, metav1.DeleteOptions{}))
	await(t, p.a, ns, "stays", phase(corev1.PodFailed))
	p.remove(ns, "stays")
	// Where the namespace was nothing is allowed any more, and nothing is there that could tell why.
	awaitGone(t, p.kubeB, "/api/v1/namespaces/"+guest)
	p.create(virtualPod(ns, "next"))
	await(t, p.a, ns, "next", phase(corev1.PodRunning))
}

// away is about a provider that cannot be reached for a while. That of TestSharingSurvives has its API server stopped.
func away(p *pair) {
	t, ctx := p.t, p.t.Context()
	a := p.run()
	ns, guest := "island", guestNamespace("island")
	for _, name := range []string{"stays", "goes"} {
		p.create(virtualPod(ns, name))
		await(t, p.a, ns, name, phase(corev1.PodRunning))
	}
	before := await(t, p.b, guest, "stays", there)
	p.remote.cable.Load().cut()
	off := p.provider()
	off.Reachable = false
	a.Set(off)
	p.must(p.a.Delete(ctx, podPath(ns, "goes"), metav1.DeleteOptions{}))
	p.create(virtualPod(ns, "comes"))
	// As the node lifecycle controller does.
	notReady := []byte(`{"status":{"conditions":[{"type":"Ready","status":"False"}]}}`)
	p.must(p.a.Patch(ctx, podPath(ns, "stays")+"/status", "", types.StrategicMergePatchType, notReady, nil))
	bedtest.Within(t, "the agent to know of that", func() error {
		if c := a.Count(providerID); c.Ending != 1 || c.Pending != 1 {
			return fmt.Errorf("%+v", c)
		}
		return nil
	})
	if mine := await(t, p.a, ns, "goes", there); mine.DeletionTimestamp == nil {
		t.Error("the pod that was deleted while the provider was away is not being deleted")
	}
	p.remote.mend()
	a.Set(p.provider())
	awaitGone(t, p.kubeA, podPath(ns, "goes"))
	awaitGone(t, p.kubeB, podPath(guest, "goes"))
	await(t, p.a, ns, "comes", phase(corev1.PodRunning))
	await(t, p.a, ns, "stays", func(pod *corev1.Pod) error {
		for _, c := range pod.Status.Conditions {
			if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
				return nil
			}
		}
		return errors.New("it is not ready")
	})
	if after := await(t, p.b, guest, "stays", there); after.UID != before.UID {
		t.Error("the pod that stayed was made anew")
	}
	// Given up, nobody there is asked.
	off.Gone = true
	p.remote.cable.Load().cut()
	defer p.remote.mend()
	a.Set(off)
	p.must(p.a.Delete(ctx, podPath(ns, "stays"), metav1.DeleteOptions{}))
	awaitGone(t, p.kubeA, podPath(ns, "stays"))
}
