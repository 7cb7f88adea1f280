package serving

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// errNone: there is no certificate yet.
var errNone = errors.New("there is no certificate for the kubelet API yet")

// ownLife is how long a certificate signed by itself lasts. Who accepts one does
// not look at anything in it.
const ownLife = 10 * 365 * 24 * time.Hour

// maxName is how long a common name may be (RFC 5280, ub-common-name).
const maxName = 64

func commonName(subject Subject) string {
	name := "system:node:" + subject.Name
	return name[:min(len(name), maxName)]
}

// names is the subject as the signer for kubelets wants it.
func names(subject Subject) pkix.Name {
	return pkix.Name{CommonName: commonName(subject), Organization: []string{"system:nodes"}}
}

func newKey() (*ecdsa.PrivateKey, error) { return ecdsa.GenerateKey(elliptic.P256(), rand.Reader) }

// selfSigned makes a certificate that nobody else vouches for.
func selfSigned(subject Subject) (*tls.Certificate, error) {
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	now := time.Now()
	template := &x509.Certificate{SerialNumber: serial, Subject: names(subject), IPAddresses: []net.IP{subject.Address.AsSlice()},
		NotBefore: now.Add(-5 * time.Minute), NotAfter: now.Add(ownLife),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, nil
}

// assemble makes a certificate of a chain in PEM and its key, and checks that they
// belong together.
func assemble(chain, key []byte) (*tls.Certificate, error) {
	certificate, err := tls.X509KeyPair(chain, key)
	if err != nil {
		return nil, err
	}
	if certificate.Leaf == nil {
		if certificate.Leaf, err = x509.ParseCertificate(certificate.Certificate[0]); err != nil {
			return nil, err
		}
	}
	return &certificate, nil
}

func encodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

// read reads the file that write wrote: nil without an error when there is none.
func read(file string) (*tls.Certificate, error) {
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	certificate, err := assemble(text, text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return certificate, nil
}

// write writes key and chain into one file that only its owner can read, at once
// or not at all.
func write(file string, certificate *tls.Certificate) error {
	key, ok := certificate.PrivateKey.(*ecdsa.PrivateKey)
	if !ok {
		return fmt.Errorf("unexpected key of type %T", certificate.PrivateKey)
	}
	text, err := encodeKey(key)
	if err != nil {
		return err
	}
	var out bytes.Buffer
	out.Write(text)
	for _, der := range certificate.Certificate {
		out.Write(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	}
	dir := filepath.Dir(file)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	temporary, err := os.CreateTemp(dir, "kubelet-*.tmp") // with mode 0600
	if err != nil {
		return err
	}
	_, err = temporary.Write(out.Bytes())
	if err = errors.Join(err, temporary.Sync(), temporary.Close()); err == nil {
		err = os.Rename(temporary.Name(), file)
	}
	if err != nil {
		return errors.Join(err, os.Remove(temporary.Name()))
	}
	return nil
}
