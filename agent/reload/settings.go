package reload

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"liqo.io/agent/agent/config"
	"liqo.io/agent/api"
	"liqo.io/agent/health"
	"liqo.io/agent/kube/conn"
	"liqo.io/agent/kube/work"
	"liqo.io/agent/state"
)

// Settings is the configuration in use. Its exported methods are safe for concurrent
// use, unless they say otherwise.
type Settings struct {
	load    func() (*config.Loaded, error)
	level   *slog.LevelVar
	tracker *health.Tracker

	start     *config.Loaded // of this process
	current   atomic.Pointer[config.Loaded]
	last      atomic.Pointer[attempt]
	requested chan struct{} // a reload was requested; capacity 1

	// These belong to the goroutine that changes the configuration: that of the agent,
	// and while a session runs, that of its Follower.
	file   *config.Loaded         // as it was read
	wanted *config.Loaded         // with the ClusterConfig on top; some of it waits for a restart
	spec   *api.ClusterConfigSpec // of the ClusterConfig; nil: it sets nothing
}

// attempt is the outcome of reading the configuration.
type attempt struct {
	read time.Time // when it was last read without faults
	ok   bool      // the last attempt found no faults
}

// New reads the configuration with load. The error lists all faults.
func New(load func() (*config.Loaded, error), level *slog.LevelVar, tracker *health.Tracker) (*Settings, error) {
	loaded, err := load()
	if err != nil {
		return nil, err
	}
	s := &Settings{load: load, level: level, tracker: tracker, start: loaded, file: loaded, requested: make(chan struct{}, 1)}
	s.last.Store(&attempt{read: time.Now(), ok: true})
	s.use(loaded)
	return s, nil
}

// Config returns the configuration in use. It is never changed in place.
func (s *Settings) Config() config.Config { return s.current.Load().Config }

// Loaded returns the configuration in use with the sources of its values.
func (s *Settings) Loaded() *config.Loaded { return s.current.Load() }

// Read returns when the configuration was last read without faults, and whether the last
// attempt had none.
func (s *Settings) Read() (at time.Time, ok bool) {
	last := s.last.Load()
	return last.read, last.ok
}

// Request has the Follower of the running session read the configuration again. It does
// not block.
func (s *Settings) Request() { work.Wake(s.requested) }

// use puts a configuration into use, except for settings that need a restart of the
// agent: they keep their values from its start. So a new port that is taken, for
// example, cannot fail a rebuild of the parts.
func (s *Settings) use(l *config.Loaded) {
	changed := s.wanted == nil || s.wanted.Config.Log.Level != l.Config.Log.Level
	s.wanted = l
	s.current.Store(l.Held(s.start))
	if changed { // else it may be what somebody set on the control socket
		s.setLevel(l)
	}
}

// setLevel has the agent log what a configuration says.
func (s *Settings) setLevel(l *config.Loaded) {
	var level slog.Level
	// The configuration was validated, so its level is one slog knows.
	if err := level.UnmarshalText([]byte(l.Config.Log.Level)); err == nil {
		s.level.Set(level)
	}
}

// effective returns the configuration of the file with the values of the ClusterConfig on
// top. It reports invalid values, and keeps those of the file instead.
func (s *Settings) effective() *config.Loaded {
	if s.spec == nil || s.start.Config.Cluster.Kubeconfig == conn.KubeconfigNone {
		s.tracker.Clear(health.ClusterConfigBad, "")
		return s.file
	}
	loaded, faults := s.file.Override(clusterConfigSource, values(s.spec))
	s.tracker.When(health.ClusterConfigBad, len(faults) > 0, health.Args{"error": faults.Error()})
	return loaded
}

// read reads the configuration file again. One that is gone is a fault, unlike at the start: while somebody replaces it,
// nothing is to be trusted by the defaults.
func (s *Settings) read(now time.Time) error {
	loaded, err := s.load()
	if err == nil && loaded.Path == "" && s.file.Path != "" {
		err = fmt.Errorf("file %s: does not exist any more; for the defaults, leave an empty file", s.file.Path)
	}
	s.tracker.Report(health.ConfigBad, err)
	if err != nil {
		s.last.Store(&attempt{read: s.last.Load().read})
		return err
	}
	s.last.Store(&attempt{read: now, ok: true})
	s.file = loaded
	s.setLevel(loaded)
	return nil
}

// Recall takes the stored ClusterConfig into use, before an API server answers: if
// discovery is off there, the agent must not send a single packet. Call it while no
// session runs.
func (s *Settings) Recall(ctx context.Context, store *state.Store, logger *slog.Logger) {
	text, found, err := store.RememberedConfig(ctx)
	if err == nil && found {
		var spec api.ClusterConfigSpec
		if err = json.Unmarshal(text, &spec); err == nil {
			s.spec = &spec
		}
	}
	if err != nil {
		logger.Warn("cannot read the stored ClusterConfig; the agent uses the configuration file until the API server answers", "error", err)
	}
	s.use(s.effective())
}

// Forget takes the configuration without the ClusterConfig into use, because the state
// was reset. Call it while no session runs.
func (s *Settings) Forget() {
	s.spec = nil
	s.use(s.effective())
}
