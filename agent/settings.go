package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"time"

	"liqo.io/agent/agent/config"
	"liqo.io/agent/api"
	"liqo.io/agent/health"
	"liqo.io/agent/kube/conn"
	"liqo.io/agent/state"
)

// switchesSource is the source shown for values that the ClusterConfig sets.
const switchesSource = "ClusterConfig " + api.ClusterConfigName

// settingsChanged ends a session: the changed settings take effect when the parts are
// rebuilt.
type settingsChanged struct{ keys []string }

// Error implements error.
func (e *settingsChanged) Error() string {
	return fmt.Sprintf("the agent restarts its parts, because settings changed: %v", e.keys)
}

// switches returns the values that a ClusterConfig sets, by the keys of the configuration.
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

// shared adds the values about sharing.
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

// effective returns the configuration of the file with the values of the ClusterConfig on
// top. It reports invalid values, and keeps those of the file instead.
func (a *Agent) effective() *config.Loaded {
	if a.spec == nil || a.start.Config.Cluster.Kubeconfig == conn.KubeconfigNone {
		a.health.Clear(health.ClusterConfigBad, "")
		return a.file
	}
	loaded, faults := a.file.Override(switchesSource, switches(a.spec))
	a.health.When(health.ClusterConfigBad, len(faults) > 0, health.Args{"error": faults.Error()})
	return loaded
}

// shownSettings are those that kubectl get clusterconfigs shows.
func shownSettings(cfg config.Config) api.EffectiveConfig {
	return api.EffectiveConfig{
		EnableDiscovery: cfg.Discovery.EnableDiscovery, EnableAdvertisement: cfg.Discovery.EnableAdvertisement, Autojoin: cfg.Discovery.Autojoin,
		EnableBroadcaster: cfg.Sharing.Enable,
	}
}

// recall takes the stored ClusterConfig into use, before an API server answers: if
// discovery is off there, the agent must not send a single packet.
func (a *Agent) recall(ctx context.Context, store *state.Store) {
	text, found, err := store.RememberedConfig(ctx)
	if err == nil && found {
		var spec api.ClusterConfigSpec
		if err = json.Unmarshal(text, &spec); err == nil {
			a.spec = &spec
		}
	}
	if err != nil {
		a.logger.Warn("cannot read the stored ClusterConfig; the agent uses the configuration file until the API server answers", "error", err)
	}
	a.use(a.effective())
}
