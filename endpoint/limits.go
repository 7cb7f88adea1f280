package endpoint

import (
	"net/netip"
	"time"

	"liqo.io/agent/endpoint/wire"
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
	guestRate, guestBurst    = 200, 600
	guestsInAll              = 256  // that end by themselves
	streamsInAll             = 512  // watches and followed logs
	largePerPeer, largeInAll = 2, 8 // with a body of more than maxPodBody

	// What a peer may have written to the API server, by the second and at once. A
	// revision of an object stays in the datastore until that is compacted, mostly for
	// five minutes, so that each byte of these costs disk, however small what is left in
	// the end. 500 pods with what they name are a tenth of what is there at once.
	writeRate, writeBurst = 20, 2400               // 1,200 a minute
	byteRate, byteBurst   = 8 << 20 / 60, 32 << 20 // 8 MiB a minute
	podRate, podBurst     = 10, 1200               // 600 a minute
	openRate, openBurst   = 5, 300                 // lists, watches and logs: 300 a minute
	// scrapeRate is for some ten namespaces with guests, which are asked about every ten
	// seconds.
	scrapeRate, scrapeBurst = 10, 300
	// writesOfNamespace is what making or releasing a namespace counts for.
	writesOfNamespace = 10

	upgradesPerPeer, upgradesInAll = 16, 64
	tunnelsPerPeer, tunnelsInAll   = 4, 256
	networkPerPeer, networkInAll   = 3, 512 // of which one counts, and others end
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
	liqoRate  *throttle.Buckets[peer.ClusterID]
	liqo      *throttle.Slots[peer.ClusterID]

	writes, bytes, pods, opens, scrapes *throttle.Buckets[peer.ClusterID]

	guestRate *throttle.Buckets[peer.ClusterID]
	// Whoever has to wait for these waits in a request: how many do is bounded by how
	// many the connections of a peer can carry.
	guests   *throttle.Slots[peer.ClusterID]
	streams  *throttle.Slots[peer.ClusterID]
	large    *throttle.Slots[peer.ClusterID]
	upgrades *throttle.Slots[peer.ClusterID]
	tunnels  *throttle.Slots[peer.ClusterID]
	network  *throttle.Slots[peer.ClusterID]
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
		liqoRate:  throttle.New[peer.ClusterID](liqoRate, liqoBurst, maxPeers),
		liqo:      throttle.NewSlots[peer.ClusterID](liqoPerPeer, liqoInAll),

		writes: throttle.New[peer.ClusterID](writeRate, writeBurst, maxPeers),
		bytes:  throttle.New[peer.ClusterID](byteRate, byteBurst, maxPeers),
		pods:   throttle.New[peer.ClusterID](podRate, podBurst, maxPeers),
		opens:  throttle.New[peer.ClusterID](openRate, openBurst, maxPeers),

		scrapes: throttle.New[peer.ClusterID](scrapeRate, scrapeBurst, maxPeers),

		guestRate: throttle.New[peer.ClusterID](guestRate, guestBurst, maxPeers),
		guests:    throttle.NewSlots[peer.ClusterID](wire.RequestsPerPeer, guestsInAll),
		streams:   throttle.NewSlots[peer.ClusterID](wire.StreamsPerPeer, streamsInAll),
		large:     throttle.NewSlots[peer.ClusterID](largePerPeer, largeInAll),
		upgrades:  throttle.NewSlots[peer.ClusterID](upgradesPerPeer, upgradesInAll),
		tunnels:   throttle.NewSlots[peer.ClusterID](tunnelsPerPeer+1, tunnelsInAll), // one while another ends
		network:   throttle.NewSlots[peer.ClusterID](networkPerPeer, networkInAll),
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

// cost is what a peer has written to the API server by one request.
type cost struct {
	writes, pods, bytes int
}

// write takes what a request costs out of the budgets of a peer, or returns how long
// to wait until there is enough in all of them.
func (l *limits) write(id peer.ClusterID, c cost) time.Duration {
	now := l.now()
	budgets := []struct {
		of *throttle.Buckets[peer.ClusterID]
		n  int
	}{{l.writes, c.writes}, {l.bytes, c.bytes}, {l.pods, c.pods}}
	var wait time.Duration
	for _, b := range budgets {
		wait = max(wait, b.of.WaitN(id, b.n, now))
	}
	for _, b := range budgets {
		if wait == 0 { // unless somebody else was quicker
			wait = b.of.TakeN(id, b.n, now)
		}
	}
	return wait
}

// wrote takes into account how large what was written has become.
func (l *limits) wrote(id peer.ClusterID, sent, answered int) {
	if answered > sent {
		l.bytes.Owe(id, answered-sent, l.now())
	}
}
