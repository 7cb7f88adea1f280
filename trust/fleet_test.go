package trust

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"liqo.io/agent/peer"
)

// testFleet is a fleet CA with its key.
type testFleet struct {
	certPEM, keyPEM []byte
	cert            *x509.Certificate
	private         *ecdsa.PrivateKey
}

func newTestFleet(t testing.TB, name string) testFleet {
	t.Helper()
	certPEM, keyPEM, err := NewFleetCA(name, 10, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	private, err := parseSigner(keyPEM)
	if err != nil {
		t.Fatal(err)
	}
	certs, err := parseCertificates(certPEM, 1)
	if err != nil {
		t.Fatal(err)
	}
	return testFleet{certPEM: certPEM, keyPEM: keyPEM, cert: certs[0], private: private}
}

// fleetCertificate signs as SignFleet does, but lets edit change what is signed.
func fleetCertificate(t testing.TB, fleet testFleet, k *Key, id peer.ClusterID, edit func(*x509.Certificate)) *x509.Certificate {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(7), Subject: pkix.Name{CommonName: "device"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature,
		URIs: []*url.URL{clusterURL(id)},
	}
	if edit != nil {
		edit(template)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, fleet.cert, k.private.Public(), fleet.private)
	if err != nil {
		t.Fatal(err)
	}
	return parse(t, der)[0]
}

func TestSignedDeviceIsCertified(t *testing.T) {
	fleet, other := newTestFleet(t, "Shop floor"), newTestFleet(t, "Other")
	dir := t.TempDir()
	key, err := LoadOrCreateKey(dir)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	signed, err := SignFleet(fleet.certPEM, fleet.keyPEM, "edge-1", key.PublicPEM(), 365, now)
	if err != nil {
		t.Fatal(err)
	}
	caFile, certFile := filepath.Join(dir, "fleet.pem"), filepath.Join(dir, "device.pem")
	if err := errors.Join(os.WriteFile(caFile, append(other.certPEM, fleet.certPEM...), 0o600), os.WriteFile(certFile, signed, 0o600)); err != nil {
		t.Fatal(err)
	}
	cas, err := LoadFleetCA(caFile)
	if err != nil || len(cas) != 2 {
		t.Fatalf("%d CAs, %v", len(cas), err)
	}
	cert, err := LoadFleetCertificate(certFile, key, "edge-1")
	if err != nil {
		t.Fatal(err)
	}

	issuer := NewIssuer(key, fixedID("edge-1"))
	issuer.SetFleetCertificate(cert)
	shown, err := Verify(chainOf(t, issuer), time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	want := "fleet CA Shop floor " + peer.FingerprintOf(fleet.cert.RawSubjectPublicKeyInfo).String()[:8]
	for _, at := range []time.Time{now, now.Add(-23 * time.Hour), now.AddDate(0, 0, 364)} {
		c, err := shown.Certified(cas, "edge-1", at)
		if err != nil || c.By != want || c.Authority != peer.FingerprintOf(fleet.cert.RawSubjectPublicKeyInfo) || !c.NotAfter.Equal(cert.NotAfter) {
			t.Errorf("at %v: %+v, %v; want %q until %v", at, c, err, want, cert.NotAfter)
		}
	}
	issuer.SetFleetCertificate(nil)
	shown, err = Verify(chainOf(t, issuer), time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	if c, err := shown.Certified(cas, "edge-1", now); c != (Certification{}) || !errors.Is(err, ErrNoFleetCertificate) {
		t.Errorf("after it was removed: %+v, %v", c, err)
	}

	if _, err := LoadFleetCertificate(certFile, key, "edge-2"); err == nil || !strings.Contains(err.Error(), "edge-1, not for edge-2") {
		t.Errorf("loaded for another cluster: %v", err)
	}
	if _, err := LoadFleetCertificate(certFile, mustKey(t), "edge-1"); err == nil || !strings.Contains(err.Error(), "not over the cluster key") {
		t.Errorf("loaded for another key: %v", err)
	}
	critical := fleetCertificate(t, fleet, key, "edge-1", func(c *x509.Certificate) {
		c.ExtraExtensions = []pkix.Extension{{Id: []int{1, 2, 3, 4}, Critical: true, Value: []byte{5, 0}}}
	})
	if _, err := LoadFleetCertificate(writeFile(t, "critical.pem", encodeCertificates(critical)), key, "edge-1"); err == nil {
		t.Error("a certificate that peers would not accept is loaded")
	}
	if _, err := LoadFleetCertificate(caFile, key, "edge-1"); err == nil {
		t.Error("a file of CA certificates is loaded as a device's")
	}
	if _, err := LoadFleetCA(certFile); err == nil || !strings.Contains(err.Error(), "not a CA certificate") {
		t.Errorf("a device's certificate is loaded as a CA: %v", err)
	}
}

func TestAttacksOnFleetCertificates(t *testing.T) {
	fleet, namesake, stranger := newTestFleet(t, "Fleet"), newTestFleet(t, "Fleet"), newTestFleet(t, "Stranger")
	key, other := mustKey(t), mustKey(t)
	now := time.Now()
	expiredCA := newTestFleet(t, "Old fleet")
	old := *expiredCA.cert
	old.NotAfter = now.Add(-time.Minute)
	der, err := x509.CreateCertificate(rand.Reader, &old, &old, expiredCA.private.Public(), expiredCA.private)
	if err != nil {
		t.Fatal(err)
	}
	expiredCA.cert = parse(t, der)[0]
	sub := newTestFleet(t, "Sub")
	sub.cert = fleetCertificate(t, fleet, &Key{private: sub.private}, "sub", func(c *x509.Certificate) {
		c.Subject.CommonName, c.IsCA, c.KeyUsage = "Sub", true, x509.KeyUsageCertSign
	})
	cas := []*x509.Certificate{stranger.cert, fleet.cert, expiredCA.cert}

	good := fleetCertificate(t, fleet, key, "edge-1", nil)
	for _, tc := range []struct {
		name   string
		extras []*x509.Certificate
		fleet  []*x509.Certificate
		now    time.Time
		is     error
		says   string
		ended  bool // nothing but the time is wrong
	}{
		{"none", nil, cas, now, ErrNoFleetCertificate, "is shown", false},
		{"no fleet CA here", []*x509.Certificate{good}, nil, now, ErrNoFleetCertificate, "configured", false},
		{"for another cluster", []*x509.Certificate{fleetCertificate(t, fleet, key, "edge-2", nil)}, cas, now, nil, "for cluster edge-2, not for edge-1", false},
		{"for several clusters", []*x509.Certificate{fleetCertificate(t, fleet, key, "edge-1", func(c *x509.Certificate) {
			c.URIs = append(c.URIs, clusterURL("edge-2"))
		})}, cas, now, nil, "does not name one cluster", false},
		{"for no cluster", []*x509.Certificate{fleetCertificate(t, fleet, key, "edge-1", func(c *x509.Certificate) {
			c.URIs, c.Subject.CommonName, c.DNSNames = nil, "edge-1", []string{"edge-1"}
		})}, cas, now, nil, "does not name one cluster", false},
		{"for another key", []*x509.Certificate{fleetCertificate(t, fleet, other, "edge-1", nil)}, cas, now, nil, "not over the cluster key", false},
		{"expired", []*x509.Certificate{fleetCertificate(t, fleet, key, "edge-1", func(c *x509.Certificate) {
			c.NotAfter = now.Add(-time.Minute)
		})}, cas, now, nil, "valid from", true},
		{"not yet valid", []*x509.Certificate{fleetCertificate(t, fleet, key, "edge-1", func(c *x509.Certificate) {
			c.NotBefore = now.Add(time.Minute)
		})}, cas, now, nil, "valid from", true},
		{"from a CA of the same name", []*x509.Certificate{fleetCertificate(t, namesake, key, "edge-1", nil)}, cas, now, nil, "signed with another key", false},
		{"from another CA", []*x509.Certificate{fleetCertificate(t, newTestFleet(t, "X"), key, "edge-1", nil)}, cas, now, nil, "it is from CN=X", false},
		{"from an expired CA", []*x509.Certificate{fleetCertificate(t, expiredCA, key, "edge-1", nil)}, cas, now, nil, "Old fleet has expired", true},
		{"from a CA below the fleet's", []*x509.Certificate{fleetCertificate(t, sub, key, "edge-1", nil), sub.cert}, cas, now, nil, "it is from CN=Sub", false},
		{"from the device itself", []*x509.Certificate{chainOf(t, NewIssuer(key, fixedID("edge-1")))[0]}, cas, now, nil, "not over the cluster key", false},
		{"a CA certificate", []*x509.Certificate{fleetCertificate(t, fleet, key, "edge-1", func(c *x509.Certificate) {
			c.IsCA, c.KeyUsage = true, x509.KeyUsageCertSign
		})}, cas, now, ErrNoFleetCertificate, "is shown", false},
		{"a succession certificate", []*x509.Certificate{handover(t, other, key)}, cas, now, ErrNoFleetCertificate, "is shown", false},
		{"critical extension", []*x509.Certificate{fleetCertificate(t, fleet, key, "edge-1", func(c *x509.Certificate) {
			c.ExtraExtensions = []pkix.Extension{{Id: []int{1, 2, 3, 4}, Critical: true, Value: []byte{5, 0}}}
		})}, cas, now, nil, "critical extension", false},
		{"clock not set", []*x509.Certificate{good}, cas, time.Unix(1000, 0), ErrClock, "1970-01-01T00:16:40Z", true},
		{"no time", []*x509.Certificate{good}, cas, time.Time{}, ErrClock, "synchronised", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			shown := show(t, key, tc.extras...)
			c, err := shown.Certified(tc.fleet, "edge-1", tc.now)
			if err == nil || c != (Certification{}) {
				t.Fatalf("certified: %+v, %v", c, err)
			}
			once, onceErr := shown.CertifiedOnce(tc.fleet, "edge-1")
			if dates := tc.ended; dates != (onceErr == nil) || dates && once.NotAfter.IsZero() {
				t.Errorf("whatever the time: %+v, %v", once, onceErr)
			}
			if tc.is != nil && !errors.Is(err, tc.is) || tc.is == nil && (errors.Is(err, ErrNoFleetCertificate) || errors.Is(err, ErrClock)) {
				t.Errorf("error %q, want a %v", err, tc.is)
			}
			if !strings.Contains(err.Error(), tc.says) {
				t.Errorf("error %q does not say %q", err, tc.says)
			}
		})
	}

	// The certificate that the table starts from is good, also among garbage
	// and with a CA of the same name first.
	shown := show(t, key, handover(t, other, mustKey(t)), good, sub.cert)
	if _, err := shown.Certified([]*x509.Certificate{namesake.cert, fleet.cert}, "edge-1", now); err != nil {
		t.Errorf("the good one is refused: %v", err)
	}
	if _, err := shown.Certified(cas, "", now); err == nil {
		t.Error("certified for no cluster")
	}
	// It certifies one key, and is no proof in the hands of another.
	if c, err := show(t, other, good).Certified(cas, "edge-1", now); err == nil {
		t.Errorf("another key is certified by %q", c.By)
	}
	// Who certifies a key does not vouch for what it says in a chain.
	if _, err := Verify([]*x509.Certificate{good, fleet.cert}, now); err == nil {
		t.Error("the fleet CA passes for a cluster key")
	}
}

func TestSignFleetRefuses(t *testing.T) {
	fleet, other, key := newTestFleet(t, "Fleet"), newTestFleet(t, "Fleet"), mustKey(t)
	now := time.Now()
	keyFile, err := encodeKey(key)
	if err != nil {
		t.Fatal(err)
	}
	p384, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	spki, err := x509.MarshalPKIXPublicKey(p384.Public())
	if err != nil {
		t.Fatal(err)
	}
	signed, err := SignFleet(fleet.certPEM, fleet.keyPEM, "edge-1", key.PublicPEM(), 1, now)
	if err != nil {
		t.Fatal(err)
	}
	deviceKey := pem.EncodeToMemory(&pem.Block{Type: publicBlock, Bytes: fleet.cert.RawSubjectPublicKeyInfo})
	encrypted := pem.EncodeToMemory(&pem.Block{Type: "ENCRYPTED PRIVATE KEY", Bytes: []byte{1}})
	for _, tc := range []struct {
		name              string
		cert, key, public []byte
		id                peer.ClusterID
		days              int
		now               time.Time
		says              string
	}{
		{"no ID", fleet.certPEM, fleet.keyPEM, key.PublicPEM(), "", 1, now, "cluster ID"},
		{"an ID that is none", fleet.certPEM, fleet.keyPEM, key.PublicPEM(), "Edge 1", 1, now, "cluster ID"},
		{"certificate and key of two CAs", other.certPEM, fleet.keyPEM, key.PublicPEM(), "edge-1", 1, now, "do not belong together"},
		{"no days", fleet.certPEM, fleet.keyPEM, key.PublicPEM(), "edge-1", 0, now, "at least 1"},
		{"longer than the CA", fleet.certPEM, fleet.keyPEM, key.PublicPEM(), "edge-1", 5000, now, "at most the 36"},
		{"days that overflow", fleet.certPEM, fleet.keyPEM, key.PublicPEM(), "edge-1", 1 << 40, now, "at most the 36"},
		{"after the CA's end", fleet.certPEM, fleet.keyPEM, key.PublicPEM(), "edge-1", 1, now.AddDate(11, 0, 0), "valid from"},
		{"clock not set", fleet.certPEM, fleet.keyPEM, key.PublicPEM(), "edge-1", 1, time.Unix(0, 0), "clock"},
		{"the device's private key", fleet.certPEM, fleet.keyPEM, keyFile, "edge-1", 1, now, `want "PUBLIC KEY"`},
		{"a key of another kind", fleet.certPEM, fleet.keyPEM, pem.EncodeToMemory(&pem.Block{Type: publicBlock, Bytes: spki}), "edge-1", 1, now, "P-256"},
		{"the CA's own key", fleet.certPEM, fleet.keyPEM, deviceKey, "edge-1", 1, now, "of the fleet CA itself"},
		{"garbage for the device's key", fleet.certPEM, fleet.keyPEM, []byte("key"), "edge-1", 1, now, "no complete PEM"},
		{"a certificate that is no CA's", signed, keyFile, mustKey(t).PublicPEM(), "edge-1", 1, now, "not a CA certificate"},
		{"an encrypted key", fleet.certPEM, encrypted, key.PublicPEM(), "edge-1", 1, now, "openssl pkey"},
		{"garbage for the CA's key", fleet.certPEM, []byte("x"), key.PublicPEM(), "edge-1", 1, now, "no complete PEM"},
		{"a certificate for the CA's key", fleet.certPEM, fleet.certPEM, key.PublicPEM(), "edge-1", 1, now, `"CERTIFICATE"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cert, err := SignFleet(tc.cert, tc.key, tc.id, tc.public, tc.days, tc.now)
			if err == nil || cert != nil {
				t.Fatalf("signed: %v", err)
			}
			if !strings.Contains(err.Error(), tc.says) {
				t.Errorf("error %q does not say %q", err, tc.says)
			}
		})
	}
	for _, tc := range []struct {
		name  string
		years int
	}{{"", 1}, {" ", 1}, {"bell\a", 1}, {strings.Repeat("x", 65), 1}, {"Fleet", 0}, {"Fleet", 101}} {
		if _, _, err := NewFleetCA(tc.name, tc.years, time.Now()); err == nil {
			t.Errorf("fleet CA %q for %d years made", tc.name, tc.years)
		}
	}
}

// CAs that people make with openssl work, and openssl accepts what we sign.
func TestFleetCAFromOpenSSL(t *testing.T) {
	openssl, err := exec.LookPath("openssl")
	if err != nil {
		t.Skip("openssl is not installed")
	}
	dir := t.TempDir()
	run := func(args ...string) {
		t.Helper()
		cmd := exec.Command(openssl, args...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("openssl %v: %v\n%s", args, err, out)
		}
	}
	read := func(name string) []byte {
		t.Helper()
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	run("ecparam", "-name", "prime256v1", "-genkey", "-out", "sec1.pem") // EC PARAMETERS and SEC1
	run("pkcs8", "-topk8", "-nocrypt", "-in", "sec1.pem", "-out", "pkcs8.pem")
	run("req", "-x509", "-new", "-key", "sec1.pem", "-subj", "/O=Example/CN=Example fleet", "-days", "3650", "-out", "ca.pem",
		"-addext", "keyUsage=critical,keyCertSign,cRLSign")
	cas, err := LoadFleetCA(filepath.Join(dir, "ca.pem"))
	if err != nil {
		t.Fatal(err)
	}
	key := mustKey(t)
	for _, form := range []string{"sec1.pem", "pkcs8.pem"} {
		signed, err := SignFleet(read("ca.pem"), read(form), "edge-1", key.PublicPEM(), 30, time.Now())
		if err != nil {
			t.Fatalf("%s: %v", form, err)
		}
		certs, err := parseCertificates(signed, 1)
		if err != nil {
			t.Fatal(err)
		}
		c, err := show(t, key, certs...).Certified(cas, "edge-1", time.Now())
		if err != nil || !strings.HasPrefix(c.By, "fleet CA Example fleet ") {
			t.Errorf("%s: %q, %v", form, c.By, err)
		}
		if err := os.WriteFile(filepath.Join(dir, "signed.pem"), signed, 0o600); err != nil {
			t.Fatal(err)
		}
		run("verify", "-x509_strict", "-CAfile", "ca.pem", "signed.pem")
	}
}

func TestLoadFleetCARefuses(t *testing.T) {
	fleet := newTestFleet(t, "Fleet")
	dir := t.TempDir()
	authority := func(edit func(*x509.Certificate)) []byte {
		t.Helper()
		template := *fleet.cert
		edit(&template)
		der, err := x509.CreateCertificate(rand.Reader, &template, &template, fleet.private.Public(), fleet.private)
		if err != nil {
			t.Fatal(err)
		}
		return encodeCertificates(parse(t, der)...)
	}
	for name, tc := range map[string]struct {
		content []byte
		says    string
	}{
		"not for signing": {authority(func(c *x509.Certificate) { c.KeyUsage = x509.KeyUsageDigitalSignature }), "keyCertSign"},
		"critical": {authority(func(c *x509.Certificate) {
			c.ExtraExtensions = []pkix.Extension{{Id: []int{1, 2, 3, 4}, Critical: true, Value: []byte{5, 0}}}
		}), "critical extension"},
		"no CA, no name": {authority(func(c *x509.Certificate) {
			c.IsCA, c.MaxPathLenZero, c.MaxPathLen, c.KeyUsage, c.Subject, c.RawSubject = false, false, 0, 0, pkix.Name{}, nil
		}), "without a name cannot be a fleet CA: it is not a CA certificate"},
		"empty":       {nil, `no PEM block "CERTIFICATE"`},
		"text":        {[]byte("fleet"), `no PEM block "CERTIFICATE"`},
		"key":         {fleet.keyPEM, `"PRIVATE KEY"`},
		"key as well": {append(append([]byte{}, fleet.certPEM...), fleet.keyPEM...), `"PRIVATE KEY"`},
		"cut off":     {fleet.certPEM[:len(fleet.certPEM)-40], "incomplete or damaged"},
		"half of two": {append(append([]byte{}, fleet.certPEM[:200]...), fleet.certPEM...), "incomplete or damaged"},
		"no DER":      {pem.EncodeToMemory(&pem.Block{Type: certificateBlock, Bytes: []byte{1, 2}}), "cannot be read"},
		"large":       {make([]byte, maxCertificateFile+1), "larger than"},
	} {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, tc.content, 0o600); err != nil {
			t.Fatal(err)
		}
		cas, err := LoadFleetCA(file)
		if err == nil || cas != nil || !strings.Contains(err.Error(), tc.says) || !strings.Contains(err.Error(), file) {
			t.Errorf("%s: %d CAs, %v; want an error that says %q", name, len(cas), err, tc.says)
		}
	}
	for _, file := range []string{filepath.Join(dir, "missing"), dir} {
		if _, err := LoadFleetCA(file); err == nil || !strings.Contains(err.Error(), file) {
			t.Errorf("%s: %v", file, err)
		}
	}
	// Comments around certificates, as many tools write them, are fine.
	file := filepath.Join(dir, "comments")
	content := "# fleet\nsubject=CN = Fleet\n" + string(fleet.certPEM) + "\n# end\n"
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	if cas, err := LoadFleetCA(file); err != nil || len(cas) != 1 {
		t.Errorf("with comments: %d CAs, %v", len(cas), err)
	}
}
