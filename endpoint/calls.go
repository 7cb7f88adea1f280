package endpoint

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"time"

	"liqo.io/agent/endpoint/refusal"
	"liqo.io/agent/endpoint/wire"
	"liqo.io/agent/peer"
	"liqo.io/agent/peer/text"
)

const (
	maxCallBody = 16 << 10
	maxToken    = 256
)

// serveCall answers the calls of peering.
func (s *Server) serveCall(w http.ResponseWriter, r *http.Request, c *conn, caller Caller) *refusal.Refusal {
	path := r.RequestURI
	if path != wire.PathAsk {
		if no := needsKnown(caller); no != nil {
			return no
		}
	}
	if r.Method != http.MethodPost {
		return refusal.NotAllowed("POST")
	}
	var body []byte
	if path == wire.PathNotice {
		if r.ContentLength != 0 {
			return refusal.BadBody("a notice has no body; leave it out")
		}
	} else {
		var no *refusal.Refusal
		if body, no = s.readBody(w, r, c, "application/json", maxCallBody); no != nil {
			return no
		}
	}
	ctx, cancel := s.allow(w, r, s.times.call)
	defer cancel()
	if caller.Access == Known {
		if !s.limits.calling.Take(caller.ID) {
			return refusal.TooMany("calls")
		}
		defer s.limits.calling.Release(caller.ID)
	} else {
		if !s.limits.asking.Take(caller.Source) {
			return refusal.TooMany("calls")
		}
		defer s.limits.asking.Release(caller.Source)
	}
	switch path {
	case wire.PathAsk:
		var ask wire.Ask
		if no := decodeCall(body, &ask, &ask.Greeting, caller.ID); no != nil {
			return no
		}
		if len(ask.Token) > maxToken {
			return refusal.BadBody("the token is longer than any; copy it again")
		}
		return reply(w, s.cfg.Peers.Ask(ctx, caller, ask))
	case wire.PathState:
		var greeting wire.Greeting
		if no := decodeCall(body, &greeting, &greeting, caller.ID); no != nil {
			return no
		}
		return reply(w, s.cfg.Peers.State(ctx, caller, greeting))
	case wire.PathWithdraw:
		var withdrawal wire.Withdrawal
		if no := decodeCall(body, &withdrawal, nil, caller.ID); no != nil {
			return no
		}
		withdrawal.Reason = text.Sentence(withdrawal.Reason)
		if err := s.cfg.Peers.Withdraw(ctx, caller, withdrawal); err != nil {
			s.complain("endpoint could not take note of what a peer gave up", "peer", caller.ID, "error", err)
			return &refusal.Refusal{
				Status: http.StatusServiceUnavailable, Counted: refusal.Failed, Reason: wire.ReasonFailed, Retry: time.Second,
				Text: "the withdrawal could not be taken note of; try again, and look into the log of this cluster's agent if that goes on",
			}
		}
	case wire.PathNotice:
		s.cfg.Peers.Notice(caller)
	}
	answer(w, http.StatusOK, []byte("{}"))
	return nil
}

// knownCall returns the body of a call that only peers whose key is trusted may make.
func (s *Server) knownCall(w http.ResponseWriter, r *http.Request, c *conn, caller Caller) ([]byte, *refusal.Refusal) {
	if no := needsKnown(caller); no != nil {
		return nil, no
	}
	if r.Method != http.MethodPost {
		return nil, refusal.NotAllowed("POST")
	}
	return s.readBody(w, r, c, "application/json", maxCallBody)
}

func reply(w http.ResponseWriter, v any) *refusal.Refusal {
	body, err := wire.Encode(v)
	if err != nil {
		return refusal.Internal("the answer cannot be encoded; please report this")
	}
	answer(w, http.StatusOK, body)
	return nil
}

// complain logs what a known peer or the agent does wrong, a few lines a minute.
func (s *Server) complain(text string, args ...any) {
	if n, ok := s.warn.Allow(time.Now(), 5, time.Minute); ok {
		s.cfg.Logger.Warn(text, append(args, "not_shown", n)...)
	}
}

