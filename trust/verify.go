package trust

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"time"

	"liqo.io/agent/peer"
)

const (
	// maxChain is the longest chain there is: a leaf and the CA that is the
	// cluster key.
	maxChain = 2
	// maxCertificate is the largest certificate in bytes; ours have about 500.
	maxCertificate = 8 << 10
)

// VerifyChain checks the certificates that the other end of a TLS connection
// shows, leaf first, and returns the fingerprint of the cluster key behind
// them. The chain is either a leaf signed by the CA certificate that follows,
// whose key then is the cluster key, or a single certificate that holds the
// cluster key itself. All keys are ECDSA P-256, and a leaf must be usable for
// both ends of a TLS connection.
//
// With the zero time as now, validity periods are not looked at: right for a
// peer known by its fingerprint (see the package comment). Otherwise every
// certificate must be valid at now.
//
// VerifyChain does not see whether the other end holds the leaf's private key:
// that only a finished handshake proves, and TLS calls its verification hooks
// before. Whoever keeps the result must wait for the handshake.
func VerifyChain(certs []*x509.Certificate, now time.Time) (peer.Fingerprint, error) {
	var none peer.Fingerprint
	if len(certs) == 0 {
		return none, errors.New("no certificate was shown")
	}
	if len(certs) > maxChain {
		return none, fmt.Errorf("%d certificates were shown, at most %d make sense", len(certs), maxChain)
	}
	for i, cert := range certs {
		if err := checkCertificate(cert, now); err != nil {
			return none, fmt.Errorf("certificate %d of %d: %w", i+1, len(certs), err)
		}
	}
	leaf, holder := certs[0], certs[len(certs)-1]
	if leaf.KeyUsage&x509.KeyUsageDigitalSignature == 0 {
		return none, errors.New("the certificate's key may not sign a TLS handshake")
	}
	if len(certs) > 1 {
		if err := checkIssued(leaf, holder); err != nil {
			return none, err
		}
	}
	return peer.FingerprintOf(holder.RawSubjectPublicKeyInfo), nil
}

// checkCertificate checks what must hold for a certificate wherever it stands
// in the chain.
func checkCertificate(cert *x509.Certificate, now time.Time) error {
	if len(cert.Raw) > maxCertificate {
		return fmt.Errorf("it has %d bytes, at most %d are allowed", len(cert.Raw), maxCertificate)
	}
	// One kind of key bounds the cost of checking a stranger's signature.
	key, ok := cert.PublicKey.(*ecdsa.PublicKey)
	if !ok || key.Curve != elliptic.P256() {
		return fmt.Errorf("its key is %s, not ECDSA on P-256 as agents use", cert.PublicKeyAlgorithm)
	}
	if len(cert.UnhandledCriticalExtensions) != 0 {
		return fmt.Errorf("it has the critical extension %v, which is not understood", cert.UnhandledCriticalExtensions[0])
	}
	if now.IsZero() {
		return nil
	}
	if now.Before(cert.NotBefore) || now.After(cert.NotAfter) {
		return fmt.Errorf("it is valid from %s to %s, and here it is %s",
			cert.NotBefore.UTC().Format(time.RFC3339), cert.NotAfter.UTC().Format(time.RFC3339), now.UTC().Format(time.RFC3339))
	}
	return nil
}

// checkIssued checks that ca may sign leaf and did.
func checkIssued(leaf, ca *x509.Certificate) error {
	switch {
	case !ca.BasicConstraintsValid || !ca.IsCA:
		return errors.New("the certificate behind the leaf is not a CA certificate")
	case ca.KeyUsage&x509.KeyUsageCertSign == 0:
		return errors.New("the CA certificate's key may not sign certificates")
	case leaf.IsCA:
		return errors.New("the leaf is itself a CA certificate")
	case !bytes.Equal(leaf.RawIssuer, ca.RawSubject):
		return errors.New("the leaf names another issuer than the certificate behind it")
	case !slices.Contains(leaf.ExtKeyUsage, x509.ExtKeyUsageServerAuth) || !slices.Contains(leaf.ExtKeyUsage, x509.ExtKeyUsageClientAuth):
		return errors.New("the leaf is not meant for both ends of a TLS connection")
	}
	if err := leaf.CheckSignatureFrom(ca); err != nil {
		return fmt.Errorf("the leaf is not signed by the CA certificate behind it: %w", err)
	}
	return nil
}
