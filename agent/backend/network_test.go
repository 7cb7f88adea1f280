package backend

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"liqo.io/agent/agent/control"
	"liqo.io/agent/network"
	"liqo.io/agent/peering/reason"
	"liqo.io/agent/sharing/connectivity"
)

func TestNetworkPeer(t *testing.T) {
	since := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	status := network.Status{
		State: network.Connected, Since: since, Engine: network.EngineTLS, MTU: 1500, NoWireGuard: errors.New("it is being tried"), RTT: 1234 * time.Microsecond,
		Blocks:   network.Blocks{Theirs: []netip.Prefix{netip.MustParsePrefix("241.35.10.0/24")}, Ours: []netip.Prefix{netip.MustParsePrefix("241.7.0.0/24")}},
		Counters: network.Counters{BytesIn: 1, BytesOut: 2, Dropped: map[string]uint64{"source": 3}},
	}
	want := control.NetworkPeer{
		State: control.NetworkConnected, Since: since, Engine: "tls", NoWireGuard: "it is being tried", MTU: 1500, RTTMicroseconds: 1234, Theirs: []string{"241.35.10.0/24"}, Ours: []string{"241.7.0.0/24"},
		SentBytes: 2, ReceivedBytes: 1, Dropped: map[string]uint64{"source": 3},
	}
	if diff := cmp.Diff(want, networkPeer(status)); diff != "" {
		t.Error(diff)
	}
	status.State, status.Problem = network.Silent, errors.New("the peer does not answer")
	if got := networkPeer(status); got.State != "Silent" || got.Message != "the peer does not answer" {
		t.Errorf("a silent peer is %+v", got)
	}
	if got := networkOff(&connectivity.Problem{Reason: connectivity.ReasonOff, Message: "sharing.network is off."}); got.State != control.NetworkOff ||
		got.Reason != "Off" || got.Message != "sharing.network is off." {
		t.Errorf("a cluster that is not to be connected: %+v", got)
	}
	if got := networkOff(nil); got.State != control.NetworkOff || got.Reason != reason.NotShared || got.Message == "" {
		t.Errorf("a peer without shared resources: %+v", got)
	}
}
