package browser

import (
	"cmp"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"liqo.io/agent/mdnssvc/wire"
)

// DefaultMaxInstances is the number of instances kept per link when Config does
// not say.
const DefaultMaxInstances = 5000

// Config says what to browse for.
type Config struct {
	Rand    *rand.Rand // source of all randomness; required
	Service string     // service type, such as "_liqo._tcp"
	Domain  string     // such as "local"
	// MaxInstances bounds the instances kept per link, and with them all memory;
	// an instance takes about 2.5 KB, at the very most about 15. 0 means
	// DefaultMaxInstances.
	MaxInstances int
	// Remembered reports whether an instance (its plain label) is one that must
	// never be evicted. It is called while a message is received and must be
	// quick. nil means none.
	Remembered func(instance string) bool
}

// EventKind says what happened to an instance.
type EventKind uint8

// The kinds of events. For each instance on each link they come in the order
// Found, any number of Updated, Lost, and then again from the start.
const (
	Found   EventKind = iota + 1 // PTR, SRV, TXT and at least one address are known
	Updated                      // host, port, TXT or addresses are different from what was told before
	Lost                         // it is gone; Event.Reason says why
)

// String returns "found", "updated" or "lost".
func (k EventKind) String() string {
	switch k {
	case Found:
		return "found"
	case Updated:
		return "updated"
	case Lost:
		return "lost"
	}
	return "unknown"
}

// Instance is what is known about one instance of the service on one link. Its
// slices must not be changed.
type Instance struct {
	Name            string // plain text of the instance label, no escapes
	Service, Domain string // as in Config
	Link            int    // interface index
	Host            string // SRV target, a full name in presentation form
	Port            uint16
	TXT             []string // as in dns.TXT; wire.DecodeTXT reads it
	// Addrs holds the addresses heard of last first. Link-local IPv6 addresses
	// carry the interface index, in decimal, as their zone.
	Addrs  []netip.Addr
	TTL    time.Duration // smallest TTL among SRV and addresses, as their sender set it
	PTRTTL time.Duration // TTL of the PTR record, as its sender set it
}

// Event is one change. In a Lost event Instance is what was told last.
type Event struct {
	Kind     EventKind
	Instance Instance
	Reason   string // of Lost: one of the Reason constants
}

// LinkFamilies is one link to browse on.
type LinkFamilies struct {
	Index    int     // interface index
	Families [2]bool // which of wire.IPv4 and wire.IPv6 to use on it
	Off      bool    // as SetEnabled(false), on this link alone
}

// lateAfter is how late a timer may be before it is taken as a sign that nobody
// called Due for a while.
const lateAfter = time.Second

// tardyAfter is the same for the last second of a record that is about to end, most of which
// an answer may take.
const tardyAfter = 100 * time.Millisecond

// Browser is the querier and its cache. It starts with no links and switched
// off. All times given to it must come from one clock that does not go back.
// One goroutine may use it at a time.
type Browser struct {
	cfg     Config
	service string // wire.Key of the service's name
	enabled bool
	links   map[int]*link
	order   []*link // by index
	timers  heap[*timer]
	now     time.Time // of the latest call

	messages uint64 // received so far

	events  []Event       // not yet returned
	out     []wire.Packet // not yet returned
	touched []*instance   // by the message being received
	hosts   []*host       // likewise
}

// New returns a Browser for one service type; see Config.
func New(cfg Config) *Browser {
	if cfg.MaxInstances <= 0 {
		cfg.MaxInstances = DefaultMaxInstances
	}
	return &Browser{
		cfg:     cfg,
		service: wire.Key(wire.ServiceName(cfg.Service, cfg.Domain)),
		links:   make(map[int]*link),
		timers:  heap[*timer]{before: func(a, b *timer) bool { return a.at.Before(b.at) }},
	}
}

