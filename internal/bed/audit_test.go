//go:build linux

package bed

import (
	"net/http"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
)

// A token that was issued is accepted, and what its user asks is written down.
func TestAudit(t *testing.T) {
	k := New(t).AddCluster(t.Context(), "barn", "10.77.0.1/24")
	if err := k.Apply(t.Context(), `{apiVersion: v1, kind: Namespace, metadata: {name: liqo}}
---
{apiVersion: v1, kind: ServiceAccount, metadata: {name: liqo-agent, namespace: liqo}}
---
{apiVersion: v1, kind: Secret, metadata: {name: token, namespace: liqo, annotations: {kubernetes.io/service-account.name: liqo-agent}}, type: kubernetes.io/service-account-token}
`); err != nil {
		t.Fatal(err)
	}
	if err := k.IssueToken(t.Context(), "liqo", "token"); err != nil {
		t.Fatal(err)
	}
	var secret struct{ Data map[string][]byte }
	if err := k.read(t.Context(), "/api/v1/namespaces/liqo/secrets/token", &secret); err != nil {
		t.Fatal(err)
	}
	if events, err := k.Audit(); err != nil || len(events) > 0 {
		t.Errorf("before any request of the user's: %+v, %v", events, err)
	}
	config := k.RESTConfig()
	config.CertData, config.KeyData, config.BearerToken = nil, nil, string(secret.Data["token"])
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := client.Get(config.Host + "/api/v1/namespaces/shop/pods/web/status")
	if err != nil {
		t.Fatal(err)
	}
	if err := answer.Body.Close(); err != nil || answer.StatusCode != http.StatusForbidden {
		t.Errorf("%s, %v", answer.Status, err)
	}
	events, err := k.Audit()
	if err != nil || len(events) != 1 {
		t.Fatalf("%+v, %v", events, err)
	}
	event := events[0]
	if event.Verb != "get" || event.ObjectRef.Resource != "pods" || event.ObjectRef.Subresource != "status" || event.ObjectRef.Namespace != "shop" ||
		event.ObjectRef.Name != "web" || event.ImpersonatedUser != nil || event.ResponseStatus.Code != http.StatusForbidden ||
		!strings.Contains(event.ResponseStatus.Message, "forbidden") {
		t.Errorf("%+v", event)
	}
}
