package endpoint

import (
	"container/list"
	"context"
	"sync"
	"time"

	"liqo.io/agent/peer"
	"liqo.io/agent/trust"
)

// openStream is something that lasts longer than a request: a tunnel, a stream, an
// upgraded connection.
type openStream struct {
	id        peer.ClusterID
	shown     trust.Shown // what id proved when it began
	namespace string      // that it is about; "" for none
	tunnel    bool        // it is one of HTTP/2
	end       func()      // ends it; may be called more than once, and with openStreams.mu held
}

// openStreams keeps track of what is open for longer than a request, and of the requests
// that net/http does not wait for. Its methods may be called from any goroutine.
type openStreams struct {
	mu      sync.Mutex
	entries list.List // of *openStream, the oldest first
	running int       // requests and connections of tunnels and upgrades
	closed  bool
	idle    chan struct{} // closed when closed is set and nothing runs
}

// begin begins a new life: nothing runs.
func (h *openStreams) begin() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed, h.idle = false, make(chan struct{})
}

// enter says that something runs which close is to wait for, unless it is too late
// for that. Whoever may calls leave.
func (h *openStreams) enter() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return false
	}
	h.running++
	return true
}

func (h *openStreams) leave() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.running--; h.closed && h.running == 0 {
		close(h.idle)
	}
}

// add keeps e until remove is called.
func (h *openStreams) add(e *openStream) (remove func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		e.end()
	}
	place := h.entries.PushBack(e)
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.entries.Remove(place)
	}
}

// crowd ends the oldest tunnels of a peer that has most or more.
func (h *openStreams) crowd(id peer.ClusterID, most int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var tunnels []*openStream
	for p := h.entries.Front(); p != nil; p = p.Next() {
		if e := p.Value.(*openStream); e.id == id && e.tunnel {
			tunnels = append(tunnels, e)
		}
	}
	for len(tunnels) >= most {
		tunnels[0].end()
		tunnels = tunnels[1:]
	}
}

// all returns what is open for a peer, or for all with "".
func (h *openStreams) all(id peer.ClusterID) []*openStream {
	h.mu.Lock()
	defer h.mu.Unlock()
	var out []*openStream
	for p := h.entries.Front(); p != nil; p = p.Next() {
		if e := p.Value.(*openStream); id == "" || e.id == id {
			out = append(out, e)
		}
	}
	return out
}

// shut ends everything and refuses what comes. wait is to be called when the
// connections are closed.
func (h *openStreams) shut() (wait func()) {
	h.mu.Lock()
	h.closed = true
	idle := h.idle
	if h.running == 0 {
		close(idle)
	}
	h.mu.Unlock()
	for _, e := range h.all("") {
		e.end()
	}
	return func() { <-idle }
}

// Recheck asks Peers and Guests, if there are any, whether what a peer has open here
// may go on, and ends what may not. Without it, that is done every 30 seconds.
func (s *Server) Recheck(id peer.ClusterID) {
	if id != "" {
		s.recheck(s.streams.all(id))
	}
}

func (s *Server) recheck(entries []*openStream) {
	for _, e := range entries { // of callers: there are Peers
		if s.cfg.Peers.Admit(e.id, e.shown) != Known || e.namespace != "" && s.cfg.Guests.Owns(e.id, e.namespace) != nil {
			e.end()
		}
	}
}

// recheckAll is Recheck for everybody, again and again until ctx ends.
func (s *Server) recheckAll(ctx context.Context) {
	ticker := time.NewTicker(s.times.recheck)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			s.recheck(s.streams.all(""))
		}
	}
}
