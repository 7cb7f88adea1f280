//go:build linux

package e2e

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// fault is something that happens to a box in a run of TestChaos.
type fault struct {
	at    time.Duration // since the first fault could have come
	lasts time.Duration // until it is mended; 0 if it is over at once
	kind  string
	box   int // index of the box
	peer  int // index of another box, for faults that concern both
	n     int // what else is up to chance
}

// ends is when the fault is over.
func (f fault) ends() time.Duration { return f.at + f.lasts }

func (f fault) String() string {
	text := fmt.Sprintf("%7s  %-19s box %d", f.at.Round(100*time.Millisecond), f.kind, f.box)
	if f.lasts > 0 {
		text += fmt.Sprintf(" for %s", f.lasts.Round(100*time.Millisecond))
	}
	return fmt.Sprintf("%-56s (peer %d, n %d)", text, f.peer, f.n)
}

// Parts of a box that one fault at a time has for itself, so that none mends what another one broke.
const (
	partAgent = "agent"
	partPlane = "control plane"
	partLink  = "link"
	partDisk  = "disk"
	partProxy = "kube-proxy"
)

// faultKind is what a schedule is drawn from.
type faultKind struct {
	name    string
	weight  int           // how often it comes, compared with others
	longest time.Duration // how long it lasts at most; 0 for what is over at once
	uses    []string      // parts that no other fault touches meanwhile
	// do has it happen, and returns how it is mended, nil if there is nothing to mend. It runs on the test's goroutine.
	do func(c *chaos, f fault) (mend func())
}

const (
	gapMin = 300 * time.Millisecond
	gapMax = 6 * time.Second
)

// schedule draws so many faults for boxes. The same arguments give the same faults.
func schedule(kinds []faultKind, seed uint64, boxes, rounds int) []fault {
	r := rand.New(rand.NewPCG(seed, 0))
	between := func(low, high time.Duration) time.Duration { return low + time.Duration(r.Int64N(int64(high-low)+1)) }
	var lots []faultKind
	for _, kind := range kinds {
		for range kind.weight {
			lots = append(lots, kind)
		}
	}
	free := make(map[string]time.Duration) // when a part of a box is whole again
	var out []fault
	for at := time.Duration(0); len(out) < rounds; {
		at += between(gapMin, gapMax)
		kind := lots[r.IntN(len(lots))]
		f := fault{at: at, kind: kind.name, box: r.IntN(boxes), n: r.IntN(1000)}
		f.peer = (f.box + 1 + r.IntN(boxes-1)) % boxes
		if kind.longest > 0 {
			f.lasts = between(kind.longest/10, kind.longest)
		}
		part := func(use string) string { return fmt.Sprint(f.box, use) }
		if slices.ContainsFunc(kind.uses, func(use string) bool { return free[part(use)] >= at }) {
			continue
		}
		for _, use := range kind.uses {
			free[part(use)] = f.ends()
		}
		out = append(out, f)
	}
	return out
}

// A seed always gives the same schedule, faults do not mend each other, and none is forgotten.
func TestChaosSchedule(t *testing.T) {
	const boxes, rounds = 3, 20
	uses, seen := make(map[string][]string), make(map[string]int)
	for _, kind := range faultKinds() {
		if _, twice := uses[kind.name]; twice || kind.do == nil || kind.weight < 1 {
			t.Errorf("fault %s is there twice, or never happens", kind.name)
		}
		uses[kind.name] = kind.uses
	}
	for seed := range uint64(100) {
		plan := schedule(faultKinds(), seed, boxes, rounds)
		if again := schedule(faultKinds(), seed, boxes, rounds); !reflect.DeepEqual(plan, again) {
			t.Fatalf("seed %d: two schedules:\n%v\n%v", seed, plan, again)
		}
		if next := schedule(faultKinds(), seed+1, boxes, rounds); reflect.DeepEqual(plan, next) {
			t.Errorf("seeds %d and %d have one schedule", seed, seed+1)
		}
		if len(plan) != rounds {
			t.Fatalf("seed %d: %d faults", seed, len(plan))
		}
		for i, f := range plan {
			seen[f.kind]++
			if f.box == f.peer || max(f.box, f.peer) >= boxes || i > 0 && f.at <= plan[i-1].at {
				t.Errorf("seed %d: %v", seed, f)
			}
			for _, before := range plan[:i] {
				both := slices.ContainsFunc(uses[f.kind], func(part string) bool { return slices.Contains(uses[before.kind], part) })
				if both && f.box == before.box && f.at <= before.ends() {
					t.Errorf("seed %d: at the same time:\n%v\n%v", seed, before, f)
				}
			}
		}
	}
	for kind := range uses {
		if seen[kind] == 0 {
			t.Errorf("fault %s never happens in 100 seeds", kind)
		}
	}
}

// only returns the kinds of these names, separated by commas; all if there is none.
func only(names string) ([]faultKind, error) {
	if names == "" {
		return faultKinds(), nil
	}
	var out []faultKind
	for name := range strings.SplitSeq(names, ",") {
		all := faultKinds()
		i := slices.IndexFunc(all, func(k faultKind) bool { return k.name == name })
		if i < 0 {
			return nil, fmt.Errorf("%q names no kind of fault: give some of those in docs/reliability.md, separated by commas", name)
		}
		out = append(out, all[i])
	}
	return out, nil
}

func TestChaosSeeds(t *testing.T) {
	for text, want := range map[string][]uint64{"17": {17}, "3-5": {3, 4, 5}, "0": {0}} {
		if got, err := seedsOf(text); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %v %v", text, got, err)
		}
	}
	for _, text := range []string{"", "x", "5-3", "1-", "-1", "1-100000"} {
		if got, err := seedsOf(text); err == nil {
			t.Errorf("%q: %v", text, got)
		}
	}
}

// seedsOf returns the seeds that a text names: one, or the first and the last.
func seedsOf(text string) ([]uint64, error) {
	var first, last uint64
	if !strings.Contains(text, "-") {
		text += "-" + text
	}
	if _, err := fmt.Sscanf(text, "%d-%d", &first, &last); err != nil || last < first || last-first >= 1000 {
		return nil, fmt.Errorf("%q names no seeds: give one (17), or the first and the last (1-20), 1000 at most", text)
	}
	var out []uint64
	for seed := first; seed <= last; seed++ {
		out = append(out, seed)
	}
	return out, nil
}
