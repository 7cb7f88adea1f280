package integration

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"liqo.io/agent/api"
	"liqo.io/agent/internal/bed"
	"liqo.io/agent/peer"
	"liqo.io/agent/peering/plan"
)

// TestPairFaults peers two clusters, checks that this costs no requests as long as
// nothing happens, and then peers and parts them while a quarter of all requests to
// either API server fail in every way there is, those of the other side included.
func TestPairFaults(t *testing.T) {
	var proxies []*faultyProxy
	a, b := pairBy(t, func(k *bed.Kube) string {
		p := newFaultyProxy(t, k)
		proxies = append(proxies, p)
		return p.kubeconfig(t)
	})
	a.trusts(b, func(s *plan.Policy) { s.Accept = accepted })
	b.trusts(a, func(s *plan.Policy) { s.Accept = accepted })
	for _, s := range []struct{ at, of *site }{{a, b}, {b, a}} {
		within(t, "first sight", func() error { _, err := s.at.foreign(s.of); return err })
	}
	a.join(b, true)
	b.join(a, true)
	within(t, "joined", func() error { return errors.Join(joined(a, b), joined(b, a)) })
	within(t, "calm", func() error {
		before := []int64{proxies[0].requests.Load(), proxies[1].requests.Load()}
		for range 10 {
			looked(t, a, b)
		}
		// The check of once a minute, which may be due, takes five.
		for i, p := range proxies {
			if n := p.requests.Load() - before[i]; n > 5 {
				return fmt.Errorf("%d requests to an API server while nothing happens", n)
			}
		}
		return nil
	})
	a.join(b, false)
	b.join(a, false)
	within(t, "parted", func() error { return errors.Join(parted(a, b), parted(b, a)) })
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
		if n := s.at.decisions.heard(s.of.id, "ended"); n > 0 {
			t.Errorf("%s takes a fault for somebody's decision: %q", s.at.name, s.at.decisions.story())
		}
	}
}

// TestAway parts two clusters while one API server or the whole of one cluster is
// away, and has both come back.
func TestAway(t *testing.T) {
	a, b := pair(t)
	a.trusts(b, nil)
	b.trusts(a, func(s *plan.Policy) { s.Accept = accepted })
	within(t, "first sight", func() error { _, err := a.foreign(b); return err })
	a.join(b, true)
	within(t, "joined", func() error { return joined(a, b) })

	t.Run("disconnected while the provider's API server is away", func(t *testing.T) {
		b.lose(t, b.line)
		a.join(b, false)
		within(t, "the end at the consumer", func() error { return a.missing(advPath+"/"+string(b.id), a.secretPath(b)) })
		b.line.mend()
		within(t, "parted", func() error { return parted(a, b) })
		if b.decisions.heard(a.id, "ended here") > 0 {
			t.Errorf("the peer's doing is taken for a person's: %q", b.decisions.story())
		}
		a.join(b, true)
		within(t, "joined again", func() error { return joined(a, b) })
	})
	t.Run("deleted by a person while the provider's agent is away", func(t *testing.T) {
		b.stop()
		b.do("DELETE", prPath+"/"+string(a.id), "", "")
		b.begin()
		within(t, "parted or joined", func() error {
			// It was not seen who did it, so that either is right, but nothing in between.
			if err := parted(a, b); err != nil {
				return joined(a, b)
			}
			return nil
		})
		b.decisions.change(a.id, func(s *plan.Policy) { s.Accept = accepted })
		a.join(b, false)
		within(t, "parted", func() error { return parted(a, b) })
		a.join(b, true)
		within(t, "joined again", func() error { return joined(a, b) })
	})
	t.Run("blocked while the consumer's API server is away", func(t *testing.T) {
		a.lose(t, a.line)
		b.decisions.change(a.id, func(s *plan.Policy) { s.Blocked = true })
		within(t, "the end at the provider", func() error { return b.missing(prPath+"/"+string(a.id), b.secretPath(a)) })
		a.line.mend()
		within(t, "the end at the consumer", func() error {
			fc, err := a.foreign(b)
			if err == nil && fc.Status.Outgoing.Joined {
				err = fmt.Errorf("%+v", fc.Status.Outgoing)
			}
			return err
		})
		b.decisions.change(a.id, func(s *plan.Policy) { s.Blocked = false })
		a.decisions.change(b.id, func(s *plan.Policy) { s.Connect = plan.Yes; s.Generation++ })
		within(t, "joined again", func() error { return joined(a, b) })
	})
	t.Run("lost and back", func(t *testing.T) {
		phase := func(phase peer.Phase) {
			for _, s := range []struct{ at, of *site }{{a, b}, {b, a}} {
				s.at.change(s.of.id, func(p *peer.Peer) { p.Phase = phase })
			}
		}
		before, err := a.offer(b)
		if err != nil {
			t.Fatal(err)
		}
		phase(peer.PhaseUnreachable)
		within(t, "unreachable", func() error {
			fc, err := a.foreign(b)
			if err != nil {
				return err
			}
			return condition(api.ConditionReachable, api.ConditionFalse)(fc)
		})
		phase(peer.PhasePresent)
		within(t, "joined all the time", func() error { return joined(a, b) })
		if after, err := a.offer(b); err != nil || after.UID != before.UID {
			t.Errorf("a short absence cost the Advertisement: %v", err)
		}
		for _, s := range []*site{a, b} { // the next one is long
			s.stop()
			s.lostAfter = time.Second
			s.begin()
		}
		phase(peer.PhaseLost)
		within(t, "the end on both sides", func() error {
			return errors.Join(a.missing(advPath+"/"+string(b.id), a.secretPath(b), fcPath+"/"+string(b.id)), b.missing(prPath+"/"+string(a.id), b.secretPath(a)))
		})
		phase(peer.PhasePresent)
		within(t, "joined again", func() error { return joined(a, b) })
	})
}

