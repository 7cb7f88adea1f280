package config

import (
	"log/slog"
	"testing"

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
