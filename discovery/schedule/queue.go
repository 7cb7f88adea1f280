package schedule

// queue is a container/heap of jobs, the one that is due first on top, in which each
// knows its place.
type queue[T any] struct {
	jobs        []*Job[T]
	newestFirst bool
}

// Len implements heap.Interface.
func (q *queue[T]) Len() int { return len(q.jobs) }

// Less implements heap.Interface.
func (q *queue[T]) Less(i, j int) bool {
	if q.newestFirst {
		i, j = j, i
	}
	return q.jobs[i].due.Before(q.jobs[j].due)
}

// Swap implements heap.Interface.
func (q *queue[T]) Swap(i, j int) {
	q.jobs[i], q.jobs[j] = q.jobs[j], q.jobs[i]
	q.jobs[i].pos, q.jobs[j].pos = i, j
}

// Push implements heap.Interface; use Schedule.Plan instead.
func (q *queue[T]) Push(x any) {
	j := x.(*Job[T])
	j.pos = len(q.jobs)
	q.jobs = append(q.jobs, j)
}

// Pop implements heap.Interface; use Schedule.Take or Schedule.Plan instead.
func (q *queue[T]) Pop() any {
	last := len(q.jobs) - 1
	j := q.jobs[last]
	q.jobs[last] = nil
	q.jobs = q.jobs[:last]
	j.heap = nil
	return j
}
