package reload

import (
	"log/slog"
	"testing"
	"time"

	"liqo.io/agent/agent/config"
	"liqo.io/agent/api"
	"liqo.io/agent/health"
)

// The level that "log level" set holds until a reload or a restart, as it says, and not until the API server
// answers again, and tells its ClusterConfig: that would be in the middle of what is looked for.
func TestLevelOutlastsClusterConfig(t *testing.T) {
	var tracker health.Tracker
	level := new(slog.LevelVar)
	s, err := New(func() (*config.Loaded, error) { return &config.Loaded{Config: config.Default()}, nil }, level, &tracker)
	if err != nil {
		t.Fatal(err)
	}
	if level.Level() != slog.LevelInfo {
		t.Errorf("at first it is %s", level.Level())
	}
	level.Set(slog.LevelDebug)
	name := "barn"
	for _, spec := range []*api.ClusterConfigSpec{nil, {DiscoveryConfig: &api.DiscoveryConfig{ClusterName: &name}}} {
		s.spec = spec
		s.use(s.effective())
		if level.Level() != slog.LevelDebug {
			t.Errorf("after a ClusterConfig it is %s", level.Level())
		}
	}
	if err := s.read(time.Now()); err != nil {
		t.Fatal(err)
	}
	s.use(s.effective())
	if level.Level() != slog.LevelInfo {
		t.Errorf("after a reload it is %s", level.Level())
	}
}
