package reload

import (
	"math"
	"time"

	"liqo.io/agent/agent/config"
	"liqo.io/agent/api"
)

// clusterConfigSource is the source shown for values that the ClusterConfig sets.
const clusterConfigSource = "ClusterConfig " + api.ClusterConfigName

// values returns the values that a ClusterConfig sets, by the keys of the configuration.
func values(spec *api.ClusterConfigSpec) map[string]any {
	out := make(map[string]any)
	if spec == nil {
		return out
	}
	if d := spec.DiscoveryConfig; d != nil {
		put(out, "cluster.name", d.ClusterName)
		put(out, "discovery.enable_discovery", d.EnableDiscovery)
		put(out, "discovery.enable_advertisement", d.EnableAdvertisement)
		put(out, "discovery.autojoin", d.Autojoin)
		put(out, "discovery.autojoin_untrusted", d.AutojoinUntrusted)
		put(out, "discovery.domain", d.Domain)
		put(out, "discovery.service", d.Service)
		if d.TTL != nil {
			out["discovery.ttl"] = time.Duration(*d.TTL) * time.Second
		}
	}
	if a := spec.AuthConfig; a != nil {
		put(out, "trust.allow_empty_token", a.AllowEmptyToken)
	}
	if a := spec.AdvertisementConfig; a != nil {
		addSharing(out, a)
	}
	return out
}

// addSharing adds the values about sharing.
func addSharing(values map[string]any, a *api.AdvertisementConfig) {
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

// Shown returns the settings that kubectl get clusterconfigs shows.
func Shown(cfg config.Config) api.EffectiveConfig {
	return api.EffectiveConfig{
		EnableDiscovery: cfg.Discovery.EnableDiscovery, EnableAdvertisement: cfg.Discovery.EnableAdvertisement, Autojoin: cfg.Discovery.Autojoin,
		EnableBroadcaster: cfg.Sharing.Enable,
	}
}
