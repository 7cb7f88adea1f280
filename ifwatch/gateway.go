package ifwatch

import (
	"bytes"
	"fmt"
	"net"
	"net/netip"
)

// Gateway is the router of a default route, IPv4 or IPv6, that leads through a
// link. Which routers a box has says in which network it is: addresses such as
// 192.168.1.1 are the same in many networks, hardware addresses are not.
type Gateway struct {
	// Addr is the router's address, without a zone: the zone is the link.
	Addr netip.Addr
	// MAC is the router's hardware address, nil while it is not resolved. Once
	// resolved it stays as long as the link keeps its carrier, until the kernel
	// learns of another one, and for ten minutes when the router no longer
	// answers: routers are restarted, and the box has not moved because of that.
	MAC net.HardwareAddr
}

// Equal reports whether g and o say the same.
func (g Gateway) Equal(o Gateway) bool { return g.Addr == o.Addr && bytes.Equal(g.MAC, o.MAC) }

// String returns the address and, once it is resolved, the hardware address in
// brackets.
func (g Gateway) String() string {
	if g.MAC == nil {
		return g.Addr.String()
	}
	return fmt.Sprintf("%s (%s)", g.Addr, g.MAC)
}