// privileges are the rules of RBAC that the agent needs, besides those in its own
// namespace.
const privileges = `
- apiGroups: [apiextensions.k8s.io]
  resources: [customresourcedefinitions]
  resourceNames: [foreignclusters.discovery.liqo.io, peeringrequests.discovery.liqo.io, searchdomains.discovery.liqo.io, advertisements.sharing.liqo.io, clusterconfigs.config.liqo.io]
  verbs: [get, create, patch]
- {apiGroups: [admissionregistration.k8s.io], resources: [validatingwebhookconfigurations], resourceNames: [liqo-agent], verbs: [get, create, patch]}
- {apiGroups: [""], resources: [nodes, pods], verbs: [list, watch]}
- {apiGroups: [""], resources: [namespaces], resourceNames: [liqo], verbs: [get, create, patch]}
- {apiGroups: [discovery.liqo.io], resources: [foreignclusters], verbs: [list, watch, create, patch, delete]}
- {apiGroups: [discovery.liqo.io], resources: [peeringrequests], verbs: [get, list, watch, create, patch, delete]}
- {apiGroups: [sharing.liqo.io], resources: [advertisements], verbs: [get, list, watch, create, patch, delete]}
- {apiGroups: [discovery.liqo.io], resources: [foreignclusters/status, peeringrequests/status, searchdomains/status], verbs: [patch]}
- {apiGroups: [discovery.liqo.io], resources: [searchdomains], verbs: [list, watch]}
- {apiGroups: [config.liqo.io], resources: [clusterconfigs], verbs: [list, watch, create]}
- {apiGroups: [config.liqo.io], resources: [clusterconfigs/status], resourceNames: [liqo-configuration], verbs: [patch]}
- {apiGroups: [""], resources: [events], verbs: [create, patch]}
- {apiGroups: [sharing.liqo.io], resources: [advertisements/status], verbs: [patch]}
- {apiGroups: [rbac.authorization.k8s.io], resources: [clusterroles, clusterrolebindings], verbs: [get, list, watch, create, patch, delete]}
- {apiGroups: [""], resources: [groups], resourceNames: ["liqo:peers"], verbs: [impersonate]}
`

// ownPrivileges are the rules in the agent's namespace.
const ownPrivileges = `
- {apiGroups: [""], resources: [serviceaccounts], verbs: [impersonate]}
- {apiGroups: [""], resources: [secrets], verbs: [get, list, watch, create, patch, delete]}
- {apiGroups: [""], resources: [configmaps], resourceNames: [cluster-id], verbs: [get, create, patch]}
`

// TestPrivileges peers and parts two clusters whose agents may do exactly what is
// written down above, from their first start on.
func TestPrivileges(t *testing.T) {
	a, b := pairBy(t, func(k *bed.Kube) string {
		bare(t, k)
		return limited(t, k, privileges, ownPrivileges)
	})
	a.trusts(b, func(s *plan.Policy) { s.Accept = accepted })
	b.trusts(a, func(s *plan.Policy) { s.Accept = accepted })
	within(t, "first sight", func() error { _, err := a.foreign(b); return err })
	a.join(b, true)
	within(t, "joined", func() error { return joined(a, b) })
	a.do("PATCH", a.secretPath(b), merge, `{"immutable":true,"data":{"ca.crt":null}}`)
	within(t, "repaired", func() error { return joined(a, b) })
	a.join(b, false)
	within(t, "parted", func() error { return parted(a, b) })
	a.join(b, true)
	within(t, "joined again", func() error { return joined(a, b) })
	b.decisions.change(a.id, func(s *plan.Policy) { s.Blocked = true })
	within(t, "the end at the provider", func() error {
		return b.missing(prPath+"/"+string(a.id), b.secretPath(a), rolePath+"/liqo:peer:"+string(a.id))
	})
	domains := "/apis/discovery.liqo.io/v1alpha1/searchdomains"
	for _, s := range []*site{a, b} {
		if err := s.kube.Apply(t.Context(), "{apiVersion: discovery.liqo.io/v1alpha1, kind: SearchDomain, metadata: {name: x}, spec: {domain: example.com}}"); err != nil {
			t.Fatal(err)
		}
		within(t, "the status of a SearchDomain, and a ClusterConfig", func() error {
			body, err := s.kube.Request(t.Context(), "GET", domains+"/x", "", nil)
			if err == nil && !strings.Contains(string(body), `"clusters":1`) {
				err = fmt.Errorf("it is %s", body)
			}
			if err == nil {
				_, err = s.kube.Request(t.Context(), "GET", "/apis/config.liqo.io/v1alpha1/clusterconfigs/liqo-configuration", "", nil)
			}
			return err
		})
		within(t, "the webhook", func() error {
			_, err := s.kube.Request(t.Context(), "GET", webhookPath, "", nil)
			return err
		})
		if missing := s.Status().Forbidden; len(missing) > 0 {
			t.Errorf("%s lacks %q", s.name, missing)
		}
		if log := s.log.String(); strings.Contains(log, "forbidden: User") {
			t.Errorf("%s lacks privileges:\n%s", s.name, log)
		}
	}
}

