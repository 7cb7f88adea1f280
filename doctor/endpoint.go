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
	"liqo.io/agent/endpoint"
	"liqo.io/agent/peer"
)

// callBack tries an address of this machine as a peer would.
func callBack(ctx context.Context, key peer.Fingerprint, at string) (endpoint.Reached, error) {
	addr, err := netip.ParseAddrPort(at)
	if err != nil {
		return endpoint.Reached{}, err
	}
	client := endpoint.NewClient(endpoint.ClientConfig{})
	defer client.Close()
	return client.CallBack(ctx, key, addr), nil
}

func checkEndpoint(ctx context.Context, b *Box) []Finding {
	says, err := b.agentSays(ctx)
	if err != nil {
		return []Finding{unasked(err)}
	}
	st := says.status
	key, err := peer.ParseFingerprint(st.Identity.Fingerprint)
	if err != nil {
		return []Finding{skipped("the agent does not say its key: %v", err)}
	}
	here, err := b.ask.callBack(ctx, key, localAddress(st.Endpoint))
	if err != nil {
		return []Finding{skipped("the endpoint cannot be tried here: %v", err)}
	}
	if here.Outcome != endpoint.ReachReached {
		return []Finding{{Code: "endpoint-silent", Status: Error,
			What: fmt.Sprintf("the endpoint does not answer on this box itself, at %s: %s", here.Address, here.Detail),
			Why:  "no other cluster can verify this one, ask it for anything or be used through it",
			Do:   []string{"see the agent's log: journalctl -u liqo-agent", fmt.Sprintf("see who has the port: sudo ss -ltnp 'sport = :%d'", st.Endpoint.Port)}}}
	}
	calls, err := b.callsBack(ctx)
	if err != nil {
		return []Finding{skipped("port %d listens here; peers cannot be asked whether they reach it: %v", st.Endpoint.Port, err)}
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
		case c.Outcome == string(endpoint.ReachReached):
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
			return []Finding{fine("port %d listens, and %s can connect to it", port, strings.Join(reached, ", "))}
		case len(unknown) > 0:
			return []Finding{fine("port %d listens; whether peers can connect to it is not known: %s", port, strings.Join(unknown, ", "))}
		}
		return []Finding{fine("port %d listens; no trusted peer is there to try it from outside", port)}
	}
	f := Finding{Code: "endpoint-unreachable", Status: Error,
		What: fmt.Sprintf("port %d listens, but cannot be reached by %s", port, strings.Join(failed, ", ")),
		Why:  "a peer that cannot connect to this cluster does not verify it, cannot be told of changes, and cannot use its resources",
	}
	drops := fire.Drops(look.Incoming, "tcp", uint16(port))
	switch {
	case first.Outcome == string(endpoint.ReachOtherKey), first.Outcome == string(endpoint.ReachNotTLS):
		f.What += ": something else answers there"
		f.Do = []string{"this box is behind a router that translates addresses: forward a port to it and say so with endpoint.advertise_url",
			"or give the other program another port, or this endpoint, with endpoint.listen"}
	default:
		f.Do = firewallHelp(fire, "tcp", port, "other clusters")
		if len(drops) == 0 {
			f.Do = append(f.Do, "if no firewall on this box does it, look at those in between, and at that of the peer for outgoing connections",
				"if this box is behind a router that translates addresses: forward a port to it and say so with endpoint.advertise_url")
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
