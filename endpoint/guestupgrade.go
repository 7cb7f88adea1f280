package endpoint

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strings"
	"time"

	"liqo.io/agent/peer"
	"liqo.io/agent/relay"
)

const (
	spdy      = "SPDY/3.1"
	websocket = "websocket"
)

// The protocols that a caller may ask for within an upgraded connection.
var (
	spdyCommand    = []string{"v4.channel.k8s.io", "v3.channel.k8s.io", "v2.channel.k8s.io", "channel.k8s.io"}
	spdyForward    = []string{"portforward.k8s.io"}
	socketCommand  = []string{"v5.channel.k8s.io", "v4.channel.k8s.io"}
	socketForward  = []string{"SPDY/3.1+portforward.k8s.io"}
	upgradeAnswers = []string{"X-Stream-Protocol-Version", "Sec-Websocket-Accept", "Sec-Websocket-Protocol"}
)

// upgrade is what a caller wants of a connection. Every part of it was checked.
type upgrade struct {
	to        string   // spdy or websocket
	protocols []string // within it, the most wanted first
	key       string   // of a WebSocket
}

// parseUpgrade reads what a request's header says about its upgrade.
func parseUpgrade(h http.Header, call guestCall) (upgrade, error) {
	single := func(name string) string {
		if all := h.Values(name); len(all) == 1 {
			return all[0]
		}
		return ""
	}
	if !strings.EqualFold(single("Connection"), "upgrade") {
		return upgrade{}, errors.New(`its Connection is not "Upgrade"`)
	}
	forward := call.within == "portforward"
	switch to := single("Upgrade"); {
	case strings.EqualFold(to, spdy):
		allowed := spdyCommand
		if forward {
			allowed = spdyForward
		}
		return wantProtocols(upgrade{to: spdy}, h.Values("X-Stream-Protocol-Version"), allowed)
	case strings.EqualFold(to, websocket) && call.method == http.MethodGet:
		key := single("Sec-Websocket-Key")
		if nonce, err := base64.StdEncoding.DecodeString(key); err != nil || len(nonce) != 16 {
			return upgrade{}, errors.New("its Sec-WebSocket-Key is not one of RFC 6455")
		}
		if single("Sec-Websocket-Version") != "13" {
			return upgrade{}, errors.New("its Sec-WebSocket-Version is not 13")
		}
		allowed := socketCommand
		if forward {
			allowed = socketForward
		}
		return wantProtocols(upgrade{to: websocket, key: key}, h.Values("Sec-Websocket-Protocol"), allowed)
	}
	return upgrade{}, errors.New("its Upgrade is neither " + spdy + " nor, with GET, " + websocket)
}

// wantProtocols completes u with those protocols of a header's values that are
// allowed.
func wantProtocols(u upgrade, values, allowed []string) (upgrade, error) {
	for _, p := range strings.Split(strings.Join(values, ","), ",") {
		if p = strings.TrimSpace(p); slices.Contains(allowed, p) && !slices.Contains(u.protocols, p) {
			u.protocols = append(u.protocols, p)
		}
	}
	if len(u.protocols) == 0 {
		return upgrade{}, fmt.Errorf("it asks for none of the protocols %s", strings.Join(allowed, ", "))
	}
	return u, nil
}

// header is what the API server is sent.
func (u upgrade) header() http.Header {
	h := http.Header{"Connection": {"Upgrade"}, "Upgrade": {u.to}}
	if u.to == spdy {
		h["X-Stream-Protocol-Version"] = u.protocols
		return h
	}
	h["Sec-WebSocket-Version"], h["Sec-WebSocket-Key"] = []string{"13"}, []string{u.key}
	h["Sec-WebSocket-Protocol"] = []string{strings.Join(u.protocols, ", ")}
	return h
}

// switched returns the answer to the caller for that of the API server, or an error
// when that is not what was asked for.
func (u upgrade) switched(resp *http.Response) (string, error) {
	if !strings.EqualFold(resp.Header.Get("Upgrade"), u.to) {
		return "", fmt.Errorf("an upgrade to %q", sentence(resp.Header.Get("Upgrade")))
	}
	text := "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: " + u.to + "\r\n"
	for _, name := range upgradeAnswers {
		value := resp.Header.Get(name)
		if value == "" {
			continue
		}
		if len(value) > 64 || strings.ContainsFunc(value, unfit) {
			return "", errors.New("an upgrade with a header that makes no sense")
		}
		text += name + ": " + value + "\r\n"
	}
	return text + "\r\n", nil
}

