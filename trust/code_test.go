package trust

import (
	"bytes"
	"crypto/rand"
	"regexp"
	"strings"
	"testing"

	"liqo.io/agent/peer"
)

func repeated(b byte) peer.Fingerprint {
	return peer.Fingerprint(bytes.Repeat([]byte{b}, 32))
}

func counting(from byte) peer.Fingerprint {
	var fp peer.Fingerprint
	for i := range fp {
		fp[i] = from + byte(i)
	}
	return fp
}

// The codes were computed by another implementation: both ends of a peering have
// to show the same one for as long as there are agents.
func TestCodeKnownAnswers(t *testing.T) {
	for _, tc := range []struct {
		a, b peer.Fingerprint
		want string
	}{
		{repeated(1), repeated(2), "9es1a-4d19b-pmc74-nw1hf-79s6y-ah3xj-qccas-pyjff"},
		{repeated(1), repeated(3), "9es1a-4d19b-pmc74-nw1hf-m7fmf-pseyx-5xb2s-wqz2p"},
		{repeated(0xff), repeated(0x7f), "ftqds-tv78j-ab4p9-6kq79-t4rfw-kv2h3-fvrf3-wemat"},
		{counting(0), counting(32), "ndg56-7m1nc-5syd9-drcj5-m75m1-0p803-e8g08-4035f"},
		{peer.Fingerprint{}, repeated(1), ""},
		{repeated(1), peer.Fingerprint{}, ""},
	} {
		if got := Code(tc.a, tc.b); got != tc.want {
			t.Errorf("Code(%v, %v) = %q, want %q", tc.a, tc.b, got, tc.want)
		}
		if got := Code(tc.b, tc.a); got != tc.want {
			t.Errorf("the code depends on the order of %v and %v: %q", tc.a, tc.b, got)
		}
	}
}

// Replacing one key changes every group of that key's half, and no group of the
// other's: each half is 100 bits that belong to one key.
func TestCodeHalvesBelongToKeys(t *testing.T) {
	format := regexp.MustCompile(`^([0-9a-hjkmnp-tv-z]{5}-){7}[0-9a-hjkmnp-tv-z]{5}$`)
	for range 100 {
		low, high, other := repeated(0x10), repeated(0xf0), repeated(0x20)
		_, _ = rand.Read(low[1:])
		_, _ = rand.Read(high[1:])
		_, _ = rand.Read(other[1:])
		code := strings.Split(Code(low, high), "-")
		if s := strings.Join(code, "-"); !format.MatchString(s) {
			t.Fatalf("code %q", s)
		}
		instead := strings.Split(Code(other, high), "-")
		above := strings.Split(Code(low, repeated(0xff)), "-")
		for i := range 4 {
			if code[i] == instead[i] || code[i+4] != instead[i+4] {
				t.Errorf("another lower key: %v became %v", code, instead)
			}
			if code[i] != above[i] || code[i+4] == above[i+4] {
				t.Errorf("another higher key: %v became %v", code, above)
			}
		}
	}
	// A single bit is enough.
	low := repeated(1)
	low[31] ^= 1
	if a, b := Code(repeated(1), repeated(2))[:23], Code(low, repeated(2))[:23]; a == b {
		t.Errorf("a flipped bit left the code as it was: %s", a)
	}
}
