package wire

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/miekg/dns"
)

const (
	// idleTimeout is how long a connection without questions is kept (RFC 7858 section 3.4).
	idleTimeout = 10 * time.Second
	// maxPending is how many questions may wait for their answer on one connection.
	maxPending = 256
)

// ErrBroken: the connection ended before the answer came.
var ErrBroken = errors.New("the connection ended before the answer")

// stream is a TCP or TLS connection with questions on it, answered in any order (RFC 7766 section 7). Its methods may be
// called from any goroutine.
type stream struct {
	conn net.Conn
	idle time.Duration // how long it is kept without questions
	done chan struct{} // closed when the reader has ended

	writing chan struct{} // holds a token while nobody writes

	mu      sync.Mutex
	pending map[uint16]*call
	heard   uint64 // messages received
	err     error  // why it ended
}

// call is a question that waits for its answer.
type call struct {
	question Question
	done     chan struct{} // closed when answer and err are set
	answer   Message
	err      error
}

// newStream starts the reader of a connection, which ends with it and calls ended then.
func newStream(conn net.Conn, idle time.Duration, ended func(*stream)) *stream {
	s := &stream{
		conn: conn, idle: idle, done: make(chan struct{}), writing: make(chan struct{}, 1),
		pending: make(map[uint16]*call),
	}
	s.writing <- struct{}{}
	s.rest()
	go func() {
		defer close(s.done)
		defer ended(s)
		s.read()
	}()
	return s
}

// rest lets the connection end when nothing is asked for a while.
func (s *stream) rest() {
	// A connection that cannot take a deadline is closed already.
	_ = s.conn.SetReadDeadline(time.Now().Add(s.idle))
}

func (s *stream) read() {
	framed := dns.Conn{Conn: s.conn}
	for {
		b, err := framed.ReadMsgHeader(nil)
		if err != nil {
			s.close(err)
			return
		}
		s.dispatch(b)
	}
}

// dispatch gives an answer to the question that waits for it. Others are late, or not ours.
func (s *stream) dispatch(b []byte) {
	id := binary.BigEndian.Uint16(b)
	s.mu.Lock()
	c := s.pending[id]
	s.mu.Unlock()
	if c == nil {
		return
	}
	m, err := Decode(b, id, c.question)
	if errors.Is(err, ErrForeign) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pending[id] != c {
		return // given up meanwhile
	}
	s.heard++
	c.answer, c.err = m, err
	s.settle(id, c)
}

// settle ends a call. The caller holds mu.
func (s *stream) settle(id uint16, c *call) {
	delete(s.pending, id)
	close(c.done)
	if len(s.pending) == 0 {
		s.rest()
	}
}

// close ends the connection, with everything that waits on it. The first reason counts.
func (s *stream) close(why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return
	}
	s.err = fmt.Errorf("%w: %w", ErrBroken, why)
	// All that there is to know about it is in why.
	_ = s.conn.Close()
	for id, c := range s.pending {
		c.err = s.err
		delete(s.pending, id)
		close(c.done)
	}
}

// usable reports whether the connection takes another question.
func (s *stream) usable() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err == nil && len(s.pending) < maxPending
}

// ask sends a question and waits for its answer until ctx ends.
func (s *stream) ask(ctx context.Context, q Question, packet []byte) (Message, error) {
	c := &call{question: q, done: make(chan struct{})}
	id, heard, err := s.register(c)
	if err != nil {
		return Message{}, err
	}
	if err := s.send(ctx, id, packet); err != nil {
		s.giveUp(ctx, id, c, heard)
		return Message{}, err
	}
	select {
	case <-c.done:
		return c.answer, c.err
	case <-ctx.Done():
		s.giveUp(ctx, id, c, heard)
		return Message{}, context.Cause(ctx)
	}
}

// register gives a call an ID that no other one on this connection has.
func (s *stream) register(c *call) (id uint16, heard uint64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return 0, 0, s.err
	}
	for {
		id = dns.Id()
		if s.pending[id] == nil {
			break
		}
	}
	s.pending[id] = c
	if err := s.conn.SetReadDeadline(time.Time{}); err != nil {
		delete(s.pending, id)
		return 0, 0, fmt.Errorf("%w: %w", ErrBroken, err)
	}
	return id, s.heard, nil
}

// send writes a question in one piece, so that it goes in one packet.
func (s *stream) send(ctx context.Context, id uint16, packet []byte) error {
	packet = slices.Clone(packet)
	setID(packet, id)
	select {
	case <-s.writing:
	case <-s.done:
		return ErrBroken
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { s.writing <- struct{}{} }()
	// Nobody waits for a peer that does not read. A connection with half a question on it is of no more use.
	late := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(late)
		// A connection that cannot take a deadline is closed already.
		_ = s.conn.SetWriteDeadline(time.Unix(1, 0))
	})
	framed := dns.Conn{Conn: s.conn}
	_, err := framed.Write(packet)
	if !stop() {
		<-late
		_ = s.conn.SetWriteDeadline(time.Time{})
	}
	if err != nil {
		s.close(err)
		return fmt.Errorf("%w: %w", ErrBroken, err)
	}
	return nil
}

// giveUp stops waiting for an answer. A connection that was silent for all the time that an answer has may
// be dead, or have been left hanging within a message: it is closed, and the next question gets a new one.
func (s *stream) giveUp(ctx context.Context, id uint16, c *call, heard uint64) {
	s.mu.Lock()
	waiting := s.pending[id] == c
	if waiting {
		s.settle(id, c)
	}
	silent := s.heard == heard
	s.mu.Unlock()
	if waiting && silent && errors.Is(context.Cause(ctx), ErrNoAnswer) {
		s.close(ErrNoAnswer)
	}
}
