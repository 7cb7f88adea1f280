package filter

import (
	"net"
	"net/netip"
	"slices"
	"strconv"

	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// direction is one of the addresses of a packet.
type direction int

const (
	source direction = iota
	destination
)

// Registers of 16 bytes, and the second one of 4 bytes, with which a concatenation of
// IPv4 addresses goes on.
const (
	register1    = unix.NFT_REG_1
	register2    = unix.NFT_REG_2
	register1by4 = unix.NFT_REG32_01
)

// rule joins expressions; the last ones are the statement.
func rule(parts ...[]expr.Any) []expr.Any { return slices.Concat(parts...) }

func accept() []expr.Any { return []expr.Any{&expr.Verdict{Kind: expr.VerdictAccept}} }

func drop() []expr.Any { return []expr.Any{&expr.Verdict{Kind: expr.VerdictDrop}} }

func jump(chain string) []expr.Any {
	return []expr.Any{&expr.Verdict{Kind: expr.VerdictJump, Chain: chain}}
}

// goTo goes on in another chain, and does not come back.
func goTo(chain string) []expr.Any {
	return []expr.Any{&expr.Verdict{Kind: expr.VerdictGoto, Chain: chain}}
}

func setName(chain string, i int, side string) string {
	return chain + "_" + strconv.Itoa(i) + "_" + side
}

func iif(name string) []expr.Any { return ifname(expr.MetaKeyIIFNAME, expr.CmpOpEq, name) }

func notIif(name string) []expr.Any { return ifname(expr.MetaKeyIIFNAME, expr.CmpOpNeq, name) }

func oif(name string) []expr.Any { return ifname(expr.MetaKeyOIFNAME, expr.CmpOpEq, name) }

// arriving matches what comes by a device to peers.
func arriving() []expr.Any { return onDevice(expr.MetaKeyIIFNAME, false) }

// departing matches what leaves by a device to peers, and notDeparting all else.
func departing() []expr.Any { return onDevice(expr.MetaKeyOIFNAME, false) }

func notDeparting() []expr.Any { return onDevice(expr.MetaKeyOIFNAME, true) }

func onDevice(key expr.MetaKey, not bool) []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: key, Register: register1},
		&expr.Lookup{SourceRegister: register1, SetName: "to_peers", Invert: not},
	}
}

func notOif(name string) []expr.Any { return ifname(expr.MetaKeyOIFNAME, expr.CmpOpNeq, name) }

// ifname compares the name, not the index, of a network device: it may be made anew.
func ifname(key expr.MetaKey, op expr.CmpOp, name string) []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: key, Register: register1},
		&expr.Cmp{Op: op, Register: register1, Data: padded(name)},
	}
}

func padded(name string) []byte {
	out := make([]byte, ifNameSize)
	copy(out, name)
	return out
}

func (r *ruleset) size() uint32 {
	if r.six {
		return net.IPv6len
	}
	return net.IPv4len
}

// load reads an address of the packet.
func (r *ruleset) load(d direction, register uint32) expr.Any {
	offset := uint32(12) // of the source address in an IPv4 header
	if r.six {
		offset = 8
	}
	return &expr.Payload{
		Base: expr.PayloadBaseNetworkHeader, Offset: offset + uint32(d)*r.size(), Len: r.size(), DestRegister: register,
	}
}

// within compares an address with a prefix.
func (r *ruleset) within(d direction, p netip.Prefix) []expr.Any {
	out := []expr.Any{r.load(d, register1)}
	if !p.IsSingleIP() {
		out = append(out, &expr.Bitwise{
			SourceRegister: register1, DestRegister: register1, Len: r.size(),
			Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen()), Xor: make([]byte, r.size()),
		})
	}
	return append(out, &expr.Cmp{Op: expr.CmpOpEq, Register: register1, Data: p.Addr().AsSlice()})
}

// in looks an address up in a set.
func (r *ruleset) in(d direction, set string) []expr.Any {
	return []expr.Any{r.load(d, register1), &expr.Lookup{SourceRegister: register1, SetName: set}}
}

