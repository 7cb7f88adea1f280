package endpoint

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"liqo.io/agent/peer"
)

const (
	maxCallBody  = 16 << 10
	maxCallDepth = 16
	maxURL       = 1024
	maxToken     = 256
	maxSentence  = 512 // bytes of a sentence from elsewhere
)

// serveCall answers the calls of peering.
func (s *Server) serveCall(w http.ResponseWriter, r *http.Request, c *conn, caller Caller) *refusal {
	path := r.RequestURI
	if path != PathAsk {
		if no := needsKnown(caller); no != nil {
			return no
		}
	}
	if r.Method != http.MethodPost {
		return notAllowed("POST")
	}
	var body []byte
	if path == PathNotice {
		if r.ContentLength != 0 {
			return badBody("a notice has no body; leave it out")
		}
	} else {
		var no *refusal
		if body, no = s.readBody(w, r, c, "application/json", maxCallBody); no != nil {
			return no
		}
	}
	ctx, cancel := s.allow(w, r, s.times.call)
	defer cancel()
	if caller.Standing == Known {
		if !s.limits.calling.Take(caller.ID) {
			return busy("calls")
		}
		defer s.limits.calling.Release(caller.ID)
	} else {
		if !s.limits.asking.Take(caller.Source) {
			return busy("calls")
		}
		defer s.limits.asking.Release(caller.Source)
	}
	switch path {
	case PathAsk:
		var ask Ask
		if no := decodeCall(body, &ask, &ask.Greeting, caller.ID); no != nil {
			return no
		}
		if len(ask.Token) > maxToken {
			return badBody("the token is longer than any; copy it again")
		}
		return reply(w, s.cfg.Peers.Ask(ctx, caller, ask))
	case PathState:
		var greeting Greeting
		if no := decodeCall(body, &greeting, &greeting, caller.ID); no != nil {
			return no
		}
		return reply(w, s.cfg.Peers.State(ctx, caller, greeting))
	case PathWithdraw:
		var withdrawal Withdrawal
		if no := decodeCall(body, &withdrawal, nil, caller.ID); no != nil {
			return no
		}
		withdrawal.Reason = sentence(withdrawal.Reason)
		if err := s.cfg.Peers.Withdraw(ctx, caller, withdrawal); err != nil {
			s.complain("endpoint could not take note of what a peer gave up", "peer", caller.ID, "error", err)
			return &refusal{
				status: http.StatusServiceUnavailable, counted: RefusedFailed, reason: ReasonFailed, retry: time.Second,
				text: "the withdrawal could not be taken note of; try again, and look into the log of this cluster's agent if that goes on",
			}
		}
	case PathNotice:
		s.cfg.Peers.Notice(caller)
	}
	answer(w, http.StatusOK, []byte("{}"))
	return nil
}

func reply(w http.ResponseWriter, v any) *refusal {
	body, err := encode(v)
	if err != nil {
		return internalError("the answer cannot be encoded; please report this")
	}
	answer(w, http.StatusOK, body)
	return nil
}

// complain logs what a known peer or the agent does wrong, a few lines a minute.
func (s *Server) complain(text string, args ...any) {
	if n, ok := s.warn.allow(time.Now(), 5, time.Minute); ok {
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
func (s *Server) readBody(w http.ResponseWriter, r *http.Request, c *conn, mediaType string, limit int64) ([]byte, *refusal) {
	if no := checkHeader(r.Header, mediaType); no != nil {
		return nil, no
	}
	if r.ContentLength < 0 {
		return nil, &refusal{
			status: http.StatusLengthRequired, counted: RefusedBody, reason: ReasonBadRequest,
			text: "the length of the body is not known beforehand; send a Content-Length",
		}
	}
	if r.ContentLength > limit {
		return nil, &refusal{
			status: http.StatusRequestEntityTooLarge, counted: RefusedLarge, reason: ReasonBadRequest,
			text: fmt.Sprintf("the body has %d bytes; at most %d are read", r.ContentLength, limit),
		}
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(s.times.body))
	if r.ProtoMajor == 1 { // a tunnel does not wait for one request
		defer s.guard.reading(c)()
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, &refusal{
			status: http.StatusRequestTimeout, counted: RefusedSlow, reason: ReasonFailed,
			text: "the body did not come in time, or not as a whole; try again",
		}
	}
	return body, nil
}

func checkHeader(h http.Header, mediaType string) *refusal {
	given, params, err := mime.ParseMediaType(h.Get("Content-Type"))
	charset := params["charset"]
	delete(params, "charset")
	if err != nil || len(h.Values("Content-Type")) != 1 || given != mediaType || len(params) != 0 ||
		(charset != "" && !strings.EqualFold(charset, "utf-8")) || h.Get("Content-Encoding") != "" {
		return &refusal{
			status: http.StatusUnsupportedMediaType, counted: RefusedBody, reason: ReasonBadRequest,
			text: "the body is not " + mediaType + " without encoding; say so in Content-Type",
		}
	}
	return nil
}

func badBody(text string) *refusal {
	return &refusal{status: http.StatusBadRequest, counted: RefusedBody, reason: ReasonBadRequest, text: text}
}

// decodeCall reads a call into v. If there is a greeting in it, that must say
// the ID of the caller's certificate.
func decodeCall(body []byte, v any, greeting *Greeting, caller peer.ClusterID) *refusal {
	if err := checkJSON(body); err != nil {
		return badBody("the body cannot be understood: " + err.Error())
	}
	if err := json.Unmarshal(body, v); err != nil {
		return badBody("the body is not what this call takes: " + err.Error())
	}
	if greeting == nil {
		return nil
	}
	said := greeting.Identity
	if said.ClusterID != caller {
		return &refusal{
			status: http.StatusForbidden, counted: RefusedIdentity, reason: ReasonOtherIdentity,
			text: fmt.Sprintf("the call must say the cluster ID of the client certificate, %s, and it says %q", caller, sentence(string(said.ClusterID))),
		}
	}
	_, err := peer.ParseClusterName(said.ClusterName)
	if err == nil {
		_, err = peer.ParseNamespace(said.GuestNamespace)
	}
	if err == nil {
		err = checkURL(greeting.URL)
	}
	if err != nil {
		return badBody("the greeting cannot be used: " + err.Error())
	}
	return nil
}

// checkURL checks where a caller wants to be called.
func checkURL(text string) error {
	if text == "" {
		return nil
	}
	if len(text) <= maxURL {
		u, err := url.Parse(text)
		if err == nil && u.Scheme == "https" && u.Hostname() != "" && u.User == nil && u.RawQuery == "" && u.Fragment == "" &&
			(u.Path == "" || u.Path == "/") {
			return nil
		}
	}
	return errors.New("its URL is not of the form https://host:port")
}

// checkJSON checks that body is one JSON value in which no object has a name
// twice. That is allowed, but means different things to different readers, and
// names that differ only in case are the same to encoding/json.
func checkJSON(body []byte) error {
	_, err := readJSON(body, jsonRules{depth: maxCallDepth, same: func(name string) string {
		return strings.ToLower(strings.ToUpper(name)) // Kelvin signs and long s, too
	}})
	return err
}

// sentence makes one short line for people out of what somebody else says.
func sentence(text string) string {
	if len(text) > maxSentence {
		text = text[:maxSentence]
	}
	return strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, text)
}
