package registry

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"liqo.io/agent/internal/bubble"
)

func TestPauses(t *testing.T) {
	want := []time.Duration{5, 10, 20, 40, 80, 160, 300, 300, 300}
	var least, most [9]time.Duration
	for range 1000 {
		for i := range want {
			d := spread(backoff(firstRetry, i+1, lastRetry))
			if least[i] == 0 || d < least[i] {
				least[i] = d
			}
			most[i] = max(most[i], d)
		}
	}
	for i, w := range want {
		w *= time.Second
		if least[i] < w*90/100 || least[i] > w*92/100 || most[i] > w*110/100 || most[i] < w*108/100 {
			t.Errorf("pause %d: between %v and %v", i, least[i], most[i])
		}
	}
	if d := spread(backoff(firstRetry, 1<<30, lastRetry)); d > lastRetry*11/10 {
		t.Error(d)
	}
}

// A domain with thousands of places that take as long to fail as they can holds
// up neither persons nor other domains, and its own new places only as long as
// others that are new.
func TestHostileDomain(t *testing.T) {
	in(t, func(t *testing.T, b *bed) {
		const many = 3000
		for i := range many {
			b.SetCandidate(wan("hostile", fmt.Sprintf("https://h%d", i)))
		}
		wait(time.Minute)
		if _, n := b.world.under("h"); n != 12 {
			t.Errorf("%d attempts at a time", n)
		}
		place := func(l Candidate, id string) Candidate {
			b.world.put(l.URL, boxOf(id))
			b.SetCandidate(l)
			return l
		}
		// Persons have attempts of their own.
		m := place(manual("https://m"), "m")
		soon()
		b.sees(m.Key(), "m")
		// Another domain has to wait until an attempt ends.
		w := place(wan("quiet", "https://w"), "w")
		wait(timeout)
		b.sees(w.Key(), "w")
		// While persons have many that do not answer, either.
		for i := range 100 {
			b.SetCandidate(manual(fmt.Sprintf("https://p%d", i)))
		}
		soon()
		w = place(wan("quiet", "https://x"), "x")
		wait(timeout)
		b.sees(w.Key(), "x")
		_, p := b.world.under("p")
		h, _ := b.world.under("h")
		if _, all := b.world.under(""); p > 12 || h < 4 || all != 16 {
			t.Errorf("at a time %d of persons, %d of the domain, %d in all", p, h, all)
		}
		// In the end each was asked.
		wait(time.Hour)
		for i := range many {
			b.reason(wan("hostile", fmt.Sprintf("https://h%d", i)).Key(), Unreachable)
		}
		// Now all of them are asked again and again, and that is more than can be done.
		// A new place goes before them.
		w = place(wan("hostile", "https://n"), "n")
		wait(timeout)
		b.sees(w.Key(), "n")
		// One that has other addresses does as well.
		b.world.put("https://h7", boxOf("h7"))
		moved := wan("hostile", "https://h7")
		moved.Addrs = []netip.AddrPort{netip.MustParseAddrPort("192.0.2.7:6447")}
		b.SetCandidate(moved)
		wait(timeout)
		b.sees(wan("hostile", "https://h7").Key(), "h7")
	})
}

// Domains have their turns: each is asked as often as the others, however many
// places it lists.
func TestTurns(t *testing.T) {
	in(t, func(t *testing.T, b *bed) {
		for i := range 1000 {
			b.SetCandidate(wan("a", fmt.Sprintf("https://a%d", i)))
		}
		for i := range 100 {
			b.SetCandidate(wan("b", fmt.Sprintf("https://b%d", i)))
			b.SetCandidate(wan("c", fmt.Sprintf("https://c%d", i)))
		}
		for range 10 {
			wait(timeout)
			a, _ := b.world.under("a")
			bs, _ := b.world.under("b")
			cs, _ := b.world.under("c")
			if a+bs+cs != 12 || min(a, bs, cs) < 3 || max(a, bs, cs) > 5 {
				t.Errorf("at a time %d, %d, %d", a, bs, cs)
			}
		}
	})
}

