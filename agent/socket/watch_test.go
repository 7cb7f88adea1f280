package socket

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"liqo.io/agent/agent/control"
	"liqo.io/agent/agent/socket/client"
)

// patience bounds a test that hangs.
const patience = 5 * time.Minute

func TestWatch(t *testing.T) {
	s, c := serve(t, &memory{peers: twoPeers()})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	enough := errors.New("enough")
	var seen []string
	err := c.Watch(ctx, func(ev control.WatchEvent) error {
		label := ""
		if ev.Peer != nil {
			label = " " + ev.Peer.Name
		}
		if ev.At.IsZero() {
			t.Errorf("%s has no time", ev.Event)
		}
		seen = append(seen, ev.Event+label)
		switch ev.Event {
		case control.WatchSynced:
			s.Publish(control.WatchEvent{Event: control.WatchFound, Peer: &control.Peer{Name: "shed"}})
			s.Publish(control.WatchEvent{Event: control.WatchLost, Peer: &control.Peer{Name: "barn"}})
		case control.WatchLost:
			return enough
		}
		return nil
	})
	if !errors.Is(err, enough) {
		t.Fatalf("Watch = %v", err)
	}
	if got, want := strings.Join(seen, ", "), "snapshot barn, synced, found shed, lost barn"; got != want {
		t.Errorf("seen %s, want %s", got, want)
	}
}

func TestWatchEndsWithContext(t *testing.T) {
	_, c := serve(t, &memory{})
	ctx, cancel := context.WithCancel(t.Context())
	err := c.Watch(ctx, func(ev control.WatchEvent) error {
		cancel()
		return nil
	})
	if err != nil {
		t.Errorf("Watch = %v after its context ended", err)
	}
}

func TestWatchEndsWithAgent(t *testing.T) {
	b := &memory{}
	s := NewServer(ServerConfig{Path: t.TempDir() + "/agent.sock", Backend: b, Level: newLevel(), Logger: discard()})
	if err := s.Listen(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	c := client.New(s.cfg.Path)
	defer c.Close()
	err := c.Watch(t.Context(), func(ev control.WatchEvent) error {
		stop()
		return nil
	})
	if err == nil || err.Error() != "the watch ended: the agent is stopping" {
		t.Errorf("Watch = %v", err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// A watcher that reads nothing costs a bounded amount of memory, does not hold
// up the publisher, and learns why it was cut off.
func TestSlowWatcherIsCut(t *testing.T) {
	s, _ := serve(t, &memory{})
	conn, err := net.Dial("unix", s.cfg.Path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprint(conn, "GET /v1/watch HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	in := bufio.NewScanner(conn)
	in.Buffer(nil, 1<<20)
	for in.Scan() && !strings.Contains(in.Text(), control.WatchSynced) {
	}

	// Far more than the buffer and the kernel's socket buffers hold. That
	// this returns at all is half of what is tested.
	big := &control.Peer{Name: strings.Repeat("x", 2000)}
	for range 4 * watchBuffer {
		s.Publish(control.WatchEvent{Event: control.WatchUpdated, Peer: big})
	}
	left := 0
	s.hub.mu.Lock()
	for w := range s.hub.watchers {
		if !w.ended() {
			left++
		}
	}
	s.hub.mu.Unlock()
	if left != 0 {
		t.Fatalf("%d watchers are left", left)
	}

	var last control.WatchEvent
	updates := 0
	for in.Scan() {
		line := in.Text()
		if !strings.HasPrefix(line, "{") {
			continue // chunk sizes of the HTTP encoding
		}
		var ev control.WatchEvent
		if err := json.Unmarshal([]byte(line), &ev); err != nil {
			continue // a line across two chunks
		}
		last = ev
		if ev.Event == control.WatchUpdated {
			updates++
		}
	}
	if last.Event != control.WatchError || last.Error != errTooSlow.Error() {
		t.Errorf("the last line is %s %q (after %d updates, %v)", last.Event, last.Error, updates, in.Err())
	}
	if updates >= 4*watchBuffer {
		t.Errorf("all %d updates were kept for a reader that did not read", updates)
	}
}

// Each write to a slow reader has its own time, and not what others have left of theirs.
func TestWritesAreLimitedOneByOne(t *testing.T) {
	w := &limitedWriter{ResponseRecorder: httptest.NewRecorder()}
	st := newStream(w)
	peers := make([]control.Peer, 100)
	for i := range peers {
		peers[i].Name = strings.Repeat("x", 2000)
	}
	changes := make(chan control.WatchEvent, len(peers))
	for i := range peers {
		changes <- control.WatchEvent{Event: control.WatchUpdated, Peer: &peers[i]}
	}
	if err := errors.Join(st.snapshot(peers, time.Now()), st.changes(<-changes, changes)); err != nil {
		t.Fatal(err)
	}
	st.part(control.WatchEvent{Event: control.WatchError})
	if w.writes < 20 || w.unlimited > 0 {
		t.Errorf("of %d writes, %d had no limit of their own", w.writes, w.unlimited)
	}
}

// limitedWriter counts writes to a client, and those of them before which no deadline within watchWrite was set.
type limitedWriter struct {
	*httptest.ResponseRecorder
	limit             time.Duration // of the next write
	writes, unlimited int
}

func (w *limitedWriter) SetReadDeadline(time.Time) error { return nil }

func (w *limitedWriter) SetWriteDeadline(at time.Time) error {
	w.limit = time.Until(at)
	return nil
}

func (w *limitedWriter) Write(b []byte) (int, error) { return len(b), w.FlushError() }

// FlushError is that of http.ResponseController, which writes what net/http has kept.
func (w *limitedWriter) FlushError() error {
	w.writes++
	if w.limit <= 0 || w.limit > watchWrite {
		w.unlimited++
	}
	w.limit = 0
	return nil
}

func TestWatchesAreCapped(t *testing.T) {
	s, c := serve(t, &memory{})
	for range maxWatchers {
		if _, err := s.hub.subscribe(); err != nil {
			t.Fatal(err)
		}
	}
	err := c.Watch(t.Context(), func(control.WatchEvent) error { return nil })
	if err == nil || err.Error() != errManyWatches.Error() {
		t.Errorf("Watch = %v", err)
	}
}
