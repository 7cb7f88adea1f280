package network

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"liqo.io/agent/peer"
)

// DefaultRange is where the IPv4 blocks of peers come from: addresses that nobody can have in a network of his own, and
// that the kernel, the API server and kube-proxy take nevertheless.
var DefaultRange = netip.MustParsePrefix("241.0.0.0/8")

// Bounds of what a cluster may say that its pods have, in bits of the prefix.
const (
	leastBits4, mostBits4 = 16, 28
	bits6                 = 64
)

// Blocks are the addresses under which two clusters know the pods of each other. There is at most one prefix of each
// family in each of the fields.
type Blocks struct {
	// Pods are the addresses that the peer's pods have in their own cluster.
	Pods []netip.Prefix `json:"pods,omitempty"`
	// Theirs is what this cluster chose for the peer's pods: an address of Pods is known here by the same host part in
	// Theirs of its family. It is the lower half of a block; the upper half has the addresses that the peer gives to pods of
	// third clusters, which are reached by way of it.
	Theirs []netip.Prefix `json:"theirs,omitempty"`
	// Ours is what the peer chose for the pods of this cluster: the lower half of a block.
	Ours []netip.Prefix `json:"ours,omitempty"`
}

// Whole returns the blocks of which Theirs are the lower halves: all addresses that packets of the peer have here.
func (b Blocks) Whole() []netip.Prefix { return wholes(b.Theirs) }

// Gateways returns the addresses by which the peer's own host is known here. Its API server is there, too, for those of its
// pods that may reach it: see [filter.API].
func (b Blocks) Gateways() []netip.Addr { return gateways(b.Theirs) }

// check returns what is wrong with blocks that were stored.
func (b Blocks) check() error {
	if err := checkPods(b.Pods); err != nil {
		return err
	}
	if err := checkPrefixes(b.Theirs, func(t netip.Prefix) error {
		if pods, _ := ofFamily(b.Pods, t.Addr().Is4()); pods.Bits() != t.Bits() {
			return fmt.Errorf("%s is no block for %s", t, pods)
		}
		return checkHalf(t)
	}); err != nil {
		return err
	}
	return checkPrefixes(b.Ours, checkHalf)
}

// checkHalf checks that a prefix is the lower half of a block.
func checkHalf(p netip.Prefix) error {
	if p.Bits() == 0 || whole(p).Addr() != p.Addr() {
		return fmt.Errorf("%s is not the lower half of a block", p)
	}
	return nil
}

// Here returns the address by which a pod of the peer is known in this cluster; false when the address is none that the
// peer's pods can have, or there is no block for it.
func (b Blocks) Here(pod netip.Addr) (netip.Addr, bool) { return translate(pod, b.Pods, b.Theirs) }

// There returns the address by which a pod of this cluster, whose pods have those of own, is known to the peer; false when
// it is none of these, or the peer has chosen no block for it.
func (b Blocks) There(pod netip.Addr, own []netip.Prefix) (netip.Addr, bool) {
	return translate(pod, own, b.Ours)
}

// translate moves an address from one of the prefixes to that of the same family in others.
func translate(addr netip.Addr, from, to []netip.Prefix) (netip.Addr, bool) {
	addr = addr.Unmap()
	source, ok := ofFamily(from, addr.Is4())
	if !ok || !source.Contains(addr) {
		return netip.Addr{}, false
	}
	target, ok := ofFamily(to, addr.Is4())
	if !ok || target.Bits() != source.Bits() {
		return netip.Addr{}, false
	}
	host, network := addr.As16(), target.Addr().As16()
	bits := target.Bits()
	if addr.Is4() {
		bits += 96
	}
	for i := range host {
		switch kept := min(max(bits-8*i, 0), 8); kept {
		case 8:
			host[i] = network[i]
		case 0:
		default:
			mask := byte(0xff) << (8 - kept)
			host[i] = network[i]&mask | host[i]&^mask
		}
	}
	return netip.AddrFrom16(host).Unmap(), true
}

// ofFamily returns the prefix of one family.
func ofFamily(prefixes []netip.Prefix, v4 bool) (netip.Prefix, bool) {
	for _, p := range prefixes {
		if p.Addr().Is4() == v4 {
			return p, true
		}
	}
	return netip.Prefix{}, false
}

// checkPods checks what a cluster says that its pods have.
func checkPods(pods []netip.Prefix) error {
	if len(pods) == 0 {
		return errors.New("no range of pods is named")
	}
	return checkPrefixes(pods, func(p netip.Prefix) error {
		switch {
		case p.Addr().Is4() && (p.Bits() < leastBits4 || p.Bits() > mostBits4):
			return fmt.Errorf("%s has not between %d and %d bits", p, leastBits4, mostBits4)
		case p.Addr().Is6() && p.Bits() != bits6:
			return fmt.Errorf("%s has not %d bits", p, bits6)
		}
		return nil
	})
}

// checkOurs checks what a peer has chosen for our pods.
func checkOurs(ours, pods []netip.Prefix) error {
	return checkPrefixes(ours, func(p netip.Prefix) error {
		own, ok := ofFamily(pods, p.Addr().Is4())
		if !ok {
			return fmt.Errorf("%s is of a family that our pods have no addresses of", p)
		}
		if p.Bits() != own.Bits() {
			return fmt.Errorf("%s is not as large as our range %s", p, own)
		}
		return checkHalf(p)
	})
}

