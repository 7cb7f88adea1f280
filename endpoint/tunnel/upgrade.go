package tunnel

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"

	"liqo.io/agent/endpoint/client"
	"liqo.io/agent/endpoint/wire"
	"liqo.io/agent/relay"
)

// Upgrade sends a request whose answer is to be 101 Switching Protocols, on a
// connection of its own, and returns that. Nothing that came behind the answer's
// header is lost. Of the request's header only what the upgrade is about is sent,
// and no body. The connection has a CloseWrite, and belongs to the caller; Close of
// the Link ends it too. If the peer answers anything else, the connection is nil and
// the answer's body, of at most 64 KiB, is read already. ctx bounds the wait for the
// answer only.
func (l *Link) Upgrade(ctx context.Context, r *http.Request) (net.Conn, *http.Response, error) {
	conn, resp, err := l.upgrade(ctx, r)
	switch {
	case err != nil:
		return nil, nil, l.named(err)
	case conn == nil:
		return nil, resp, nil
	}
	return conn, resp, nil
}

func (l *Link) upgrade(ctx context.Context, r *http.Request) (*upgraded, *http.Response, error) {
	target, ok := l.cfg.Target()
	if !ok || target.Fingerprint.IsZero() {
		return nil, nil, errNoTarget
	}
	if r.Method != http.MethodGet && r.Method != http.MethodPost {
		return nil, nil, errors.New("an upgrade is asked for with GET or POST")
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(l.ctx, cancel)()
	k, err := l.client.Dial(ctx, target)
	if err != nil {
		return nil, nil, err
	}
	// Nothing may be sent on it for hours, and the other end may vanish meanwhile.
	if err := k.TCP().SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 4}); err != nil {
		k.Close()
		return nil, nil, err
	}
	k.LimitSilence(l.unheard)
	header := subset(r.Header, "Connection", "Upgrade", "X-Stream-Protocol-Version",
		"Sec-WebSocket-Key", "Sec-WebSocket-Version", "Sec-WebSocket-Protocol")
	header.Del("User-Agent") // these two are there already
	header.Del(wire.ProtocolHeader)
	raw, resp, err := k.Upgrade(ctx, r.Method, gatewayURL(r.URL).RequestURI(), header)
	if err != nil {
		k.Close()
		return nil, nil, k.Broken(err)
	}
	if raw == nil {
		k.Close()
		return nil, resp, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		k.Close()
		return nil, nil, errClosed
	}
	watched, unwatch := context.WithCancel(l.ctx)
	conn := &upgraded{Conn: raw, under: k}
	conn.ended = func() {
		unwatch()
		l.forget(conn)
	}
	l.upgrades[conn] = struct{}{}
	l.work.Go(func() { watchUnheard(watched, k, l.unheard) })
	return conn, resp, nil
}

// forget is told that an upgraded connection was closed.
func (l *Link) forget(c *upgraded) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.upgrades, c) // nil after Close, which is fine
}

// upgraded is a connection that has another protocol now.
type upgraded struct {
	*relay.Conn
	under *client.Conn
	ended func() // told of Close
}

// Close is net.Conn.Close.
func (u *upgraded) Close() error {
	u.ended()
	return u.Conn.Close()
}
