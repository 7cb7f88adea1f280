package schedule

import (
	"container/heap"
	"context"
	"time"
)

// Budget bounds the probes under way of the lanes that share it.
type Budget struct {
	parent         *Budget
	limit, running int
}

// NewBudget returns a Budget of limit probes, at least one, which count for its parent,
// too; nil: it has none.
func NewBudget(parent *Budget, limit int) *Budget {
	return &Budget{parent: parent, limit: max(1, limit)}
}

func (b *Budget) free() bool {
	for ; b != nil; b = b.parent {
		if b.running >= b.limit {
			return false
		}
	}
	return true
}

func (b *Budget) add(n int) {
	for ; b != nil; b = b.parent {
		b.running += n
	}
}

// Lane is where jobs wait for their turn together. Two Lanes that are equal are the
// same.
type Lane struct {
	// Rank orders lanes: of those that may have one more probe the lowest goes first.
	Rank int
	// Name tells lanes of one rank apart.
	Name string
	// Budget is what the lane may have under way.
	Budget *Budget
	// NewestFirst has jobs go the other way round: what came last. All of them are to be due
	// when they are planned; one that is due later would have the others wait for it.
	NewestFirst bool
}

// Job is what is probed again and again. It is part of whatever it is a job for, and
// belongs to a Schedule as soon as that has planned it.
type Job[T any] struct {
	// Of is what the job is for.
	Of T
	// First has the job go before those of its lane that had their turn.
	First bool
	// Again: it is to be probed once more as soon as the probe under way has ended.
	Again bool

	due   time.Time
	probe *Probe[T]
	lane  *lane[T]
	heap  *queue[T] // nil: it does not wait
	pos   int       // in heap
}

// Due returns when the job is probed next; zero: never, or it is being probed.
func (j *Job[T]) Due() time.Time { return j.due }

// Probing reports whether a probe is under way whose outcome counts.
func (j *Job[T]) Probing() bool { return j.probe != nil }

// Stop gives up the probe that is under way: how it ends does not count.
func (j *Job[T]) Stop() {
	if j.probe != nil {
		j.probe.Cancel()
		j.probe, j.Again = nil, false
	}
}

// Probe is one look at what a job is for. It holds its place until Release or Done.
type Probe[T any] struct {
	*Job[T]
	// Cancel ends the probe early. Whoever performs the probe sets it before anything
	// else.
	Cancel context.CancelFunc
	lane   *lane[T]
}

// lane is a Lane with the jobs in it.
type lane[T any] struct {
	Lane
	first   queue[T]
	rest    queue[T]
	running int
	turn    uint64 // when it last had one
}

// Schedule says what is probed next. It is not for several goroutines at once.
type Schedule[T any] struct {
	lanes map[Lane]*lane[T]
	turn  uint64
}

// New returns a Schedule without jobs.
func New[T any]() *Schedule[T] { return &Schedule[T]{lanes: make(map[Lane]*lane[T])} }

// Lanes returns how many lanes have a job or a probe.
func (s *Schedule[T]) Lanes() int { return len(s.lanes) }

func (s *Schedule[T]) lane(in Lane) *lane[T] {
	l := s.lanes[in]
	if l == nil {
		l = &lane[T]{Lane: in}
		l.rest.newestFirst = in.NewestFirst
		s.lanes[in] = l
	}
	return l
}

// tidy forgets a lane in which nothing is left.
func (s *Schedule[T]) tidy(l *lane[T]) {
	if l.first.Len()+l.rest.Len()+l.running == 0 && s.lanes[l.Lane] == l {
		delete(s.lanes, l.Lane)
	}
}

// Plan has a job probed at due, in a lane; the zero time takes it off the schedule.
func (s *Schedule[T]) Plan(j *Job[T], in Lane, due time.Time) {
	before := j.lane
	if j.heap != nil {
		heap.Remove(j.heap, j.pos)
	}
	if j.due = due; !due.IsZero() {
		j.lane = s.lane(in)
		j.heap = &j.lane.rest
		if j.First {
			j.heap = &j.lane.first
		}
		heap.Push(j.heap, j)
	}
	if before != nil {
		s.tidy(before)
	}
}

// Next returns when Take will have something; false when that is not known.
func (s *Schedule[T]) Next() (time.Time, bool) {
	var next time.Time
	for _, l := range s.lanes {
		if !l.Budget.free() {
			continue
		}
		for _, q := range [...]*queue[T]{&l.first, &l.rest} {
			if q.Len() > 0 && (next.IsZero() || q.jobs[0].due.Before(next)) {
				next = q.jobs[0].due
			}
		}
	}
	return next, !next.IsZero()
}

// Take returns a job that is due, and takes it off the schedule; nil when there is
// none, or no probe for it. Lanes go by rank. Of several of one rank the one goes first
// that has the fewest probes under way, and had to wait longest.
func (s *Schedule[T]) Take(now time.Time) *Job[T] {
	var best *lane[T]
	for _, l := range s.lanes {
		if l.Budget.free() && l.due(now) != nil && (best == nil || l.before(best)) {
			best = l
		}
	}
	if best == nil {
		return nil
	}
	s.turn++
	best.turn = s.turn
	j := heap.Pop(best.due(now)).(*Job[T])
	j.due, j.First = time.Time{}, false
	return j
}

// due returns the queue of l whose first job is due.
func (l *lane[T]) due(now time.Time) *queue[T] {
	for _, q := range [...]*queue[T]{&l.first, &l.rest} {
		if q.Len() > 0 && !q.jobs[0].due.After(now) {
			return q
		}
	}
	return nil
}

// before reports whether l goes before another lane.
func (l *lane[T]) before(o *lane[T]) bool {
	switch {
	case l.Rank != o.Rank:
		return l.Rank < o.Rank
	case l.running != o.running:
		return l.running < o.running
	}
	return l.turn < o.turn
}

// Start begins a probe of a job that was taken.
func (s *Schedule[T]) Start(j *Job[T]) *Probe[T] {
	p := &Probe[T]{Job: j, lane: j.lane}
	j.probe, j.Again = p, false
	p.lane.running++
	p.lane.Budget.add(1)
	return p
}

// Pass is for a job that was taken and needs no probe.
func (s *Schedule[T]) Pass(j *Job[T]) { s.tidy(j.lane) }

// Release gives the place of a probe back, which has ended.
func (s *Schedule[T]) Release(p *Probe[T]) {
	p.lane.running--
	p.lane.Budget.add(-1)
	s.tidy(p.lane)
}

// Done releases a probe, and reports whether its outcome counts: that of one that was
// stopped does not.
func (s *Schedule[T]) Done(p *Probe[T]) bool {
	s.Release(p)
	if p.Job.probe != p {
		return false
	}
	p.Job.probe = nil
	return true
}

// Abandon has a job forget the probe that is under way, and reports whether one was.
func (j *Job[T]) Abandon() bool {
	was := j.probe != nil
	j.probe = nil
	return was
}
