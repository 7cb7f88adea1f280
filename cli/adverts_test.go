package cli

import (
	"strings"
	"testing"

	"liqo.io/agent/agent/control"
)

// TestAdvertsDecide: a decision reaches the agent, and what comes of it is said.
func TestAdvertsDecide(t *testing.T) {
	m := farm()
	w := withAgent(t, m)
	for _, tc := range []struct{ name, args, heard string }{
		{"adverts-accept", "adverts accept Halle\u00203", "decide-advert " + idSilo + " accept=true"},
		{"adverts-refuse", "adverts refuse barn", "decide-advert " + idBarn + " accept=false"},
		{"adverts-refuse-json", "adverts refuse 0558de48-1 -o json", "decide-advert " + idSilo + " accept=false"},
	} {
		args := strings.Fields(tc.args)
		if tc.name == "adverts-accept" {
			args = []string{"adverts", "accept", "Halle 3"}
		}
		stdout, stderr, code := w.run(t.Context(), args...)
		if heard := m.heard(); code != ExitOK || len(heard) != 1 || heard[0] != tc.heard {
			t.Errorf("%s: exit code %d, the agent heard %q", tc.name, code, heard)
		}
		golden(t, tc.name, "$ liqo-agent "+tc.args+"\n"+stdout+"--- stderr\n"+stderr)
	}
	m.fail = &control.Error{Kind: control.ErrUnavailable, Message: "what other clusters offer is not known: this cluster's API server cannot be reached now", Advice: "liqo-agent status says why"}
	_, stderr, code := w.run(t.Context(), "adverts", "accept", "barn")
	if code == ExitOK || !strings.Contains(stderr, "cannot be reached now\ntry: liqo-agent status says why\n") {
		t.Errorf("without an API server: exit code %d, %s", code, stderr)
	}
}

func TestSharingTexts(t *testing.T) {
	for _, tc := range []struct{ got, want string }{
		{amountsText(nil), "nothing"},
		{amountsText(map[string]string{"pods": "1", "a.example/x": "2", "cpu": "3"}), "cpu 3, pods 1, a.example/x 2"},
		{offeringText(control.Offering{Source: "file x"}), "off (sharing.enable = false, file x)"},
		{offeringText(control.Offering{Enabled: true, Percentage: 50, Overcommit: 100, Message: "no node is ready"}), "50% of what is free: nothing; no node is ready"},
		{usingText(control.Using{}), "off (sharing.use = false): none"},
		{usingText(control.Using{Enabled: true, Policy: "manual", Pending: 2}), "offers that people accept: 2 to be decided about (liqo-agent adverts list)"},
		{nodeText("", false, "", "", 0), ""},
		{nodeText("", false, "NodeFailed", "the API server refuses it", 0), "none (NodeFailed): the API server refuses it"},
		{nodeText("n", true, "ProviderReady", "all is well", 1), "n, ready, 1 pod"},
		{nodeText("n", false, "ProviderUnreachable", "it does not answer", 0), "n, not ready (ProviderUnreachable), 0 pods: it does not answer"},
		{providerText(nil) + consumerText(nil), ""},
		{providerText(&control.Provider{Offered: map[string]string{"cpu": "1"}}), "it offers cpu 1"},
		{consumerText(&control.Consumer{Namespaces: 2, Ending: true}), "0 pods in 2 namespaces; it is being removed"},
	} {
		if tc.got != tc.want {
			t.Errorf("got  %s\nwant %s", tc.got, tc.want)
		}
	}
	p := control.Peer{Phase: "Present", Outgoing: control.Direction{Joined: true, Wanted: true, Reason: joinedWord},
		Sharing: control.PeerSharing{Provider: &control.Provider{Node: "n", Reason: "ProviderUnreachable"}}}
	if text, color := healthOf(p); text != "its node is not ready: ProviderUnreachable" || color != colorYellow {
		t.Errorf("health: %q", text)
	}
}
