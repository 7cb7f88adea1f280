package throttle

import (
	"context"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"liqo.io/agent/internal/bubble"
)

func TestSlots(t *testing.T) {
	s := NewSlots[string](2, 5)
	for _, step := range []struct {
		key  string
		take bool // else release
		want bool
	}{
		{"a", true, true}, {"a", true, true}, {"a", true, false},
		{"b", true, true}, {"b", true, true}, {"c", true, true}, {"d", true, false},
		{"a", false, true}, {"d", true, true}, {"a", true, false},
	} {
		if !step.take {
			s.Release(step.key)
		} else if got := s.Take(step.key); got != step.want {
			t.Errorf("take %s: %v with %v", step.key, got, s.held)
		}
	}

	s = NewSlots[string](2, 5)
	held := map[string]int{}
	for range 10_000 {
		key := string(rune('a' + rand.IntN(6)))
		if held[key] > 0 && rand.IntN(2) == 0 {
			s.Release(key)
			held[key]--
		} else if s.Take(key) {
			held[key]++
		}
		sum := 0
		for _, n := range held {
			sum += n
			if n > 2 {
				t.Fatal("too many for one key")
			}
		}
		if sum > 5 || s.Taken() != sum {
			t.Fatalf("%d in all, and %d are said to be taken", sum, s.Taken())
		}
	}
}

// A slot that is given back goes to the first who waits and may have it.
func TestSlotsThatAreAwaited(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := NewSlots[string](2, 3)
		for _, key := range []string{"a", "a", "b"} {
			if !s.Await(t.Context(), key) {
				t.Errorf("no slot for %s", key)
			}
		}
		got := make(chan string, 3)
		for _, key := range []string{"a", "b", "c"} {
			go func() {
				if s.Await(t.Context(), key) {
					got <- key
				}
			}()
			synctest.Wait()
		}
		soon, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if s.Await(soon, "d") {
			t.Error("a slot beyond the limit of all")
		}
		for _, step := range []struct{ release, next string }{{"b", "b"}, {"a", "a"}, {"a", "c"}} {
			s.Release(step.release)
			if next := <-got; next != step.next {
				t.Errorf("%s has the slot that %s gave back, not %s", next, step.release, step.next)
			}
		}
		for _, key := range []string{"a", "b", "c"} {
			s.Release(key)
		}
		if s.Taken() != 0 || len(s.held) != 0 || s.waiting.Len() != 0 {
			t.Errorf("%d taken, %v, %d wait", s.Taken(), s.held, s.waiting.Len())
		}
	})
}
