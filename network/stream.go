package network

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"liqo.io/agent/network/frame"
	"liqo.io/agent/relay"
)

// message is what the ends of a stream tell each other beside packets, each field once.
type message struct {
	// Pods are the addresses of the sender's pods in its own cluster.
	Pods []netip.Prefix `json:"pods,omitempty"`
	// Yours is what the sender chose for the pods of the receiver.
	Yours []netip.Prefix `json:"yours,omitempty"`
	// WireGuard is an offer, with Pods: how the sender can be reached by WireGuard. It is read apart, because packets can do
	// without.
	WireGuard json.RawMessage `json:"wireguard,omitempty"`
	// Fell says that nothing reaches the sender by WireGuard any more.
	Fell bool `json:"fell,omitempty"`
	// Left says that the sender does not want to be connected any more, and that the stream ends.
	Left bool `json:"left,omitempty"`
}

// stream is one connection to a peer that carries packets in both directions.
type stream struct {
	path   *path
	conn   net.Conn
	queue  *queue
	dialed bool // by this cluster
	begun  time.Time

	writing sync.Mutex      // held while something is sent; taken before that of the queue
	raw     syscall.RawConn // of the socket, nil if there is none
	waits   func(fd uintptr)
	waiting int    // what waits found; with writing
	small   []byte // what sendNow sent last; with writing

	saidPods, saidYours bool // by the peer; of the goroutine that reads

	heard atomic.Int64  // nanoseconds since begun, when something came last
	rtt   atomic.Int64  // nanoseconds, of the last probe that was answered; 0 while none was
	asked atomic.Uint64 // the probe that waits for its echo, 0 for none

	mu      sync.Mutex
	waiters []chan time.Duration // each with room for one round-trip time; closed never

	leaving sync.Once
	parting atomic.Bool // it ends when everything is sent

	done chan struct{} // closed when it has ended
	once sync.Once
	why  error // set before done is closed
}

// ErrLeft: a peer has said that it ends the connection on purpose.
var ErrLeft = errors.New("the peer has disconnected its network from that of this cluster")

var (
	errReplaced   = errors.New("another connection took its place")
	errCrossed    = errors.New("both clusters have connected at the same time, and the other connection is used")
	errRestart    = errors.New("the addresses of the clusters are agreed on anew")
	errStopped    = errors.New("this cluster's network is being stopped")
	errUnanswered = errors.New("the peer does not answer")
	errFlaps      = fmt.Errorf("the connection is lost again and again, and counts once it has lasted for %s", steadyFor)
	errDeaf       = errors.New("the peer does not take what is sent")
	errUnreadable = errors.New("the peer sends a message that cannot be read")
)

func newStream(p *path, conn net.Conn, dialed bool) *stream {
	s := &stream{path: p, conn: conn, raw: relay.Socket(conn), queue: newQueue(), dialed: dialed, begun: time.Now(), done: make(chan struct{})}
	s.waits = func(fd uintptr) {
		var err error
		if s.waiting, err = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ); err != nil {
			s.waiting = unknown
		}
	}
	return s
}

// run carries packets until the stream ends.
func (s *stream) run(ctx context.Context) {
	var both sync.WaitGroup
	both.Go(func() { s.end(s.write()) })
	both.Go(func() { s.end(s.read(ctx)) })
	both.Wait()
}

// end ends the stream. Only the first reason counts.
func (s *stream) end(why error) {
	s.once.Do(func() {
		s.why = why
		close(s.done)
		_ = s.conn.SetDeadline(time.Unix(1, 0)) // the farewell of TLS is not waited for
		_ = s.conn.Close()
	})
}

// part tells the peer that this cluster does not want the stream any more, and ends it. It does not wait.
func (s *stream) part() {
	s.leaving.Do(func() {
		s.say(message{Left: true})
		_ = s.conn.SetWriteDeadline(time.Now().Add(partTimeout)) // fails when it has ended
		s.parting.Store(true)
		wake(s.queue.ready)
	})
}

func (s *stream) ended() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

const (
	// mostDirect is the longest frame of the device, in bytes, that need not wait for the goroutine that writes.
	mostDirect = 2 << 10
	// unknown is for stream.waiting when the socket does not tell.
	unknown = -1
)

// packet sends a frame of the device, and is false when there is no room for it. It never waits for the peer.
func (s *stream) packet(b []byte) bool { return s.sendNow(b) || s.queue.packet(b) }