// serveUpgrade joins the caller's connection with one to the API server.
func (s *Server) serveUpgrade(w http.ResponseWriter, r *http.Request, caller Caller, call guestCall) *refusal {
	if r.ProtoMajor != 1 {
		return notPermitted("this needs a connection of its own; do not send it through a tunnel")
	}
	if r.ContentLength != 0 {
		return badBody("a request for an upgrade has no body; leave it out")
	}
	want, err := parseUpgrade(r.Header, call)
	if err != nil {
		return badBody("the connection cannot be upgraded: " + err.Error())
	}
	if !s.limits.upgrades.Take(caller.ID) {
		return busy("commands, attachments and forwarded ports")
	}
	defer s.limits.upgrades.Release(caller.ID)
	if no := s.checkOwn(r, caller, &call); no != nil {
		return no
	}
	if !s.held.enter() {
		return noAPIServer(http.StatusServiceUnavailable, "this cluster's agent is about to stop")
	}
	defer s.held.leave()

	ctx, end := context.WithCancelCause(r.Context())
	defer end(nil)
	defer s.held.add(&entry{id: caller.ID, shown: caller.Shown, namespace: call.namespace, end: func() { end(errNotAnyMore) }})()
	dog := time.AfterFunc(s.times.upgrade, func() { end(errQuiet) })
	defer dog.Stop()
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(s.times.upgrade + s.times.write))
	resp, no := s.cfg.Gateway.askUpgrade(ctx, caller.ID, call, want)
	if no != nil {
		return no
	}
	defer func() { _ = resp.Body.Close() }() // it has ended
	if resp.StatusCode != http.StatusSwitchingProtocols {
		text, no := read(ctx, resp, maxGatewayAnswer)
		if no == nil {
			pass(w, resp, text)
		}
		return no
	}
	upstream, ok := resp.Body.(*upstreamConn)
	text, err := want.switched(resp)
	if !ok {
		err = errors.New("an upgrade that cannot be used")
	}
	if err != nil {
		return badUpstream(err.Error())
	}
	downstream, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return internalError("the connection cannot be upgraded; please report this")
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
	alive := func() { dog.Reset(s.times.quiet) }
	alive()
	relay.Join(ctx, &relay.Conn{Conn: downstream, Ahead: ahead}, upstream, relay.Options{Linger: s.times.stall, Moved: alive})
	return nil
}

// upstreamConn is the upgraded connection to the API server. net/http hands out only
// a body, which does not lead to the socket.
type upstreamConn struct {
	io.ReadWriteCloser // the body
	conn               net.Conn
}

// CloseWrite ends what is sent to the API server.
func (u *upstreamConn) CloseWrite() error { return relay.CloseWrite(u.ReadWriteCloser) }

// NetConn returns the connection below.
func (u *upstreamConn) NetConn() net.Conn { return u.conn }

// askUpgrade sends a request for an upgrade to the API server. The body of its answer,
// if that is 101, is an upstreamConn.
func (g *Gateway) askUpgrade(ctx context.Context, id peer.ClusterID, call guestCall, want upgrade) (*http.Response, *refusal) {
	up, ok := g.cfg.Upstream()
	if !ok || up.Upgrade == nil {
		return nil, noAPIServer(http.StatusServiceUnavailable, "this cluster's API server cannot be reached for that now")
	}
	req, err := request(ctx, up, id, forward{method: call.method, path: call.path(), query: call.query, accept: acceptsAny})
	if err != nil {
		return nil, internalError("the request for the API server cannot be made; please report this")
	}
	for name, values := range want.header() {
		req.Header[name] = values
	}
	var conn net.Conn
	resp, err := up.Upgrade.RoundTrip(req.WithContext(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(info httptrace.GotConnInfo) { conn = info.Conn },
	})))
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return nil, lostUpstream(err)
	}
	if body, ok := resp.Body.(io.ReadWriteCloser); ok && conn != nil {
		resp.Body = &upstreamConn{ReadWriteCloser: body, conn: conn}
	}
	return resp, nil
}