const webhookPath = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/liqo-agent"

// formerPrivileges are those that agents had when peers were users.
const formerPrivileges = privileges + `- {apiGroups: [""], resources: [users], verbs: [impersonate]}
`

// TestFormerRights takes a peering from the rights of an older agent to those of this
// one, as after an upgrade.
func TestFormerRights(t *testing.T) {
	former := strings.Replace(ownPrivileges, "serviceaccounts", "endpoints", 1)
	a, b := pairBy(t, func(k *bed.Kube) string { return limited(t, k, formerPrivileges, former) })
	a.trusts(b, func(s *plan.Policy) { s.Accept = accepted })
	b.trusts(a, func(s *plan.Policy) { s.Accept = accepted })
	within(t, "first sight", func() error { _, err := a.foreign(b); return err })
	a.join(b, true)
	within(t, "joined", func() error { return joined(a, b) })
	names := func(want ...string) {
		t.Helper()
		within(t, "who is let in", func() error {
			text, err := b.kube.Request(t.Context(), "GET", bindingPath+"/liqo:peer:"+string(a.id), "", nil)
			if err != nil {
				return err
			}
			var binding struct{ Subjects []struct{ Name string } }
			if err := json.Unmarshal(text, &binding); err != nil {
				return err
			}
			var found []string
			for _, s := range binding.Subjects {
				found = append(found, s.Name)
			}
			if !slices.Equal(found, want) {
				return fmt.Errorf("%q", found)
			}
			return nil
		})
	}
	account := "system:serviceaccount:liqo:liqo-peer-" + string(a.id)
	names(account, "liqo:cluster:"+string(a.id))
	for _, s := range []*site{a, b} {
		within(t, "the rights of today", func() error {
			return s.kube.Apply(t.Context(), fmt.Sprintf(limitedManifest, privileges, ownPrivileges))
		})
	}
	names(account)
	within(t, "still joined", func() error { return joined(a, b) })
	a.join(b, false)
	within(t, "parted", func() error { return parted(a, b) })
	a.join(b, true)
	within(t, "joined again", func() error { return joined(a, b) })
}

// limitedManifest is a user with privileges everywhere, and others in its namespace.
const limitedManifest = `
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

// limited writes a kubeconfig of such a user.
func limited(t *testing.T, k *bed.Kube, everywhere, own string) string {
	t.Helper()
	within(t, "the user", func() error { return k.Apply(t.Context(), fmt.Sprintf(limitedManifest, everywhere, own)) })
	for _, may := range []string{`{"verb":"list","group":"discovery.liqo.io","resource":"foreignclusters"}`, `{"verb":"list","resource":"secrets","namespace":"liqo"}`} {
		within(t, "an API server that has read its roles", func() error {
			text, err := k.Request(t.Context(), "POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", jsonMIME,
				fmt.Appendf(nil, `{"spec":{"user":"system:serviceaccount:liqo:liqo-agent","resourceAttributes":%s}}`, may))
			if err == nil && !strings.Contains(string(text), `"allowed":true`) {
				err = errors.New(string(text))
			}
			return err
		})
	}
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
	writeKubeconfig(t, path, config, forward(t, k).url)
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

// webhook is the manifest of a webhook that nobody answers, and that nobody asks.
func webhook() map[string]any {
	return map[string]any{
		"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
		"metadata": map[string]any{"name": "liqo-agent", "labels": map[string]string{api.LabelManagedBy: api.ManagedByAgent}},
		"webhooks": []map[string]any{{
			"name":         "peeringrequests.discovery.liqo.io",
			"clientConfig": map[string]any{"url": "https://127.0.0.1:1/admit"},
			"rules": []map[string]any{{
				"apiGroups": []string{"discovery.liqo.io"}, "apiVersions": []string{"v1alpha1"}, "resources": []string{"nothing"},
				"operations": []string{"CREATE"},
			}},
			"sideEffects": "None", "admissionReviewVersions": []string{"v1"},
		}},
	}
}
