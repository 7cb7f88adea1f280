package trust

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"math/big"
	"net/url"
	"slices"
	"testing"
	"time"

	"liqo.io/agent/peer"
)

// lineage makes n keys, each but the first with the succession certificates of
// all before it.
func lineage(t testing.TB, n int) []*Key {
	t.Helper()
	keys := []*Key{mustKey(t)}
	for range n - 1 {
		next, old := mustKey(t), keys[len(keys)-1]
		next.successions = append([]*x509.Certificate{handover(t, old, next)}, old.successions...)
		keys = append(keys, next)
	}
	return keys
}

func handover(t testing.TB, old, next *Key) *x509.Certificate {
	t.Helper()
	cert, err := newSuccession(old, next)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

// show verifies a good chain of k with extras behind it.
func show(t testing.TB, k *Key, extras ...*x509.Certificate) Shown {
	t.Helper()
	shown, err := Verify(append(chainOf(t, NewIssuer(bare(k), fixedID("a"))), extras...), time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	if shown.Fingerprint != k.Fingerprint() || shown.ID != "a" || shown.CA == nil || shown.Name != "" {
		t.Fatalf("shown %+v", shown)
	}
	return shown
}

// bare is k without what earlier keys signed.
func bare(k *Key) *Key {
	return &Key{private: k.private, fingerprint: k.fingerprint, ca: k.ca}
}

func TestSuccessorIsFollowed(t *testing.T) {
	keys := lineage(t, maxSuccessions+1)
	last := keys[len(keys)-1]
	shown, err := Verify(chainOf(t, NewIssuer(last, fixedID("a"))), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	for i, old := range keys[:len(keys)-1] {
		if !shown.Succeeds(old.Fingerprint()) {
			t.Errorf("key %d of %d is not succeeded", i+1, len(keys))
		}
	}
	if shown.Succeeds(last.Fingerprint()) || shown.Succeeds(peer.Fingerprint{}) || shown.Succeeds(mustKey(t).Fingerprint()) {
		t.Error("the key succeeds itself, the unknown key or a stranger's")
	}
	// The order of the certificates does not matter.
	extras := last.Successions()
	slices.Reverse(extras)
	if !show(t, last, extras...).Succeeds(keys[0].Fingerprint()) {
		t.Error("not followed with the certificates the other way round")
	}
	// With a gap in the middle, only what is behind it is reached.
	shown = show(t, last, slices.Delete(last.Successions(), 3, 4)...)
	for i, want := range []bool{false, false, false, false, false, true, true, true} {
		if got := shown.Succeeds(keys[i].Fingerprint()); got != want {
			t.Errorf("with a gap: key %d is succeeded: %v, want %v", i, got, want)
		}
	}
}

// forgeSuccession is a succession certificate over next after edit has had its
// way; signer signs, and parent names the issuer.
func forgeSuccession(t testing.TB, claimed, signer, next *Key, edit func(*x509.Certificate)) *x509.Certificate {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(7), Subject: keyName(next.fingerprint),
		NotBefore: time.Unix(0, 0), NotAfter: time.Now().AddDate(10, 0, 0),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
		URIs: []*url.URL{{Scheme: "liqo", Opaque: "succeeds:" + base64.RawURLEncoding.EncodeToString(claimed.ca.RawSubjectPublicKeyInfo)}},
	}
	if edit != nil {
		edit(template)
	}
	parent := *claimed.ca
	parent.PublicKey = nil
	der, err := x509.CreateCertificate(rand.Reader, template, &parent, next.private.Public(), signer.private)
	if err != nil {
		t.Fatal(err)
	}
	return parse(t, der)[0]
}

func TestAttacksOnSuccession(t *testing.T) {
	victim := lineage(t, 4)
	first, mid, last := victim[0], victim[1], victim[3]
	thief, accomplice := mustKey(t), mustKey(t)
	certified := fleetCertificate(t, newTestFleet(t, "first"), last, "a", nil)

	for _, tc := range []struct {
		name   string
		shows  *Key
		extras []*x509.Certificate
	}{
		{"the victim's certificates with the thief's key", thief, last.Successions()},
		{"signed by another key", thief, []*x509.Certificate{forgeSuccession(t, first, thief, thief, nil)}},
		{"says it is signed by another key than it is", thief, []*x509.Certificate{forgeSuccession(t, thief, thief, thief, func(c *x509.Certificate) {
			c.URIs = []*url.URL{{Scheme: "liqo", Opaque: "succeeds:" + base64.RawURLEncoding.EncodeToString(first.ca.RawSubjectPublicKeyInfo)}}
		})}},
		{"for another key", last, []*x509.Certificate{handover(t, first, thief)}},
		{"the wrong way round", last, []*x509.Certificate{handover(t, last, first)}},
		{"the victim's certificates and a forged last step", thief,
			append([]*x509.Certificate{forgeSuccession(t, last, thief, thief, nil)}, last.Successions()...)},
		{"a loop", last, []*x509.Certificate{handover(t, thief, accomplice), handover(t, accomplice, thief), handover(t, thief, thief)}},
		{"a loop that leads to the key", last, []*x509.Certificate{handover(t, last, thief), handover(t, thief, accomplice), handover(t, accomplice, last)}},
		{"no CA certificate", last, []*x509.Certificate{forgeSuccession(t, first, first, last, func(c *x509.Certificate) {
			c.IsCA, c.KeyUsage = false, x509.KeyUsageDigitalSignature
		})}},
		{"no CA certificate that may sign", last, []*x509.Certificate{forgeSuccession(t, first, first, last, func(c *x509.Certificate) { c.IsCA = false })}},
		{"another hash", last, []*x509.Certificate{forgeSuccession(t, first, first, last, func(c *x509.Certificate) {
			c.SignatureAlgorithm = x509.ECDSAWithSHA384
		})}},
		{"not for signing certificates", last, []*x509.Certificate{forgeSuccession(t, first, first, last, func(c *x509.Certificate) {
			c.KeyUsage = x509.KeyUsageDigitalSignature
		})}},
		{"says nothing of a succession", last, []*x509.Certificate{forgeSuccession(t, first, first, last, func(c *x509.Certificate) { c.URIs = nil })}},
		{"says it twice", last, []*x509.Certificate{forgeSuccession(t, first, first, last, func(c *x509.Certificate) {
			c.URIs = append(c.URIs, c.URIs[0])
		})}},
		{"says it with garbage", last, []*x509.Certificate{forgeSuccession(t, first, first, last, func(c *x509.Certificate) {
			c.URIs = []*url.URL{{Scheme: "liqo", Opaque: "succeeds:MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE"}}
		})}},
		{"has a critical extension", last, []*x509.Certificate{forgeSuccession(t, first, first, last, func(c *x509.Certificate) {
			c.ExtraExtensions = []pkix.Extension{{Id: []int{1, 2, 3, 4}, Critical: true, Value: []byte{5, 0}}}
		})}},
		{"a fleet certificate", last, []*x509.Certificate{certified}},
		{"a leaf that the old key issued", last, []*x509.Certificate{chainOf(t, NewIssuer(first, fixedID("a")))[0]}},
		{"the CA certificates of both", last, []*x509.Certificate{first.CA(), last.CA()}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if show(t, tc.shows, tc.extras...).Succeeds(first.Fingerprint()) {
				t.Error("accepted as the successor")
			}
		})
	}

	// The same forgery with the right key is none: the table does not refuse
	// everything.
	if !show(t, last, forgeSuccession(t, mid, mid, last, nil)).Succeeds(mid.Fingerprint()) {
		t.Error("a succession certificate from elsewhere is not followed")
	}
	// Garbage next to good certificates does not spoil them.
	good := append(last.Successions(), handover(t, thief, accomplice), handover(t, last, last), first.CA(), certified)
	if !show(t, last, good...).Succeeds(first.Fingerprint()) {
		t.Error("not followed with garbage next to it")
	}
}

// A succession is about P-256 keys only, also where the signer's is only quoted.
func TestSuccessionOfOtherKinds(t *testing.T) {
	p384, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	key := mustKey(t)
	for name, public := range map[string]any{"P-384": p384.Public(), "RSA": rsaKey.Public()} {
		spki, err := x509.MarshalPKIXPublicKey(public)
		if err != nil {
			t.Fatal(err)
		}
		cert := forgeSuccession(t, key, key, key, func(c *x509.Certificate) {
			c.URIs = []*url.URL{{Scheme: "liqo", Opaque: "succeeds:" + base64.RawURLEncoding.EncodeToString(spki)}}
		})
		if _, ok := stepOf(cert); ok {
			t.Errorf("%s key of the signer accepted", name)
		}
	}
}

// The ID is what the leaf says, if it says one thing.
func TestShownID(t *testing.T) {
	key := mustKey(t)
	uri := func(s string) *url.URL {
		u, err := url.Parse(s)
		if err != nil {
			t.Fatal(err)
		}
		return u
	}
	for _, tc := range []struct {
		uris []*url.URL
		want peer.ClusterID
	}{
		{nil, ""},
		{[]*url.URL{uri("liqo:cluster:edge-1")}, "edge-1"},
		{[]*url.URL{uri("spiffe://example.org/x"), uri("liqo:cluster:edge-1")}, "edge-1"},
		{[]*url.URL{uri("liqo:cluster:edge-1"), uri("liqo:cluster:edge-2")}, ""},
		{[]*url.URL{uri("liqo:cluster:edge-1?x=y")}, ""},
		{[]*url.URL{uri("liqo:cluster:Edge")}, ""},
		{[]*url.URL{uri("liqo:cluster:")}, ""},
		{[]*url.URL{uri("liqo:cluster:..%2f..")}, ""},
		{[]*url.URL{uri("liqo://cluster:1/edge-1")}, ""},
		{[]*url.URL{uri("https://cluster/edge-1")}, ""},
	} {
		leaf := forge(t, key.private, key.CA(), func(c *x509.Certificate) { c.URIs = tc.uris })
		shown, err := Verify([]*x509.Certificate{leaf, key.CA()}, time.Time{})
		if err != nil || shown.ID != tc.want {
			t.Errorf("%v: ID %q, %v; want %q", tc.uris, shown.ID, err, tc.want)
		}
	}
}

// The most expensive thing a stranger can show: nine certificates with a
// signature to check each.
func BenchmarkSucceedsWorstCase(b *testing.B) {
	last, stranger := mustKey(b), mustKey(b)
	var extras []*x509.Certificate
	for range maxSuccessions {
		extras = append(extras, forgeSuccession(b, mustKey(b), stranger, last, nil))
	}
	shown := show(b, last, extras...)
	for b.Loop() {
		if shown.Succeeds(stranger.Fingerprint()) {
			b.Fatal("followed")
		}
	}
}
