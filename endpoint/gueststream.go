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
)

const (
	maxObjectAnswer = 4 << 20  // of one object
	maxListAnswer   = 64 << 20 // of a list, and of a log that is not followed

	listChunk   = 32 << 10
	streamChunk = 4 << 10 // an object is small, and what lasts long has little to say at a time
)

// errQuiet: nothing came for too long.
var errQuiet = fmt.Errorf("nothing came for too long: %w", context.DeadlineExceeded)

// stream sends a GET on and passes the answer back while it comes, without keeping
// more than a few kilobytes of it.
func (s *Server) stream(w http.ResponseWriter, r *http.Request, caller Caller, call guestCall) *refusal {
	ctx, end := context.WithCancelCause(r.Context())
	defer end(nil)
	if call.lasts() {
		defer s.held.add(&entry{id: caller.ID, shown: caller.Shown, namespace: call.namespace, end: func() { end(errNotAnyMore) }})()
	}
	dog := time.AfterFunc(s.times.list, func() { end(errQuiet) })
	defer dog.Stop()
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(s.times.list + s.times.write))
	resp, no := s.cfg.Gateway.ask(ctx, caller.ID, forward{method: call.method, path: call.path(), query: call.query, resource: call.resource, accept: call.accepts(), guest: true})
	if no != nil {
		return no
	}
	defer func() { _ = resp.Body.Close() }() // everything that matters was read
	if resp.StatusCode != http.StatusOK {
		text, no := read(ctx, resp, maxGatewayAnswer)
		if no == nil {
			pass(w, resp, text)
		}
		return no
	}
	var from io.Reader = resp.Body
	if call.resource == "events" {
		if call.answer == listAnswer {
			return s.passEvents(ctx, w, resp, caller, call)
		}
		from = newEventWatch(from, s.ownPod(ctx, caller, call.namespace))
	}
	limit := call.limit()
	mediaType, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	switch {
	case err != nil || mediaType != call.mediaType():
		return badUpstream("something that is not " + call.mediaType())
	case resp.ContentLength > limit:
		return badUpstream("an answer that is too large")
	case resp.ContentLength >= 0 && from == resp.Body:
		w.Header().Set("Content-Length", strconv.FormatInt(resp.ContentLength, 10))
	}
	w.Header().Set("Content-Type", call.mediaType())
	if err := s.copyAnswer(ctx, w, from, call, dog); err != nil {
		// Part of the answer is on its way. It must not look like all of it.
		panic(http.ErrAbortHandler)
	}
	return nil
}

// passEvents passes on a list of events that are about the caller's pods.
func (s *Server) passEvents(ctx context.Context, w http.ResponseWriter, resp *http.Response, caller Caller, call guestCall) *refusal {
	text, no := read(ctx, resp, maxEventsAnswer)
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
func (s *Server) copyAnswer(ctx context.Context, w http.ResponseWriter, from io.Reader, call guestCall, dog *time.Timer) error {
	control := http.NewResponseController(w)
	quiet, stall, size := s.times.stall, s.times.stall, streamChunk
	if call.answer == listAnswer || call.answer == textAnswer {
		size = listChunk
	}
	if call.lasts() {
		quiet = s.times.quiet
		if call.answer == following {
			stall = s.times.quiet // a person may stop to read
		}
		if err := control.Flush(); err != nil { // the caller sees that it has begun
			return err
		}
	}
	chunk := make([]byte, size)
	left := call.limit()
	for {
		dog.Reset(quiet)
		n, err := from.Read(chunk)
		if left -= int64(n); left < 0 {
			return errTooMuch
		}
		if n > 0 {
			dog.Reset(2 * stall) // the deadline for the caller comes first
			_ = control.SetWriteDeadline(time.Now().Add(stall))
			if _, err := w.Write(chunk[:n]); err != nil {
				return err
			}
			if call.lasts() {
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

// errNotAnyMore: the peer may not go on.
var errNotAnyMore = errors.New("the peer may not do this any more")

// limit is how many bytes an answer may have.
func (g guestCall) limit() int64 {
	switch g.answer {
	case oneAnswer:
		return maxObjectAnswer
	case listAnswer, textAnswer:
		return maxListAnswer
	}
	return 1<<63 - 1
}

// mediaType is that of an answer.
func (g guestCall) mediaType() string {
	if g.answer == textAnswer || g.answer == following {
		return "text/plain"
	}
	return "application/json"
}

// acceptsAny is for what is no object: what an API server says to a media type that it
// cannot make is that it is not acceptable.
const acceptsAny = "application/json, */*"

// accepts is what the API server is told to answer with.
func (g guestCall) accepts() string {
	if g.answer == textAnswer || g.answer == following {
		return acceptsAny
	}
	return "application/json"
}
