package peering

import (
	"net/http"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"liqo.io/agent/endpoint"
	"liqo.io/agent/peer"
)

// memory is what this process saw of the peers and no object tells: since when
// one is away, who deleted its request. It outlives connections to the API
// server. There is an entry for each cluster that was looked at and is not
// forgotten. All methods are safe for concurrent use.
type memory struct {
	mu    sync.Mutex
	peers map[peer.ClusterID]*memo
	// requests and offers are the newest resource versions that were seen, to tell
	// an object that was deleted from one that a restored backup does not have.
	requests, offers string
}

// memo is what is kept about one peer.
type memo struct {
	away      time.Time // since when it is not reachable; zero while it is
	anew      uint64
	anewSince time.Time
	begun     uint64
	tearing   time.Time // since when our consuming its resources is being undone
	draining  time.Time // since when its node is not wanted any more and not gone
	lease     lease     // of its offer
	quiet     time.Time // since when it does not answer; zero while it does
	use       Use       // how our use of it stands
	useKnown  bool

	request trail
	offer   trail

	withdrawal   endpoint.Withdrawal // what it gave up and is still here
	withdrawalAt time.Time

	parted time.Time // when a person's object about it was seen to be gone

	looked time.Time // when the last look began
	next   time.Time // when it is looked at again even if nothing changes; zero: never
	failed error     // why the last look failed; nil when it did not

	held    bool     // as the registry was told
	hosting bool     // something of what it ran here is left
	told    *tidings // what it was told to ask for; nil before the first look
}

// trail is the history of one object that has the same name whenever it exists.
type trail struct {
	uid  types.UID // of the one seen last
	seen time.Time // when it was first seen
	by   Deleter   // who deletes or deleted it
	at   time.Time // when that was noted
	sure bool      // the API server said that it carries that deletion out
	left bool      // it is gone
}

// note is that somebody is about to delete an object.
type note struct {
	by     Deleter
	at     time.Time
	before trail // without it
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

// saw notes that there is an object with that UID.
func (t *trail) saw(uid types.UID, now time.Time) {
	if t.uid == uid {
		return
	}
	next := trail{uid: uid, seen: now}
	if t.uid == "" && t.by != DeletedUnseen && now.Sub(t.at) < unseenNote {
		next.by, next.at, next.sure = t.by, t.at, t.sure
	}
	*t = next
}

// deleting notes who is about to delete the object. What came of it is for ended.
func (t *trail) deleting(by Deleter, now time.Time) note {
	n := note{by: by, at: now, before: *t}
	t.by, t.at, t.sure = by, now, false
	return n
}

// ended takes in what came of a deletion. Who did not delete anything is not the one
// when the object goes later.
func (t *trail) ended(n note, came outcome) {
	if n.before.uid != "" && n.before.uid != t.uid {
		return // there is another object by now
	}
	noted := t.by == n.by && t.at.Equal(n.at)
	switch {
	case came == deletionTaken:
		t.by, t.at, t.sure = n.by, n.at, true
	case came == deletionRefused && noted:
		t.by, t.at, t.sure = n.before.by, n.before.at, n.before.sure
		if t.left && t.by == DeletedUnseen {
			t.by = DeletedByPerson // who was quicker
		}
	}
}

// gone notes that the object is not there any more.
func (t *trail) gone(uid types.UID, restored bool, now time.Time) {
	if t.uid != uid {
		return
	}
	t.left = true
	switch {
	case t.by == DeletedUnseen && restored:
		*t = trail{}
	case t.by == DeletedUnseen, !t.sure && now.Sub(t.at) > unsureNote:
		t.by = DeletedByPerson
	}
}

// resume compares the object with the one of the first list of a new connection, "" for
// none. However long there was none, a deletion that nobody answered is the last that
// is known of it.
func (t *trail) resume(uid types.UID, restored bool) {
	switch t.uid {
	case "":
	case uid:
		if !t.sure { // it was not carried out
			t.by, t.at = DeletedUnseen, time.Time{}
		}
	default:
		t.gone(t.uid, restored, t.at)
	}
}

func newMemory() *memory { return &memory{peers: make(map[peer.ClusterID]*memo)} }

// with runs f with the memo of a peer. f must be quick.
func (m *memory) with(id peer.ClusterID, f func(*memo)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.peers[id]
	if p == nil {
		p = &memo{}
		m.peers[id] = p
	}
	f(p)
}

// get returns a copy of the memo of a peer.
func (m *memory) get(id peer.ClusterID) memo {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p := m.peers[id]; p != nil {
		return *p
	}
	return memo{}
}

// reached notes whether a peer is there of which there is a memo.
func (m *memory) reached(id peer.ClusterID, there bool, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p := m.peers[id]; p != nil {
		p.reached(there, now)
	}
}

// forget drops the memo of a peer.
func (m *memory) forget(id peer.ClusterID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.peers, id)
}

// anotherServer forgets what was seen in an API server, because it may be a
// different one from now on.
func (m *memory) anotherServer() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.requests, m.offers = "", ""
	for _, p := range m.peers {
		p.request, p.offer = trail{}, trail{}
	}
}

// resume compares what was seen on earlier connections with the first lists of a
// new one.
func (m *memory) resume(requests, offers listing) {
	m.mu.Lock()
	defer m.mu.Unlock()
	requestsRestored, offersRestored := older(requests.version(), m.requests), older(offers.version(), m.offers)
	for id, p := range m.peers {
		p.request.resume(requests.uid(string(id)), requestsRestored)
		p.offer.resume(offers.uid(string(id)), offersRestored)
	}
	m.requests, m.offers = requests.version(), offers.version()
}

// leave keeps how far a connection that ends has come.
func (m *memory) leave(requests, offers listing) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.requests, m.offers = newer(m.requests, requests.version()), newer(m.offers, offers.version())
}

// listing is a store as resume reads it.
type listing interface {
	uid(name string) types.UID
	version() string
}
