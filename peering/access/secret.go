package access

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/agent/peer"
	"liqo.io/agent/peering/plan"
)

// The keys of the Secret with a peer's identity.
const (
	secretCA          = "ca.crt"
	secretFingerprint = "fingerprint"
	secretClusterID   = "clusterID"
	secretNamespace   = "namespace"

	secretType = "Opaque"
)

// wantedSecret is the Secret with the identity of a peer.
func wantedSecret(id peer.ClusterID, namespace string, identity plan.Secret) *secret {
	data := map[string][]byte{
		secretFingerprint: []byte(identity.Fingerprint.String()),
		secretClusterID:   []byte(id),
		secretNamespace:   []byte(identity.Namespace),
	}
	if len(identity.CA) > 0 {
		data[secretCA] = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: identity.CA})
	}
	return &secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: gvkSecret.Kind},
		ObjectMeta: metav1.ObjectMeta{Name: plan.SecretName(id), Namespace: namespace, Labels: peerLabels(id)},
		Type:       secretType,
		Data:       data,
	}
}

// shows reports whether s says what wanted does; it may say more.
func (s *secret) shows(wanted *secret) bool {
	for key, value := range wanted.Data {
		if found, ok := s.Data[key]; !ok || !bytes.Equal(found, value) {
			return false
		}
	}
	return s.Type == wanted.Type && hasLabels(s, wanted.Labels)
}

// readSecret returns the identity that a Secret holds. What is damaged is left
// out, and then it is not intact.
func readSecret(id peer.ClusterID, s *secret) *plan.Secret {
	out := &plan.Secret{Namespace: string(s.Data[secretNamespace])}
	var err error
	if out.Fingerprint, err = peer.ParseFingerprint(string(s.Data[secretFingerprint])); err != nil {
		return out
	}
	if text, ok := s.Data[secretCA]; ok {
		block, _ := pem.Decode(text)
		if block == nil || block.Type != "CERTIFICATE" {
			return out
		}
		ca, err := x509.ParseCertificate(block.Bytes)
		if err != nil || peer.FingerprintOf(ca.RawSubjectPublicKeyInfo) != out.Fingerprint {
			return out
		}
		out.CA = block.Bytes
	}
	out.Intact = s.shows(wantedSecret(id, s.Namespace, *out))
	return out
}
