package peering

import (
	"cmp"
	"hash/fnv"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/agent/api"
	"liqo.io/agent/peer"
	"liqo.io/agent/peering/remote"
)

const (
	// offerLife is how long an offer stands.
	offerLife = 6 * time.Hour
	// offerRenewal is when it is made anew: two hours before its end, and as much
	// as offerSpread earlier, so that the offers to a hundred peers are not written
	// in one minute.
	offerRenewal = offerLife - 2*time.Hour
	offerSpread  = 30 * time.Minute
	// offerShared is how old an offer may be to be sent to another peer as well.
	offerShared = offerSpread / 2

	// capacitySettles is how long another capacity must last to be offered: a node
	// that is not ready for the time its kubelet restarts is no news to anyone.
	capacitySettles = 10 * time.Second

	// maxResources is how many resources an offer may name.
	maxResources = 64

	labelNodeType   = "liqo.io/type"
	virtualNodeType = "virtual-node"
)

// hardOf returns what can run on the nodes altogether: the sum of what is
// allocatable on those that are ready, take pods, and are not a peer's.
func hardOf(nodes []*node) map[string]string {
	sums := make(map[string]resource.Quantity)
	for _, n := range nodes {
		ready := slices.Contains(n.Status.Conditions, nodeCondition{Type: nodeReady, Status: "True"})
		if !ready || n.Spec.Unschedulable || n.Labels[labelNodeType] == virtualNodeType || n.DeletionTimestamp != nil {
			continue
		}
		for name, text := range n.Status.Allocatable {
			quantity, err := resource.ParseQuantity(text)
			if err != nil || quantity.Sign() <= 0 {
				continue
			}
			sum := sums[name]
			sum.Add(quantity)
			sums[name] = sum
		}
	}
	// The resources of every node first, in case there are too many.
	names := slices.SortedFunc(maps.Keys(sums), func(a, b string) int {
		return cmp.Or(cmp.Compare(resourceRank(a), resourceRank(b)), cmp.Compare(a, b))
	})
	hard := make(map[string]string, len(names))
	for _, name := range names[:min(len(names), maxResources)] {
		sum := sums[name]
		hard[name] = sum.String()
	}
	return hard
}

func resourceRank(name string) int {
	if slices.Contains([]string{"cpu", "memory", "pods", "ephemeral-storage"}, name) {
		return 0
	}
	return 1
}

// capacity knows what this cluster can offer, and which offer each peer has. It
// outlives connections to the API server. All methods are safe for concurrent
// use.
type capacity struct {
	mu      sync.Mutex
	hard    map[string]string // nil while it is not known
	next    map[string]string // what hard becomes when it lasts; nil for nothing
	newest  *base
	offered map[peer.ClusterID]*base
}

// base is an offer that peers share, without the name of who makes it.
type base struct {
	hard       map[string]string
	made, ends metav1.Time
	renewed    time.Time // by the monotonic clock: when made was, or would have been
}

func newCapacity() *capacity { return &capacity{offered: make(map[peer.ClusterID]*base)} }

// look takes in the nodes that there are. It reports whether what is offered
// changed, and after how long it wants to be called again; 0 for not at all.
// settled says that this is that time.
func (c *capacity) look(nodes []*node, settled bool) (changed bool, again time.Duration) {
	hard := hardOf(nodes)
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.hard != nil && maps.Equal(hard, c.hard):
		c.next = nil
		return false, 0
	case len(c.hard) == 0 && len(hard) > 0, settled && c.next != nil && maps.Equal(hard, c.next):
		c.hard, c.next = hard, nil
		return true, 0
	}
	c.next = hard
	return false, capacitySettles
}

// offer returns what we, who go by the ID self, offer to a peer now. Its times
// are stable until it is to be sent again. It is nil while the capacity is not
// known, and while an offer that an earlier run of the agent made may be at the
// peer's: if that one is good still, it stays.
func (c *capacity) offer(self peer.ClusterID, standing Standing, seen remote.Observed, id peer.ClusterID, now time.Time) *api.AdvertisementSpec {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.hard == nil || self == "" {
		return nil
	}
	b := c.offered[id]
	if b == nil {
		if standing.LastServed && seen.State == nil {
			return nil
		}
		b = c.adopt(self, seen, now)
	}
	if b == nil || !maps.Equal(b.hard, c.hard) || now.Sub(b.renewed) >= renewalOf(id) {
		b = c.recent(now)
	}
	c.offered[id] = b
	return &api.AdvertisementSpec{
		ClusterID: string(self), ResourceQuota: api.ResourceQuota{Hard: b.hard}, Timestamp: b.made, TimeToLive: b.ends,
	}
}

// recent returns an offer made a moment ago.
func (c *capacity) recent(now time.Time) *base {
	if c.newest == nil || !maps.Equal(c.newest.hard, c.hard) || now.Sub(c.newest.renewed) >= offerShared {
		made := now.UTC().Truncate(time.Second)
		c.newest = &base{hard: c.hard, made: metav1.NewTime(made), ends: metav1.NewTime(made.Add(offerLife)), renewed: now}
	}
	return c.newest
}

// adopt returns the offer that the peer has from an earlier run, nil when there
// is none or it is not good any more.
func (c *capacity) adopt(self peer.ClusterID, seen remote.Observed, now time.Time) *base {
	if seen.State == nil || seen.State.Advertisement == nil {
		return nil
	}
	spec := seen.State.Advertisement.Spec
	age := now.Sub(spec.Timestamp.Time)
	if spec.ClusterID != string(self) || !maps.Equal(spec.ResourceQuota.Hard, c.hard) || age < 0 || age >= offerRenewal ||
		spec.TimeToLive.Sub(spec.Timestamp.Time) != offerLife {
		return nil
	}
	return &base{hard: c.hard, made: spec.Timestamp, ends: spec.TimeToLive, renewed: now.Add(-age)}
}

// due returns after how long the offer to a peer is to be made anew, 0 when there
// is none.
func (c *capacity) due(id peer.ClusterID, now time.Time) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	b := c.offered[id]
	if b == nil {
		return 0
	}
	return max(b.renewed.Add(renewalOf(id)).Sub(now), time.Second)
}

// forget drops the offer to a peer.
func (c *capacity) forget(id peer.ClusterID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.offered, id)
}

// renewalOf spreads the renewal of offers over the peers.
func renewalOf(id peer.ClusterID) time.Duration {
	h := fnv.New32a()
	_, _ = h.Write([]byte(id)) // never fails
	return offerRenewal - time.Duration(h.Sum32()%uint32(offerSpread/time.Second))*time.Second
}
