package integration

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/agent/internal/attack"
	"liqo.io/agent/internal/bed"
	"liqo.io/agent/internal/bed/bedtest"
	"liqo.io/agent/sharing/spec"
)

// attackCopiedQuota: the quota in a guest namespace says whose that is, and nothing about
// another namespace that somebody copied it to.
func attackCopiedQuota(t *testing.T, k *bed.Kube) {
	root, barn := admin(t, k), consumer(12)
	r := startHost(t, k)
	r.Set(tenancy(barn, smallOffer()))
	shop := r.namespace(t, barn, "shop")
	const yard = "yard"
	must(t, root.Create(t.Context(), "/api/v1/namespaces", object{"metadata": object{"name": yard}}, nil))
	quota, err := get[object](t, k, namespaces+shop+"/resourcequotas/liqo-offer")
	if err != nil {
		t.Fatal(err)
	}
	must(t, root.Create(t.Context(), namespaces+yard+"/resourcequotas", object{
		"metadata": object{"name": "liqo-offer", "labels": pick(quota, "metadata", "labels"), "annotations": pick(quota, "metadata", "annotations")},
		"spec":     pick(quota, "spec"),
	}, nil))
	r.Set(spec.Tenant{ID: barn})
	bedtest.Within(t, "the consumer is gone", func() error {
		if stands := r.Set(spec.Tenant{ID: barn}); stands.Busy || stands.Pods > 0 {
			return fmt.Errorf("it stands %+v", stands)
		}
		return gone(t, k, namespaces+shop)
	})
	found, err := get[object](t, k, namespaces+yard)
	if err != nil {
		t.Fatal(err)
	}
	attack.Attempt{What: "copy the quota of a guest namespace to another one, and disconnect", As: "careless operator", Want: "whose: <nil>, deleted: <nil>"}.
		Saw(t, fmt.Sprintf("whose: %v, deleted: %v", pick(found, "metadata", "labels", "liqo.io/origin-cluster-id"), pick(found, "metadata", "deletionTimestamp")))
	must(t, root.Delete(t.Context(), namespaces+yard, metav1.DeleteOptions{}))
	awaitGone(t, k, namespaces+yard)
}
