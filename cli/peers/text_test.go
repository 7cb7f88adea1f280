package peers

import (
	"testing"

	"liqo.io/agent/agent/control"
)

func TestSourcesText(t *testing.T) {
	for _, tc := range []struct{ got, want string }{
		{sourcesText(control.Peer{Source: "LAN"}), "LAN"},
		{sourcesText(control.Peer{Source: "Manual", Sources: []string{"Manual", "WAN"}, Domains: []string{"b", "c"}}), "Manual, WAN (in b, c)"},
	} {
		if tc.got != tc.want {
			t.Errorf("got  %s\nwant %s", tc.got, tc.want)
		}
	}
}
