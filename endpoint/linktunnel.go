package endpoint

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"golang.org/x/net/http2"

	"liqo.io/agent/peer"
)

// Bounds of a tunnel at the client.
const (
	// What a peer may send that nobody has read yet, in bytes, for one answer and for
	// all. Nothing is read of a followed log while a person looks at it; with these,
	// as many of those as the peer lets us have cannot keep the others waiting.
	answerWindow = 256 << 10
	tunnelWindow = (guestsPerPeer + streamsPerPeer) * answerWindow
	// maxTunnelHeader bounds the header of an answer.
	maxTunnelHeader = 8 << 10

	// A tunnel is dead when the other end is silent for so long, and then does not
	// answer a ping, or does not even acknowledge what was sent.
	linkSilence = 10 * time.Second
	linkPing    = 5 * time.Second
	linkUnheard = 8 * time.Second
	// linkIdle is how long a tunnel is kept without any request: not as long as the
	// server does, so that it is not the server that ends it just when one is sent.
	linkIdle = tunnelIdle - time.Minute

	// After a failure to make a tunnel, everybody is told of that for a moment.
	linkPause = 250 * time.Millisecond
	// maxOld is how many tunnels there may be besides the current one.
	maxOld = 2
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
	under *dialed
}

// close ends a tunnel and everything on it.
func (t *tunnel) close() {
	_ = t.under.tcp.Close() // first, so that no farewell is waited for
	_ = t.conn.Close()
}

// dialing is an attempt to make a tunnel. done is closed when it has ended.
type dialing struct {
	done chan struct{}
	err  error
}

// noTunnel is why there is no tunnel.
type noTunnel struct{ err error }

func (n *noTunnel) Error() string { return n.err.Error() }
func (n *noTunnel) Unwrap() error { return n.err }

// linkPool hands out a link's tunnel. It implements http2.ClientConnPool.
type linkPool Link

// GetClientConn implements http2.ClientConnPool.
func (p *linkPool) GetClientConn(r *http.Request, _ string) (*http2.ClientConn, error) {
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
			return nil, &noTunnel{context.Cause(r.Context())}
		}
	}
}

// MarkDead implements http2.ClientConnPool.
func (p *linkPool) MarkDead(conn *http2.ClientConn) {
	l := (*Link)(p)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.current != nil && l.current.conn == conn {
		l.drop("it broke")
	}
}

// tunnel returns a connection with a place for a request, or an attempt to make one
// that is to be waited for.
func (l *Link) tunnel() (*http2.ClientConn, *dialing, error) {
	cert, epoch, err := l.client.own.certificate()
	if err != nil {
		return nil, nil, &noTunnel{err}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, nil, &noTunnel{errClosed}
	}
	if t := l.current; t != nil {
		l.look(t, epoch)
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
		return nil, nil, &noTunnel{errors.New("it is not known where the peer is, or by which key to know it")}
	}
	d := &dialing{done: make(chan struct{})}
	l.dialing = d
	q := quest{target: target, cert: cert, epoch: epoch}
	l.work.Go(func() {
		t, err := l.dial(q)
		l.dialed(d, t, err)
	})
	return nil, d, nil
}

// look looks whether the current tunnel is still the one to use. l.mu is held.
func (l *Link) look(t *tunnel, now epoch) {
	if t.under.epoch != now {
		l.retire("what we show of ourselves has changed")
		return
	}
	if !l.moved {
		return
	}
	l.moved = false
	target, ok := l.cfg.Target()
	if !ok {
		l.drop("nothing is to go to the peer") // Moved was a moment too early
		return
	}
	if shown := t.under.shown; shown.Fingerprint != target.Fingerprint && !shown.Succeeds(target.Fingerprint) {
		l.drop("its key is none of the peer's")
		return
	}
	if candidates, _ := target.candidates(); !t.under.leadsTo(target, candidates) && !t.under.ledFrom(target) {
		l.retire("the peer is somewhere else")
	}
}

// drop ends the current tunnel. l.mu is held.
func (l *Link) drop(why string) {
	t := l.current
	l.current = nil
	l.cfg.Logger.Debug("tunnel to a peer ends", "address", t.under.cand.addr.String(), "reason", why)
	l.work.Go(t.close)
}

// retire lets the current tunnel end when what runs on it has ended. l.mu is held.
func (l *Link) retire(why string) {
	t := l.current
	for oldest := range l.old {
		if len(l.old) < maxOld {
			break
		}
		delete(l.old, oldest)
		l.work.Go(oldest.close)
	}
	l.current = nil
	l.old[t] = struct{}{}
	l.cfg.Logger.Debug("tunnel to a peer takes no more requests", "address", t.under.cand.addr.String(), "reason", why)
	l.work.Go(func() {
		_ = t.conn.Shutdown(l.ctx) // waits; an error means that it has ended already
		t.close()
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.old, t)
	})
}

// dialed notes how an attempt to make a tunnel ended.
func (l *Link) dialed(d *dialing, t *tunnel, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer close(d.done)
	l.dialing = nil
	switch {
	case err != nil:
		d.err = &noTunnel{err}
		l.failed, l.failAt = d.err, time.Now()
	case l.closed:
		d.err = &noTunnel{errClosed}
		t.close()
	default:
		l.failed = nil
		l.current = t
		l.cfg.Logger.Debug("tunnel to a peer begins", "address", t.under.cand.addr.String())
	}
}

