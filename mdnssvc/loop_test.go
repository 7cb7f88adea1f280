package mdnssvc

import (
	"net/netip"
	"testing"
	"time"

	"liqo.io/agent/internal/bubble"
	"liqo.io/agent/mdnssvc/wire"
)

// TestAnswerBeforeTheEnd: what a neighbour said in time counts, also if it is read only when the time is over.
func TestAnswerBeforeTheEnd(t *testing.T) {
	const ttl = 2 * time.Minute
	for name, answers := range map[string]bool{"it answers": true, "it does not": false} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				c := testCore(t)
				c.browsing = true
				c.browser.SetEnabled(time.Now(), true)
				c.setLinks(time.Now(), c.links)
				l := &loop{core: c, queue: newQueue()}
				hear := func() {
					l.queue.put([]datagram{{data: packed(t, announced(t, "_liqo._tcp", 1)), from: netip.MustParseAddrPort("10.77.0.9:5353"), to: groups[wire.IPv4], link: 2}})
				}
				hear()
				l.turn()
				if found := c.events.drain(); len(found) != 1 {
					t.Fatalf("found are %v", found)
				}
				end := time.Now().Add(ttl)
				for at := l.next(); !at.IsZero() && at.Before(end); at = l.next() {
					time.Sleep(max(minWait, time.Until(at)))
					l.turn() // it asks again, in vain
				}
				if answers {
					hear()
				}
				time.Sleep(time.Until(end) + time.Second)
				l.turn()
				if events := c.events.drain(); (len(events) == 0) != answers {
					t.Errorf("it is told of %v", events)
				}
			})
		})
	}
}
