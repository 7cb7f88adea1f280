package document

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
)

// The types of PEM blocks.
const (
	pemPublicKey   = "PUBLIC KEY"
	pemPrivateKey  = "PRIVATE KEY"
	pemRequest     = "CERTIFICATE REQUEST"
	pemCertificate = "CERTIFICATE"
)

const (
	maxKey         = 4 << 10 // of a key in PEM, in bytes
	minRSA, maxRSA = 2048, 8192
)

// publicKey is what all public keys of the standard library are.
type publicKey interface {
	Equal(other crypto.PublicKey) bool
}

// oneBlock returns what the only PEM block in text has, which must be of that type.
func oneBlock(text []byte, kind string, limit int) ([]byte, error) {
	if len(text) > limit {
		return nil, fmt.Errorf("it has %d bytes; at most %d make sense", len(text), limit)
	}
	block, rest := pem.Decode(text)
	switch {
	case block == nil || !bytes.HasPrefix(text, []byte("-----BEGIN ")):
		return nil, errors.New("it is not PEM")
	case block.Type != kind || len(block.Headers) > 0:
		return nil, fmt.Errorf("it is not a %s in PEM", kind)
	case len(bytes.TrimSpace(rest)) > 0:
		return nil, errors.New("something follows behind it")
	}
	return block.Bytes, nil
}

// parsePublicKey reads a public key of one of the kinds that Liqo has: Ed25519, RSA or ECDSA. One of
// Ed25519 may be its bytes alone, as before 1.0.2.
func parsePublicKey(text []byte) (publicKey, error) {
	if len(text) == ed25519.PublicKeySize {
		return ed25519.PublicKey(text), nil
	}
	der, err := oneBlock(text, pemPublicKey, maxKey)
	if err != nil {
		return nil, err
	}
	key, err := x509.ParsePKIXPublicKey(der)
	if err != nil {
		return nil, err
	}
	return checkKey(key)
}

func checkKey(key crypto.PublicKey) (publicKey, error) {
	switch k := key.(type) {
	case ed25519.PublicKey:
		return k, nil
	case *ecdsa.PublicKey:
		return k, nil
	case *rsa.PublicKey:
		if bits := k.N.BitLen(); bits < minRSA || bits > maxRSA {
			return nil, fmt.Errorf("an RSA key of %d bits is not used; it has %d to %d", bits, minRSA, maxRSA)
		}
		return k, nil
	}
	return nil, errors.New("it is of a kind that is not known")
}

// signed reports whether signature is that of the nonce by the holder of key, as Liqo makes it
// (pkg/liqo-controller-manager/authentication/keys.go).
func signed(key publicKey, nonce Nonce, signature []byte) bool {
	sum := sha256.Sum256([]byte(nonce))
	switch k := key.(type) {
	case ed25519.PublicKey:
		return ed25519.Verify(k, []byte(nonce), signature)
	case *rsa.PublicKey:
		return rsa.VerifyPKCS1v15(k, crypto.SHA256, sum[:], signature) == nil
	case *ecdsa.PublicKey:
		return ecdsa.VerifyASN1(k, sum[:], signature)
	}
	return false
}

// Keys are the key pair with which a cluster signs nonces and asks for certificates.
type Keys struct {
	signer crypto.Signer
	public publicKey
}

// ParseKeys reads the fields of the Secret authentication-keys of this cluster.
func ParseKeys(private, public []byte) (Keys, error) {
	der, err := oneBlock(private, pemPrivateKey, 4*maxKey)
	if err != nil {
		return Keys{}, fmt.Errorf("the private key cannot be read: %w", err)
	}
	key, err := x509.ParsePKCS8PrivateKey(der)
	if err != nil {
		return Keys{}, fmt.Errorf("the private key cannot be read: %w", err)
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return Keys{}, errors.New("the private key is of a kind that signs nothing")
	}
	own, err := checkKey(signer.Public())
	if err != nil {
		return Keys{}, fmt.Errorf("the private key cannot be used: %w", err)
	}
	stated, err := parsePublicKey(public)
	if err != nil {
		return Keys{}, fmt.Errorf("the public key cannot be read: %w", err)
	}
	if !own.Equal(stated) {
		return Keys{}, errors.New("the private key and the public key do not belong together")
	}
	return Keys{signer, own}, nil
}

// encoded returns the public key as a Tenant has it: for Ed25519 in the form that Liqo knows since 1.0.0.
func (k Keys) encoded() ([]byte, error) {
	if raw, ok := k.public.(ed25519.PublicKey); ok {
		return raw, nil
	}
	der, err := x509.MarshalPKIXPublicKey(k.public)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: pemPublicKey, Bytes: der}), nil
}

// Certified reports whether a certificate in PEM is for the key.
func (k Keys) Certified(text []byte) bool {
	chain, err := certificates(text, maxCA, maxChain)
	return err == nil && k.public.Equal(chain[0].PublicKey)
}
