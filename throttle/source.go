package throttle

import "net/netip"

// Source is what counts as one source: an IPv4 address, or an IPv6 network of 64 bits, which
// is what a single host has at its disposal. The zero address has the zero prefix.
func Source(a netip.Addr) netip.Prefix {
	a = a.Unmap().WithZone("")
	bits := 64
	if a.Is4() {
		bits = 32
	}
	p, err := a.Prefix(bits)
	if err != nil {
		return netip.Prefix{}
	}
	return p
}
