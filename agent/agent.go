package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"

	"liqo.io/agent/agent/config"
	"liqo.io/agent/agent/identity"
	"liqo.io/agent/agent/lasterrors"
	"liqo.io/agent/agent/reload"
	"liqo.io/agent/agent/reset"
	"liqo.io/agent/agent/statedir"
	"liqo.io/agent/agent/supervise"
	"liqo.io/agent/agent/watchdog"
	"liqo.io/agent/health"
	"liqo.io/agent/kube/conn"
	"liqo.io/agent/peer"
	"liqo.io/agent/service/notify"
	"liqo.io/agent/state"
	"liqo.io/agent/trust"
)

// Options says how to build an Agent.
type Options struct {
	// Load reads the whole configuration: once at start, and again for every
	// Reload. Its error lists every fault.
	Load func() (*config.Loaded, error)
	// Version is shown in status, for people.
	Version string
	// Logger receives everything the agent has to say; Level decides how much,
	// and is set from the configuration and by the control socket.
	Logger *slog.Logger
	Level  *slog.LevelVar
	// Notify notifies the service manager; nil: there is none.
	Notify *notify.Notifier
}

// Agent is the daemon. New only reads the configuration; Run does the work. What it
// holds outlives sessions.
type Agent struct {
	opts       Options
	logger     *slog.Logger
	started    time.Time
	settings   *reload.Settings
	watchdog   *watchdog.Watchdog
	supervisor *supervise.Supervisor
	health     health.Tracker
	lastErrors lasterrors.Log
	progress   reset.Progress
}

// New reads the configuration. Its error is for the user, and lists every
// fault found.
func New(opts Options) (*Agent, error) {
	a := &Agent{opts: opts, started: time.Now(), watchdog: watchdog.New(opts.Notify)}
	a.logger = a.lastErrors.Recording(opts.Logger)
	a.supervisor = supervise.New(&a.health, a.logger)
	var err error
	a.settings, err = reload.New(func() (*config.Loaded, error) { return a.opts.Load() }, opts.Level, &a.health)
	if err != nil {
		return nil, err
	}
	return a, nil
}

// Reload has a running agent read its configuration again. It returns at once;
// the outcome is logged and shown in status. It may be called from any
// goroutine at any time.
func (a *Agent) Reload() { a.settings.Request() }

// Run runs the agent until ctx ends; it says goodbye to the neighbours and
// stores what it knows before it returns. An error means that it could not
// start, or could not go on.
func (a *Agent) Run(ctx context.Context) error {
	defer a.watchdog.Start(ctx)()
	conn.BridgeKlog(a.logger)
	if os.Getenv("GOGC") == "" {
		// The live heap is a few megabytes, so a collection costs little. What outlives the
		// start lies scattered among its garbage, and the heap does not become smaller
		// than the pages with something left in them: headroom at the start stays.
		debug.SetGCPercent(30)
	}
	for {
		stop, err := a.prepare(ctx)
		if !stop && err == nil {
			err = a.live(ctx)
		}
		switch {
		case errors.Is(err, errReset):
		case ctx.Err() != nil && errors.Is(err, context.Canceled):
			return nil // it was stopped while it waited for a reader of its database
		default:
			return err
		}
	}
}

// live opens the state and runs sessions on it, until ctx ends or a reset deletes the
// state.
func (a *Agent) live(ctx context.Context) error {
	cfg := a.settings.Config()
	store, err := a.openState(ctx, cfg)
	if err != nil {
		return err
	}
	defer func() {
		if err := store.Close(); err != nil {
			a.logger.Warn("cannot close the database cleanly", "error", err)
		}
	}()
	a.settings.Recall(ctx, store, a.logger)
	a.sign(ctx, store)
	key, err := trust.LoadOrCreateKey(cfg.State.Dir)
	if err != nil {
		return err
	}
	if err := key.ChainProblem(); err != nil {
		a.health.Report(health.KeyChain, err)
	}
	for {
		id, origin, err := identity.ClusterID(ctx, a.settings.Config(), store, a.logger)
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		s := &session{agent: a, logger: a.logger, health: &a.health, config: a.settings.Config, store: store, key: key, id: id, origin: origin}
		err = s.run(ctx)
		var changed *identityChanged
		var replaced *keyReplaced
		switch {
		case errors.Is(err, errSettings):
		case errors.As(err, &changed):
			if err := a.adopt(ctx, store, id, changed.id); err != nil {
				return err
			}
		case errors.As(err, &replaced):
			key = replaced.key
		default:
			return err
		}
	}
}

