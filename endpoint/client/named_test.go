package client

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"liqo.io/agent/internal/endpointtest"
	"liqo.io/agent/peer"
	"liqo.io/agent/trust"
)

// authority is a public certificate authority.
type authority struct {
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	a := &authority{key: key}
	a.cert = a.sign(t, &x509.Certificate{
		Subject: pkix.Name{CommonName: "Public CA"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}, key.Public())
	return a
}

func (a *authority) sign(t *testing.T, template *x509.Certificate, public any) *x509.Certificate {
	t.Helper()
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent := a.cert
	if parent == nil {
		parent = template
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, a.key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

func (a *authority) roots() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

// name has b show a certificate of a for localhost.
func (a *authority) name(t *testing.T, b *endpointtest.Box) {
	t.Helper()
	cert := a.sign(t, &x509.Certificate{
		DNSNames: []string{"localhost"}, KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, b.Key.CA().PublicKey)
	file := filepath.Join(t.TempDir(), "named.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	named, err := trust.LoadNamed(b.Key, file)
	if err != nil {
		t.Fatal(err)
	}
	b.Issuer.SetNamed(named)
}

// rotated returns b before and after its key was replaced, both with the same ID.
func rotated(t *testing.T) (before, after *endpointtest.Box) {
	t.Helper()
	dir := t.TempDir()
	boxes := make([]*endpointtest.Box, 2)
	key, err := trust.LoadOrCreateKey(dir)
	for i := range boxes {
		if err != nil {
			t.Fatal(err)
		}
		boxes[i] = endpointtest.New(t, endpointtest.IDA)
		boxes[i].Key, boxes[i].Issuer = key, trust.NewIssuer(key, func() peer.ClusterID { return endpointtest.IDA })
		key, err = trust.Rotate(dir, key)
	}
	return boxes[0], boxes[1]
}

func TestSucceedingKeyIsFollowed(t *testing.T) {
	before, after := rotated(t)
	us := endpointtest.New(t, endpointtest.IDB)
	p := servePeer(t, after, "127.0.0.1:0", echo)
	old := targetOf(before, p.addr)
	for range 2 {
		c := caller(t, us)
		if got := mustIdentify(t, c, old); got.Fingerprint != after.Key.Fingerprint() || !got.Shown.Succeeds(before.Key.Fingerprint()) {
			t.Errorf("%+v", got)
		}
		got := mustExchange(t, c, old, Request{Method: "GET", Path: "/"}).Result
		if got.Fingerprint != after.Key.Fingerprint() || !got.Shown.Succeeds(before.Key.Fingerprint()) {
			t.Errorf("%+v", got)
		}
		// From now on it is known by the new key; what that succeeds is shown on
		// resumed connections too.
		c.idle.drop(after.Key.Fingerprint())
		resumed := p.resumed.Load()
		if got := mustIdentify(t, c, targetOf(after, p.addr)); !got.Shown.Succeeds(before.Key.Fingerprint()) || p.resumed.Load() != resumed+1 {
			t.Errorf("%+v, resumed %v", got.Shown, p.resumed.Load() != resumed)
		}
	}
	// It does not go backwards, nor sideways.
	back := servePeer(t, before, "127.0.0.2:0", echo)
	for _, target := range []peer.Target{targetOf(after, back.addr), targetOf(us, p.addr)} {
		target.ID = endpointtest.IDA
		var e *Error
		if _, err := caller(t, endpointtest.New(t, endpointtest.IDB)).Exchange(t.Context(), target, Request{Method: "GET", Path: "/"}); !errors.As(err, &e) || e.Reason != ReasonWrongKey {
			t.Errorf("%v", err)
		}
	}
}

func TestSystemRoots(t *testing.T) {
	b, us, ca := endpointtest.New(t, endpointtest.IDA), endpointtest.New(t, endpointtest.IDB), newAuthority(t)
	ca.name(t, b)
	p := servePeer(t, b, "127.0.0.1:0", echo)
	url := fmt.Sprintf("https://localhost:%d", p.addr.Port())
	unknown := peer.Target{URL: url, Hosts: []string{"localhost"}}
	known := peer.Target{ID: endpointtest.IDA, Fingerprint: b.Key.Fingerprint(), URL: url, Hosts: unknown.Hosts}

	c := patient(Config{Issuer: us.Issuer, Roots: ca.roots()})
	got := mustIdentify(t, c, unknown)
	if got.Fingerprint != b.Key.Fingerprint() || got.Shown.Name != "localhost" || got.URL != url {
		t.Errorf("%+v", got)
	}
	for range 2 {
		if got := mustExchange(t, c, known, Request{Method: "GET", Path: "/"}).Result; got.Shown.Name != "localhost" {
			t.Errorf("%+v", got)
		}
	}
	if p.resumed.Load() != 1 {
		t.Errorf("%d resumed", p.resumed.Load())
	}

	// Nobody answers for the name: it is what somebody said. Also when the connection is
	// one that was made for who does.
	c = patient(Config{Issuer: us.Issuer, Roots: ca.roots(), Keep: 1})
	defer c.Close()
	for _, hosts := range [][]string{nil, {"example.com"}, {"localhost"}, nil} {
		target := known
		target.Hosts = hosts
		want := ""
		if slices.Contains(hosts, "localhost") {
			want = "localhost"
		}
		if got := mustIdentify(t, c, target).Shown.Name; got != want {
			t.Errorf("%q counts where %q do", got, hosts)
		}
		if got := mustExchange(t, c, target, Request{Method: "GET", Path: "/"}).Result.Shown.Name; got != want {
			t.Errorf("exchange: %q counts where %q do", got, hosts)
		}
	}

	// Others do not vouch for it: it is nobody, unless its key is known already.
	c = patient(Config{Issuer: us.Issuer, Roots: newAuthority(t).roots()})
	var e *Error
	if _, err := c.Identify(t.Context(), unknown); !errors.As(err, &e) || e.Reason != ReasonBadAnswer {
		t.Errorf("%v", err)
	}
	if got := mustExchange(t, c, known, Request{Method: "GET", Path: "/"}).Result; got.Fingerprint != b.Key.Fingerprint() || got.Shown.Name != "" {
		t.Errorf("%+v", got)
	}
	// At an address no name is asked for.
	if got := mustIdentify(t, c, peer.Target{Addrs: endpointtest.Addrs(p.addr)}); got.Shown.Name != "" || got.Shown.ID != endpointtest.IDA {
		t.Errorf("%+v", got)
	}
}

// Who knows a peer by a name and an old key is shown a certificate that says
// nothing about the old key, and asks without the name then.
func TestSucceedingKeyIsFollowedByName(t *testing.T) {
	before, after := rotated(t)
	us, ca := endpointtest.New(t, endpointtest.IDB), newAuthority(t)
	ca.name(t, after)
	p := servePeer(t, after, "127.0.0.1:0", echo)
	url := fmt.Sprintf("https://localhost:%d", p.addr.Port())
	c := patient(Config{Issuer: us.Issuer, Roots: ca.roots()})
	old := peer.Target{ID: endpointtest.IDA, Fingerprint: before.Key.Fingerprint(), URL: url}
	if got := mustIdentify(t, c, old); got.Fingerprint != after.Key.Fingerprint() || got.URL != url {
		t.Errorf("%+v", got)
	}
	if got := mustExchange(t, c, old, Request{Method: "GET", Path: "/"}).Result; got.Fingerprint != after.Key.Fingerprint() || got.URL != url {
		t.Errorf("%+v", got)
	}
	old.Fingerprint = us.Key.Fingerprint()
	c = patient(Config{Roots: ca.roots()})
	var e *Error
	if _, err := c.Exchange(t.Context(), old, Request{Method: "GET", Path: "/"}); !errors.As(err, &e) || e.Reason != ReasonWrongKey {
		t.Errorf("%v", err)
	}
}

// A fleet certificate given out while sessions live is seen at the next call.
func TestPeersSeeANewFleetCertificate(t *testing.T) {
	b, us := endpointtest.New(t, endpointtest.IDA), endpointtest.New(t, endpointtest.IDB)
	p := servePeer(t, b, "127.0.0.1:0", echo)
	c := caller(t, us)
	mustExchange(t, c, targetOf(b, p.addr), Request{Method: "GET", Path: "/"})
	_, epoch, err := c.presented.certificate()
	if err != nil {
		t.Fatal(err)
	}
	ca := newAuthority(t)
	us.Issuer.SetFleetCertificate(ca.sign(t, &x509.Certificate{Subject: pkix.Name{CommonName: "device"}}, us.Key.CA().PublicKey))
	mustExchange(t, c, targetOf(b, p.addr), Request{Method: "GET", Path: "/"})
	cert, next, err := c.presented.certificate()
	if err != nil || next != epoch+1 || len(cert.Certificate) != 3 || p.conns.Load() != 2 || p.resumed.Load() != 0 {
		t.Errorf("epoch %d then %d, %d connections, %d resumed, %v", epoch, next, p.conns.Load(), p.resumed.Load(), err)
	}
	// A new leaf alone begins no new epoch.
	us.Issuer.SetFleetCertificate(ca.cert)
	us.Issuer.SetFleetCertificate(nil)
	one, first, _ := c.presented.certificate()
	us.Issuer.SetFleetCertificate(nil)
	two, second, _ := c.presented.certificate()
	if first != second || one == two || string(one.Certificate[0]) == string(two.Certificate[0]) {
		t.Errorf("epochs %d and %d", first, second)
	}
}

// Without an issuer nothing is shown, and calls are made all the same.
func TestCallsOfNobody(t *testing.T) {
	b := endpointtest.New(t, endpointtest.IDA)
	p := servePeer(t, b, "127.0.0.1:0", echo)
	c := patient(Config{Keep: 1})
	defer c.Close()
	for range 2 {
		if got := string(mustExchange(t, c, targetOf(b, p.addr), Request{Method: "GET", Path: "/"}).Body); !strings.Contains(got, "from nobody") {
			t.Error(got)
		}
	}
	if p.conns.Load() != 1 {
		t.Errorf("%d connections", p.conns.Load())
	}
}
