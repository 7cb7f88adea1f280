package endpoint

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"liqo.io/agent/endpoint/allow"
	"liqo.io/agent/endpoint/refusal"
	"liqo.io/agent/endpoint/wire"
	"liqo.io/agent/peer"
	"liqo.io/agent/peer/text"
	"liqo.io/agent/throttle"
)

const (
	maxNamespaceCall = 1 << 10
	maxDeleteOptions = 4 << 10
	maxPodBody       = 256 << 10
	maxObjectBody    = 1363148 // 1.3 MiB: what etcd takes, 1.5 MiB, has room for more
)

// isForGuests reports whether r is about a namespace of a peer.
func (s *Server) isForGuests(r *http.Request) bool {
	path := r.RequestURI
	return s.cfg.Guests != nil && (allow.IsGuestPath(path) || path == wire.PathNamespaces || path == wire.PathRelease)
}

// serveGuests answers a known caller's request about its namespaces here. What is
// too much for now waits for a while.
func (s *Server) serveGuests(w http.ResponseWriter, r *http.Request, c *conn, caller Caller) *refusal.Refusal {
	wait, ok := s.limits.guestRate.Reserve(caller.ID, s.limits.now(), s.times.turn)
	if !ok {
		return refusal.TooOften(wait, "from your cluster")
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
	if !allow.IsGuestPath(r.RequestURI) {
		return s.serveNamespace(w, r, c, caller)
	}
	call, no := allow.ParseCall(r.Method, r.RequestURI)
	if no == nil && call.Answer != allow.Upgrading && wantsUpgrade(r) {
		no = refusal.NotPermitted("the connection cannot be upgraded for this; send a plain request")
	}
	if no != nil {
		s.cfg.Gateway.Complain(caller.ID, r, no)
		return no
	}
	if err := s.cfg.Guests.Owns(caller.ID, call.Namespace); err != nil {
		// While it is not known, nobody is to take it for an end.
		if no := s.guestsRefuse(r, caller, err); no.Retry > 0 {
			return no
		}
		return refusal.NotPermitted(fmt.Sprintf("namespace %s here is none of yours, or not any more; ask for one (%s)", call.Namespace, wire.PathNamespaces))
	}
	if call.Answer != allow.OneAnswer && call.Answer != allow.Upgrading {
		opens := s.limits.opens
		if call.Resource == allow.PodMetrics {
			opens = s.limits.scrapes // who scrapes often is not to be without lists and logs
		}
		if wait := opens.Take(caller.ID, s.limits.now()); wait > 0 {
			return refusal.TooOften(wait, "for lists, watches and logs")
		}
	}
	call.Query = call.Selected(caller.ID)
	if call.Answer == allow.Upgrading {
		return s.serveUpgrade(w, r, caller, call)
	}
	slots := s.limits.guests
	if call.Lasts() {
		slots = s.limits.streams
	}
	leave, no := s.acquire(r, slots, caller, namespaceRequests)
	if no != nil {
		return no
	}
	defer leave()
	if r.ContentLength > maxPodBody || call.Resource == "events" && call.Answer == allow.ListAnswer {
		leave, no := s.acquire(r, s.limits.large, caller, namespaceRequests)
		if no != nil {
			return no
		}
		defer leave()
	}
	return s.serveGuestCall(w, r, c, caller, call)
}

// checkOwn refuses what is about an object that the caller did not make. That there is
// none is for the API server to say, and the moment to make one.
func (s *Server) checkOwn(r *http.Request, caller Caller, call *allow.Call) *refusal.Refusal {
	if call.Name == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(r.Context(), s.times.gateway)
	defer cancel()
	found, no := s.look(ctx, caller, call.Namespace, call.Resource, call.Name)
	switch {
	case no != nil:
		return no
	case found.Found && !found.Own:
		no := notOwn(*call)
		s.cfg.Gateway.Complain(caller.ID, r, no)
		return no
	}
	if call.UID = found.UID; !found.Found {
		call.UID = allow.Nobody
	}
	return nil
}

// spend takes what a request costs out of the caller's budgets, or refuses it.
func (s *Server) spend(r *http.Request, caller Caller, c cost) *refusal.Refusal {
	wait := s.limits.write(caller.ID, c)
	if wait == 0 {
		return nil
	}
	no := refusal.OverBudget(wait)
	s.cfg.Gateway.Complain(caller.ID, r, no)
	return no
}

// wantsUpgrade reports whether r asks for another protocol on its connection.
func wantsUpgrade(r *http.Request) bool {
	return r.Header.Get("Upgrade") != "" || strings.Contains(strings.ToLower(r.Header.Get("Connection")), "upgrade")
}

// namespaceRequests is what a caller has too many of.
const namespaceRequests = "requests about your namespaces here"

// acquire waits until a caller may have one more under way.
func (s *Server) acquire(r *http.Request, slots *throttle.Slots[peer.ClusterID], caller Caller, what string) (leave func(), no *refusal.Refusal) {
	ctx, cancel := context.WithTimeout(r.Context(), s.times.turn)
	defer cancel()
	if !slots.Await(ctx, caller.ID) {
		return nil, refusal.TooMany(what)
	}
	return func() { slots.Release(caller.ID) }, nil
}

// serveNamespace makes a namespace for a caller, or takes it back.
func (s *Server) serveNamespace(w http.ResponseWriter, r *http.Request, c *conn, caller Caller) *refusal.Refusal {
	if r.Method != http.MethodPost {
		return refusal.NotAllowed(http.MethodPost)
	}
	leave, no := s.acquire(r, s.limits.guests, caller, namespaceRequests)
	if no != nil {
		return no
	}
	defer leave()
	body, no := s.readBody(w, r, c, "application/json", maxNamespaceCall)
	if no != nil {
		return no
	}
	var call wire.NamespaceCall
	if no := decodeCall(body, &call, nil, caller.ID); no != nil {
		return no
	}
	if !allow.IsLabel(call.Name) {
		return refusal.BadBody("the name is not one that a namespace can have")
	}
	if no := s.spend(r, caller, cost{writes: writesOfNamespace}); no != nil {
		return no
	}
	ctx, cancel := s.allow(w, r, s.times.gateway)
	defer cancel()
	if r.RequestURI == wire.PathRelease {
		if err := s.cfg.Guests.Release(ctx, caller.ID, call.Name); err != nil {
			return s.guestsRefuse(r, caller, err)
		}
		answer(w, http.StatusOK, []byte("{}"))
		return nil
	}
	name, err := s.cfg.Guests.Namespace(ctx, caller.ID, call.Name)
	if err != nil {
		return s.guestsRefuse(r, caller, err)
	}
	return reply(w, wire.NamespaceAnswer{Namespace: name})
}

// guestsRefuse is how an error of Guests reaches the peer.
func (s *Server) guestsRefuse(r *http.Request, caller Caller, err error) *refusal.Refusal {
	var refused *wire.Refused
	if errors.As(err, &refused) {
		reason := wire.Word(refused.Reason)
		if reason == "" {
			reason = wire.ReasonNotPermitted
		}
		if refused.Retry > 0 {
			return &refusal.Refusal{
				Status: http.StatusServiceUnavailable, Counted: refusal.Failed, Reason: reason, Text: text.Sentence(refused.Message), Retry: refused.Retry,
			}
		}
		return &refusal.Refusal{Status: http.StatusForbidden, Counted: refusal.Gateway, Reason: reason, Text: text.Sentence(refused.Message)}
	}
	if r.Context().Err() == nil {
		s.complain("endpoint could not decide what a peer may do in its namespaces", "peer", caller.ID, "method", r.Method,
			"path", text.Sentence(r.RequestURI), "error", err)
	}
	return &refusal.Refusal{
		Status: http.StatusServiceUnavailable, Counted: refusal.Failed, Reason: wire.ReasonFailed, Retry: time.Second,
		Text: "this cluster cannot decide about it now; try again, and look into the log of its agent if that goes on",
	}
}

// serveGuestCall sends a call on and passes the answer back.
func (s *Server) serveGuestCall(w http.ResponseWriter, r *http.Request, c *conn, caller Caller, call allow.Call) *refusal.Refusal {
	if call.Method == http.MethodGet {
		if r.ContentLength != 0 {
			return refusal.BadBody("a GET has no body; leave it out")
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
	if call.Method == http.MethodPost {
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
	out := call.Request()
	out.ContentType, out.Query = "application/json", allow.AsPeer
	done := func([]byte) {}
	var err error
	switch {
	case call.Method == http.MethodDelete:
		out.Query = ""
		if out.Body, err = allow.DeleteOptions(body, call.UID); err != nil {
			return refusal.BadBody("the options for the deletion cannot be passed on: " + err.Error())
		}
	case call.Method == http.MethodPost:
		if out.Body, done, err = s.cfg.Guests.Pod(ctx, caller.ID, call.Namespace, body); err == nil {
			if no := s.checkNamed(r, caller, call.Namespace, out.Body); no != nil {
				done(nil)
				return no
			}
		}
	case call.Within == allow.Ephemeral:
		out.ContentType = allow.StrategicPatch
		if out.Body, done, err = s.cfg.Guests.Ephemeral(ctx, caller.ID, call.Namespace, call.Name, body); err == nil {
			no := s.checkNamed(r, caller, call.Namespace, out.Body)
			if no == nil {
				if out.Body, err = allow.WithUID(out.Body, call.UID); err != nil {
					no = refusal.Internal("the patch cannot be written down; please report this")
				}
			}
			if no != nil {
				done(nil)
				return no
			}
		}
	case call.Resource == "pods":
		out.Body, out.ContentType, err = s.cfg.Guests.PodPatch(caller.ID, call.Namespace, call.Name, body)
		if err == nil && out.ContentType != allow.MergePatch && out.ContentType != allow.StrategicPatch {
			return refusal.Internal("the patch has an unknown type; please report this")
		}
		if err == nil {
			out.Body, err = allow.WithUID(out.Body, call.UID)
		}
	case call.Resource == "services" || call.Resource == allow.EndpointSlices || call.Resource == allow.Claims:
		// They cannot be made empty and applied then, and what is left out in an apply stays if
		// it was made otherwise. So they are made whole, and replaced field by field; of a claim,
		// only its size can change.
		if out.Body, err = s.cfg.Guests.Object(caller.ID, call.Namespace, call.Resource, call.Name, body); err != nil {
			break
		}
		if call.UID == allow.Nobody {
			made := allow.Call{Method: http.MethodPost, Namespace: call.Namespace, Resource: call.Resource}.Request()
			out.Method, out.Path = made.Method, made.Path
			break
		}
		out.ContentType = allow.StrategicPatch
		change := allow.Replacing
		if call.Resource == allow.Claims {
			change = allow.Resizing
		}
		if out.Body, err = change(out.Body); err == nil {
			out.Body, err = allow.WithUID(out.Body, call.UID)
		}
	default:
		out.ContentType, out.Query = allow.ApplyPatch, allow.AsPeer+"&force=true"
		if out.Body, err = s.cfg.Guests.Object(caller.ID, call.Namespace, call.Resource, call.Name, body); err == nil && call.UID == allow.Nobody {
			status, text, no := s.makeEmpty(ctx, caller, &call, out.Body)
			if no != nil {
				return no
			}
			if status != http.StatusCreated {
				answer(w, status, text)
				return nil
			}
		}
		if err == nil {
			out.Body, err = allow.WithUID(out.Body, call.UID)
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
	resp, text, no := s.cfg.Gateway.Exchange(ctx, caller.ID, out, allow.MaxObjectAnswer)
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
func (s *Server) readGuestBody(w http.ResponseWriter, r *http.Request, c *conn, call allow.Call) ([]byte, *refusal.Refusal) {
	switch {
	case call.Method == http.MethodDelete && r.ContentLength == 0:
		return nil, nil
	case call.Method == http.MethodDelete:
		return s.readBody(w, r, c, "application/json", maxDeleteOptions)
	case call.Method == http.MethodPost:
		return s.readBody(w, r, c, "application/json", maxPodBody)
	case call.Resource != "pods":
		return s.readBody(w, r, c, allow.ApplyPatch, maxObjectBody)
	case strings.HasPrefix(r.Header.Get("Content-Type"), allow.StrategicPatch):
		return s.readBody(w, r, c, allow.StrategicPatch, maxPodBody)
	}
	return s.readBody(w, r, c, allow.MergePatch, maxPodBody)
}