// pair looks source and destination up in a set of pairs.
func (r *ruleset) pair(set string) []expr.Any {
	second := uint32(register1by4)
	if r.six {
		second = register2
	}
	return []expr.Any{
		r.load(source, register1), r.load(destination, second),
		&expr.Lookup{SourceRegister: register1, SetName: set},
	}
}

// lookup goes on where a verdict map says for an address, if it has it.
func (r *ruleset) lookup(d direction, verdicts string) []expr.Any {
	return []expr.Any{
		r.load(d, register1),
		&expr.Lookup{SourceRegister: register1, SetName: verdicts, IsDestRegSet: true, DestRegister: unix.NFT_REG_VERDICT},
	}
}

// translate replaces an address by the corresponding one of a prefix.
func (r *ruleset) translate(kind expr.NATType, to netip.Prefix) []expr.Any {
	family := uint32(unix.NFPROTO_IPV4)
	if r.six {
		family = unix.NFPROTO_IPV6
	}
	if to.IsSingleIP() {
		return []expr.Any{
			&expr.Immediate{Register: register1, Data: to.Addr().AsSlice()},
			&expr.NAT{Type: kind, Family: family, RegAddrMin: register1},
		}
	}
	return []expr.Any{
		&expr.Immediate{Register: register1, Data: to.Addr().AsSlice()},
		&expr.Immediate{Register: register2, Data: last(to).AsSlice()},
		&expr.NAT{Type: kind, Family: family, RegAddrMin: register1, RegAddrMax: register2, Prefix: true},
	}
}

// translateBy replaces an address by the one that a map has for it, if it has one.
func (r *ruleset) translateBy(kind expr.NATType, d direction, set string) []expr.Any {
	family := uint32(unix.NFPROTO_IPV4)
	if r.six {
		family = unix.NFPROTO_IPV6
	}
	return []expr.Any{
		r.load(d, register1),
		&expr.Lookup{SourceRegister: register1, SetName: set, IsDestRegSet: true, DestRegister: register1},
		&expr.NAT{Type: kind, Family: family, RegAddrMin: register1},
	}
}

// redirect replaces destination and port.
func (r *ruleset) redirect(to netip.Addr, port uint16) []expr.Any {
	family := uint32(unix.NFPROTO_IPV4)
	if r.six {
		family = unix.NFPROTO_IPV6
	}
	return []expr.Any{
		&expr.Immediate{Register: register1, Data: to.AsSlice()},
		&expr.Immediate{Register: register2, Data: binaryutil.BigEndian.PutUint16(port)},
		&expr.NAT{Type: expr.NATTypeDestNAT, Family: family, RegAddrMin: register1, RegProtoMin: register2},
	}
}

func established() []expr.Any {
	return bits(expr.CtKeySTATE, expr.CtStateBitESTABLISHED|expr.CtStateBitRELATED)
}

// ofConnection is established without what is only related, such as errors.
func ofConnection() []expr.Any { return bits(expr.CtKeySTATE, expr.CtStateBitESTABLISHED) }

func invalid() []expr.Any { return bits(expr.CtKeySTATE, expr.CtStateBitINVALID) }

// first matches the first packet of a connection, which is not in the table yet.
func first() []expr.Any {
	const confirmed = 1 << 3 // IPS_CONFIRMED in linux/netfilter/nf_conntrack_common.h
	out := bits(expr.CtKeySTATUS, confirmed)
	out[len(out)-1].(*expr.Cmp).Op = expr.CmpOpEq
	return out
}

// faster matches what comes faster than so many a second, with so many at once.
func faster(rate, burst int) []expr.Any {
	return []expr.Any{&expr.Limit{Type: expr.LimitTypePkts, Rate: uint64(rate), Over: true, Unit: expr.LimitTimeSecond, Burst: uint32(burst)}}
}

// moreThan counts the connection, and matches if there are more than so many. The kernel goes through all that it has
// counted, and forgets only a few of those that are gone each time: what comes too fast must not get here.
func moreThan(connections int) []expr.Any {
	return []expr.Any{&expr.Connlimit{Count: uint32(connections), Flags: expr.NFT_CONNLIMIT_F_INV}}
}