// allow gives the answer to r the time that work may take. Until now the
// connection had what a request for /ids gets.
func (s *Server) allow(w http.ResponseWriter, r *http.Request, work time.Duration) (context.Context, context.CancelFunc) {
	control := http.NewResponseController(w)
	// net/http reads on, to see the caller go away: a deadline for that would end
	// r's context. Errors are those of a connection that is gone.
	_ = control.SetReadDeadline(time.Time{})
	_ = control.SetWriteDeadline(time.Now().Add(work + s.times.write))
	return context.WithTimeout(r.Context(), work)
}

// readBody reads the body of r, which must be of that type and at most limit
// bytes long. While it does, the connection may have to make room for others.
func (s *Server) readBody(w http.ResponseWriter, r *http.Request, c *conn, mediaType string, limit int64) ([]byte, *refusal.Refusal) {
	if no := checkHeader(r.Header, mediaType); no != nil {
		return nil, no
	}
	if r.ContentLength < 0 {
		return nil, &refusal.Refusal{
			Status: http.StatusLengthRequired, Counted: refusal.Body, Reason: wire.ReasonBadRequest,
			Text: "the length of the body is not known beforehand; send a Content-Length",
		}
	}
	if r.ContentLength > limit {
		return nil, &refusal.Refusal{
			Status: http.StatusRequestEntityTooLarge, Counted: refusal.Large, Reason: wire.ReasonBadRequest,
			Text: fmt.Sprintf("the body has %d bytes; at most %d are read", r.ContentLength, limit),
		}
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(s.times.body))
	if r.ProtoMajor == 1 { // a tunnel does not wait for one request
		defer s.guard.Reading(c.Conn)()
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, &refusal.Refusal{
			Status: http.StatusRequestTimeout, Counted: refusal.Slow, Reason: wire.ReasonFailed,
			Text: "the body did not come in time, or not as a whole; try again",
		}
	}
	return body, nil
}

func checkHeader(h http.Header, mediaType string) *refusal.Refusal {
	given, params, err := mime.ParseMediaType(h.Get("Content-Type"))
	charset := params["charset"]
	delete(params, "charset")
	if err != nil || len(h.Values("Content-Type")) != 1 || given != mediaType || len(params) != 0 ||
		(charset != "" && !strings.EqualFold(charset, "utf-8")) || h.Get("Content-Encoding") != "" {
		return &refusal.Refusal{
			Status: http.StatusUnsupportedMediaType, Counted: refusal.Body, Reason: wire.ReasonBadRequest,
			Text: "the body is not " + mediaType + " without encoding; say so in Content-Type",
		}
	}
	return nil
}

// decodeCall reads a call into v. If there is a greeting in it, that must say
// the ID of the caller's certificate.
func decodeCall(body []byte, v any, greeting *wire.Greeting, caller peer.ClusterID) *refusal.Refusal {
	if err := wire.CheckJSON(body); err != nil {
		return refusal.BadBody("the body cannot be understood: " + err.Error())
	}
	if err := json.Unmarshal(body, v); err != nil {
		return refusal.BadBody("the body is not what this call takes: " + err.Error())
	}
	if greeting == nil {
		return nil
	}
	said := greeting.Identity
	if said.ClusterID != caller {
		return &refusal.Refusal{
			Status: http.StatusForbidden, Counted: refusal.Identity, Reason: wire.ReasonOtherIdentity,
			Text: fmt.Sprintf("the call must say the cluster ID of the client certificate, %s, and it says %q", caller, text.Sentence(string(said.ClusterID))),
		}
	}
	_, err := peer.ParseClusterName(said.ClusterName)
	if err == nil {
		_, err = peer.ParseNamespace(said.GuestNamespace)
	}
	if err == nil && greeting.URL != "" {
		if _, wrong := peer.ParseURL(greeting.URL); wrong != nil {
			err = fmt.Errorf("its URL is not of the form https://host:port: %w", wrong)
		}
	}
	if err != nil {
		return refusal.BadBody("the greeting cannot be used: " + err.Error())
	}
	return nil
}
