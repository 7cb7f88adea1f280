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
	// maxSuccessions is how many succession certificates are kept, shown and
	// looked at: a peer that was away while its key was replaced that many times
	// still follows.
	maxSuccessions = 8
	// maxCertificate is the largest certificate in bytes; ours have about 500.
	maxCertificate = 8 << 10
)

// Verify checks the certificates that the other end of a TLS connection shows,
// leaf first, and returns what they prove. The chain is either a leaf and the
// CA certificate that issued it, whose key is the cluster key, or a single
// certificate that holds the cluster key itself. All keys are ECDSA P-256, and
// a leaf must be usable for both ends of a TLS connection.
//
// Behind leaf and CA, in any order, up to 8 succession certificates and one
// fleet certificate may follow. They are looked at by Succeeds and Certified
// only: what is wrong with them does not make a good chain bad, unless they are
// too many, too large or not over P-256 keys.
//
// With the zero time as now, validity periods are not looked at: right for a
// peer known by its fingerprint (see the package comment). Otherwise leaf and
// CA must be valid at now.
//
// Verify does not see whether the other end holds the leaf's private key: that
// only a finished handshake proves, and TLS calls its verification hooks before.
// Whoever keeps the result must wait for the handshake.
func Verify(certs []*x509.Certificate, now time.Time) (Shown, error) {
	chain, extras, err := split(certs)
	if err != nil {
		return Shown{}, err
	}
	for i, cert := range chain {
		if err := checkCertificate(cert, now); err != nil {
			return Shown{}, fmt.Errorf("certificate %d of %d: %w", i+1, len(certs), err)
		}
	}
	leaf, holder := chain[0], chain[len(chain)-1]
	if leaf.KeyUsage&x509.KeyUsageDigitalSignature == 0 {
		return Shown{}, errors.New("the certificate's key may not sign a TLS handshake")
	}
	if len(chain) > 1 {
		if err := checkIssued(leaf, holder); err != nil {
			return Shown{}, err
		}
	}
	return Shown{
		Fingerprint: peer.FingerprintOf(holder.RawSubjectPublicKeyInfo),
		ID:          clusterIDOf(leaf),
		CA:          holder,
		extras:      extras,
	}, nil
}

// split tells the chain from what follows it, and checks that there is not more
// of that than makes sense.
func split(certs []*x509.Certificate) (chain, extras []*x509.Certificate, err error) {
	if len(certs) == 0 {
		return nil, nil, errors.New("no certificate was shown")
	}
	chain, extras = certs[:min(2, len(certs))], certs[min(2, len(certs)):]
	if len(extras) > maxSuccessions+1 {
		return nil, nil, fmt.Errorf("%d certificates were shown, at most %d make sense", len(certs), maxSuccessions+3)
	}
	authorities := 0
	for i, cert := range extras {
		if err := checkBounds(cert); err != nil {
			return nil, nil, fmt.Errorf("certificate %d of %d: %w", i+3, len(certs), err)
		}
		if cert.IsCA {
			authorities++
		}
	}
	switch others := len(extras) - authorities; {
	case authorities > maxSuccessions:
		return nil, nil, fmt.Errorf("%d succession certificates were shown, at most %d make sense", authorities, maxSuccessions)
	case others > 1:
		return nil, nil, fmt.Errorf("%d fleet certificates were shown, at most 1 makes sense", others)
	}
	return chain, extras, nil
}

// checkBounds checks what keeps the cost of a stranger's certificate small.
func checkBounds(cert *x509.Certificate) error {
	if len(cert.Raw) > maxCertificate {
		return fmt.Errorf("it has %d bytes, at most %d are allowed", len(cert.Raw), maxCertificate)
	}
	// One kind of key bounds the cost of checking a stranger's signature.
	if !onP256(cert.PublicKey) {
		return fmt.Errorf("its key is %s, not ECDSA on P-256 as agents use", cert.PublicKeyAlgorithm)
	}
	return nil
}

func onP256(public any) bool {
	key, ok := public.(*ecdsa.PublicKey)
	return ok && key.Curve == elliptic.P256()
}

// checkCertificate checks what must hold for a certificate wherever it stands
// in the chain.
func checkCertificate(cert *x509.Certificate, now time.Time) error {
	if err := checkBounds(cert); err != nil {
		return err
	}
	if len(cert.UnhandledCriticalExtensions) != 0 {
		return fmt.Errorf("it has the critical extension %v, which is not understood", cert.UnhandledCriticalExtensions[0])
	}
	if now.IsZero() {
		return nil
	}
	return checkDates(cert, now)
}

func checkDates(cert *x509.Certificate, now time.Time) error {
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
	case !isClusterCA(ca):
		return errors.New("the CA certificate behind the leaf is not that of a cluster key")
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

// isClusterCA reports whether cert calls itself what the CA certificate of its
// key is called. Without that, a leaf from a CA that serves many (a company's,
// or a public one) would prove that CA's key to be its holder's cluster key, and
// so would everybody else's leaf from there.
func isClusterCA(cert *x509.Certificate) bool {
	want := rawKeyName(peer.FingerprintOf(cert.RawSubjectPublicKeyInfo))
	return bytes.Equal(cert.RawSubject, want) && bytes.Equal(cert.RawIssuer, want)
}
