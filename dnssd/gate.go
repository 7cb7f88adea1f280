package dnssd

import (
	"context"
	"slices"
	"sync"
)

// gate bounds how many questions are under way at once, over all domains, and shares
// the places: a domain gets at most most of them, and a place that becomes free goes to
// the domain that has the fewest.
type gate struct {
	most int // places for one domain

	mu      sync.Mutex
	free    int
	inside  map[string]int // by domain, never 0
	waiting []*visitor     // those who came first are first
}

type visitor struct {
	domain string
	in     chan struct{} // closed when the place is theirs
}

// newGate has room for n questions. One domain leaves a quarter of it to the others.
func newGate(n int) *gate {
	return &gate{most: max(1, n-n/4), free: n, inside: make(map[string]int)}
}

// enter waits for a place. With a nil error leave must be called.
func (g *gate) enter(ctx context.Context, domain string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	v := &visitor{domain: domain, in: make(chan struct{})}
	g.mu.Lock()
	g.waiting = append(g.waiting, v)
	g.admit()
	g.mu.Unlock()
	select {
	case <-v.in:
		return nil
	case <-ctx.Done():
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if i := slices.Index(g.waiting, v); i >= 0 {
		g.waiting = slices.Delete(g.waiting, i, i+1)
		return ctx.Err()
	}
	return nil // admitted meanwhile
}

func (g *gate) leave(domain string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.free++
	if g.inside[domain]--; g.inside[domain] == 0 {
		delete(g.inside, domain)
	}
	g.admit()
}

// admit lets in whoever may go in. Locks held: mu.
func (g *gate) admit() {
	for g.free > 0 {
		best := -1
		for i, v := range g.waiting {
			if n := g.inside[v.domain]; n < g.most && (best < 0 || n < g.inside[g.waiting[best].domain]) {
				best = i
			}
		}
		if best < 0 {
			return
		}
		v := g.waiting[best]
		g.waiting = slices.Delete(g.waiting, best, best+1)
		g.free--
		g.inside[v.domain]++
		close(v.in)
	}
}
