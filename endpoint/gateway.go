package endpoint

import (
	"net/http"
	"strconv"
	"time"

	"liqo.io/agent/endpoint/allow"
	"liqo.io/agent/endpoint/gateway"
	"liqo.io/agent/endpoint/refusal"
	"liqo.io/agent/throttle"
)

// maxPassedRetry bounds the advice of the API server that is passed on.
const maxPassedRetry = time.Hour

// serveGateway answers a request to the API server.
func (s *Server) serveGateway(w http.ResponseWriter, r *http.Request, c *conn, caller Caller) *refusal.Refusal {
	g := s.cfg.Gateway
	if g == nil {
		return refusal.NoAPIServer(http.StatusServiceUnavailable, "this cluster works without an API server")
	}
	action, no := allow.Find(caller.ID, r.Method, r.RequestURI)
	if no == nil && wantsUpgrade(r) {
		no = refusal.NotPermitted("the connection cannot be upgraded; send a plain request")
	}
	if no != nil {
		g.Complain(caller.ID, r, no)
		return no
	}
	var body []byte
	if action.Takes != "" {
		if body, no = s.readBody(w, r, c, action.Takes, allow.MaxObject); no != nil {
			return no
		}
	} else if r.ContentLength != 0 {
		return refusal.BadBody("a " + r.Method + " has no body; leave it out")
	}
	out, no := action.Request(caller.ID, body)
	if no != nil {
		g.Complain(caller.ID, r, no)
		return no
	}
	if out.Method != http.MethodGet {
		if no := s.spend(r, caller, cost{writes: 1, bytes: len(out.Body)}); no != nil {
			return no
		}
	}
	if !s.limits.gateway.Take(caller.ID) {
		return refusal.TooMany("requests to the API server")
	}
	defer s.limits.gateway.Release(caller.ID)
	ctx, cancel := s.allow(w, r, s.times.gateway)
	defer cancel()
	resp, text, no := g.Exchange(ctx, caller.ID, out, gateway.MaxAnswer)
	if no != nil {
		return no
	}
	pass(w, resp, text)
	return nil
}

// pass answers w with the status of resp, of which body was read, and how long to
// wait if that says so.
func pass(w http.ResponseWriter, resp *http.Response, body []byte) {
	if wait := throttle.RetryAfter(resp.Header.Get("Retry-After")); 0 < wait && wait <= maxPassedRetry {
		w.Header().Set("Retry-After", strconv.Itoa(int(wait.Seconds())))
	}
	answer(w, resp.StatusCode, body)
}
