package integration

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/agent/internal/bed"
	"liqo.io/agent/internal/bed/bedtest"
	"liqo.io/agent/kube"
	"liqo.io/agent/peer"
	"liqo.io/agent/sharing/host"
	"liqo.io/agent/sharing/spec"
)

// bound makes a pod that is bound to a node, of which nobody says that it ended.
func bound(t *testing.T, root *kube.Client, id peer.ClusterID, namespace, name string, grace int) {
	t.Helper()
	p := hostPod(namespace, name, object{"cpu": "10m", "memory": "1Mi"})
	p["metadata"].(object)["labels"] = object{"liqo.io/origin-cluster-id": string(id)}
	p["spec"].(object)["terminationGracePeriodSeconds"] = grace
	p["spec"].(object)["nodeName"] = hostNode
	must(t, root.Create(t.Context(), namespaces+namespace+"/pods", p, nil))
}

// testEviction has everything of a consumer go, with the agent stopped in between.
func testEviction(t *testing.T, k *bed.Kube) {
	root, barn, cellar := admin(t, k), consumer(5), consumer(6)
	r := newHost()
	if stands := r.Set(spec.Tenant{ID: barn}); !stands.Busy {
		t.Errorf("without a connection it stands %+v", stands)
	}
	r.Set(tenancy(barn, smallOffer()))
	r.Set(tenancy(cellar, smallOffer()))
	if err := refusedWith(second(r.Namespace(t.Context(), barn, "shop")), host.ReasonNotReady); err != nil {
		t.Error(err)
	}
	r.connect(t, k)
	var mine []string
	for _, origin := range []string{"one", "two", "three"} {
		mine = append(mine, r.namespace(t, barn, origin))
	}
	other := r.namespace(t, cellar, "one")
	must(t, root.Create(t.Context(), namespaces+mine[0]+"/secrets", object{"apiVersion": "v1", "kind": "Secret", "metadata": object{"name": "web"}}, nil))
	bound(t, root, barn, mine[0], "quick", 2)
	bound(t, root, barn, mine[0], "slow", 86400)
	bound(t, root, barn, mine[1], "slower", 864000)
	must(t, root.Delete(t.Context(), namespaces+mine[1]+"/pods/slower", metav1.DeleteOptions{}))
	bound(t, root, cellar, other, "theirs", 86400)
	bedtest.Within(t, "the pods are counted", func() error {
		if stands := r.Set(tenancy(barn, smallOffer())); stands.Pods != 3 || stands.Namespaces != 3 || stands.Used["cpu"] != "30m" || stands.Used["pods"] != "3" {
			return fmt.Errorf("it stands %+v", stands)
		}
		return nil
	})
	r.stop()

	// The agent is started again, and nobody has said yet who may stay.
	r = startHost(t, k)
	r.awaitConsumers(t, barn, cellar)
	bedtest.Within(t, "that is told", func() error {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.changed[barn] == 0 || r.changed[cellar] == 0 {
			return fmt.Errorf("told of %v", r.changed)
		}
		return nil
	})
	r.Set(tenancy(cellar, smallOffer()))
	if writes := r.taken(barn, cellar); len(writes) > 0 {
		t.Errorf("written although nobody said anything: %q", writes)
	}
	began := time.Now()
	if stands := r.Set(spec.Tenant{ID: barn}); !stands.Busy || stands.Namespaces != 3 {
		t.Errorf("it stands %+v", stands)
	}
	if r.Owns(barn, mine[0]) == nil {
		t.Error("it still owns a namespace")
	}
	if err := refusedWith(second(r.Namespace(t.Context(), barn, "one")), host.ReasonNotAdmitted); err != nil {
		t.Error(err)
	}
	me := asConsumer(t, k, barn)
	bedtest.Within(t, "the rights end", func() error {
		for _, namespace := range mine {
			if err := me.Get(t.Context(), namespaces+namespace+"/pods", nil); !apierrors.IsForbidden(err) {
				return fmt.Errorf("pods of %s: %w", namespace, orNil(err))
			}
		}
		return nil
	})
	t.Logf("the rights ended after %v", time.Since(began))
	// They did not just go with the namespaces.
	rights := make(map[string]bool) // which were deleted; again, where that failed at first
	for i, write := range r.taken(barn, cellar) {
		if at, ok := strings.CutPrefix(write, "DELETE "+rbac); ok && slices.ContainsFunc(mine, func(namespace string) bool { return at == namespace+"/rolebindings/"+host.RoleName }) {
			rights[at] = true
		} else if len(rights) < len(mine) || strings.Contains(write, "/rolebindings/") {
			t.Errorf("write %d is %s", i, write)
		}
	}
	bedtest.Within(t, "pods get no more time than any", func() error {
		for _, at := range []string{mine[0] + "/pods/quick", mine[0] + "/pods/slow", mine[1] + "/pods/slower"} {
			found, err := get[object](t, k, namespaces+at)
			if err != nil {
				return err
			}
			if grace, _ := pick(found, "metadata", "deletionGracePeriodSeconds").(float64); grace > 30 || pick(found, "metadata", "deletionTimestamp") == nil {
				return fmt.Errorf("%s has %v", at, found["metadata"])
			}
		}
		return nil
	})
	// It is stopped in between, and goes on.
	r.stop()
	r = startHost(t, k)
	r.Set(tenancy(cellar, smallOffer()))
	r.Set(spec.Tenant{ID: barn})
	r.awaitConsumers(t, barn, cellar)
	bedtest.Within(t, "it has begun", func() error {
		if len(r.log.Lines(slog.LevelInfo)) == 0 {
			return fmt.Errorf("nothing was logged")
		}
		return nil
	})
	// The node never answers.
	r.jump(2 * time.Minute)
	r.set(func(s *host.Settings) { s.MaxNamespaces++ }) // has it look again
	r.Set(spec.Tenant{ID: barn})
	bedtest.Within(t, "everything is gone", func() error {
		if stands := r.Set(spec.Tenant{ID: barn}); stands.Busy || stands.Namespaces > 0 || stands.Pods > 0 {
			return fmt.Errorf("it stands %+v", stands)
		}
		for _, namespace := range mine {
			if err := gone(t, k, namespaces+namespace); err != nil {
				return err
			}
		}
		return nil
	})
	bedtest.Within(t, "that is told too", func() error {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.changed[barn] == 0 {
			return fmt.Errorf("told of %v", r.changed)
		}
		return nil
	})
	t.Logf("everything was gone after %v", time.Since(began))
	found, err := get[object](t, k, namespaces+other+"/pods/theirs")
	if err != nil || pick(found, "metadata", "deletionTimestamp") != nil {
		t.Errorf("another's pod: %v, %v", found["metadata"], err)
	}
	r.stop()
	if stands := r.Set(tenancy(cellar, smallOffer())); !stands.Busy || stands.Namespaces != 1 {
		t.Errorf("without a connection another stands %+v", stands)
	}
	if err := refusedWith(second(r.Namespace(t.Context(), cellar, "one")), host.ReasonNotReady); err != nil {
		t.Error(err)
	}
}
