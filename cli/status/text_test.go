package status

import (
	"testing"

	"liqo.io/agent/agent/control"
	"liqo.io/agent/cli/domains"
	"liqo.io/agent/cli/peers"
	"liqo.io/agent/cli/render"
)

// TestStatusTexts: a switch says where it is set when that is not where one looks
// first, and many domains do not fill the screen.
func TestStatusTexts(t *testing.T) {
	runtime, file := "ClusterConfig liqo-configuration", "file /etc/x.toml line 3"
	many := make([]control.DomainSummary, 0, 6)
	for _, outcome := range []string{"Found", "Found", "Timeout", "", "NoName", "Found"} {
		many = append(many, control.DomainSummary{Domain: "example.com", Outcome: outcome, Clusters: 2 * len(outcome) / 5, Message: "m"})
	}
	silent := control.Status{
		Discovery: control.Discovery{Enabled: true, Service: "_liqo._tcp", Domain: "local"}, Advertisement: control.Advertisement{Enabled: true},
		Links: []control.Link{{Name: "a"}, {Name: "b"}}, Networks: []control.LinkNetwork{{Link: "a", Rule: "r"}, {Link: "b", Rule: "r"}},
	}
	half := silent
	half.Networks = []control.LinkNetwork{{Link: "a", Rule: "r"}, {Link: "b", Rule: "s", Discover: true, Advertise: true}}
	for _, tc := range []struct{ got, want string }{
		{discoveryText(control.Status{Discovery: control.Discovery{Enabled: true, Service: "_liqo._tcp", Domain: "local", Source: runtime}}), "_liqo._tcp.local on no interface (" + runtime + ")"},
		{discoveryText(control.Status{Discovery: control.Discovery{Enabled: true, Service: "_liqo._tcp", Domain: "local", Source: file}}), "_liqo._tcp.local on no interface"},
		{discoveryText(control.Status{Discovery: control.Discovery{Source: file}}), "off (discovery.enable_discovery = false, " + file + ")"},
		{discoveryText(control.Status{}), "off (discovery.enable_discovery = false)"},
		{liqoText(nil), ""},
		{liqoText(&control.Liqo{ID: "mill", Version: "v1.2.0", Engine: "auto"}), `mill (v1.2.0), peering.engine = "auto"`},
		{liqoText(&control.Liqo{Problem: "not ready: liqo-webhook", Engine: "liqo"}), `unknown ID, peering.engine = "liqo"; it cannot be used: not ready: liqo-webhook`},
		{advertisementText(control.Status{Advertisement: control.Advertisement{Enabled: true, Instance: "x", Established: true, Source: "default"}}), "on, announced as x"},
		{advertisementText(control.Status{Advertisement: control.Advertisement{Enabled: true, Source: "--set"}}), "on, not announced yet (--set)"},
		{advertisementText(control.Status{Advertisement: control.Advertisement{Source: runtime}}), "off (discovery.enable_advertisement = false, " + runtime + ")"},
		{autojoinText(control.Autojoin{Enabled: true, Source: "default"}), "on"},
		{autojoinText(control.Autojoin{Enabled: true, Untrusted: true}), "on, including untrusted clusters (discovery.autojoin_untrusted)"},
		{autojoinText(control.Autojoin{Untrusted: true, Source: "default"}), "off (discovery.autojoin = false)"},
		{domains.Summary(nil), ""},
		{domains.Summary(many), "3 Found, 1 NoName, 1 Timeout, 1 not queried yet, 10 clusters (liqo-agent domains list)"},
		{networksText([]control.LinkNetwork{{Link: "a", Advertise: true, Discover: true, Autojoin: true}, {Link: "b", Rule: "r", Discover: true, Autojoin: true}, {Link: "c", Rule: "s", Why: "w"}}),
			"a everything (no rule matches); b only discovers and joins (rule r); c silent (rule s: w)"},
		{networksText([]control.LinkNetwork{{Link: "a", Why: "no rule matches"}, {Link: "b", Rule: "r", Why: "interface *"}}),
			"a silent (no rule matches); b silent (rule r: interface *)"},
		{discoveryText(silent), "_liqo._tcp.local on no interface: excluded by network rules: a, b"},
		{advertisementText(silent), "on no interface: excluded by network rules: a, b"},
		{offeringText(control.Offering{Source: "file x"}), "off (sharing.enable = false, file x)"},
		{offeringText(control.Offering{Enabled: true, Percentage: 50, Overcommit: 100, Message: "no node is ready"}), "50% of free resources: nothing; no node is ready"},
		{networkText(control.NetworkSummary{Peers: 2, Connected: 2}), "2 of 2 peers connected"},
		{networkText(control.NetworkSummary{Peers: 3, Connected: 2, WireGuard: 1}), "2 of 3 peers connected, 1 by WireGuard (liqo-agent network list)"},
		{networkText(control.NetworkSummary{Reason: "Off", Message: "sharing.network is off.", Peers: 1}), "off: sharing.network is off"},
		{usingText(control.Using{}), "off (sharing.use = false): none"},
		{usingText(control.Using{Enabled: true, Policy: "manual", Pending: 2}), "accepts offers manually: 2 pending (liqo-agent adverts list)"},
		{discoveryText(half), "_liqo._tcp.local on b"},
		{advertisementText(half), "on, not announced yet"},
	} {
		if tc.got != tc.want {
			t.Errorf("got  %s\nwant %s", tc.got, tc.want)
		}
	}
	p := control.Peer{Phase: "Present", Outgoing: control.Direction{Joined: true, Wanted: true, Reason: peers.Joined},
		Sharing: control.PeerSharing{Provider: &control.Provider{Node: "n", Reason: "ProviderUnreachable"}}}
	if text, color := healthOf(p); text != "its node is not ready: ProviderUnreachable" || color != render.Yellow {
		t.Errorf("health: %q", text)
	}
}
