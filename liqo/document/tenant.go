package document

import (
	"bytes"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
)

const (
	maxTenant    = 16 << 10 // of the document, in bytes
	maxRequest   = 8 << 10  // of a request for a certificate in PEM
	maxSignature = 1 << 10
)

// Tenant is what a consumer gives to its provider: who it is, proven by the signed nonce, and
// its request for a certificate. The names are those of a Tenant's spec.
type Tenant struct {
	ClusterID ClusterID `json:"clusterID"`
	PublicKey []byte    `json:"publicKey"` // PEM, or the bytes of a key of Ed25519
	CSR       []byte    `json:"csr"`       // PEM
	Signature []byte    `json:"signature"`
}

// NewTenant makes the Tenant of the consumer with these keys, for the provider of the nonce
// that was signed. The result is the same each time.
func NewTenant(id ClusterID, keys Keys, nonce Nonce, signature []byte) (Tenant, error) {
	if !signed(keys.public, nonce, signature) {
		return Tenant{}, errors.New("the signature of the nonce is not that of this cluster's key")
	}
	public, err := keys.encoded()
	if err != nil {
		return Tenant{}, err
	}
	// Without a source of randomness, keys of all kinds sign the same way each time (RFC 6979 for ECDSA): Liqo
	// gives a certificate for the first request only.
	der, err := x509.CreateCertificateRequest(nil, &x509.CertificateRequest{
		Subject: pkix.Name{CommonName: string(id), Organization: []string{organization}},
	}, keys.signer)
	if err != nil {
		return Tenant{}, fmt.Errorf("request a certificate: %w", err)
	}
	return Tenant{
		ClusterID: id, PublicKey: public, Signature: signature,
		CSR: pem.EncodeToMemory(&pem.Block{Type: pemRequest, Bytes: der}),
	}, nil
}

// ParseTenant reads the Tenant that the cluster with that ID sends in answer to a nonce.
func ParseTenant(body []byte, from ClusterID, nonce Nonce) (Tenant, error) {
	var t Tenant
	if err := decode(body, maxTenant, &t); err != nil {
		return Tenant{}, fmt.Errorf("the Tenant cannot be read: %w", err)
	}
	if err := t.Check(from, nonce); err != nil {
		return Tenant{}, err
	}
	return t, nil
}

// Check checks a Tenant, which may be one that is stored, as ParseTenant does.
func (t Tenant) Check(from ClusterID, nonce Nonce) error {
	if t.ClusterID != from {
		return fmt.Errorf("the Tenant is not that of cluster %s", from)
	}
	key, err := parsePublicKey(t.PublicKey)
	if err != nil {
		return fmt.Errorf("the public key of the Tenant cannot be used: %w", err)
	}
	if len(t.Signature) > maxSignature || !signed(key, nonce, t.Signature) {
		return errors.New("the Tenant has no valid signature of the nonce")
	}
	if err := checkRequest(t.CSR, from, key); err != nil {
		return fmt.Errorf("the certificate that the Tenant requests is not given: %w", err)
	}
	return nil
}

// checkRequest checks that a request is for exactly the certificate of a control plane. Liqo
// itself looks only at the first organization, and each of them is a group in Kubernetes.
func checkRequest(text []byte, id ClusterID, key publicKey) error {
	der, err := oneBlock(text, pemRequest, maxRequest)
	if err != nil {
		return err
	}
	csr, err := x509.ParseCertificateRequest(der)
	if err != nil {
		return err
	}
	switch {
	case !isControlPlane(csr.Subject, id):
		return fmt.Errorf("its subject is not CN=%s, O=%s alone", id, organization)
	case len(csr.Extensions) > 0:
		return errors.New("it asks for extensions")
	case !key.Equal(csr.PublicKey):
		return errors.New("it is not for the key that signed the nonce")
	}
	return csr.CheckSignature()
}

// isControlPlane reports whether a subject is that of a cluster's control plane, and nothing
// else.
func isControlPlane(subject pkix.Name, id ClusterID) bool {
	return len(subject.Names) == 2 && subject.CommonName == string(id) && slices.Equal(subject.Organization, []string{organization})
}

// Equal reports whether t and o say the same. Both were checked.
func (t Tenant) Equal(o Tenant) bool {
	key, err := parsePublicKey(t.PublicKey)
	other, otherErr := parsePublicKey(o.PublicKey)
	same := err == nil && otherErr == nil && key.Equal(other)
	return same && t.ClusterID == o.ClusterID && bytes.Equal(t.CSR, o.CSR) && bytes.Equal(t.Signature, o.Signature)
}

// Encode returns the document.
func (t Tenant) Encode() (json.RawMessage, error) { return json.Marshal(t) }
