package registry

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"liqo.io/agent/endpoint"
	"liqo.io/agent/endpoint/client"
	"liqo.io/agent/peer"
	"liqo.io/agent/trust"
)

// endpointOf serves a cluster on 127.0.0.1 until the test ends, and returns its
// port.
func endpointOf(t *testing.T, id peer.ClusterID, key *trust.Key, named *tls.Certificate) uint16 {
	t.Helper()
	issuer := trust.NewIssuer(key, func() peer.ClusterID { return id })
	issuer.SetNamed(named)
	s := endpoint.NewServer(endpoint.ServerConfig{
		Listen: "127.0.0.1:0", Issuer: issuer, Logger: slog.New(slog.DiscardHandler),
		Identity: func() peer.Identity {
			return peer.Identity{ClusterID: id, ClusterName: "name of " + string(id), GuestNamespace: "liqo"}
		},
	})
	if err := s.Listen(t.Context()); err != nil {
		t.Fatal(err)
	}
	running(t, s.Run)
	return s.Port()
}

// running runs a part until the test ends.
func running(t *testing.T, run func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := run(ctx); err != nil {
			t.Errorf("Run: %v", err)
		}
	}()
	t.Cleanup(func() { cancel(); <-done })
}

func newKey(t *testing.T) (string, *trust.Key) {
	t.Helper()
	dir := t.TempDir()
	key, err := trust.LoadOrCreateKey(dir)
	if err != nil {
		t.Fatal(err)
	}
	return dir, key
}

