package endpoint

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"runtime/debug"
	"strconv"
	"strings"

	"liqo.io/agent/endpoint/allow"
	"liqo.io/agent/endpoint/refusal"
	"liqo.io/agent/endpoint/wire"
	"liqo.io/agent/peer"
	"liqo.io/agent/peer/text"
)

// serveApart is serve on a goroutine of its own: what is done about a request takes a
// stack several times as large as waiting for the next one does, and stacks shrink late.
// So the goroutine of a connection keeps a small one.
func (s *Server) serveApart(w http.ResponseWriter, r *http.Request) {
	served := make(chan any)
	go func() {
		var failure any
		defer func() { served <- failure }()
		defer func() {
			if failure = recover(); failure != nil && failure != http.ErrAbortHandler {
				failure = fmt.Sprintf("%v\n%s", failure, debug.Stack())
			}
		}()
		s.serve(w, r)
	}()
	if failure := <-served; failure != nil {
		panic(failure) // net/http ends the connection, and logs it
	}
}

// serve answers one request. There is no http.ServeMux in between because that
// answers some paths by itself, with redirects and HTML.
func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	s.guard.CountRequest()
	connOf(r).requests.Add(1)
	w.Header().Set(wire.ProtocolHeader, peer.Spoken().String())
	if no := s.route(w, r); no != nil {
		s.refuse(w, r, no)
	}
}

// route finds out who serves r, by the exact path. For everything but /ids that
// is the path as it was sent, before any decoding: only one spelling exists.
func (s *Server) route(w http.ResponseWriter, r *http.Request) *refusal.Refusal {
	c := connOf(r)
	if r.URL.Path == wire.PathIDs {
		return s.serveIDs(w, r, c)
	}
	if s.cfg.Peers == nil {
		return refusal.NoSuchPath()
	}
	caller, no := s.admit(r, c)
	if no != nil {
		return no
	}
	if no := checkProtocol(r.Header.Get(wire.ProtocolHeader), caller); no != nil {
		return no
	}
	switch path := r.RequestURI; {
	case s.isForGuests(r):
		if no := needsKnown(caller); no != nil {
			return no
		}
		return s.serveGuests(w, r, c, caller)
	case path == wire.PathTunnel && s.cfg.Guests != nil:
		if no := needsKnown(caller); no != nil {
			return no
		}
		return s.serveTunnel(w, r, c, caller)
	case path == wire.PathNetwork && s.cfg.Network != nil:
		if no := needsKnown(caller); no != nil {
			return no
		}
		return s.serveNetwork(w, r, c, caller)
	case strings.HasPrefix(path, wire.PathGateway):
		if no := needsKnown(caller); no != nil {
			return no
		}
		return s.serveGateway(w, r, c, caller)
	case path == wire.PathLiqo && s.cfg.Liqo != nil:
		return s.serveLiqo(w, r, c, caller)
	case path == wire.PathReach && s.cfg.Reach != nil:
		return s.serveReach(w, r, c, caller)
	case path == wire.PathAsk, path == wire.PathState, path == wire.PathWithdraw, path == wire.PathNotice:
		return s.serveCall(w, r, c, caller)
	default:
		return refusal.NoSuchPath()
	}
}

// checkProtocol refuses a caller with whom nothing can be spoken.
func checkProtocol(header string, caller Caller) *refusal.Refusal {
	theirs := wire.ProtocolOf(header)
	if wire.Speaks(theirs) {
		return nil
	}
	ours := peer.Spoken()
	update := "update liqo-agent here at the peer"
	if theirs.Newest < ours.Oldest {
		update = "update liqo-agent at " + string(caller.ID)
	}
	return &refusal.Refusal{
		Status: http.StatusBadRequest, Counted: refusal.Protocol, Reason: wire.ReasonProtocol,
		Text: fmt.Sprintf("this cluster speaks version %s of the protocol, and you version %s: %s", ours, theirs, update),
	}
}

func (s *Server) serveIDs(w http.ResponseWriter, r *http.Request, c *conn) *refusal.Refusal {
	if no := s.admitAnyone(r, c); no != nil {
		return no
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return refusal.NotAllowed("GET, HEAD")
	}
	if r.ContentLength != 0 {
		return &refusal.Refusal{
			Status: http.StatusRequestEntityTooLarge, Counted: refusal.Body, Reason: wire.ReasonBadRequest,
			Text: "a request for " + wire.PathIDs + " has no body; leave it out",
		}
	}
	body, err := wire.Encode(s.cfg.Identity())
	if err != nil {
		return refusal.Internal("the identity cannot be encoded")
	}
	answer(w, http.StatusOK, body)
	return nil
}

// refuse counts no, logs its cause, and answers with it. There is a cause only for those who proved who they are. It closes
// the connection, so that nothing of an unwanted body is read, unless a known caller can go on using it.
func (s *Server) refuse(w http.ResponseWriter, r *http.Request, no *refusal.Refusal) {
	s.guard.Count(no.Counted)
	// Callers that hang up are no news, nor is what this agent has ended.
	if no.Cause != nil && !errors.Is(no.Cause, context.Canceled) && !errors.Is(no.Cause, errNotAnyMore) {
		path, _, _ := strings.Cut(r.RequestURI, "?") // behind that are commands of people
		s.complain("endpoint cannot serve a peer's request", "peer", connOf(r).proof.id, "method", text.Sentence(r.Method), "path", text.Sentence(path), "error", no.Text, "cause", no.Cause)
	}
	h := w.Header()
	if !s.guard.IsKnown(connOf(r).Conn) || r.ProtoMajor == 1 && (r.ContentLength < 0 || r.ContentLength > allow.MaxObject) {
		h.Set("Connection", "close") // a tunnel ends with that, too
	}
	if no.Allow != "" {
		h.Set("Allow", no.Allow)
	}
	if no.Retry > 0 {
		h.Set("Retry-After", strconv.Itoa(int(math.Ceil(no.Retry.Seconds()))))
	}
	var v any = no.Body()
	if s.cfg.Guests != nil && allow.IsGuestPath(r.RequestURI) {
		v = no.AsStatus()
	}
	body, err := wire.Encode(v)
	if err != nil {
		body = []byte("{}") // strings and numbers can always be encoded
	}
	answer(w, no.Status, body)
}

func answer(w http.ResponseWriter, status int, body []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	// A failure to write is the client's loss and shows in its own error;
	// net/http discards the body of an answer to HEAD.
	_, _ = w.Write(body)
}
