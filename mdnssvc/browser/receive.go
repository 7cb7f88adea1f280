package browser

import (
	"net/netip"
	"strings"
	"time"

	"github.com/miekg/dns"

	"liqo.io/agent/mdnssvc/wire"
)

// Receive takes in one message: a response into the cache, a query of another
// host for what it says about our own (RFC 6762 sections 7.3 and 10.5). It
// returns what happened, and why the message, or the first part of it that is
// not simply about something else, was dropped. A message may be dropped in part
// and still cause events. The browser keeps no part of it but strings.
func (b *Browser) Receive(now time.Time, in wire.Received) ([]Event, wire.DropReason) {
	b.now = now
	b.messages++
	drop := b.receive(now, in)
	return b.takeEvents(), drop
}

func (b *Browser) receive(now time.Time, in wire.Received) wire.DropReason {
	l := b.links[in.Link]
	switch {
	case !in.Msg.Response:
		if l != nil && b.browses(l) {
			l.observe(now, in)
		}
		return ""
	case !b.enabled:
		return DropDisabled
	case l == nil:
		return DropUnknownLink
	case l.off:
		return DropDisabled
	case in.From.Port() != wire.Port:
		return DropSourcePort
	case !in.ToMulticast:
		return DropUnicast
	}
	return l.respond(now, in)
}

// respond takes in a response. Its records lead from PTR to SRV to addresses but
// may come in any order, hence three passes over them.
func (l *link) respond(now time.Time, in wire.Received) wire.DropReason {
	var drop wire.DropReason
	used := false
	note := func(reason wire.DropReason) {
		if drop == "" {
			drop = reason
		}
	}
	each := func(take func(rr dns.RR) (bool, wire.DropReason)) {
		for _, section := range [2][]dns.RR{in.Msg.Answer, in.Msg.Extra} {
			for _, rr := range section {
				if wire.Class(rr.Header().Class) != dns.ClassINET {
					continue
				}
				ours, reason := take(rr)
				used = used || ours
				note(reason)
			}
		}
	}
	each(func(rr dns.RR) (bool, wire.DropReason) {
		if rr, ok := rr.(*dns.PTR); ok && wire.Key(rr.Hdr.Name) == l.b.service {
			return l.receivePTR(now, in, rr)
		}
		return false, ""
	})
	if len(l.all) > 0 {
		each(func(rr dns.RR) (bool, wire.DropReason) { return l.receiveInstance(now, in, rr) })
		each(func(rr dns.RR) (bool, wire.DropReason) { return l.receiveHost(now, in, rr) })
	}
	l.settle(now)
	if drop == "" && !used {
		drop = DropNotAsked
	}
	return drop
}

func (l *link) receivePTR(now time.Time, in wire.Received, rr *dns.PTR) (bool, wire.DropReason) {
	key := wire.Key(rr.Ptr)
	i := l.instances[key]
	var drop wire.DropReason
	if i == nil {
		if !strings.HasSuffix(key, "."+l.b.service) {
			return false, DropForeignName
		}
		label, service, domain, ok := wire.SplitInstance(rr.Ptr)
		if !ok || wire.Key(wire.ServiceName(service, domain)) != l.b.service {
			return false, DropForeignName
		}
		if rr.Hdr.Ttl == 0 {
			return false, ""
		}
		from := in.From.Addr()
		remembered := l.b.remembered(label)
		if !remembered && l.limitUnresolved(from) {
			drop = DropUnresolvedLimit
		}
		if !l.makeRoom(now, from, remembered) {
			return false, DropFull
		}
		i = l.add(now, key, rr.Ptr, label, l.source(from), remembered)
	}
	i.receivePTR(now, rr.Hdr.Ttl)
	l.touch(i, in.Family)
	return true, drop
}

func (l *link) receiveInstance(now time.Time, in wire.Received, rr dns.RR) (bool, wire.DropReason) {
	switch rr.(type) {
	case *dns.SRV, *dns.TXT, *dns.NSEC:
	default:
		return false, ""
	}
	i := l.instances[wire.Key(rr.Header().Name)]
	if i == nil {
		return false, ""
	}
	l.touch(i, in.Family)
	switch rr := rr.(type) {
	case *dns.SRV:
		return true, i.receiveSRV(now, rr)
	case *dns.TXT:
		return true, i.receiveTXT(now, rr)
	default:
		i.receiveNSEC(now, rr.(*dns.NSEC))
		return true, ""
	}
}

func (l *link) receiveHost(now time.Time, in wire.Received, rr dns.RR) (bool, wire.DropReason) {
	switch rr.(type) {
	case *dns.A, *dns.AAAA, *dns.NSEC:
	default:
		return false, ""
	}
	h := l.hosts[wire.Key(rr.Header().Name)]
	if h == nil {
		return false, ""
	}
	if !h.touched {
		h.touched = true
		l.b.hosts = append(l.b.hosts, h)
	}
	h.family = in.Family
	var addr netip.Addr
	switch rr := rr.(type) {
	case *dns.NSEC:
		h.receiveNSEC(now, rr)
		return true, ""
	case *dns.A:
		addr, _ = netip.AddrFromSlice(rr.A)
		addr = addr.Unmap()
	case *dns.AAAA:
		addr, _ = netip.AddrFromSlice(rr.AAAA)
	}
	if !possible(addr, in.From.Addr()) {
		return true, DropBadAddress
	}
	if addr.Is6() && addr.IsLinkLocalUnicast() {
		addr = addr.WithZone(l.zone)
	}
	return true, h.receive(now, addr, rr.Header())
}

// possible reports whether addr can be a neighbour's address. A loopback address
// is one only for somebody who speaks from there.
func possible(addr, from netip.Addr) bool {
	switch {
	case !addr.IsValid(), addr.Is4In6(), addr.IsUnspecified(), addr.IsMulticast():
		return false
	case addr.IsLoopback():
		return from.IsLoopback()
	case addr.Is4():
		return addr.As4() != [4]byte{255, 255, 255, 255}
	}
	return true
}

func (l *link) touch(i *instance, family wire.Family) {
	i.family = family
	if !i.touched {
		i.touched = true
		l.b.touched = append(l.b.touched, i)
	}
}

// settle draws the conclusions once a whole message was taken in: tells what
// changed, has asked for what is missing.
func (l *link) settle(now time.Time) {
	hosts, touched := l.b.hosts, l.b.touched
	for _, h := range hosts {
		h.touched = false
		if len(h.users) > 0 {
			h.tell(now, ReasonNoAnswer)
		}
		if len(h.users) > 0 {
			h.schedule()
		}
	}
	for _, i := range touched {
		i.touched = false
		if !i.gone {
			i.update(now, ReasonNoAnswer)
		}
		if i.gone {
			continue
		}
		if i.missing() && due(i.resolve.next(), now) {
			l.enqueue(now, i, askDelay)
		}
		i.schedule()
		if h := i.host; h != nil && h.count() == 0 {
			if due(h.resolve.next(), now) {
				l.enqueue(now, h, askDelay)
			}
			h.schedule()
		}
	}
	clear(hosts)
	clear(touched)
	l.b.hosts, l.b.touched = hosts[:0], touched[:0]
}
