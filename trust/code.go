package trust

import (
	"bytes"
	"crypto/sha256"
	"encoding/base32"
	"strings"

	"liqo.io/agent/peer"
)

const (
	codeDomain = "liqo-agent verification code v1"
	// codeHalf is how many characters each key contributes: 100 bits.
	codeHalf  = 20
	codeGroup = 5
)

// crockford is base32 in Crockford's alphabet, in lower case: without the
// letters i, l, o and u nothing can be misread.
var crockford = base32.NewEncoding("0123456789abcdefghjkmnpqrstvwxyz").WithPadding(base32.NoPadding)

// Code returns the verification code of two keys, which both sides of a peering
// show to the people who compare it: 8 groups of 5 characters. It is the same
// whichever key comes first, and "" when one of them is unknown.
//
// Each key is hashed on its own, into 20 characters. Somebody in the middle,
// who shows each side a key of his own, therefore has to find a key that hashes
// to 100 given bits, once for each side: one hash over both keys would let him
// search for two that collide, which takes the square root of that work.
func Code(a, b peer.Fingerprint) string {
	if a.IsZero() || b.IsZero() {
		return ""
	}
	if bytes.Compare(a[:], b[:]) > 0 {
		a, b = b, a
	}
	all := codePart(a) + codePart(b)
	var groups []string
	for i := 0; i < len(all); i += codeGroup {
		groups = append(groups, all[i:i+codeGroup])
	}
	return strings.Join(groups, "-")
}

func codePart(fp peer.Fingerprint) string {
	sum := sha256.Sum256(append([]byte(codeDomain), fp[:]...))
	return crockford.EncodeToString(sum[:])[:codeHalf]
}
