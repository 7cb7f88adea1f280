package trust

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"math/big"
	"net/url"

	"liqo.io/agent/peer"
)

// A succession certificate says: the key it is over has taken the place of the
// key that signed it. Those who know only the fingerprint of the signer need its
// public key to check the signature, so the certificate carries it, as the URI
// "liqo:succeeds:<SubjectPublicKeyInfo in unpadded base64url>". That URI also
// tells it from everything else a cluster key signs.

// newSuccession lets old sign that next takes its place. Like the CA certificate
// it is a function of the keys alone, and does not expire.
func newSuccession(old, next *Key) (*x509.Certificate, error) {
	link := sha256.Sum256(append(old.fingerprint[:], next.fingerprint[:]...))
	template := &x509.Certificate{
		SerialNumber:          new(big.Int).SetBytes(append([]byte{1}, link[:15]...)),
		Subject:               keyName(next.fingerprint),
		NotBefore:             next.ca.NotBefore,
		NotAfter:              next.ca.NotAfter,
		IsCA:                  true,
		BasicConstraintsValid: true,
		MaxPathLenZero:        true,
		KeyUsage:              x509.KeyUsageCertSign,
		SubjectKeyId:          next.ca.SubjectKeyId,
		URIs: []*url.URL{{Scheme: "liqo", Opaque: "succeeds:" +
			base64.RawURLEncoding.EncodeToString(old.ca.RawSubjectPublicKeyInfo)}},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, old.ca, next.private.Public(), rfc6979{old.private})
	if err != nil {
		return nil, fmt.Errorf("certify the new cluster key with the old one: %w", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("read back the certificate of the new cluster key: %w", err)
	}
	return cert, nil
}

// step is what a succession certificate claims.
type step struct {
	from, to peer.Fingerprint
	signer   *x509.Certificate // a stand-in that has nothing but the signer's key
	cert     *x509.Certificate
}

// stepOf reads a succession certificate without checking its signature. It
// reports false for every other certificate.
func stepOf(cert *x509.Certificate) (step, bool) {
	if !cert.BasicConstraintsValid || !cert.IsCA || cert.KeyUsage&x509.KeyUsageCertSign == 0 ||
		cert.SignatureAlgorithm != x509.ECDSAWithSHA256 || len(cert.UnhandledCriticalExtensions) != 0 || checkBounds(cert) != nil {
		return step{}, false
	}
	spki, err := base64.RawURLEncoding.DecodeString(onlyURI(cert, succeedsURI))
	if err != nil {
		return step{}, false
	}
	public, err := x509.ParsePKIXPublicKey(spki)
	if err != nil || !onP256(public) {
		return step{}, false
	}
	return step{
		from:   peer.FingerprintOf(spki),
		to:     peer.FingerprintOf(cert.RawSubjectPublicKeyInfo),
		signer: &x509.Certificate{PublicKey: public},
		cert:   cert,
	}, true
}

// signed reports whether the key that is succeeded agrees.
func (s step) signed() bool {
	return s.signer.CheckSignature(s.cert.SignatureAlgorithm, s.cert.RawTBSCertificate, s.cert.Signature) == nil
}

// Succeeds reports whether the succession certificates shown lead from the key
// old to the key shown: whoever held old has handed over, directly or through
// other keys. No key succeeds itself. Dates are not looked at, and at most one
// signature is checked for each certificate shown.
//
// It tells nothing about who hands over: a thief of the old key can do so too.
func (s Shown) Succeeds(old peer.Fingerprint) bool {
	if old.IsZero() || s.Fingerprint.IsZero() || old == s.Fingerprint {
		return false
	}
	var steps []step
	for _, cert := range s.extras {
		if st, ok := stepOf(cert); ok {
			steps = append(steps, st)
		}
	}
	// From the shown key backwards, so that nothing is spent on certificates
	// that do not lead to it.
	leads := map[peer.Fingerprint]bool{s.Fingerprint: true}
	for grown := true; grown && !leads[old]; {
		grown = false
		for i := 0; i < len(steps); i++ {
			st := steps[i]
			if !leads[st.to] {
				continue
			}
			steps = append(steps[:i], steps[i+1:]...)
			i--
			if !leads[st.from] && st.signed() {
				leads[st.from], grown = true, true
			}
		}
	}
	return leads[old]
}
