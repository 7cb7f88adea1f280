package endpoint

import (
	"net/netip"
	"time"

	"liqo.io/agent/peer"
	"liqo.io/agent/throttle"
)

// How often callers may come, and how much they may have under way at a time.
const (
	// A thousand boxes behind one address that ask for /ids every 30 seconds
	// stay below the first pair; asking to be let in is for people.
	sourceRate, sourceBurst = 50, 100 // requests a second of a source that is not known
	callRate, callBurst     = 1, 5    // of these, calls: everything but /ids
	peerRate, peerBurst     = 20, 100 // requests a second of a known cluster

	maxSources, maxPeers = 4096, 4096 // of whom it is remembered what they used up

	gatewayPerPeer, gatewayInAll = 4, 64
	callsPerPeer, callsInAll     = 8, 256
	asksPerSource, asksInAll     = 4, 32 // calls of those who are not known

	// Requests about the namespaces that a peer has here. A deployment that is scaled
	// up is a burst of some hundred pods.
	guestRate, guestBurst          = 200, 600
	guestsPerPeer, guestsInAll     = 32, 256 // that end by themselves
	streamsPerPeer, streamsInAll   = 64, 512 // watches and followed logs
	largePerPeer, largeInAll       = 2, 8    // with a body of more than maxPodBody
	upgradesPerPeer, upgradesInAll = 16, 64
	tunnelsPerPeer, tunnelsInAll   = 4, 256
)

// limits is what callers may use up. It is safe for concurrent use.
type limits struct {
	now      func() time.Time
	requests *throttle.Buckets[netip.Addr]     // everything of those who are not known
	calls    *throttle.Buckets[netip.Addr]     // of these, all but /ids
	peers    *throttle.Buckets[peer.ClusterID] // everything of those who are
	asking   *throttle.Slots[netip.Addr]
	calling  *throttle.Slots[peer.ClusterID]
	gateway  *throttle.Slots[peer.ClusterID]

	reachRate *throttle.Buckets[peer.ClusterID]
	reach     *throttle.Slots[peer.ClusterID]

	guestRate *throttle.Buckets[peer.ClusterID]
	guests    *lanes
	streams   *lanes
	large     *lanes
	upgrades  *throttle.Slots[peer.ClusterID]
	tunnels   *throttle.Slots[peer.ClusterID]
}

func newLimits() *limits {
	return &limits{
		now:      time.Now,
		requests: throttle.New[netip.Addr](sourceRate, sourceBurst, maxSources),
		calls:    throttle.New[netip.Addr](callRate, callBurst, maxSources),
		peers:    throttle.New[peer.ClusterID](peerRate, peerBurst, maxPeers),
		asking:   throttle.NewSlots[netip.Addr](asksPerSource, asksInAll),
		calling:  throttle.NewSlots[peer.ClusterID](callsPerPeer, callsInAll),
		gateway:  throttle.NewSlots[peer.ClusterID](gatewayPerPeer, gatewayInAll),

		reachRate: throttle.New[peer.ClusterID](reachRate, reachBurst, maxPeers),
		reach:     throttle.NewSlots[peer.ClusterID](reachPerPeer, reachInAll),

		guestRate: throttle.New[peer.ClusterID](guestRate, guestBurst, maxPeers),
		guests:    newLanes(guestsPerPeer, guestsInAll),
		streams:   newLanes(streamsPerPeer, streamsInAll),
		large:     newLanes(largePerPeer, largeInAll),
		upgrades:  throttle.NewSlots[peer.ClusterID](upgradesPerPeer, upgradesInAll),
		tunnels:   throttle.NewSlots[peer.ClusterID](tunnelsPerPeer+1, tunnelsInAll), // one while another ends
	}
}

// request takes a request of somebody who is not known into account and returns
// how long to wait if it is one too many.
func (l *limits) request(source netip.Addr) time.Duration { return l.requests.Take(source, l.now()) }

// call is request for a call, of which fewer are allowed.
func (l *limits) call(source netip.Addr) time.Duration {
	if wait := l.request(source); wait > 0 {
		return wait
	}
	return l.calls.Take(source, l.now())
}

// known is request for somebody who is known.
func (l *limits) known(id peer.ClusterID) time.Duration { return l.peers.Take(id, l.now()) }
