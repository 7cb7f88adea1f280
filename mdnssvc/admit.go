package mdnssvc

import (
	"hash/maphash"
	"net/netip"
	"time"

	"liqo.io/agent/mdnssvc/wire"
)

// admit decides whether a packet is worth decoding, and returns what the
// machines need to know about it, without the message.
//
// A packet to the group counts as local whatever its source address, because
// no router forwards it and several networks may share a link; one sent to us
// directly must come from one of the link's networks (RFC 6762 sections 5.5 and
// 11).
func (c *core) admit(now time.Time, d datagram) (wire.Received, wire.DropReason) {
	from := d.from.Addr()
	if from.IsUnspecified() || from.IsMulticast() || d.from.Port() == 0 {
		return wire.Received{}, DropBadSource
	}
	multicast := d.to == groups[d.family]
	l := c.linkOf(d)
	switch {
	case l == nil || !l.families[d.family]:
		return wire.Received{}, DropOtherLink
	case l.broadcasts(from):
		return wire.Received{}, DropBadSource
	case !multicast && (d.to.IsMulticast() || l.broadcasts(d.to)):
		return wire.Received{}, DropBadDestination
	case !multicast && !l.local(from):
		return wire.Received{}, DropOffLink
	case isResponse(d.data) && d.from.Port() != wire.Port:
		return wire.Received{}, DropBadPort
	}
	in := wire.Received{Link: l.Index, Family: d.family, From: d.from, ToMulticast: multicast}
	if d.from.Port() == wire.Port {
		onLink := l.owns(from)
		in.Self = onLink || c.owns(from)
		if in.Self && c.echoes.heard(now, d.data, l.Index, onLink) {
			return wire.Received{}, DropOwnEcho
		}
	}
	return in, ""
}

// linkOf returns the link a packet came in on, nil when it is not in use. What
// this host sends to its own address comes in on loopback, but belongs to the
// link that has the address.
func (c *core) linkOf(d datagram) *link {
	if l := c.links[d.link]; l != nil {
		return l
	}
	if d.to.IsMulticast() || !c.owns(d.from.Addr()) {
		return nil
	}
	for _, l := range c.links {
		if l.owns(d.to) {
			return l
		}
	}
	return nil
}

// owns reports whether a is an address of this host on any link in use.
func (c *core) owns(a netip.Addr) bool {
	for _, l := range c.links {
		if l.owns(a) {
			return true
		}
	}
	return false
}

// isResponse reads the QR bit of a DNS message that is not decoded yet.
func isResponse(data []byte) bool { return len(data) > 2 && data[2]&0x80 != 0 }

const (
	// echoLife is how long a packet we sent may take until it is looked at. The kernel hands
	// it back at once, but a starved machine may come to it seconds later, and what is
	// then taken for somebody else's would be a neighbour that has our own name.
	echoLife = 30 * time.Second
	// maxEchoes bounds the packets remembered.
	maxEchoes = 1024
)

// echoes remembers what was sent lately. Others on this host share our address
// and port, so a packet is only ours if we sent these very bytes.
type echoes struct {
	seed   maphash.Seed
	byHash map[uint64][]echo
	order  []uint64 // hashes in the order sent; one for each echo
}

type echo struct {
	link  int
	sent  time.Time
	heard bool // it came back on the link it was sent on
}

func newEchoes() *echoes {
	return &echoes{seed: maphash.MakeSeed(), byHash: make(map[uint64][]echo)}
}

func (e *echoes) sent(now time.Time, data []byte, link int) {
	for len(e.order) > 0 && (len(e.order) >= maxEchoes || now.Sub(e.byHash[e.order[0]][0].sent) > echoLife) {
		oldest := e.order[0]
		e.order = e.order[1:]
		if rest := e.byHash[oldest][1:]; len(rest) > 0 {
			e.byHash[oldest] = rest
		} else {
			delete(e.byHash, oldest)
		}
	}
	h := maphash.Bytes(e.seed, data)
	e.byHash[h] = append(e.byHash[h], echo{link: link, sent: now})
	e.order = append(e.order, h)
}

// heard reports whether a packet from one of our addresses is our own. On the
// link it was sent on (onLink) it comes back exactly once, and a second copy is
// somebody else's who said the same, which matters for duplicate suppression
// (RFC 6762 section 7.3). It also arrives at our other links to the same
// network, with an address that is not theirs.
func (e *echoes) heard(now time.Time, data []byte, link int, onLink bool) bool {
	list := e.byHash[maphash.Bytes(e.seed, data)]
	for i := range list {
		switch s := &list[i]; {
		case now.Sub(s.sent) > echoLife, s.link == link == !onLink, onLink && s.heard:
		default:
			s.heard = s.heard || onLink
			return true
		}
	}
	return false
}
