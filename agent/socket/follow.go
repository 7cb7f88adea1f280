package socket

import (
	"context"
	"errors"
	"net/http"
	"reflect"
	"time"

	"liqo.io/agent/agent/control"
	"liqo.io/agent/peer"
)

// followInterval is how often a followed peer is read even if no change was published.
// A person usually waits for it, and not for long.
const followInterval = 250 * time.Millisecond

// follow streams one peer: its state, and again whenever that changed. Published changes
// are only hints to read it again.
func (s *Server) follow(w http.ResponseWriter, r *http.Request, ref string) {
	// Subscribed before the first look: a change after it is not missed.
	sub, err := s.hub.subscribe()
	if err != nil {
		s.refuseWatch(w, err)
		return
	}
	defer s.hub.unsubscribe(sub)
	p, err := s.find(r, ref, control.Resolve)
	if err != nil {
		s.answer(w, r, nil, err)
		return
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	f := follower{server: s, st: newStream(w), id: peer.ClusterID(p.ID), last: p}
	if err := f.st.snapshot([]control.Peer{p.Complete()}, s.cfg.Now()); err != nil {
		s.cfg.Logger.Debug("a watch ended", "reason", err)
		return
	}
	tick := time.NewTicker(followInterval)
	defer tick.Stop()
	for {
		select {
		case <-r.Context().Done():
			return
		case <-sub.done:
			s.endWatch(f.st, sub.why)
			return
		case ev := <-sub.changes:
			if ev.Peer != nil && ev.Peer.ID != p.ID {
				continue
			}
		case <-tick.C:
		}
		if err := f.look(r.Context()); err != nil {
			s.endWatch(f.st, err)
			return
		}
	}
}

// follower is one stream of one peer.
type follower struct {
	server *Server
	st     *stream
	id     peer.ClusterID
	last   control.Peer
	gone   bool
}

// look writes the peer to the stream if it changed since the last time.
func (f *follower) look(ctx context.Context) error {
	p, err := f.server.cfg.Backend.Peer(ctx, f.id)
	if errors.Is(err, control.ErrNotFound) {
		if f.gone {
			return nil
		}
		f.gone = true
		return f.tell(control.WatchLost, f.last)
	}
	if err != nil {
		return err
	}
	if !f.gone && same(f.last, p) {
		return nil
	}
	f.gone, f.last = false, p.Complete()
	return f.tell(control.WatchUpdated, f.last)
}

func (f *follower) tell(event string, p control.Peer) error {
	return f.st.changes(control.WatchEvent{Event: event, At: f.server.cfg.Now(), Peer: &p}, nil)
}

// same reports whether a and b are equal for a watcher of one peer: apart from when the
// peer was last seen.
func same(a, b control.Peer) bool {
	a.LastSeen, b.LastSeen = time.Time{}, time.Time{}
	return reflect.DeepEqual(a.Complete(), b.Complete())
}
