package recorder

import (
	"context"
	"log/slog"
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

// writer stores changes in the background, so that a slow disk never holds up
// the recorder. What could not be stored stays pending and is tried again.
type writer struct {
	store  Store
	logger *slog.Logger
	wake   chan struct{}

	mu      sync.Mutex
	peers   map[peer.ClusterID]pendingPeer
	events  []peer.Event
	failure error
}

type pendingPeer struct {
	view      peer.Peer
	sightings []peer.Sighting
}

func newWriter(store Store, logger *slog.Logger) *writer {
	return &writer{
		store:  store,
		logger: logger,
		wake:   make(chan struct{}, 1),
		peers:  make(map[peer.ClusterID]pendingPeer),
	}
}

// put queues a peer's view and what happened to it.
func (w *writer) put(view peer.Peer, sightings []peer.Sighting, events []peer.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.peers[view.ID] = pendingPeer{view: view, sightings: sightings}
	w.addEvents(events)
	w.signal()
}

// note queues events that belong to no stored peer.
func (w *writer) note(events []peer.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.addEvents(events)
	w.signal()
}

// err returns why the last attempt to store failed, nil when it worked.
func (w *writer) err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.failure
}

func (w *writer) addEvents(events []peer.Event) {
	w.events = append(w.events, events...)
	if extra := len(w.events) - maxPendingEvents; extra > 0 {
		w.events = append([]peer.Event(nil), w.events[extra:]...)
	}
}

func (w *writer) signal() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// run stores changes until ctx ends. views returns what is published now.
func (w *writer) run(ctx context.Context, views func() map[peer.ClusterID]peer.Peer) {
	lastSeen := time.NewTicker(lastSeenEvery)
	defer lastSeen.Stop()
	backoff := writeSpacing
	for {
		var seen map[peer.ClusterID]time.Time
		select {
		case <-ctx.Done():
			return
		case <-w.wake:
		case <-lastSeen.C:
			seen = lastSeenOf(views())
		}
		if err := w.flush(ctx, seen); err != nil {
			backoff = min(2*backoff, time.Minute)
			w.signal()
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

// flush stores everything pending, and lastSeen with it, in one transaction.
// The first failure of a row is logged; the error is kept for err.
func (w *writer) flush(ctx context.Context, lastSeen map[peer.ClusterID]time.Time) error {
	w.mu.Lock()
	peers, events := w.peers, w.events
	w.peers, w.events = make(map[peer.ClusterID]pendingPeer), nil
	w.mu.Unlock()
	if len(peers)+len(events)+len(lastSeen) == 0 {
		return nil
	}

	change := state.Change{Events: events, LastSeen: lastSeen, Sightings: make(map[peer.ClusterID][]peer.Sighting)}
	for id, p := range peers {
		change.Peers = append(change.Peers, p.view)
		change.Sightings[id] = p.sightings
	}
	err := w.store.Apply(ctx, change)

	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		// Newer changes win over the ones that came back.
		for id, p := range peers {
			if _, newer := w.peers[id]; !newer {
				w.peers[id] = p
			}
		}
		newer := w.events
		w.events = events
		w.addEvents(newer)
		if w.failure == nil {
			w.logger.Error("what is known about peers cannot be stored; it is kept in memory and tried again", "error", err)
		}
	} else if w.failure != nil {
		w.logger.Info("storing what is known about peers works again")
	}
	w.failure = err
	return err
}

// lastSeenOf collects the last-seen times of the given views.
func lastSeenOf(views map[peer.ClusterID]peer.Peer) map[peer.ClusterID]time.Time {
	out := make(map[peer.ClusterID]time.Time, len(views))
	for id, p := range views {
		if !p.Fingerprint.IsZero() && !p.LastSeen.IsZero() {
			out[id] = p.LastSeen
		}
	}
	return out
}
