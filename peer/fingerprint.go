package peer

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"liqo.io/agent/peer/text"
)

// Fingerprint is the SHA-256 of a cluster key's public half in its
// SubjectPublicKeyInfo encoding (RFC 5280 section 4.1). The zero value means
// "unknown" and never matches a key.
type Fingerprint [sha256.Size]byte

// FingerprintOf returns the fingerprint of a DER-encoded SubjectPublicKeyInfo.
func FingerprintOf(spki []byte) Fingerprint {
	return sha256.Sum256(spki)
}

// ParseFingerprint reads the 64 hexadecimal digits that String writes. An
// optional "sha256:" in front and colons between bytes, as other tools print
// them, are accepted.
func ParseFingerprint(s string) (Fingerprint, error) {
	var f Fingerprint
	digits := strings.ReplaceAll(strings.TrimPrefix(strings.ToLower(s), "sha256:"), ":", "")
	raw, err := hex.DecodeString(digits)
	if err != nil || len(raw) != len(f) {
		return Fingerprint{}, fmt.Errorf("fingerprint %q: want the %d hexadecimal digits of a SHA-256", text.Excerpt(s), 2*len(f))
	}
	copy(f[:], raw)
	if f.IsZero() {
		return Fingerprint{}, errors.New("fingerprint is all zeros, which no key has")
	}
	return f, nil
}

// IsZero reports whether f is unknown.
func (f Fingerprint) IsZero() bool { return f == Fingerprint{} }

// String returns 64 lower-case hexadecimal digits, or "" when f is unknown.
func (f Fingerprint) String() string {
	if f.IsZero() {
		return ""
	}
	return hex.EncodeToString(f[:])
}

// MarshalText implements encoding.TextMarshaler as String does.
func (f Fingerprint) MarshalText() ([]byte, error) { return []byte(f.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler; "" is the unknown
// fingerprint.
func (f *Fingerprint) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		*f = Fingerprint{}
		return nil
	}
	parsed, err := ParseFingerprint(string(text))
	if err != nil {
		return err
	}
	*f = parsed
	return nil
}
