package agent

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"liqo.io/agent/agent/config"
	"liqo.io/agent/agent/ledger"
	"liqo.io/agent/health"
	"liqo.io/agent/trust"
)

// fleetCertificate is where our own fleet certificate is looked for when the
// configuration does not say.
const fleetCertificate = "fleet.crt"

// trusting takes in what a configuration says about trust. A fleet CA that cannot
// be read is reported, and nobody is trusted because of it.
func (s *session) trusting(cfg config.Config) {
	p := ledger.Policy{
		Accept: cfg.Trust.Accept, AllowEmptyToken: cfg.Trust.AllowEmptyToken,
		Autojoin: cfg.Discovery.Autojoin, AutojoinUntrusted: cfg.Discovery.AutojoinUntrusted,
		Static: cfg.Peers,
	}
	s.health.Clear(health.FleetCAUnusable, "")
	if cfg.Trust.FleetCA != "" {
		fleet, err := trust.LoadFleetCA(cfg.Trust.FleetCA)
		s.health.Report(health.FleetCAUnusable, err)
		p.Fleet = fleet
	}
	s.fleet.Store(&p.Fleet)
	s.opened(cfg)
	s.policies.Lock()
	s.trusted = p
	s.policies.Unlock()
}

// policy is what decides about peers: the configuration, the search domains and
// where the box is.
func (s *session) policy() ledger.Policy {
	s.policies.Lock()
	defer s.policies.Unlock()
	p := s.trusted
	p.AutojoinSet = s.current.Load().Sources["discovery.autojoin"] != "default"
	p.Domains, p.Strange = s.domains.autojoins(), s.networks.strange()
	p.Search = s.domains.names()
	return p
}

// setPolicy has the ledger decide by what is so now.
func (s *session) setPolicy(ctx context.Context) {
	// One at a time: else the older one of two might come last.
	s.deciding.Lock()
	defer s.deciding.Unlock()
	if err := s.ledger.SetPolicy(ctx, s.policy()); err != nil && ctx.Err() == nil {
		s.logger.Error("what the configuration says about trust is not stored", "error", err)
	}
}

// openness says which settings let anybody in, "" for none.
func openness(cfg config.Config) string {
	switch {
	case cfg.Trust.AllowEmptyToken:
		return "trust.allow_empty_token is on"
	case cfg.Trust.Accept == "all":
		return `trust.accept is "all"`
	case cfg.Discovery.AutojoinUntrusted:
		return "discovery.autojoin_untrusted is on"
	}
	return ""
}

// showCertificates has the issuer show what the configuration names besides the
// cluster's own certificates. What cannot be used is reported and left out.
func (s *session) showCertificates(cfg config.Config) {
	cert, err := s.fleetCertificate(cfg)
	s.health.Report(health.FleetCertificateUnusable, err)
	s.issuer.SetFleetCertificate(cert)
	s.certified.Store(cert != nil)
	s.fleetCert.Store(cert)

	s.health.Clear(health.CertificateUnusable, "")
	s.namedCert.Store(nil)
	if cfg.Endpoint.Certificate == "" {
		s.issuer.SetNamed(nil)
		return
	}
	named, err := trust.LoadNamed(s.key, cfg.Endpoint.Certificate)
	s.health.Report(health.CertificateUnusable, err)
	if named != nil {
		s.namedCert.Store(named.Leaf)
	}
	s.issuer.SetNamed(named)
}

// otherCertificates reports whether the configuration names other certificates than
// those that are shown now. Peers look at them when a connection begins, and keep
// theirs for days: for them to see others the endpoint has to begin anew.
func (s *session) otherCertificates(cfg config.Config) bool {
	// What is wrong with them is told when they are shown.
	fleet, _ := s.fleetCertificate(cfg)
	var public *x509.Certificate
	if cfg.Endpoint.Certificate != "" {
		if named, err := trust.LoadNamed(s.key, cfg.Endpoint.Certificate); err == nil {
			public = named.Leaf
		}
	}
	return !sameCertificate(fleet, s.fleetCert.Load()) || !sameCertificate(public, s.namedCert.Load())
}

func sameCertificate(a, b *x509.Certificate) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Equal(b)
}

func (s *session) fleetCertificate(cfg config.Config) (*x509.Certificate, error) {
	path := cfg.Trust.FleetCertificate
	named := path != ""
	if !named {
		path = filepath.Join(cfg.State.Dir, fleetCertificate)
	}
	cert, err := trust.LoadFleetCertificate(path, s.key, s.id)
	if !named && errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("fleet certificate: %w", err)
	}
	return cert, nil
}
