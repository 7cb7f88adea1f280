package config

import (
	"bytes"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const runtimeObject = "ClusterConfig liqo-configuration"

func TestOverride(t *testing.T) {
	l, err := Load(Options{Path: write(t, "[cluster]\nname = \"barn\"\n[discovery]\nautojoin = true\n"), Flags: map[string]string{"sharing.percentage": "10"}})
	if err != nil {
		t.Fatal(err)
	}
	before, sources := l.Config, maps.Clone(l.Sources)
	got, faults := l.Override(runtimeObject, map[string]any{
		"cluster.name": "Halle 3", "discovery.enable_discovery": false, "discovery.ttl": 600 * time.Second, "sharing.percentage": 30,
		"discovery.domain": "LAN.", "discovery.exclude_interfaces": []string{"x*"}, "discovery.check_interval": 20 * time.Minute, "discovery.lost_after": "1h",
	})
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	want := before
	want.Cluster.Name, want.Discovery.EnableDiscovery, want.Discovery.TTL, want.Sharing.Percentage = "Halle 3", false, 10*time.Minute, 30
	want.Discovery.Domain, want.Discovery.ExcludeInterfaces = "lan", []string{"x*"}
	want.Discovery.CheckInterval, want.Discovery.LostAfter = 20*time.Minute, time.Hour
	if diff := cmp.Diff(want, got.Config); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got.Sources["discovery.ttl"] != runtimeObject || got.Sources["cluster.name"] != runtimeObject || got.Sources["log.level"] != "default" || got.Path != l.Path {
		t.Errorf("sources %v", got.Sources)
	}
	if !cmp.Equal(l.Config, before) || !maps.Equal(l.Sources, sources) {
		t.Error("the original was changed")
	}
	got.Config.Discovery.ExcludeInterfaces[0] = "changed"
	got.Sources["log.level"] = "changed"
	if l.Config.Discovery.ExcludeInterfaces[0] == "changed" || l.Sources["log.level"] == "changed" {
		t.Error("the copy shares memory with the original")
	}
	var text bytes.Buffer
	if err := got.WriteTOML(&text, true); err != nil || !strings.Contains(text.String(), "ttl = \"10m\"  # "+runtimeObject+"\n") {
		t.Errorf("%v\n%s", err, &text)
	}
	if same, faults := l.Override(runtimeObject, nil); len(faults) > 0 || !cmp.Equal(same.Config, l.Config) || !maps.Equal(same.Sources, sources) {
		t.Errorf("with nothing: %v", faults)
	}
}

// TestOverrideOfNothing: what was never loaded does not make it hang.
func TestOverrideOfNothing(t *testing.T) {
	broken := &Loaded{Config: Default()}
	broken.Config.Discovery.LostAfter = 0
	got, faults := broken.Override(runtimeObject, map[string]any{"discovery.autojoin": false})
	if len(faults) != 1 || got.Config.Discovery.Autojoin || got.Sources["discovery.autojoin"] != runtimeObject {
		t.Errorf("%v, %+v", faults, got.Sources)
	}
}

// TestOverrideRefuses: what breaks a rule is left out, and nothing else is.
func TestOverrideRefuses(t *testing.T) {
	l, err := Load(Options{Path: write(t, "")})
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		values map[string]any
		want   string
	}{
		{map[string]any{"discovery.autojion": true}, "discovery.autojion is no key that liqo-agent knows; did you mean discovery.autojoin?"},
		{map[string]any{"search_domain": "x"}, "search_domain is no key that liqo-agent knows"},
		{map[string]any{"discovery.autojoin": "yes"}, `discovery.autojoin = "yes": must be true or false`},
		{map[string]any{"discovery.autojoin": nil}, "discovery.autojoin = <nil>: must be true or false"},
		{map[string]any{"sharing.percentage": 101}, "sharing.percentage = 101: must be between 0 and 100"},
		{map[string]any{"sharing.percentage": 1.5}, "sharing.percentage = 1.5: must be a whole number"},
		{map[string]any{"discovery.ttl": 600}, `discovery.ttl = 600: must be a duration such as "30s", "15m" or "90d"`},
		{map[string]any{"discovery.ttl": time.Second}, `discovery.ttl = "1s": must be between 10s and 1d`},
		{map[string]any{"discovery.service": "liqo"}, `discovery.service = "liqo": must be a TCP service type`},
		{map[string]any{"discovery.check_interval": 20 * time.Minute}, `discovery.lost_after = "15m": must not be shorter than discovery.check_interval, which is 20m`},
		{map[string]any{"discovery.lost_after": time.Second}, `discovery.lost_after = "1s": must not be shorter than discovery.check_interval, which is 30s`},
		{map[string]any{"discovery.lost_after": time.Second, "discovery.check_interval": 2 * time.Second}, `discovery.lost_after = "1s": must not be shorter than discovery.check_interval, which is 2s`},
	} {
		tc.values["log.level"] = "debug"
		got, faults := l.Override(runtimeObject, tc.values)
		if len(faults) != 1 || !strings.HasPrefix(faults[0].Error(), runtimeObject+": "+tc.want) {
			t.Errorf("%v: %v, want %s", tc.values, faults, tc.want)
		}
		want := l.Config
		want.Log.Level = "debug"
		if diff := cmp.Diff(want, got.Config); diff != "" || len(together(got.Config)) > 0 {
			t.Errorf("%v (-want +got):\n%s", tc.values, diff)
		}
		for key, source := range got.Sources {
			if (source == runtimeObject) != (key == "log.level") {
				t.Errorf("%v: %s comes from %q", tc.values, key, source)
			}
		}
	}
}
