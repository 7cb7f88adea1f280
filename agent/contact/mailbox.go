package contact

import (
	"sync"

	"liqo.io/agent/agent/recorder"
	"liqo.io/agent/peer"
)

// order is what is to become of a lead.
type order struct {
	key  peer.Key
	lead *Lead             // set it; goes before drop
	drop *recorder.Absence // drop it
	ask  bool
}

// mailbox holds what was said until the owner of the leads has time for it: the
// last word about each lead, and the clusters touched. It may be used from any
// goroutine.
type mailbox struct {
	ready chan struct{} // there is something; capacity 1

	mu      sync.Mutex
	orders  []order
	places  map[peer.Key]int // in orders
	touched map[peer.ClusterID]struct{}
}

func newMailbox() *mailbox {
	return &mailbox{
		ready: make(chan struct{}, 1), places: make(map[peer.Key]int), touched: make(map[peer.ClusterID]struct{}),
	}
}

func (m *mailbox) set(l Lead) {
	m.put(l.Key, func(o *order) { o.lead = &l })
}

func (m *mailbox) drop(k peer.Key, why recorder.Absence) {
	m.put(k, func(o *order) { o.lead, o.drop = nil, &why })
}

func (m *mailbox) ask(k peer.Key) {
	m.put(k, func(o *order) { o.ask = true })
}

func (m *mailbox) put(k peer.Key, say func(*order)) {
	m.mu.Lock()
	i, ok := m.places[k]
	if !ok {
		i = len(m.orders)
		m.places[k] = i
		m.orders = append(m.orders, order{key: k})
	}
	say(&m.orders[i])
	m.mu.Unlock()
	m.signal()
}

func (m *mailbox) touch(id peer.ClusterID) {
	m.mu.Lock()
	m.touched[id] = struct{}{}
	m.mu.Unlock()
	m.signal()
}

func (m *mailbox) signal() {
	select {
	case m.ready <- struct{}{}:
	default:
	}
}

// take returns what was said since the last take, leads in the order in which they
// were first spoken of.
func (m *mailbox) take() ([]order, map[peer.ClusterID]struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	orders, touched := m.orders, m.touched
	m.orders, m.places, m.touched = nil, make(map[peer.Key]int), make(map[peer.ClusterID]struct{})
	return orders, touched
}
