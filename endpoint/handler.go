package endpoint

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"liqo.io/agent/peer"
)

// PathIDs is where a cluster says who it is.
const PathIDs = "/ids"

// The reasons that Stats counts for requests that were refused on a connection
// that was let in.
const (
	// RefusedPath: there is nothing at the path, spelled exactly like that.
	RefusedPath RefusalReason = "no-such-path"
	// RefusedMethod: the path has no such method.
	RefusedMethod RefusalReason = "method-not-allowed"
	// RefusedNoCertificate: no client certificate, or none that names a cluster
	// ID, where one is needed.
	RefusedNoCertificate RefusalReason = "no-certificate"
	// RefusedNotTrusted: the caller's key is not trusted to be its cluster's.
	RefusedNotTrusted RefusalReason = "not-trusted"
	// RefusedBlocked: the caller is blocked.
	RefusedBlocked RefusalReason = "blocked"
	// RefusedSuspended: the caller's key is trusted by a certificate that has ended.
	RefusedSuspended RefusalReason = "certificate-ended"
	// RefusedIdentity: the caller says another cluster ID than its certificate.
	RefusedIdentity RefusalReason = "other-identity"
	// RefusedProtocol: the caller speaks no version of the protocol that we do.
	RefusedProtocol RefusalReason = "protocol-version"
	// RefusedRate: the caller or its address sent too many requests lately.
	RefusedRate RefusalReason = "rate-limited"
	// RefusedBudget: the caller has had more written to the API server than it may.
	RefusedBudget RefusalReason = "budget-spent"
	// RefusedBusy: too many requests of the caller, or of all, are under way.
	RefusedBusy RefusalReason = "too-many-at-a-time"
	// RefusedBody: the body has the wrong type or form, or should not be there.
	RefusedBody RefusalReason = "bad-body"
	// RefusedLarge: the body is larger than any that makes sense.
	RefusedLarge RefusalReason = "too-large"
	// RefusedSlow: the body did not come in time.
	RefusedSlow RefusalReason = "too-slow"
	// RefusedGateway: a request to the API server that no peer may send.
	RefusedGateway RefusalReason = "gateway-not-permitted"
	// RefusedNoAPIServer: the API server could not be reached, or did not answer
	// in time.
	RefusedNoAPIServer RefusalReason = "no-api-server"
	// RefusedUpstream: the API server answered something that is not passed on.
	RefusedUpstream RefusalReason = "bad-upstream-answer"
	// RefusedFailed: the agent could not do what was asked.
	RefusedFailed RefusalReason = "failed"
)

// Further reasons of a Refusal, for programs.
const (
	ReasonNoSuchPath    = "NoSuchPath"
	ReasonBadRequest    = "BadRequest" // sending the same again is of no use
	ReasonNoCertificate = "NoCertificate"
	ReasonOtherIdentity = "OtherIdentity" // the body says another cluster ID than the certificate
	ReasonFailed        = "Failed"        // trying again later may help
)

// refusal is why a request is not served.
type refusal struct {
	status  int
	counted RefusalReason
	reason  string        // for the caller's program
	text    string        // for people: what happened, and what to do
	retry   time.Duration // when trying again makes sense; 0: unsaid
	allow   string        // the methods that there are, with status 405
}

// serve answers one request. There is no http.ServeMux in between because that
// answers some paths by itself, with redirects and HTML.
func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	s.guard.countRequest()
	connOf(r).requests.Add(1)
	w.Header().Set(ProtocolHeader, peer.Spoken().String())
	if no := s.route(w, r); no != nil {
		s.refuse(w, r, no)
	}
}

