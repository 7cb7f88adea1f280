package trust

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"liqo.io/agent/peer"
)

// publicCA stands for a certificate authority of the system: a root, and an
// intermediate that issues.
type publicCA struct {
	root, issuing *x509.Certificate
	signer        crypto.Signer
}

func newPublicCA(t testing.TB, signer crypto.Signer) publicCA {
	t.Helper()
	rootKey, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := func(name string) *x509.Certificate {
		return &x509.Certificate{
			SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name},
			NotBefore: time.Now().AddDate(-1, 0, 0), NotAfter: time.Now().AddDate(10, 0, 0),
			IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template("Public root"), template("Public root"), rootKey.Public(), rootKey)
	if err != nil {
		t.Fatal(err)
	}
	root := parse(t, der)[0]
	der, err = x509.CreateCertificate(rand.Reader, template("Public issuing CA"), root, signer.Public(), rootKey)
	if err != nil {
		t.Fatal(err)
	}
	return publicCA{root: root, issuing: parse(t, der)[0], signer: signer}
}

// issue certifies what the request asks for, as public CAs do: names and key.
func (ca publicCA) issue(t testing.TB, request []byte, edit func(*x509.Certificate)) *x509.Certificate {
	t.Helper()
	der, err := onePEM(request, requestBlock)
	if err != nil {
		t.Fatal(err)
	}
	csr, err := x509.ParseCertificateRequest(der)
	if err != nil {
		t.Fatal(err)
	}
	if err := csr.CheckSignature(); err != nil {
		t.Fatal(err)
	}
	return ca.certify(t, csr.PublicKey, csr.DNSNames, edit)
}

func (ca publicCA) certify(t testing.TB, public any, names []string, edit func(*x509.Certificate)) *x509.Certificate {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), DNSNames: names,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(0, 3, 0),
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if edit != nil {
		edit(template)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, ca.issuing, public, ca.signer)
	if err != nil {
		t.Fatal(err)
	}
	return parse(t, der)[0]
}

func (ca publicCA) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(ca.root)
	return pool
}

