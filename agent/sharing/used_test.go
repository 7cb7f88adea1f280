package sharing

import (
	"testing"

	"liqo.io/agent/api"
	"liqo.io/agent/sharing/spec"
)

// TestUsed: pods keep their network while it is not known yet whether they have a node.
func TestUsed(t *testing.T) {
	offer := &api.AdvertisementSpec{}
	for _, tc := range []struct {
		name   string
		node   spec.Node
		status spec.NodeStatus
		want   bool
	}{
		{"wanted", spec.Node{Wanted: true, Offer: offer}, spec.NodeStatus{}, true},
		{"drained", spec.Node{}, spec.NodeStatus{Name: "liqo-barn"}, true},
		{"drained, after a start", spec.Node{Shown: true}, spec.NodeStatus{Busy: true, Unknown: true}, true},
		{"no node was shown", spec.Node{}, spec.NodeStatus{Busy: true, Unknown: true}, false},
		{"the node is gone", spec.Node{Shown: true}, spec.NodeStatus{}, false},
		{"given up", spec.Node{Shown: true, Gone: true}, spec.NodeStatus{Name: "liqo-barn", Unknown: true}, false},
	} {
		if got := used(tc.node, tc.status); got != tc.want {
			t.Errorf("%s: %v", tc.name, got)
		}
	}
}
