package admission

import (
	"encoding/base64"
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
	address, ok := s.address()
	if !ok {
		return nil
	}
	url := "https://" + net.JoinHostPort(address.Addr().String(), strconv.Itoa(int(address.Port()))) + admitPath
	return map[string]any{
		"apiVersion": "admissionregistration.k8s.io/v1",
		"kind":       "ValidatingWebhookConfiguration",
		"metadata": map[string]any{
			"name":   WebhookName,
			"labels": map[string]any{api.LabelManagedBy: api.ManagedByAgent},
		},
		"webhooks": []any{map[string]any{
			"name": hookName,
			"clientConfig": map[string]any{
				"url":      url,
				"caBundle": base64.StdEncoding.EncodeToString(s.identity.bundle),
			},
			"rules": []any{map[string]any{
				"apiGroups":   []any{ours.Group},
				"apiVersions": []any{ours.Version},
				"resources":   []any{ours.Resource}, // not its status
				"operations":  []any{OperationCreate, OperationUpdate},
				"scope":       "Cluster",
			}},
			"failurePolicy":           "Fail",
			"matchPolicy":             "Equivalent",
			"sideEffects":             "None",
			"timeoutSeconds":          float64(timeoutSeconds),
			"admissionReviewVersions": []any{"v1"},
			"namespaceSelector":       map[string]any{},
			"objectSelector":          map[string]any{},
		}},
	}
}
