//go:build linux

package card_test

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"liqo.io/agent/internal/bed"
	"liqo.io/agent/internal/card"
)

func TestMain(m *testing.M) { bed.Main(m) }

// TestSignal: signals that reach a thread during a sync do not end it, and it does not fail.
func TestSignal(t *testing.T) {
	dir := t.TempDir()
	c, err := card.Mount(dir, card.Options{})
	if card.Unavailable(err) {
		t.Skipf("FUSE cannot be used here: %v", err)
	} else if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	f, err := os.Create(filepath.Join(dir, "file"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	resume := c.Stall()
	defer resume()
	threads, done := make(chan int, 1), make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		threads <- unix.Gettid()
		done <- unix.Fsync(int(f.Fd())) // (*os.File).Sync would try again
	}()
	thread := <-threads
	deadline := time.Now().Add(bed.Hang)
	for c.Waiting() == 0 {
		if time.Now().After(deadline) {
			t.Fatal("the sync does not begin")
		}
		runtime.Gosched()
	}
	for range 1000 {
		// What Go's runtime sends to its own threads.
		if err := unix.Tgkill(os.Getpid(), thread, unix.SIGURG); err != nil {
			t.Fatal(err)
		}
		runtime.Gosched()
	}
	select {
	case err := <-done:
		t.Fatalf("a signal has ended the sync: %v", err)
	default:
	}
	resume()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
