package kubelet

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"math/big"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/client-go/rest"

	"liqo.io/agent/kube"
)

// authority signs certificates for tests.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func issue(t *testing.T, template, parent *x509.Certificate, signer *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	if parent == nil {
		parent, signer = template, key
	}
	template.SerialNumber, template.NotBefore = big.NewInt(time.Now().UnixNano()), time.Now().Add(-time.Hour)
	if template.NotAfter.IsZero() {
		template.NotAfter = time.Now().Add(time.Hour)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert, key
}

func newAuthority(t *testing.T) authority {
	cert, key := issue(t, &x509.Certificate{Subject: pkix.Name{CommonName: "ca"}, IsCA: true, BasicConstraintsValid: true}, nil, nil)
	return authority{cert: cert, key: key}
}

func (a authority) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

// client is what a caller with a certificate of the authority shows.
func (a authority) client(t *testing.T, name string, change func(*x509.Certificate)) *tls.ConnectionState {
	t.Helper()
	template := &x509.Certificate{Subject: pkix.Name{CommonName: name, Organization: []string{"system:masters"}}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	if change != nil {
		change(template)
	}
	cert, _ := issue(t, template, a.cert, a.key)
	return &tls.ConnectionState{PeerCertificates: []*x509.Certificate{cert}}
}

// reviewer is an API server that reviews tokens and access.
type reviewer struct {
	mu      sync.Mutex
	tokens  map[string]string // users by token
	allowed map[string]bool   // by user, verb, subresource and node
	fails   bool
	asked   int
}

// ServeHTTP implements http.Handler.
func (r *reviewer) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked++
	if r.fails {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	switch request.URL.Path {
	case tokenReviews:
		var review authenticationv1.TokenReview
		_ = json.NewDecoder(request.Body).Decode(&review)
		user, known := r.tokens[review.Spec.Token]
		review.Status = authenticationv1.TokenReviewStatus{Authenticated: known, User: authenticationv1.UserInfo{Username: user}}
		_ = json.NewEncoder(w).Encode(review)
	case "/apis/authorization.k8s.io/v1/subjectaccessreviews":
		var review authorizationv1.SubjectAccessReview
		_ = json.NewDecoder(request.Body).Decode(&review)
		what := review.Spec.ResourceAttributes
		review.Status.Allowed = r.allowed[review.Spec.User+" "+what.Verb+" "+what.Resource+"/"+what.Subresource+" "+what.Name]
		_ = json.NewEncoder(w).Encode(review)
	}
}

func (r *reviewer) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.asked
}

// transport hands requests to a handler without a network.
type transport struct{ http.Handler }

// RoundTrip implements http.RoundTripper.
func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	recorder := httptest.NewRecorder()
	t.ServeHTTP(recorder, r)
	return recorder.Result(), nil
}

func clientOf(t *testing.T, handler http.Handler) *kube.Client {
	t.Helper()
	client, err := kube.New(&rest.Config{Host: "http://api", Transport: transport{handler}})
	if err != nil {
		t.Fatal(err)
	}
	return client
}
