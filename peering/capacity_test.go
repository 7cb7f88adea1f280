package peering

import (
	"fmt"
	"maps"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/agent/endpoint"
	"liqo.io/agent/peer"
	"liqo.io/agent/peering/remote"
)

// machine returns a node that is ready.
func machine(allocatable map[string]string, change ...func(*node)) *node {
	n := &node{}
	n.Status.Allocatable = allocatable
	n.Status.Conditions = []nodeCondition{{Type: nodeReady, Status: "True"}}
	for _, c := range change {
		c(n)
	}
	return n
}

func TestHardOf(t *testing.T) {
	small := map[string]string{"cpu": "3900m", "memory": "3824Mi", "pods": "110"}
	many := map[string]string{"cpu": "1"}
	for i := range 2 * maxResources {
		many[fmt.Sprintf("a.example/%03d", i)] = "1"
	}
	for _, tc := range []struct {
		name  string
		nodes []*node
		want  map[string]string
	}{
		{"none", nil, map[string]string{}},
		{"one", []*node{machine(small)}, small},
		{"two", []*node{machine(small), machine(map[string]string{"cpu": "100m", "memory": "1Gi", "nvidia.com/gpu": "2"})},
			map[string]string{"cpu": "4", "memory": "4848Mi", "pods": "110", "nvidia.com/gpu": "2"}},
		{"left out", []*node{
			machine(small, func(n *node) { n.Spec.Unschedulable = true }),
			machine(small, func(n *node) { n.Status.Conditions[0].Status = "Unknown" }),
			machine(small, func(n *node) { n.Status.Conditions = nil }),
			machine(small, func(n *node) { n.Labels = map[string]string{"liqo.io/type": "virtual-node"} }),
			machine(small, func(n *node) { n.DeletionTimestamp = &metav1.Time{} }),
		}, map[string]string{}},
		{"nonsense", []*node{machine(map[string]string{"cpu": "many", "pods": "0", "memory": "-1Gi", "x": "1"})}, map[string]string{"x": "1"}},
	} {
		if got := hardOf(tc.nodes); !maps.Equal(got, tc.want) {
			t.Errorf("%s: %v, want %v", tc.name, got, tc.want)
		}
	}
	if got := hardOf([]*node{machine(many)}); len(got) != maxResources || got["cpu"] != "1" {
		t.Errorf("%d resources, cpu %q", len(got), got["cpu"])
	}
}

// TestCapacitySettles has nodes come and go, and looks when that is offered.
func TestCapacitySettles(t *testing.T) {
	c := newCapacity()
	one, two := []*node{machine(map[string]string{"cpu": "1"})}, []*node{machine(map[string]string{"cpu": "2"})}
	for i, step := range []struct {
		nodes   []*node
		settled bool
		changed bool
		again   bool
		cpu     string // offered; "-" for nothing known
	}{
		{nil, false, false, true, "-"}, // the node may not be ready yet
		{one, false, true, false, "1"}, // the first capacity is told at once
		{one, false, false, false, "1"},
		{nil, false, false, true, "1"}, // a short absence is not
		{one, false, false, false, "1"},
		{two, false, false, true, "1"},
		{one, true, false, false, "1"},
		{two, true, false, true, "1"}, // it has to last from when it was seen
		{two, true, true, false, "2"},
		{nil, false, false, true, "2"},
		{nil, true, true, false, ""},
		{two, false, true, false, "2"},
	} {
		changed, again := c.look(step.nodes, step.settled)
		cpu := "-"
		if c.hard != nil {
			cpu = c.hard["cpu"]
		}
		if changed != step.changed || (again > 0) != step.again || cpu != step.cpu {
			t.Errorf("step %d: changed %v, again %v, cpu %q; want %+v", i, changed, again, cpu, step)
		}
	}
	never := newCapacity()
	never.look(nil, false)
	if never.look(nil, true); never.hard == nil {
		t.Error("a cluster without a node that is ready never says so")
	}
}

