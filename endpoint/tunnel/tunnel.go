package tunnel

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"golang.org/x/net/http2"

	"liqo.io/agent/endpoint/client"
	"liqo.io/agent/endpoint/wire"
	"liqo.io/agent/peer"
)

// Bounds of a tunnel at the client.
const (
	// What a peer may send that nobody has read yet, in bytes, for one answer and for
	// all. Nothing is read of a followed log while a person looks at it; with these,
	// as many of those as the peer lets us have cannot keep the others waiting.
	answerWindow = 256 << 10
	tunnelWindow = (wire.RequestsPerPeer + wire.StreamsPerPeer) * answerWindow
	// maxTunnelHeader bounds the header of an answer.
	maxTunnelHeader = 8 << 10

	// A tunnel is dead when the other end is silent for so long, and then does not
	// answer a ping, or does not even acknowledge what was sent.
	linkSilence = 10 * time.Second
	linkPing    = 5 * time.Second
	linkUnheard = 8 * time.Second
	// linkIdle is how long a tunnel is kept without any request: not as long as the
	// server does, so that it is not the server that ends it just when one is sent.
	linkIdle = wire.TunnelIdle - time.Minute

	// After a failure to make a tunnel, everybody is told of that for a moment.
	linkPause = 250 * time.Millisecond
	// maxRetiring is how many tunnels there may be besides the current one.
	maxRetiring = 2
)

// newTunnelTransport returns what speaks HTTP/2 on the tunnels of a pool.
func newTunnelTransport(pool http2.ClientConnPool) *http2.Transport {
	// Windows can only be set through a Transport of net/http.
	t, err := http2.ConfigureTransports(&http.Transport{
		DisableCompression:     true,
		IdleConnTimeout:        linkIdle,
		MaxResponseHeaderBytes: maxTunnelHeader,
		HTTP2: &http.HTTP2Config{
			MaxReceiveBufferPerConnection: tunnelWindow,
			MaxReceiveBufferPerStream:     answerWindow,
		},
	})
	if err != nil {
		panic(fmt.Sprintf("endpoint: HTTP/2 cannot be set up: %v", err)) // a Transport that has it already
	}
	t.ConnPool = pool
	t.StrictMaxConcurrentStreams = true // who is one too many waits
	t.DisableCompression = true
	t.ReadIdleTimeout, t.PingTimeout, t.WriteByteTimeout = linkSilence, linkPing, linkUnheard
	return t
}

// tunnel is a connection that requests share.
type tunnel struct {
	conn  *http2.ClientConn
	under *client.Conn
}

// close ends a tunnel and everything on it.
func (t *tunnel) close() {
	t.under.Abort() // first, so that no farewell is waited for
	_ = t.conn.Close()
}

// dialAttempt is an attempt to make a tunnel. done is closed when it has ended.
type dialAttempt struct {
	done chan struct{}
	err  error
}

// noTunnelError is why there is no tunnel.
type noTunnelError struct{ err error }

func (n *noTunnelError) Error() string { return n.err.Error() }

func (n *noTunnelError) Unwrap() error { return n.err }

// tunnelPool hands out a link's tunnel. It implements http2.ClientConnPool.
type tunnelPool Link

// GetClientConn implements http2.ClientConnPool.
func (p *tunnelPool) GetClientConn(r *http.Request, _ string) (*http2.ClientConn, error) {
	l := (*Link)(p)
	for {
		conn, wait, err := l.tunnel()
		if conn != nil || err != nil {
			return conn, err
		}
		select {
		case <-wait.done:
			if wait.err != nil {
				return nil, wait.err
			}
		case <-r.Context().Done():
			return nil, &noTunnelError{context.Cause(r.Context())}
		}
	}
}

// MarkDead implements http2.ClientConnPool.
func (p *tunnelPool) MarkDead(conn *http2.ClientConn) {
	l := (*Link)(p)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.current != nil && l.current.conn == conn {
		l.drop("it broke")
	}
}

