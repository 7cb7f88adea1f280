package integration

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"liqo.io/agent/api"
	"liqo.io/agent/internal/bed"
	"liqo.io/agent/peering"
)

// TestPairFaults peers and parts two clusters while a quarter of all requests to
// either API server fail in every way there is, those of the other side included.
func TestPairFaults(t *testing.T) {
	var proxies []*faultyProxy
	a, b := pairBy(t, func(k *bed.Kube) string {
		p := newFaultyProxy(t, k)
		proxies = append(proxies, p)
		return p.kubeconfig(t)
	})
	a.trusts(b, func(s *peering.Standing) { s.Accept = accepted })
	b.trusts(a, func(s *peering.Standing) { s.Accept = accepted })
	for _, s := range []struct{ at, of *site }{{a, b}, {b, a}} {
		within(t, "first sight", func() error { _, err := s.at.foreign(s.of); return err })
	}
	for _, p := range proxies {
		p.percent.Store(25)
	}
	for range 3 {
		a.join(b, true)
		b.join(a, true)
		within(t, "joined", func() error { return errors.Join(joined(a, b), joined(b, a)) })
		for _, p := range proxies {
			p.server.CloseClientConnections()
		}
		a.join(b, false)
		b.join(a, false)
		within(t, "parted", func() error { return errors.Join(parted(a, b), parted(b, a)) })
	}
	for _, s := range []struct{ at, of *site }{{a, b}, {b, a}} {
		if n := s.at.ledger.heard(s.of.id, "ended"); n > 0 {
			t.Errorf("%s takes a fault for somebody's decision: %q", s.at.name, s.at.ledger.story())
		}
	}
}

// privileges are the rules of RBAC that the agent needs, besides those in its own
// namespace.
const privileges = `
- apiGroups: [apiextensions.k8s.io]
  resources: [customresourcedefinitions]
  resourceNames: [foreignclusters.discovery.liqo.io, peeringrequests.discovery.liqo.io, advertisements.sharing.liqo.io]
  verbs: [get, create, patch]
- {apiGroups: [admissionregistration.k8s.io], resources: [validatingwebhookconfigurations], resourceNames: [liqo-agent], verbs: [get, create, patch]}
- {apiGroups: [""], resources: [nodes], verbs: [list, watch]}
- {apiGroups: [""], resources: [namespaces], resourceNames: [liqo], verbs: [get, create, patch]}
- {apiGroups: [discovery.liqo.io], resources: [foreignclusters], verbs: [list, watch, create, patch, delete]}
- {apiGroups: [discovery.liqo.io], resources: [peeringrequests], verbs: [get, list, watch, create, patch, delete]}
- {apiGroups: [sharing.liqo.io], resources: [advertisements], verbs: [get, list, watch, create, patch, delete]}
- {apiGroups: [discovery.liqo.io], resources: [foreignclusters/status, peeringrequests/status], verbs: [patch]}
- {apiGroups: [sharing.liqo.io], resources: [advertisements/status], verbs: [patch]}
- {apiGroups: [rbac.authorization.k8s.io], resources: [clusterroles, clusterrolebindings], verbs: [get, list, watch, create, patch, delete]}
- {apiGroups: [""], resources: [users], verbs: [impersonate]}
- {apiGroups: [""], resources: [groups], resourceNames: ["liqo:peers"], verbs: [impersonate]}
`

// ownPrivileges are the rules in the agent's namespace.
const ownPrivileges = `
- {apiGroups: [""], resources: [secrets], verbs: [get, list, watch, create, patch, delete]}
- {apiGroups: [""], resources: [configmaps], resourceNames: [cluster-id], verbs: [get, create, patch]}
`

// TestPrivileges peers and parts two clusters whose agents may do exactly what is
// written down above.
func TestPrivileges(t *testing.T) {
	a, b := pairBy(t, func(k *bed.Kube) string { return limited(t, k) })
	a.trusts(b, func(s *peering.Standing) { s.Accept = accepted })
	b.trusts(a, func(s *peering.Standing) { s.Accept = accepted })
	within(t, "first sight", func() error { _, err := a.foreign(b); return err })
	a.join(b, true)
	within(t, "joined", func() error { return joined(a, b) })
	a.do("PATCH", a.secretPath(b), merge, `{"immutable":true,"data":{"ca.crt":null}}`)
	within(t, "repaired", func() error { return joined(a, b) })
	a.join(b, false)
	within(t, "parted", func() error { return parted(a, b) })
	a.join(b, true)
	within(t, "joined again", func() error { return joined(a, b) })
	b.ledger.change(a.id, func(s *peering.Standing) { s.Blocked = true })
	within(t, "the end at the provider", func() error {
		return b.missing(prPath+"/"+string(a.id), b.secretPath(a), rolePath+"/liqo:peer:"+string(a.id))
	})
	for _, s := range []*site{a, b} {
		within(t, "the webhook", func() error {
			_, err := s.kube.Request(t.Context(), "GET", webhookPath, "", nil)
			return err
		})
		if log := s.log.String(); strings.Contains(log, "forbidden: User") {
			t.Errorf("%s lacks privileges:\n%s", s.name, log)
		}
	}
}

