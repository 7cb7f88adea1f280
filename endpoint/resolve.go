package endpoint

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"
)

// host is the host of an endpoint's URL.
type host struct {
	name string     // "" if it is given by its address
	addr netip.Addr // else this
	port uint16
	url  string // https://host:port
}

func parseURL(raw string) (host, error) {
	u, err := url.Parse(raw)
	switch {
	case err != nil:
		return host{}, fmt.Errorf("endpoint URL: %w", err)
	case u.Scheme != "https" || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || (u.Path != "" && u.Path != "/"):
		return host{}, fmt.Errorf("endpoint URL %q is not of the form https://host:port", raw)
	}
	h := host{port: 443, url: (&url.URL{Scheme: "https", Host: u.Host}).String()}
	if p := u.Port(); p != "" {
		n, err := strconv.ParseUint(p, 10, 16)
		if err != nil || n == 0 {
			return host{}, fmt.Errorf("endpoint URL %q: port %q is not between 1 and 65535", raw, p)
		}
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
	addrs := []netip.Addr{h.addr}
	if h.name != "" {
		if addrs, err = net.DefaultResolver.LookupNetIP(ctx, "ip", h.name); err != nil {
			return nil, fmt.Errorf("look up %q: %w", h.name, err)
		}
	}
	ports := make([]netip.AddrPort, 0, len(addrs))
	for _, a := range addrs {
		ports = append(ports, netip.AddrPortFrom(a, h.port))
	}
	candidates, failures := order(ports)
	if len(candidates) == 0 {
		return nil, fmt.Errorf("endpoint URL %q: %w", raw, mostTelling(failures, false))
	}
	return h.named(candidates), nil
}
