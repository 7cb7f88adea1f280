package integration

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"liqo.io/agent/api"
	"liqo.io/agent/internal/bed"
	"liqo.io/agent/peer"
	"liqo.io/agent/peering/plan"
)

const (
	rolePath    = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
	bindingPath = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
	applyMIME   = "application/apply-patch+yaml"
	eveID       = peer.ClusterID("eeeeeeee-097b-4b7d-ba04-6bd2a0f9d24f")
)

// impersonator sends requests as a peer, as the gateway does.
type impersonator struct {
	t      *testing.T
	client *http.Client
	host   string
}

func impersonate(t *testing.T, k *bed.Kube, id peer.ClusterID) *impersonator {
	t.Helper()
	config := k.RESTConfig()
	config.Impersonate = rest.ImpersonationConfig{UserName: api.PeerUsers{Namespace: "liqo"}.Name(string(id)), Groups: []string{api.PeerGroup}}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	return &impersonator{t: t, client: client, host: config.Host}
}

// try sends a request and returns the status of the answer. It waits no longer
// than for the header: a watch has no end.
func (i *impersonator) try(method, path, contentType, body string) int {
	i.t.Helper()
	ctx, cancel := context.WithTimeout(i.t.Context(), 5*time.Minute)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, i.host+path, bytes.NewReader([]byte(body)))
	if err != nil {
		i.t.Fatal(err)
	}
	if contentType != "" {
		r.Header.Set("Content-Type", contentType)
	}
	answer, err := i.client.Do(r)
	if err != nil {
		i.t.Fatalf("%s %s: %v", method, path, err)
	}
	defer answer.Body.Close()
	if answer.StatusCode >= 500 {
		text, _ := io.ReadAll(answer.Body)
		i.t.Fatalf("%s %s: %s: %s", method, path, answer.Status, text)
	}
	return answer.StatusCode
}

func requestBody(id peer.ClusterID) string {
	return fmt.Sprintf(`{"apiVersion":"discovery.liqo.io/v1alpha1","kind":"PeeringRequest","metadata":{"name":%q},"spec":{"clusterIdentity":{"clusterID":%q}}}`, id, id)
}

func offerBody(id peer.ClusterID) string {
	return fmt.Sprintf(`{"apiVersion":"sharing.liqo.io/v1alpha1","kind":"Advertisement","metadata":{"name":%q},"spec":{"clusterId":%q,"timestamp":"2026-11-01T00:00:00Z","timeToLive":"2026-11-01T06:00:00Z"}}`, id, id)
}

