package filter

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/google/nftables"
	vnetlink "github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// judge decides as the rules do, about a connection in connection tracking.
type judge struct {
	desired *Desired
}

func newJudge(d *Desired) *judge { return &judge{desired: d} }

// allowed reports whether a connection may go on.
func (j *judge) allowed(f *flow) bool {
	// The addresses as seen here: translation changes the destination of the first packet
	// before, and its source after the filter.
	from, to := f.forward.src, f.reverse.src
	for i := range j.desired.Peers {
		p := &j.desired.Peers[i]
		theirs, ours := ofFamily(p.Theirs, from.Is6()), ofFamily(p.Ours, from.Is6())
		if !theirs.IsValid() {
			continue
		}
		switch {
		case theirs.Contains(to) && ours.Contains(f.reverse.dst):
			return j.mayGoOut(p, f, from, to)
		case theirs.Contains(to) && slices.Contains(p.Thirds, Third{from, f.reverse.dst}):
			return j.mayPass(p, f, from, to)
		case theirs.Contains(from) && ours.Contains(f.forward.dst):
			return j.mayComeIn(p, f, from, to)
		}
	}
	return false
}

func (j *judge) mayGoOut(p *Peer, f *flow, from, to netip.Addr) bool {
	if grants(p.Out, from, to) {
		return true
	}
	if containsAddr(j.desired.Pods, from) && !slices.Contains(j.desired.Host, from) {
		return false
	}
	return slices.ContainsFunc(p.Out, func(g Grant) bool { return containsAddr(g.To, to) }) ||
		(isEcho(f) || isProbe(f)) && slices.Contains(p.Gateways, to)
}

// mayPass reports whether a connection from another peer to p may go on.
func (j *judge) mayPass(p *Peer, f *flow, from, to netip.Addr) bool {
	return grants(p.Out, from, to) && slices.ContainsFunc(j.desired.Peers, func(other Peer) bool {
		return containsAddr(other.Theirs, from) && slices.Contains(other.Thirds, Third{to, f.forward.dst})
	})
}

func (j *judge) mayComeIn(p *Peer, f *flow, from, to netip.Addr) bool {
	if slices.Contains(j.desired.Host, to) {
		return isEcho(f) || isProbe(f)
	}
	return grants(p.In, from, to) || p.API.allows(f, from, to)
}

func isEcho(f *flow) bool {
	return f.forward.protocol == unix.IPPROTO_ICMP || f.forward.protocol == unix.IPPROTO_ICMPV6
}

// isProbe also allows what the rules do not let begin: between hosts, only probes do.
func isProbe(f *flow) bool { return f.forward.protocol == dnsUDP }

func grants(all []Grant, from, to netip.Addr) bool {
	return slices.ContainsFunc(all, func(g Grant) bool { return containsAddr(g.From, from) && containsAddr(g.To, to) })
}

func containsAddr(prefixes []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Contains(a) })
}

// flow is a connection in connection tracking.
type flow struct {
	forward, reverse tuple
	raw              []byte // as the kernel tells it
}

// tuple are the ends of a connection, by packets in one direction.
type tuple struct {
	src, dst netip.Addr
	protocol uint8
}

// parseFlow reads a message about a connection, which begins with a struct nfgenmsg.
func parseFlow(b []byte) (f flow) {
	const header = 4
	if len(b) < header {
		return f
	}
	f.raw = b[header:]
	for kind, value := range attributes(f.raw) {
		switch kind {
		case nl.CTA_TUPLE_ORIG:
			f.forward = parseTuple(value)
		case nl.CTA_TUPLE_REPLY:
			f.reverse = parseTuple(value)
		}
	}
	return f
}

func parseTuple(b []byte) (t tuple) {
	for kind, value := range attributes(b) {
		for inner, value := range attributes(value) {
			switch {
			case kind == nl.CTA_TUPLE_IP && (inner == nl.CTA_IP_V4_SRC || inner == nl.CTA_IP_V6_SRC):
				t.src, _ = netip.AddrFromSlice(value)
			case kind == nl.CTA_TUPLE_IP && (inner == nl.CTA_IP_V4_DST || inner == nl.CTA_IP_V6_DST):
				t.dst, _ = netip.AddrFromSlice(value)
			case kind == nl.CTA_TUPLE_PROTO && inner == nl.CTA_PROTO_NUM && len(value) == 1:
				t.protocol = value[0]
			}
		}
	}
	return t
}

