package trust

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestDamagedChainFile(t *testing.T) {
	dir := t.TempDir()
	keys := []*Key{mustLoad(t, dir)}
	for range 3 {
		keys = append(keys, mustRotate(t, dir, keys[len(keys)-1]))
	}
	last, path := keys[3], filepath.Join(dir, ChainFile)
	good := mustRead(t, path)
	first := bytes.Index(good[1:], []byte("-----BEGIN")) + 1
	flipped := bytes.Clone(good)
	flipped[first+200] ^= 1
	foreign := encodeCertificates(mustKey(t).CA(), handover(t, mustKey(t), mustKey(t)))
	forged := encodeCertificates(forgeSuccession(t, keys[2], mustKey(t), last, nil))
	loop := encodeCertificates(handover(t, last, last), handover(t, keys[2], last), handover(t, last, keys[2]), handover(t, keys[1], keys[2]))
	for _, tc := range []struct {
		name    string
		content []byte
		leads   int // certificates that are used
		says    string
	}{
		{"whole", good, 3, ""},
		{"empty", nil, 0, "no certificate"},
		{"comments", append([]byte("# kept\n"), good...), 3, ""},
		{"cut off in the second", good[:first+100], 1, "incomplete or damaged"},
		{"cut off in the first", good[:100], 0, "incomplete or damaged"},
		{"the first damaged", append([]byte("-----BEGIN CERTIFICATE-----\nAA\n"), good...), 0, "incomplete or damaged"},
		{"flipped bit in the second", flipped, 1, ""},
		{"of other keys", foreign, 0, ""},
		{"of other keys first", append(bytes.Clone(foreign), good...), 3, ""},
		{"a forged one first", append(bytes.Clone(forged), good...), 3, ""},
		{"with loops", loop, 2, ""},
		{"zeros", make([]byte, 100), 0, "no certificate"},
		{"a key", pem.EncodeToMemory(&pem.Block{Type: keyBlock, Bytes: []byte{1}}), 0, `"PRIVATE KEY"`},
		{"too many", bytes.Repeat(good, 20), 3, "more than 32"},
		{"too large", bytes.Repeat(good, 200), 0, "larger than"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if err := os.WriteFile(path, tc.content, 0o600); err != nil {
				t.Fatal(err)
			}
			key, err := LoadOrCreateKey(dir)
			if err != nil || key.Fingerprint() != last.Fingerprint() {
				t.Fatalf("the key is lost: %v, %v", key, err)
			}
			if len(key.Successions()) != tc.leads {
				t.Errorf("%d certificates, want %d", len(key.Successions()), tc.leads)
			}
			if shown := shownBy(t, key); tc.leads > 0 && !shown.Succeeds(keys[3-tc.leads].Fingerprint()) {
				t.Error("the certificates do not lead to the key")
			}
			switch problem := key.ChainProblem(); {
			case tc.name == "flipped bit in the second":
				// The bit may hit the encoding or the signature.
			case (problem != nil) != (tc.says != ""):
				t.Errorf("problem %v", problem)
			case problem != nil && (!strings.Contains(problem.Error(), tc.says) || !strings.Contains(problem.Error(), path)):
				t.Errorf("problem %q does not say %q and where", problem, tc.says)
			}
		})
	}
}

func TestChainFileOfManyRotations(t *testing.T) {
	last, certs := mustKey(t), []*x509.Certificate(nil)
	for key := last; len(certs) < maxSuccessions+2; {
		old := mustKey(t)
		certs, key = append(certs, handover(t, old, key)), old
	}
	chain, err := parseChain(encodeCertificates(certs...), last.Fingerprint())
	if err != nil || !slices.EqualFunc(chain, certs[:maxSuccessions], (*x509.Certificate).Equal) {
		t.Errorf("%d certificates, %v", len(chain), err)
	}
}

// Whatever is in the file: the certificates used lead to the key, one by one.
func FuzzParseChain(f *testing.F) {
	keys := lineage(f, 4)
	last := keys[3]
	good := encodeCertificates(last.Successions()...)
	f.Add(good)
	f.Add(good[:len(good)/2])
	f.Add(append([]byte("# x\n-----BEGIN\n"), good...))
	f.Add(encodeCertificates(handover(f, last, keys[0]), handover(f, keys[0], last)))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		chain, _ := parseChain(data, last.Fingerprint())
		if len(chain) > maxSuccessions {
			t.Fatalf("%d certificates", len(chain))
		}
		shown := Shown{Fingerprint: last.Fingerprint(), extras: chain}
		for _, cert := range chain {
			st, ok := stepOf(cert)
			if !ok || !shown.Succeeds(st.from) {
				t.Error("a certificate does not lead to the key")
			}
		}
	})
}
