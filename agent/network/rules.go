package network

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"liqo.io/agent/agent/config"
	"liqo.io/agent/ifwatch"
)

// Rules are compiled [[network]] rules, in the order in which they are tried.
// The zero value has none, and restricts nothing. Rules are immutable.
type Rules struct {
	rules []rule
}

// rule is one of them.
type rule struct {
	name    string
	link    ifwatch.Filter   // by name; nothing in it: any
	subnet  netip.Prefix     // invalid: any
	gateway net.HardwareAddr // nil: any

	advertise, discover, autojoin bool
}

// Compile reads the rules of a configuration. Every value that config.Load
// accepts is understood; the error names each rule that is not, and what is
// wrong with it. A rule without a name is called "network N", counted from 1.
func Compile(networks []config.Network) (Rules, error) {
	var compiled Rules
	var errs []error
	for i, n := range networks {
		r, err := compile(n)
		if r.name == "" {
			r.name = fmt.Sprintf("network %d", i+1)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("[[network]] rule %d (%q): %w", i+1, r.name, err))
		}
		compiled.rules = append(compiled.rules, r)
	}
	if err := errors.Join(errs...); err != nil {
		return Rules{}, err
	}
	return compiled, nil
}

func compile(n config.Network) (rule, error) {
	r := rule{name: n.Name, advertise: n.Advertise, discover: n.Discover, autojoin: n.Autojoin}
	var errs []error
	if n.Interface != "" {
		r.link.Include = []string{n.Interface}
		errs = append(errs, r.link.Validate())
	}
	if n.Subnet != "" {
		p, err := netip.ParsePrefix(n.Subnet)
		if err != nil {
			err = fmt.Errorf(`subnet %q is not a network; write one such as "192.168.7.0/24": %w`, n.Subnet, err)
		}
		r.subnet = p.Masked()
		errs = append(errs, err)
	}
	if n.GatewayMAC != "" {
		mac, err := net.ParseMAC(n.GatewayMAC)
		if err != nil || len(mac) != macLength {
			err = fmt.Errorf(`gateway_mac %q is not a hardware address; write one such as "00:00:5e:00:53:01"`, n.GatewayMAC)
		}
		r.gateway = mac
		errs = append(errs, err)
	}
	return r, errors.Join(errs...)
}

// macLength is the length in bytes of the hardware address of a router on
// Ethernet or Wi-Fi.
const macLength = 6

// NeedGateways reports whether Decide looks at gateways, which then have to be
// followed (ifwatch.Watcher.FollowGateways).
func (r Rules) NeedGateways() bool {
	return slices.ContainsFunc(r.rules, func(x rule) bool { return x.gateway != nil })
}

// Use says what a link is used for, and why.
type Use struct {
	Name string // of the rule that decides; "" when none does
	Rule int    // its place, from 0; -1 when none does

	Advertise bool // tell neighbours on the link about us
	Discover  bool // look for neighbours on the link
	Autojoin  bool // peers seen on it may be joined without being asked

	// Undecided says that the rule waits for the hardware address of a gateway;
	// the link is silent until then.
	Undecided bool
	// Why says what holds of the link, or what is waited for, for people: "gateway
	// 52:54:00:12:34:56".
	Why string
}

// Decide says what a link is used for. As long as it cannot be known whether a
// rule holds, because it asks for a gateway's hardware address that is not
// resolved, the result is Undecided; with waited, which says that the patience
// for that is over, such a rule does not hold. A link without a default route
// has no gateway, so there is nothing to wait for.
func (r Rules) Decide(l ifwatch.Link, waited bool) Use {
	for i, x := range r.rules {
		switch why, verdict := x.match(l); {
		case verdict == unclear && !waited:
			return Use{Name: x.name, Rule: i, Undecided: true, Why: why}
		case verdict == holds:
			return Use{
				Name: x.name, Rule: i,
				Advertise: x.advertise, Discover: x.discover, Autojoin: x.autojoin,
				Why: why,
			}
		}
	}
	return Use{Rule: -1, Advertise: true, Discover: true, Autojoin: true, Why: "no rule matches"}
}

// verdict is what is known about a rule on a link.
type verdict uint8

const (
	fails verdict = iota
	holds
	unclear // a gateway's hardware address decides, and it is not resolved
)

// match tries a rule on a link. why says, for people, what holds or is waited
// for.
func (x rule) match(l ifwatch.Link) (why string, _ verdict) {
	var because []string
	if len(x.link.Include) > 0 {
		if !x.link.Allows(l.Name) {
			return "", fails
		}
		because = append(because, "interface "+x.link.Include[0])
	}
	if x.subnet.IsValid() {
		if !slices.ContainsFunc(l.Addrs, func(p netip.Prefix) bool { return x.subnet.Contains(p.Addr()) }) {
			return "", fails
		}
		because = append(because, "subnet "+x.subnet.String())
	}
	if x.gateway != nil {
		if !slices.ContainsFunc(l.Gateways, func(g ifwatch.Gateway) bool { return bytes.Equal(g.MAC, x.gateway) }) {
			return awaited(l)
		}
		because = append(because, "gateway "+x.gateway.String())
	}
	if because == nil {
		because = []string{"everywhere"}
	}
	return strings.Join(because, ", "), holds
}

// awaited says whether one of the link's gateways may yet turn out to be the
// one that a rule asks for.
func awaited(l ifwatch.Link) (why string, _ verdict) {
	switch waiting := unresolved(l); {
	case len(waiting) == 0:
		return "", fails
	case !waiting[0].IsValid():
		return "waiting for the default routes to be read", unclear
	default:
		list := make([]string, len(waiting))
		for i, a := range waiting {
			list[i] = a.String()
		}
		return "waiting for the hardware address of gateway " + strings.Join(list, ", "), unclear
	}
}

// unresolved returns the addresses of the link's gateways whose hardware
// address is not known. The one zero Addr stands for all gateways of a link
// whose default routes nobody has looked at yet.
func unresolved(l ifwatch.Link) []netip.Addr {
	if !l.GatewaysKnown && len(l.Gateways) == 0 {
		return []netip.Addr{{}}
	}
	var list []netip.Addr
	for _, g := range l.Gateways {
		if len(g.MAC) == 0 {
			list = append(list, g.Addr)
		}
	}
	return list
}
