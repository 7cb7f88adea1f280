package network

import (
	"encoding/binary"
	"hash/fnv"
	"net/netip"
	"slices"

	"liqo.io/agent/peer"
)

// keep remembers which addresses pods of third clusters had in an earlier run.
func (e *Engine) keep(t Table) {
	found, err := t.Thirds()
	if err != nil {
		e.cfg.Logger.Debug("cannot read which addresses pods of other peers had", "error", err)
	}
	e.kept = make(map[peer.ClusterID]map[netip.Addr]netip.Addr)
	for name, all := range found {
		had := make(map[netip.Addr]netip.Addr)
		for _, t := range all {
			had[t.Here] = t.There
		}
		e.kept[peer.ClusterID(name)] = had
	}
}

// place gives pods of other peers addresses in the upper halves of the blocks that the peer chose for us, of which ours are
// the lower halves. Who has one keeps it; who finds no room has none. Only the engine's Run calls it.
func (p *path) place(pods []netip.Addr, ours []netip.Prefix) map[netip.Addr]netip.Addr {
	if pods == nil {
		return nil
	}
	p.mu.Lock()
	before := p.thirds
	p.mu.Unlock()
	if before == nil {
		before = p.engine.kept[p.id]
	}
	out, used := make(map[netip.Addr]netip.Addr, len(pods)), make(map[netip.Addr]bool, len(pods))
	give := func(pod, there netip.Addr) { out[pod], used[there] = there, true }
	var without []netip.Addr
	for _, pod := range pods {
		there, had := before[pod]
		if o, ok := ofFamily(ours, pod.Is4()); !ok {
			continue
		} else if had && upper(o).Contains(there) {
			give(pod, there)
		} else {
			without = append(without, pod)
		}
	}
	slices.SortFunc(without, netip.Addr.Compare) // after a restart of the machine, the same have the same
	for _, pod := range without {
		o, _ := ofFamily(ours, pod.Is4())
		if there, ok := freePlace(pod, upper(o), used); ok {
			give(pod, there)
		}
	}
	return out
}

// mostTried bounds how many places are tried for a pod: all that there are for the largest range of IPv4.
const mostTried = 1 << (32 - leastBits4)

// freePlace returns an address in a range that is not used: the first one from the place that the pod has in its own range,
// moved by a number that depends on that range. Pods of each cluster are numbered from the same beginning.
func freePlace(pod netip.Addr, within netip.Prefix, used map[netip.Addr]bool) (netip.Addr, bool) {
	own, err := pod.Prefix(within.Bits())
	if err != nil {
		return netip.Addr{}, false
	}
	hash := fnv.New64a()
	_, _ = hash.Write(own.Addr().AsSlice())
	mask := ^uint64(0) >> (64 - (within.Addr().BitLen() - within.Bits()))
	start := low(pod) + hash.Sum64()
	for i := range min(mask, mostTried-1) + 1 {
		there := withLow(within.Addr(), low(within.Addr())|(start+i)&mask)
		if !used[there] {
			return there, true
		}
	}
	return netip.Addr{}, false
}

// low returns the last 64 bits of an address.
func low(a netip.Addr) uint64 {
	b := a.As16()
	return binary.BigEndian.Uint64(b[8:])
}

// withLow returns an address with other last 64 bits.
func withLow(a netip.Addr, bits uint64) netip.Addr {
	b := a.As16()
	binary.BigEndian.PutUint64(b[8:], bits)
	return netip.AddrFrom16(b).Unmap()
}

// upper returns the other half of the block of which p is the lower half.
func upper(p netip.Prefix) netip.Prefix {
	b, bit := p.Addr().As16(), p.Bits()-1
	if p.Addr().Is4() {
		bit += 96
	}
	b[bit/8] |= 0x80 >> (bit % 8)
	return netip.PrefixFrom(netip.AddrFrom16(b).Unmap(), p.Bits())
}
