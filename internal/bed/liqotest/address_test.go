//go:build linux

package liqotest

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"liqo.io/agent/internal/bed/bedtest"
)

// Liqo goes on asking for a provider at the address that it had. Nothing needs to be deleted to mend that.
func TestAddressChange(t *testing.T) {
	const before, after = "https://10.77.0.2:6443", "https://10.77.0.22:6443"
	consumer, provider := start(t)
	peer(consumer, provider, map[string]string{"cpu": "2", "memory": "2Gi"})
	here, there := tenantNamespace(provider), tenantNamespace(consumer)
	atProvider := path(authentication, there, "resourceslices", provider.ID)
	controlPlane := path(authentication, here, "identities", identityName(provider))
	ofSlice := path(authentication, here, "identities", "resourceslice-"+provider.ID)
	consumer.sees(provider, reached("Established"))

	provider.Kube.Host.Link("eth0").SetAddress("10.77.0.22/24")
	if err := provider.Kube.Readdress(t.Context()); err != nil {
		t.Fatal(err)
	}
	consumer.sees(provider, reached("Error"))

	t.Run("the kubeconfig and the replicator follow the Identity", func(t *testing.T) {
		begin := time.Now()
		consumer.patch(controlPlane, object{"spec": object{"authParams": object{"apiServer": after}}})
		consumer.leads(t, here, "kubeconfig-"+identityName(provider), after)
		t.Logf("kubeconfig: %.2f s", time.Since(begin).Seconds())
		consumer.patch(path(authentication, here, "resourceslices", provider.ID), object{"spec": object{"resources": object{"cpu": "3"}}})
		until(provider, atProvider, func(o *slice) error {
			if o.Spec.Resources["cpu"] != "3" {
				return fmt.Errorf("it is of %v", o.Spec.Resources)
			}
			return nil
		})
		t.Logf("replicated: %.2f s", time.Since(begin).Seconds())
	})

	t.Run("the ForeignCluster does not", func(t *testing.T) {
		if url := consumer.sees(provider, role("Provider")).Status.APIServerURL; url != after {
			t.Errorf("it has %s", url)
		}
		// Whoever checks it asks the address that it was started with.
		looks := func() int {
			return strings.Count(consumer.Process("liqo-controller-manager").Log(), "API server readiness check failed")
		}
		from := looks()
		bedtest.Within(t, "three more looks at the old address", func() error {
			if n := looks() - from; n < 3 {
				return fmt.Errorf("there were %d", n)
			}
			return nil
		})
		consumer.sees(provider, reached("Error"))

		begin := time.Now()
		consumer.patch(controlPlane, object{"spec": object{"authParams": object{"apiServer": nil}}})
		consumer.sees(provider, func(o *foreign) error {
			if o.Status.APIServerURL != "" || len(o.Status.Conditions) > 0 {
				return fmt.Errorf("it has %+v", o.Status)
			}
			return nil
		})
		consumer.patch(controlPlane, object{"spec": object{"authParams": object{"apiServer": after}}})
		consumer.sees(provider, reached("Established"))
		t.Logf("established: %.2f s", time.Since(begin).Seconds())
		consumer.leads(t, here, "kubeconfig-"+identityName(provider), after)
	})

	t.Run("the Identity of a slice follows the provider", func(t *testing.T) {
		// The slice changed above, so the provider has looked at it again, and at its node.
		if url := until(provider, atProvider, (*slice).accepted).Status.AuthParams.APIServer; url != after {
			t.Errorf("the provider's slice has %s", url)
		}
		consumer.leads(t, here, "kubeconfig-resourceslice-"+provider.ID, after)

		// What somebody edits there is undone.
		consumer.patch(ofSlice, object{"spec": object{"authParams": object{"apiServer": before}}})
		consumer.leads(t, here, "kubeconfig-resourceslice-"+provider.ID, after)
		until(consumer, ofSlice, func(o *struct{ Spec identity }) error {
			if o.Spec.AuthParams.APIServer != after {
				return fmt.Errorf("it has %s", o.Spec.AuthParams.APIServer)
			}
			return nil
		})

		// Another change of the address, and no change of the slice: an event of the Tenant does it.
		provider.Kube.Host.Link("eth0").SetAddress("10.77.0.23/24")
		if err := provider.Kube.Readdress(t.Context()); err != nil {
			t.Fatal(err)
		}
		const third = "https://10.77.0.23:6443"
		provider.patch(path(authentication, there, "tenants", consumer.ID), object{"metadata": object{"annotations": object{"bed.invalid/address": third}}})
		until(provider, atProvider, func(o *slice) error {
			if o.Status.AuthParams.APIServer != third {
				return fmt.Errorf("the provider's slice has %s", o.Status.AuthParams.APIServer)
			}
			return nil
		})
		consumer.patch(controlPlane, object{"spec": object{"authParams": object{"apiServer": third}}})
		consumer.leads(t, here, "kubeconfig-resourceslice-"+provider.ID, third)
	})

	t.Run("the virtual kubelet starts again", func(t *testing.T) {
		node := path(offloading, here, "virtualnodes", provider.ID)
		name := until(consumer, node, func(*virtualNode) error { return nil }).Spec.Template.Metadata.Name
		pods := path("v1", here, "pods")
		type list struct {
			Items []struct{ Metadata struct{ UID string } }
		}
		one := func(o *list) error {
			if len(o.Items) != 1 {
				return fmt.Errorf("there are %d pods of %s", len(o.Items), name)
			}
			return nil
		}
		old := until(consumer, pods, one).Items[0].Metadata.UID
		consumer.patch(node, object{"spec": object{"template": object{"spec": object{"template": object{"metadata": object{
			"annotations": object{"bed.invalid/address": after}}}}}}})
		until(consumer, pods, func(o *list) error {
			if err := one(o); err != nil {
				return err
			}
			if o.Items[0].Metadata.UID == old {
				return errors.New("it is the pod that was there")
			}
			return nil
		})
	})
}

// leads waits until a kubeconfig leads to a URL.
func (s side) leads(t *testing.T, namespace, name, url string) {
	t.Helper()
	until(s, path("v1", namespace, "secrets", name), func(o *secret) error {
		if !bytes.Contains(o.Data["kubeconfig"], []byte("server: "+url+"\n")) {
			return fmt.Errorf("it does not lead to %s:\n%s", url, o.Data["kubeconfig"])
		}
		return nil
	})
}
