package policy

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"sync"

	"liqo.io/agent/agent/config"
	"liqo.io/agent/agent/problems"
	"liqo.io/agent/health"
	"liqo.io/agent/peer"
	"liqo.io/agent/trust"
)

// fleetCertificate is the default file name of our own fleet certificate, in the state
// directory.
const fleetCertificate = "fleet.crt"

// Certificates are those that the configuration names: public and fleet certificates
// for this cluster's key, and fleet CAs. It is safe for concurrent use.
type Certificates struct {
	id      peer.ClusterID
	key     *trust.Key
	issuer  *trust.Issuer
	tracker *health.Tracker

	mu     sync.Mutex
	loaded problems.Certificates
}

// NewCertificates returns certificates for the key of cluster id, which issuer shows to
// peers.
func NewCertificates(id peer.ClusterID, key *trust.Key, issuer *trust.Issuer, tracker *health.Tracker) *Certificates {
	return &Certificates{id: id, key: key, issuer: issuer, tracker: tracker}
}

// Use loads the certificates of a configuration. Unusable ones are reported and left
// out, so an unreadable fleet CA makes nobody trusted anew.
func (c *Certificates) Use(cfg config.Config) {
	var now problems.Certificates
	var err error
	now.Fleet, err = c.fleet(cfg)
	c.tracker.Report(health.FleetCertificateUnusable, err)
	c.issuer.SetFleetCertificate(now.Fleet)

	var named *tls.Certificate
	c.tracker.Clear(health.CertificateUnusable, "")
	if cfg.Endpoint.Certificate != "" {
		named, err = trust.LoadNamed(c.key, cfg.Endpoint.Certificate)
		c.tracker.Report(health.CertificateUnusable, err)
	}
	if named != nil {
		now.Public = named.Leaf
	}
	c.issuer.SetNamed(named)

	c.tracker.Clear(health.FleetCAUnusable, "")
	if cfg.Trust.FleetCA != "" {
		now.FleetCAs, err = trust.LoadFleetCA(cfg.Trust.FleetCA)
		c.tracker.Report(health.FleetCAUnusable, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.loaded = now
}

// Loaded returns the certificates that were loaded last.
func (c *Certificates) Loaded() problems.Certificates {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.loaded
}

// Differ reports whether a configuration names other certificates than the endpoint
// shows now. Then the endpoint must be rebuilt: peers see certificates only when a
// connection begins, and keep connections for days.
func (c *Certificates) Differ(cfg config.Config) bool {
	// Use reports unusable certificates.
	fleet, _ := c.fleet(cfg)
	var public *x509.Certificate
	if cfg.Endpoint.Certificate != "" {
		if named, err := trust.LoadNamed(c.key, cfg.Endpoint.Certificate); err == nil {
			public = named.Leaf
		}
	}
	now := c.Loaded()
	return !fleet.Equal(now.Fleet) || !public.Equal(now.Public)
}

func (c *Certificates) fleet(cfg config.Config) (*x509.Certificate, error) {
	path := cfg.Trust.FleetCertificate
	named := path != ""
	if !named {
		path = filepath.Join(cfg.State.Dir, fleetCertificate)
	}
	cert, err := trust.LoadFleetCertificate(path, c.key, c.id)
	if !named && errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("fleet certificate: %w", err)
	}
	return cert, nil
}
