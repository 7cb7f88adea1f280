package problems

import (
	"testing"
	"time"

	"liqo.io/agent/health"
	"liqo.io/agent/peer"
)

// A certificate that is about to end is a problem of rising severity, for a time that
// suits its life.
func TestExpiry(t *testing.T) {
	const day = 24 * time.Hour
	for _, tc := range []struct {
		left, life time.Duration
		want       *health.Kind
	}{
		{31 * day, 365 * day, nil},
		{30 * day, 365 * day, health.CertificateExpiring},
		{8 * day, 365 * day, health.CertificateExpiring},
		{7 * day, 365 * day, health.CertificateExpiringSoon},
		{25 * time.Hour, 365 * day, health.CertificateExpiringSoon},
		{day, 365 * day, health.CertificateAboutToExpire},
		{1, 365 * day, health.CertificateAboutToExpire},
		{0, 365 * day, health.CertificateExpired},
		{-day, 365 * day, health.CertificateExpired},
		{3 * day, 10 * day, nil},
		{2 * day, 10 * day, health.CertificateExpiring},
		{day, 10 * day, health.CertificateExpiringSoon},
		{8 * time.Hour, 10 * day, health.CertificateAboutToExpire},
		{30 * day, 0, health.CertificateExpiring},
		{day, 0, health.CertificateAboutToExpire},
	} {
		if got := expiry(tc.left, tc.life); got != tc.want {
			t.Errorf("%v of %v left: %v, want %v", tc.left, tc.life, got, tc.want)
		}
	}
}

// That the certificate of a peer has expired is said when trust was suspended because
// of it, and not by a clock that may be wrong.
func TestPeerExpiry(t *testing.T) {
	now := time.Now()
	pin := peer.Pin{NotBefore: now.AddDate(-1, 0, 0), NotAfter: now.Add(-time.Hour)}
	if got := peerExpiry(pin, now); got != health.CertificateAboutToExpire {
		t.Errorf("not suspended: %v", got)
	}
	pin.Suspended = now
	if got := peerExpiry(pin, now.AddDate(-10, 0, 0)); got != health.CertificateExpired {
		t.Errorf("suspended: %v", got)
	}
	pin.Suspended, pin.NotAfter = time.Time{}, now.AddDate(0, 0, 6)
	if got := peerExpiry(pin, now); got != health.CertificateExpiringSoon {
		t.Errorf("six days before: %v", got)
	}
}
