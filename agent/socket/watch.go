package socket

import (
	"bufio"
	"encoding/json"
	"net/http"
	"time"

	"liqo.io/agent/agent/control"
)

// watchWrite is how long one write to a watcher may take. The end of the agent does not wait for it as long.
const watchWrite = 10 * time.Second

// watch streams one line of JSON per peer, one that marks the end of this snapshot, and
// then one per change, until either side ends it.
//
// With ?peer= it streams only that peer: its state, and again whenever that changed.
func (s *Server) watch(w http.ResponseWriter, r *http.Request) {
	if ref := r.URL.Query().Get("peer"); ref != "" {
		s.follow(w, r, ref)
		return
	}
	// Subscribe before the snapshot: a change in between is sent twice rather than
	// never.
	sub, err := s.hub.subscribe()
	if err != nil {
		s.refuseWatch(w, err)
		return
	}
	defer s.hub.unsubscribe(sub)
	present, err := s.list(r.Context(), false)
	if err != nil {
		s.answer(w, r, nil, err)
		return
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	st := newStream(w)
	err = st.snapshot(present, s.cfg.Now())
	for err == nil {
		select {
		case <-r.Context().Done():
			return
		case <-sub.done:
			s.endWatch(st, sub.why)
			return
		case ev := <-sub.changes:
			err = st.changes(ev, sub.changes)
		}
	}
	s.cfg.Logger.Debug("a watch ended", "reason", err)
}

// endWatch writes the last line of a stream, with the reason.
func (s *Server) endWatch(st *stream, why error) {
	s.cfg.Logger.Debug("a watch ended", "reason", why)
	st.part(control.WatchEvent{Event: control.WatchError, At: s.cfg.Now(), Error: why.Error()})
}

func (s *Server) refuseWatch(w http.ResponseWriter, why error) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusServiceUnavailable)
	// A failed write means that the client is gone.
	_ = json.NewEncoder(w).Encode(control.ErrorBody{Error: why.Error(), Reason: "busy"})
}

// stream writes lines of JSON to one watcher. Only its handler uses it.
type stream struct {
	w       http.ResponseWriter
	control *http.ResponseController
	buf     *bufio.Writer
	enc     *json.Encoder
}

func newStream(w http.ResponseWriter) *stream {
	st := &stream{w: w, control: http.NewResponseController(w)}
	st.buf = bufio.NewWriterSize(st, 16<<10)
	st.enc = json.NewEncoder(st.buf)
	st.enc.SetEscapeHTML(false)
	return st
}

// Write is the io.Writer below the buffer. Each write has time of its own: a reader that takes what a socket holds in that time is not
// cut off for what else waits for it.
func (st *stream) Write(b []byte) (int, error) {
	if err := st.begin(); err != nil {
		return 0, err
	}
	return st.w.Write(b)
}

// begin limits the next write.
func (st *stream) begin() error { return st.control.SetWriteDeadline(time.Now().Add(watchWrite)) }

func (st *stream) snapshot(peers []control.Peer, now time.Time) error {
	// The server's timeouts are for ordinary requests. Reading on has no
	// limit here: it is how the end of the client is noticed.
	if err := st.control.SetReadDeadline(time.Time{}); err != nil {
		return err
	}
	for i := range peers {
		if err := st.enc.Encode(control.WatchEvent{Event: control.WatchSnapshot, At: now, Peer: &peers[i]}); err != nil {
			return err
		}
	}
	if err := st.enc.Encode(control.WatchEvent{Event: control.WatchSynced, At: now}); err != nil {
		return err
	}
	return st.flush()
}

// changes writes ev and whatever else is waiting, and flushes once.
func (st *stream) changes(ev control.WatchEvent, more <-chan control.WatchEvent) error {
	for range watchBuffer {
		if err := st.enc.Encode(ev); err != nil {
			return err
		}
		select {
		case ev = <-more:
			continue
		default:
		}
		return st.flush()
	}
	if err := st.enc.Encode(ev); err != nil {
		return err
	}
	return st.flush()
}

// part writes the last line, if the client still reads.
func (st *stream) part(ev control.WatchEvent) {
	if st.enc.Encode(ev) == nil {
		// The connection ends next, whether this arrives or not.
		_ = st.flush()
	}
}

func (st *stream) flush() error {
	if err := st.buf.Flush(); err != nil {
		return err
	}
	if err := st.begin(); err != nil {
		return err
	}
	return st.control.Flush()
}
