package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"time"

	"liqo.io/agent/agent/config"
	"liqo.io/agent/agent/control"
	"liqo.io/agent/api"
	"liqo.io/agent/health"
	"liqo.io/agent/peering"
	"liqo.io/agent/state"
)

// switchesSource is where a value comes from that the ClusterConfig sets.
const switchesSource = "ClusterConfig " + api.ClusterConfigName

// settingsChanged ends a session: what changed takes effect when its parts are
// made anew.
type settingsChanged struct{ keys []string }

// Error implements error.
func (e *settingsChanged) Error() string {
	return fmt.Sprintf("changed settings need parts to be made anew: %v", e.keys)
}

// switches are what a ClusterConfig sets, by the keys of the configuration.
func switches(spec *api.ClusterConfigSpec) map[string]any {
	values := make(map[string]any)
	if spec == nil {
		return values
	}
	if d := spec.DiscoveryConfig; d != nil {
		put(values, "cluster.name", d.ClusterName)
		put(values, "discovery.enable_discovery", d.EnableDiscovery)
		put(values, "discovery.enable_advertisement", d.EnableAdvertisement)
		put(values, "discovery.autojoin", d.Autojoin)
		put(values, "discovery.autojoin_untrusted", d.AutojoinUntrusted)
		put(values, "discovery.domain", d.Domain)
		put(values, "discovery.service", d.Service)
		if d.TTL != nil {
			values["discovery.ttl"] = time.Duration(*d.TTL) * time.Second
		}
	}
	if a := spec.AuthConfig; a != nil {
		put(values, "trust.allow_empty_token", a.AllowEmptyToken)
	}
	if a := spec.AdvertisementConfig; a != nil {
		shared(values, a)
	}
	return values
}

// shared adds what is set about sharing.
func shared(values map[string]any, a *api.AdvertisementConfig) {
	if out := a.OutgoingConfig; out != nil {
		put(values, "sharing.enable", out.EnableBroadcaster)
		if p := out.ResourceSharingPercentage; p != nil {
			values["sharing.percentage"] = int(*p)
		}
	}
	if in := a.IngoingConfig; in != nil {
		if policy := in.AcceptPolicy; policy != nil {
			values["sharing.accept_policy"] = map[api.AcceptPolicy]string{api.AcceptAutoMax: "auto", api.AcceptManual: "manual"}[*policy]
		}
		if most := in.MaxAcceptableAdvertisement; most != nil {
			values["sharing.max_accepted"] = int(min(*most, math.MaxInt32))
		}
	}
	if n := a.KeepaliveThreshold; n != nil {
		values["sharing.keepalive_threshold"] = int(min(*n, math.MaxInt32))
	}
	if seconds := a.KeepaliveRetryTime; seconds != nil {
		values["sharing.keepalive_retry"] = time.Duration(*seconds) * time.Second
	}
}

func put[T any](values map[string]any, key string, value *T) {
	if value != nil {
		values[key] = *value
	}
}

// effective is the file's configuration with what the ClusterConfig sets on top.
// What cannot be is reported, and left as the file has it.
func (a *Agent) effective() *config.Loaded {
	if a.spec == nil || a.start.Config.Cluster.Kubeconfig == peering.KubeconfigNone {
		a.health.Clear(health.ClusterConfigBad, "")
		return a.file
	}
	loaded, faults := a.file.Override(switchesSource, switches(a.spec))
	a.say(health.ClusterConfigBad, len(faults) > 0, health.Args{"error": faults.Error()})
	return loaded
}

// shownSettings are those that kubectl get clusterconfigs shows.
func shownSettings(cfg config.Config) api.EffectiveConfig {
	return api.EffectiveConfig{
		EnableDiscovery: cfg.Discovery.EnableDiscovery, EnableAdvertisement: cfg.Discovery.EnableAdvertisement, Autojoin: cfg.Discovery.Autojoin,
		EnableBroadcaster: cfg.Sharing.Enable,
	}
}

