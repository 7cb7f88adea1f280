package trust

import (
	"bytes"
	"crypto/x509"
	"errors"
	"fmt"
	"strconv"
	"time"

	"liqo.io/agent/peer"
	"liqo.io/agent/peer/text"
)

// Errors of Shown.Certified and of what else depends on dates, for errors.Is.
var (
	// ErrNoFleetCertificate: the peer shows none, or no fleet CA is configured.
	// Nothing is wrong with that.
	ErrNoFleetCertificate = errors.New("no fleet certificate")
	// ErrClock: the clock of this machine is not set, so nobody can tell what has
	// expired. It may be different in a minute.
	ErrClock = errors.New("the clock of this machine is not set")
)

// clockEpoch is before this program was written.
var clockEpoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// built is when this program was built, in Unix seconds, as the linker was told; "" if
// it was not.
var built string

// Built returns a time at which this program was not there yet, the latest that is
// known: a clock that stands earlier is wrong.
func Built() time.Time {
	seconds, err := strconv.ParseInt(built, 10, 64)
	if at := time.Unix(seconds, 0).UTC(); err == nil && at.After(clockEpoch) {
		return at
	}
	return clockEpoch
}

// maxFleetCAs is how many CA certificates a fleet CA file may hold: more than
// one while a CA is replaced, or where fleets meet.
const maxFleetCAs = 64

// checkClock refuses to judge dates by a clock that is not set.
func checkClock(now time.Time) error {
	if now.Before(Built()) {
		return fmt.Errorf("%w: it says %s, so whether a certificate has expired cannot be told; "+
			"wait until the time is synchronised (timedatectl shows it), or set the clock", ErrClock, now.UTC().Format(time.RFC3339))
	}
	return nil
}

// Certification is what an authority of a fleet says of a key: that it is a
// cluster's, and until when.
type Certification struct {
	By        string           // the authority, for people
	Authority peer.Fingerprint // its key
	// NotBefore and NotAfter are those of the certificate.
	NotBefore, NotAfter time.Time
}

// Certified returns what one of the CAs in fleet says, at now, of exactly the key
// shown and exactly the cluster id. The error says what is missing:
// ErrNoFleetCertificate if there is no certificate to look at, ErrClock if now
// cannot be the time, and anything else if the certificate shown is no good.
func (s Shown) Certified(fleet []*x509.Certificate, id peer.ClusterID, now time.Time) (Certification, error) {
	return s.certified(fleet, id, func(*x509.Certificate, *x509.Certificate) (time.Time, error) { return now, checkClock(now) })
}

// CertifiedOnce is Certified at whatever time the certificate was good. It is for
// those who trust the key already, keep until when, and want to know a new end.
func (s Shown) CertifiedOnce(fleet []*x509.Certificate, id peer.ClusterID) (Certification, error) {
	return s.certified(fleet, id, func(cert, ca *x509.Certificate) (time.Time, error) {
		if ca.NotAfter.Before(cert.NotAfter) {
			return ca.NotAfter, nil
		}
		return cert.NotAfter, nil
	})
}

// FleetEnd returns when the fleet certificate ends that was shown, whoever made it;
// zero if none was.
func (s Shown) FleetEnd() time.Time {
	if cert := s.fleetCertificate(); cert != nil {
		return cert.NotAfter
	}
	return time.Time{}
}

// fleetCertificate returns the fleet certificate that was shown, nil for none.
func (s Shown) fleetCertificate() *x509.Certificate {
	for _, extra := range s.extras {
		if !extra.IsCA {
			return extra // split let one through at most
		}
	}
	return nil
}

// certified is Certified at the time that at returns for the certificate and the
// CA that may have made it.
func (s Shown) certified(fleet []*x509.Certificate, id peer.ClusterID, at func(cert, ca *x509.Certificate) (time.Time, error)) (Certification, error) {
	if len(fleet) == 0 {
		return Certification{}, fmt.Errorf("%w: no fleet CA is configured here", ErrNoFleetCertificate)
	}
	cert := s.fleetCertificate()
	if cert == nil {
		return Certification{}, fmt.Errorf("%w is shown", ErrNoFleetCertificate)
	}
	if err := checkFleetCertificate(cert, s.Fingerprint, id); err != nil {
		return Certification{}, fmt.Errorf("the fleet certificate shown is no good: %w", err)
	}
	ca, err := fleetIssuer(cert, fleet, at)
	switch {
	case errors.Is(err, ErrClock):
		return Certification{}, err
	case err != nil:
		return Certification{}, fmt.Errorf("the fleet certificate shown is no good: %w", err)
	}
	key := peer.FingerprintOf(ca.RawSubjectPublicKeyInfo)
	return Certification{
		By: "fleet CA " + nameOf(ca) + " " + key.String()[:8], Authority: key, NotBefore: cert.NotBefore, NotAfter: cert.NotAfter,
	}, nil
}