const webhookPath = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/liqo-agent"

// limited writes a kubeconfig of a user that has the privileges above, and no
// others.
func limited(t *testing.T, k *bed.Kube) string {
	t.Helper()
	const manifest = `
apiVersion: v1
kind: Namespace
metadata: {name: liqo}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: liqo-agent, namespace: liqo}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: liqo-agent}
rules: %s
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: liqo-agent}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: liqo-agent}
subjects: [{kind: ServiceAccount, name: liqo-agent, namespace: liqo}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: liqo-agent, namespace: liqo}
rules: %s
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: liqo-agent, namespace: liqo}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: liqo-agent}
subjects: [{kind: ServiceAccount, name: liqo-agent, namespace: liqo}]
`
	within(t, "the user", func() error { return k.Apply(t.Context(), fmt.Sprintf(manifest, privileges, ownPrivileges)) })
	text, err := k.Request(t.Context(), "POST", "/api/v1/namespaces/liqo/serviceaccounts/liqo-agent/token", jsonMIME,
		[]byte(`{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":{}}`))
	if err != nil {
		t.Fatal(err)
	}
	var token struct {
		Status struct {
			Token string `json:"token"`
		} `json:"status"`
	}
	if err := json.Unmarshal(text, &token); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	config := k.RESTConfig()
	config.CertData, config.KeyData = nil, nil
	writeKubeconfig(t, path, config, "https://"+forward(t, k))
	kubeconfig, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	withToken := strings.Replace(string(kubeconfig), `client-certificate-data: "", client-key-data: ""`, "token: "+token.Status.Token, 1)
	if withToken == string(kubeconfig) {
		t.Fatalf("there is no place for a token in\n%s", kubeconfig)
	}
	if err := os.WriteFile(path, []byte(withToken), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestWebhook checks that the configuration of the webhook is put in place and
// repaired, and not written again.
func TestWebhook(t *testing.T) {
	k := startKube(t)
	path := direct(t, k)
	begin := func() *running {
		r := startWith(t, path, newRegistry(), newLedger(), func(c *peering.Config) { c.Webhook = webhook("peeringrequests") })
		within(t, "the webhook", func() error {
			text, err := k.Request(t.Context(), "GET", webhookPath, "", nil)
			if err == nil && !strings.Contains(string(text), `"url":"https://127.0.0.1:1/admit"`) {
				err = errors.New(string(text))
			}
			return err
		})
		// What comes after the webhook is done as well.
		within(t, "the rest", func() error { _, err := k.Request(t.Context(), "GET", cmPath, "", nil); return err })
		return r
	}
	begin().stop()
	r := begin()
	r.stop()
	if n := r.Status().Writes; n > 0 {
		t.Errorf("%d writes after a new start", n)
	}
	request(t, k, "PATCH", webhookPath, merge, `{"webhooks":null}`)
	begin().stop()
	request(t, k, "DELETE", webhookPath, "", "")
	begin()
	// It decides about requests, and nobody is there: they are refused.
	_, err := k.Request(t.Context(), "POST", prPath, jsonMIME, []byte(requestBody(barnID)))
	if err == nil || !strings.Contains(err.Error(), "failed calling webhook") {
		t.Errorf("error %v", err)
	}
}

// webhook returns the manifest of a webhook that nobody answers, for a resource.
func webhook(resource string) func() map[string]any {
	manifest := map[string]any{
		"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
		"metadata": map[string]any{"name": "liqo-agent", "labels": map[string]string{api.LabelManagedBy: api.ManagedByAgent}},
		"webhooks": []map[string]any{{
			"name":         "peeringrequests.discovery.liqo.io",
			"clientConfig": map[string]any{"url": "https://127.0.0.1:1/admit"},
			"rules": []map[string]any{{
				"apiGroups": []string{"discovery.liqo.io"}, "apiVersions": []string{"v1alpha1"}, "resources": []string{resource},
				"operations": []string{"CREATE"},
			}},
			"sideEffects": "None", "admissionReviewVersions": []string{"v1"},
		}},
	}
	return func() map[string]any { return manifest }
}
