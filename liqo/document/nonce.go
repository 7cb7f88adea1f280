package document

import (
	"encoding/base64"
	"errors"
)

// nonceBytes is how many random bytes a nonce has, before they are encoded
// (noncecreator-controller).
const nonceBytes = 64

// Nonce is what a provider has a consumer sign, so that nobody shows the key of another
// cluster: the text of 64 random bytes in base64.
type Nonce string

// ParseNonce reads a nonce. Only what Liqo makes is one: the key that signs it also proves the
// consumer's identity in TLS and signs its requests for certificates, and a provider that had
// it sign something of its choice could use that elsewhere. In base64 there is nothing that
// means anything to either.
func ParseNonce(b []byte) (Nonce, error) {
	if len(b) != base64.StdEncoding.EncodedLen(nonceBytes) {
		return "", errors.New("the nonce is not 64 bytes in base64")
	}
	random, err := base64.StdEncoding.Strict().DecodeString(string(b))
	// The decoder reads over line breaks.
	if err != nil || base64.StdEncoding.EncodeToString(random) != string(b) {
		return "", errors.New("the nonce is not 64 bytes in base64")
	}
	return Nonce(b), nil
}
