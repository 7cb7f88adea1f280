package dnssd

import (
	"context"
	"sync"

	"liqo.io/agent/dnssd/resolver"
)

// Lookups returns how many questions were asked since New, by what came of them. It
// may be called at any time.
func (p *Poller) Lookups() map[resolver.Outcome]uint64 { return p.asked.all() }

// tallies counts answers by outcome.
type tallies struct {
	mu     sync.Mutex
	counts map[resolver.Outcome]uint64
}

func (t *tallies) count(o resolver.Outcome) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.counts == nil {
		t.counts = make(map[resolver.Outcome]uint64)
	}
	if rank(o) == 0 && !o.Conclusive() {
		o = resolver.BadAnswer // a Resolver's own word must not make a name of its own
	}
	t.counts[o]++
}

func (t *tallies) all() map[resolver.Outcome]uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := make(map[resolver.Outcome]uint64, len(t.counts))
	for o, n := range t.counts {
		out[o] = n
	}
	return out
}

// counting is a Resolver whose answers are counted.
type counting struct {
	Resolver
	into *tallies
}

// Lookup implements Resolver.
func (c counting) Lookup(ctx context.Context, name string, qtype uint16) resolver.Answer {
	answer := c.Resolver.Lookup(ctx, name, qtype)
	c.into.count(answer.Outcome)
	return answer
}