// publicly returns a certificate of a public authority over a cluster key for
// localhost, and the authority.
func publicly(t *testing.T, key *trust.Key) (*tls.Certificate, *x509.CertPool) {
	t.Helper()
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	sign := func(template, parent *x509.Certificate, public any) *x509.Certificate {
		template.SerialNumber = big.NewInt(time.Now().UnixNano())
		template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
		der, err := x509.CreateCertificate(rand.Reader, template, parent, public, caKey)
		if err != nil {
			t.Fatal(err)
		}
		cert, err := x509.ParseCertificate(der)
		if err != nil {
			t.Fatal(err)
		}
		return cert
	}
	template := &x509.Certificate{Subject: pkix.Name{CommonName: "Public CA"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	ca := sign(template, template, caKey.Public())
	leaf := sign(&x509.Certificate{DNSNames: []string{"localhost"}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}, ca, key.CA().PublicKey)
	file := filepath.Join(t.TempDir(), "named.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: leaf.Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	named, err := trust.LoadNamed(key, file)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(ca)
	return named, roots
}

// Real endpoints and the real client.
func TestRealEndpoints(t *testing.T) {
	_, ours := newKey(t)
	oldDir, old := newKey(t)
	_, plain := newKey(t)
	_, stranger := newKey(t)
	next, err := trust.Rotate(oldDir, old)
	if err != nil {
		t.Fatal(err)
	}
	_, public := newKey(t)
	named, roots := publicly(t, public)

	local := func(port uint16) string { return fmt.Sprintf("https://127.0.0.1:%d", port) }
	plainAt, strangerAt := endpointOf(t, "plain", plain, nil), endpointOf(t, "plain", stranger, nil)
	rotatedAt, publicAt, oursAt := endpointOf(t, "rotated", next, nil), endpointOf(t, "public", public, named), endpointOf(t, self, ours, nil)
	web := httptest.NewServer(http.NotFoundHandler())
	defer web.Close()
	page := httptest.NewTLSServer(http.NotFoundHandler())
	page.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	defer page.Close()
	gone, err := net.Listen("tcp", "127.0.0.77:0") // where nobody else takes its place
	if err != nil {
		t.Fatal(err)
	}
	gone.Close()

	var mu sync.Mutex
	shown := make(map[string]trust.Shown) // by URL
	checks := client.New(client.Config{SelfFingerprint: ours.Fingerprint(), Roots: roots, Keep: 100})
	defer checks.Close()
	lookups := client.New(client.Config{SelfFingerprint: ours.Fingerprint(), Roots: roots})
	lookup := func(ctx context.Context, t peer.Target) (client.Result, error) {
		res, err := lookups.Identify(ctx, t)
		mu.Lock()
		defer mu.Unlock()
		if err == nil {
			shown[res.URL] = res.Shown
		}
		return res, err
	}
	r := New(Config{
		Self: self, SelfKey: ours.Fingerprint(), Identify: checks.Identify, Lookup: lookup, Reconfirm: func(string, string) {},
		Changed: func(peer.ClusterID) {}, Store: discard{}, Limit: 100, Checkers: 4, Interval: time.Minute, Logger: slog.New(slog.DiscardHandler),
	})
	running(t, r.Run)

	loopback := func(port uint16) []netip.AddrPort {
		return []netip.AddrPort{netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), port)}
	}
	listed := wan("localhost", fmt.Sprintf("https://localhost:%d", publicAt))
	listed.Addrs = loopback(publicAt)
	elsewhere := wan("example.com", fmt.Sprintf("https://Localhost:%d", publicAt))
	elsewhere.Addrs = loopback(publicAt)
	unknown := wan("example.com", fmt.Sprintf("https://nowhere.example:%d", publicAt))
	unknown.Addrs = loopback(publicAt)
	bare := wan("example.com", "")
	bare.Addrs = loopback(plainAt)
	rotated := manual(local(rotatedAt)).expecting("rotated")
	rotated.Fingerprint = old.Fingerprint()
	followed := wan("example.com", local(rotatedAt))
	followed.Addrs, followed.Fingerprint = nil, old.Fingerprint()
	pinned := manual(local(strangerAt))
	pinned.Instance, pinned.Fingerprint = "pinned", plain.Fingerprint()
	var s CandidateStatus
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("last seen: %+v", s)
		}
	})
	for _, step := range []struct {
		at     Candidate
		reason Reason
		id     peer.ClusterID
		key    *trust.Key
		say    string
	}{
		{bare, "", "plain", plain, ""},
		{manual(local(plainAt)), "", "plain", plain, ""},
		{rotated, "", "rotated", next, ""},
		{followed, "", "rotated", next, ""},
		{manual(fmt.Sprintf("https://localhost:%d", publicAt)), "", "public", public, ""},
		{listed, "", "public", public, ""},
		{elsewhere, "", "public", public, ""},
		{unknown, "", "public", public, ""},
		{pinned, OtherKey, "plain", stranger, "holds key " + stranger.Fingerprint().String()},
		{manual(local(strangerAt)), OtherKey, "plain", stranger, "peers trust plain"},
		{manual(local(rotatedAt) + "/").expecting("plain"), OtherCluster, "rotated", next, "cluster name of rotated (rotated), not plain"},
		{manual(local(oursAt)), ThisCluster, "", nil, "this cluster itself"},
		{manual("https://" + strings.TrimPrefix(web.URL, "http://")), NotACluster, "", nil, "does not speak TLS"},
		{manual(page.URL), NotACluster, "", nil, "does not show the certificate of a liqo-agent"},
		{manual("https://" + gone.Addr().String()), Unreachable, "", nil, "connection refused"},
		{manual("https://no such host"), Unreachable, "", nil, "no such host"},
	} {
		r.SetCandidate(step.at)
		// What a busy machine does not answer in time is asked again.
		eventually(t, fmt.Sprintf("the answer at %s: %q, %s, %s", step.at.where(), step.reason, step.id, step.say), func() bool {
			s, _ = r.Candidate(step.at.Key())
			return s.Candidate.Key() == step.at.Key() && s.Reason == step.reason && s.ID == step.id &&
				(step.key == nil || s.Fingerprint == step.key.Fingerprint()) && strings.Contains(s.Message, step.say) &&
				(step.reason != "" || s.Next.After(time.Now().Add(time.Minute)))
		})
		if step.reason != "" {
			continue
		}
		if p, _ := r.Peer(step.id); p.Phase != peer.PhasePresent || p.Fingerprint != step.key.Fingerprint() {
			t.Errorf("%s: the registry has %+v", step.at.where(), p)
		}
	}
	// Who has another key than it is said to have because it took its place stays when
	// it is said to be elsewhere.
	followed.URL = "https://" + gone.Addr().String()
	r.SetCandidate(followed)
	eventually(t, "no answer", func() bool {
		s, _ := r.Candidate(followed.Key())
		return s.Reason == Unreachable
	})
	if p, _ := r.Peer("rotated"); !slices.Contains(p.Sources, peer.WAN) {
		t.Errorf("%+v", p)
	}
	// It is looked for where a person says, at the name.
	if p, _ := r.Peer("public"); p.URL != listed.URL || p.Source != peer.Manual {
		t.Errorf("%+v", p)
	}
	eventually(t, "a report that another key is used", func() bool {
		p, _ := r.Peer("plain")
		return p.Conflict != nil && p.Conflict.Fingerprint == stranger.Fingerprint()
	})
	mu.Lock()
	defer mu.Unlock()
	// A public certificate counts where its name was called, and who answers for that
	// name is a person or the domain that a person configured: not an SRV record.
	if shown[listed.URL].Name != "localhost" || shown[elsewhere.URL].Name != "" || shown[unknown.URL].Name != "" || !shown[rotated.URL].Succeeds(old.Fingerprint()) {
		t.Errorf("%+v", shown)
	}
}

// eventually waits until ok, which must happen soon.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(5 * time.Minute)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("%s: did not happen", what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}
