package endpoint

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	maxNamespaceCall = 1 << 10
	maxDeleteOptions = 4 << 10
	maxPodBody       = 256 << 10
	maxObjectBody    = 1363148 // 1.3 MiB: what etcd takes, 1.5 MiB, has room for more

	mergePatch     = "application/merge-patch+json"
	strategicPatch = "application/strategic-merge-patch+json"

	// Whoever writes in a peer's name is this field manager.
	asPeer = "fieldManager=liqo-peer"
)

// guests returns who decides about the namespaces of peers, nil when nobody does.
func (s *Server) guests() Guests {
	if s.cfg.Gateway == nil {
		return nil
	}
	return s.cfg.Gateway.cfg.Guests
}

// isForGuests reports whether r is about a namespace of a peer.
func (s *Server) isForGuests(r *http.Request) bool {
	path := r.RequestURI
	return s.guests() != nil && (isGuestPath(path) || path == PathNamespaces || path == PathRelease)
}

// serveGuests answers a known caller's request about its namespaces here. What is
// too much for now waits for a while.
func (s *Server) serveGuests(w http.ResponseWriter, r *http.Request, c *conn, caller Caller) *refusal {
	wait, ok := s.limits.guestRate.Reserve(caller.ID, s.limits.now(), s.times.turn)
	if !ok {
		return tooMany(wait, "from your cluster")
	}
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Time{}) // as in allow
	_ = control.SetWriteDeadline(time.Now().Add(2*s.times.turn + s.times.body + s.times.write))
	if wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-r.Context().Done():
		}
	}
	if !isGuestPath(r.RequestURI) {
		return s.serveNamespace(w, r, c, caller)
	}
	call, no := parseGuestCall(r.Method, r.RequestURI)
	if no == nil && call.answer != upgrading && wantsUpgrade(r) {
		no = notPermitted("the connection cannot be upgraded for this; send a plain request")
	}
	if no != nil {
		s.cfg.Gateway.complain(caller.ID, r, no)
		return no
	}
	if !s.guests().Owns(caller.ID, call.namespace) {
		return notPermitted(fmt.Sprintf("namespace %s here is none of yours, or not any more; ask for one (%s)", call.namespace, PathNamespaces))
	}
	if call.answer != oneAnswer && call.answer != upgrading {
		if wait := s.limits.opens.Take(caller.ID, s.limits.now()); wait > 0 {
			return tooMany(wait, "for lists, watches and logs")
		}
	}
	call.query = call.selected(caller.ID)
	if call.answer == upgrading {
		return s.serveUpgrade(w, r, caller, call)
	}
	lane := s.limits.guests
	if call.lasts() {
		lane = s.limits.streams
	}
	leave, no := s.turn(r, lane, caller)
	if no != nil {
		return no
	}
	defer leave()
	if r.ContentLength > maxPodBody || call.resource == "events" && call.answer == listAnswer {
		leave, no := s.turn(r, s.limits.large, caller)
		if no != nil {
			return no
		}
		defer leave()
	}
	return s.serveGuestCall(w, r, c, caller, call)
}

// checkOwn refuses what is about an object that the caller did not make. That there is
// none is for the API server to say, and the moment to make one.
func (s *Server) checkOwn(r *http.Request, caller Caller, call *guestCall) *refusal {
	if call.name == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(r.Context(), s.times.gateway)
	defer cancel()
	found, no := s.look(ctx, caller, call.namespace, call.resource, call.name)
	switch {
	case no != nil:
		return no
	case found.Found && !found.Own:
		no := notOwn(*call)
		s.cfg.Gateway.complain(caller.ID, r, no)
		return no
	}
	if call.uid = found.UID; !found.Found {
		call.uid = nobody
	}
	return nil
}

// spend takes what a request costs out of the caller's budgets, or refuses it.
func (s *Server) spend(r *http.Request, caller Caller, c cost) *refusal {
	wait := s.limits.write(caller.ID, c)
	if wait == 0 {
		return nil
	}
	no := spent(wait)
	s.cfg.Gateway.complain(caller.ID, r, no)
	return no
}

// wantsUpgrade reports whether r asks for another protocol on its connection.
func wantsUpgrade(r *http.Request) bool {
	return r.Header.Get("Upgrade") != "" || strings.Contains(strings.ToLower(r.Header.Get("Connection")), "upgrade")
}

// turn waits until a caller may have one more under way in a lane.
func (s *Server) turn(r *http.Request, lane *lanes, caller Caller) (leave func(), no *refusal) {
	ctx, cancel := context.WithTimeout(r.Context(), s.times.turn)
	defer cancel()
	if !lane.enter(ctx, caller.ID) {
		return nil, busy("requests about your namespaces here")
	}
	return func() { lane.leave(caller.ID) }, nil
}

