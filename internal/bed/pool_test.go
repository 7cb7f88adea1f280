//go:build linux

package bed

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

// What a test leaves behind in a control plane of the pool is gone for the next one, also if the test has started its API
// server again, and so is the control plane itself if somebody has killed its API server for good.
func TestPool(t *testing.T) {
	ctx := within(t, 5*time.Minute)
	const crd = `{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: things.bed.invalid},
		spec: {group: bed.invalid, scope: Namespaced, names: {plural: things, singular: thing, kind: Thing},
		versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]}}`
	const left = `
apiVersion: v1
kind: Namespace
metadata: {name: shop, finalizers: [bed.invalid/never]}
---
apiVersion: bed.invalid/v1
kind: Thing
metadata: {name: stuck, namespace: shop, finalizers: [bed.invalid/never]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: everything}
rules: [{apiGroups: ["*"], resources: ["*"], verbs: ["*"]}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: nobody}
webhooks:
- name: nobody.bed.invalid
  admissionReviewVersions: [v1]
  sideEffects: None
  failurePolicy: Fail
  clientConfig: {url: "https://127.0.0.1:1/"}
  rules: [{apiGroups: [""], apiVersions: [v1], resources: [configmaps], operations: [CREATE]}]
`
	var first, second *Process
	var uid string
	t.Run("a test", func(t *testing.T) {
		k := New(t).AddCluster(ctx, "barn", "10.77.0.1/24")
		first = k.APIServer()
		uid = nodeUID(t, k)
		if err := k.Apply(ctx, crd); err != nil {
			t.Fatal(err)
		}
		if err := Poll(ctx, func() error { return k.Apply(ctx, left) }); err != nil {
			t.Fatal(err)
		}
		for _, there := range []string{"clusterrole/view", "configmap/prepared"} {
			if _, err := k.Kubectl(ctx, "delete", there); err != nil {
				t.Error(err)
			}
		}
		if _, err := k.Kubectl(ctx, "delete", "namespace", "shop", "--wait=false"); err != nil {
			t.Error(err)
		}
		if err := Poll(ctx, func() error {
			_, err := k.Kubectl(ctx, "create", "configmap", "refused", "--dry-run=server")
			if err == nil || !strings.Contains(err.Error(), "nobody.bed.invalid") {
				return errors.New("the webhook is not asked")
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
		if _, err := k.Host.Run(ctx, "nft", "add", "table", "inet", "left"); err != nil {
			t.Error(err)
		}
	})
	t.Run("the next", func(t *testing.T) {
		k := New(t).AddCluster(ctx, "mill", "10.77.0.7/24")
		if k.APIServer() != first {
			t.Error("it has another API server")
		}
		if nodeUID(t, k) == uid {
			t.Error("its node is that of the test before")
		}
		for _, path := range []string{"/api/v1/namespaces/shop", "/apis/bed.invalid/v1/things", "/apis/rbac.authorization.k8s.io/v1/clusterroles/everything", "/api/v1/nodes/barn"} {
			if out, err := k.Request(ctx, http.MethodGet, path, "", nil); err == nil || !strings.Contains(err.Error(), " 404 ") {
				t.Errorf("GET %s: %s, %v", path, out, err)
			}
		}
		for _, there := range []string{"clusterrole/view", "configmap/prepared"} {
			if _, err := k.Kubectl(ctx, "get", there); err != nil {
				t.Error(err)
			}
		}
		if out, err := k.Kubectl(ctx, "get", "nodes", "--no-headers", "-o", "custom-columns=N:.metadata.name,A:.status.addresses[1].address"); strings.Join(strings.Fields(out), " ") != "mill 10.77.0.7" || err != nil {
			t.Errorf("nodes %q, %v", out, err)
		}
		if _, err := k.Kubectl(ctx, "create", "configmap", "mine"); err != nil {
			t.Error(err)
		}
		if out, err := k.Host.Run(ctx, "nft", "list", "tables"); out != "" || err != nil {
			t.Errorf("nft: %q, %v", out, err)
		}
		if err := k.Kill(); err != nil {
			t.Error(err)
		}
		if err := k.Start(ctx); err != nil {
			t.Error(err)
		}
		if _, err := k.Kubectl(ctx, "get", "configmap", "mine"); err != nil {
			t.Error(err)
		}
		second = k.APIServer()
		if second == first || !slices.Equal(second.cmd.Args, first.cmd.Args) {
			t.Errorf("it was started again with %q, at first with %q", second.cmd.Args, first.cmd.Args)
		}
		asAgent(t, k)
		if events, err := k.Audit(); len(events) != 1 || err != nil {
			t.Errorf("audit log: %+v, %v", events, err)
		}
	})
	t.Run("after a restart", func(t *testing.T) {
		b := New(t)
		k := b.AddCluster(ctx, "barn", "10.77.0.1/24")
		if k.APIServer() != second {
			t.Error("it has another API server than the one that was started again")
		}
		if _, err := k.Kubectl(ctx, "get", "configmap", "mine"); err == nil || !strings.Contains(err.Error(), "NotFound") {
			t.Errorf("the object of the test before: %v", err)
		}
		if events, err := k.Audit(); len(events) != 0 || err != nil {
			t.Errorf("audit log: %+v, %v", events, err)
		}
		const started = "Serving securely"
		if text := b.lent[0].log(second); strings.Contains(text, started) || !strings.Contains(second.Log(), started) {
			t.Errorf("its log does not begin after the start in the test before: %s", text)
		}
		var service struct {
			Subsets []struct{ Addresses []struct{ IP string } }
		}
		if err := k.read(ctx, "/api/v1/namespaces/default/endpoints/kubernetes", &service); err != nil ||
			len(service.Subsets) != 1 || len(service.Subsets[0].Addresses) != 1 || service.Subsets[0].Addresses[0].IP != "10.42.0.1" {
			t.Errorf("the Service kubernetes leads to %+v, %v", service, err)
		}
		asAgent(t, k)
		if events, err := k.Audit(); len(events) != 1 || err != nil || events[0].Starting {
			t.Errorf("audit log: %+v, %v", events, err)
		}
		if err := k.Kill(); err != nil {
			t.Error(err)
		}
	})
	t.Run("after a kill", func(t *testing.T) {
		k := New(t).AddCluster(ctx, "barn", "10.77.0.1/24")
		if k.APIServer() == second {
			t.Error("it has the API server that was killed")
		}
		if k.Etcd(); k.asNew() {
			t.Error("another test would have it, although its etcd may have been started again, and not know what it was")
		}
	})
}

// asAgent makes a request as the user whose requests are written down.
func asAgent(t *testing.T, k *Kube) {
	t.Helper()
	if err := k.Apply(t.Context(), `{apiVersion: v1, kind: Namespace, metadata: {name: liqo}}
---
{apiVersion: v1, kind: ServiceAccount, metadata: {name: liqo-agent, namespace: liqo}}
`); err != nil {
		t.Fatal(err)
	}
	const file = "/etc/agent.yaml"
	if err := k.accountConfig(t.Context(), "liqo", "liqo-agent", file); err != nil {
		t.Fatal(err)
	}
	if _, err := k.Host.Run(t.Context(), "kubectl", "--kubeconfig", file, "get", "--raw", "/api/v1/namespaces/shop/pods/web"); err == nil || !strings.Contains(err.Error(), "orbidden") {
		t.Errorf("it may look at pods: %v", err)
	}
}

func nodeUID(t *testing.T, k *Kube) string {
	t.Helper()
	out, err := k.Kubectl(t.Context(), "get", "nodes", "-o", "jsonpath={.items[*].metadata.uid}")
	if err != nil || out == "" || strings.Contains(out, " ") {
		t.Fatalf("UIDs of nodes %q, %v", out, err)
	}
	return out
}