func p256(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func mustCSR(t testing.TB, k *Key, names ...string) []byte {
	t.Helper()
	request, err := k.CSR(names)
	if err != nil {
		t.Fatal(err)
	}
	return request
}

func writeFile(t testing.TB, name string, data []byte) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// From the request to the handshake: a client that calls the name is shown the
// public certificate and learns the cluster key from it, all others get the
// cluster's own chain, and both learn the same.
func TestNamedHandshake(t *testing.T) {
	ca, key := newPublicCA(t, p256(t)), mustKey(t)
	leaf := ca.issue(t, mustCSR(t, key, "edge.example.com", "edge.example.org"), nil)
	named, err := LoadNamed(key, writeFile(t, "named.pem", encodeCertificates(leaf, ca.issuing)))
	if err != nil {
		t.Fatal(err)
	}
	issuer := NewIssuer(key, fixedID("edge-1"))
	issuer.SetNamed(named)
	handshake := func(name string) Shown {
		t.Helper()
		client, server := net.Pipe()
		defer client.Close()
		go func() {
			defer server.Close()
			_ = tls.Server(server, &tls.Config{MinVersion: tls.VersionTLS13, GetCertificate: issuer.GetCertificate}).Handshake()
		}()
		conn := tls.Client(client, &tls.Config{MinVersion: tls.VersionTLS13, ServerName: name, InsecureSkipVerify: true})
		if err := conn.Handshake(); err != nil {
			t.Fatal(err)
		}
		shown, err := VerifyNamed(conn.ConnectionState().PeerCertificates, name, ca.pool(), time.Now())
		if err != nil {
			t.Fatal(err)
		}
		if shown.Fingerprint != key.Fingerprint() {
			t.Errorf("%s: key %v", name, shown.Fingerprint)
		}
		return shown
	}
	for _, name := range []string{"edge.example.com", "EDGE.example.org"} {
		if shown := handshake(name); shown.Name != strings.ToLower(name) || shown.ID != "" || shown.CA != nil {
			t.Errorf("%s: shown %+v", name, shown)
		}
	}
	if shown := handshake("other.example.com"); shown.Name != "" || shown.ID != "edge-1" {
		t.Errorf("another name: shown %+v", shown)
	}
	// An expired public certificate locks nobody out who knows the key.
	issuer.now = func() time.Time { return leaf.NotAfter.Add(time.Hour) }
	if shown := handshake("edge.example.com"); shown.Name != "" || shown.ID != "edge-1" {
		t.Errorf("expired: shown %+v", shown)
	}
	issuer.now = time.Now
	issuer.SetNamed(nil)
	if shown := handshake("edge.example.com"); shown.Name != "" || shown.ID != "edge-1" {
		t.Errorf("removed: shown %+v", shown)
	}
}

func TestVerifyNamedRefuses(t *testing.T) {
	ca, key := newPublicCA(t, p256(t)), mustKey(t)
	request := mustCSR(t, key, "edge.example.com")
	good := ca.issue(t, request, nil)
	now := time.Now()
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	stranger := newPublicCA(t, p256(t))
	for _, tc := range []struct {
		name  string
		certs []*x509.Certificate
		host  string
		now   time.Time
		says  string
	}{
		{"nothing", nil, "edge.example.com", now, "no certificate"},
		{"another name", []*x509.Certificate{good, ca.issuing}, "other.example.com", now, "edge.example.com, not other"},
		{"no name", []*x509.Certificate{good, ca.issuing}, "", now, "no host name"},
		{"a dot", []*x509.Certificate{good, ca.issuing}, ".", now, "no host name"},
		{"an address", []*x509.Certificate{ca.issue(t, request, func(c *x509.Certificate) {
			c.IPAddresses = []net.IP{net.IPv4(192, 0, 2, 1)}
		}), ca.issuing}, "192.0.2.1", now, "is an address"},
		{"an IPv6 address", []*x509.Certificate{good, ca.issuing}, "[2001:db8::1]", now, "is an address"},
		{"another CA", []*x509.Certificate{stranger.issue(t, request, nil), stranger.issuing}, "edge.example.com", now, "unknown authority"},
		{"another CA's root with it", []*x509.Certificate{stranger.issue(t, request, nil), stranger.issuing, stranger.root}, "edge.example.com", now, "unknown authority"},
		{"no intermediate", []*x509.Certificate{good}, "edge.example.com", now, "unknown authority"},
		{"expired", []*x509.Certificate{ca.issue(t, request, func(c *x509.Certificate) {
			c.NotAfter = now.Add(-time.Minute)
		}), ca.issuing}, "edge.example.com", now, "expired"},
		{"expired by then", []*x509.Certificate{good, ca.issuing}, "edge.example.com", good.NotAfter.Add(time.Second), "expired"},
		{"clock not set", []*x509.Certificate{good, ca.issuing}, "edge.example.com", time.Unix(0, 0), "clock"},
		{"no time", []*x509.Certificate{good, ca.issuing}, "edge.example.com", time.Time{}, "clock"},
		{"not for servers", []*x509.Certificate{ca.issue(t, request, func(c *x509.Certificate) {
			c.ExtKeyUsage = c.ExtKeyUsage[1:]
		}), ca.issuing}, "edge.example.com", now, "incompatible key usage"},
		{"an RSA key", []*x509.Certificate{ca.certify(t, rsaKey.Public(), []string{"edge.example.com"}, nil), ca.issuing}, "edge.example.com", now, "its key is RSA"},
		{"long chain", append([]*x509.Certificate{good}, slices.Repeat([]*x509.Certificate{ca.issuing}, maxNamedChain)...), "edge.example.com", now, "at most 8"},
		{"forged cluster chain", []*x509.Certificate{good, key.CA()}, "edge.example.com", now, "another issuer"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			shown, err := VerifyNamed(tc.certs, tc.host, ca.pool(), tc.now)
			if err == nil || !shown.Fingerprint.IsZero() || shown.Name != "" {
				t.Fatalf("accepted as %+v, %v", shown, err)
			}
			if !strings.Contains(err.Error(), tc.says) {
				t.Errorf("error %q does not say %q", err, tc.says)
			}
			if wantClock := tc.says == "clock"; errors.Is(err, ErrClock) != wantClock {
				t.Errorf("error %q is ErrClock: %v", err, !wantClock)
			}
		})
	}
	if shown, err := VerifyNamed([]*x509.Certificate{good, ca.issuing}, "Edge.Example.Com.", ca.pool(), now); err != nil || shown.Name != "edge.example.com" {
		t.Errorf("the good chain: %+v, %v", shown, err)
	}
	// The system's roots do not know our CA.
	if shown, err := VerifyNamed([]*x509.Certificate{good, ca.issuing}, "edge.example.com", nil, now); err == nil {
		t.Errorf("system roots vouch for %+v", shown)
	}
}

