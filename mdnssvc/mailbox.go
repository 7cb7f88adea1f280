package mdnssvc

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"liqo.io/agent/mdnssvc/browser"
	"liqo.io/agent/mdnssvc/responder"
)

// maxReconfirm bounds the reconfirmations that wait for the loop.
const maxReconfirm = 4096

// instanceKey is an instance on a link, as consumers name it.
type instanceKey struct {
	link, instance string
}

// requests is what was asked for since the loop last looked: the latest of each
// kind.
type requests struct {
	setLinks     bool // links is to be taken, also when empty
	links        []wantedLink
	announce     bool // announcement is to be taken, also when nil
	announcement *responder.Announcement
	browse       *bool
	reconfirm    map[instanceKey]struct{}
	asking       chan struct{} // to be closed as a sign of life; nil: nobody waits for one
}

// inbox carries requests to the loop.
type inbox struct {
	ready chan struct{} // capacity 1: there are requests

	mu   sync.Mutex
	next requests
}

func newInbox() *inbox {
	return &inbox{ready: make(chan struct{}, 1), next: emptyRequests()}
}

func emptyRequests() requests { return requests{reconfirm: make(map[instanceKey]struct{})} }

func (i *inbox) put(change func(*requests)) {
	i.mu.Lock()
	change(&i.next)
	i.mu.Unlock()
	signal(i.ready)
}

func (i *inbox) take() requests {
	i.mu.Lock()
	defer i.mu.Unlock()
	r := i.next
	i.next = emptyRequests()
	return r
}

// Event is one change of an instance on a link.
type Event struct {
	Kind browser.EventKind
	// Instance is as the browser tells it, but link-local addresses carry the
	// interface name as their zone, and addresses that cannot be reached over
	// the link are left out. Of a Lost event, it is what was told last.
	Instance browser.Instance
	Link     string // interface name
	Reason   string // of Lost: one of the browser's Reason constants
}

// outbox carries events to their consumer: the latest per instance, so that its
// size is bounded by what the browser keeps, plus what the consumer still
// believes to be there.
type outbox struct {
	ready chan struct{} // capacity 1: there are events

	mu      sync.Mutex
	seq     uint64
	pending map[instanceKey]pendingEvent
	told    map[instanceKey]struct{} // the consumer believes these to be there
}

type pendingEvent struct {
	seq uint64 // orders events by the first change not yet told
	Event
}

func newOutbox() *outbox {
	return &outbox{
		ready:   make(chan struct{}, 1),
		pending: make(map[instanceKey]pendingEvent),
		told:    make(map[instanceKey]struct{}),
	}
}

func (o *outbox) put(e Event) {
	key := instanceKey{e.Link, e.Instance.Name}
	o.mu.Lock()
	defer o.mu.Unlock()
	p, waiting := o.pending[key]
	_, told := o.told[key]
	if e.Kind == browser.Lost && !told {
		delete(o.pending, key)
		return
	}
	if e.Kind != browser.Lost {
		if e.Kind = browser.Found; told {
			e.Kind = browser.Updated
		}
	}
	if p.Event = e; !waiting {
		o.seq++
		p.seq = o.seq
	}
	o.pending[key] = p
	signal(o.ready)
}

func (o *outbox) take(ctx context.Context) ([]Event, error) {
	for {
		if events := o.drain(); len(events) > 0 {
			return events, nil
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-o.ready:
		}
	}
}

func (o *outbox) drain() []Event {
	o.mu.Lock()
	defer o.mu.Unlock()
	waiting := make([]pendingEvent, 0, len(o.pending))
	for key, p := range o.pending {
		waiting = append(waiting, p)
		if p.Kind == browser.Lost {
			delete(o.told, key)
		} else {
			o.told[key] = struct{}{}
		}
	}
	clear(o.pending)
	slices.SortFunc(waiting, func(a, b pendingEvent) int { return cmp.Compare(a.seq, b.seq) })
	events := make([]Event, len(waiting))
	for i, p := range waiting {
		events[i] = p.Event
	}
	return events
}

// signal makes sure that an element waits in a channel of capacity 1.
func signal(ready chan<- struct{}) {
	select {
	case ready <- struct{}{}:
	default:
	}
}
