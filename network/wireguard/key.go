package wireguard

import (
	"crypto/ecdh"
	"crypto/rand"
	"errors"
	"fmt"
)

// KeyLen is the length of a key in bytes.
const KeyLen = 32

// Key is a private, public or preshared key. The zero Key is none.
type Key [KeyLen]byte

// String hides the key: it may be a secret.
func (Key) String() string { return "(key)" }

// ParseKey reads the key that somebody else says.
func ParseKey(b []byte) (Key, error) {
	if len(b) != KeyLen {
		return Key{}, fmt.Errorf("a key of %d bytes, in place of %d", len(b), KeyLen)
	}
	k := Key(b)
	if k == (Key{}) {
		return Key{}, errors.New("a key of zeros")
	}
	return k, nil
}

// NewKey returns a key that nobody knows, private or preshared.
func NewKey() Key {
	var k Key
	_, _ = rand.Read(k[:]) // never fails
	return k
}

// Public returns the public key of a private one.
func (k Key) Public() (Key, error) {
	private, err := ecdh.X25519().NewPrivateKey(k[:])
	if err != nil {
		return Key{}, fmt.Errorf("use a key of WireGuard: %w", err)
	}
	return Key(private.PublicKey().Bytes()), nil
}
