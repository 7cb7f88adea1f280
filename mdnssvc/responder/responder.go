package responder

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/miekg/dns"

	"liqo.io/agent/mdnssvc/wire"
)

// Announcement is one service instance on one host, as it is wished to be
// announced; conflicts may change the names in use.
type Announcement struct {
	Instance string      // plain text of the instance label, 1 to 63 bytes of UTF-8
	Service  string      // such as "_liqo._tcp"
	Domain   string      // such as "local"
	Host     string      // plain text of the host's single label, without domain
	Port     uint16      // not 0
	TXT      [][2]string // keys and values (RFC 6763 section 6)
	Subtypes []string    // plain text of each subtype's label (RFC 6763 section 7.1)
	// TTL is how long others may keep the records that neither hold nor name a
	// host (PTR, TXT and the NSEC record beside it), a whole number of seconds; 0
	// is the 75 minutes of RFC 6762 section 10. The others (SRV, A, AAAA, the
	// host's NSEC) have the 120 s of that section, or this when it is less.
	TTL time.Duration
}

// Validate returns an error that says what about a cannot be announced.
func (a *Announcement) Validate() error {
	var errs []error
	for _, l := range append([]string{a.Instance, a.Host}, a.Subtypes...) {
		if l == "" || len(l) > maxLabel || !utf8.ValidString(l) {
			errs = append(errs, fmt.Errorf("label %q: want 1 to %d bytes of UTF-8", l, maxLabel))
		}
		if strings.ContainsFunc(l, func(c rune) bool { return c < ' ' || c == 0x7f }) {
			errs = append(errs, fmt.Errorf("label %q: want no control characters (RFC 6763 section 4.1.1)", l))
		}
	}
	if _, service, domain, ok := wire.SplitInstance(wire.InstanceName("x", a.Service, a.Domain)); !ok ||
		service != strings.Trim(a.Service, ".") || domain != strings.Trim(a.Domain, ".") {
		errs = append(errs, fmt.Errorf("service %q in domain %q: want a service such as _liqo._tcp and a domain such as local", a.Service, a.Domain))
	}
	if a.Port == 0 {
		errs = append(errs, errors.New("port is 0; announce the port the service listens on"))
	}
	if a.TTL != a.TTL.Truncate(time.Second) || a.TTL < 0 || a.TTL > maxTTL {
		errs = append(errs, fmt.Errorf("TTL %s: want whole seconds, at most %s", a.TTL, maxTTL))
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	// Whatever else a packet cannot hold shows when one is made.
	z, err := newZone(a, a.Host, a.Instance, []netip.Prefix{netip.MustParsePrefix("192.0.2.1/24")})
	if err != nil {
		return err
	}
	_, err = wire.Encode(response(z.records, nil, false))
	return err
}

func (a *Announcement) clone() *Announcement {
	c := *a
	c.TXT = slices.Clone(a.TXT)
	c.Subtypes = slices.Clone(a.Subtypes)
	return &c
}

// LinkAddrs is one link: the addresses that are announced there, and nowhere
// else, and the IP versions mDNS is spoken over.
type LinkAddrs struct {
	Index    int
	Addrs    []netip.Prefix
	Families [2]bool // indexed by wire.Family
}

// Config is what a Responder needs beside packets and time.
type Config struct {
	// Rand draws the delays of RFC 6762. nil means one seeded by the runtime.
	Rand *rand.Rand
	// OnConflict is told the full name that somebody else claims, once for each
	// conflict. OnRename is told the new instance label after a rename. Both may
	// be nil, run inside Receive, and must not call the Responder.
	OnConflict func(name string, now time.Time)
	OnRename   func(instance string)
}

// Responder is an RFC 6762 responder for one Announcement as a state machine:
// time and packets go in, packets come out. It is not safe for concurrent use.
// Times passed to it must not go backwards.
type Responder struct {
	cfg       Config
	wanted    *Announcement
	renames   [numClaims]int // how often each name had to be changed
	links     []LinkAddrs    // sorted by index
	convs     []*conversation
	mine      map[string]time.Time // recordID -> when it stops counting as ours; zero: it is ours
	conflicts []time.Time          // the latest, oldest first
	slow      bool                 // there were too many conflicts, and names are still being fought for
	truncated []*truncatedQuery
	unicasts  []*unicast
	allowance bucket
	outbox    []wire.Packet // to be sent at once
	outboxAt  time.Time
}

// New returns a Responder that announces nothing on no link.
func New(cfg Config) *Responder {
	if cfg.Rand == nil {
		cfg.Rand = rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
	}
	return &Responder{cfg: cfg, mine: make(map[string]time.Time)}
}

// SetAnnouncement replaces what is announced. nil withdraws it, with goodbyes
// (RFC 6762 section 10.1). A changed name is probed for; changed data under
// names that stay is announced again without probing (section 8.4). The names a
// conflict led to are kept as long as the wished ones stay the same. An
// announcement that cannot be announced is refused with an error and changes
// nothing.
func (r *Responder) SetAnnouncement(now time.Time, a *Announcement) error {
	if a != nil {
		if err := a.Validate(); err != nil {
			return fmt.Errorf("announce %q: %w", a.Instance, err)
		}
		a = a.clone()
	}
	old, renames := r.wanted, r.renames
	switch {
	case a == nil, old == nil, a.Domain != old.Domain:
		r.renames = [numClaims]int{}
	default:
		if a.Host != old.Host {
			r.renames[hostClaim] = 0
		}
		if a.Instance != old.Instance || a.Service != old.Service {
			r.renames[instanceClaim] = 0
		}
	}
	r.wanted = a
	if err := r.refresh(now); err != nil {
		r.wanted, r.renames = old, renames
		return fmt.Errorf("announce %q: %w", a.Instance, err)
	}
	return nil
}

// SetLinks replaces the set of links. On a link or IP version that is new,
// names are probed for and announced; where addresses changed they are
// announced again (RFC 6762 section 8.4), those of a kind that is gone with
// goodbyes; a link without addresses gets goodbyes for everything; a link, or
// IP version, that is gone is forgotten.
func (r *Responder) SetLinks(now time.Time, links []LinkAddrs) error {
	old := r.links
	r.links = nil
	for _, l := range links {
		l.Addrs = slices.Clone(l.Addrs)
		r.links = append(r.links, l)
	}
	slices.SortFunc(r.links, func(a, b LinkAddrs) int { return a.Index - b.Index })
	if err := r.refresh(now); err != nil {
		r.links = old
		return err
	}
	return nil
}

// Restart probes for all names again and announces everything, as at the start: for
// a machine that was away from its links without noticing (RFC 6762 section 8).
func (r *Responder) Restart(now time.Time) {
	for _, c := range r.convs {
		if c.zone == nil {
			continue
		}
		for k := range numClaims {
			r.startProbing(now, c, k)
		}
	}
}

// refresh brings every conversation in line with what is wanted, or returns an
// error and changes nothing.
func (r *Responder) refresh(now time.Time) error {
	zones := make([]*zone, len(r.links))
	if r.wanted != nil {
		for i, l := range r.links {
			if len(l.Addrs) == 0 {
				continue
			}
			z, err := newZone(r.wanted, r.label(hostClaim), r.label(instanceClaim), l.Addrs)
			if err != nil {
				return fmt.Errorf("records for link %d: %w", l.Index, err)
			}
			zones[i] = z
		}
	}
	r.rememberOurs(now, zones)
	var convs []*conversation
	for i, l := range r.links {
		for _, f := range []wire.Family{wire.IPv4, wire.IPv6} {
			if !l.Families[f] {
				continue
			}
			c := r.conversation(l.Index, f)
			if c == nil {
				c = newConversation(l.Index, f)
			}
			convs = append(convs, c)
			r.adopt(now, c, zones[i])
		}
	}
	r.convs = convs
	gone := func(c *conversation) bool { return !slices.Contains(convs, c) }
	r.truncated = slices.DeleteFunc(r.truncated, func(x *truncatedQuery) bool { return gone(x.conv) })
	r.unicasts = slices.DeleteFunc(r.unicasts, func(u *unicast) bool { return gone(u.conv) })
	r.outbox = slices.DeleteFunc(r.outbox, func(p wire.Packet) bool { return r.conversation(p.Link, p.Family) == nil })
	return nil
}

// rememberOurs updates which records are ours: those of the zones, and for a
// while those of earlier ones.
func (r *Responder) rememberOurs(now time.Time, zones []*zone) {
	for id, until := range r.mine {
		switch {
		case until.IsZero():
			r.mine[id] = now.Add(pastOurs)
		case !until.After(now):
			delete(r.mine, id)
		}
	}
	for _, z := range zones {
		if z != nil {
			for id := range z.byID {
				r.mine[id] = time.Time{}
			}
		}
	}
}

func (r *Responder) conversation(link int, f wire.Family) *conversation {
	for _, c := range r.convs {
		if c.link == link && c.family == f {
			return c
		}
	}
	return nil
}

// Receive takes one message. The reason says why it was ignored; "" means that
// it was understood, whether or not there is anything to say to it.
func (r *Responder) Receive(now time.Time, in wire.Received) wire.DropReason {
	c := r.conversation(in.Link, in.Family)
	switch {
	case c == nil:
		return DropUnknownLink
	case !in.ToMulticast && !r.onLink(in.Link, in.From.Addr()):
		return DropOffLink
	case in.Msg.Response && in.From.Port() != wire.Port, in.From.Port() == 0:
		return DropSourcePort
	case c.zone == nil:
		return ""
	case in.Msg.Response:
		r.response(now, c, in)
		return ""
	}
	return r.query(now, c, in)
}

// What Receive refuses.
const (
	DropUnknownLink      wire.DropReason = "unknown-link"       // a link, or IP version, we do not speak on
	DropOffLink          wire.DropReason = "off-link"           // from beyond the link, and sent or to be answered by unicast (RFC 6762 sections 5.5 and 11)
	DropSourcePort       wire.DropReason = "source-port"        // a response not from port 5353 (section 6), or anything from port 0
	DropTooManyQuestions wire.DropReason = "too-many-questions" // a legacy query whose questions we would have to echo
	DropBusy             wire.DropReason = "busy"               // more unicast answers asked for than we are willing to send
)

// onLink reports whether an address belongs to a link (RFC 6762 section 11).
func (r *Responder) onLink(index int, a netip.Addr) bool {
	a = a.Unmap().WithZone("")
	if a.IsLinkLocalUnicast() {
		return true
	}
	for _, l := range r.links {
		if l.Index != index {
			continue
		}
		for _, p := range l.Addrs {
			if p.Masked().Contains(a) {
				return true
			}
		}
	}
	return false
}

// Next returns when Due has something to do, or the zero time for never.
func (r *Responder) Next() time.Time {
	var next time.Time
	sooner := func(t time.Time) {
		if !t.IsZero() && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	if len(r.outbox) > 0 {
		sooner(r.outboxAt)
	}
	for _, x := range r.truncated {
		sooner(x.due)
	}
	for _, u := range r.unicasts {
		sooner(u.due)
	}
	for _, c := range r.convs {
		sooner(c.next())
	}
	return next
}

// Due does what is to be done by now and returns the packets to send.
func (r *Responder) Due(now time.Time) []wire.Packet {
	r.endTruncated(now)
	for _, c := range r.convs {
		r.probe(now, c)
		r.announce(now, c)
		r.flush(now, c)
	}
	r.sendUnicasts(now)
	r.slow = r.slow && !r.Established()
	out := r.outbox
	r.outbox = nil
	return out
}

// Goodbye withdraws everything at once and returns the last packets to send
// (RFC 6762 section 10.1). It is SetAnnouncement(nil) for a responder that will
// not be asked for Due again.
func (r *Responder) Goodbye(now time.Time) []wire.Packet {
	r.wanted = nil
	for _, c := range r.convs {
		r.adopt(now, c, nil)
	}
	r.truncated, r.unicasts = nil, nil
	out := r.outbox
	r.outbox = nil
	return out
}

// Established reports whether the names in use were won on every link, of which
// there is one at least.
func (r *Responder) Established() bool {
	active := false
	for _, c := range r.convs {
		if c.zone == nil {
			continue
		}
		active = true
		for _, s := range c.claims {
			if s != held {
				return false
			}
		}
	}
	return active
}

// Instance returns the plain text of the instance label in use, which differs
// from the wished one after a conflict; "" when nothing is announced.
func (r *Responder) Instance() string {
	if r.wanted == nil {
		return ""
	}
	return r.label(instanceClaim)
}

// emit queues a message; to is the zero value for the multicast group.
func (r *Responder) emit(now time.Time, c *conversation, m *dns.Msg, to netip.AddrPort) {
	if len(r.outbox) == 0 {
		r.outboxAt = now
	}
	r.outbox = append(r.outbox, wire.Packet{Msg: m, Link: c.link, Family: c.family, Unicast: to})
}

// between draws a delay from [low, high].
func (r *Responder) between(low, high time.Duration) time.Duration {
	return low + time.Duration(r.cfg.Rand.Int64N(int64(high-low)+1))
}
