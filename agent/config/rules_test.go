package config

import (
	"log/slog"
	"strings"
	"testing"

	"liqo.io/agent/mdnssvc"
	"liqo.io/agent/mdnssvc/responder"
	"liqo.io/agent/peering/admission"
)

// A slip of the finger must not keep "config check", or the agent, busy for hours with its digits.
func TestAmountsHaveFewDigits(t *testing.T) {
	if _, err := Load(Options{Path: "/nonexistent", Set: []string{"sharing.storage=1e-1000000"}}); err == nil {
		t.Error("it is taken")
	}
}

// What "config check" takes, the webhook must listen on: else the agent does not start.
func TestAdmissionListensWhereAllowed(t *testing.T) {
	for _, at := range []string{"127.0.0.1:6446", "[::1]:0", "127.0.0.2:6446", "127.1.2.3:6446", "[::ffff:127.0.0.1]:6446", "[::1%lo]:6446", "192.0.2.1:6446"} {
		_, bad := Load(Options{Path: "/nonexistent", Set: []string{"cluster.admission_listen=" + at}})
		_, refused := admission.NewServer(admission.Config{Listen: at, Dir: t.TempDir(), Logger: slog.New(slog.DiscardHandler)})
		if (bad == nil) != (refused == nil) {
			t.Errorf("%s: config check says %v, the webhook %v", at, bad, refused)
		}
	}
}

// A domain that is taken can be announced and browsed with any ID and service: without mDNS the agent does not
// start, and one from the ClusterConfig is remembered, so that it would never learn of a better one.
func TestDomainsHaveRoomForNames(t *testing.T) {
	label := strings.Repeat("a", 63)
	taken := 0
	for n := 1; n <= 253; n++ {
		domain := strings.Repeat(label+".", 4)[:n]
		if strings.HasSuffix(domain, ".") {
			continue
		}
		const service = "_fifteen-letters._tcp"
		if _, err := Load(Options{Path: "/nonexistent", Set: []string{"discovery.domain=" + domain, "discovery.service=" + service}}); err != nil {
			continue
		}
		taken = n
		if _, err := mdnssvc.New(mdnssvc.Config{Service: service, Domain: domain}); err != nil {
			t.Fatalf("%d bytes: %v", n, err)
		}
		if err := (&responder.Announcement{Instance: label, Host: label, Service: service, Domain: domain, Port: 1}).Validate(); err != nil {
			t.Fatalf("%d bytes: %v", n, err)
		}
	}
	if taken < 100 {
		t.Errorf("at most %d bytes are taken", taken)
	}
}
