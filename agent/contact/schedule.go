package contact

import (
	"container/heap"
	"time"

	"liqo.io/agent/peer"
)

// side says who gave a lead.
type side int

const (
	persons side = iota // by name, in the configuration or on the command line
	domains             // anybody who writes into a zone that we look into
	sides
)

// sideOf returns who gave the leads with a key.
func sideOf(k peer.Key) side {
	if k.Source == peer.Manual {
		return persons
	}
	return domains
}

// lister is what the turns are taken by: all persons, or one domain.
type lister struct {
	source peer.Source
	domain string
}

// schedule says which lead is asked next. A zone can list thousands of places that
// keep an attempt busy until its time is over, so persons go first, each side has
// attempts that the other cannot hold, and of the domains that have something to
// ask the one goes first that holds the fewest attempts and had to wait longest.
type schedule struct {
	groups   map[lister]*group
	parallel int
	limit    int // attempts that one side may hold
	running  [sides]int
	all      int // attempts under way on both sides
	turn     uint64
}

// group is the leads of one lister that wait for their turn.
type group struct {
	lister  lister
	side    side
	fresh   queue // not asked since they were set, or somebody wants to know
	again   queue
	running int
	turn    uint64 // when it last had one
}

func newSchedule(parallel int) schedule {
	return schedule{
		groups: make(map[lister]*group), parallel: parallel, limit: max(1, parallel-max(1, parallel/4)),
	}
}

// plan has a lead asked at due; the zero time takes it off the schedule.
func (s *schedule) plan(e *entry, due time.Time) {
	if e.queue != nil {
		heap.Remove(e.queue, e.pos)
	}
	e.due = due
	if due.IsZero() {
		s.tidy(s.group(e))
		return
	}
	g := s.group(e)
	e.queue = &g.again
	if e.fresh {
		e.queue = &g.fresh
	}
	heap.Push(e.queue, e)
}

func (s *schedule) group(e *entry) *group {
	name := lister{source: e.key.Source, domain: e.key.Domain}
	g := s.groups[name]
	if g == nil {
		g = &group{lister: name, side: sideOf(e.key)}
		s.groups[name] = g
	}
	return g
}

// tidy forgets a group of which nothing is left.
func (s *schedule) tidy(g *group) {
	if len(g.fresh)+len(g.again)+g.running == 0 {
		delete(s.groups, g.lister)
	}
}

// free reports whether a side may have one more attempt.
func (s *schedule) free(of side) bool { return s.all < s.parallel && s.running[of] < s.limit }

// next returns when take will have something; false when that is not known.
func (s *schedule) next() (time.Time, bool) {
	var next time.Time
	for _, g := range s.groups {
		if !s.free(g.side) {
			continue
		}
		for _, q := range []queue{g.fresh, g.again} {
			if len(q) > 0 {
				next = earlier(next, q[0].due)
			}
		}
	}
	return next, !next.IsZero()
}

// take returns a lead that is due and takes it off the schedule; nil when there is
// none, or no room for its attempt.
func (s *schedule) take(now time.Time) *entry {
	var best *group
	for _, g := range s.groups {
		if s.free(g.side) && g.due(now) != nil && (best == nil || g.before(best)) {
			best = g
		}
	}
	if best == nil {
		return nil
	}
	s.turn++
	best.turn = s.turn
	return heap.Pop(best.due(now)).(*entry)
}

// due returns the queue of g whose first lead is due.
func (g *group) due(now time.Time) *queue {
	for _, q := range []*queue{&g.fresh, &g.again} {
		if len(*q) > 0 && !(*q)[0].due.After(now) {
			return q
		}
	}
	return nil
}

// before reports whether g goes before another group.
func (g *group) before(o *group) bool {
	switch {
	case g.side != o.side:
		return g.side < o.side
	case g.running != o.running:
		return g.running < o.running
	}
	return g.turn < o.turn
}

// start counts an attempt for a lead that was taken.
func (s *schedule) start(a *attempt) {
	a.group = s.group(a.entry)
	a.group.running++
	s.running[a.group.side]++
	s.all++
}

// done takes note that an attempt has ended.
func (s *schedule) done(a *attempt) {
	a.group.running--
	s.running[a.group.side]--
	s.all--
	s.tidy(a.group)
}

// queue is a container/heap of leads, the one that is due first on top, in which
// each knows its place.
type queue []*entry

// Len implements heap.Interface.
func (q queue) Len() int { return len(q) }

// Less implements heap.Interface.
func (q queue) Less(i, j int) bool { return q[i].due.Before(q[j].due) }

// Swap implements heap.Interface.
func (q queue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].pos, q[j].pos = i, j
}

// Push implements heap.Interface; use schedule.plan instead.
func (q *queue) Push(x any) {
	e := x.(*entry)
	e.pos = len(*q)
	*q = append(*q, e)
}

// Pop implements heap.Interface; use schedule.take instead.
func (q *queue) Pop() any {
	last := len(*q) - 1
	e := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	e.queue = nil
	return e
}
