package throttle

import (
	"math/rand/v2"
	"testing"
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
