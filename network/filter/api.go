package filter

import (
	"net/netip"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// APIPort is the TCP port at which pods of a peer reach the API server, at the first address in Ours that a host can have:
// the port of the Service kubernetes, so that programs find what they know.
const APIPort = 443

// API is how pods of a peer reach the API server of this cluster. The zero API is not at all.
type API struct {
	// From are the pods that may, by their addresses in Theirs.
	From []netip.Prefix
	// At is where the API server is on this machine: an address of the machine that is not loopback.
	At netip.AddrPort
}

// allows reports whether a connection, whose ends are from and to as seen here, is one to the API server.
func (a API) allows(f *flow, from, to netip.Addr) bool {
	return to == a.At.Addr() && f.forward.protocol == unix.IPPROTO_TCP && containsAddr(a.From, from)
}

// addAPI adds the chain that accepts connections to the API server, after translation, and returns the rules that translate
// their destination. For all others, that is the host's address, which nobody reaches.
func (b *builder) addAPI(p *Peer, ours netip.Prefix) [][]expr.Any {
	name := "api_" + p.Name
	c := &chain{}
	b.chains[name] = c
	at := p.API.At
	if !at.IsValid() || at.Addr().Is6() != b.six || len(p.API.From) == 0 {
		return nil
	}
	gateway := netip.PrefixFrom(ours.Addr().Next(), ours.Addr().BitLen())
	from, to := setName(name, 0, "from"), setName(name, 0, "to")
	b.fill(from, p.API.From)
	b.fill(to, []netip.Prefix{netip.PrefixFrom(at.Addr(), at.Addr().BitLen())})
	c.rules = append(c.rules, rule(b.in(source, from), b.in(destination, to), port(unix.IPPROTO_TCP, at.Port()), redirected(), jump("admit_"+p.Name)))
	reach := [][]expr.Any{
		rule(b.in(source, from), b.within(destination, gateway), port(unix.IPPROTO_TCP, APIPort), b.redirect(at.Addr(), at.Port())),
	}
	if at.Addr() == b.host && at.Port() != APIPort { // else it would be reached at its own port, too
		reach = append(reach, rule(b.within(destination, gateway), port(unix.IPPROTO_TCP, at.Port()), drop()))
	}
	return reach
}
