package policy

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"liqo.io/agent/agent/config"
	"liqo.io/agent/agent/domains"
	"liqo.io/agent/health"
	"liqo.io/agent/peer"
	"liqo.io/agent/trust"
)

// TestFleetCA: a fleet CA that cannot be read is not one that the configuration does not name.
func TestFleetCA(t *testing.T) {
	dir := t.TempDir()
	key, err := trust.LoadOrCreateKey(dir)
	if err != nil {
		t.Fatal(err)
	}
	good, bad := filepath.Join(dir, "ca.pem"), filepath.Join(dir, "half.pem")
	ca, _, err := trust.NewFleetCA("test fleet", 1, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	for file, text := range map[string][]byte{good: ca, bad: ca[:len(ca)/2]} {
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const id = peer.ClusterID("self")
	loaded := &config.Loaded{Config: config.Default()}
	certificates := NewCertificates(id, key, trust.NewIssuer(key, func() peer.ClusterID { return id }), new(health.Tracker))
	source := NewSource(func() *config.Loaded { return loaded }, domains.NewSet(), func() map[string]bool { return nil })
	for _, c := range []struct {
		file    string
		known   int
		unknown bool
	}{{"", 0, false}, {good, 1, false}, {bad, 0, true}, {filepath.Join(dir, "missing.pem"), 0, true}} {
		cfg := loaded.Config
		cfg.State.Dir, cfg.Trust.FleetCA = dir, c.file
		certificates.Use(cfg)
		source.Use(cfg, certificates.Loaded().FleetCAs)
		if p := source.Policy(); len(p.Fleet) != c.known || p.FleetUnknown != c.unknown {
			t.Errorf("trust.fleet_ca = %q: %d authorities, unknown %t; want %d, %t", c.file, len(p.Fleet), p.FleetUnknown, c.known, c.unknown)
		}
	}
}
