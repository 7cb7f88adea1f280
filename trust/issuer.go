package trust

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"sync"
	"time"

	"liqo.io/agent/peer"
)

const (
	// leafLifetime is how long after its issue a leaf is valid.
	leafLifetime = 24 * time.Hour
	// leafBackdate is how long before its issue a leaf is valid already, for
	// those among the peers that do look at dates and whose clock is behind.
	leafBackdate = 25 * time.Hour
	// leafRenewal is how far the clock may be from the time of issue, in
	// either direction, before a new leaf is made.
	leafRenewal = 16 * time.Hour
)

// Issuer hands out leaf certificates signed by a cluster key, for TLS servers
// and clients alike. It makes a new one, with a fresh key of its own, when the
// current one gets old, when the clock has jumped, and when the cluster ID
// changes. Behind the leaf it shows the CA certificate, the succession
// certificates of the key, and the fleet certificate if there is one. All
// methods may be called from any goroutine.
type Issuer struct {
	key *Key
	id  func() peer.ClusterID
	now func() time.Time

	mu     sync.Mutex
	leaf   *tls.Certificate // nil: to be made
	leafID peer.ClusterID
	issued time.Time         // wall clock only
	fleet  *x509.Certificate // nil: none
	named  *tls.Certificate  // nil: none
}

// NewIssuer returns an Issuer of leaf certificates for the cluster with key k.
// id is asked at every handshake and must be quick and safe for concurrent
// use; a non-empty ID is put into the leaf as the URI "liqo:cluster:<id>".
func NewIssuer(k *Key, id func() peer.ClusterID) *Issuer {
	return &Issuer{key: k, id: id, now: time.Now}
}

// Fingerprint returns the fingerprint of the cluster key behind the leaves.
func (i *Issuer) Fingerprint() peer.Fingerprint { return i.key.Fingerprint() }

// SetFleetCertificate has cert shown from the next handshake on, as
// LoadFleetCertificate returned it; nil has none shown.
func (i *Issuer) SetFleetCertificate(cert *x509.Certificate) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.fleet, i.leaf = cert, nil
}

// SetNamed has cert, which LoadNamed returned, shown to clients that call the
// endpoint by one of its host names, from the next handshake on and while it is
// valid by this machine's clock; nil has none shown. All others, and those who
// come when it has expired, are shown the cluster's own chain.
func (i *Issuer) SetNamed(cert *tls.Certificate) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.named = cert
}

// GetCertificate returns the certificate a server shows to the client that says
// hello, which may be nil. It fits tls.Config.GetCertificate.
func (i *Issuer) GetCertificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	if hello != nil && hello.ServerName != "" {
		i.mu.Lock()
		named := i.named
		i.mu.Unlock()
		if named != nil && named.Leaf != nil && named.Leaf.VerifyHostname(hello.ServerName) == nil && checkDates(named.Leaf, i.now()) == nil {
			return named, nil
		}
	}
	return i.current()
}

// GetClientCertificate returns the certificate a client shows. It fits
// tls.Config.GetClientCertificate.
func (i *Issuer) GetClientCertificate(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	return i.current()
}

func (i *Issuer) current() (*tls.Certificate, error) {
	// Round strips the monotonic reading: that one does not see the jump of a
	// clock that NTP has just set, which is the moment to renew.
	now, id := i.now().Round(0), i.id()
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.leaf != nil && i.leafID == id && now.Sub(i.issued).Abs() < leafRenewal {
		return i.leaf, nil
	}
	leaf, err := i.key.issue(id, now)
	if err != nil {
		return nil, err
	}
	for _, cert := range i.key.successions {
		leaf.Certificate = append(leaf.Certificate, cert.Raw)
	}
	if i.fleet != nil {
		leaf.Certificate = append(leaf.Certificate, i.fleet.Raw)
	}
	i.leaf, i.leafID, i.issued = leaf, id, now
	return leaf, nil
}

// issue makes a leaf for id, with the CA certificate behind it.
func (k *Key) issue(id peer.ClusterID, now time.Time) (*tls.Certificate, error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generate the key of a TLS certificate: %w", err)
	}
	template, err := clusterTemplate(id, now.Add(-leafBackdate), now.Add(leafLifetime))
	if err != nil {
		return nil, err
	}
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	der, err := x509.CreateCertificate(rand.Reader, template, k.ca, private.Public(), k.private)
	if err != nil {
		return nil, fmt.Errorf("issue a TLS certificate: %w", err)
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("read back a TLS certificate: %w", err)
	}
	return &tls.Certificate{
		Certificate: [][]byte{der, k.ca.Raw},
		PrivateKey:  private,
		Leaf:        parsed,
	}, nil
}
