package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"

	"liqo.io/agent/agent/config"
	"liqo.io/agent/agent/control"
	"liqo.io/agent/api"
	"liqo.io/agent/health"
	"liqo.io/agent/peering"
	"liqo.io/agent/state"
)

// configFollower puts a changed configuration into effect, of the file or of the
// ClusterConfig. While it runs, what the agent's configuration is made of is its alone.
type configFollower struct {
	agent        *Agent
	store        *state.Store
	peering      *peering.Controller
	certificates *certificates
	// apply brings the running parts in line.
	apply func(ctx context.Context, cfg config.Config) error
	// end ends the session.
	end func(cause error)

	// spoken is what the ClusterConfig said last; switching has an element when that
	// is new.
	spoken    atomic.Pointer[*api.ClusterConfigSpec]
	switching chan struct{}
	reloads   chan reloadAsk // those who wait for the outcome of one
	pings     chan struct{}  // those who wait for any sign of life
}

// switched takes in what the ClusterConfig says, nil for nothing, and keeps it for
// the next start.
func (f *configFollower) switched(ctx context.Context, spec *api.ClusterConfigSpec) {
	f.agent.spec = spec
	var text []byte
	if len(switches(spec)) > 0 {
		var err error
		if text, err = json.Marshal(spec); err != nil {
			f.agent.logger.Error("cannot encode the ClusterConfig as JSON", "error", err)
		}
	}
	if err := f.store.RememberConfig(ctx, text); err != nil && ctx.Err() == nil {
		f.agent.logger.Warn("cannot store the ClusterConfig; after a restart, it applies only when the API server answers", "error", err)
	}
}

// clusterConfig is told what the ClusterConfig says. It does not block.
func (f *configFollower) clusterConfig(spec *api.ClusterConfigSpec) {
	f.spoken.Store(&spec)
	wake(f.switching)
}

// Run applies a changed configuration, of the file or of the
// ClusterConfig. A bad file leaves the one from before in use.
func (f *configFollower) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-f.pings:
			// Somebody wants to know whether this goroutine is alive.
		case <-f.agent.reload:
			// Its outcome was logged and reported.
			_, _ = f.reread(ctx)
		case ask := <-f.reloads:
			done, err := f.reread(ctx)
			ask <- reloadOutcome{done, err}
		case <-f.switching:
			f.switched(ctx, *f.spoken.Load())
			if _, err := f.change(ctx); err != nil {
				return nil // only ctx ends it
			}
		}
	}
}

// reread reads the configuration file again and puts it into effect. The error lists
// the faults of a bad file.
func (f *configFollower) reread(ctx context.Context) (control.Reload, error) {
	f.agent.opts.Notify.Reloading()
	loaded, err := f.agent.opts.Load()
	f.agent.measures.reloaded(f.agent.now(), err)
	if err != nil {
		f.agent.health.Report(health.ConfigBad, err)
		f.agent.opts.Notify.Ready()
		return control.Reload{}, &control.Error{Kind: control.ErrInvalid, Cause: err,
			Message: "the old settings stay in use: " + err.Error(), Advice: "fix the file (liqo-agent config check), then: liqo-agent config reload"}
	}
	f.agent.health.Clear(health.ConfigBad, "")
	f.agent.file = loaded
	f.agent.logger.Info("the configuration was reloaded", "path", loaded.Path)
	done, err := f.change(ctx)
	if !done.Rebuilding {
		f.agent.opts.Notify.Ready()
	}
	return done, err
}

// change puts the configuration into effect as it is now. Only the end of ctx keeps
// it from doing so.
func (f *configFollower) change(ctx context.Context) (control.Reload, error) {
	old, loaded := f.agent.wanted.Config, f.agent.effective()
	keys, rebuild, _ := config.Changed(old, loaded.Config)
	_, _, needRestart := config.Changed(f.agent.start.Config, loaded.Config)
	done := control.Reload{Path: loaded.Path, Changed: keys, Restart: needRestart, Generation: f.agent.generation.Load()}
	f.agent.use(loaded)
	f.peering.HealthChanged()
	if len(keys) > 0 {
		f.agent.logger.Info("settings changed", "keys", keys)
	}
	f.agent.health.When(health.RestartNeeded, len(needRestart) > 0, health.Args{"keys": strings.Join(needRestart, ", ")})
	if f.certificates.differ(f.agent.config()) {
		rebuild = append(rebuild, "certificates")
	}
	if len(rebuild) > 0 {
		done.Rebuilding = true
		f.end(&settingsChanged{keys: rebuild})
		return done, nil
	}
	return done, f.apply(ctx, f.agent.config())
}

// answers returns when the goroutine that owns the configuration has answered.
func (f *configFollower) answers(ctx context.Context) error {
	select {
	case f.pings <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// reloadAsk is somebody who waits for the outcome of a reload.
type reloadAsk chan<- reloadOutcome

type reloadOutcome struct {
	done control.Reload
	err  error
}

var _ control.Reloader = (*configFollower)(nil)

// Reload implements control.Reloader.
func (f *configFollower) Reload(ctx context.Context) (control.Reload, error) {
	answer := make(chan reloadOutcome, 1)
	select {
	case f.reloads <- answer:
	case <-ctx.Done():
		return control.Reload{}, fmt.Errorf("reload the configuration: %w", ctx.Err())
	}
	select {
	case out := <-answer:
		return out.done, out.err
	case <-ctx.Done():
		return control.Reload{}, fmt.Errorf("reload the configuration: %w", ctx.Err())
	}
}

// Generation implements control.Reloader.
func (f *configFollower) Generation() int64 { return f.agent.generation.Load() }
