package trust

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"slices"
	"time"

	"liqo.io/agent/peer"
)

// Key is a cluster's long-lived key together with the CA certificate over it.
// It is immutable.
type Key struct {
	private     *ecdsa.PrivateKey
	fingerprint peer.Fingerprint
	ca          *x509.Certificate

	successions  []*x509.Certificate // newest first
	chainProblem error
}

// Fingerprint returns the SHA-256 of the public key, by which peers know this
// cluster.
func (k *Key) Fingerprint() peer.Fingerprint { return k.fingerprint }

// CA returns the self-signed CA certificate over the key. It is computed, not
// stored: the same key gives the same certificate, byte for byte, at every
// start. The caller must not change it.
func (k *Key) CA() *x509.Certificate { return k.ca }

// Successions returns the certificates by which earlier keys of the cluster
// handed over, newest first: the first is over this key, signed by the one
// before it, and so on; at most 8. The caller must not change them.
func (k *Key) Successions() []*x509.Certificate { return slices.Clone(k.successions) }

// ChainProblem returns what was wrong with the file of the succession
// certificates (ChainFile) when the key was loaded, or nil. The key is good all
// the same: those of the certificates that could be read are in use. Peers that
// know the cluster by a key from before a lost one will not follow.
func (k *Key) ChainProblem() error { return k.chainProblem }

// PublicPEM returns the public half of the key as a PEM block "PUBLIC KEY", for
// SignFleet.
func (k *Key) PublicPEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: publicBlock, Bytes: k.ca.RawSubjectPublicKeyInfo})
}

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
		Subject:      keyName(fp),
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

// keyName is the subject of the CA certificate over the key with fingerprint fp.
func keyName(fp peer.Fingerprint) pkix.Name {
	return pkix.Name{CommonName: "liqo cluster key " + fp.String()[:16]}
}

// rawKeyName is keyName as it stands in a certificate, nil for the unknown key.
func rawKeyName(fp peer.Fingerprint) []byte {
	if fp.IsZero() {
		return nil
	}
	raw, err := asn1.Marshal(keyName(fp).ToRDNSequence())
	if err != nil {
		return nil // no certificate has an empty name in this place
	}
	return raw
}

// rfc6979 makes ECDSA signatures a function of key and message (RFC 6979),
// which the standard library does when it is given no source of randomness.
type rfc6979 struct{ *ecdsa.PrivateKey }

func (s rfc6979) Sign(_ io.Reader, digest []byte, opts crypto.SignerOpts) ([]byte, error) {
	return s.PrivateKey.Sign(nil, digest, opts)
}