// A domain whose places take longer does not hold more attempts for it.
func TestSlowDomain(t *testing.T) {
	in(t, func(t *testing.T, b *bed) {
		for i := range 1000 {
			b.SetCandidate(wan("slow", fmt.Sprintf("https://s%d", i)))
			quick := wan("quick", fmt.Sprintf("https://q%d", i))
			b.world.put(quick.URL, boxOf("q"))
			b.world.slows(quick.URL, time.Second)
			b.SetCandidate(quick)
		}
		wait(30*time.Second + time.Millisecond)
		if now, most := b.world.under("s"); now > 7 || most > 7 {
			t.Errorf("at a time %d, at most %d", now, most)
		}
	})
}

// With one attempt at a time all of it works as well.
func TestOneAtATime(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newBed(t, func(cfg *Config) { cfg.Lookups = 1 })
		b.run()
		defer b.stop()
		for i := range 10 {
			b.SetCandidate(wan("a", fmt.Sprintf("https://a%d", i)))
		}
		soon()
		b.world.put("https://m", boxOf("m"))
		b.SetCandidate(manual("https://m"))
		wait(timeout)
		b.sees(manual("https://m").Key(), "m")
		if _, most := b.world.under(""); most != 1 {
			t.Errorf("%d at a time", most)
		}
		// Attempts for what was dropped give their place back.
		for i := range 10 {
			b.DropCandidate(wan("a", fmt.Sprintf("https://a%d", i)).Key(), Absence{})
		}
		b.world.put("https://b", boxOf("b"))
		b.SetCandidate(wan("b", "https://b"))
		soon()
		b.sees(wan("b", "https://b").Key(), "b")
	})
}

// Persons go first, and domains take turns.
func TestOrder(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newBed(t, func(cfg *Config) { cfg.Lookups = 1 })
		for i := range 5 {
			for _, domain := range []string{"a", "b", "c"} {
				b.SetCandidate(wan(domain, fmt.Sprintf("https://%s%d", domain, i)))
			}
			b.world.put(fmt.Sprintf("https://m%d", i), boxOf("m"))
			b.SetCandidate(manual(fmt.Sprintf("https://m%d", i)))
		}
		b.run()
		defer b.stop()
		wait(14*timeout + time.Second)
		b.world.mu.Lock()
		defer b.world.mu.Unlock()
		for i := range 5 {
			if b.world.questions[i].place[len("https://")] != 'm' {
				t.Errorf("%s was asked before a person's", b.world.questions[i].place)
			}
		}
		var domains []byte
		for _, c := range b.world.questions[5:] {
			if letter := c.place[len("https://")]; letter != 'm' {
				domains = append(domains, letter)
			}
		}
		for i := 0; i+3 <= len(domains); i += 3 {
			if x := domains[i : i+3]; x[0] == x[1] || x[1] == x[2] || x[0] == x[2] {
				t.Errorf("out of turn: %s", domains)
			}
		}
	})
}

// What a candidate costs in memory, apart from what it says; also when all of them are
// about clusters that never answer.
func TestMemoryOfCandidates(t *testing.T) {
	const many = 5000
	for name, row := range map[string]struct {
		identified bool
		most       uint64
	}{"unknown": {false, 1000}, "identified": {true, 2700}} {
		t.Run(name, func(t *testing.T) {
			within(t, func(cfg *Config) { cfg.CandidateChanged = nil }, func(t *testing.T, b *bed) {
				candidates := make([]Candidate, many)
				for i := range candidates {
					candidates[i] = wan("d", fmt.Sprintf("https://h%d", i))
					if row.identified {
						candidates[i] = candidates[i].expecting(fmt.Sprintf("id%d", i)).holding("x")
					}
				}
				before := heapInUse()
				for _, c := range candidates {
					b.SetCandidate(c)
				}
				soon()
				per := (heapInUse() - before) / many
				if t.Logf("%d bytes for a candidate", per); per > row.most {
					t.Errorf("that is more than %d", row.most)
				}
			})
		})
	}
}
