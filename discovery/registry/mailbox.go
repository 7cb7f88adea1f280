package registry

import (
	"sync"

	"liqo.io/agent/peer"
)

// order is what is to become of a candidate.
type order struct {
	key  peer.Key
	set  *Candidate // goes before drop
	drop *Absence
}

// mailbox holds what was said until the owner of the registry has time for it: the
// last word about each candidate, and about each cluster that somebody depends on. It
// may be used from any goroutine.
type mailbox struct {
	ready chan struct{} // there is something; capacity 1

	mu     sync.Mutex
	orders []order
	places map[peer.Key]int // in orders
	holds  map[peer.ClusterID]bool
}

func newMailbox() *mailbox {
	m := &mailbox{ready: make(chan struct{}, 1)}
	m.take()
	return m
}

// put has say change what is to become of a candidate.
func (m *mailbox) put(k peer.Key, say func(*order)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	i, ok := m.places[k]
	if !ok {
		i = len(m.orders)
		m.places[k] = i
		m.orders = append(m.orders, order{key: k})
	}
	say(&m.orders[i])
	m.signal()
}

func (m *mailbox) hold(id peer.ClusterID, hold bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.holds[id] = hold
	m.signal()
}

func (m *mailbox) signal() {
	select {
	case m.ready <- struct{}{}:
	default:
	}
}

// take returns what was said since the last take, candidates in the order in which
// they were first spoken of.
func (m *mailbox) take() ([]order, map[peer.ClusterID]bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	orders, holds := m.orders, m.holds
	m.orders, m.places, m.holds = nil, make(map[peer.Key]int), make(map[peer.ClusterID]bool)
	return orders, holds
}
