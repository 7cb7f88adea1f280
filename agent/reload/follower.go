package reload

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"liqo.io/agent/agent/config"
	"liqo.io/agent/agent/control"
	"liqo.io/agent/api"
	"liqo.io/agent/health"
	"liqo.io/agent/kube/work"
	"liqo.io/agent/service/notify"
	"liqo.io/agent/state"
)

// Config is what a Follower needs. All of it is required.
type Config struct {
	Store *state.Store
	// Notifier tells the service manager that the configuration is being reloaded.
	Notifier *notify.Notifier
	// Changed is called after each change, before it takes effect.
	Changed func()
	// Differ reports whether a configuration names other certificates than those in use.
	Differ func(cfg config.Config) bool
	// Apply puts the configuration into effect in the running parts. It fails only when
	// ctx ends.
	Apply func(ctx context.Context, cfg config.Config) error
	// Rebuild ends the session, because changed settings need new parts.
	Rebuild func()
	// Sessions returns how often the parts were built.
	Sessions func() int64
	Logger   *slog.Logger
	Now      func() time.Time
}

// Follower puts changes of the configuration file and of the ClusterConfig into effect,
// for one session.
type Follower struct {
	settings *Settings
	cfg      Config

	// spec is the last spec of the ClusterConfig; newSpec has an element when it
	// changed.
	spec    atomic.Pointer[*api.ClusterConfigSpec]
	newSpec chan struct{}
	calls   chan chan<- outcome // calls of Reload, with the channels for their outcomes
	pings   chan struct{}       // liveness checks
}

// NewFollower returns a Follower that changes settings. Run does the work.
func NewFollower(settings *Settings, cfg Config) *Follower {
	return &Follower{settings: settings, cfg: cfg, newSpec: make(chan struct{}, 1), calls: make(chan chan<- outcome), pings: make(chan struct{})}
}

// useSpec takes the spec of the ClusterConfig into use, nil for none, and stores it for
// the next start.
func (f *Follower) useSpec(ctx context.Context, spec *api.ClusterConfigSpec) {
	f.settings.spec = spec
	var text []byte
	if len(values(spec)) > 0 {
		var err error
		if text, err = json.Marshal(spec); err != nil {
			f.cfg.Logger.Error("cannot encode the ClusterConfig as JSON", "error", err)
		}
	}
	if err := f.cfg.Store.RememberConfig(ctx, text); err != nil && ctx.Err() == nil {
		f.cfg.Logger.Warn("cannot store the ClusterConfig; after a restart, it applies only when the API server answers", "error", err)
	}
}

// ClusterConfig queues a new spec of the ClusterConfig. It does not block.
func (f *Follower) ClusterConfig(spec *api.ClusterConfigSpec) {
	f.spec.Store(&spec)
	work.Wake(f.newSpec)
}

// Run applies changes of the file and of the ClusterConfig until ctx ends. If a file
// has faults, the previous one stays in use.
func (f *Follower) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-f.pings:
			// See Answers.
		case <-f.settings.requested:
			// The outcome was logged and reported.
			_, _ = f.reread(ctx)
		case reply := <-f.calls:
			done, err := f.reread(ctx)
			reply <- outcome{done, err}
		case <-f.newSpec:
			f.useSpec(ctx, *f.spec.Load())
			if _, err := f.change(ctx); err != nil {
				return nil // only ctx ends it
			}
		}
	}
}

// reread reads the configuration file again and puts it into effect. The error lists
// the faults of a bad file.
func (f *Follower) reread(ctx context.Context) (control.Reload, error) {
	f.cfg.Notifier.Reloading()
	if err := f.settings.read(f.cfg.Now()); err != nil {
		f.cfg.Notifier.Ready()
		return control.Reload{}, &control.Error{Kind: control.ErrInvalid, Cause: err,
			Message: "the old settings stay in use: " + err.Error(), Advice: "fix the file (liqo-agent config check), then: liqo-agent config reload"}
	}
	f.cfg.Logger.Info("the configuration was reloaded", "path", f.settings.file.Path)
	done, err := f.change(ctx)
	if !done.Rebuilding {
		f.cfg.Notifier.Ready()
	}
	return done, err
}

// change puts the present configuration into effect. It fails only when ctx ends.
func (f *Follower) change(ctx context.Context) (control.Reload, error) {
	old, loaded := f.settings.wanted.Config, f.settings.effective()
	keys, rebuild, _ := config.Changed(old, loaded.Config)
	_, _, needRestart := config.Changed(f.settings.start.Config, loaded.Config)
	done := control.Reload{Path: loaded.Path, Changed: keys, Restart: needRestart, Generation: f.cfg.Sessions()}
	f.settings.use(loaded)
	f.cfg.Changed()
	if len(keys) > 0 {
		f.cfg.Logger.Info("settings changed", "keys", keys)
	}
	f.settings.tracker.When(health.RestartNeeded, len(needRestart) > 0, health.Args{"keys": strings.Join(needRestart, ", ")})
	if f.cfg.Differ(f.settings.Config()) {
		rebuild = append(rebuild, "certificates")
	}
	if len(rebuild) > 0 {
		done.Rebuilding = true
		f.cfg.Rebuild()
		return done, nil
	}
	return done, f.cfg.Apply(ctx, f.settings.Config())
}

// Answers returns when the goroutine of Run has answered, which shows that it is alive.
func (f *Follower) Answers(ctx context.Context) error {
	select {
	case f.pings <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// outcome is the outcome of a reload.
type outcome struct {
	done control.Reload
	err  error
}

// Reload implements socket.Reloader.
func (f *Follower) Reload(ctx context.Context) (control.Reload, error) {
	reply := make(chan outcome, 1)
	select {
	case f.calls <- reply:
	case <-ctx.Done():
		return control.Reload{}, fmt.Errorf("reload the configuration: %w", ctx.Err())
	}
	select {
	case out := <-reply:
		return out.done, out.err
	case <-ctx.Done():
		return control.Reload{}, fmt.Errorf("reload the configuration: %w", ctx.Err())
	}
}

// Generation implements socket.Reloader.
func (f *Follower) Generation() int64 { return f.cfg.Sessions() }