// route finds out who serves r, by the exact path. For everything but /ids that
// is the path as it was sent, before any decoding: only one spelling exists.
func (s *Server) route(w http.ResponseWriter, r *http.Request) *refusal {
	c := connOf(r)
	if r.URL.Path == PathIDs {
		return s.serveIDs(w, r, c)
	}
	if s.cfg.Peers == nil {
		return noSuchPath()
	}
	caller, no := s.admit(r, c)
	if no != nil {
		return no
	}
	if no := checkProtocol(r.Header.Get(ProtocolHeader), caller); no != nil {
		return no
	}
	switch path := r.RequestURI; {
	case s.isForGuests(r):
		if no := needsKnown(caller); no != nil {
			return no
		}
		return s.serveGuests(w, r, c, caller)
	case path == PathTunnel && s.guests() != nil:
		if no := needsKnown(caller); no != nil {
			return no
		}
		return s.serveTunnel(w, r, c, caller)
	case strings.HasPrefix(path, PathGateway):
		if no := needsKnown(caller); no != nil {
			return no
		}
		return s.serveGateway(w, r, c, caller)
	case path == PathReach && s.cfg.Reach != nil:
		return s.serveReach(w, r, c, caller)
	case path == PathAsk, path == PathState, path == PathWithdraw, path == PathNotice:
		return s.serveCall(w, r, c, caller)
	default:
		return noSuchPath()
	}
}

// checkProtocol refuses a caller with whom nothing can be spoken. One that says
// nonsense about it is taken to speak the first version.
func checkProtocol(header string, caller Caller) *refusal {
	theirs, err := peer.ParseProtocol(header)
	if err != nil {
		theirs, _ = peer.ParseProtocol("") // that is always one
	}
	if speak(theirs) {
		return nil
	}
	ours := peer.Spoken()
	update := "update liqo-agent here at the peer"
	if theirs.Newest < ours.Oldest {
		update = "update liqo-agent at " + string(caller.ID)
	}
	return &refusal{
		status: http.StatusBadRequest, counted: RefusedProtocol, reason: ReasonProtocol,
		text: fmt.Sprintf("this cluster speaks version %s of the protocol, and you version %s: %s", ours, theirs, update),
	}
}

func noSuchPath() *refusal {
	return &refusal{
		status: http.StatusNotFound, counted: RefusedPath, reason: ReasonNoSuchPath,
		text: "there is nothing at this path; a cluster says who it is at " + PathIDs,
	}
}

func notAllowed(methods string) *refusal {
	return &refusal{
		status: http.StatusMethodNotAllowed, counted: RefusedMethod, reason: ReasonBadRequest, allow: methods,
		text: "use " + strings.ReplaceAll(methods, ", ", " or "),
	}
}

func (s *Server) serveIDs(w http.ResponseWriter, r *http.Request, c *conn) *refusal {
	if no := s.admitAnyone(r, c); no != nil {
		return no
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return notAllowed("GET, HEAD")
	}
	if r.ContentLength != 0 {
		return &refusal{
			status: http.StatusRequestEntityTooLarge, counted: RefusedBody, reason: ReasonBadRequest,
			text: "a request for " + PathIDs + " has no body; leave it out",
		}
	}
	body, err := encode(s.cfg.Identity())
	if err != nil {
		return internalError("the identity cannot be encoded")
	}
	answer(w, http.StatusOK, body)
	return nil
}

func internalError(text string) *refusal {
	return &refusal{status: http.StatusInternalServerError, counted: RefusedFailed, reason: ReasonFailed, text: text}
}

// refuse counts no and answers with it. It closes the connection, so that nothing
// of an unwanted body is read, unless a known caller can go on using it.
func (s *Server) refuse(w http.ResponseWriter, r *http.Request, no *refusal) {
	s.guard.count(no.counted)
	h := w.Header()
	if !s.guard.isKnown(connOf(r)) || r.ProtoMajor == 1 && (r.ContentLength < 0 || r.ContentLength > maxGatewayBody) {
		h.Set("Connection", "close") // a tunnel ends with that, too
	}
	if no.allow != "" {
		h.Set("Allow", no.allow)
	}
	if no.retry > 0 {
		h.Set("Retry-After", strconv.Itoa(int(math.Ceil(no.retry.Seconds()))))
	}
	body, err := encode(s.refusalBody(r, no))
	if err != nil {
		body = []byte("{}") // strings and numbers can always be encoded
	}
	answer(w, no.status, body)
}

func answer(w http.ResponseWriter, status int, body []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	// A failure to write is the client's loss and shows in its own error;
	// net/http discards the body of an answer to HEAD.
	_, _ = w.Write(body)
}

// encode is json.Marshal without the escapes for HTML, which a name in /ids
// does not need, and without a newline.
func encode(v any) ([]byte, error) {
	var buf bytes.Buffer
	e := json.NewEncoder(&buf)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n")), nil
}
