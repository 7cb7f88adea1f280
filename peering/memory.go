package peering

import (
	"net/http"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"liqo.io/agent/endpoint/wire"
	"liqo.io/agent/kube"
	"liqo.io/agent/peer"
	"liqo.io/agent/peering/plan"
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
	observedGeneration uint64
	tearingDown        time.Time       // since when our consuming its resources is being undone
	draining           time.Time       // since when its node is not wanted any more and not gone
	lease              offerLease      // of its offer
	quiet              time.Time       // since when it does not answer; zero while it does
	node               plan.NodeStatus // the state of its node
	nodeKnown          bool

	request deletionTracker
	offer   deletionTracker

	withdrawal   wire.Withdrawal // what it gave up and is still here
	withdrawalAt time.Time

	removedByPerson time.Time // when a person's object about it was seen to be gone

	looked time.Time // when the last look began
	failed error     // why the last look failed; nil when it did not

	held    bool         // as the registry was told
	hosting bool         // something of what it ran here is left
	digest  *stateDigest // what it was told to ask for; nil before the first look
}

// deletionTracker tells who deleted an object that has the same name whenever it exists.
type deletionTracker struct {
	uid       types.UID    // of the one seen last
	seen      time.Time    // when it was first seen
	by        plan.Deleter // who deletes or deleted it
	at        time.Time    // when that was noted
	confirmed bool         // the API server said that it carries that deletion out
	absent    bool         // it is gone
}

// pendingDeletion is that somebody is about to delete an object.
type pendingDeletion struct {
	by     plan.Deleter
	at     time.Time
	before deletionTracker // without it
}

// outcome is what came of a deletion, as far as is known.
type outcome int

const (
	deletionUnknown outcome = iota // there was no answer, or none that tells
	deletionTaken
	deletionRefused // nothing was deleted, or nothing was there
)

// outcomeOf returns what the status of an API server's answer says, 0 for none.
func outcomeOf(status int) outcome {
	switch {
	case status >= 200 && status < 300:
		return deletionTaken
	case status >= 400 && status < 500 && status != http.StatusRequestTimeout:
		return deletionRefused
	}
	return deletionUnknown
}

// unsureNote is how long a deletion that nobody answered is taken to be about to
// happen: by then the API server has given it up.
const unsureNote = time.Minute

// unseenNote is how long a note about an object that was not seen yet is taken to
// be about the next one that is: the time by which the watch may lag behind.
const unseenNote = 10 * time.Second

// observed notes that there is an object with that UID.
func (t *deletionTracker) observed(uid types.UID, now time.Time) {
	if t.uid == uid {
		return
	}
	next := deletionTracker{uid: uid, seen: now}
	if t.uid == "" && t.by != plan.DeletedUnseen && now.Sub(t.at) < unseenNote {
		next.by, next.at, next.confirmed = t.by, t.at, t.confirmed
	}
	*t = next
}

// begin notes who is about to delete the object. resolve takes what came of it.
func (t *deletionTracker) begin(by plan.Deleter, now time.Time) pendingDeletion {
	n := pendingDeletion{by: by, at: now, before: *t}
	t.by, t.at, t.confirmed = by, now, false
	return n
}

// resolve takes in what came of a deletion. Who did not delete anything is not the one
// when the object goes later.
func (t *deletionTracker) resolve(n pendingDeletion, came outcome) {
	if n.before.uid != "" && n.before.uid != t.uid {
		return // there is another object by now
	}
	noted := t.by == n.by && t.at.Equal(n.at)
	switch {
	case came == deletionTaken:
		t.by, t.at, t.confirmed = n.by, n.at, true
	case came == deletionRefused && noted:
		t.by, t.at, t.confirmed = n.before.by, n.before.at, n.before.confirmed
		if t.absent && t.by == plan.DeletedUnseen {
			t.by = plan.DeletedByPerson // who was quicker
		}
	}
}

// deleted notes that the object is not there any more.
func (t *deletionTracker) deleted(uid types.UID, restored bool, now time.Time) {
	if t.uid != uid {
		return
	}
	t.absent = true
	switch {
	case t.by == plan.DeletedUnseen && restored:
		*t = deletionTracker{}
	case t.by == plan.DeletedUnseen, !t.confirmed && now.Sub(t.at) > unsureNote:
		t.by = plan.DeletedByPerson
	}
}

// resync compares the object with the one of the first list of a new connection, "" for
// none. However long there was none, a deletion that nobody answered is the last that
// is known of it.
func (t *deletionTracker) resync(uid types.UID, restored bool) {
	switch t.uid {
	case "":
	case uid:
		if !t.confirmed { // it was not carried out
			t.by, t.at = plan.DeletedUnseen, time.Time{}
		}
	default:
		t.deleted(t.uid, restored, t.at)
	}
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
		p.request, p.offer = deletionTracker{}, deletionTracker{}
	}
}

// resume compares what was seen on earlier connections with the first lists of a
// new one.
func (m *peerStates) resume(requests, offers listing) {
	m.mu.Lock()
	defer m.mu.Unlock()
	requestsRestored, offersRestored := kube.Older(requests.Version(), m.requests), kube.Older(offers.Version(), m.offers)
	for id, p := range m.peers {
		p.request.resync(requests.UID(string(id)), requestsRestored)
		p.offer.resync(offers.UID(string(id)), offersRestored)
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
