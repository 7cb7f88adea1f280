package wire

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/miekg/dns"
)

const (
	// maxDatagram is read of one UDP answer. Nobody is asked to send that much.
	maxDatagram = 4096
	// maxForeign is how many wrong datagrams are ignored before the question is asked over TCP, where
	// nobody can interfere from afar.
	maxForeign = 64
	// maxRedials is how often a question is asked again because a connection that it shared with others ended.
	maxRedials = 3
	// maxLines is how many servers are remembered. A name may get new addresses for years.
	maxLines = 64
)

var (
	// errTruncated: the answer does not fit even where it must.
	errTruncated = fmt.Errorf("%w: truncated even over TCP", ErrMalformed)
	// ErrClosed: the transport is closed.
	ErrClosed = errors.New("the resolver is closed")
	// ErrNoAnswer: the time for an answer is over.
	ErrNoAnswer = errors.New("no answer in time")
	// ErrSecond marks what went wrong over TCP after UDP had led there.
	ErrSecond = errors.New("over TCP, because the answer is too long for UDP or was forged")
)

// Target is one server at one address.
type Target struct {
	Addr netip.AddrPort
	TLS  bool
	Name string // what its certificate has to be for, a host name or an address
}

// String returns the address, with tls:// before it if it is asked that way.
func (t Target) String() string {
	if t.TLS {
		return "tls://" + t.Addr.String()
	}
	return t.Addr.String()
}

// Options say how a server is asked.
type Options struct {
	EDNS    bool          // with EDNS0
	TCP     bool          // over TCP from the start
	Timeout time.Duration // for the answer, and once more if UDP leads to TCP
}

// Transport sends questions and receives their answers. Its methods may be called from any goroutine.
type Transport struct {
	dialer net.Dialer
	tls    *tls.Config
	idle   time.Duration // how long TLS connections are kept without questions
	sent   atomic.Uint64 // questions

	mu      sync.Mutex
	lines   map[Target]*line
	streams map[*stream]bool // that have not ended
	closed  bool
}

// NewTransport returns a transport for which roots vouch for servers asked by TLS; nil means those of the system.
func NewTransport(roots *x509.CertPool) *Transport {
	return &Transport{
		tls: &tls.Config{
			RootCAs: roots, MinVersion: tls.VersionTLS12,
			ClientSessionCache: tls.NewLRUClientSessionCache(8),
		},
		idle:    idleTimeout,
		lines:   make(map[Target]*line),
		streams: make(map[*stream]bool),
	}
}

// Sent returns how many questions were sent.
func (t *Transport) Sent() uint64 { return t.sent.Load() }

// Close ends all connections and returns when their readers have ended. No new ones are made.
func (t *Transport) Close() {
	t.mu.Lock()
	t.closed = true
	streams := slices.Collect(maps.Keys(t.streams))
	t.mu.Unlock()
	for _, s := range streams {
		s.close(ErrClosed)
		<-s.done
	}
}

// line is the one TLS connection to a server.
type line struct {
	dialing chan struct{} // holds a token while nobody dials
	stream  *stream       // belongs to who holds the token
}

// Exchange asks one server and returns its answer, which is not truncated. What went wrong is one of the errors of
// this package, a [tls.CertificateVerificationError] or an error of package net; when ctx ends, its cause.
func (t *Transport) Exchange(ctx context.Context, to Target, q Question, o Options) (Message, error) {
	packet, err := q.encode(o.EDNS, to.TLS)
	if err != nil {
		return Message{}, err
	}
	within := func(ask func(context.Context, Target, Question, []byte) (Message, error)) (Message, error) {
		ctx, cancel := context.WithTimeoutCause(ctx, o.Timeout, ErrNoAnswer)
		defer cancel()
		m, err := ask(ctx, to, q, packet)
		if err != nil && ctx.Err() != nil && !errors.Is(err, ErrMalformed) {
			// The error of a socket closed for that reason only says that it is closed.
			err = context.Cause(ctx)
		}
		return m, err
	}
	var m Message
	switch {
	case to.TLS:
		m, err = within(t.askTLS)
	case o.TCP:
		m, err = within(t.askTCP)
	default:
		m, err = within(t.askUDP)
		if err == nil && m.Truncated || errors.Is(err, errFlooded) {
			if m, err = within(t.askTCP); err != nil {
				err = fmt.Errorf("%w: %w", ErrSecond, err)
			}
		}
	}
	if err == nil && m.Truncated {
		err = errTruncated
	}
	return m, err
}

