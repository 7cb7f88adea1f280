package problems

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"liqo.io/agent/agent/connect"
	"liqo.io/agent/api"
	"liqo.io/agent/internal/bubble"
	"liqo.io/agent/network"
	"liqo.io/agent/peer"
	"liqo.io/agent/sharing/spec"
)

// there is a Registry in which all peers are in one phase.
type there struct {
	Registry
	phase peer.Phase
}

func (r *there) Peer(id peer.ClusterID) (peer.Peer, bool) {
	return peer.Peer{ID: id, Phase: r.phase}, true
}

// TestNetworkProblems: what is the matter with the networks to peers appears once it lasts, and
// goes.
func TestNetworkProblems(t *testing.T) {
	ok := connect.Seen{State: spec.Network{Enabled: true, Status: api.ConditionTrue, Reason: "Connected"}}
	failing := func(reason string) connect.Seen {
		return connect.Seen{State: spec.Network{Enabled: true, Status: api.ConditionFalse, Reason: reason, Message: "It is " + reason + "."}, Since: time.Now(), Why: "cut off"}
	}
	for _, tc := range []struct {
		name  string
		seen  func() connect.Seen
		phase peer.Phase
		want  string
	}{
		{"connected", func() connect.Seen { return ok }, peer.PhasePresent, ""},
		{"down", func() connect.Seen { return failing("NetworkDown") }, peer.PhasePresent, "pod-network-down pod-network-down"},
		{"never connected", func() connect.Seen { return failing("CannotConnect") }, peer.PhasePresent, "pod-network-down pod-network-down"},
		{"down with the peer", func() connect.Seen { return failing("NetworkDown") }, peer.PhaseUnreachable, ""},
		{"not wanted there", func() connect.Seen { return failing("NotWanted") }, peer.PhasePresent, ""},
		{"off", func() connect.Seen { return failing("Off") }, peer.PhasePresent, ""},
		{"no TUN", func() connect.Seen { return failing("NotPossibleHere") }, peer.PhasePresent, "pod-network-impossible"},
		{"several nodes", func() connect.Seen { return failing("SeveralNodes") }, peer.PhasePresent, "pod-network-impossible"},
		{"no range", func() connect.Seen { return failing("NoPodRange") }, peer.PhasePresent, "pod-network-impossible"},
		{"elsewhere", func() connect.Seen { return failing("NodeElsewhere") }, peer.PhasePresent, "pod-network-impossible"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				m, _ := ailing()
				m.cfg.Registry, m.cfg.Label = &there{phase: tc.phase}, func(id peer.ClusterID) string { return "called " + string(id) }
				seen := tc.seen()
				both := map[peer.ClusterID]connect.Seen{"a": seen, "b": seen}
				m.lookAtPaths(both, time.Now())
				if got := m.codes(); got != "" {
					t.Errorf("at once: %s", got)
				}
				time.Sleep(10 * time.Minute)
				m.lookAtPaths(both, time.Now())
				if got := m.codes(); got != tc.want {
					t.Errorf("after a while: %s, want %s", got, tc.want)
				}
				for _, p := range m.cfg.Tracker.Current() {
					if strings.ContainsAny(p.Text+p.Remedy, "{}") || p.Remedy == "" {
						t.Errorf("%q, try %q", p.Text, p.Remedy)
					}
				}
				m.lookAtPaths(map[peer.ClusterID]connect.Seen{"a": ok}, time.Now())
				if got := m.codes(); got != "" {
					t.Errorf("when it is over: %s", got)
				}
			})
		})
	}
}

// TestMovedAddresses: other addresses are a problem for an hour.
func TestMovedAddresses(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		m, _ := ailing()
		m.cfg.Label = func(id peer.ClusterID) string { return "barn" }
		from, to := netip.MustParsePrefix("241.1.0.0/24"), netip.MustParsePrefix("241.2.0.0/24")
		moved := map[peer.ClusterID]connect.Seen{"a": {
			State: spec.Network{Enabled: true, Status: api.ConditionTrue, Reason: "Connected"},
			Moved: &network.Move{At: time.Now(), From: []netip.Prefix{from}, To: []netip.Prefix{to}, Taken: netip.MustParsePrefix("241.0.0.0/12")},
		}}
		m.lookAtPaths(moved, time.Now())
		current := m.cfg.Tracker.Current()
		if len(current) != 1 || current[0].Text != "the pods of barn have addresses in 241.2.0.0/24 now, because this machine has a route to 241.0.0.0/12, which overlaps with the previous 241.1.0.0/24" {
			t.Fatalf("%+v", current)
		}
		m.lookAtPaths(moved, time.Now().Add(movedFor))
		if got := m.codes(); got != "" {
			t.Errorf("after an hour: %s", got)
		}
	})
}
