//go:build linux

package integration

import (
	"context"
	"errors"
	"strings"
	"testing"

	"liqo.io/agent/internal/bed"
	"liqo.io/agent/rbac"
)

// foreign is what another version of Liqo brings.
const foreign = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: foreignclusters.core.liqo.io}
spec:
  group: core.liqo.io
  scope: Cluster
  names: {plural: foreignclusters, singular: foreigncluster, kind: ForeignCluster}
  versions:
  - {name: v1beta1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}
`

func TestKubernetes(t *testing.T) {
	t.Parallel()
	x := newBox(t, bed.New(t), "alder", "10.77.0.1", "[discovery]\ncheck_interval = \"1s\"\n")
	x.finds("agent-stopped", "kubeconfig-missing")
	ctx, cancel := context.WithTimeout(t.Context(), 4*soon)
	defer cancel()
	kube := x.host.StartKube(ctx)
	x.finds("agent-stopped", "crds-missing")

	x.definitions(ctx, kube)
	r := x.finds("agent-stopped")
	says(t, r, "network-policies", "are enforced")

	kubectl := func(args ...string) {
		t.Helper()
		if out, err := kube.Kubectl(ctx, args...); err != nil {
			t.Fatalf("kubectl %v: %v\n%s", args, err, out)
		}
	}
	kubectl("annotate", "node", "--all", "--overwrite", `k3s.io/node-args=["server","--disable-network-policy"]`)
	r = x.finds("agent-stopped", "no-network-policies")
	says(t, r, "network-policies", "alder")
	kubectl("annotate", "node", "--all", "k3s.io/node-args-")
	storage(ctx, t, x, kube)
	// Another version of one definition, one that is gone, and another Liqo.
	kubectl("patch", "crd", "foreignclusters.discovery.liqo.io", "--type=json",
		`-p=[{"op":"remove","path":"/spec/versions/0/schema/openAPIV3Schema/properties/status"}]`)
	kubectl("delete", "crd", "advertisements.sharing.liqo.io")
	if err := kube.Apply(ctx, foreign); err != nil {
		t.Fatal(err)
	}
	x.eventually("the foreign definition is served", func() error {
		_, err := kube.Kubectl(ctx, "get", "foreignclusters.core.liqo.io")
		return err
	})
	r = x.finds("agent-stopped", "crds-missing", "crds-other-version", "foreign-liqo")
	says(t, r, "crds", "also changed by: kubectl")
	says(t, r, "foreign-liqo", "foreignclusters.core.liqo.io")

	// A user that may do nothing.
	kubectl("create", "serviceaccount", "nobody")
	token, err := kube.Kubectl(ctx, "create", "token", "nobody")
	if err != nil {
		t.Fatal(err)
	}
	nobody := `apiVersion: v1
kind: Config
current-context: x
contexts: [{name: x, context: {cluster: x, user: x}}]
clusters: [{name: x, cluster: {server: "https://127.0.0.1:6443", insecure-skip-tls-verify: true}}]
users: [{name: x, user: {token: "` + token + `"}}]
`
	x.host.WriteFile("/etc/nobody.yaml", nobody)
	x.host.WriteFile(configPath, "[cluster]\nkubeconfig = \"/etc/nobody.yaml\"\n")
	r = x.finds("agent-stopped", "foreign-liqo", "rbac-gaps")

	// The agent's own user, without the policy that comes with it.
	manifest, err := rbac.Manifest(rbac.DefaultNamespace, false)
	if err != nil {
		t.Fatal(err)
	}
	if err := kube.Apply(ctx, string(manifest)); err != nil {
		t.Fatal(err)
	}
	agents, err := kube.Kubectl(ctx, "create", "token", "-n", rbac.DefaultNamespace, rbac.Name)
	if err != nil {
		t.Fatal(err)
	}
	x.host.WriteFile("/etc/nobody.yaml", strings.Replace(nobody, token, agents, 1))
	kubectl("delete", "validatingadmissionpolicybinding", rbac.Name)
	// The API server grants what roles say a moment after it has them.
	x.eventually("the roles are in effect", func() error {
		r = x.report()
		for _, c := range r.Checks {
			for _, f := range c.Findings {
				if f.Code == "rbac-gaps" {
					return errors.New(f.What)
				}
			}
		}
		return nil
	})
	// It may read the definitions.
	expect(t, r, "agent-stopped", "crds-missing", "crds-other-version", "foreign-liqo", "rbac-unconfined")

	x.host.WriteFile(configPath, "")
	if err := kube.Stop(); err != nil {
		t.Fatal(err)
	}
	r = x.finds("agent-stopped", "api-unreachable")
	says(t, r, "api-server", "nothing listens at https://127.0.0.1:6443")
}
