package peer

import (
	"crypto/sha256"
	"strings"
	"testing"
)

func TestParseClusterID(t *testing.T) {
	for _, tc := range []struct {
		in string
		ok bool
	}{
		{"0558de48-097b-4b7d-ba04-6bd2a0f9d24f", true},
		{"a", true},
		{"shop-floor-7", true},
		{strings.Repeat("a", 63), true},
		{strings.Repeat("a", 64), false},
		{"", false},
		{"-a", false},
		{"a-", false},
		{"A", false},
		{"a.b", false},
		{"a b", false},
		{"a\x00", false},
		{"é", false},
	} {
		got, err := ParseClusterID(tc.in)
		if (err == nil) != tc.ok {
			t.Errorf("ParseClusterID(%q) error = %v, want ok %v", tc.in, err, tc.ok)
		}
		if tc.ok && string(got) != tc.in {
			t.Errorf("ParseClusterID(%q) = %q", tc.in, got)
		}
	}
}

func TestParseClusterName(t *testing.T) {
	for _, tc := range []struct {
		in string
		ok bool
	}{
		{"barn", true},
		{"Halle 3 / Süd", true},
		{"", false},
		{" barn", false},
		{"barn\n", false},
		{"ba\x1b[31mrn", false},
		{"ba\xffrn", false},
		{strings.Repeat("x", 64), false},
	} {
		if _, err := ParseClusterName(tc.in); (err == nil) != tc.ok {
			t.Errorf("ParseClusterName(%q) error = %v, want ok %v", tc.in, err, tc.ok)
		}
	}
}

func TestFingerprintText(t *testing.T) {
	f := FingerprintOf([]byte("spki"))
	want := sha256.Sum256([]byte("spki"))
	if f != Fingerprint(want) {
		t.Fatalf("FingerprintOf = %v", f)
	}
	colons := "SHA256:"
	for i, b := range strings.ToUpper(f.String()) {
		if i > 0 && i%2 == 0 {
			colons += ":"
		}
		colons += string(b)
	}
	for _, s := range []string{f.String(), "sha256:" + f.String(), colons} {
		got, err := ParseFingerprint(s)
		if err != nil || got != f {
			t.Errorf("ParseFingerprint(%q) = %v, %v", s, got, err)
		}
	}
	for _, s := range []string{"", "00", strings.Repeat("0", 64), strings.Repeat("g", 64), f.String() + "00"} {
		if _, err := ParseFingerprint(s); err == nil {
			t.Errorf("ParseFingerprint(%q) succeeded", s)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("0558de48-097b-4b7d-ba04-6bd2a0f9d24f")
	f.Add("sha256:" + strings.Repeat("ab", 32))
	f.Fuzz(func(t *testing.T, s string) {
		if id, err := ParseClusterID(s); err == nil && (len(id) > MaxClusterIDLength || strings.ToLower(s) != s) {
			t.Errorf("accepted ID %q", s)
		}
		if fp, err := ParseFingerprint(s); err == nil {
			again, err := ParseFingerprint(fp.String())
			if err != nil || again != fp {
				t.Errorf("fingerprint %q does not survive its own text form", s)
			}
		}
		if name, err := ParseClusterName(s); err == nil && strings.ContainsAny(name, "\x00\x1b\n\r") {
			t.Errorf("accepted name %q", s)
		}
	})
}
