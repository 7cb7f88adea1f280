package adverts

import (
	"testing"

	"liqo.io/agent/agent/control"
)

func TestSharingTexts(t *testing.T) {
	for _, tc := range []struct{ got, want string }{
		{AmountsText(nil), "nothing"},
		{AmountsText(map[string]string{"pods": "1", "a.example/x": "2", "cpu": "3"}), "cpu 3, pods 1, a.example/x 2"},
		{nodeText("", false, "", "", 0), ""},
		{nodeText("", false, "NodeFailed", "the API server refuses it", 0), "none (NodeFailed): the API server refuses it"},
		{nodeText("n", true, "ProviderReady", "all is well", 1), "n, ready, 1 pod"},
		{nodeText("n", false, "ProviderUnreachable", "it does not answer", 0), "n, not ready (ProviderUnreachable), 0 pods: it does not answer"},
		{ProviderText(nil) + ConsumerText(nil), ""},
		{ProviderText(&control.Provider{Offered: map[string]string{"cpu": "1"}}), "it offers cpu 1"},
		{ConsumerText(&control.Consumer{Namespaces: 2, Ending: true}), "0 pods in 2 namespaces; ending"},
	} {
		if tc.got != tc.want {
			t.Errorf("got  %s\nwant %s", tc.got, tc.want)
		}
	}
}
