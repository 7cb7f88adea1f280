package doctor

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"liqo.io/agent/agent/control"
	"liqo.io/agent/doctor/look"
	"liqo.io/agent/endpoint/client"
	"liqo.io/agent/endpoint/wire"
	"liqo.io/agent/peer"
)

// callBack tries an address of this machine as a peer would.
func callBack(ctx context.Context, key peer.Fingerprint, at string) (wire.Reached, error) {
	addr, err := netip.ParseAddrPort(at)
	if err != nil {
		return wire.Reached{}, err
	}
	caller := client.New(client.Config{})
	defer caller.Close()
	return caller.CallBack(ctx, key, addr), nil
}

func checkEndpoint(ctx context.Context, b *Box) []Finding {
	says, err := b.agentSays(ctx)
	if err != nil {
		return []Finding{unasked(err)}
	}
	st := says.status
	key, err := peer.ParseFingerprint(st.Identity.Fingerprint)
	if err != nil {
		return []Finding{skipped("the agent does not report its key: %v", err)}
	}
	here, err := b.ask.callBack(ctx, key, localAddress(st.Endpoint))
	if err != nil {
		return []Finding{skipped("cannot connect to the endpoint from here: %v", err)}
	}
	if here.Outcome != wire.ReachReached {
		return []Finding{{Code: "endpoint-silent", Status: Error,
			What: fmt.Sprintf("the endpoint does not answer on this box itself at %s: %s", here.Address, here.Detail),
			Why:  "no other cluster can verify this one, or send requests to it",
			Do:   []string{"check the log of the agent: journalctl -u liqo-agent", fmt.Sprintf("show the program that uses the port: sudo ss -ltnp 'sport = :%d'", st.Endpoint.Port)}}}
	}
	calls, err := b.callsBack(ctx)
	if err != nil {
		return []Finding{skipped("port %d is open here; cannot ask peers whether they reach it: %v", st.Endpoint.Port, err)}
	}
	return judgeReach(calls, st.Endpoint.Port, b.config().Endpoint.AdvertiseURL, b.firewall(ctx))
}

// localAddress is where the endpoint answers on this machine.
func localAddress(e control.Endpoint) string {
	host, _, err := net.SplitHostPort(e.Listen)
	if at, parsed := netip.ParseAddr(host); err != nil || parsed != nil || at.IsUnspecified() {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, strconv.Itoa(e.Port))
}

// judgeReach says what it means that peers could or could not call back.
func judgeReach(calls []control.Reach, port int, advertised string, fire look.Firewall) []Finding {
	var reached, failed, unknown []string
	var first *control.Reach
	for i, c := range calls {
		name := c.Name
		if name == "" {
			name = c.ID
		}
		switch {
		case c.Outcome == string(wire.ReachReached):
			reached = append(reached, name)
		case c.Outcome == "":
			unknown = append(unknown, name+" ("+c.Error+")")
		default:
			failed = append(failed, fmt.Sprintf("%s (%s at %s)", name, c.Outcome, c.Address))
			if first == nil {
				first = &calls[i]
			}
		}
	}
	if first == nil {
		switch {
		case len(reached) > 0:
			return []Finding{fine("port %d is open, and %s can connect to it", port, strings.Join(reached, ", "))}
		case len(unknown) > 0:
			return []Finding{fine("port %d is open; it is not known whether peers can connect to it: %s", port, strings.Join(unknown, ", "))}
		}
		return []Finding{fine("port %d is open; no trusted peer is present to test it from outside", port)}
	}
	f := Finding{Code: "endpoint-unreachable", Status: Error,
		What: fmt.Sprintf("port %d is open here, but cannot be reached by %s", port, strings.Join(failed, ", ")),
		Why:  "a peer that cannot connect to this cluster cannot verify it, learn of changes, or use its resources",
	}
	drops := fire.Drops(look.Incoming, "tcp", uint16(port))
	switch {
	case first.Outcome == string(wire.ReachOtherKey), first.Outcome == string(wire.ReachNotTLS):
		f.What += ": another program answers there"
		f.Do = []string{"if this box is behind NAT: forward a port to it, and set endpoint.advertise_url",
			"or move the other program to another port, or this endpoint with endpoint.listen"}
	default:
		f.Do = firewallHelp(fire, "tcp", port, "other clusters")
		if len(drops) == 0 {
			f.Do = append(f.Do, "if no firewall on this box drops them, check those in between, and that of the peer for outgoing connections",
				"if this box is behind NAT: forward a port to it, and set endpoint.advertise_url")
		}
	}
	if len(reached) > 0 {
		f.Status = Warning
		f.What += fmt.Sprintf("; %s can", strings.Join(reached, ", "))
	}
	if advertised != "" {
		f.Status = Info
		f.What += "; they use " + advertised + ", which was not tried"
	}
	return []Finding{withRules(f, drops)}
}