// tunnel returns a connection with a place for a request, or an attempt to make one
// that is to be waited for.
func (l *Link) tunnel() (*http2.ClientConn, *dialAttempt, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, nil, &noTunnelError{errClosed}
	}
	if t := l.current; t != nil {
		if err := l.look(t); err != nil {
			return nil, nil, &noTunnelError{err}
		}
	}
	if t := l.current; t != nil {
		// A reservation would count against the peer's limit while it waits for its
		// turn: with more of them than the peer allows, none would ever have it.
		if t.conn.CanTakeNewRequest() {
			return t.conn, nil, nil
		}
		l.retire("it takes no more requests")
	}
	if l.dialing != nil {
		return nil, l.dialing, nil
	}
	if l.failed != nil && time.Since(l.failAt) < linkPause {
		return nil, nil, l.failed
	}
	target, ok := l.cfg.Target()
	if !ok || target.Fingerprint.IsZero() {
		return nil, nil, &noTunnelError{errNoTarget}
	}
	d := &dialAttempt{done: make(chan struct{})}
	l.dialing = d
	l.work.Go(func() {
		t, err := l.dial(target)
		l.dialed(d, t, err)
	})
	return nil, d, nil
}

// look looks whether the current tunnel is still the one to use. l.mu is held.
func (l *Link) look(t *tunnel) error {
	current, err := l.client.Current(t.under)
	if err != nil {
		return err
	}
	if !current {
		l.retire("what we show of ourselves has changed")
		return nil
	}
	if !l.moved {
		return nil
	}
	l.moved = false
	target, ok := l.cfg.Target()
	switch {
	case !ok:
		l.drop("nothing is to go to the peer") // Moved was a moment too early
	case !t.under.Proves(target.Fingerprint):
		l.drop("its key is none of the peer's")
	case !t.under.Serves(target):
		l.retire("the peer is somewhere else")
	}
	return nil
}

// drop ends the current tunnel. l.mu is held.
func (l *Link) drop(why string) {
	t := l.current
	l.current = nil
	l.cfg.Logger.Debug("tunnel to a peer ends", "address", t.under.Addr().String(), "reason", why)
	l.work.Go(t.close)
}

// retire lets the current tunnel end when what runs on it has ended. l.mu is held.
func (l *Link) retire(why string) {
	t := l.current
	for oldest := range l.retiring {
		if len(l.retiring) < maxRetiring {
			break
		}
		delete(l.retiring, oldest)
		l.work.Go(oldest.close)
	}
	l.current = nil
	l.retiring[t] = struct{}{}
	l.cfg.Logger.Debug("tunnel to a peer takes no more requests", "address", t.under.Addr().String(), "reason", why)
	l.work.Go(func() {
		_ = t.conn.Shutdown(l.ctx) // waits; an error means that it has ended already
		t.close()
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.retiring, t)
	})
}

// dialed notes how an attempt to make a tunnel ended.
func (l *Link) dialed(d *dialAttempt, t *tunnel, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer close(d.done)
	l.dialing = nil
	switch {
	case err != nil:
		d.err = &noTunnelError{err}
		l.failed, l.failAt = d.err, time.Now()
	case l.closed:
		d.err = &noTunnelError{errClosed}
		t.close()
	default:
		l.failed = nil
		l.current = t
		l.cfg.Logger.Debug("tunnel to a peer begins", "address", t.under.Addr().String())
	}
}

// dial makes a tunnel.
func (l *Link) dial(target peer.Target) (*tunnel, error) {
	ctx, cancel := context.WithTimeout(l.ctx, client.ExchangeTimeout)
	defer cancel()
	k, err := l.client.Dial(ctx, target)
	if err != nil {
		return nil, err
	}
	// Both ends of a tunnel read it at any time: its window is never closed for long.
	k.LimitSilence(l.http2.WriteByteTimeout)
	conn, resp, err := k.Upgrade(ctx, http.MethodGet, wire.PathTunnel, http.Header{"Connection": {"Upgrade"}, "Upgrade": {wire.TunnelProtocol}})
	if err != nil {
		k.Close()
		return nil, k.Broken(err)
	}
	if conn == nil {
		k.Close()
		answered, err := client.ReadResponse(resp)
		if err != nil {
			return nil, k.Broken(err)
		}
		return nil, fmt.Errorf("does not open a tunnel: %w", answered.Refused())
	}
	if theirs := wire.ProtocolOf(resp.Header.Get(wire.ProtocolHeader)); !wire.Speaks(theirs) {
		k.Close()
		return nil, fmt.Errorf("speaks version %s of the protocol and this cluster version %s: the older of the two has to be updated", theirs, peer.Spoken())
	}
	h2, err := l.http2.NewClientConn(conn)
	if err != nil {
		k.Close()
		return nil, k.Broken(err)
	}
	return &tunnel{conn: h2, under: k}, nil
}