// errFlooded: too many wrong datagrams came.
var errFlooded = errors.New("flooded with wrong answers")

func (t *Transport) askUDP(ctx context.Context, to Target, q Question, packet []byte) (Message, error) {
	conn, err := t.dialer.DialContext(ctx, "udp", to.Addr.String())
	if err != nil {
		return Message{}, err
	}
	defer conn.Close()
	// A socket that cannot take a deadline is closed, and the read fails for that.
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	id := dns.Id()
	setID(packet, id)
	t.sent.Add(1)
	if _, err := conn.Write(packet); err != nil {
		return Message{}, err
	}
	var malformed error // the last answer that was ours and could not be read
	b := make([]byte, maxDatagram)
	for range maxForeign {
		n, err := conn.Read(b)
		if err != nil {
			if malformed != nil {
				err = malformed
			}
			return Message{}, err
		}
		m, err := Decode(b[:n], id, q)
		switch {
		case err == nil:
			return m, nil
		case errors.Is(err, ErrMalformed):
			malformed = err // a forgery perhaps: the right one may still come
		}
	}
	return Message{}, errFlooded
}

func (t *Transport) askTCP(ctx context.Context, to Target, q Question, packet []byte) (Message, error) {
	conn, err := t.dialer.DialContext(ctx, "tcp", to.Addr.String())
	if err != nil {
		return Message{}, err
	}
	s, err := t.keep(conn)
	if err != nil {
		return Message{}, err
	}
	defer func() {
		s.close(io.EOF)
		<-s.done
	}()
	t.sent.Add(1)
	return s.ask(ctx, q, packet)
}

func (t *Transport) askTLS(ctx context.Context, to Target, q Question, packet []byte) (Message, error) {
	l := t.line(to)
	for redials := 0; ; redials++ {
		s, fresh, err := t.connect(ctx, to, l)
		if err != nil {
			return Message{}, err
		}
		t.sent.Add(1)
		m, err := s.ask(ctx, q, packet)
		if !errors.Is(err, ErrBroken) || fresh || redials == maxRedials || ctx.Err() != nil {
			return m, err
		}
	}
}

func (t *Transport) line(to Target) *line {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.lines[to]
	if l == nil {
		if len(t.lines) == maxLines {
			clear(t.lines) // their connections end when they are idle
		}
		l = &line{dialing: make(chan struct{}, 1)}
		l.dialing <- struct{}{}
		t.lines[to] = l
	}
	return l
}

// connect returns the connection of a line and whether it is a new one.
func (t *Transport) connect(ctx context.Context, to Target, l *line) (*stream, bool, error) {
	select {
	case <-l.dialing:
	case <-ctx.Done():
		return nil, false, context.Cause(ctx)
	}
	defer func() { l.dialing <- struct{}{} }()
	if l.stream != nil && l.stream.usable() {
		return l.stream, false, nil
	}
	conn, err := t.dialer.DialContext(ctx, "tcp", to.Addr.String())
	if err != nil {
		return nil, false, err
	}
	config := t.tls.Clone()
	config.ServerName = to.Name
	secure := tls.Client(conn, config)
	if err := secure.HandshakeContext(ctx); err != nil {
		conn.Close()
		return nil, false, fmt.Errorf("TLS: %w", err)
	}
	s, err := t.keep(secure)
	if err != nil {
		return nil, false, err
	}
	l.stream = s
	return s, true, nil
}

// keep makes a stream of a connection that close finds.
func (t *Transport) keep(conn net.Conn) (*stream, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		conn.Close()
		return nil, ErrClosed
	}
	s := newStream(conn, t.idle, func(s *stream) {
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.streams, s)
	})
	t.streams[s] = true
	return s, nil
}
