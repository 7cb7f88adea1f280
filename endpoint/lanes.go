package endpoint

import (
	"container/list"
	"context"
	"sync"

	"liqo.io/agent/peer"
)

// lanes bound how much is under way at a time, for each peer and in all, as
// throttle.Slots do, and let what is too much wait for its turn. How many wait is
// bounded by how many requests the connections of a peer can carry.
type lanes struct {
	perPeer, inAll int

	mu      sync.Mutex
	held    map[peer.ClusterID]int
	sum     int
	waiting list.List // of *turn, the first come first
}

// turn is somebody who waits. ready is closed, with lanes.mu held, when it is
// there.
type turn struct {
	id    peer.ClusterID
	ready chan struct{}
}

func newLanes(perPeer, inAll int) *lanes {
	return &lanes{perPeer: perPeer, inAll: inAll, held: make(map[peer.ClusterID]int)}
}

// enter waits for a place until ctx ends. Whoever got one calls leave.
func (l *lanes) enter(ctx context.Context, id peer.ClusterID) bool {
	l.mu.Lock()
	if l.free(id) {
		l.take(id)
		l.mu.Unlock()
		return true
	}
	t := &turn{id: id, ready: make(chan struct{})}
	place := l.waiting.PushBack(t)
	l.mu.Unlock()
	select {
	case <-t.ready:
		return true
	case <-ctx.Done():
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-t.ready:
		return true // it came at the same time
	default:
		l.waiting.Remove(place)
		return false
	}
}

func (l *lanes) free(id peer.ClusterID) bool { return l.sum < l.inAll && l.held[id] < l.perPeer }

func (l *lanes) take(id peer.ClusterID) {
	l.held[id]++
	l.sum++
}

// leave gives a place back, to the first of those who wait that may have it.
func (l *lanes) leave(id peer.ClusterID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sum--
	if l.held[id]--; l.held[id] == 0 {
		delete(l.held, id)
	}
	for e := l.waiting.Front(); e != nil; e = e.Next() {
		if t := e.Value.(*turn); l.free(t.id) {
			l.take(t.id)
			l.waiting.Remove(e)
			close(t.ready)
			return
		}
	}
}