// checkPrefixes checks a list of prefixes, at most one of each family, and each of them with check.
func checkPrefixes(prefixes []netip.Prefix, check func(netip.Prefix) error) error {
	var v4, v6 bool
	for _, p := range prefixes {
		if !p.IsValid() || p != p.Masked() || p.Addr().Is4In6() || p.Addr().Zone() != "" {
			return fmt.Errorf("%s is not the beginning of a range", p)
		}
		if !unicast(p) {
			return fmt.Errorf("%s has other than unicast addresses", p)
		}
		seen := &v6
		if p.Addr().Is4() {
			seen = &v4
		}
		if *seen {
			return fmt.Errorf("%s is the second range of its family", p)
		}
		*seen = true
		if err := check(p); err != nil {
			return err
		}
	}
	return nil
}

// notUnicast are the addresses that are no host's, or only this machine's or link's.
var notUnicast = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("169.254.0.0/16"),
	netip.MustParsePrefix("224.0.0.0/4"), netip.MustParsePrefix("255.0.0.0/8"),
	netip.MustParsePrefix("::/8"), netip.MustParsePrefix("fe80::/10"), netip.MustParsePrefix("ff00::/8"),
}

func unicast(p netip.Prefix) bool { return !overlapsAny(p, notUnicast) }

func overlapsAny(p netip.Prefix, others []netip.Prefix) bool {
	for _, o := range others {
		if p.Overlaps(o) {
			return true
		}
	}
	return false
}

// choose returns blocks for the pods of a peer, one of each family that it and this cluster have, that overlap nothing
// that is taken. Where the last ones are still right, they stay. Each is the lower half of one twice as large, whose upper
// half is for clusters that are reached by way of the peer.
func choose(id peer.ClusterID, pods, own, last, taken []netip.Prefix, within netip.Prefix) ([]netip.Prefix, error) {
	var out []netip.Prefix
	for _, p := range pods {
		v4 := p.Addr().Is4()
		if _, ok := ofFamily(own, v4); !ok {
			continue
		}
		if old, ok := ofFamily(last, v4); ok && old.Bits() == p.Bits() && (!v4 || covers(within, whole(old))) && !overlapsAny(whole(old), taken) {
			out = append(out, old)
			continue
		}
		block, err := free(id, p.Bits(), v4, taken, within)
		if err != nil {
			return nil, err
		}
		out = append(out, block)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("the peer's pods have addresses in %v, and ours in %v: there is no common family", pods, own)
	}
	return out, nil
}

// mostOfRange is the part of the range that one peer can have, in bits: an eighth, which is what the usual /24 of pods takes
// of the smallest range.
const mostOfRange = 3

// fair returns an error if a peer's pods would take too much of the range from which all peers have their blocks.
func fair(pods []netip.Prefix, within netip.Prefix) error {
	p, ok := ofFamily(pods, true)
	if !ok || within.Bits()+mostOfRange <= p.Bits()-1 {
		return nil
	}
	return fmt.Errorf("the peer's pods have addresses in %s, for which it would take more than an eighth of the range %s: choose a larger one with sharing.network_range", p, within)
}

func covers(p, other netip.Prefix) bool { return p.Bits() <= other.Bits() && p.Contains(other.Addr()) }

// whole returns the block of which a prefix is one half.
func whole(half netip.Prefix) netip.Prefix {
	return netip.PrefixFrom(half.Addr(), half.Bits()-1).Masked()
}

func wholes(halves []netip.Prefix) []netip.Prefix {
	var out []netip.Prefix
	for _, h := range halves {
		out = append(out, whole(h))
	}
	return out
}

// number returns an IPv4 address as a number.
func number(a netip.Addr) uint64 {
	b := a.As4()
	return uint64(binary.BigEndian.Uint32(b[:]))
}

// free returns a block that overlaps nothing that is taken, the first one from where the peer's ID says.
func free(id peer.ClusterID, bits int, v4 bool, taken []netip.Prefix, within netip.Prefix) (netip.Prefix, error) {
	seed := sha256.Sum256([]byte("liqo network block " + string(id)))
	if !v4 {
		var addr [16]byte
		copy(addr[:8], seed[:8])
		addr[0] = 0xfd
		addr[7] &^= 1
		for range 1 << 15 {
			if p := netip.PrefixFrom(netip.AddrFrom16(addr), bits); !overlapsAny(whole(p), taken) {
				return p, nil
			}
			binary.BigEndian.PutUint16(addr[6:], binary.BigEndian.Uint16(addr[6:])+2)
		}
		return netip.Prefix{}, errors.New("no IPv6 block is free")
	}
	if within.Bits() > bits-1 {
		return netip.Prefix{}, fmt.Errorf("the range %s is too small for a block of %d bits", within, bits-1)
	}
	count, size := uint64(1)<<(bits-1-within.Bits()), uint64(1)<<(32-(bits-1))
	base, start := number(within.Masked().Addr()), uint64(binary.BigEndian.Uint32(seed[:4]))%count
	taken = append(taken[:len(taken):len(taken)], notUnicast...)
	for tried := uint64(0); tried < count; {
		place := (start + tried) % count
		var addr [4]byte
		binary.BigEndian.PutUint32(addr[:], uint32(base+place*size))
		p := netip.PrefixFrom(netip.AddrFrom4(addr), bits)
		i := slices.IndexFunc(taken, whole(p).Overlaps)
		if i < 0 {
			return p, nil
		}
		// The next one is behind what is in the way, which may be large.
		behind := number(taken[i].Masked().Addr()) + 1<<(32-taken[i].Bits())
		tried += min((behind-base+size-1)/size, count) - place
	}
	return netip.Prefix{}, fmt.Errorf("no block of the range %s is free: choose another one with sharing.network_range", within)
}
