package trust

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"liqo.io/agent/peer"
)

func fixedID(id peer.ClusterID) func() peer.ClusterID { return func() peer.ClusterID { return id } }

// chainOf returns the certificates an issuer shows now, parsed.
func chainOf(t testing.TB, i *Issuer) []*x509.Certificate {
	t.Helper()
	cert, err := i.GetCertificate(nil)
	if err != nil {
		t.Fatal(err)
	}
	return parse(t, cert.Certificate...)
}

func parse(t testing.TB, ders ...[]byte) []*x509.Certificate {
	t.Helper()
	var certs []*x509.Certificate
	for _, der := range ders {
		c, err := x509.ParseCertificate(der)
		if err != nil {
			t.Fatal(err)
		}
		certs = append(certs, c)
	}
	return certs
}

func TestIssuedChainVerifies(t *testing.T) {
	key := mustKey(t)
	certs := chainOf(t, NewIssuer(key, fixedID("0558de48-097b-4b7d-ba04-6bd2a0f9d24f")))
	for _, now := range []time.Time{{}, time.Now(), time.Now().Add(-24 * time.Hour), time.Now().Add(23 * time.Hour)} {
		shown, err := Verify(certs, now)
		if err != nil || shown.Fingerprint != key.Fingerprint() {
			t.Errorf("at %v: %v, %v", now, shown.Fingerprint, err)
		}
	}
	if got := certs[0].URIs; len(got) != 1 || got[0].String() != "liqo:cluster:0558de48-097b-4b7d-ba04-6bd2a0f9d24f" {
		t.Errorf("URIs %v", got)
	}
	// The standard verifier agrees, for those who trust the CA certificate.
	roots := x509.NewCertPool()
	roots.AddCert(key.CA())
	if _, err := certs[0].Verify(x509.VerifyOptions{Roots: roots}); err != nil {
		t.Errorf("crypto/x509: %v", err)
	}
	// The key itself, in a single certificate.
	if shown, err := Verify([]*x509.Certificate{key.CA()}, time.Time{}); err != nil || shown.Fingerprint != key.Fingerprint() {
		t.Errorf("single certificate: %v, %v", shown.Fingerprint, err)
	}
}

func TestIssuerRenews(t *testing.T) {
	start := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	now, id := start, peer.ClusterID("a")
	issuer := NewIssuer(mustKey(t), func() peer.ClusterID { return id })
	issuer.now = func() time.Time { return now }
	serial := func() string {
		certs := chainOf(t, issuer)
		if _, err := Verify(certs, now); err != nil {
			t.Errorf("at %v: %v", now, err)
		}
		return certs[0].SerialNumber.String()
	}
	last := serial()
	for _, step := range []struct {
		name  string
		at    time.Time
		id    peer.ClusterID
		renew bool
	}{
		{"a minute later", start.Add(time.Minute), "a", false},
		{"half a day later", start.Add(12 * time.Hour), "a", false},
		{"before it expires", start.Add(17 * time.Hour), "a", true},
		{"clock set forward", start.AddDate(5, 0, 0), "a", true},
		{"clock set back to 1970", time.Unix(30, 0), "a", true},
		{"clock set by NTP", start, "a", true},
		{"small step back", start.Add(-time.Hour), "a", false},
		{"another cluster ID", start, "b", true},
		{"no cluster ID", start, "", true},
	} {
		now, id = step.at, step.id
		got := serial()
		if (got != last) != step.renew {
			t.Errorf("%s: renewed %v, want %v", step.name, got != last, step.renew)
		}
		last = got
	}
}

// The issuer's own clock carries a monotonic reading, which runs on through a
// jump of the wall clock; renewal must go by the wall clock.
func TestIssuerLooksAtTheWallClock(t *testing.T) {
	issuer := NewIssuer(mustKey(t), fixedID("a"))
	if _, err := issuer.current(); err != nil {
		t.Fatal(err)
	}
	if issuer.issued != issuer.issued.Round(0) {
		t.Error("the time of issue carries a monotonic reading")
	}
}

func TestIssuerIsSafeForConcurrentUse(t *testing.T) {
	base := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	var mu sync.Mutex
	offset := time.Duration(0)
	issuer := NewIssuer(mustKey(t), fixedID("a"))
	issuer.now = func() time.Time {
		mu.Lock()
		defer mu.Unlock()
		offset += 5 * time.Hour
		return base.Add(offset)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 20 {
				cert, err := issuer.GetClientCertificate(nil)
				if err != nil {
					t.Error(err)
					return
				}
				public := cert.PrivateKey.(*ecdsa.PrivateKey).Public().(*ecdsa.PublicKey)
				if !public.Equal(cert.Leaf.PublicKey) {
					t.Error("private key and certificate do not belong together")
				}
			}
		})
	}
	wg.Wait()
}