// dial makes a tunnel.
func (l *Link) dial(q quest) (*tunnel, error) {
	ctx, cancel := context.WithTimeout(l.ctx, l.client.exchangeTimeout)
	defer cancel()
	k, err := l.client.reach(ctx, q)
	if err != nil {
		return nil, err
	}
	// Both ends of a tunnel read it at any time: its window is never closed for long.
	k.silence(l.http2.WriteByteTimeout)
	conn, resp, err := k.switchTo(ctx, http.MethodGet, PathTunnel, http.Header{"Connection": {"Upgrade"}, "Upgrade": {tunnelProtocol}})
	if err != nil {
		k.close()
		return nil, k.broken(err)
	}
	if conn == nil {
		k.close()
		answered, err := readSmall(resp)
		if err != nil {
			return nil, k.broken(err)
		}
		return nil, fmt.Errorf("does not open a tunnel: %w", answered.refused())
	}
	if theirs := protocolOf(resp.Header); !speak(theirs) {
		k.close()
		return nil, fmt.Errorf("speaks version %s of the protocol and this cluster version %s: the older of the two has to be updated", theirs, peer.Spoken())
	}
	h2, err := l.http2.NewClientConn(conn)
	if err != nil {
		k.close()
		return nil, k.broken(err)
	}
	return &tunnel{conn: h2, under: k}, nil
}

// reach connects to the holder of the quest's key, wherever that is.
func (c *Client) reach(ctx context.Context, q quest) (*dialed, error) {
	if err := c.notSelf(q.target); err != nil {
		return nil, err
	}
	candidates, failures := q.target.candidates()
	k, ok, failures := find(ctx, c, q.target, candidates, failures, func(ctx context.Context, cand candidate) (*dialed, *Error) {
		ctx, cancel := context.WithTimeout(ctx, c.attemptTimeout)
		defer cancel()
		return c.open(ctx, q, cand)
	}, (*dialed).close)
	if !ok {
		return nil, failed(ctx, "call peer", q.target, failures)
	}
	return k, nil
}

// switchTo sends a request without a body whose answer is to be 101, and returns
// the connection if it is. Else the answer's body, of at most 64 KiB, is read.
func (k *dialed) switchTo(ctx context.Context, method, target string, header http.Header) (*switched, *http.Response, error) {
	stop := halting(ctx, k.tcp)
	var b strings.Builder
	b.WriteString(method + " " + target + " HTTP/1.1\r\nHost: " + hostOf(k.cand) + "\r\nUser-Agent: liqo-agent\r\n" + protocolLine())
	if method == http.MethodPost {
		b.WriteString("Content-Length: 0\r\n")
	}
	if err := header.Write(&b); err != nil {
		return nil, nil, err
	}
	b.WriteString("\r\n")
	_, err := io.WriteString(k.tls, b.String())
	if err != nil {
		stop()
		return nil, nil, err
	}
	limited := &limitedReader{from: k.tls, left: maxExchangeHeader + MaxRequestBody}
	r := bufio.NewReader(limited)
	var resp *http.Response
	for range maxInterim {
		resp, err = http.ReadResponse(r, &http.Request{Method: method})
		if err != nil || resp.StatusCode/100 != 1 || resp.StatusCode == http.StatusSwitchingProtocols {
			break
		}
	}
	var body []byte
	if err == nil && resp.StatusCode >= 200 {
		body, err = io.ReadAll(io.LimitReader(resp.Body, MaxRequestBody))
	}
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	switch {
	case err != nil:
		return nil, nil, notHTTP(err)
	case resp.StatusCode >= 200:
		resp.Body = io.NopCloser(strings.NewReader(string(body)))
		return nil, resp, nil
	case resp.StatusCode != http.StatusSwitchingProtocols:
		return nil, nil, fmt.Errorf("answers with HTTP status %d", resp.StatusCode)
	}
	ahead, err := r.Peek(r.Buffered())
	if err != nil {
		return nil, nil, err
	}
	return &switched{Conn: k.tls, under: k, ahead: ahead}, resp, nil
}

// switched is a connection that has another protocol now.
type switched struct {
	net.Conn
	under *dialed
	ahead []byte // what came behind the answer's header
	ended func() // nil, or told of Close
}

// Read is net.Conn.Read.
func (s *switched) Read(b []byte) (int, error) {
	if len(s.ahead) > 0 {
		n := copy(b, s.ahead)
		s.ahead = s.ahead[n:]
		return n, nil
	}
	return s.Conn.Read(b)
}

// CloseWrite ends what is written and leaves what is read alone.
func (s *switched) CloseWrite() error { return s.under.tls.CloseWrite() }

// NetConn returns the connection below.
func (s *switched) NetConn() net.Conn { return s.Conn }

// abort ends the connection at once. Whoever uses it sees that.
func (s *switched) abort() { _ = s.under.tcp.Close() }

// Close is net.Conn.Close.
func (s *switched) Close() error {
	if s.ended != nil {
		s.ended()
	}
	return s.Conn.Close()
}