// attributes goes through the attributes of a netlink message; it ends where they are cut off.
func attributes(b []byte) iter.Seq2[uint16, []byte] {
	return func(yield func(uint16, []byte) bool) {
		for len(b) >= unix.SizeofRtAttr {
			n := int(binary.NativeEndian.Uint16(b))
			kind := binary.NativeEndian.Uint16(b[2:]) &^ (unix.NLA_F_NESTED | unix.NLA_F_NET_BYTEORDER)
			if n < unix.SizeofRtAttr || n > len(b) || !yield(kind, b[unix.SizeofRtAttr:n]) {
				return
			}
			b = b[min(len(b), (n+3)&^3):]
		}
	}
}

// stale are the connections from or to blocks that may not go on.
type stale struct {
	blocks map[netip.Prefix]struct{}
	judge  *judge
}

func (s stale) has(f *flow) bool {
	for _, a := range []netip.Addr{f.forward.src, f.forward.dst, f.reverse.src} {
		if s.within(a) {
			return !s.judge.allowed(f)
		}
	}
	return false
}

func (s stale) within(a netip.Addr) bool {
	for p := range s.blocks {
		if p.Contains(a) {
			return true
		}
	}
	return false
}

// fewAddresses is of how many the connections are asked for by address. The kernel goes through all connections for each
// of them, twice, and it takes longer to tell of all.
const fewAddresses = 2

// cutOff deletes the tracked connections of all blocks since the last time that may not go on: all of them, or those of
// the addresses for which less is granted, if that is all that has changed.
func (t *Table) cutOff(j *judge) error {
	if len(t.blocks) == 0 {
		return nil
	}
	gone, which := make(map[string]bool), stale{t.blocks, j}
	look := func(f flow) {
		if which.has(&f) {
			gone[string(f.raw)] = f.forward.src.Is6()
		}
	}
	all := make(map[uint8]bool) // families
	if t.dirty {
		for p := range t.blocks {
			all[family(p.Addr().Is6())] = true
		}
	} else {
		for a := range t.narrowed {
			if a.Is6() { // Linux up to 6.18 tells of all but those of the address
				all[unix.AF_INET6] = true
				continue
			}
			// As judged: by the source in either direction.
			for _, direction := range []int{nl.CTA_TUPLE_ORIG, nl.CTA_TUPLE_REPLY} {
				if err := t.conntrack.listFrom(a, direction, look); err != nil {
					return err
				}
			}
		}
	}
	families := slices.Collect(maps.Keys(all))
	if len(families) > 1 { // the kernel goes through the connections of all families each time
		families = []uint8{unix.AF_UNSPEC}
	}
	for _, f := range families {
		if err := t.conntrack.list(f, look); err != nil {
			return err
		}
	}
	for raw, six := range gone {
		if err := t.conntrack.remove(six, []byte(raw)); err != nil {
			return err
		}
	}
	return nil
}

// tracking asks the kernel about connections, by a socket in the namespace where it was made.
type tracking struct {
	sockets map[int]*nl.SocketHandle
}

func newTracking() (*tracking, error) {
	socket, err := nl.Subscribe(unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, fmt.Errorf("open connection tracking: %w", err)
	}
	return &tracking{map[int]*nl.SocketHandle{unix.NETLINK_NETFILTER: {Socket: socket}}}, nil
}

func (c *tracking) close() { c.sockets[unix.NETLINK_NETFILTER].Close() }

func (c *tracking) request(kind, flags int, family uint8) *nl.NetlinkRequest {
	req := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_CTNETLINK<<8|kind, flags)
	req.Sockets = c.sockets
	req.AddData(&nl.Nfgenmsg{NfgenFamily: family, Version: nl.NFNETLINK_V0})
	return req
}

func family(six bool) uint8 {
	if six {
		return unix.AF_INET6
	}
	return unix.AF_INET
}

// list tells of all connections of a family, or of all families.
func (c *tracking) list(family uint8, look func(flow)) error {
	return c.dump(c.request(nl.IPCTNL_MSG_CT_GET, unix.NLM_F_DUMP, family), look)
}

// listFrom tells of the connections with that IPv4 source in one direction, a kind of attribute. Kernels that cannot tell
// them apart tell of all.
func (c *tracking) listFrom(a netip.Addr, direction int, look func(flow)) error {
	const (
		ctaFilter  = 25     // CTA_FILTER
		filterFrom = 1 << 0 // CTA_FILTER_F_CTA_IP_SRC
	)
	of := 1 // CTA_FILTER_ORIG_FLAGS
	if direction == nl.CTA_TUPLE_REPLY {
		of = 2 // CTA_FILTER_REPLY_FLAGS
	}
	nested := func(kind int, data []byte) *nl.RtAttr { return nl.NewRtAttr(kind|unix.NLA_F_NESTED, data) }
	address := nested(nl.CTA_TUPLE_IP, nl.NewRtAttr(nl.CTA_IP_V4_SRC, a.AsSlice()).Serialize())
	req := c.request(nl.IPCTNL_MSG_CT_GET, unix.NLM_F_DUMP, unix.AF_INET)
	req.AddData(nested(direction, address.Serialize()))
	req.AddData(nested(ctaFilter, nl.NewRtAttr(of, nl.Uint32Attr(filterFrom)).Serialize()))
	return c.dump(req, look)
}

