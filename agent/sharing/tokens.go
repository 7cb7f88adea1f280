package sharing

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/agent/agent/config"
)

// NoTokens returns why pods of a namespace may not have service account tokens with them at
// providers, whatever its labels, as the end of a sentence; "" if they may.
func NoTokens(cfg config.Config, namespace string) string {
	switch {
	case cfg.Sharing.Tokens == config.TokensOff:
		return `sharing.tokens is "off"`
	case namespace == metav1.NamespaceSystem || namespace == cfg.Cluster.Namespace:
		return "those of namespace " + namespace + " never leave this cluster"
	}
	return ""
}
