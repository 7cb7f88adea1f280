package journal

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"liqo.io/agent/peer"
	"liqo.io/agent/state"
)

// Store keeps what must survive the process. Apply is one transaction and
// writes nothing when the change changes nothing.
type Store interface {
	Apply(ctx context.Context, c state.Change) error
}

// writeSpacing is the shortest time between two transactions. A burst of
// neighbours becomes a few transactions instead of one each, which SD cards
// and the people who buy them appreciate.
const writeSpacing = time.Second

// lastSeenEvery is how often last-seen times alone are stored. They are written
// with every stop anyway; this is for boxes that only ever lose power.
const lastSeenEvery = 6 * time.Hour

// maxPendingEvents bounds the history kept in memory while the store cannot be
// written (a full disk); the oldest go first.
const maxPendingEvents = 10_000

// Journal stores changes in the background, so that a slow disk never holds up
// who makes them. What could not be stored stays pending and is tried again. All
// methods may be called from any goroutine.
type Journal struct {
	store  Store
	logger *slog.Logger
	wake   chan struct{}

	flushing sync.Mutex // held by Flush: what is put later is to be stored later

	mu      sync.Mutex
	peers   map[peer.ClusterID]pendingPeer
	unseen  map[peer.ClusterID]struct{} // to be deleted, before peers are stored
	events  []peer.Event
	failure error
}

type pendingPeer struct {
	view      peer.Peer
	sightings []peer.Sighting
}

// New returns a Journal that stores nothing before Run is called.
func New(store Store, logger *slog.Logger) *Journal {
	return &Journal{
		store:  store,
		logger: logger,
		wake:   make(chan struct{}, 1),
		peers:  make(map[peer.ClusterID]pendingPeer),
		unseen: make(map[peer.ClusterID]struct{}),
	}
}

// Put queues a peer's view and what happened to it.
func (j *Journal) Put(view peer.Peer, sightings []peer.Sighting, events []peer.Event) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.peers[view.ID] = pendingPeer{view: view, sightings: sightings}
	j.addEvents(events)
	j.signal()
}

// Note queues events that belong to no stored peer.
func (j *Journal) Note(events []peer.Event) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.addEvents(events)
	j.signal()
}

// Drop forgets what is queued about a peer, and deletes its row afterwards, which may be being stored
// at this moment. What is put later counts.
func (j *Journal) Drop(id peer.ClusterID) {
	j.mu.Lock()
	defer j.mu.Unlock()
	delete(j.peers, id)
	j.unseen[id] = struct{}{}
	j.events = without(j.events, map[peer.ClusterID]struct{}{id: {}})
	j.signal()
}

// without returns the events that are not about some peers.
func without(events []peer.Event, ids map[peer.ClusterID]struct{}) []peer.Event {
	return slices.DeleteFunc(events, func(e peer.Event) bool { _, is := ids[e.ID]; return is })
}

// Err returns why the last attempt to store failed, nil when it worked.
func (j *Journal) Err() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.failure
}

func (j *Journal) addEvents(events []peer.Event) {
	j.events = append(j.events, events...)
	if extra := len(j.events) - maxPendingEvents; extra > 0 {
		j.events = append([]peer.Event(nil), j.events[extra:]...)
	}
}

func (j *Journal) signal() {
	select {
	case j.wake <- struct{}{}:
	default:
	}
}

// Run stores changes until ctx ends; what is pending then is left to Flush. seen returns when each peer was last seen.
func (j *Journal) Run(ctx context.Context, seen func() map[peer.ClusterID]time.Time) {
	ticker := time.NewTicker(lastSeenEvery)
	defer ticker.Stop()
	backoff := writeSpacing
	for {
		var lastSeen map[peer.ClusterID]time.Time
		select {
		case <-ctx.Done():
			return
		case <-j.wake:
		case <-ticker.C:
			lastSeen = seen()
		}
		if err := j.Flush(ctx, lastSeen); err != nil {
			backoff = min(2*backoff, time.Minute)
			j.signal()
		} else {
			backoff = writeSpacing
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(backoff):
		}
	}
}

// Flush stores everything pending, and lastSeen with it, in one transaction.
// The first failure of a row is logged; the error is kept for Err.
func (j *Journal) Flush(ctx context.Context, lastSeen map[peer.ClusterID]time.Time) error {
	j.flushing.Lock()
	defer j.flushing.Unlock()
	j.mu.Lock()
	peers, unseen, events := j.peers, j.unseen, j.events
	j.peers, j.unseen, j.events = make(map[peer.ClusterID]pendingPeer), make(map[peer.ClusterID]struct{}), nil
	j.mu.Unlock()
	if len(peers)+len(unseen)+len(events)+len(lastSeen) == 0 {
		return nil
	}

	change := state.Change{Unsee: slices.Sorted(maps.Keys(unseen)), Events: events, LastSeen: lastSeen, Sightings: make(map[peer.ClusterID][]peer.Sighting)}
	for id, p := range peers {
		change.Peers = append(change.Peers, p.view)
		change.Sightings[id] = p.sightings
	}
	err := j.store.Apply(ctx, change)

	j.mu.Lock()
	defer j.mu.Unlock()
	if err != nil {
		// Newer changes win over the ones that came back.
		events = without(events, j.unseen)
		for id, p := range peers {
			_, newer := j.peers[id]
			_, dropped := j.unseen[id]
			if !newer && !dropped {
				j.peers[id] = p
			}
		}
		maps.Copy(j.unseen, unseen)
		newer := j.events
		j.events = events
		j.addEvents(newer)
		if j.failure == nil {
			j.logger.Error("peers cannot be stored; they are kept in memory, trying again", "error", err)
		}
	} else if j.failure != nil {
		j.logger.Info("peers are stored again")
	}
	j.failure = err
	return err
}