// forge issues a leaf over a new key after edit has had its way with the
// template.
func forge(t testing.TB, signer *ecdsa.PrivateKey, parent *x509.Certificate, edit func(*x509.Certificate)) *x509.Certificate {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(7),
		Subject:      pkix.Name{CommonName: "forged"},
		NotBefore:    time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if edit != nil {
		edit(template)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, private.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	return parse(t, der)[0]
}

func TestAttacksOnTheChain(t *testing.T) {
	victim, attacker := mustKey(t), mustKey(t)
	victimChain := chainOf(t, NewIssuer(victim, fixedID("victim")))
	attackerChain := chainOf(t, NewIssuer(attacker, fixedID("victim")))
	// A CA of the attacker's under the victim's very name.
	namesake := *victim.CA()
	namesake.PublicKey = nil

	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	rsaTemplate := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageDigitalSignature}
	rsaDER, err := x509.CreateCertificate(rand.Reader, rsaTemplate, rsaTemplate, rsaKey.Public(), rsaKey)
	if err != nil {
		t.Fatal(err)
	}
	own := func(edit func(*x509.Certificate)) *x509.Certificate {
		return forge(t, victim.private, victim.CA(), edit)
	}
	notCA := own(nil)

	for _, tc := range []struct {
		name  string
		certs []*x509.Certificate
		now   time.Time
		says  string
	}{
		{"nothing", nil, time.Time{}, "no certificate"},
		{"victim's CA behind a leaf of another CA", []*x509.Certificate{attackerChain[0], victim.CA()}, time.Time{}, "another issuer"},
		{"leaf that names the victim's CA, signed by another key",
			[]*x509.Certificate{forge(t, attacker.private, &namesake, nil), victim.CA()}, time.Time{}, "not signed by"},
		{"huge chain", slices.Repeat(victimChain, 500), time.Time{}, "at most 11"},
		{"more successions than make sense", append(slices.Clone(victimChain), slices.Repeat([]*x509.Certificate{attacker.CA()}, 9)...), time.Time{}, "at most 8"},
		{"two fleet certificates", append(slices.Clone(victimChain), notCA, notCA), time.Time{}, "at most 1"},
		{"RSA behind a good chain", append(slices.Clone(victimChain), parse(t, rsaDER)...), time.Time{}, "its key is RSA"},
		{"large certificate behind a good chain", append(slices.Clone(victimChain), own(func(c *x509.Certificate) {
			c.ExtraExtensions = []pkix.Extension{{Id: []int{1, 2, 3, 4}, Value: make([]byte, maxCertificate)}}
		})), time.Time{}, "at most 8192"},
		{"leaf that is a CA", []*x509.Certificate{own(func(c *x509.Certificate) {
			c.IsCA, c.KeyUsage = true, c.KeyUsage|x509.KeyUsageCertSign
		}), victim.CA()}, time.Time{}, "itself a CA"},
		{"leaf as a CA", []*x509.Certificate{notCA, notCA}, time.Time{}, "not a CA certificate"},
		{"server only", []*x509.Certificate{own(func(c *x509.Certificate) {
			c.ExtKeyUsage = c.ExtKeyUsage[:1]
		}), victim.CA()}, time.Time{}, "both ends"},
		{"no signatures", []*x509.Certificate{own(func(c *x509.Certificate) {
			c.KeyUsage = x509.KeyUsageKeyAgreement
		}), victim.CA()}, time.Time{}, "may not sign"},
		{"critical extension", []*x509.Certificate{own(func(c *x509.Certificate) {
			c.ExtraExtensions = []pkix.Extension{{Id: []int{1, 2, 3, 4}, Critical: true, Value: []byte{5, 0}}}
		}), victim.CA()}, time.Time{}, "critical extension"},
		{"large certificate", []*x509.Certificate{own(func(c *x509.Certificate) {
			c.ExtraExtensions = []pkix.Extension{{Id: []int{1, 2, 3, 4}, Value: make([]byte, maxCertificate)}}
		}), victim.CA()}, time.Time{}, "at most 8192"},
		{"RSA", parse(t, rsaDER), time.Time{}, "its key is RSA"},
		{"expired, dates matter", []*x509.Certificate{own(func(c *x509.Certificate) {
			c.NotAfter = time.Now().Add(-time.Minute)
		}), victim.CA()}, time.Now(), "valid from"},
		{"not yet valid, dates matter", []*x509.Certificate{own(func(c *x509.Certificate) {
			c.NotBefore = time.Now().Add(time.Minute)
		}), victim.CA()}, time.Now(), "valid from"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			shown, err := Verify(tc.certs, tc.now)
			if err == nil || !shown.Fingerprint.IsZero() {
				t.Fatalf("accepted as %v, %v", shown.Fingerprint, err)
			}
			if !strings.Contains(err.Error(), tc.says) {
				t.Errorf("error %q does not say %q", err, tc.says)
			}
		})
	}

	// For a pinned peer an expired certificate is as good as a fresh one.
	expired := own(func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) })
	if shown, err := Verify([]*x509.Certificate{expired, victim.CA()}, time.Time{}); err != nil || shown.Fingerprint != victim.Fingerprint() {
		t.Errorf("expired, dates do not matter: %v, %v", shown.Fingerprint, err)
	}
}