// serveNamespace makes a namespace for a caller, or takes it back.
func (s *Server) serveNamespace(w http.ResponseWriter, r *http.Request, c *conn, caller Caller) *refusal {
	if r.Method != http.MethodPost {
		return notAllowed(http.MethodPost)
	}
	leave, no := s.turn(r, s.limits.guests, caller)
	if no != nil {
		return no
	}
	defer leave()
	body, no := s.readBody(w, r, c, "application/json", maxNamespaceCall)
	if no != nil {
		return no
	}
	var call NamespaceCall
	if no := decodeCall(body, &call, nil, caller.ID); no != nil {
		return no
	}
	if !isLabel(call.Name) {
		return badBody("the name is not one that a namespace can have")
	}
	if no := s.spend(r, caller, cost{writes: writesOfNamespace}); no != nil {
		return no
	}
	ctx, cancel := s.allow(w, r, s.times.gateway)
	defer cancel()
	if r.RequestURI == PathRelease {
		if err := s.guests().Release(ctx, caller.ID, call.Name); err != nil {
			return s.guestsRefuse(r, caller, err)
		}
		answer(w, http.StatusOK, []byte("{}"))
		return nil
	}
	name, err := s.guests().Namespace(ctx, caller.ID, call.Name)
	if err != nil {
		return s.guestsRefuse(r, caller, err)
	}
	return reply(w, NamespaceAnswer{Namespace: name})
}

// guestsRefuse is how an error of Guests reaches the peer.
func (s *Server) guestsRefuse(r *http.Request, caller Caller, err error) *refusal {
	var refused *Refused
	if errors.As(err, &refused) {
		reason := word(refused.Reason)
		if reason == "" {
			reason = ReasonNotPermitted
		}
		if refused.Retry > 0 {
			return &refusal{
				status: http.StatusServiceUnavailable, counted: RefusedFailed, reason: reason, text: sentence(refused.Message), retry: refused.Retry,
			}
		}
		return &refusal{status: http.StatusForbidden, counted: RefusedGateway, reason: reason, text: sentence(refused.Message)}
	}
	if r.Context().Err() == nil {
		s.complain("endpoint could not decide what a peer may do in its namespaces", "peer", caller.ID, "method", r.Method,
			"path", sentence(r.RequestURI), "error", err)
	}
	return &refusal{
		status: http.StatusServiceUnavailable, counted: RefusedFailed, reason: ReasonFailed, retry: time.Second,
		text: "this cluster cannot decide about it now; try again, and look into the log of its agent if that goes on",
	}
}

// serveGuestCall sends a call on and passes the answer back.
func (s *Server) serveGuestCall(w http.ResponseWriter, r *http.Request, c *conn, caller Caller, call guestCall) *refusal {
	g := s.cfg.Gateway
	if call.method == http.MethodGet {
		if r.ContentLength != 0 {
			return badBody("a GET has no body; leave it out")
		}
		if no := s.checkOwn(r, caller, &call); no != nil {
			return no
		}
		return s.stream(w, r, caller, call)
	}
	body, no := s.readGuestBody(w, r, c, call)
	if no != nil {
		return no
	}
	spent := cost{writes: 1, bytes: len(body)}
	if call.method == http.MethodPost {
		spent.pods = 1
	}
	if no := s.spend(r, caller, spent); no != nil {
		return no
	}
	ctx, cancel := s.allow(w, r, s.times.gateway)
	defer cancel()
	// Only now, so that nothing can change behind a body that comes slowly; and by its
	// UID, so that nothing can change after this either.
	if no := s.checkOwn(r, caller, &call); no != nil {
		return no
	}
	out := forward{method: call.method, path: call.path(), resource: call.resource, contentType: "application/json", query: asPeer, guest: true}
	done := func([]byte) {}
	var err error
	switch {
	case call.method == http.MethodDelete:
		out.query = ""
		if out.body, err = deleteOptions(body, call.uid); err != nil {
			return badBody("the options for the deletion cannot be passed on: " + err.Error())
		}
	case call.method == http.MethodPost:
		if out.body, done, err = s.guests().Pod(ctx, caller.ID, call.namespace, body); err == nil {
			if no := s.checkNamed(r, caller, call.namespace, out.body); no != nil {
				done(nil)
				return no
			}
		}
	case call.resource == "pods":
		out.body, out.contentType, err = s.guests().PodPatch(caller.ID, call.namespace, call.name, body)
		if err == nil && out.contentType != mergePatch && out.contentType != strategicPatch {
			return internalError("the patch has an unknown type; please report this")
		}
		if err == nil {
			out.body, err = withUID(out.body, call.uid)
		}
	default:
		out.contentType, out.query = applyPatch, asPeer+"&force=true"
		if out.body, err = s.guests().Object(caller.ID, call.namespace, call.resource, call.name, body); err == nil && call.uid == nobody {
			status, text, no := g.makeEmpty(ctx, caller, &call, out.body)
			if no != nil {
				return no
			}
			if status != http.StatusCreated {
				answer(w, status, text)
				return nil
			}
		}
		if err == nil {
			out.body, err = withUID(out.body, call.uid)
		}
	}
	if err != nil {
		return s.guestsRefuse(r, caller, err)
	}
	var created []byte
	told := false
	tell := func() {
		if !told {
			told = true
			done(created)
		}
	}
	defer tell()
	created = []byte{} // it is not known until there is an answer
	resp, text, no := g.exchange(ctx, caller.ID, out, maxObjectAnswer)
	if no != nil {
		if r.Context().Err() != nil { // who hangs up before the answer may have had it written all the same
			s.limits.wrote(caller.ID, len(body), maxPodBody)
		}
		return no
	}
	switch {
	case resp.StatusCode < 300:
		created = text
		s.limits.wrote(caller.ID, len(body), len(text))
	case resp.StatusCode < 500:
		created = nil
	}
	tell() // it counts before the peer can send the next
	pass(w, resp, text)
	return nil
}

