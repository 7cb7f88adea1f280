package trust

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net/url"
	"strings"
	"time"
	"unicode/utf8"

	"liqo.io/agent/peer"
	"liqo.io/agent/peer/text"
)

const (
	// signBackdate is how long before its issue a fleet's certificate is valid
	// already, for devices whose clock is behind.
	signBackdate = 24 * time.Hour
	maxFleetYear = 100
)

// NewFleetCA makes a CA for a fleet: a P-256 key (PKCS#8, to be kept offline by
// whoever runs the fleet) and a certificate over it, valid from the day before now
// for that many years, which goes onto every device. name is for people.
func NewFleetCA(name string, years int, now time.Time) (certPEM, keyPEM []byte, err error) {
	switch {
	case strings.TrimSpace(name) == "" || !text.Printable(name) || utf8.RuneCountInString(name) > maxCommonName:
		return nil, nil, fmt.Errorf("name of the fleet CA %q: want 1 to %d printable characters", text.Excerpt(name), maxCommonName)
	case years < 1 || years > maxFleetYear:
		return nil, nil, fmt.Errorf("a fleet CA for %d years: want 1 to %d", years, maxFleetYear)
	}
	if err := checkClock(now); err != nil {
		return nil, nil, err
	}
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("generate the key of the fleet CA: %w", err)
	}
	serial, err := newSerial()
	if err != nil {
		return nil, nil, err
	}
	template := &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{CommonName: name},
		NotBefore:             now.Add(-signBackdate).UTC(),
		NotAfter:              now.AddDate(years, 0, 0).UTC(),
		IsCA:                  true,
		BasicConstraintsValid: true,
		MaxPathLenZero:        true,
		KeyUsage:              x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		return nil, nil, fmt.Errorf("issue the certificate of the fleet CA: %w", err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return nil, nil, fmt.Errorf("encode the key of the fleet CA: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: certificateBlock, Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: keyBlock, Bytes: keyDER}), nil
}

// SignFleet certifies with a fleet CA that the public key publicPEM (as
// Key.PublicPEM writes it) is that of cluster id, for days from now. It needs no
// network and nothing from the device but its public key. The CA's key may be in
// PKCS#8 or SEC1 form, unencrypted, on P-256; of several certificates in
// caCertPEM the one over that key is used.
func SignFleet(caCertPEM, caKeyPEM []byte, id peer.ClusterID, publicPEM []byte, days int, now time.Time) (certPEM []byte, err error) {
	if _, err := peer.ParseClusterID(string(id)); err != nil {
		return nil, err
	}
	if err := checkClock(now); err != nil {
		return nil, err
	}
	signer, err := parseSigner(caKeyPEM)
	if err != nil {
		return nil, fmt.Errorf("key of the fleet CA: %w", err)
	}
	ca, err := authorityOf(caCertPEM, signer)
	if err != nil {
		return nil, fmt.Errorf("certificate of the fleet CA: %w", err)
	}
	public, err := parsePublic(publicPEM)
	if err != nil {
		return nil, fmt.Errorf("public key of the device: %w", err)
	}
	if public.Equal(signer.Public()) {
		return nil, errors.New("public key of the device: it is that of the fleet CA itself; give the device's, as the device prints it")
	}
	if err := checkDates(ca, now); err != nil {
		return nil, fmt.Errorf("certificate of the fleet CA: %w", err)
	}
	if left := int(ca.NotAfter.Sub(now) / (24 * time.Hour)); days < 1 || days > left {
		return nil, fmt.Errorf("a fleet certificate for %d days: want at least 1, and at most the %d that the fleet CA itself is valid", days, left)
	}
	template, err := clusterTemplate(id, now.Add(-signBackdate), now.Add(time.Duration(days)*24*time.Hour))
	if err != nil {
		return nil, err
	}
	der, err := x509.CreateCertificate(rand.Reader, template, ca, public, signer)
	if err != nil {
		return nil, fmt.Errorf("sign the fleet certificate: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: certificateBlock, Bytes: der}), nil
}

// clusterTemplate returns what every certificate of a cluster says.
func clusterTemplate(id peer.ClusterID, from, to time.Time) (*x509.Certificate, error) {
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{CommonName: "liqo cluster " + id.Short()},
		NotBefore:             from.UTC(),
		NotAfter:              to.UTC(),
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageDigitalSignature,
	}
	if id != "" {
		template.URIs = []*url.URL{clusterURL(id)}
	}
	return template, nil
}

func newSerial() (*big.Int, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, fmt.Errorf("draw the serial number of a certificate: %w", err)
	}
	return serial, nil
}

// parseSigner reads a CA's private key in the forms that openssl writes.
func parseSigner(data []byte) (*ecdsa.PrivateKey, error) {
	block, rest := pem.Decode(data)
	if block != nil && block.Type == "EC PARAMETERS" { // openssl ecparam -genkey
		block, rest = pem.Decode(rest)
	}
	if block == nil {
		return nil, errors.New("there is no complete PEM block")
	}
	if len(bytes.TrimSpace(rest)) != 0 {
		return nil, errors.New("there is more after the key")
	}
	var parsed any
	var err error
	switch {
	case block.Type == "ENCRYPTED PRIVATE KEY" || block.Headers["Proc-Type"] != "":
		return nil, errors.New("it is encrypted; decrypt it first: openssl pkey -in FILE -out DECRYPTED")
	case block.Type == keyBlock:
		parsed, err = x509.ParsePKCS8PrivateKey(block.Bytes)
	case block.Type == "EC PRIVATE KEY":
		parsed, err = x509.ParseECPrivateKey(block.Bytes)
	default:
		return nil, fmt.Errorf("there is a PEM block %q, want \"PRIVATE KEY\" or \"EC PRIVATE KEY\"", text.Excerpt(block.Type))
	}
	if err != nil {
		return nil, err
	}
	private, ok := parsed.(*ecdsa.PrivateKey)
	if !ok || !onP256(private.Public()) {
		return nil, fmt.Errorf("it is a %T, want ECDSA on P-256", parsed)
	}
	return private, nil
}

// authorityOf returns the certificate over the key of signer.
func authorityOf(data []byte, signer *ecdsa.PrivateKey) (*x509.Certificate, error) {
	certs, err := parseCertificates(data, maxFleetCAs)
	if err != nil {
		return nil, err
	}
	for _, cert := range certs {
		if public, ok := cert.PublicKey.(*ecdsa.PublicKey); ok && public.Equal(signer.Public()) {
			return cert, checkAuthority(cert)
		}
	}
	return nil, errors.New("there is none over the CA's key: certificate and key do not belong together")
}

// parsePublic reads what Key.PublicPEM writes.
func parsePublic(data []byte) (*ecdsa.PublicKey, error) {
	der, err := onePEM(data, publicBlock)
	if err != nil {
		return nil, err
	}
	parsed, err := x509.ParsePKIXPublicKey(der)
	if err != nil {
		return nil, err
	}
	public, ok := parsed.(*ecdsa.PublicKey)
	if !ok || !onP256(public) {
		return nil, fmt.Errorf("it is a %T, want ECDSA on P-256 as cluster keys are", parsed)
	}
	return public, nil
}