// Whatever is shown, alone or behind a good chain, the result is an error or the
// fingerprint of the key of the first or second certificate, and no key but those
// that the seeds' old key signed succeeds it, and none but the one that the
// seeds' fleet CA certified is certified.
func FuzzVerify(f *testing.F) {
	keys := lineage(f, 3)
	old, key := keys[0], keys[2]
	fleet := newTestFleet(f, "Fleet")
	certified := fleetCertificate(f, fleet, key, "a", nil)
	chain := chainOf(f, NewIssuer(bare(key), fixedID("a")))
	strangers := chainOf(f, NewIssuer(mustKey(f), fixedID("a")))
	add := func(certs ...*x509.Certificate) {
		var der []byte
		for _, cert := range certs {
			der = append(der, cert.Raw...)
		}
		f.Add(der, false)
		f.Add(der, true)
	}
	add(chain...)
	add(chain[1])
	add(chain[1], chain[1])
	add(forge(f, key.private, key.CA(), nil), key.CA())
	add(append(slices.Clone(chain), key.Successions()...)...)
	add(key.Successions()...)
	add(append(key.Successions(), certified)...)
	add(slices.Concat(chain, key.Successions(), []*x509.Certificate{certified})...)
	add(strangers...)
	f.Fuzz(func(t *testing.T, der []byte, behind bool) {
		certs, err := x509.ParseCertificates(der)
		if err != nil {
			return
		}
		if behind {
			certs = append(slices.Clone(strangers), certs...)
		}
		shown, err := Verify(certs, time.Time{})
		if err != nil {
			if !shown.Fingerprint.IsZero() || shown.CA != nil || shown.extras != nil {
				t.Error("an error comes with a result")
			}
			return
		}
		holder := certs[min(2, len(certs))-1]
		if shown.Fingerprint != peer.FingerprintOf(holder.RawSubjectPublicKeyInfo) {
			t.Error("the fingerprint is not that of the chain")
		}
		if len(certs) > 1 && certs[0].CheckSignatureFrom(holder) != nil {
			t.Error("the leaf is not signed by the certificate behind it")
		}
		if shown.Succeeds(old.Fingerprint()) && shown.Fingerprint != key.Fingerprint() && shown.Fingerprint != keys[1].Fingerprint() {
			t.Error("a stranger's key succeeds")
		}
		if _, err := shown.Certified([]*x509.Certificate{fleet.cert}, "a", certified.NotBefore); err == nil && shown.Fingerprint != key.Fingerprint() {
			t.Error("a stranger's key is certified")
		}
		if _, err := VerifyNamed(certs, "edge.example.com", x509.NewCertPool(), certified.NotBefore); err == nil && !isClusterCA(holder) {
			t.Error("nobody vouches for the name, but it is accepted")
		}
	})
}

func BenchmarkVerify(b *testing.B) {
	chain := chainOf(b, NewIssuer(mustKey(b), fixedID("a")))
	for b.Loop() {
		if _, err := Verify(chain, time.Time{}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkIssue(b *testing.B) {
	key := mustKey(b)
	for b.Loop() {
		if _, err := key.issue("a", time.Now()); err != nil {
			b.Fatal(err)
		}
	}
}