func (c *tracking) dump(req *nl.NetlinkRequest, look func(flow)) error {
	err := req.ExecuteIter(unix.NETLINK_NETFILTER, unix.NFNL_SUBSYS_CTNETLINK<<8|nl.IPCTNL_MSG_CT_NEW, func(b []byte) bool {
		look(parseFlow(b))
		return true
	})
	// What was added meanwhile was judged by the new rules.
	if err != nil && !errors.Is(err, vnetlink.ErrDumpInterrupted) {
		return fmt.Errorf("list tracked connections: %w", err)
	}
	return nil
}

// remove deletes a connection. It need not exist any more.
func (c *tracking) remove(six bool, raw []byte) error {
	req := c.request(nl.IPCTNL_MSG_CT_DELETE, unix.NLM_F_ACK, family(six))
	req.AddRawData(raw)
	if _, err := req.Execute(unix.NETLINK_NETFILTER, 0); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("delete a tracked connection that is not granted any more: %w", err)
	}
	return nil
}

// narrows reports whether a change may forbid what was allowed, and the addresses for which it does: nil if it may for
// others, too.
func narrows(before, after *ruleset) (bool, []netip.Addr) {
	for name := range after.chains {
		if before.chains[name] == nil && !strings.HasPrefix(name, guest) {
			return true, nil // a new peer: connections may have been tried before, without translation
		}
	}
	var out []netip.Addr
	for name, old := range before.sets {
		now := after.sets[name]
		if now != nil && len(minus(old, now)) == 0 || old.kind == links || old.kind.filledByKernel() || name == guests {
			continue
		}
		gone := missing(old, now)
		switch old.kind {
		case addresses:
		case translations:
			gone = before.local(minus(old, now))
		default:
			return true, nil
		}
		for a := range gone {
			if !slices.Contains(out, a) {
				out = append(out, a)
			}
			if len(out) > fewAddresses {
				return true, nil
			}
		}
	}
	return len(out) > 0, out
}

// local goes through the addresses in elements of translations that are in a block of a peer.
func (r *ruleset) local(elements []element) iter.Seq[netip.Addr] {
	return func(yield func(netip.Addr) bool) {
		for _, e := range elements {
			for _, a := range []netip.Addr{e.from, e.toFrom} {
				if r.sets["theirs"].around(a) >= 0 && !yield(a) {
					return
				}
			}
		}
	}
}

// missing goes through the addresses of a set that another one, nil for an empty one, has not.
func missing(old, now *set) iter.Seq[netip.Addr] {
	return func(yield func(netip.Addr) bool) {
		for _, e := range old.elements {
			for a := e.from; a.IsValid() && a.Compare(e.to) <= 0; {
				if in := now.around(a); in >= 0 {
					a = now.elements[in].to.Next()
					continue
				}
				if !yield(a) {
					return
				}
				a = a.Next()
			}
		}
	}
}

// decodeBlocks returns the prefixes of intervals that were read from a set of addresses.
func decodeBlocks(elements []nftables.SetElement) []netip.Prefix {
	var out []netip.Prefix
	var ends []netip.Addr
	for _, e := range elements {
		if a, ok := netip.AddrFromSlice(e.Key); ok && e.IntervalEnd {
			ends = append(ends, a)
		}
	}
	slices.SortFunc(ends, netip.Addr.Compare)
	for _, e := range elements {
		from, ok := netip.AddrFromSlice(e.Key)
		if !ok || e.IntervalEnd {
			continue
		}
		i, found := slices.BinarySearchFunc(ends, from, netip.Addr.Compare)
		if found {
			i++
		}
		for bits := from.BitLen(); bits >= 0; bits-- {
			p, err := from.Prefix(bits)
			if err != nil || p.Addr() != from {
				break
			}
			// The last block there can be has no end.
			if next := last(p).Next(); i < len(ends) && next == ends[i] || i == len(ends) && !next.IsValid() {
				out = append(out, p)
			}
		}
	}
	return out
}
