//go:build linux

package liqotest

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"liqo.io/agent/internal/bed"
	"liqo.io/agent/internal/bed/bedtest"
)

func TestMain(m *testing.M) { bed.Main(m) }

// start makes two clusters with Liqo, which know nothing of each other.
func start(t *testing.T) (consumer, provider side) {
	if !bed.LiqoBuilt() {
		t.Skip("Liqo's programs are not there: make test-liqo builds them, and runs this")
	}
	b := bed.New(t)
	kubes := b.AddClusters(t.Context(),
		bed.HostSpec{Name: "consumer", Prefix: "10.77.0.1/24"}, bed.HostSpec{Name: "provider", Prefix: "10.77.0.2/24"})
	sides := make([]side, 2)
	errs := make([]error, 2)
	var group sync.WaitGroup
	for i, id := range []string{"rome-1", "milan-1"} {
		group.Go(func() {
			sides[i].t = t
			sides[i].Liqo, errs[i] = kubes[i].StartLiqo(t.Context(), id)
		})
	}
	group.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	return sides[0], sides[1]
}

// Two clusters peer without anybody holding the credentials of both, and part again without a trace.
func TestExchange(t *testing.T) {
	consumer, provider := start(t)
	took := peer(consumer, provider, map[string]string{"cpu": "2", "memory": "2Gi", "pods": "20"})
	t.Logf("from nothing to a virtual node: %.2f s", took.Seconds())

	here, there := tenantNamespace(provider), tenantNamespace(consumer)
	given := until(provider, path(authentication, there, "resourceslices", provider.ID), (*slice).accepted)
	if given.Spec.ConsumerClusterID != consumer.ID || given.Status.Resources["cpu"] != "2" {
		t.Errorf("the provider gives %+v", given)
	}
	node := until(consumer, path(offloading, here, "virtualnodes", provider.ID), func(o *virtualNode) error {
		if !slices.Contains(o.Status.Conditions, condition{"VirtualKubelet", "Running"}) {
			return fmt.Errorf("its conditions are %v", o.Status.Conditions)
		}
		return nil
	})
	if node.Spec.ClusterID != provider.ID || node.Spec.KubeconfigSecretRef.Name != "kubeconfig-resourceslice-"+provider.ID ||
		node.Spec.ResourceQuota.Hard["memory"] != "2Gi" || node.Metadata.Labels["liqo.io/resourceslice-name"] != provider.ID {
		t.Errorf("the virtual node is %+v", node)
	}
	until(consumer, path("apps/v1", here, "deployments", node.Spec.Template.Metadata.Name), func(o *struct{ Status struct{ ReadyReplicas int } }) error {
		if o.Status.ReadyReplicas != 1 {
			return fmt.Errorf("%d of its pods are ready", o.Status.ReadyReplicas)
		}
		return nil
	})
	consumer.sees(provider, role("Provider"))
	provider.sees(consumer, role("Consumer"))
	consumer.sees(provider, reached("Established"))
	seen := consumer.sees(provider, role("Provider")).Status
	if want := "https://10.77.0.2:6443"; seen.APIServerURL != want || seen.TenantNamespace.Local != here || seen.TenantNamespace.Remote != there {
		t.Errorf("the consumer's Liqo sees %+v", seen)
	}

	// liqoctl unpeer does this, in this order.
	consumer.delete(path(authentication, here, "resourceslices", provider.ID))
	consumer.gone(path(authentication, here, "resourceslices", provider.ID))
	provider.gone(path(authentication, there, "resourceslices", provider.ID))
	// It deletes the virtual node, too, which is the slice's.
	consumer.gone(path(offloading, here, "virtualnodes", provider.ID))
	consumer.delete(path(authentication, here, "identities", identityName(provider)))
	// Unlike liqoctl, which does not wait.
	consumer.gone(path("v1", here, "secrets", "kubeconfig-"+identityName(provider)))
	provider.delete(path(authentication, there, "tenants", consumer.ID))
	provider.gone(path(authentication, there, "tenants", consumer.ID))
	provider.sees(consumer, role("Unknown")) // The consumer's Liqo may go on to say Provider: it looked before the kubeconfig was gone.

	// What it leaves behind.
	left(t, consumer, provider, []string{
		"namespaces liqo-tenant-milan-1", "secrets liqo-tenant-milan-1/liqo-signed-nonce", "foreignclusters milan-1",
	})
	left(t, provider, consumer, []string{
		"namespaces liqo-tenant-rome-1", "secrets liqo-tenant-rome-1/liqo-nonce", "secrets liqo-tenant-rome-1/liqo-remote-certificate",
		"secrets liqo-tenant-rome-1/liqo-remote-certificate-milan-1", "foreignclusters rome-1",
	})
	for _, s := range []struct{ here, there side }{{consumer, provider}, {provider, consumer}} {
		s.here.delete(path("v1", "", "namespaces", tenantNamespace(s.there)))
		s.here.gone(path("v1", "", "namespaces", tenantNamespace(s.there)))
		s.here.delete(path(core, "", "foreignclusters", s.there.ID))
		s.here.gone(path(core, "", "foreignclusters", s.there.ID))
		left(t, s.here, s.there, nil)
	}
}

// left waits until a cluster has no more than that of the other one.
func left(t *testing.T, here, other side, want []string) {
	t.Helper()
	bedtest.Within(t, "what "+here.ID+" has of "+other.ID, func() error {
		found, err := here.traces(t.Context(), other)
		if err != nil {
			return err
		}
		slices.Sort(found)
		slices.Sort(want)
		if diff := cmp.Diff(want, found); diff != "" {
			return fmt.Errorf("(-want +got)\n%s", diff)
		}
		return nil
	})
}