func TestOffer(t *testing.T) {
	const self = peer.ClusterID("self")
	c := newCapacity()
	now := t0
	offer := func(id peer.ClusterID) string {
		spec := c.offer(self, Standing{}, remote.Observed{}, id, now)
		if spec == nil {
			return ""
		}
		if spec.ClusterID != string(self) || spec.TimeToLive.Sub(spec.Timestamp.Time) != offerLife {
			t.Errorf("offer %+v", spec)
		}
		return spec.Timestamp.UTC().Format(time.RFC3339) + " " + spec.ResourceQuota.Hard["cpu"]
	}
	if got := offer("a"); got != "" {
		t.Errorf("offered %q without knowing the capacity", got)
	}
	c.look([]*node{machine(map[string]string{"cpu": "1"})}, false)
	first := offer("a")
	if first == "" || c.due("a", now) < offerRenewal-offerSpread {
		t.Errorf("offer %q, due in %v", first, c.due("a", now))
	}
	// Peers that come one after the other share an offer.
	now = now.Add(offerShared / 2)
	if got := offer("b"); got != first {
		t.Errorf("offers %q and %q", first, got)
	}
	now = now.Add(offerShared)
	if got := offer("c"); got == first || offer("a") != first {
		t.Errorf("an old offer was sent to a new peer, or a good one made anew")
	}
	// Each is made anew in its time: never late, not all at once.
	at := map[time.Duration]int{}
	for i := range 100 {
		id := peer.ClusterID(fmt.Sprintf("peer-%d", i))
		before := offer(id)
		due := c.due(id, now)
		if due < offerRenewal-offerSpread-offerShared || due > offerRenewal {
			t.Fatalf("%s is due in %v", id, due)
		}
		at[due.Truncate(5*time.Minute)]++
		start := now
		if now = now.Add(due - time.Second); offer(id) != before {
			t.Errorf("%s was made anew too early", id)
		}
		if now = now.Add(time.Second); offer(id) == before {
			t.Errorf("%s was not made anew", id)
		}
		now = start
		c.newest = nil
	}
	if len(at) < 5 {
		t.Errorf("renewals are at %v", at)
	}
	// Another capacity is offered at once.
	c.look([]*node{machine(map[string]string{"cpu": "2"})}, false)
	c.look([]*node{machine(map[string]string{"cpu": "2"})}, true)
	if got := offer("a"); got == first || got[len(got)-1] != '2' {
		t.Errorf("offer %q", got)
	}
	// A clock that jumps changes nothing.
	before := offer("a")
	if got := c.offer(self, Standing{}, remote.Observed{}, "a", now.Add(time.Minute)); got.Timestamp.UTC().Format(time.RFC3339)+" 2" != before {
		t.Errorf("offer %v, want %s", got, before)
	}
	c.forget("a")
	if c.due("a", now) != 0 {
		t.Error("a forgotten peer's offer is due")
	}
}

// TestOfferOutlivesRestart: an offer that an earlier run of the agent made stays
// while it is good.
func TestOfferOutlivesRestart(t *testing.T) {
	const self = peer.ClusterID("self")
	served := Standing{LastServed: true}
	fresh := func() *capacity {
		c := newCapacity()
		c.look([]*node{machine(map[string]string{"cpu": "1"})}, false)
		return c
	}
	earlier := fresh().offer(self, Standing{}, remote.Observed{}, "a", t0)
	seen := func(change func(*endpoint.OfferState)) remote.Observed {
		o := &endpoint.OfferState{Spec: earlier.DeepCopy()}
		change(o)
		return remote.Observed{State: &endpoint.State{Advertisement: o}}
	}
	if got := fresh().offer(self, served, remote.Observed{}, "a", t0); got != nil {
		t.Errorf("%+v is offered before the peer said what it has", got)
	}
	if got := fresh().offer(self, served, remote.Observed{State: &endpoint.State{}}, "a", t0.Add(time.Hour)); got == nil || got.Timestamp.Equal(&earlier.Timestamp) {
		t.Errorf("the peer has none, and is offered %+v", got)
	}
	for _, tc := range []struct {
		name  string
		after time.Duration
		seen  remote.Observed
		stays bool
	}{
		{"good", 3 * time.Hour, seen(func(*endpoint.OfferState) {}), true},
		{"due", offerRenewal, seen(func(*endpoint.OfferState) {}), false},
		{"from the future", -time.Hour, seen(func(*endpoint.OfferState) {}), false},
		{"other capacity", time.Hour, seen(func(o *endpoint.OfferState) { o.Spec.ResourceQuota.Hard["cpu"] = "2" }), false},
		{"not ours", time.Hour, seen(func(o *endpoint.OfferState) { o.Spec.ClusterID = "x" }), false},
		{"edited", time.Hour, seen(func(o *endpoint.OfferState) { o.Spec.TimeToLive = metav1.NewTime(t0.Add(99 * time.Hour)) }), false},
	} {
		c := fresh()
		now := t0.Add(tc.after)
		got := c.offer(self, served, tc.seen, "a", now)
		if stays := got.Timestamp.Equal(&earlier.Timestamp); stays != tc.stays {
			t.Errorf("%s: stays %v", tc.name, stays)
		}
		if tc.stays {
			if due := c.due("a", now); due > offerRenewal-tc.after {
				t.Errorf("%s: due in %v", tc.name, due)
			}
		}
	}
}
