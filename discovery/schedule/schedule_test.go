package schedule

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var start = time.Unix(1_000_000, 0)

func at(s int) time.Time { return start.Add(time.Duration(s) * time.Second) }

// TestBudgets runs random sequences: nothing is probed before it is due, no budget is
// exceeded, what can be probed is, and in the end nothing is left.
func TestBudgets(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := NewBudget(nil, 3)
		strangers := NewBudget(all, 2)
		lanes := []Lane{{Rank: 0, Budget: all}, {Rank: 1, Name: "a", Budget: strangers}, {Rank: 1, Name: "b", Budget: strangers},
			{Rank: 2, Budget: NewBudget(strangers, 1), NewestFirst: true}, {Rank: 3, Budget: NewBudget(nil, 1)}}
		most := []int{3, 2, 2, 1, 1}
		s := New[int]()
		jobs := make([]*Job[int], 12)
		for i := range jobs {
			jobs[i] = &Job[int]{Of: i % len(lanes)}
		}
		var probes []*Probe[int]
		under := func(lane ...int) (n int) {
			for _, p := range probes {
				if slices.Contains(lane, p.Of) {
					n++
				}
			}
			return n
		}
		now := 0
		for range rapid.IntRange(0, 60).Draw(t, "steps") {
			switch j := jobs[rapid.IntRange(0, len(jobs)-1).Draw(t, "job")]; rapid.IntRange(0, 4).Draw(t, "step") {
			case 0:
				if !j.Probing() {
					j.First = rapid.Bool().Draw(t, "first")
					in := 0
					if !lanes[j.Of].NewestFirst {
						in = rapid.IntRange(0, 3).Draw(t, "in")
					}
					s.Plan(j, lanes[j.Of], at(now+in))
				}
			case 1:
				s.Plan(j, lanes[j.Of], time.Time{})
			case 2:
				j.Stop()
			case 3:
				if i := rapid.IntRange(0, 3).Draw(t, "probe"); i < len(probes) {
					stopped := probes[i].Job.probe != probes[i]
					if s.Done(probes[i]) == stopped {
						t.Fatalf("stopped: %v, and it counts", stopped)
					}
					probes = slices.Delete(probes, i, i+1)
				}
			case 4:
				now++
			}
			for j := s.Take(at(now)); j != nil; j = s.Take(at(now)) {
				p := s.Start(j)
				p.Cancel = func() {}
				probes = append(probes, p)
			}
			for lane, most := range most {
				if under(lane) > most || under(1, 2, 3) > 2 || under(0, 1, 2, 3) > 3 {
					t.Fatalf("too many under way in lane %d: %d", lane, len(probes))
				}
			}
			if due, ok := s.Next(); ok && !due.After(at(now)) {
				t.Fatalf("something was due at %v and is not taken", due)
			}
			for _, j := range jobs {
				if idle := under(0, 1, 2, 3) == 0; idle && j.Of < 4 && !j.Due().IsZero() && !j.Due().After(at(now)) {
					t.Fatalf("a job of lane %d waits for nothing", j.Of)
				}
			}
		}
		for _, j := range jobs {
			s.Plan(j, lanes[j.Of], time.Time{})
		}
		for _, p := range probes {
			s.Release(p)
		}
		if s.Lanes() != 0 || all.running != 0 {
			t.Fatalf("%d lanes and %d probes are left", s.Lanes(), all.running)
		}
	})
}

// order takes and ends one job after another.
func order(s *Schedule[string], now time.Time) (out []string) {
	for j := s.Take(now); j != nil; j = s.Take(now) {
		out = append(out, j.Of)
		s.Release(s.Start(j))
	}
	return out
}

// Lanes go by rank, and lanes of one rank take turns.
func TestOrder(t *testing.T) {
	s, one := New[string](), NewBudget(nil, 1)
	for i, name := range []string{"a1", "a2", "a3", "b1", "b2", "c1"} {
		s.Plan(&Job[string]{Of: name}, Lane{Rank: 1, Name: name[:1], Budget: one}, at(i))
	}
	s.Plan(&Job[string]{Of: "late"}, Lane{Rank: 0, Budget: one}, at(9))
	s.Plan(&Job[string]{Of: "first", First: true}, Lane{Rank: 1, Name: "a", Budget: one}, at(8))
	got := order(s, at(9))
	if got[0] != "late" || slices.Index(got, "first") > slices.Index(got, "a1") || len(got) != 8 {
		t.Errorf("%v", got)
	}
	for i := 1; i+3 <= 7; i += 3 {
		if x := got[i : i+3]; i == 1 && (x[0][0] == x[1][0] || x[1][0] == x[2][0] || x[0][0] == x[2][0]) {
			t.Errorf("out of turn: %v", got)
		}
	}
}

// In a lane for what comes in floods, what came last goes first.
func TestNewestFirst(t *testing.T) {
	s, lane := New[string](), Lane{Budget: NewBudget(nil, 1), NewestFirst: true}
	for i, name := range []string{"old", "new", "newest"} {
		s.Plan(&Job[string]{Of: name}, lane, at(i))
	}
	if got := order(s, at(5)); !slices.Equal(got, []string{"newest", "new", "old"}) {
		t.Errorf("%v", got)
	}
}
