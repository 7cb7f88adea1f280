package wire

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"

	"liqo.io/agent/internal/bubble"
	"liqo.io/agent/internal/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

// pipe is a stream and the far end of its connection.
func pipe(t *testing.T) (*stream, net.Conn) {
	t.Helper()
	near, far := net.Pipe()
	s := newStream(near, idleTimeout, func(*stream) {})
	t.Cleanup(func() {
		s.close(io.EOF)
		far.Close()
		<-s.done
	})
	return s, far
}

// ask asks for a name on a goroutine, with a time for the answer as Exchange gives it.
func ask(t *testing.T, ctx context.Context, s *stream, name string, within time.Duration) <-chan error {
	t.Helper()
	q, err := NewQuestion(name, dns.TypeA)
	if err != nil {
		t.Fatal(err)
	}
	packet, err := q.encode(false, false)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeoutCause(ctx, within, ErrNoAnswer)
		defer cancel()
		_, err := s.ask(ctx, q, packet)
		done <- err
	}()
	return done
}

// hear reads a question at the far end.
func hear(t *testing.T, far net.Conn) []byte {
	t.Helper()
	var size [2]byte
	if _, err := io.ReadFull(far, size[:]); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, binary.BigEndian.Uint16(size[:]))
	if _, err := io.ReadFull(far, b); err != nil {
		t.Fatal(err)
	}
	return b
}

// echo answers a question with itself.
func echo(t *testing.T, far net.Conn, b []byte) {
	t.Helper()
	b[2] |= 1 << 7
	if _, err := far.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(b))), b...)); err != nil {
		t.Fatal(err)
	}
}

func TestStreamRestsAndEnds(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s, far := pipe(t)
		start := time.Now()
		time.Sleep(idleTimeout - time.Second)
		done := ask(t, t.Context(), s, "example.com", time.Hour)
		b := hear(t, far)
		time.Sleep(10 * idleTimeout) // it is not idle: an answer is due
		echo(t, far, b)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		answered := time.Now()
		<-s.done
		if rested := time.Since(answered); rested != idleTimeout {
			t.Errorf("ended %v after its last answer, %v after its start", rested, time.Since(start))
		}
		if err := <-ask(t, t.Context(), s, "example.com", time.Hour); !errors.Is(err, ErrBroken) {
			t.Errorf("error %v", err)
		}
	})
}

// writes counts what is written to a connection, by calls.
type writes struct {
	net.Conn
	calls atomic.Int32
}

func (w *writes) Write(b []byte) (int, error) {
	w.calls.Add(1)
	return w.Conn.Write(b)
}

// Length and message go out together (RFC 7858 section 3.3).
func TestStreamWritesAtOnce(t *testing.T) {
	near, far := net.Pipe()
	counted := &writes{Conn: near}
	s := newStream(counted, idleTimeout, func(*stream) {})
	t.Cleanup(func() {
		s.close(io.EOF)
		far.Close()
		<-s.done
	})
	for n := range int32(3) {
		done := ask(t, t.Context(), s, "example.com", time.Hour)
		echo(t, far, hear(t, far))
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if got := counted.calls.Load(); got != n+1 {
			t.Fatalf("%d writes for %d questions", got, n+1)
		}
	}
}

func TestStreamThatIsSilentEnds(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s, far := pipe(t)
		first := ask(t, t.Context(), s, "a.example.com", 3*time.Second)
		hear(t, far)
		time.Sleep(time.Second)
		second := ask(t, t.Context(), s, "b.example.com", 3*time.Second)
		hear(t, far)
		// All of the first one's time is over; the second has to look for another connection.
		if err := <-first; !errors.Is(err, ErrNoAnswer) {
			t.Errorf("error %v", err)
		}
		if err := <-second; !errors.Is(err, ErrBroken) {
			t.Errorf("error %v", err)
		}
		<-s.done
	})
}

func TestStreamOutlivesWhoGivesUp(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s, far := pipe(t)
		ctx, cancel := context.WithCancel(t.Context())
		first := ask(t, ctx, s, "a.example.com", time.Hour)
		late := hear(t, far)
		second := ask(t, t.Context(), s, "b.example.com", time.Hour)
		b := hear(t, far)
		cancel()
		if err := <-first; !errors.Is(err, context.Canceled) {
			t.Errorf("error %v", err)
		}
		echo(t, far, late) // nobody waits for it any more
		echo(t, far, b)
		if err := <-second; err != nil {
			t.Error(err)
		}
		// One that is silent to one question and not to the others is well.
		third := ask(t, t.Context(), s, "c.example.com", time.Minute)
		hear(t, far)
		fourth := ask(t, t.Context(), s, "d.example.com", time.Minute)
		echo(t, far, hear(t, far))
		if err := <-fourth; err != nil {
			t.Error(err)
		}
		if err := <-third; !errors.Is(err, ErrNoAnswer) {
			t.Errorf("error %v", err)
		}
		if !s.usable() {
			t.Error("it has ended")
		}
	})
}

func TestStreamTakesOnlySoMany(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s, far := pipe(t)
		ctx, cancel := context.WithCancel(t.Context())
		ids := map[uint16]bool{}
		var waiting []<-chan error
		for i := range maxPending {
			if !s.usable() {
				t.Fatalf("full with %d questions", i)
			}
			waiting = append(waiting, ask(t, ctx, s, "example.com", time.Hour))
			ids[binary.BigEndian.Uint16(hear(t, far))] = true
		}
		if s.usable() || len(ids) != maxPending {
			t.Errorf("%d questions with %d IDs, and it takes more: %v", maxPending, len(ids), s.usable())
		}
		cancel()
		for _, w := range waiting {
			<-w
		}
		if !s.usable() {
			t.Error("it takes none after all were given up")
		}
	})
}

func TestStreamUsesNoIDTwice(t *testing.T) {
	s, _ := pipe(t)
	const free = 0x1234
	other := &call{done: make(chan struct{})}
	s.mu.Lock()
	for id := range 1 << 16 {
		if id != free {
			s.pending[uint16(id)] = other
		}
	}
	s.mu.Unlock()
	id, _, err := s.register(&call{done: make(chan struct{})})
	if err != nil || id != free {
		t.Errorf("ID %#x, %v", id, err)
	}
	s.mu.Lock()
	clear(s.pending)
	s.mu.Unlock()
}

func TestStreamThatDoesNotRead(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s, _ := pipe(t)
		if err := <-ask(t, t.Context(), s, "example.com", time.Second); err == nil {
			t.Error("asked")
		}
		<-s.done
	})
}