// TestAccess checks by real requests that a peer reaches its own objects, as far
// as it needs them, and nothing else.
func TestAccess(t *testing.T) {
	whole := t
	k := startKube(t)
	r := run(t, direct(t, k), newRegistry())
	r.put(barn())
	within(t, "connection", func() error {
		if s := r.Status(); !s.Connected {
			return errors.New(s.LastError)
		}
		return nil
	})
	me := impersonate(t, k, barnID)
	own := func(path string) string { return path + "/" + string(barnID) }
	apply := "?fieldManager=liqo-peer&force=true"

	if err := r.EnsureAccess(t.Context(), barnID); err == nil {
		t.Error("a stranger may ask")
	}
	if got := me.try("GET", own(prPath), "", ""); got != http.StatusForbidden {
		t.Errorf("a stranger gets %d", got)
	}

	r.decisions.change(barnID, func(s *plan.Policy) {
		s.Pin, s.Asked = pinOf(barnID, barn().Fingerprint, "test"), true
	})
	begun := time.Now()
	// It gives up after two seconds, and then the peer tries again.
	within(t, "access", func() error { return r.EnsureAccess(t.Context(), barnID) })
	t.Logf("access took %v", time.Since(begun))
	awaitInstalled(t, k)
	steady(t, func() {
		within(t, "access a second time", func() error { return r.EnsureAccess(t.Context(), barnID) })
	}, r)

	for _, tc := range []struct {
		method, path, contentType, body string
		want                            int
	}{
		{"GET", own(prPath), "", "", 404},
		{"PATCH", own(prPath) + apply, applyMIME, requestBody(barnID), 201},
		{"PATCH", own(prPath) + apply, applyMIME, requestBody(barnID), 200},
		{"GET", own(prPath), "", "", 200},

		{"GET", own(advPath), "", "", 403},
		{"PATCH", own(advPath) + apply, applyMIME, offerBody(barnID), 403},
		{"DELETE", own(advPath), "", "", 403},

		{"PUT", own(prPath), jsonMIME, requestBody(barnID), 403},
		{"POST", prPath, jsonMIME, requestBody(barnID), 403},
		{"POST", prPath, jsonMIME, requestBody(eveID), 403},
		{"GET", prPath, "", "", 403},
		{"GET", prPath + "?fieldSelector=metadata.name%3D" + string(barnID), "", "", 403},
		{"GET", prPath + "?watch=true", "", "", 403},
		{"GET", "/apis/discovery.liqo.io/v1alpha1/watch/peeringrequests", "", "", 403},
		{"DELETE", prPath, "", "", 403},
		{"GET", own(prPath) + "/status", "", "", 403},
		{"PATCH", own(prPath) + "/status", merge, `{"status":{"phase":"Accepted"}}`, 403},
		{"PATCH", own(prPath) + "/status" + apply, applyMIME, requestBody(barnID), 403},

		{"GET", prPath + "/" + string(eveID), "", "", 403},
		{"PATCH", prPath + "/" + string(eveID) + apply, applyMIME, requestBody(eveID), 403},
		{"DELETE", prPath + "/" + string(eveID), "", "", 403},
		{"GET", advPath, "", "", 403},
		{"GET", own(fcPath), "", "", 403},
		{"PATCH", own(fcPath), merge, `{"spec":{"join":true}}`, 403},
		{"GET", fcPath, "", "", 403},

		{"GET", "/api/v1/secrets", "", "", 403},
		{"GET", "/api/v1/namespaces/liqo/secrets", "", "", 403},
		{"GET", "/api/v1/namespaces/liqo/secrets/" + plan.SecretName(barnID), "", "", 403},
		{"GET", cmPath, "", "", 403},
		{"GET", "/api/v1/nodes", "", "", 403},
		{"GET", "/api/v1/pods", "", "", 403},
		{"POST", "/api/v1/namespaces/default/pods", jsonMIME, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"x"},"spec":{"containers":[{"name":"x","image":"x"}]}}`, 403},
		{"GET", "/api/v1/namespaces/default/pods/x/exec?command=sh", "", "", 403},
		{"GET", "/api/v1/namespaces", "", "", 403},
		{"POST", "/api/v1/namespaces", jsonMIME, `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"x"}}`, 403},
		{"POST", "/api/v1/namespaces/default/serviceaccounts/default/token", jsonMIME, `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":{}}`, 403},
		{"GET", rolePath + "/liqo:peer:" + string(barnID), "", "", 403},
		{"PATCH", rolePath + "/liqo:peer:" + string(barnID), merge, `{"rules":[{"apiGroups":["*"],"resources":["*"],"verbs":["*"]}]}`, 403},
		{"GET", crdPath, "", "", 403},
		{"GET", "/metrics", "", "", 403},
		{"GET", "/logs/", "", "", 403},
		{"GET", "/configz", "", "", 403},
		{"GET", "/api/v1/nodes/box/proxy/metrics", "", "", 403},
	} {
		if got := me.try(tc.method, tc.path, tc.contentType, tc.body); got != tc.want {
			t.Errorf("%s %s: %d, want %d", tc.method, tc.path, got, tc.want)
		}
	}
	if got := impersonate(t, k, eveID).try("GET", own(prPath), "", ""); got != 403 {
		t.Errorf("another peer gets %d", got)
	}
	if got := me.try("DELETE", own(prPath), "", ""); got != 200 {
		t.Errorf("DELETE: %d", got)
	}

	t.Run("what we consume", func(t *testing.T) {
		request(t, k, "PATCH", own(fcPath), merge, `{"spec":{"join":true}}`)
		within(t, "the Advertisement", func() error {
			if got := me.try("PATCH", own(advPath)+apply, applyMIME, offerBody(barnID)); got/100 != 2 {
				return fmt.Errorf("PATCH: %d", got)
			}
			return nil
		})
		for _, tc := range []struct {
			method, path, contentType, body string
			want                            int
		}{
			{"GET", own(advPath), "", "", 200},
			{"PATCH", own(advPath) + "/status", merge, `{"status":{"advertisementStatus":"Accepted"}}`, 403},
			{"GET", advPath, "", "", 403},
			{"POST", advPath, jsonMIME, offerBody(barnID), 403},
			{"DELETE", advPath, "", "", 403},
			{"GET", advPath + "/" + string(eveID), "", "", 403},
			{"PATCH", advPath + "/" + string(eveID) + apply, applyMIME, offerBody(eveID), 403},
			{"DELETE", own(advPath), "", "", 200},
		} {
			if got := me.try(tc.method, tc.path, tc.contentType, tc.body); got != tc.want {
				t.Errorf("%s %s: %d, want %d", tc.method, tc.path, got, tc.want)
			}
		}
	})

	t.Run("edited and deleted by others", func(t *testing.T) {
		r.decisions.change(barnID, func(s *plan.Policy) { s.Asked = true }) // once more: it deleted what it asked with
		role, binding := rolePath+"/liqo:peer:"+string(barnID), bindingPath+"/liqo:peer:"+string(barnID)
		text := func(path string) string {
			out, err := k.Request(t.Context(), "GET", path, "", nil)
			if err != nil {
				return err.Error()
			}
			return string(out)
		}
		repaired := func(what, path, bad string) {
			t.Helper()
			within(t, what, func() error {
				if got := text(path); strings.Contains(got, bad) || !strings.Contains(got, `"name":"liqo:peer:`) || !strings.Contains(got, `"app.kubernetes.io/managed-by":"liqo-agent"`) {
					return errors.New(got)
				}
				if got := me.try("GET", own(prPath), "", ""); got != 404 {
					return fmt.Errorf("GET: %d", got)
				}
				return nil
			})
		}
		request(t, k, "PATCH", role, merge, `{"rules":[{"apiGroups":[""],"resources":["secrets"],"verbs":["get"]}]}`)
		repaired("rules", role, "secrets")
		request(t, k, "PATCH", role, merge, `{"aggregationRule":{"clusterRoleSelectors":[{"matchLabels":{"x":"y"}}]}}`)
		repaired("aggregation", role, "clusterRoleSelectors")
		request(t, k, "PATCH", binding, merge, `{"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"eve"}]}`)
		repaired("subjects", binding, `"eve"`)
		request(t, k, "PATCH", binding, merge, `{"metadata":{"labels":null}}`)
		repaired("labels", binding, `"labels":null`)
		request(t, k, "DELETE", role, "", "")
		repaired("deleted role", role, "NotFound")
		request(t, k, "DELETE", binding, "", "")
		repaired("deleted binding", binding, "NotFound")
		// A binding that leads elsewhere can only be replaced.
		r.stop()
		request(t, k, "DELETE", binding, "", "")
		request(t, k, "POST", bindingPath, jsonMIME, `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRoleBinding","metadata":{"name":"liqo:peer:`+string(barnID)+
			`"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"view"},"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"eve"}]}`)
		again := start(whole, r.kubeconfig, r.reg, r.decisions)
		repaired("binding to another role", binding, `"name":"view"`)
		r = again
	})

	t.Run("taken away", func(t *testing.T) {
		r.decisions.change(barnID, func(s *plan.Policy) { s.Blocked = true })
		awaitGone(t, k, rolePath+"/liqo:peer:"+string(barnID))
		awaitGone(t, k, bindingPath+"/liqo:peer:"+string(barnID))
		within(t, "refusal", func() error {
			for _, path := range []string{prPath, advPath} {
				if got := me.try("GET", own(path), "", ""); got != 403 {
					return fmt.Errorf("GET %s: %d", path, got)
				}
			}
			return nil
		})
	})
	if _, err := get(t, k, string(barnID)); err != nil {
		t.Error(err)
	}
}
