package throttle

import (
	"testing"
	"time"
)

func TestBuckets(t *testing.T) {
	now := time.Now()
	b := New[string](2, 3, 10)
	take := func(key string) time.Duration { return b.Take(key, now) }
	for i := range 3 {
		if wait := take("a"); wait != 0 {
			t.Errorf("request %d has to wait %s", i, wait)
		}
	}
	if wait := take("a"); wait < 400*time.Millisecond || wait > 600*time.Millisecond {
		t.Errorf("two a second, and the next in %s", wait)
	}
	if take("b") != 0 {
		t.Error("another key has to wait")
	}
	now = now.Add(500 * time.Millisecond)
	if take("a") != 0 {
		t.Error("nothing was refilled")
	}
	if take("a") == 0 {
		t.Error("too much was refilled")
	}
	now = now.Add(time.Hour)
	for range 3 {
		if take("a") != 0 {
			t.Error("not full after an hour")
		}
	}
	if take("a") == 0 {
		t.Error("more than full after an hour")
	}
	for range 2 {
		if wait := b.Wait("a", now); wait < 400*time.Millisecond || wait > 600*time.Millisecond {
			t.Errorf("the next in %s", wait)
		}
	}
	if b.Wait("nobody", now) != 0 || b.Wait("b", now) != 0 || len(b.keys) != 2 {
		t.Error("asking takes something")
	}
}

// However many come, the memory is bounded, and those who come all the time are
// not forgotten in favour of those who came once.
func TestBucketsAreBounded(t *testing.T) {
	now := time.Now()
	b := New[int](1, 1, 100)
	for i := range 10_000 {
		now = now.Add(time.Microsecond)
		b.Take(i, now)
		if i%50 == 0 && i > 0 && b.Take(0, now) == 0 {
			t.Fatalf("after %d others, the first may again", i)
		}
		if len(b.keys) > 100 || len(b.keys) != b.used.Len() {
			t.Fatalf("%d keys, %d in the list", len(b.keys), b.used.Len())
		}
	}
	if len(b.keys) != 100 {
		t.Errorf("%d keys are remembered", len(b.keys))
	}
	// Whoever is idle goes as others come.
	now = now.Add(time.Minute)
	for i := range 60 {
		b.Take(-1-i%2, now)
		b.Take(-10-i, now)
	}
	if len(b.keys) > 80 {
		t.Errorf("%d keys are still remembered after a minute", len(b.keys))
	}
}

// Several tokens are taken at a time, or none, and what is owed is paid first.
func TestSeveralTokens(t *testing.T) {
	now := time.Now()
	b := New[string](10, 100, 10)
	if b.TakeN("a", 80, now) != 0 || b.WaitN("a", 20, now) != 0 {
		t.Error("80 of 100, and 20 are not left")
	}
	if wait := b.TakeN("a", 30, now); wait < 900*time.Millisecond || wait > 1100*time.Millisecond || b.TakeN("a", 20, now) != 0 {
		t.Errorf("10 are missing, and it takes %s", wait)
	}
	b.Owe("a", 50, now)
	if wait := b.Wait("a", now); wait < 5*time.Second || wait > 5200*time.Millisecond {
		t.Errorf("50 are owed, and it takes %s", wait)
	}
	b.Owe("b", 1000, now)
	if wait := b.Wait("b", now); wait > 200*time.Millisecond {
		t.Errorf("more than a bucket is owed: %s", wait)
	}
	if b.TakeN("c", 101, now) == 0 {
		t.Error("there is more than a bucket holds")
	}
}
