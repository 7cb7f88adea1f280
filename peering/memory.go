package peering

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"liqo.io/agent/endpoint/wire"
	"liqo.io/agent/kube"
	"liqo.io/agent/peer"
	"liqo.io/agent/peering/deletion"
	"liqo.io/agent/sharing/spec"
)

// peerStates is what this process observed of the peers and no object tells: since when
// one is away, who deleted its request. It outlives connections to the API
// server. There is an entry for each cluster that was looked at and is not
// forgotten. All methods are safe for concurrent use.
type peerStates struct {
	mu    sync.Mutex
	peers map[peer.ClusterID]*peerState
	// requests and offers are the newest resource versions that were seen, to tell
	// an object that was deleted from one that a restored backup does not have.
	requests, offers string
}

// peerState is what this process observed of one peer.
type peerState struct {
	away               time.Time // since when it is not reachable; zero while it is
	generation         uint64
	generationSince    time.Time
	anew               time.Time // when somebody decided anew, after the first look
	observedGeneration uint64
	tearingDown        time.Time       // since when our consuming its resources is being undone
	draining           time.Time       // since when its node is not wanted any more and not gone
	lease              offerLease      // of its offer
	quiet              time.Time       // since when it does not answer; zero while it does
	node               spec.NodeStatus // the state of its node
	nodeKnown          bool

	request deletion.Tracker
	offer   deletion.Tracker

	withdrawal   wire.Withdrawal // what it gave up and is still here
	withdrawalAt time.Time

	removedByPerson time.Time // when a person's object about it was seen to be gone

	looked time.Time // when the last look began
	failed error     // why the last look failed; nil when it did not

	held    bool         // as the registry was told
	hosting bool         // something of what it ran here is left
	digest  *stateDigest // what it was told to ask for; nil before the first look
}

func newPeerStates() *peerStates { return &peerStates{peers: make(map[peer.ClusterID]*peerState)} }

// with runs f with the state of a peer. f must be quick.
func (m *peerStates) with(id peer.ClusterID, f func(*peerState)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.peers[id]
	if p == nil {
		p = &peerState{}
		m.peers[id] = p
	}
	f(p)
}

// get returns a copy of the state of a peer.
func (m *peerStates) get(id peer.ClusterID) peerState {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p := m.peers[id]; p != nil {
		return *p
	}
	return peerState{}
}

// reached notes whether a peer is there of which there is a state.
func (m *peerStates) reached(id peer.ClusterID, there bool, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p := m.peers[id]; p != nil {
		p.reached(there, now)
	}
}

// forget drops the state of a peer.
func (m *peerStates) forget(id peer.ClusterID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.peers, id)
}

// anotherServer forgets what was seen in an API server, because it may be a
// different one from now on.
func (m *peerStates) anotherServer() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.requests, m.offers = "", ""
	for _, p := range m.peers {
		p.request, p.offer = deletion.Tracker{}, deletion.Tracker{}
	}
}

// resume compares what was seen on earlier connections with the first lists of a
// new one.
func (m *peerStates) resume(requests, offers listing) {
	m.mu.Lock()
	defer m.mu.Unlock()
	requestsRestored, offersRestored := kube.Older(requests.Version(), m.requests), kube.Older(offers.Version(), m.offers)
	for id, p := range m.peers {
		p.request.Resync(requests.UID(string(id)), requestsRestored)
		p.offer.Resync(offers.UID(string(id)), offersRestored)
	}
	m.requests, m.offers = requests.Version(), offers.Version()
}

// leave keeps how far a connection that ends has come.
func (m *peerStates) leave(requests, offers listing) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.requests, m.offers = newer(m.requests, requests.Version()), newer(m.offers, offers.Version())
}

// listing is a store as resume reads it.
type listing interface {
	UID(name string) types.UID
	Version() string
}

// newer returns the newer of two resource versions, "" being none.
func newer(a, b string) string {
	if a == "" || kube.Older(a, b) {
		return b
	}
	return a
}
