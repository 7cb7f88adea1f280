package trust

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"io"
	"math/big"
	"time"

	"liqo.io/agent/peer"
)

// Key is a cluster's long-lived key together with the CA certificate over it.
// It is immutable.
type Key struct {
	private     *ecdsa.PrivateKey
	fingerprint peer.Fingerprint
	ca          *x509.Certificate
}

// Fingerprint returns the SHA-256 of the public key, by which peers know this
// cluster.
func (k *Key) Fingerprint() peer.Fingerprint { return k.fingerprint }

// CA returns the self-signed CA certificate over the key. It is computed, not
// stored: the same key gives the same certificate, byte for byte, at every
// start. The caller must not change it.
func (k *Key) CA() *x509.Certificate { return k.ca }

// generateKey makes a new cluster key in memory.
func generateKey() (*Key, error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generate the cluster key: %w", err)
	}
	return newKey(private)
}

// newKey wraps private, which must be on P-256, and issues its CA certificate.
func newKey(private *ecdsa.PrivateKey) (*Key, error) {
	spki, err := x509.MarshalPKIXPublicKey(private.Public())
	if err != nil {
		return nil, fmt.Errorf("encode the public half of the cluster key: %w", err)
	}
	fp := peer.FingerprintOf(spki)
	template := &x509.Certificate{
		// Everything is a function of the key, so that the certificate is too.
		// The subject says no name and no ID: both may change, the key stays.
		SerialNumber: new(big.Int).SetBytes(append([]byte{1}, fp[:15]...)),
		Subject:      pkix.Name{CommonName: "liqo cluster key " + fp.String()[:16]},
		// The validity is the longest there is: from before any clock can
		// stand to the value RFC 5280 section 4.1.2.5 gives to certificates
		// that do not expire. A CA date would only ever lock a box out.
		NotBefore:             time.Unix(0, 0).UTC(),
		NotAfter:              time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC),
		IsCA:                  true,
		BasicConstraintsValid: true,
		MaxPathLenZero:        true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		SubjectKeyId:          fp[:20],
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), rfc6979{private})
	if err != nil {
		return nil, fmt.Errorf("issue the CA certificate of the cluster key: %w", err)
	}
	ca, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("read back the CA certificate of the cluster key: %w", err)
	}
	return &Key{private: private, fingerprint: fp, ca: ca}, nil
}

// rfc6979 makes ECDSA signatures a function of key and message (RFC 6979),
// which the standard library does when it is given no source of randomness.
type rfc6979 struct{ *ecdsa.PrivateKey }

func (s rfc6979) Sign(_ io.Reader, digest []byte, opts crypto.SignerOpts) ([]byte, error) {
	return s.PrivateKey.Sign(nil, digest, opts)
}
