package trust

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"liqo.io/agent/peer"
	"liqo.io/agent/peer/text"
)

const (
	// maxNamedChain is the longest chain from a public CA that is looked at: a
	// leaf and more intermediates than any of them uses.
	maxNamedChain = 8
	// maxRSA is the largest RSA key of a public CA that is used, in bits. A
	// stranger must not choose how long a signature check takes; crypto/tls has
	// the same limit.
	maxRSA = 8192
	// maxNames is how many host names a request may have.
	maxNames = 20
	// maxCommonName is the longest common name there is (RFC 5280 appendix A.1).
	maxCommonName = 64
)

// VerifyNamed is Verify for a client that called a host name. A cluster chain
// is accepted as Verify does without dates. Any other chain is accepted if
// roots (nil: those of the system) vouch for name at now and the leaf's key is
// ECDSA P-256: it then is the cluster key, Name is set, ID and CA are not.
//
// Where the dates of a public certificate count, the clock must be right: a
// clock that is not set is ErrClock.
func VerifyNamed(certs []*x509.Certificate, name string, roots *x509.CertPool, now time.Time) (Shown, error) {
	shown, err := Verify(certs, time.Time{})
	if err == nil && isClusterCA(shown.CA) {
		return shown, nil
	}
	if len(certs) == 0 {
		return Shown{}, err
	}
	if len(certs) > 1 && isClusterCA(certs[1]) {
		return Shown{}, err // it is meant to be a cluster chain, and a bad one
	}
	name, err = vouched(certs, name, roots, now)
	if err != nil {
		return Shown{}, fmt.Errorf("it shows no certificate of a cluster key, and the one it shows proves nothing: %w", err)
	}
	return Shown{Fingerprint: peer.FingerprintOf(certs[0].RawSubjectPublicKeyInfo), Name: name}, nil
}

// vouched returns the host name, as it is compared, for which roots vouch.
func vouched(certs []*x509.Certificate, name string, roots *x509.CertPool, now time.Time) (string, error) {
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	if name == "" {
		return "", errors.New("no host name was called") // crypto/x509 would accept any
	}
	if _, err := netip.ParseAddr(strings.Trim(name, "[]")); err == nil {
		return "", fmt.Errorf("certificate authorities vouch for host names, and %s is an address", name)
	}
	if len(certs) > maxNamedChain {
		return "", fmt.Errorf("%d certificates were shown, at most %d make sense", len(certs), maxNamedChain)
	}
	leaf, behind := certs[0], x509.NewCertPool()
	if err := checkBounds(leaf); err != nil {
		return "", err
	}
	if leaf.KeyUsage&x509.KeyUsageDigitalSignature == 0 {
		return "", errors.New("the certificate's key may not sign a TLS handshake")
	}
	for _, cert := range certs[1:] {
		if len(cert.Raw) > maxCertificate {
			return "", fmt.Errorf("a certificate has %d bytes, at most %d are allowed", len(cert.Raw), maxCertificate)
		}
		if key, ok := cert.PublicKey.(*rsa.PublicKey); ok && key.N.BitLen() > maxRSA {
			return "", fmt.Errorf("an RSA key has %d bits, at most %d are allowed", key.N.BitLen(), maxRSA)
		}
		behind.AddCert(cert)
	}
	if err := checkClock(now); err != nil {
		return "", err
	}
	// KeyUsages is left at its default, a TLS server.
	_, err := leaf.Verify(x509.VerifyOptions{DNSName: name, Intermediates: behind, Roots: roots, CurrentTime: now})
	if err != nil {
		return "", err
	}
	return name, nil
}

// CSR returns a certificate request (PKCS#10, PEM) over the cluster key for the
// host names under which the endpoint is called, for a public CA. See LoadNamed
// for what comes back.
func (k *Key) CSR(names []string) ([]byte, error) {
	if len(names) == 0 || len(names) > maxNames {
		return nil, fmt.Errorf("certificate request for %d host names: want 1 to %d", len(names), maxNames)
	}
	for _, name := range names {
		if err := checkHostName(name); err != nil {
			return nil, fmt.Errorf("certificate request for %q: %w", text.Excerpt(name), err)
		}
	}
	template := &x509.CertificateRequest{DNSNames: names}
	if len(names[0]) <= maxCommonName {
		template.Subject.CommonName = names[0]
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, template, k.private)
	if err != nil {
		return nil, fmt.Errorf("make a certificate request: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: requestBlock, Bytes: der}), nil
}

// checkHostName checks what a public CA puts into a certificate: a DNS name with
// at least two labels (RFC 1123 section 2.1), the first of which may be "*".
func checkHostName(name string) error {
	if len(name) > 253 {
		return fmt.Errorf("a host name has at most 253 bytes, this one has %d", len(name))
	}
	if _, err := netip.ParseAddr(name); err == nil {
		return errors.New("want a host name, not an address")
	}
	labels := strings.Split(strings.TrimPrefix(name, "*."), ".")
	if len(labels) < 2 {
		return errors.New("want a full host name, such as edge.example.com")
	}
	for _, label := range labels {
		if !hostLabel(label) {
			return errors.New("a host name consists of letters, digits, and inner hyphens, with dots between its parts")
		}
	}
	return nil
}

func hostLabel(s string) bool {
	for _, c := range []byte(s) {
		if c != '-' && (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') {
			return false
		}
	}
	return s != "" && len(s) <= 63 && s[0] != '-' && s[len(s)-1] != '-'
}

// LoadNamed reads a certificate chain for the endpoint's host name, in PEM, leaf
// first, as a public CA gives out for a request made with Key.CSR. The
// certificate must be over the cluster key itself: a name is then vouched for
// together with the key. Dates are not looked at.
func LoadNamed(k *Key, file string) (*tls.Certificate, error) {
	certs, err := readCertificates(file, maxNamedChain)
	if err != nil {
		return nil, err
	}
	leaf := certs[0]
	if got := peer.FingerprintOf(leaf.RawSubjectPublicKeyInfo); got != k.fingerprint {
		return nil, fmt.Errorf("%s: the first certificate is over the key %s, but the cluster key is %s; "+
			"have a certificate issued for a request made with the cluster key", file, got, k.fingerprint)
	}
	switch {
	case len(leaf.DNSNames) == 0:
		return nil, fmt.Errorf("%s: the first certificate names no host; have one issued for the endpoint's host name", file)
	case leaf.KeyUsage&x509.KeyUsageDigitalSignature == 0:
		return nil, fmt.Errorf("%s: the first certificate does not allow its key to sign a TLS handshake; have one issued for a TLS server", file)
	}
	named := &tls.Certificate{PrivateKey: k.private, Leaf: leaf}
	for _, cert := range certs {
		named.Certificate = append(named.Certificate, cert.Raw)
	}
	return named, nil
}