// The key of a CA that serves many is nobody's cluster key, even where its kind
// of key and its certificates would do.
func TestPublicCAIsNoClusterKey(t *testing.T) {
	ca, key := newPublicCA(t, p256(t)), mustKey(t)
	leaf := ca.issue(t, mustCSR(t, key, "edge.example.com"), nil)
	shown, err := Verify([]*x509.Certificate{leaf, ca.issuing}, time.Time{})
	if err == nil {
		t.Errorf("accepted as %+v", shown)
	}
	// The same with a company's root that issues leaves itself and calls itself
	// almost like a cluster key.
	private := p256(t)
	spki, err := x509.MarshalPKIXPublicKey(private.Public())
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{
		"Company root": false,
		keyName(mustKey(t).Fingerprint()).CommonName:       false,
		keyName(peer.FingerprintOf(spki)).CommonName:       true, // it says so itself
		keyName(peer.FingerprintOf(spki)).CommonName + "0": false,
	} {
		root := ca.issuing
		template := *root
		template.Subject, template.RawSubject, template.PublicKey = pkix.Name{CommonName: name}, nil, nil
		der, err := x509.CreateCertificate(rand.Reader, &template, &template, private.Public(), private)
		if err != nil {
			t.Fatal(err)
		}
		company := publicCA{issuing: parse(t, der)[0], signer: private}
		leaf := company.certify(t, key.CA().PublicKey, nil, nil)
		if _, err := Verify([]*x509.Certificate{leaf, company.issuing}, time.Time{}); (err == nil) != want {
			t.Errorf("a CA called %q: %v", name, err)
		}
	}
}

// Only the certificate by which a key calls itself a cluster key makes it one.
func TestClusterCAIsSelfIssued(t *testing.T) {
	key, other := mustKey(t), mustKey(t)
	chain := chainOf(t, NewIssuer(key, fixedID("a")))
	between := func(subject pkix.Name, parent *Key, over *Key) *x509.Certificate {
		t.Helper()
		template := *over.CA()
		template.Subject, template.RawSubject, template.PublicKey = subject, nil, nil
		der, err := x509.CreateCertificate(rand.Reader, &template, parent.CA(), over.private.Public(), parent.private)
		if err != nil {
			t.Fatal(err)
		}
		return parse(t, der)[0]
	}
	issued := between(keyName(key.Fingerprint()), other, key)
	if _, err := Verify([]*x509.Certificate{chain[0], issued}, time.Time{}); err == nil {
		t.Error("a CA certificate that another key issued is taken for the key's own")
	}
	renamed := between(pkix.Name{CommonName: "Company root"}, key, key)
	leaf := forge(t, key.private, renamed, nil)
	if _, err := Verify([]*x509.Certificate{leaf, renamed}, time.Time{}); err == nil {
		t.Error("a CA certificate of another name is taken for the key's own")
	}
}

