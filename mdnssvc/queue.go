package mdnssvc

import (
	"net/netip"
	"sync"

	"liqo.io/agent/mdnssvc/wire"
)

// Bounds of what waits between the readers and the loop. A thousand answers are
// well below them; what exceeds them is a flood.
const (
	maxQueuedPackets = 8192
	maxQueuedBytes   = 4 << 20
)

// datagram is one received packet and what the socket knows about it.
type datagram struct {
	data   []byte
	from   netip.AddrPort // without zone: the link is the zone
	to     netip.Addr
	link   int // interface index
	family wire.Family
}

// queue lets the readers run ahead of the loop.
type queue struct {
	ready chan struct{} // capacity 1: there are packets

	mu      sync.Mutex
	packets []datagram
	bytes   int
}

func newQueue() *queue { return &queue{ready: make(chan struct{}, 1)} }

// put appends packets as long as there is room and returns how many had none.
// It takes over the packets' data, but not the slice.
func (q *queue) put(packets []datagram) (dropped int) {
	q.mu.Lock()
	for i, p := range packets {
		if len(q.packets) >= maxQueuedPackets || q.bytes+len(p.data) > maxQueuedBytes {
			dropped = len(packets) - i
			break
		}
		q.packets = append(q.packets, p)
		q.bytes += len(p.data)
	}
	q.mu.Unlock()
	signal(q.ready)
	return dropped
}

// full reports whether put would drop even the smallest packet, so that nobody
// needs to copy it first.
func (q *queue) full() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.packets) >= maxQueuedPackets || q.bytes >= maxQueuedBytes
}

// take returns everything that waits, in order.
func (q *queue) take() []datagram {
	q.mu.Lock()
	defer q.mu.Unlock()
	taken := q.packets
	q.packets, q.bytes = nil, 0
	return taken
}
