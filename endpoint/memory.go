package endpoint

import (
	"container/list"
	"crypto/tls"
	"sync"

	"liqo.io/agent/peer"
)

// maxSession is the largest TLS session that is remembered, in bytes. Ticket
// and certificates are whatever the other end sends; an agent's take about 1.2
// KB together.
const maxSession = 4 << 10

// memory is what a Client remembers about the keys it met, for a bounded
// number of them. Its methods may be called from any goroutine.
//
// Sessions are kept encoded: a live one, with its parsed certificates, takes 8
// KB more, and decoding costs little next to the handshake it replaces.
type memory struct {
	limit int

	mu    sync.Mutex
	byKey map[peer.Fingerprint]*list.Element
	used  list.List // of *remembered, most recently used first
}

type remembered struct {
	fp     peer.Fingerprint
	ticket []byte
	state  []byte // tls.SessionState, encoded; nil if there is no session
}

func newMemory(limit int) *memory {
	return &memory{limit: limit, byKey: make(map[peer.Fingerprint]*list.Element)}
}

// session returns a TLS session with the holder of fp, if there is one.
func (m *memory) session(fp peer.Fingerprint) (*tls.ClientSessionState, bool) {
	m.mu.Lock()
	var ticket, encoded []byte
	if e, ok := m.byKey[fp]; ok {
		r := e.Value.(*remembered)
		ticket, encoded = r.ticket, r.state
	}
	m.mu.Unlock()
	if encoded == nil {
		return nil, false
	}
	state, err := tls.ParseSessionState(encoded)
	if err != nil {
		return nil, false
	}
	session, err := tls.NewResumptionState(ticket, state)
	return session, err == nil
}

// keepSession remembers a TLS session with the holder of fp. One that is too
// large is not: the next check is then a full handshake.
func (m *memory) keepSession(fp peer.Fingerprint, session *tls.ClientSessionState) {
	ticket, state, err := session.ResumptionState()
	if err != nil || state == nil {
		return
	}
	encoded, err := state.Bytes()
	if err != nil || len(encoded)+len(ticket) > maxSession {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.touch(fp)
	r.ticket, r.state = ticket, encoded
}

// dropSession forgets the TLS session with the holder of fp.
func (m *memory) dropSession(fp peer.Fingerprint) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e, ok := m.byKey[fp]; ok {
		r := e.Value.(*remembered)
		r.ticket, r.state = nil, nil
	}
}

// forget drops everything about the holder of fp.
func (m *memory) forget(fp peer.Fingerprint) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e, ok := m.byKey[fp]; ok {
		m.used.Remove(e)
		delete(m.byKey, fp)
	}
}

// touch returns the entry of fp, made if need be at the cost of the least
// recently used one. m.mu is held.
func (m *memory) touch(fp peer.Fingerprint) *remembered {
	if e, ok := m.byKey[fp]; ok {
		m.used.MoveToFront(e)
		return e.Value.(*remembered)
	}
	if m.used.Len() >= m.limit {
		oldest := m.used.Back()
		delete(m.byKey, oldest.Value.(*remembered).fp)
		m.used.Remove(oldest)
	}
	r := &remembered{fp: fp}
	m.byKey[fp] = m.used.PushFront(r)
	return r
}