// checkFleetCertificate checks all of a fleet certificate that needs no CA and
// no clock.
func checkFleetCertificate(cert *x509.Certificate, fp peer.Fingerprint, id peer.ClusterID) error {
	certified := clusterIDOf(cert)
	switch got := peer.FingerprintOf(cert.RawSubjectPublicKeyInfo); {
	case fp.IsZero() || got != fp:
		return fmt.Errorf("it is over the key %s, not over the cluster key %s", got, fp)
	case cert.IsCA:
		return errors.New("it is a CA certificate")
	case certified == "":
		return fmt.Errorf("it does not name one cluster, as the URI %s<id>", clusterURI)
	case certified != id:
		return fmt.Errorf("it is for cluster %s, not for %s", certified, id)
	}
	return checkCertificate(cert, time.Time{})
}

// fleetIssuer returns the CA in fleet that signed cert, if both are valid at the
// time that at returns for them.
func fleetIssuer(cert *x509.Certificate, fleet []*x509.Certificate, at func(cert, ca *x509.Certificate) (time.Time, error)) (*x509.Certificate, error) {
	err := fmt.Errorf("it is from %s, and the fleet CA here is %s", text.Sentence(cert.Issuer.String()), namesOf(fleet))
	for _, ca := range fleet {
		// The name first: a stranger's certificate costs one signature check and
		// not one for each CA.
		if !bytes.Equal(cert.RawIssuer, ca.RawSubject) {
			continue
		}
		var now time.Time
		if now, err = at(cert, ca); err != nil {
			return nil, err
		}
		if err = checkDates(cert, now); err != nil {
			continue
		}
		if cert.CheckSignatureFrom(ca) != nil {
			err = fmt.Errorf("it names %s as its issuer, but was signed with another key than that of the fleet CA here", nameOf(ca))
			continue
		}
		if err = checkDates(ca, now); err != nil {
			err = fmt.Errorf("the fleet CA %s has expired or is from the future: %w", nameOf(ca), err)
			continue
		}
		// What else there is, such as name constraints and path lengths, the
		// standard verifier checks.
		roots := x509.NewCertPool()
		roots.AddCert(ca)
		if _, err = cert.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}); err == nil {
			return ca, nil
		}
	}
	return nil, err
}

// LoadFleetCA reads the CA certificates of a fleet from a PEM file: one or more,
// each of which may certify keys directly. Dates are not looked at.
func LoadFleetCA(file string) ([]*x509.Certificate, error) {
	certs, err := readCertificates(file, maxFleetCAs)
	if err != nil {
		return nil, err
	}
	for _, cert := range certs {
		if err := checkAuthority(cert); err != nil {
			return nil, fmt.Errorf("%s: the certificate %s cannot be a fleet CA: %w", file, nameOf(cert), err)
		}
	}
	return certs, nil
}

func checkAuthority(cert *x509.Certificate) error {
	switch {
	case !cert.BasicConstraintsValid || !cert.IsCA:
		return errors.New("it is not a CA certificate (CA:TRUE is missing)")
	case cert.KeyUsage != 0 && cert.KeyUsage&x509.KeyUsageCertSign == 0:
		return errors.New("its key may not sign certificates (keyUsage lacks keyCertSign)")
	case len(cert.UnhandledCriticalExtensions) != 0:
		return fmt.Errorf("it has the critical extension %v, which is not understood", cert.UnhandledCriticalExtensions[0])
	}
	return nil
}

// LoadFleetCertificate reads the certificate by which a fleet CA says that k is
// the key of cluster id, as SignFleet makes it. Dates are not looked at, and
// neither is who signed it: peers do that.
func LoadFleetCertificate(file string, k *Key, id peer.ClusterID) (*x509.Certificate, error) {
	certs, err := readCertificates(file, 1)
	if err != nil {
		return nil, err
	}
	if err := checkFleetCertificate(certs[0], k.fingerprint, id); err != nil {
		return nil, fmt.Errorf("%s: peers would not accept the fleet certificate: %w; sign one for this cluster and its present key", file, err)
	}
	return certs[0], nil
}

// nameOf names the holder of a certificate for people.
func nameOf(cert *x509.Certificate) string {
	name := cert.Subject.CommonName
	if name == "" {
		name = cert.Subject.String()
	}
	if name == "" {
		return "without a name"
	}
	return text.Sentence(name)
}

func namesOf(certs []*x509.Certificate) string {
	var names []string
	for _, cert := range certs {
		names = append(names, nameOf(cert))
	}
	return text.List(names, 3, ", ")
}