// sendNow sends a short frame if nothing else is under way, as Nagle's algorithm does (RFC 896), which spares questions and
// answers the time until the goroutine that writes is woken. What the peer has not acknowledged is under way: so there is
// room in the socket, and packets that come faster than that are still sent together.
func (s *stream) sendNow(b []byte) bool {
	if s.raw == nil || len(b) > mostDirect || !s.writing.TryLock() {
		return false
	}
	defer s.writing.Unlock()
	if !s.queue.empty() || s.raw.Control(s.waits) != nil || s.waiting != 0 {
		return false
	}
	s.small = frame.Append(s.small[:0], frame.Packet, b)
	if _, err := s.conn.Write(s.small); err != nil {
		s.end(fmt.Errorf("send packets: %w", err))
	}
	return true
}

// write sends what waits.
func (s *stream) write() error {
	var chunk []byte
	for {
		select {
		case <-s.queue.ready:
		case <-s.done:
			return nil
		}
		for sent := true; sent; sent = len(chunk) > 0 {
			parting := s.parting.Load()
			var err error
			if chunk, err = s.send(chunk); err != nil { // a peer that takes nothing is noticed by its silence
				return fmt.Errorf("send packets: %w", err)
			}
			if len(chunk) == 0 && parting {
				return ErrNotWanted
			}
		}
	}
}

// send sends what waits, and returns it; its memory is for the next call.
func (s *stream) send(last []byte) ([]byte, error) {
	s.writing.Lock()
	defer s.writing.Unlock()
	chunk := s.queue.take(last)
	if len(chunk) == 0 {
		return chunk, nil
	}
	_, err := s.conn.Write(chunk)
	return chunk, err
}

// read handles what comes.
func (s *stream) read(ctx context.Context) error {
	r := frame.NewReader(s.conn)
	for {
		kind, payload, err := r.Next()
		if err != nil {
			return fmt.Errorf("receive packets: %w", err)
		}
		if now := time.Since(s.begun); now-time.Duration(s.heard.Swap(int64(now))) >= silentAfter {
			s.path.wake() // it was Silent
		}
		switch kind {
		case frame.Packet:
			s.path.deliver(payload)
		case frame.Probe:
			// Without room for the answer there is none: a peer has one probe on its way, and one that
			// takes nothing is noticed by its own silence.
			s.queue.message(frame.Echo, payload)
		case frame.Echo:
			s.echoed(payload)
		case frame.Control:
			var m message
			if json.Unmarshal(payload, &m) != nil {
				return errUnreadable // the error would have the peer's bytes in it
			}
			if m.Left {
				return ErrLeft
			}
			if err := s.path.told(ctx, s, m); err != nil {
				return err
			}
		}
	}
}

// say sends a message.
func (s *stream) say(m message) {
	b, err := json.Marshal(m)
	if err != nil || !s.queue.message(frame.Control, b) {
		s.end(errDeaf)
	}
}

// tick is called every probeEvery.
func (s *stream) tick() {
	asked := s.asked.Load()
	if s.silent() >= deadAfter || asked != 0 && time.Since(s.begun)-time.Duration(asked) >= deadAfter {
		s.end(errUnanswered)
		return
	}
	s.probe()
	s.queue.trim()
}

// probe asks for an echo, unless one is waited for already.
func (s *stream) probe() {
	now := uint64(time.Since(s.begun)) + 1 // never 0
	if s.asked.CompareAndSwap(0, now) {
		s.queue.message(frame.Probe, binary.BigEndian.AppendUint64(nil, now))
	}
}

// measure returns how long the next probe takes that is answered. It sends one unless one is on its way: however many
// measure, a stream has one at a time.
func (s *stream) measure(ctx context.Context) (time.Duration, error) {
	wait := make(chan time.Duration, 1)
	s.mu.Lock()
	s.waiters = append(s.waiters, wait)
	s.mu.Unlock()
	s.probe()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.waiters = slices.DeleteFunc(s.waiters, func(w chan time.Duration) bool { return w == wait })
	}()
	select {
	case took := <-wait:
		return took, nil
	case <-s.done:
		return 0, s.why
	case <-ctx.Done():
		return 0, errUnanswered
	}
}

// echoed takes the answer to a probe.
func (s *stream) echoed(payload []byte) {
	asked := binary.BigEndian.Uint64(payload)
	if asked == 0 || !s.asked.CompareAndSwap(asked, 0) {
		return // none that we wait for
	}
	took := max(int64(time.Since(s.begun))+1-int64(asked), 1)
	s.mu.Lock()
	for _, w := range s.waiters {
		w <- time.Duration(took)
	}
	s.waiters = nil
	s.mu.Unlock()
	if s.rtt.Swap(took) == 0 {
		s.path.wake()
	}
}

// silent returns for how long nothing has come.
func (s *stream) silent() time.Duration { return time.Since(s.begun) - time.Duration(s.heard.Load()) }
