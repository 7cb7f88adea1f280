package admission

import (
	"encoding/base64"
	"maps"
	"net"
	"strconv"

	"liqo.io/agent/api"
)

const (
	// WebhookName is the name of the ValidatingWebhookConfiguration.
	WebhookName = "liqo-agent"
	// WebhookPath is where it is, for the API server's REST interface.
	WebhookPath = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/" + WebhookName

	// hookName is how the API server calls the webhook when it tells people what
	// it refused.
	hookName = "peeringrequests.discovery.liqo.io"

	admitPath = "/admit/peeringrequests"

	// timeoutSeconds is how long the API server waits for an answer, which takes
	// milliseconds.
	timeoutSeconds = 5
)

// Webhook returns the ValidatingWebhookConfiguration that has the API server ask
// this server, as JSON decodes it; nil while the server does not listen. It is
// the same after every restart that gets the same port. Everything that an API
// server would fill in is said, so that its webhooks can be compared with what
// is there.
func (s *Server) Webhook() map[string]any {
	return s.configuration("ValidatingWebhookConfiguration", WebhookName, admitPath, map[string]any{
		"name": hookName,
		"rules": []any{map[string]any{
			"apiGroups":   []any{ours.Group},
			"apiVersions": []any{ours.Version},
			"resources":   []any{ours.Resource}, // not its status
			"operations":  []any{OperationCreate, OperationUpdate},
			"scope":       "Cluster",
		}},
		"failurePolicy":     "Fail",
		"timeoutSeconds":    float64(timeoutSeconds),
		"namespaceSelector": map[string]any{},
	})
}

// configuration returns what registers a webhook on this server, as JSON decodes it; nil
// while the server does not listen.
func (s *Server) configuration(kind, name, path string, webhook map[string]any) map[string]any {
	address, ok := s.address()
	if !ok {
		return nil
	}
	maps.Copy(webhook, map[string]any{
		"clientConfig": map[string]any{
			"url":      "https://" + net.JoinHostPort(address.Addr().String(), strconv.Itoa(int(address.Port()))) + path,
			"caBundle": base64.StdEncoding.EncodeToString(s.identity.bundle),
		},
		"matchPolicy":             "Equivalent",
		"sideEffects":             "None",
		"admissionReviewVersions": []any{"v1"},
		"objectSelector":          map[string]any{},
	})
	return map[string]any{
		"apiVersion": "admissionregistration.k8s.io/v1",
		"kind":       kind,
		"metadata":   map[string]any{"name": name, "labels": map[string]any{api.LabelManagedBy: api.ManagedByAgent}},
		"webhooks":   []any{webhook},
	}
}
