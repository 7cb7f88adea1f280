package agent

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

// fleetCertificate is where our own fleet certificate is looked for when the
// configuration does not say.
const fleetCertificate = "fleet.crt"

// certificates are those that the configuration names: public and fleet certificates
// for this cluster's key, and fleet CAs.
type certificates struct {
	id      peer.ClusterID
	key     *trust.Key
	issuer  *trust.Issuer
	tracker *health.Tracker

	mu  sync.Mutex
	now problems.Certificates
}

// use loads the certificates of a configuration. Unusable ones are reported and left
// out, so an unreadable fleet CA makes nobody trusted.
func (c *certificates) use(cfg config.Config) {
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
	c.now = now
}

// inUse returns the certificates that were loaded last.
func (c *certificates) inUse() problems.Certificates {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// differ reports whether a configuration names other certificates than the endpoint
// shows now. Then the endpoint must be rebuilt: peers see certificates only when a
// connection begins, and keep connections for days.
func (c *certificates) differ(cfg config.Config) bool {
	// What is wrong with them is told when they are shown.
	fleet, _ := c.fleet(cfg)
	var public *x509.Certificate
	if cfg.Endpoint.Certificate != "" {
		if named, err := trust.LoadNamed(c.key, cfg.Endpoint.Certificate); err == nil {
			public = named.Leaf
		}
	}
	now := c.inUse()
	return !sameCertificate(fleet, now.Fleet) || !sameCertificate(public, now.Public)
}

func sameCertificate(a, b *x509.Certificate) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Equal(b)
}

func (c *certificates) fleet(cfg config.Config) (*x509.Certificate, error) {
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
