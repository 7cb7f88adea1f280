package endpoint

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"time"

	"liqo.io/agent/endpoint/allow"
	"liqo.io/agent/endpoint/gateway"
	"liqo.io/agent/endpoint/refusal"
)

const (
	listChunk   = 32 << 10
	streamChunk = 4 << 10 // an object is small, and what lasts long has little to say at a time
)

// errQuiet: nothing came for too long.
var errQuiet = fmt.Errorf("nothing came for too long: %w", context.DeadlineExceeded)

// stream sends a GET on and passes the answer back while it comes, without keeping
// more than a few kilobytes of it.
func (s *Server) stream(w http.ResponseWriter, r *http.Request, caller Caller, call allow.Call) *refusal.Refusal {
	ctx, end := context.WithCancelCause(r.Context())
	defer end(nil)
	if call.Lasts() {
		defer s.streams.add(&openStream{id: caller.ID, shown: caller.Shown, namespace: call.Namespace, end: func() { end(errNotAnyMore) }})()
	}
	watchdog := time.AfterFunc(s.times.list, func() { end(errQuiet) })
	defer watchdog.Stop()
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(s.times.list + s.times.write))
	resp, no := s.cfg.Gateway.Ask(ctx, caller.ID, call.Request())
	if no != nil {
		return no
	}
	defer func() { _ = resp.Body.Close() }() // everything that matters was read
	if call.Resource == allow.PodMetrics && (resp.StatusCode == http.StatusNotFound || resp.StatusCode == http.StatusServiceUnavailable) {
		// The API server has the group from a metrics-server, and says so in plain text if
		// there is none.
		return refusal.NoMetrics()
	}
	if resp.StatusCode != http.StatusOK {
		text, no := gateway.Read(ctx, resp, gateway.MaxAnswer)
		if no == nil {
			pass(w, resp, text)
		}
		return no
	}
	var from io.Reader = resp.Body
	if call.Resource == "events" {
		if call.Answer == allow.ListAnswer {
			return s.passEvents(ctx, w, resp, caller, call)
		}
		from = allow.NewEventWatch(from, s.ownPod(ctx, caller, call.Namespace))
	}
	limit := call.Limit()
	mediaType, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	switch {
	case err != nil || mediaType != call.MediaType():
		return refusal.BadUpstream("something that is not " + call.MediaType())
	case resp.ContentLength > limit:
		return refusal.BadUpstream("an answer that is too large")
	case resp.ContentLength >= 0 && from == resp.Body:
		w.Header().Set("Content-Length", strconv.FormatInt(resp.ContentLength, 10))
	}
	w.Header().Set("Content-Type", call.MediaType())
	if err := s.copyAnswer(ctx, w, from, call, watchdog); err != nil {
		// Part of the answer is on its way. It must not look like all of it.
		panic(http.ErrAbortHandler)
	}
	return nil
}

// passEvents passes on a list of events that are about the caller's pods.
func (s *Server) passEvents(ctx context.Context, w http.ResponseWriter, resp *http.Response, caller Caller, call allow.Call) *refusal.Refusal {
	text, no := gateway.Read(ctx, resp, maxEventsAnswer)
	if no != nil {
		return no
	}
	clean, no := s.ownEvents(ctx, caller, call, text)
	if no != nil {
		return no
	}
	pass(w, resp, clean)
	return nil
}

// copyAnswer copies an answer as it comes.
func (s *Server) copyAnswer(ctx context.Context, w http.ResponseWriter, from io.Reader, call allow.Call, watchdog *time.Timer) error {
	control := http.NewResponseController(w)
	quiet, stall, size := s.times.stall, s.times.stall, streamChunk
	if call.Answer == allow.ListAnswer || call.Answer == allow.TextAnswer {
		size = listChunk
	}
	if call.Lasts() {
		quiet = s.times.quiet
		if call.Answer == allow.Following {
			stall = s.times.quiet // a person may stop to read
		}
		if err := control.Flush(); err != nil { // the caller sees that it has begun
			return err
		}
	}
	chunk := make([]byte, size)
	left := call.Limit()
	for {
		watchdog.Reset(quiet)
		n, err := from.Read(chunk)
		if left -= int64(n); left < 0 {
			return errTooLarge
		}
		if n > 0 {
			watchdog.Reset(2 * stall) // the deadline for the caller comes first
			_ = control.SetWriteDeadline(time.Now().Add(stall))
			if _, err := w.Write(chunk[:n]); err != nil {
				return err
			}
			if call.Lasts() {
				if err := control.Flush(); err != nil {
					return err
				}
				_ = control.SetWriteDeadline(time.Time{}) // it may be long until the next
			}
		}
		if err != nil {
			// When ctx ends, the other side may end its answer in good order, but early.
			if err == io.EOF {
				err = ctx.Err()
			}
			_ = control.SetWriteDeadline(time.Now().Add(s.times.write))
			return err
		}
	}
}

// errTooLarge: it is more than may be passed on.
var errTooLarge = errors.New("the API server's answer is too large")

// errNotAnyMore: the peer may not go on.
var errNotAnyMore = errors.New("the peer may not do this any more")
