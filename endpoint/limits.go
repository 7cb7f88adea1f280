package endpoint

import (
	"container/list"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"liqo.io/agent/peer"
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
	requests *buckets[netip.Addr]     // everything of those who are not known
	calls    *buckets[netip.Addr]     // of these, all but /ids
	peers    *buckets[peer.ClusterID] // everything of those who are
	asking   *slots[netip.Addr]
	calling  *slots[peer.ClusterID]
	gateway  *slots[peer.ClusterID]

	reachRate *buckets[peer.ClusterID]
	reach     *slots[peer.ClusterID]

	guestRate *buckets[peer.ClusterID]
	guests    *lanes
	streams   *lanes
	large     *lanes
	upgrades  *slots[peer.ClusterID]
	tunnels   *slots[peer.ClusterID]
}

func newLimits() *limits {
	return &limits{
		now:      time.Now,
		requests: newBuckets[netip.Addr](sourceRate, sourceBurst, maxSources),
		calls:    newBuckets[netip.Addr](callRate, callBurst, maxSources),
		peers:    newBuckets[peer.ClusterID](peerRate, peerBurst, maxPeers),
		asking:   newSlots[netip.Addr](asksPerSource, asksInAll),
		calling:  newSlots[peer.ClusterID](callsPerPeer, callsInAll),
		gateway:  newSlots[peer.ClusterID](gatewayPerPeer, gatewayInAll),

		reachRate: newBuckets[peer.ClusterID](reachRate, reachBurst, maxPeers),
		reach:     newSlots[peer.ClusterID](reachPerPeer, reachInAll),

		guestRate: newBuckets[peer.ClusterID](guestRate, guestBurst, maxPeers),
		guests:    newLanes(guestsPerPeer, guestsInAll),
		streams:   newLanes(streamsPerPeer, streamsInAll),
		large:     newLanes(largePerPeer, largeInAll),
		upgrades:  newSlots[peer.ClusterID](upgradesPerPeer, upgradesInAll),
		tunnels:   newSlots[peer.ClusterID](tunnelsPerPeer+1, tunnelsInAll), // one while another ends
	}
}

// request takes a request of somebody who is not known into account and returns
// how long to wait if it is one too many.
func (l *limits) request(source netip.Addr) time.Duration { return l.requests.take(source, l.now()) }

// call is request for a call, of which fewer are allowed.
func (l *limits) call(source netip.Addr) time.Duration {
	if wait := l.request(source); wait > 0 {
		return wait
	}
	return l.calls.take(source, l.now())
}

// known is request for somebody who is known.
func (l *limits) known(id peer.ClusterID) time.Duration { return l.peers.take(id, l.now()) }

// buckets are token buckets, one for each key that was used lately. It forgets
// those that are full again, and beyond max the one that was not used for
// longest: whoever commands that many addresses gains a bucket's size with each
// and no more.
type buckets[K comparable] struct {
	rate       rate.Limit
	burst, max int

	mu   sync.Mutex
	keys map[K]*list.Element
	used list.List // of *bucket[K], the one not used for longest first
}

type bucket[K comparable] struct {
	key     K
	limiter *rate.Limiter
}

func newBuckets[K comparable](perSecond rate.Limit, burst, most int) *buckets[K] {
	return &buckets[K]{rate: perSecond, burst: burst, max: most, keys: make(map[K]*list.Element)}
}

// take takes a token out of key's bucket. If there is none it returns how long
// it takes until there is one, else 0.
func (b *buckets[K]) take(key K, now time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	limiter := b.limiter(key, now)
	if limiter.AllowN(now, 1) {
		return 0
	}
	return max(time.Millisecond, time.Duration((1-limiter.TokensAt(now))/float64(b.rate)*float64(time.Second)))
}

// reserve takes a token that will be there after wait, unless that is longer than
// most: then it takes none.
func (b *buckets[K]) reserve(key K, now time.Time, most time.Duration) (wait time.Duration, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := b.limiter(key, now).ReserveN(now, 1)
	if wait = r.DelayFrom(now); wait > most {
		r.CancelAt(now)
		return wait, false
	}
	return wait, true
}

// limiter returns key's bucket. b.mu is held.
func (b *buckets[K]) limiter(key K, now time.Time) *rate.Limiter {
	e, ok := b.keys[key]
	if ok {
		b.used.MoveToBack(e)
	} else {
		b.makeRoom(now)
		e = b.used.PushBack(&bucket[K]{key, rate.NewLimiter(b.rate, b.burst)})
		b.keys[key] = e
	}
	return e.Value.(*bucket[K]).limiter
}

// makeRoom forgets up to two buckets that are full again, so that their number
// shrinks while others come, and one in any case when there are too many.
func (b *buckets[K]) makeRoom(now time.Time) {
	for range 2 {
		front := b.used.Front()
		if front == nil {
			return
		}
		oldest := front.Value.(*bucket[K])
		if len(b.keys) < b.max && oldest.limiter.TokensAt(now) < float64(b.burst) {
			return
		}
		b.used.Remove(front)
		delete(b.keys, oldest.key)
	}
}

// slots bound how much is under way at a time, for each key and in all.
type slots[K comparable] struct {
	perKey, inAll int

	mu   sync.Mutex
	held map[K]int
	sum  int
}

func newSlots[K comparable](perKey, inAll int) *slots[K] {
	return &slots[K]{perKey: perKey, inAll: inAll, held: make(map[K]int)}
}

// take takes a slot, if there is one. Whoever got one calls release.
func (s *slots[K]) take(key K) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sum >= s.inAll || s.held[key] >= s.perKey {
		return false
	}
	s.held[key]++
	s.sum++
	return true
}

func (s *slots[K]) release(key K) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sum--
	if s.held[key]--; s.held[key] == 0 {
		delete(s.held, key)
	}
}
