package network

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"liqo.io/agent/network/filter"
)

// Whoever has a place keeps it while it is wanted, no two have the same, and nobody is without one while there is room.
func TestPlaces(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ours := prefixes("241.7.0.0/28", "fd07::/64")[:rapid.IntRange(1, 2).Draw(t, "families")]
		p := &path{engine: &Engine{}}
		for range 20 {
			var pods []netip.Addr
			for _, block := range []string{"241.1.0.%d", "241.1.1.%d", "241.9.0.%d", "fd01::%d"} {
				for _, n := range rapid.SliceOfNDistinct(rapid.IntRange(2, 12), 0, 8, rapid.ID).Draw(t, block) {
					pods = append(pods, netip.MustParseAddr(fmt.Sprintf(block, n)))
				}
			}
			got := p.place(append([]netip.Addr{}, pods...), ours)
			used := make(map[netip.Addr]bool)
			four := 0
			for pod, there := range got {
				half, ok := ofFamily(ours, pod.Is4())
				if !ok || !slices.Contains(pods, pod) || half.Contains(there) || !whole(half).Contains(there) || used[there] {
					t.Fatalf("%s is known as %s, in %v of %v", pod, there, got, pods)
				}
				if used[there] = true; pod.Is4() {
					four++
				}
			}
			wanted4, wanted6 := 0, 0
			for _, pod := range pods {
				if pod.Is4() {
					wanted4++
				} else if len(ours) == 2 {
					wanted6++
				}
				if before, had := p.thirds[pod]; had && got[pod] != before {
					t.Fatalf("%s was known as %s, and now is as %s", pod, before, got[pod])
				}
			}
			if four != min(wanted4, 16) || len(got)-four != wanted6 {
				t.Fatalf("%d of %d and %d of %d pods have a place: %v", four, wanted4, len(got)-four, wanted6, got)
			}
			p.thirds = got
		}
	})
	if got := (&path{engine: &Engine{}}).place(nil, prefixes("241.7.0.0/24")); got != nil {
		t.Errorf("what is not known is %v", got)
	}
}

// A hub tells its filter which addresses pods of one provider have at the other, and keeps them over a restart of its agent.
func TestThirds(t *testing.T) {
	inBubble(t, func(t *testing.T, l *lan) {
		a := l.add("a").begin("b", "c")
		b, c := l.add("b").begin("a"), l.add("c").begin("a")
		connected(t, a, b, 3*time.Second)
		connected(t, a, c, 3*time.Second)
		if s := mustStatus(t, a, "b"); s.Thirds != nil {
			t.Errorf("%v before anybody was named", s.Thirds)
		}
		atC := mustStatus(t, a, "c").Blocks.Theirs[0].Addr().Next().Next()
		told := a.told("b")
		// Who comes first has the place that both would have.
		alone := func(pod netip.Addr) netip.Addr {
			at, _ := freePlace(pod, upper(mustStatus(t, a, "b").Blocks.Ours[0]), nil)
			return at
		}
		other := netip.MustParseAddr("249.0.0.1") // the greater one
		for alone(other) != alone(atC) {
			other = other.Next()
		}
		a.Set(Peer{ID: "b", Thirds: []netip.Addr{other}})
		synctest.Wait()
		pods := []netip.Addr{atC, other}
		a.Set(Peer{ID: "b", Thirds: pods})
		synctest.Wait()
		s := mustStatus(t, a, "b")
		if len(s.Thirds) != 2 || a.told("b") == told {
			t.Fatalf("%v, told %d times", s.Thirds, a.told("b")-told)
		}
		for _, peer := range a.set().Peers {
			var want []filter.Third
			if peer.Name == "b" {
				want = []filter.Third{{Here: pods[0], There: s.Thirds[pods[0]]}, {Here: pods[1], There: s.Thirds[pods[1]]}}
			}
			if !slices.Equal(peer.Thirds, want) {
				t.Errorf("for %s, the filter has %v, want %v", peer.Name, peer.Thirds, want)
			}
		}
		// Such packets pass in both directions, and beyond the block none does.
		there := mustStatus(t, b, "a").Blocks
		guest, third := there.Ours[0].Addr().Next(), s.Thirds[atC]
		if !deliver(b, a, frameOf(guest, third, "to a third")) || !deliver(a, b, frameOf(third, guest, "from a third")) {
			t.Error("packets of third clusters do not pass")
		}
		if deliver(a, b, frameOf(whole(there.Theirs[0]).Addr().Prev(), guest, "from beside")) {
			t.Error("packets from beside the block pass")
		}

		a.stop()
		a.renew()
		a.begin("b", "c")
		connected(t, a, b, 20*time.Second)
		if s := mustStatus(t, a, "b"); s.Thirds != nil {
			t.Errorf("%v before anybody was named again", s.Thirds)
		}
		a.Set(Peer{ID: "b", Thirds: []netip.Addr{pods[1], pods[0]}})
		synctest.Wait()
		if again := mustStatus(t, a, "b").Thirds; again[pods[0]] != s.Thirds[pods[0]] || again[pods[1]] != s.Thirds[pods[1]] {
			t.Errorf("after a restart %v, before %v", again, s.Thirds)
		}
		a.Set(Peer{ID: "b", Thirds: []netip.Addr{}})
		synctest.Wait()
		if s := mustStatus(t, a, "b"); s.Thirds == nil || len(s.Thirds) != 0 {
			t.Errorf("%v after all have gone", s.Thirds)
		}
	})
}
