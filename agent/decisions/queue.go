package decisions

import (
	"net/netip"
	"time"

	"liqo.io/agent/peer"
	"liqo.io/agent/throttle"
	"liqo.io/agent/trust"
)

const (
	// maxWaiting is how many asks of strangers wait for a person at once. When
	// that many do, later ones have to come back: a flood must not push out who
	// was there before it.
	maxWaiting = 64
	// maxWaitingPerSource is how many of them come from one address.
	maxWaitingPerSource = 4
	// waitingFor is how long an ask is kept after it was last repeated. Those who
	// mean it repeat it all the time.
	waitingFor = time.Hour
)

// waiting is an ask of a stranger that a person has to decide about.
type waiting struct {
	name, namespace string // as it calls itself
	fingerprint     peer.Fingerprint
	address         netip.Addr
	source          netip.Prefix // what the limit counts
	url             string       // where it says that it is
	since, last     time.Time
}

// queue holds the asks that wait, one for each cluster ID. It is guarded by
// Store.mu.
type queue struct {
	asks map[peer.ClusterID]waiting
}

func newQueue() queue { return queue{asks: make(map[peer.ClusterID]waiting)} }

// queued is the outcome of put.
type queued int

const (
	queuedNew   queued = iota // it waits from now on
	queuedAgain               // it waited already
	queuedOther               // a request with another key waits already
	queuedFull                // too many wait
)

// put adds a request or refreshes it. A proven successor of the key that waits takes its
// place in the queue.
func (q *queue) put(id peer.ClusterID, shown trust.Shown, w waiting, now time.Time) queued {
	q.expire(now)
	w.source = throttle.Source(w.address)
	w.since, w.last = now, now
	old, known := q.asks[id]
	if known {
		if old.fingerprint != w.fingerprint && !shown.Succeeds(old.fingerprint) {
			return queuedOther
		}
		w.since = old.since
		if w.source != old.source && q.from(w.source) >= maxWaitingPerSource {
			w.address, w.source = old.address, old.source
		}
		q.asks[id] = w
		return queuedAgain
	}
	if len(q.asks) >= maxWaiting || q.from(w.source) >= maxWaitingPerSource {
		return queuedFull
	}
	q.asks[id] = w
	return queuedNew
}

// get returns the ask of a cluster that waits.
func (q *queue) get(id peer.ClusterID, now time.Time) (waiting, bool) {
	w, ok := q.asks[id]
	return w, ok && now.Sub(w.last) < waitingFor
}

// drop takes the ask of a cluster off the queue, and reports whether there was
// one.
func (q *queue) drop(id peer.ClusterID) bool {
	_, ok := q.asks[id]
	delete(q.asks, id)
	return ok
}

func (q *queue) expire(now time.Time) {
	for id, w := range q.asks {
		if now.Sub(w.last) >= waitingFor {
			delete(q.asks, id)
		}
	}
}

func (q *queue) from(source netip.Prefix) int {
	n := 0
	for _, w := range q.asks {
		if w.source == source {
			n++
		}
	}
	return n
}