// A stranger must not choose how long a signature check takes.
func TestHugeRSAKeysAreNotUsed(t *testing.T) {
	ca, key := newPublicCA(t, p256(t)), mustKey(t)
	leaf := ca.issue(t, mustCSR(t, key, "edge.example.com"), nil)
	huge := *ca.issuing
	huge.PublicKey = &rsa.PublicKey{N: new(big.Int).Lsh(big.NewInt(1), maxRSA), E: 65537}
	_, err := VerifyNamed([]*x509.Certificate{leaf, ca.issuing, &huge}, "edge.example.com", ca.pool(), time.Now())
	if err == nil || !strings.Contains(err.Error(), "RSA key has 8193 bits") {
		t.Errorf("error %v", err)
	}
}

func TestLoadNamedRefuses(t *testing.T) {
	ca, key := newPublicCA(t, p256(t)), mustKey(t)
	private, err := encodeKey(key)
	if err != nil {
		t.Fatal(err)
	}
	other := mustKey(t)
	for _, tc := range []struct {
		name    string
		content []byte
		says    string
	}{
		{"another key", encodeCertificates(ca.issue(t, mustCSR(t, other, "edge.example.com"), nil), ca.issuing), other.Fingerprint().String()},
		{"another key, what to do", encodeCertificates(ca.issue(t, mustCSR(t, other, "edge.example.com"), nil), ca.issuing), "request made with the cluster key"},
		{"the wrong order", encodeCertificates(ca.issuing, ca.issue(t, mustCSR(t, key, "edge.example.com"), nil)), "the first certificate is over"},
		{"no names", encodeCertificates(key.CA()), "names no host"},
		{"not for signing", encodeCertificates(ca.issue(t, mustCSR(t, key, "edge.example.com"), func(c *x509.Certificate) {
			c.KeyUsage = x509.KeyUsageKeyAgreement
		})), "does not allow"},
		{"a private key", private, `"PRIVATE KEY"`},
		{"the request", mustCSR(t, key, "edge.example.com"), `"CERTIFICATE REQUEST"`},
		{"nothing", nil, "no PEM block"},
	} {
		file := writeFile(t, "named.pem", tc.content)
		named, err := LoadNamed(key, file)
		if err == nil || named != nil || !strings.Contains(err.Error(), tc.says) || !strings.Contains(err.Error(), file) {
			t.Errorf("%s: %v, want an error that says %q and %s", tc.name, err, tc.says, file)
		}
	}
}

func TestCSR(t *testing.T) {
	key := mustKey(t)
	long := strings.Repeat("a", 60) + ".example.com"
	for _, names := range [][]string{{"edge.example.com"}, {"*.example.com", "example.com"}, {long}} {
		block, _ := pem.Decode(mustCSR(t, key, names...))
		csr, err := x509.ParseCertificateRequest(block.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		if err := csr.CheckSignature(); err != nil || !slices.Equal(csr.DNSNames, names) ||
			peer.FingerprintOf(csr.RawSubjectPublicKeyInfo) != key.Fingerprint() {
			t.Errorf("%v: %v, %v", names, csr.DNSNames, err)
		}
	}
	for _, names := range [][]string{nil, {""}, {"localhost"}, {"192.0.2.1"}, {"2001:db8::1"}, {"edge .example.com"}, {"edge..com"}, {"-a.example.com"},
		{"a-.example.com"}, {"*"}, {"a.*.com"}, {"edge.example.com."}, {"https://edge.example.com"}, {"edge.example.com:6447"}, {"ümlaut.example.com"},
		{strings.Repeat("a", 64) + ".com"}, {strings.Repeat("a.", 130) + "com"}, slices.Repeat([]string{"edge.example.com"}, maxNames+1)} {
		if request, err := key.CSR(names); err == nil || request != nil {
			t.Errorf("request made for %q", names)
		}
	}
}