// recall takes up what the ClusterConfig said when an API server was last seen, so
// that a box that was told to be silent is so from its first packet on.
func (a *Agent) recall(ctx context.Context, store *state.Store) {
	text, found, err := store.RememberedConfig(ctx)
	if err == nil && found {
		var spec api.ClusterConfigSpec
		if err = json.Unmarshal(text, &spec); err == nil {
			a.spec = &spec
		}
	}
	if err != nil {
		a.logger.Warn("what the ClusterConfig said last cannot be read; the configuration file counts until an API server is there", "error", err)
	}
	a.use(a.effective())
}

// switched takes in what the ClusterConfig says, nil for nothing, and keeps it for
// the next start.
func (s *session) switched(ctx context.Context, spec *api.ClusterConfigSpec) {
	s.spec = spec
	var text []byte
	if len(switches(spec)) > 0 {
		var err error
		if text, err = json.Marshal(spec); err != nil {
			s.logger.Error("what the ClusterConfig says cannot be written as JSON", "error", err)
		}
	}
	if err := s.store.RememberConfig(ctx, text); err != nil && ctx.Err() == nil {
		s.logger.Warn("what the ClusterConfig says is not stored; the next start knows it only when the API server is there", "error", err)
	}
}

// clusterConfig is told what the ClusterConfig says. It does not block.
func (s *session) clusterConfig(spec *api.ClusterConfigSpec) {
	s.spoken.Store(&spec)
	wake(s.switching)
}

// wake sends to a channel of capacity 1, unless it was done before.
func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// followConfig applies a changed configuration, of the file or of the
// ClusterConfig. A bad file leaves the one from before in use.
func (s *session) followConfig(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.pings:
			// Somebody wants to know whether this goroutine is alive.
		case <-s.reload:
			// Its outcome was logged and reported.
			_, _ = s.reread(ctx)
		case ask := <-s.reloads:
			done, err := s.reread(ctx)
			ask <- reloadOutcome{done, err}
		case <-s.switching:
			s.switched(ctx, *s.spoken.Load())
			if _, err := s.change(ctx); err != nil {
				return nil // only ctx ends it
			}
		}
	}
}

// reread reads the configuration file again and puts it into effect. The error lists
// the faults of a bad file.
func (s *session) reread(ctx context.Context) (control.Reload, error) {
	s.opts.Notify.Reloading()
	loaded, err := s.opts.Load()
	s.measures.reloaded(s.now(), err)
	if err != nil {
		s.health.Report(health.ConfigBad, err)
		s.opts.Notify.Ready()
		return control.Reload{}, &control.Error{Kind: control.ErrInvalid, Cause: err,
			Message: "the old settings stay in use: " + err.Error(), Advice: "mend the file (liqo-agent config check), then: liqo-agent config reload"}
	}
	s.health.Clear(health.ConfigBad, "")
	s.file = loaded
	s.logger.Info("the configuration was reloaded", "path", loaded.Path)
	done, err := s.change(ctx)
	if !done.Rebuilding {
		s.opts.Notify.Ready()
	}
	return done, err
}

// change puts the configuration into effect as it is now. Only the end of ctx keeps
// it from doing so.
func (s *session) change(ctx context.Context) (control.Reload, error) {
	old, loaded := s.wanted.Config, s.effective()
	keys, rebuild, _ := config.Changed(old, loaded.Config)
	_, _, needRestart := config.Changed(s.start.Config, loaded.Config)
	done := control.Reload{Path: loaded.Path, Changed: keys, Restart: needRestart, Generation: s.generation.Load()}
	s.use(loaded)
	s.peering.HealthChanged()
	if len(keys) > 0 {
		s.logger.Info("settings changed", "keys", keys)
	}
	s.say(health.RestartNeeded, len(needRestart) > 0, health.Args{"keys": strings.Join(needRestart, ", ")})
	if s.otherCertificates(s.config()) {
		rebuild = append(rebuild, "the certificates that are shown")
	}
	if len(rebuild) > 0 {
		done.Rebuilding = true
		s.end(&settingsChanged{keys: rebuild})
		return done, nil
	}
	return done, s.apply(ctx, s.config())
}
