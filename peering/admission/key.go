package admission

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

const (
	// KeyFile is the name of the key's file in the state directory: one PEM block
	// "PRIVATE KEY" (PKCS#8), mode 0600.
	KeyFile = "admission.key"

	keyBlock   = "PRIVATE KEY"
	maxKeyFile = 16 << 10 // of 241 bytes, or of whatever somebody put there
)

// identity is how the server shows that it is the one the configuration means.
type identity struct {
	certificate tls.Certificate
	bundle      []byte // the CA in PEM
}

// loadIdentity reads the key in dir, or makes one when there is none or it cannot
// be used, and computes the certificates.
func loadIdentity(dir string, logger *slog.Logger) (*identity, error) {
	path := filepath.Join(dir, KeyFile)
	private, err := readKey(path)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			logger.Warn("the key of the admission webhook cannot be used and is replaced; the configuration of the webhook follows automatically",
				"file", path, "error", err)
		}
		if private, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
			return nil, fmt.Errorf("generate the key of the admission webhook: %w", err)
		}
		if err := writeKey(dir, path, private); err != nil {
			return nil, fmt.Errorf("keep the key of the admission webhook: %w; user id %d must be able to write %s (state.dir sets the directory)",
				err, os.Geteuid(), path)
		}
	}
	return newIdentity(private)
}

// readKey returns the key at path. Its error wraps fs.ErrNotExist when there is
// none.
func readKey(path string) (*ecdsa.PrivateKey, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a FIFO does not keep it waiting
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	switch mode := info.Mode(); {
	case !mode.IsRegular():
		return nil, fmt.Errorf("it is not a regular file but %s", mode)
	case mode.Perm()&0o077 != 0:
		return nil, fmt.Errorf("its mode %04o lets others read or change it", mode.Perm())
	}
	data, err := io.ReadAll(io.LimitReader(f, maxKeyFile))
	if err != nil {
		return nil, err
	}
	return parseKey(data)
}

func parseKey(data []byte) (*ecdsa.PrivateKey, error) {
	block, rest := pem.Decode(data)
	if block == nil || block.Type != keyBlock || len(bytes.TrimSpace(rest)) != 0 {
		return nil, fmt.Errorf("it is not one PEM block %q", keyBlock)
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, err
	}
	private, ok := parsed.(*ecdsa.PrivateKey)
	if !ok || private.Curve != elliptic.P256() {
		return nil, errors.New("it is not an ECDSA key on P-256")
	}
	return private, nil
}

// writeKey puts the key at path in one step: after a power cut there is the whole
// key or none.
func writeKey(dir, path string, private *ecdsa.PrivateKey) error {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return err
	}
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return err
	}
	temp, err := os.CreateTemp(dir, "."+KeyFile+".*") // mode 0600
	if err != nil {
		return err
	}
	_, err = temp.Write(pem.EncodeToMemory(&pem.Block{Type: keyBlock, Bytes: der}))
	if err == nil {
		err = temp.Sync()
	}
	if err = errors.Join(err, temp.Close()); err == nil {
		err = os.Rename(temp.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(temp.Name()))
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// newIdentity computes the certificates of a key. The same key gives the same
// certificates, byte for byte.
func newIdentity(private *ecdsa.PrivateKey) (*identity, error) {
	spki, err := x509.MarshalPKIXPublicKey(private.Public())
	if err != nil {
		return nil, fmt.Errorf("encode the public key of the admission webhook: %w", err)
	}
	hash := sha256.Sum256(spki)
	certificate := func(serial byte, name string) *x509.Certificate {
		return &x509.Certificate{
			SerialNumber: new(big.Int).SetBytes(append([]byte{serial}, hash[:15]...)),
			Subject:      pkix.Name{CommonName: fmt.Sprintf("%s %x", name, hash[:8])},
			// From before any clock can stand to the value that RFC 5280 section
			// 4.1.2.5 has for "does not expire": the API server looks at dates, and on
			// an edge device its clock may be anywhere.
			NotBefore:             time.Unix(0, 0).UTC(),
			NotAfter:              time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC),
			BasicConstraintsValid: true,
			SubjectKeyId:          hash[:20],
		}
	}
	loopback := []net.IP{net.IPv4(127, 0, 0, 1).To4(), net.IPv6loopback}

	root := certificate(1, "liqo admission CA")
	root.IsCA, root.MaxPathLenZero, root.KeyUsage = true, true, x509.KeyUsageCertSign
	leaf := certificate(2, "liqo admission")
	leaf.KeyUsage, leaf.ExtKeyUsage = x509.KeyUsageDigitalSignature, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	leaf.IPAddresses = loopback

	rootDER, err := x509.CreateCertificate(nil, root, root, private.Public(), deterministic{private})
	if err != nil {
		return nil, fmt.Errorf("issue the CA of the admission webhook: %w", err)
	}
	leafDER, err := x509.CreateCertificate(nil, leaf, root, private.Public(), deterministic{private})
	if err != nil {
		return nil, fmt.Errorf("issue the certificate of the admission webhook: %w", err)
	}
	return &identity{
		certificate: tls.Certificate{Certificate: [][]byte{leafDER}, PrivateKey: private},
		bundle:      pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: rootDER}),
	}, nil
}

// deterministic makes ECDSA signatures a function of key and message (RFC 6979),
// which the standard library does when it is given no source of randomness.
type deterministic struct{ *ecdsa.PrivateKey }

func (d deterministic) Sign(_ io.Reader, digest []byte, opts crypto.SignerOpts) ([]byte, error) {
	return d.PrivateKey.Sign(nil, digest, opts)
}
