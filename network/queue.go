package network

import (
	"sync"

	"liqo.io/agent/network/frame"
)

const (
	// queueBytes is how much may wait for a stream: a few superpackets, which a link of 100 Mbit/s sends in 40 ms. What
	// comes while as much waits is dropped, as a network card does.
	queueBytes = 512 << 10
	// controlBytes is how much of our own messages may wait; a stream that does not even take that is dead.
	controlBytes = 64 << 10
	// keptBytes is the largest buffer that is kept while nothing happens.
	keptBytes = 16 << 10
)

// queue has what is to be sent on a stream, framed already. Messages overtake packets. It is safe for concurrent use by
// any number of writers and one taker.
type queue struct {
	ready chan struct{} // there is something to take; capacity 1

	mu      sync.Mutex
	packets []byte
	control []byte
	most    int  // the most that waited since the last trim
	small   bool // no large buffer was needed lately
}

func newQueue() *queue { return &queue{ready: make(chan struct{}, 1)} }

// packet adds a frame of the device, and is false when there is no room for it.
func (q *queue) packet(b []byte) bool {
	q.mu.Lock()
	if len(q.packets)+frame.HeaderLen+len(b) > queueBytes {
		q.mu.Unlock()
		return false
	}
	q.packets = frame.Append(q.packets, frame.Packet, b)
	q.most = max(q.most, len(q.packets))
	q.small = q.small && q.most <= keptBytes
	q.mu.Unlock()
	wake(q.ready)
	return true
}

// message adds a message of our own, and is false when there is no room for it.
func (q *queue) message(kind frame.Type, b []byte) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.control)+frame.HeaderLen+len(b) > controlBytes {
		return false
	}
	q.control = frame.Append(q.control, kind, b)
	wake(q.ready)
	return true
}

// empty reports whether nothing waits.
func (q *queue) empty() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.packets)+len(q.control) == 0
}

// take returns what waits, and keeps what it returned the last time for what comes next. The result is valid until the
// next call.
func (q *queue) take(last []byte) []byte {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.small && cap(last) > keptBytes {
		last = nil
	}
	if len(q.control) > 0 {
		out := append(last[:0], q.control...)
		q.control = q.control[:0]
		return out
	}
	out := q.packets
	q.packets = last[:0]
	return out
}

// trim gives large buffers back that were not needed since it was called last.
func (q *queue) trim() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.small = q.most <= keptBytes
	q.most = len(q.packets)
	if q.small && cap(q.packets) > keptBytes {
		q.packets = append([]byte(nil), q.packets...)
	}
}
