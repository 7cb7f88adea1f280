package network

import (
	"net/netip"
	"time"

	"liqo.io/agent/ifwatch"
)

// Patience is how long a link stays silent because a gateway's hardware address
// is not resolved. A router on the link answers within milliseconds; one that
// has not answered by then is not expected to.
const Patience = 5 * time.Second

// Chooser applies Rules to links as they come and go, and knows when to stop
// waiting. One goroutine may use it at a time. The zero value has no rules.
type Chooser struct {
	rules   Rules
	waiting map[wait]time.Time // since when
}

// wait is one gateway waited for.
type wait struct {
	index   int // of the link
	gateway netip.Addr
}

// NewChooser returns a Chooser for rules.
func NewChooser(rules Rules) *Chooser { return &Chooser{rules: rules} }

// SetRules replaces the rules. What was waited for long enough is not waited
// for again.
func (c *Chooser) SetRules(rules Rules) { c.rules = rules }

// Choose says what each link of the snapshot is used for, by link name. A rule
// that waits for the hardware address of a gateway keeps a link silent for no
// longer than Patience, counted for each gateway from the first call that saw it
// without one; next is when to call again because that ends, if nothing changes
// before; the zero time means never. The result only depends on the snapshot,
// the rules and how long was waited. now must not go backwards.
func (c *Chooser) Choose(snapshot ifwatch.Snapshot, now time.Time) (uses map[string]Use, next time.Time) {
	uses = make(map[string]Use, len(snapshot.Links))
	waiting := make(map[wait]time.Time)
	for _, l := range snapshot.Links {
		use := c.rules.Decide(l, false)
		until := now
		for _, gateway := range unresolved(l) {
			if !gateway.IsValid() && !use.Undecided {
				continue // nobody looks at routes, because no rule needed it so far
			}
			w := wait{l.Index, gateway}
			since, known := c.waiting[w]
			if !known {
				since = now
			}
			waiting[w] = since
			if end := since.Add(Patience); end.After(until) {
				until = end
			}
		}
		switch {
		case !use.Undecided:
		case !until.After(now):
			use = c.rules.Decide(l, true)
		case next.IsZero() || until.Before(next):
			next = until
		}
		uses[l.Name] = use
	}
	c.waiting = waiting
	return uses, next
}
