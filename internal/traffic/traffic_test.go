package traffic

import (
	"context"
	"net"
	"net/netip"
	"testing"
	"time"

	"liqo.io/agent/internal/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

// hang bounds a test that hangs, and measures nothing.
const hang = time.Minute

func serve(t *testing.T) string {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	at, done := make(chan netip.AddrPort, 1), make(chan error, 1)
	go func() { done <- Serve(ctx, "127.0.0.1:0", func(a netip.AddrPort) { at <- a }) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	select {
	case a := <-at:
		return a.String()
	case err := <-done:
		done <- err
		t.Fatal(err)
	}
	return ""
}

func TestPing(t *testing.T) {
	to := serve(t)
	for _, length := range []int{countLen, 1400} {
		got, err := Ping(to, length, 100)
		if err != nil || len(got) == 0 || len(got) > 100 {
			t.Fatalf("%d answers of 100: %v", len(got), err)
		}
		for _, d := range got {
			if d <= 0 || d > lostAfter+hang {
				t.Errorf("an answer took %s", d)
			}
		}
	}
	if _, err := Ping(to, countLen-1, 1); err == nil {
		t.Error("a packet without room for its number")
	}
}

// Who answers nothing, or what was not asked, is not counted.
func TestPingUnanswered(t *testing.T) {
	deaf, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = deaf.Close() }()
	if got, err := Ping(deaf.LocalAddr().String(), 100, 1); err != nil || len(got) != 0 {
		t.Errorf("%v, %v", got, err)
	}
	if rate, err := Packets(deaf.LocalAddr().String(), 100, time.Millisecond); err != nil || rate != 0 {
		t.Errorf("%g packets a second arrived, %v", rate, err)
	}
}

func TestPackets(t *testing.T) {
	to := serve(t)
	for range 2 { // each sender is counted alone
		rate, err := Packets(to, 100, 50*time.Millisecond)
		if err != nil || rate <= 0 {
			t.Errorf("%g packets a second, %v", rate, err)
		}
	}
}

func TestStreams(t *testing.T) {
	x, y := serve(t), serve(t)
	s, err := Open(t.Context(), 3, x, y)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if len(s.conns[x]) != 3 || len(s.conns[y]) != 3 {
		t.Errorf("%d and %d streams", len(s.conns[x]), len(s.conns[y]))
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer cancel()
		for end := time.Now().Add(hang); time.Now().Before(end); time.Sleep(lookEvery) {
			if now, err := s.acknowledged(); err != nil || now[x] > 100*writeLen && now[y] > 100*writeLen {
				return
			}
		}
	}()
	got, err := s.Measure(ctx)
	if err != nil || got.Bytes[x] == 0 || got.Bytes[y] == 0 || got.Seconds <= 0 || got.CPU <= 0 || got.Total < sum(got.Bytes) || got.Gap <= 0 || got.Gap > got.Seconds {
		t.Errorf("%+v, %v", got, err)
	}
}

// A receiver that reads nothing makes a gap that lasts until the end.
func TestGap(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	s, err := Open(t.Context(), 1, l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	const still = 20 * lookEvery
	for last, end := uint64(0), time.Now().Add(hang); ; time.Sleep(still) { // its buffers fill
		now, err := s.acknowledged()
		if err != nil || time.Now().After(end) {
			t.Fatal(now, err)
		}
		if now[l.Addr().String()] == last && last > 0 {
			break
		}
		last = now[l.Addr().String()]
	}
	ctx, cancel := context.WithTimeout(t.Context(), still)
	defer cancel()
	got, err := s.Measure(ctx)
	if err != nil || sum(got.Bytes) != 0 || got.Gap <= 0 || got.Gap != got.Seconds {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := Open(t.Context(), 1, serve(t), "127.0.0.1:1"); err == nil {
		t.Error("nobody is there, and it is open")
	}
}
