package workload

import corev1 "k8s.io/api/core/v1"

// Config returns the server-side apply body (JSON) of the provider's copy of cm, or
// why it is not sent. The same ConfigMap gives the same bytes.
func Config(cm *corev1.ConfigMap, in Origin) ([]byte, *Refusal) {
	return nil, nil
}

// SecretOf is what [Config] is, for a Secret. Credentials of the consumer's own API
// server are refused.
func SecretOf(s *corev1.Secret, in Origin) ([]byte, *Refusal) {
	return nil, nil
}

// SameConfig reports whether theirs is the copy that [Config] makes of mine.
func SameConfig(mine, theirs *corev1.ConfigMap, in Origin) bool { return false }

// SameSecret reports whether theirs is the copy that [SecretOf] makes of mine.
func SameSecret(mine, theirs *corev1.Secret, in Origin) bool { return false }
