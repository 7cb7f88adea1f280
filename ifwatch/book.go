package ifwatch

import (
	"bytes"
	"net"
	"slices"
	"time"
)

// How often a gateway whose hardware address is not known is sent something
// that makes the kernel ask for it: in quick succession when its route is new,
// because whoever follows gateways waits for it, and then rarely.
const (
	askQuickly = time.Second
	askedNew   = 5 * time.Second // how long a route is new
	askRarely  = time.Minute
	// rememberMAC is how long a gateway that no longer answers keeps its hardware
	// address: longer than a router takes to restart.
	rememberMAC = 10 * time.Minute
)

// book is what is known about gateways beyond what one look at the kernel's
// tables shows. It does no I/O. Run owns it.
type book struct {
	gateways map[gatewayKey]*entry
	// doubtful are neighbours that the kernel kept although the link lost its
	// carrier (arp_evict_nocarrier and its like are off), and when it last had
	// none: until they are confirmed they may be from another network.
	doubtful map[gatewayKey]time.Time
}

// entry is one gateway that a default route names.
type entry struct {
	since   time.Time        // it has been there
	mac     net.HardwareAddr // as told to others
	kernel  net.HardwareAddr // as the kernel's table has it, if it can be trusted
	missing time.Time        // since when kernel is nil; zero: it is not
	asked   time.Time        // last
}

func newBook() *book {
	return &book{gateways: make(map[gatewayKey]*entry), doubtful: make(map[gatewayKey]time.Time)}
}

// look takes in what a look at the kernel's tables showed. carrier tells for
// every link whether it is up, used which links may be used; lapsed are links
// that were down for a moment since the last look.
func (b *book) look(now time.Time, carrier, used map[int]bool, lapsed func(link int) bool, routers []gatewayKey, neighbours []neighbour) {
	kernel := b.trusted(now, carrier, neighbours)
	before := b.gateways
	b.gateways = make(map[gatewayKey]*entry, len(before))
	for _, k := range routers {
		if !used[k.link] || b.gateways[k] != nil {
			continue
		}
		e := before[k]
		if e == nil || lapsed(k.link) {
			e = &entry{since: now}
		}
		b.gateways[k] = e
		switch e.kernel = kernel[k]; {
		case e.kernel != nil:
			e.mac, e.missing = e.kernel, time.Time{}
		case e.missing.IsZero():
			e.missing = now
		case !now.Before(e.missing.Add(rememberMAC)):
			e.mac = nil
		}
	}
}

// trusted returns the hardware addresses that cannot be from before a link lost
// its carrier.
func (b *book) trusted(now time.Time, carrier map[int]bool, neighbours []neighbour) map[gatewayKey]net.HardwareAddr {
	macs := make(map[gatewayKey]net.HardwareAddr)
	doubtful := make(map[gatewayKey]time.Time)
	for _, n := range neighbours {
		if n.mac == nil {
			continue
		}
		lost, doubt := b.doubtful[n.gatewayKey]
		switch {
		case n.permanent:
		case !carrier[n.link]:
			doubtful[n.gatewayKey] = now
			continue
		case doubt && !now.Add(-n.confirmed).After(lost):
			doubtful[n.gatewayKey] = lost
			continue
		}
		macs[n.gatewayKey] = n.mac
	}
	b.doubtful = doubtful
	return macs
}

// on returns the gateways of a link, sorted.
func (b *book) on(link int) []Gateway {
	var list []Gateway
	for k, e := range b.gateways {
		if k.link == link {
			list = append(list, Gateway{Addr: k.addr, MAC: e.mac})
		}
	}
	slices.SortFunc(list, func(x, y Gateway) int { return x.Addr.Compare(y.Addr) })
	return list
}

// ask returns whom to send something so that the kernel learns their hardware
// address, and notes that this is done.
func (b *book) ask(now time.Time) []gatewayKey {
	var list []gatewayKey
	for k, e := range b.gateways {
		if !e.missing.IsZero() && !now.Before(e.askAt()) {
			e.asked = now
			list = append(list, k)
		}
	}
	return list
}

// askAt returns when to ask next.
func (e *entry) askAt() time.Time {
	switch next := e.asked.Add(askQuickly); {
	case e.asked.IsZero():
		return e.since
	case next.Before(e.since.Add(askedNew)):
		return next
	}
	return e.asked.Add(askRarely)
}

// next returns when to look again although nothing changed; zero means never.
func (b *book) next() time.Time {
	var next time.Time
	for _, e := range b.gateways {
		if e.missing.IsZero() {
			continue
		}
		at := e.askAt()
		if forget := e.missing.Add(rememberMAC); e.mac != nil && forget.Before(at) {
			at = forget
		}
		if next.IsZero() || at.Before(next) {
			next = at
		}
	}
	return next
}

// expected returns the hardware addresses of the gateways as the kernel's table
// had them: only what differs from them is news.
func (b *book) expected() expected {
	all := make(expected, len(b.gateways))
	for k, e := range b.gateways {
		all[k] = e.kernel
	}
	return all
}

// expected is by gateway the hardware address last seen in the kernel's table.
// It is immutable.
type expected map[gatewayKey]net.HardwareAddr

// news reports whether a neighbour message says anything that was not known.
func (x expected) news(n neighbour) bool {
	mac, isGateway := x[n.gatewayKey]
	return isGateway && !bytes.Equal(mac, n.mac)
}
