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
	"liqo.io/agent/kube/work"
	"liqo.io/agent/peering"
	"liqo.io/agent/state"
)

// configFollower puts changes of the configuration file and of the ClusterConfig into
// effect. While it runs, its goroutine owns the inputs of the agent's configuration.
type configFollower struct {
	agent        *Agent
	store        *state.Store
	peering      *peering.Controller
	certificates *certificates
	// apply puts the configuration into effect in the running parts.
	apply func(ctx context.Context, cfg config.Config) error
	// end ends the session.
	end func(cause error)

	// spoken is the last spec of the ClusterConfig; switching has an element when it
	// is new.
	spoken    atomic.Pointer[*api.ClusterConfigSpec]
	switching chan struct{}
	reloads   chan reloadAsk // requests to reload, with the channel for the outcome
	pings     chan struct{}  // liveness checks
}

// switched takes the spec of the ClusterConfig into use, nil for none, and stores it for
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

// clusterConfig queues a new spec of the ClusterConfig. It does not block.
func (f *configFollower) clusterConfig(spec *api.ClusterConfigSpec) {
	f.spoken.Store(&spec)
	work.Wake(f.switching)
}

// Run applies changes of the file and of the ClusterConfig until ctx ends. If a file
// has faults, the previous one stays in use.
func (f *configFollower) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-f.pings:
			// A liveness check; see answers.
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

// change puts the present configuration into effect. It fails only when ctx ends.
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

// answers returns when the goroutine of Run has answered, which shows that it is alive.
func (f *configFollower) answers(ctx context.Context) error {
	select {
	case f.pings <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// reloadAsk receives the outcome of a reload.
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