// SetLinks sets the links to browse on, all of them. On a new link, or one that
// gained a family or is no longer off, queries start from the beginning;
// everything seen on a link that is no longer in use, or off, is lost, which the
// next Due or Receive tells.
func (b *Browser) SetLinks(now time.Time, links []LinkFamilies) {
	b.now = now
	want := make(map[int]LinkFamilies, len(links))
	for _, l := range links {
		if l.Families != [2]bool{} {
			want[l.Index] = l
		}
	}
	for _, l := range slices.Clone(b.order) {
		if _, keep := want[l.index]; !keep {
			l.clear(ReasonLinkGone)
			b.wakeAt(&l.timer, time.Time{})
			delete(b.links, l.index)
			b.order = slices.DeleteFunc(b.order, func(x *link) bool { return x == l })
		}
	}
	for index, w := range want {
		l := b.links[index]
		if l == nil {
			l = newLink(b, index)
			b.links[index] = l
			b.order = append(b.order, l)
		}
		gained := w.Families[0] && !l.families[0] || w.Families[1] && !l.families[1] || l.off
		silenced := w.Off && !l.off
		l.families, l.off = w.Families, w.Off
		switch {
		case silenced:
			l.silence()
		case gained && b.browses(l):
			l.start(now)
		}
	}
	slices.SortFunc(b.order, func(x, y *link) int { return cmp.Compare(x.index, y.index) })
}

// SetEnabled switches browsing on or off. Switched off, nothing is asked and
// nothing taken in, and everything is lost, which the next Due or Receive tells.
func (b *Browser) SetEnabled(now time.Time, on bool) {
	b.now = now
	if on == b.enabled {
		return
	}
	b.enabled = on
	for _, l := range b.order {
		switch {
		case !on:
			l.silence()
		case b.browses(l):
			l.start(now)
		}
	}
}

// Restart begins to query again on all links. Nothing that was found is lost by it.
func (b *Browser) Restart(now time.Time) {
	b.now = now
	for _, l := range b.order {
		if b.browses(l) {
			l.start(now)
		}
	}
}

// browses reports whether browsing is switched on, here and everywhere.
func (b *Browser) browses(l *link) bool { return b.enabled && !l.off }

// Next returns when Due wants to be called; zero means not before something else
// happens. Any call but Instances may change it.
func (b *Browser) Next() time.Time {
	switch {
	case len(b.events) > 0:
		return b.now
	case b.timers.len() > 0:
		return b.timers.top().at
	}
	return time.Time{}
}

// Due does what is due at now. It returns the packets to send, all at once and
// in this order, and what happened. Packets may share records and must not be
// changed; one with many known answers is larger than a datagram and is to be
// split with wire.EncodeAll, its parts sent back to back, because whoever waits
// for the rest of a truncated query waits less than half a second (RFC 6762
// section 7.2).
func (b *Browser) Due(now time.Time) ([]wire.Packet, []Event) {
	b.now = now
	for b.timers.len() > 0 {
		t := b.timers.top()
		if t.at.After(now) {
			break
		}
		b.timers.remove(t)
		t.owner.wake(now, now.Sub(t.at))
	}
	out := b.out
	b.out = nil
	return out, b.takeEvents()
}

// Instances returns every instance that is found and not lost, ordered by link
// and name.
func (b *Browser) Instances() []Instance {
	var out []Instance
	for _, l := range b.order {
		from := len(out)
		for _, i := range l.all {
			if i.found {
				out = append(out, i.snapshot())
			}
		}
		slices.SortFunc(out[from:], func(x, y Instance) int { return cmp.Compare(x.Name, y.Name) })
	}
	return out
}

func (b *Browser) emit(kind EventKind, i Instance, reason string) {
	b.events = append(b.events, Event{Kind: kind, Instance: i, Reason: reason})
}

func (b *Browser) takeEvents() []Event {
	events := b.events
	b.events = nil
	return events
}

func (b *Browser) remembered(label string) bool {
	return b.cfg.Remembered != nil && b.cfg.Remembered(label)
}

// between returns a random duration from a up to b.
func (b *Browser) between(from, to time.Duration) time.Duration {
	return from + time.Duration(b.cfg.Rand.Int64N(int64(to-from)))
}

// wakeAt sets a timer, or stops it when at is zero. What is due already waits a
// moment, so that Due always ends.
func (b *Browser) wakeAt(t *timer, at time.Time) {
	if at.IsZero() {
		b.timers.remove(t)
		return
	}
	if soonest := b.now.Add(time.Millisecond); at.Before(soonest) {
		at = soonest
	}
	t.at = at
	if t.place == outside {
		b.timers.push(t)
	} else {
		b.timers.fix(t)
	}
}
