package serving

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"liqo.io/agent/internal/bubble"
	"liqo.io/agent/kube"
)

var box = Subject{Name: "11111111-1111-4111-8111-111111111111", Address: netip.MustParseAddr("127.0.0.1")}

// cluster is an API server with a signer, for requests of certificates only.
type cluster struct {
	ca   *x509.Certificate
	key  *ecdsa.PrivateKey
	life time.Duration

	mu       sync.Mutex
	silent   bool // nobody signs
	denies   bool
	broken   bool // no answer but errors
	requests map[string]*certificatesv1.CertificateSigningRequest
	created  int
	news     chan struct{} // closed and made anew with every change
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "server-ca"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(100 * 365 * 24 * time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	ca, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &cluster{ca: ca, key: key, life: 24 * time.Hour, requests: make(map[string]*certificatesv1.CertificateSigningRequest), news: make(chan struct{})}
}

func (c *cluster) set(change func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change()
	for _, csr := range c.requests {
		c.sign(csr)
	}
	close(c.news)
	c.news = make(chan struct{})
}

// made returns how many requests there were, and left how many there are.
func (c *cluster) made() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.created
}

func (c *cluster) left() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.requests)
}

// sign does what the controller-manager does, under the lock.
func (c *cluster) sign(csr *certificatesv1.CertificateSigningRequest) {
	if c.silent || len(csr.Status.Conditions) == 0 || len(csr.Status.Certificate) > 0 {
		return
	}
	if c.denies {
		csr.Status.Conditions = append(csr.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{Type: certificatesv1.CertificateFailed, Reason: "Policy"})
		return
	}
	block, _ := pem.Decode(csr.Spec.Request)
	request, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: request.Subject, IPAddresses: request.IPAddresses,
		NotBefore: time.Now(), NotAfter: time.Now().Add(c.life), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	der, err := x509.CreateCertificate(rand.Reader, template, c.ca, request.PublicKey, c.key)
	if err != nil {
		return
	}
	csr.Status.Certificate = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// RoundTrip implements http.RoundTripper.
func (c *cluster) RoundTrip(r *http.Request) (*http.Response, error) {
	c.mu.Lock()
	if c.broken {
		c.mu.Unlock()
		return answer(503, map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 503, "message": "down"}), nil
	}
	name := strings.TrimSuffix(strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, requests), "/"), "/approval")
	if r.URL.Query().Get("watch") != "" {
		c.mu.Unlock()
		return c.watch(r), nil
	}
	defer c.mu.Unlock()
	csr := c.requests[name]
	switch {
	case name == "" && r.Method == http.MethodPost:
		csr = &certificatesv1.CertificateSigningRequest{}
		if err := json.NewDecoder(r.Body).Decode(csr); err != nil {
			return nil, err
		}
		c.created++
		csr.Name = fmt.Sprintf("%s%d", csr.GenerateName, c.created)
		csr.UID, csr.ResourceVersion = types.UID(csr.Name), "1"
		c.requests[csr.Name] = csr
		return answer(201, csr), nil
	case name == "":
		list := &certificatesv1.CertificateSigningRequestList{}
		list.ResourceVersion = "1"
		for _, csr := range c.requests {
			list.Items = append(list.Items, *csr)
		}
		return answer(200, list), nil
	case csr == nil:
		return answer(404, map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404, "message": "no such request"}), nil
	case r.Method == http.MethodDelete:
		delete(c.requests, name)
	case r.Method == http.MethodPut:
		var approved certificatesv1.CertificateSigningRequest
		if err := json.NewDecoder(r.Body).Decode(&approved); err != nil {
			return nil, err
		}
		csr.Status.Conditions = approved.Status.Conditions
		c.sign(csr)
	}
	return answer(200, csr), nil
}

// watch tells of every request at the beginning and with every change.
func (c *cluster) watch(r *http.Request) *http.Response {
	out, in := io.Pipe()
	go func() {
		for version := 2; ; version++ {
			var text bytes.Buffer
			c.mu.Lock()
			news := c.news
			for _, csr := range c.requests {
				csr.ResourceVersion = fmt.Sprint(version)
				_ = json.NewEncoder(&text).Encode(map[string]any{"type": "ADDED", "object": csr})
			}
			c.mu.Unlock()
			if version == 2 {
				_ = json.NewEncoder(&text).Encode(map[string]any{"type": "BOOKMARK", "object": map[string]any{"metadata": map[string]any{
					"resourceVersion": "2", "annotations": map[string]string{"k8s.io/initial-events-end": "true"}}}})
			}
			if _, err := in.Write(text.Bytes()); err != nil {
				return
			}
			select {
			case <-r.Context().Done():
				_ = in.CloseWithError(r.Context().Err())
				return
			case <-news:
			}
		}
	}()
	return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"application/json"}}, Body: out}
}

func answer(status int, object any) *http.Response {
	text, err := json.Marshal(object)
	if err != nil {
		panic(err)
	}
	return &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(string(text)))}
}

// run runs a keeper until the returned function is called.
func run(t *testing.T, c *cluster, dir string, subject Subject) (*Keeper, *atomic.Int64, func()) {
	t.Helper()
	client, err := kube.New(&rest.Config{Host: "http://api", Transport: c})
	if err != nil {
		t.Fatal(err)
	}
	changes := new(atomic.Int64)
	k := NewKeeper(dir, slog.New(slog.DiscardHandler), func() { changes.Add(1) })
	if _, err := k.Certificate(); err == nil {
		t.Fatal("a certificate before Run")
	}
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	group.Go(func() { k.Run(ctx, client, subject) })
	return k, changes, func() {
		cancel()
		group.Wait()
	}
}