// perSource has a condition of its own for each source address, which a set keeps. It does not match, as if there was none,
// while the set is full.
func (r *ruleset) perSource(set string, of kind, condition []expr.Any) []expr.Any {
	keep := &expr.Dynset{SrcRegKey: register1, SetName: set, Operation: unix.NFT_DYNSET_OP_ADD, Exprs: condition}
	if of == limited { // which have a time of life, from the last packet on
		keep.Operation = unix.NFT_DYNSET_OP_UPDATE
	}
	return []expr.Any{r.load(source, register1), keep}
}

// count counts a packet in a named counter.
func count(counter string) []expr.Any {
	return []expr.Any{&expr.Objref{Type: unix.NFT_OBJECT_COUNTER, Name: counter}}
}

// redirected is a connection whose destination was translated here.
func redirected() []expr.Any {
	const dstNAT = 1 << 5 // IPS_DST_NAT in linux/netfilter/nf_conntrack_common.h
	return bits(expr.CtKeySTATUS, dstNAT)
}

// bits matches if one of the bits is set.
func bits(key expr.CtKey, mask uint32) []expr.Any {
	return []expr.Any{
		&expr.Ct{Key: key, Register: register1},
		&expr.Bitwise{
			SourceRegister: register1, DestRegister: register1, Len: 4,
			Mask: binaryutil.NativeEndian.PutUint32(mask), Xor: make([]byte, 4),
		},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: register1, Data: make([]byte, 4)},
	}
}

// noRouteBack matches what comes by another device than answers would go to.
func noRouteBack() []expr.Any {
	return []expr.Any{
		&expr.Fib{Register: register1, FlagSADDR: true, FlagIIF: true, ResultOIF: true, FlagPRESENT: true},
		&expr.Cmp{Op: expr.CmpOpEq, Register: register1, Data: make([]byte, 4)},
	}
}

// transport matches a transport protocol.
func transport(protocol byte) []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: register1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: register1, Data: []byte{protocol}},
	}
}

// icmpKind is a type of ICMP message, and that of ICMPv6.
type icmpKind struct{ v4, v6 byte }

var (
	icmpEcho        = icmpKind{8, 128}
	icmpUnreachable = icmpKind{3, 1}
)

func (r *ruleset) icmp(k icmpKind) []expr.Any {
	protocol, kind := byte(unix.IPPROTO_ICMP), k.v4
	if r.six {
		protocol, kind = unix.IPPROTO_ICMPV6, k.v6
	}
	return append(transport(protocol),
		&expr.Payload{Base: expr.PayloadBaseTransportHeader, Offset: 0, Len: 1, DestRegister: register1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: register1, Data: []byte{kind}},
	)
}

// port matches the destination port of TCP or UDP, and fromPort the source port.
func port(protocol byte, number uint16) []expr.Any { return portAt(2, protocol, number) }

func fromPort(protocol byte, number uint16) []expr.Any { return portAt(0, protocol, number) }

func portAt(offset uint32, protocol byte, number uint16) []expr.Any {
	return append(transport(protocol),
		&expr.Payload{Base: expr.PayloadBaseTransportHeader, Offset: offset, Len: 2, DestRegister: register1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: register1, Data: binaryutil.BigEndian.PutUint16(number)},
	)
}

// clampMSS lowers the largest segment that a TCP connection begins with to what the routes
// to both of its ends can carry.
func clampMSS() []expr.Any {
	const (
		flags, syn, synRST = 13, 2, 2 | 4 // of the TCP header
		maxSegment         = 2            // kind of TCP option
	)
	return append(transport(unix.IPPROTO_TCP),
		&expr.Payload{Base: expr.PayloadBaseTransportHeader, Offset: flags, Len: 1, DestRegister: register1},
		&expr.Bitwise{SourceRegister: register1, DestRegister: register1, Len: 1, Mask: []byte{synRST}, Xor: []byte{0}},
		&expr.Cmp{Op: expr.CmpOpEq, Register: register1, Data: []byte{syn}},
		&expr.Rt{Key: expr.RtTCPMSS, Register: register1},
		&expr.Byteorder{SourceRegister: register1, DestRegister: register1, Op: expr.ByteorderHton, Len: 2, Size: 2},
		&expr.Exthdr{Op: expr.ExthdrOpTcpopt, Type: maxSegment, Offset: 2, Len: 2, SourceRegister: register1},
	)
}
