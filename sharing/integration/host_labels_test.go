package integration

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"liqo.io/agent/internal/attack"
	"liqo.io/agent/internal/bed"
	"liqo.io/agent/internal/bed/bedtest"
	"liqo.io/agent/sharing/spec"
)

// attackLostLabels: somebody takes the labels from a guest namespace, by which everything
// finds it. It has them back while its consumer is admitted, and goes with it else, also
// when the agent did not run meanwhile.
func attackLostLabels(t *testing.T, k *bed.Kube) {
	root, barn := admin(t, k), consumer(11)
	r := startHost(t, k)
	r.Set(tenancy(barn, smallOffer()))
	shop := r.namespace(t, barn, "shop")
	strip := func() {
		t.Helper()
		must(t, root.Patch(t.Context(), namespaces+shop, "", types.MergePatchType,
			[]byte(`{"metadata":{"labels":{"liqo.io/origin-cluster-id":null,"liqo.io/origin-namespace":null,"app.kubernetes.io/managed-by":null}}}`), nil))
	}
	labelled := func() error {
		found, err := get[object](t, k, namespaces+shop)
		if err != nil {
			return err
		}
		if id, origin := pick(found, "metadata", "labels", "liqo.io/origin-cluster-id"), pick(found, "metadata", "labels", "liqo.io/origin-namespace"); id != string(barn) || origin != "shop" {
			return fmt.Errorf("its labels are %v", pick(found, "metadata", "labels"))
		}
		if r.Owns(barn, shop) != nil {
			return fmt.Errorf("it is not the consumer's yet")
		}
		return nil
	}
	strip()
	bedtest.Within(t, "the labels come back", labelled)
	must(t, root.Patch(t.Context(), namespaces+shop, "", types.MergePatchType, []byte(`{"metadata":{"labels":{"liqo.io/origin-namespace":null}}}`), nil))
	bedtest.Within(t, "the label comes back", labelled)
	if name := r.namespace(t, barn, "shop"); name != shop {
		t.Errorf("there is another namespace, %s", name)
	}
	got := "they are back"
	if err := labelled(); err != nil {
		got = err.Error()
	}
	attack.Attempt{What: "take the labels from a guest namespace", As: "careless operator", Want: "they are back"}.Saw(t, got)

	bound(t, root, barn, shop, "web", 0)
	r.stop()
	strip()
	r = startHost(t, k)
	bedtest.Within(t, "it is known who is here", func() error {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.changed[barn] == 0 {
			return fmt.Errorf("told of %v", r.changed)
		}
		return nil
	})
	r.Set(spec.Tenant{ID: barn})
	bedtest.Within(t, "it is gone", func() error {
		if err := endPod(t.Context(), root, podPath(shop, "web")); err != nil {
			return err
		}
		if stands := r.Set(spec.Tenant{ID: barn}); stands.Busy || stands.Pods > 0 {
			return fmt.Errorf("it stands %+v", stands)
		}
		return gone(t, k, namespaces+shop)
	})
	got = "it goes, with its pods"
	for _, path := range []string{namespaces + shop + "/pods/web", namespaces + shop} {
		if err := gone(t, k, path); err != nil {
			got = err.Error()
		}
	}
	attack.Attempt{What: "take the labels from a guest namespace while the agent is stopped, and disconnect", As: "careless operator", Want: "it goes, with its pods"}.
		Saw(t, got)
}
