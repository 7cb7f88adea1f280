package endpoint

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"liqo.io/agent/endpoint/allow"
	"liqo.io/agent/endpoint/gateway"
	"liqo.io/agent/endpoint/refusal"
	"liqo.io/agent/relay"
)

// serveUpgrade joins the caller's connection with one to the API server.
func (s *Server) serveUpgrade(w http.ResponseWriter, r *http.Request, caller Caller, call allow.Call) *refusal.Refusal {
	if r.ProtoMajor != 1 {
		return refusal.NotPermitted("this needs a connection of its own; do not send it through a tunnel")
	}
	if r.ContentLength != 0 {
		return refusal.BadBody("a request for an upgrade has no body; leave it out")
	}
	want, err := allow.ParseUpgrade(r.Header, call)
	if err != nil {
		return refusal.BadBody("the connection cannot be upgraded: " + err.Error())
	}
	if !s.limits.upgrades.Take(caller.ID) {
		return refusal.TooMany("commands, attachments and forwarded ports")
	}
	defer s.limits.upgrades.Release(caller.ID)
	if no := s.checkOwn(r, caller, &call); no != nil {
		return no
	}
	if !s.streams.enter() {
		return refusal.NoAPIServer(http.StatusServiceUnavailable, "this cluster's agent is about to stop")
	}
	defer s.streams.leave()

	ctx, end := context.WithCancelCause(r.Context())
	defer end(nil)
	defer s.streams.add(&openStream{id: caller.ID, shown: caller.Shown, namespace: call.Namespace, end: func() { end(errNotAnyMore) }})()
	watchdog := time.AfterFunc(s.times.upgrade, func() { end(errQuiet) })
	defer watchdog.Stop()
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(s.times.upgrade + s.times.write))
	resp, no := s.cfg.Gateway.Upgrade(ctx, caller.ID, call, want)
	if no != nil {
		return no
	}
	defer func() { _ = resp.Body.Close() }() // it has ended
	if resp.StatusCode != http.StatusSwitchingProtocols {
		text, no := gateway.Read(ctx, resp, gateway.MaxAnswer)
		if no == nil {
			pass(w, resp, text)
		}
		return no
	}
	upstream, ok := resp.Body.(*gateway.Conn)
	text, err := want.Switched(resp)
	if !ok {
		err = errors.New("an upgrade that cannot be used")
	}
	if err != nil {
		return refusal.BadUpstream(err.Error())
	}
	downstream, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return refusal.Internal("the connection cannot be upgraded; please report this")
	}
	defer func() { _ = downstream.Close() }() // it has ended
	_ = downstream.SetWriteDeadline(time.Now().Add(s.times.write))
	if _, err := io.WriteString(downstream, text); err != nil {
		return nil
	}
	_ = downstream.SetDeadline(time.Time{})
	// What net/http has read is taken from it. It is not to read the rest: it takes
	// the end of what the caller sends for the end of the caller.
	ahead, err := buffered.Reader.Peek(buffered.Reader.Buffered())
	if err != nil {
		return nil
	}
	alive := func() { watchdog.Reset(s.times.quiet) }
	alive()
	relay.Join(ctx, &relay.Conn{Conn: downstream, Ahead: ahead}, upstream, relay.Options{Linger: s.times.stall, Moved: alive})
	return nil
}
