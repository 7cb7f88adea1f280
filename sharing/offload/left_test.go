package offload

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"liqo.io/agent/internal/bed/bedtest"
	"liqo.io/agent/sharing/workload"
)

// TestProviderThatLeft: of a provider that is not there any more, nobody can say what became
// of a pod that an earlier agent may have sent. One that came later was never sent, and ends;
// and all of them end once the provider says that nothing is left.
func TestProviderThatLeft(t *testing.T) {
	ending := func(name string) *corev1.Pod {
		pod, grace := podHere(name), int64(30)
		pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = timeAt(time.Now()), &grace
		return pod
	}
	refused := errors.New("connection refused")
	local := &localServer{namespaces: []string{"shop"}, record: "guest-shop", pods: []*corev1.Pod{ending("earlier")}, later: make(chan *corev1.Pod)}
	n := join(t, local, &far{away: refused}, func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "away", http.StatusBadGateway) })
	deleted := func(want ...string) {
		t.Helper()
		for deadline := time.After(hang); !slices.Equal(local.deletions(), want); {
			select {
			case <-local.wrote:
			case <-deadline:
				t.Fatalf("deleted are %v, want %v", local.deletions(), want)
			}
		}
	}
	local.later <- ending("later")
	deleted("later")
	p := n.provider()
	p.Reachable, p.Expelled = false, true
	n.Set(p)
	deleted("earlier", "later")
}

// TestProviderThatChangedItsMind: pods at a provider that admits this cluster again, before it removed any, end there first as ever.
func TestProviderThatChangedItsMind(t *testing.T) {
	pod := podHere("web")
	n := between(t, listsCopy(pod), pod)
	pc, _ := n.opened(t)
	for _, expelled := range []bool{true, false} {
		p := n.provider()
		p.Reachable, p.Expelled = !expelled, expelled
		n.Set(p)
		bedtest.Within(t, "the provider's word", func() error {
			if v, _ := pc.observe(podKey(pod)); v.reachable == expelled || v.expelled != expelled {
				return fmt.Errorf("it admits this cluster: %t; pods end at once: %t", v.reachable, v.expelled)
			}
			return nil
		})
	}
}

// TestRefusalOfANamespaceEnds: why there was no namespace for pods that are gone is nothing for one that comes later.
func TestRefusalOfANamespaceEnds(t *testing.T) {
	n := between(t, func(w http.ResponseWriter, r *http.Request) { listOrHang(w, r, nil) })
	bedtest.Within(t, "a controller", func() error {
		if len(n.controllers()) == 0 {
			return errors.New("there is none")
		}
		return nil
	})
	pc := n.controllers()[0]
	pc.mu.Lock()
	pc.denied["shop"] = &workload.Refusal{Reason: workload.ReasonRefusedByProvider}
	pc.mu.Unlock()
	if _, err := pc.reconcileNamespace(t.Context(), "shop"); err != nil {
		t.Fatal(err)
	}
	pc.mu.Lock()
	defer pc.mu.Unlock()
	if len(pc.denied) > 0 {
		t.Errorf("it is remembered: %v", pc.denied)
	}
}
