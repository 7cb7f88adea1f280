package problems

import (
	"crypto/x509"
	"time"

	"liqo.io/agent/health"
	"liqo.io/agent/peer"
	"liqo.io/agent/peer/text"
	"liqo.io/agent/peering/plan"
)

// Certificates are those whose end is a problem of this cluster. Each may be missing.
type Certificates struct {
	// FleetCAs are whose certificates make keys trusted.
	FleetCAs []*x509.Certificate
	// Fleet is our own certificate from one of them, Public the one for the host name.
	Fleet, Public *x509.Certificate
}

// expiry returns the problem of a certificate that expires after left, nil for none.
// Some certificates are valid for days only, so a problem is shown for at most a part of
// the validity period. life is that period, 0 if it is unknown.
func expiry(left, life time.Duration) *health.Kind {
	const day = 24 * time.Hour
	within := func(before, part time.Duration) bool {
		return left <= before && (life <= 0 || left <= life/part)
	}
	switch {
	case left <= 0:
		return health.CertificateExpired
	case within(day, 30):
		return health.CertificateAboutToExpire
	case within(7*day, 10):
		return health.CertificateExpiringSoon
	case within(30*day, 5):
		return health.CertificateExpiring
	}
	return nil
}

// lookAtCertificates checks the expiry dates of our own certificates, and of the
// certificates of trusted peers with a peering.
func (m *Monitor) lookAtCertificates(now time.Time) {
	found := make(map[*health.Kind][]health.Finding)
	add := func(kind *health.Kind, about, what, remedy string, ends time.Time) {
		if kind != nil {
			found[kind] = append(found[kind], health.Finding{About: about, Args: health.Args{
				"what": what, "at": text.Time(ends), "remedy": remedy,
			}})
		}
	}
	own := func(what, remedy string, cert *x509.Certificate) {
		if cert != nil {
			add(expiry(cert.NotAfter.Sub(now), cert.NotAfter.Sub(cert.NotBefore)), what, what, remedy, cert.NotAfter)
		}
	}
	certificates := m.cfg.Certificates()
	for _, ca := range certificates.FleetCAs {
		own("the fleet CA "+ca.Subject.CommonName, "make a new one (liqo-agent fleet init), add it to trust.fleet_ca everywhere and certify the clusters with it", ca)
	}
	own("our fleet certificate", "create a new one with liqo-agent fleet sign, from the output of liqo-agent key show --pem", certificates.Fleet)
	own("the public certificate", "get a new one with the request that liqo-agent key csr prints, and reload the configuration", certificates.Public)
	dates := false
	for _, pin := range m.cfg.Decisions.Pins() {
		if pin.Method != peer.TrustFleet {
			continue
		}
		dates = true
		standing := m.cfg.Decisions.Policy(pin.ID)
		if pin := standing.Pin; pin != nil && !pin.NotAfter.IsZero() && (m.cfg.Decisions.Partner(pin.ID) || standing.Connect == plan.Yes) {
			add(peerExpiry(*pin, now), string(pin.ID), "the fleet certificate of "+m.cfg.Label(pin.ID),
				"make a new one for it with liqo-agent fleet sign, put it in place there, and run there: liqo-agent config reload", pin.NotAfter)
		}
	}
	for _, kind := range []*health.Kind{health.CertificateExpired, health.CertificateAboutToExpire, health.CertificateExpiringSoon, health.CertificateExpiring} {
		m.cfg.Tracker.Replace(kind, found[kind]...)
	}
	var doubt error
	if dates {
		doubt = m.cfg.Clock()
	}
	m.cfg.Tracker.Report(health.ClockUntrusted, doubt)
}

// peerExpiry returns the problem of the certificate by which a peer is trusted. It counts
// as expired only when trust was suspended, because our clock may be wrong.
func peerExpiry(pin peer.Pin, now time.Time) *health.Kind {
	life := time.Duration(0)
	if !pin.NotBefore.IsZero() {
		life = pin.NotAfter.Sub(pin.NotBefore)
	}
	kind := expiry(pin.NotAfter.Sub(now), life)
	switch suspended := !pin.Suspended.IsZero(); {
	case suspended:
		return health.CertificateExpired
	case kind == health.CertificateExpired:
		return health.CertificateAboutToExpire
	}
	return kind
}
