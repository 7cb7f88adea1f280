package client

import (
	"container/list"
	"crypto/tls"
	"sync"

	"liqo.io/agent/peer"
)

const (
	// maxSession is the largest TLS session that is remembered, in bytes. Ticket
	// and certificates are whatever the other end sends. An agent's take about 1.2
	// KB together, 1 KB more if the ticket holds our certificates as well, and 0.5
	// KB for each succession and fleet certificate on either side.
	maxSession = 16 << 10
	// meanSession times the number of peers is what all of them may take.
	meanSession = 2 << 10
)

// sessionCache keeps TLS sessions by the key of the peer, for a bounded
// number of them and in a bounded number of bytes. Its methods may be called from
// any goroutine.
//
// Sessions are kept encoded: a live one, with its parsed certificates, takes 8
// KB more, and decoding costs little next to the handshake it replaces.
type sessionCache struct {
	limit int

	mu    sync.Mutex
	bytes int // of all sessions
	byKey map[peer.Fingerprint]*list.Element
	used  list.List // of *remembered, most recently used first
}

type cachedSession struct {
	fp     peer.Fingerprint
	ticket []byte
	state  []byte // tls.SessionState, encoded; nil if there is no session
	epoch  epoch
	id     peer.ClusterID
}

// session is a TLS session with what there is to know about it.
type session struct {
	state *tls.ClientSessionState
	epoch epoch          // of what we showed when it began: the other end remembers it
	id    peer.ClusterID // that its certificates name
}

func newSessionCache(limit int) *sessionCache {
	return &sessionCache{limit: limit, byKey: make(map[peer.Fingerprint]*list.Element)}
}

// get returns a TLS session with the holder of fp, if there is one in which
// we showed what belongs to the epoch e. With 0, any will do.
func (m *sessionCache) get(fp peer.Fingerprint, e epoch) (session, bool) {
	var found cachedSession
	m.mu.Lock()
	if element, ok := m.byKey[fp]; ok {
		found = *element.Value.(*cachedSession)
	}
	m.mu.Unlock()
	if found.state == nil || e != 0 && found.epoch != e {
		return session{}, false
	}
	state, err := tls.ParseSessionState(found.state)
	if err != nil {
		return session{}, false
	}
	resumable, err := tls.NewResumptionState(found.ticket, state)
	if err != nil {
		return session{}, false
	}
	return session{resumable, found.epoch, found.id}, true
}

// put remembers a TLS session with the holder of fp, unless the one that
// is remembered is of a later epoch. One that is too large is not kept: the next
// check is then a full handshake.
func (m *sessionCache) put(fp peer.Fingerprint, s session) {
	ticket, state, err := s.state.ResumptionState()
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
	if r.state != nil && r.epoch > s.epoch {
		return
	}
	m.bytes += len(encoded) + len(ticket) - r.size()
	r.ticket, r.state, r.epoch, r.id = ticket, encoded, s.epoch, s.id
	for m.bytes > max(m.limit*meanSession, maxSession) {
		m.remove(m.used.Back()) // it is not r's: that is in front, and fits
	}
}

func (r *cachedSession) size() int { return len(r.ticket) + len(r.state) }

// drop forgets the TLS session with the holder of fp.
func (m *sessionCache) drop(fp peer.Fingerprint) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e, ok := m.byKey[fp]; ok {
		r := e.Value.(*cachedSession)
		m.bytes -= r.size()
		r.ticket, r.state = nil, nil
	}
}

// forget drops everything about the holder of fp.
func (m *sessionCache) forget(fp peer.Fingerprint) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e, ok := m.byKey[fp]; ok {
		m.remove(e)
	}
}

// remove drops an entry. m.mu is held.
func (m *sessionCache) remove(e *list.Element) {
	r := m.used.Remove(e).(*cachedSession)
	m.bytes -= r.size()
	delete(m.byKey, r.fp)
}

// touch returns the entry of fp, made if need be at the cost of the least
// recently used one. m.mu is held.
func (m *sessionCache) touch(fp peer.Fingerprint) *cachedSession {
	if e, ok := m.byKey[fp]; ok {
		m.used.MoveToFront(e)
		return e.Value.(*cachedSession)
	}
	if m.used.Len() >= m.limit {
		m.remove(m.used.Back())
	}
	r := &cachedSession{fp: fp}
	m.byKey[fp] = m.used.PushFront(r)
	return r
}