func TestSignedKeptRenewed(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "kubelet")
	bubble.Test(t, func(t *testing.T) {
		c := newCluster(t)
		k, changes, stop := run(t, c, dir, box)
		time.Sleep(time.Second)
		first, err := k.Certificate()
		if err != nil || !k.State().Signed || k.State().Problem != "" || changes.Load() != 1 {
			t.Fatalf("%v, %+v, %d changes", err, k.State(), changes.Load())
		}
		if _, err := first.Leaf.Verify(x509.VerifyOptions{Roots: roots(c), DNSName: "127.0.0.1", CurrentTime: time.Now()}); err != nil {
			t.Error(err)
		}
		if c.left() != 0 || c.made() != 1 {
			t.Errorf("%d requests are left of %d", c.left(), c.made())
		}
		if info, err := os.Stat(filepath.Join(dir, "kubelet.pem")); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("the file: %v, %v", info, err)
		}
		// Nothing happens for 70 % of its life; after 90 % there is another.
		time.Sleep(c.life*7/10 - time.Minute)
		if now, _ := k.Certificate(); now != first {
			t.Error("it was renewed too early")
		}
		time.Sleep(c.life*2/10 + 2*time.Minute)
		second, _ := k.Certificate()
		if second == first || c.made() != 2 || changes.Load() != 2 {
			t.Errorf("it was not renewed: %d requests, %d changes", c.made(), changes.Load())
		}
		stop()
		// After a restart it is used again, for the same address only.
		k, _, stop = run(t, c, dir, box)
		time.Sleep(time.Second)
		if again, err := k.Certificate(); err != nil || !again.Leaf.Equal(second.Leaf) || c.made() != 2 || !k.State().Signed {
			t.Errorf("after a restart: %v, %d requests", err, c.made())
		}
		stop()
		moved := box
		moved.Address = netip.MustParseAddr("fd00::7")
		k, _, stop = run(t, c, dir, moved)
		time.Sleep(time.Second)
		if third, err := k.Certificate(); err != nil || third.Leaf.VerifyHostname("fd00::7") != nil || c.made() != 3 {
			t.Errorf("for another address: %v, %d requests", err, c.made())
		}
		stop()
		// A file that is of no use does no harm.
		if err := os.WriteFile(filepath.Join(dir, "kubelet.pem"), []byte("rubbish"), 0o600); err != nil {
			t.Fatal(err)
		}
		k, _, stop = run(t, c, dir, moved)
		time.Sleep(time.Second)
		if !k.State().Signed || c.made() != 4 {
			t.Errorf("after a damaged file: %+v, %d requests", k.State(), c.made())
		}
		stop()
	})
}

func roots(c *cluster) *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(c.ca)
	return pool
}

func TestNobodySigns(t *testing.T) {
	dir := t.TempDir()
	bubble.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.set(func() { c.silent = true })
		k, _, stop := run(t, c, dir, box)
		defer stop()
		time.Sleep(patience - time.Second)
		if _, err := k.Certificate(); err == nil {
			t.Error("it did not wait for the signer")
		}
		time.Sleep(2 * time.Second)
		own, err := k.Certificate()
		if err != nil || k.State().Signed || !strings.Contains(k.State().Problem, "signed") || own.Leaf.VerifyHostname("127.0.0.1") != nil {
			t.Fatalf("%v, %+v", err, k.State())
		}
		// The request waits as long as need be, without another.
		time.Sleep(24 * time.Hour)
		if now, _ := k.Certificate(); now != own || c.made() != 1 {
			t.Errorf("%d requests", c.made())
		}
		c.set(func() { c.silent = false })
		time.Sleep(time.Second)
		if !k.State().Signed || k.State().Problem != "" || c.left() != 0 {
			t.Errorf("after the signer came: %+v", k.State())
		}
		if _, err := os.Stat(filepath.Join(dir, "kubelet.pem")); err != nil {
			t.Error(err)
		}
	})
}

func TestRefusedAndUnreachable(t *testing.T) {
	dir := t.TempDir()
	bubble.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.set(func() { c.denies = true })
		k, _, stop := run(t, c, dir, box)
		defer stop()
		time.Sleep(time.Second)
		if s := k.State(); s.Signed || !strings.Contains(s.Problem, "Policy") {
			t.Errorf("refused: %+v", s)
		}
		// It asks again, more and more rarely, and leaves one request at most.
		time.Sleep(7 * 24 * time.Hour)
		if c.made() < 10 || c.made() > 60 || c.left() != 1 {
			t.Errorf("%d requests in a week, %d are left", c.made(), c.left())
		}
		c.set(func() { c.denies = false; c.broken = true })
		time.Sleep(lastPause + time.Minute)
		if s := k.State(); s.Signed || !strings.Contains(s.Problem, "down") {
			t.Errorf("unreachable: %+v", s)
		}
		c.set(func() { c.broken = false })
		time.Sleep(lastPause + time.Minute)
		if s := k.State(); !s.Signed {
			t.Errorf("at last: %+v", s)
		}
		// One that cannot be renewed serves until its end, and then one of our own does.
		c.set(func() { c.broken = true })
		time.Sleep(c.life - lastPause - 2*time.Minute)
		if s := k.State(); !s.Signed {
			t.Errorf("before its end: %+v", s)
		}
		time.Sleep(2*lastPause + 4*time.Minute)
		if s := k.State(); s.Signed || s.Problem == "" {
			t.Errorf("after its end: %+v", s)
		}
	})
}
