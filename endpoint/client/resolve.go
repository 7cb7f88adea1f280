package client

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strconv"

	"liqo.io/agent/peer"
	"liqo.io/agent/peer/text"
)

// host is the host of an endpoint's URL.
type host struct {
	name string     // "" if it is given by its address
	addr netip.Addr // else this
	port uint16
	url  string // https://host:port
}

func parseURL(raw string) (host, error) {
	u, err := peer.ParseURL(raw)
	if err != nil {
		return host{}, fmt.Errorf("endpoint URL %q is not of the form https://host:port: %w", text.Excerpt(raw), err)
	}
	h := host{port: 443, url: u.String()}
	if n, err := strconv.ParseUint(u.Port(), 10, 16); err == nil {
		h.port = uint16(n)
	}
	if h.addr, err = netip.ParseAddr(u.Hostname()); err != nil {
		h.name = u.Hostname()
	}
	return h, nil
}

// named says of candidates that they are this host's.
func (h host) named(candidates []candidate) []candidate {
	for i := range candidates {
		candidates[i].name, candidates[i].url = h.name, h.url
	}
	return candidates
}

// resolve returns the addresses behind a target's URL.
func resolve(ctx context.Context, raw string) ([]candidate, error) {
	h, err := parseURL(raw)
	if err != nil {
		return nil, err
	}
	Addrs := []netip.Addr{h.addr}
	if h.name != "" {
		if Addrs, err = net.DefaultResolver.LookupNetIP(ctx, "ip", h.name); err != nil {
			return nil, fmt.Errorf("look up %q: %w", h.name, err)
		}
	}
	ports := make([]netip.AddrPort, 0, len(Addrs))
	for _, a := range Addrs {
		ports = append(ports, netip.AddrPortFrom(a, h.port))
	}
	candidates, failures := order(ports)
	if len(candidates) == 0 {
		return nil, fmt.Errorf("endpoint URL %q: %w", raw, mostTelling(failures, false))
	}
	return h.named(candidates), nil
}