// readGuestBody reads the body that a call takes.
func (s *Server) readGuestBody(w http.ResponseWriter, r *http.Request, c *conn, call guestCall) ([]byte, *refusal) {
	switch {
	case call.method == http.MethodDelete && r.ContentLength == 0:
		return nil, nil
	case call.method == http.MethodDelete:
		return s.readBody(w, r, c, "application/json", maxDeleteOptions)
	case call.method == http.MethodPost:
		return s.readBody(w, r, c, "application/json", maxPodBody)
	case call.resource != "pods":
		return s.readBody(w, r, c, applyPatch, maxObjectBody)
	case strings.HasPrefix(r.Header.Get("Content-Type"), strategicPatch):
		return s.readBody(w, r, c, strategicPatch, maxPodBody)
	}
	return s.readBody(w, r, c, mergePatch, maxPodBody)
}

// deletion is what a peer may say about a deletion, of metav1.DeleteOptions. How
// what depends on the object goes is not its choice.
type deletion struct {
	metav1.TypeMeta    `json:",inline"`
	GracePeriodSeconds *int64                `json:"gracePeriodSeconds,omitempty"`
	Preconditions      *metav1.Preconditions `json:"preconditions,omitempty"`
	PropagationPolicy  string                `json:"propagationPolicy,omitempty"`
}

// deleteOptions checks the options of a deletion and writes them anew. uid is that of
// the object that was looked at: no other one is to be deleted.
func deleteOptions(body []byte, uid types.UID) ([]byte, error) {
	var out deletion
	if body != nil {
		if err := checkJSON(body); err != nil {
			return nil, err
		}
		d := json.NewDecoder(bytes.NewReader(body))
		d.DisallowUnknownFields()
		if err := d.Decode(&out); err != nil {
			return nil, err
		}
	}
	if g := out.GracePeriodSeconds; g != nil && (*g < 0 || *g > math.MaxInt32) {
		return nil, errors.New("the grace period makes no sense")
	}
	if out.Preconditions == nil {
		out.Preconditions = &metav1.Preconditions{}
	}
	if out.Preconditions.UID == nil || *out.Preconditions.UID == "" || uid == nobody {
		out.Preconditions.UID = &uid
	}
	out.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "DeleteOptions"}
	out.PropagationPolicy = string(metav1.DeletePropagationBackground)
	return encode(out)
}

// refusalBody is what tells the sender of r about no: where the API server would
// answer, in the form in which that does.
func (s *Server) refusalBody(r *http.Request, no *refusal) any {
	if s.guests() == nil || !isGuestPath(r.RequestURI) {
		return Refusal{Error: no.text, Reason: no.reason}
	}
	status := metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status:   metav1.StatusFailure, Message: no.text, Code: int32(no.status),
		Reason: statusReasons[no.status],
		Details: &metav1.StatusDetails{
			Causes: []metav1.StatusCause{{Type: metav1.CauseType(no.reason), Message: no.text}},
		},
	}
	if no.retry > 0 {
		status.Details.RetryAfterSeconds = int32(math.Ceil(no.retry.Seconds()))
	}
	return status
}

// statusReasons are the words of the API server for HTTP status codes. A refusal is
// never NotFound: that would mean that something is gone.
var statusReasons = map[int]metav1.StatusReason{
	http.StatusBadRequest:            metav1.StatusReasonBadRequest,
	http.StatusUnauthorized:          metav1.StatusReasonUnauthorized,
	http.StatusForbidden:             metav1.StatusReasonForbidden,
	http.StatusMethodNotAllowed:      metav1.StatusReasonMethodNotAllowed,
	http.StatusRequestTimeout:        metav1.StatusReasonTimeout,
	http.StatusRequestEntityTooLarge: metav1.StatusReasonRequestEntityTooLarge,
	http.StatusUnsupportedMediaType:  metav1.StatusReasonUnsupportedMediaType,
	http.StatusTooManyRequests:       metav1.StatusReasonTooManyRequests,
	http.StatusInternalServerError:   metav1.StatusReasonInternalError,
	http.StatusBadGateway:            metav1.StatusReasonServiceUnavailable,
	http.StatusServiceUnavailable:    metav1.StatusReasonServiceUnavailable,
	http.StatusGatewayTimeout:        metav1.StatusReasonTimeout,
}
