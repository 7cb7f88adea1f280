//go:build linux

package liqotest

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"liqo.io/agent/internal/bed"
	"liqo.io/agent/internal/bed/bedtest"
)

// A provider that ends a peering by itself takes the consumer the rights by which Liqo there would part. The consumer's Liqo gets
// over it when it connects anew.
func TestProviderEndsFirst(t *testing.T) {
	consumer, provider := start(t)
	peer(consumer, provider, map[string]string{"cpu": "1"})
	here, there := tenantNamespace(provider), tenantNamespace(consumer)
	slice := path(authentication, here, "resourceslices", provider.ID)
	controlPlane := path(authentication, here, "identities", identityName(provider))

	provider.delete(path(authentication, there, "tenants", consumer.ID))
	provider.gone(path(authentication, there, "tenants", consumer.ID))
	provider.gone(path("rbac.authorization.k8s.io/v1", there, "rolebindings", "liqo-binding-liqo-remote-controlplane"))
	consumer.delete(slice)
	bedtest.Within(t, "the replicator is refused", func() error {
		if n := strings.Count(consumer.Process(bed.LiqoReplicator).Log(), "Failed to delete remote authentication.liqo.io/v1beta1, Resource=resourceslices"); n < 3 {
			return fmt.Errorf("it has tried %d times", n)
		}
		return nil
	})
	if _, err := consumer.Kube.Request(t.Context(), http.MethodGet, slice, "", nil); err != nil {
		t.Errorf("the slice that cannot be deleted: %v", err)
	}

	// Another text of the same URL is enough: the new connection knows of nothing at the provider.
	consumer.patch(controlPlane, object{"spec": object{"authParams": object{"apiServer": "https://10.77.0.2:6443/"}}})
	consumer.gone(slice)
	consumer.gone(path(offloading, here, "virtualnodes", provider.ID))
	consumer.delete(controlPlane)
	consumer.gone(path("v1", here, "secrets", "kubeconfig-"+identityName(provider)))
	for _, s := range []struct{ here, there side }{{consumer, provider}, {provider, consumer}} {
		s.here.delete(path("v1", "", "namespaces", tenantNamespace(s.there)))
		s.here.gone(path("v1", "", "namespaces", tenantNamespace(s.there)))
		s.here.delete(path(core, "", "foreignclusters", s.there.ID))
		left(t, s.here, s.there, nil)
	}
}

// Documents wait for controllers that are not there, except those that the webhook has to see.
func TestControllersStartLater(t *testing.T) {
	consumer, provider := start(t)
	for _, s := range []side{consumer, provider} {
		for _, program := range []string{bed.LiqoControllerManager, bed.LiqoReplicator, bed.LiqoWebhook} {
			if err := s.Process(program).Kill(); err != nil {
				t.Fatal(err)
			}
		}
	}
	consumer.welcome(provider)
	provider.welcome(consumer)
	namespace := tenantNamespace(consumer)
	provider.apply("v1", "Secret", namespace, "liqo-nonce", object{"labels": object{remoteLabel: consumer.ID, "liqo.io/nonce": "true"}}, nil)
	err := provider.Kube.Apply(t.Context(), `{"apiVersion": "`+authentication+`", "kind": "Tenant",
		"metadata": {"name": "`+consumer.ID+`", "namespace": "`+namespace+`"}, "spec": {"clusterID": "`+consumer.ID+`"}}`)
	if err == nil || !strings.Contains(err.Error(), "failed calling webhook") {
		t.Errorf("a Tenant without the webhook: %v", err)
	}
	for _, s := range []side{consumer, provider} {
		if err := s.Start(t.Context(), bed.LiqoWebhook, bed.LiqoControllerManager, bed.LiqoReplicator); err != nil {
			t.Fatal(err)
		}
	}
	peer(consumer, provider, map[string]string{"cpu": "1"})
}
