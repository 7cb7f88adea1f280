package plan

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"liqo.io/agent/peer"
)

// Calls go the way that checks go, so that they share a connection.
func TestTarget(t *testing.T) {
	addrs := []netip.AddrPort{netip.MustParseAddrPort("192.0.2.2:6447")}
	const url = "https://box.example.com:6447"
	for _, tc := range []struct {
		source peer.Source
		url    string
		places []peer.Place
	}{
		{peer.LAN, url, nil},
		{peer.IncomingPeering, url, nil},
		{peer.WAN, url, []peer.Place{{URL: url, Addrs: addrs}}},
		{peer.Manual, url, []peer.Place{{URL: url}}},
		{peer.WAN, "", nil},
		{peer.Manual, "", nil},
	} {
		f := &derived{Observed: Observed{ID: "a", Peer: &peer.Peer{ID: "a", Source: tc.source, URL: tc.url, Addrs: addrs}}}
		want := peer.Target{ID: "a", URL: tc.url, Addrs: addrs, Places: tc.places}
		if diff := cmp.Diff(want, f.target(), cmpopts.EquateComparable(netip.AddrPort{})); diff != "" {
			t.Errorf("%s, %q: %s", tc.source, tc.url, diff)
		}
	}
}