// Errors that end a session, after which the agent goes on.
var (
	// errSettings: changed settings need new parts.
	errSettings = errors.New("changed settings need new parts")
	// errReset: the peers were notified of the reset; the state is deleted next.
	errReset = errors.New("the state of this agent is being reset")
)

// identityChanged ends a session: the API server has another ID for this cluster.
type identityChanged struct{ id peer.ClusterID }

// Error implements error.
func (e *identityChanged) Error() string { return "this cluster's ID is now " + string(e.id) }

// keyReplaced ends a session: this cluster has another key.
type keyReplaced struct{ key *trust.Key }

// Error implements error.
func (e *keyReplaced) Error() string {
	return "this cluster's key is now " + e.key.Fingerprint().String()
}

// adopt stores id as the ID of this cluster, in place of old.
func (a *Agent) adopt(ctx context.Context, store *state.Store, old, id peer.ClusterID) error {
	a.logger.Warn("the API server has another ID for this cluster; the agent uses that from now on", "old", old, "new", id)
	if err := store.SetClusterID(ctx, id, "ConfigMap"); err != nil {
		return fmt.Errorf("store the cluster ID that the API server has for us: %w", err)
	}
	event := peer.Event{At: time.Now(), ID: id, Kind: peer.EventIdentityChanged, Detail: fmt.Sprintf("%s -> %s", old, id)}
	return store.Apply(ctx, state.Change{Events: []peer.Event{event}})
}

// prepare finishes what was interrupted in the state directory before it is opened: a
// restore, and a reset whose peers were notified. stop reports that the agent ends after
// the reset.
func (a *Agent) prepare(ctx context.Context) (stop bool, err error) {
	if err := statedir.Resume(ctx, a.settings.Config().State.Dir); err != nil {
		return false, err
	}
	outcome, err := reset.Finish(ctx, a.settings.Config(), &a.progress, a.logger)
	if outcome == reset.Fresh {
		a.settings.Forget()
	}
	return outcome == reset.Stop, err
}

// sign writes the version of the agent into the database, and after a restore or a
// reset the cluster ID that it belongs to.
func (a *Agent) sign(ctx context.Context, store *state.Store) {
	if store.Volatile() {
		return
	}
	if err := store.SetWriter(ctx, a.opts.Version); err != nil {
		a.logger.Debug("cannot store the version of the agent in the database", "error", err)
	}
	id, origin, err := statedir.Claim(a.settings.Config().State.Dir)
	if err == nil && id != "" {
		var known peer.ClusterID
		if known, err = store.ClusterID(ctx); err == nil && known == "" {
			err = store.SetClusterID(ctx, id, origin)
		}
	}
	if err != nil {
		a.logger.Error("cannot read or store the cluster ID that belongs to this key; the agent uses the API server's", "error", err)
	}
}

// openState opens the database. If it cannot be written, it reports that and returns a
// store in memory, so that neighbours are still found.
func (a *Agent) openState(ctx context.Context, cfg config.Config) (*state.Store, error) {
	path := filepath.Join(cfg.State.Dir, "agent.db")
	store, err := state.Open(ctx, path, state.Options{Logger: a.logger})
	switch {
	case err == nil:
		if r := store.Recovery(); r != nil {
			a.health.Set(health.StateRecovered, health.Finding{Args: health.Args{"recovery": r.String(), "file": store.Recovered()}})
		}
		return store, nil
	case errors.Is(err, state.ErrReadOnly):
		a.health.Set(health.StateVolatile, health.Finding{Args: health.Args{"error": err.Error(), "dir": cfg.State.Dir}})
		return state.Open(ctx, path, state.Options{Logger: a.logger, Memory: true})
	default:
		return nil, err
	}
}
