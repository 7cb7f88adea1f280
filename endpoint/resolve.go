package endpoint

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"
)

// resolve returns the addresses behind a target's URL.
func resolve(ctx context.Context, raw string) ([]candidate, error) {
	u, err := url.Parse(raw)
	switch {
	case err != nil:
		return nil, fmt.Errorf("endpoint URL: %w", err)
	case u.Scheme != "https" || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || (u.Path != "" && u.Path != "/"):
		return nil, fmt.Errorf("endpoint URL %q is not of the form https://host:port", raw)
	}
	port := uint16(443)
	if p := u.Port(); p != "" {
		n, err := strconv.ParseUint(p, 10, 16)
		if err != nil || n == 0 {
			return nil, fmt.Errorf("endpoint URL %q: port %q is not between 1 and 65535", raw, p)
		}
		port = uint16(n)
	}
	host := u.Hostname()
	var addrs []netip.Addr
	name := ""
	if literal, err := netip.ParseAddr(host); err == nil {
		addrs = []netip.Addr{literal}
	} else {
		name = host
		if addrs, err = net.DefaultResolver.LookupNetIP(ctx, "ip", host); err != nil {
			return nil, fmt.Errorf("look up %q: %w", host, err)
		}
	}
	ports := make([]netip.AddrPort, 0, len(addrs))
	for _, a := range addrs {
		ports = append(ports, netip.AddrPortFrom(a, port))
	}
	candidates, failures := order(ports)
	if len(candidates) == 0 {
		return nil, fmt.Errorf("endpoint URL %q: %w", raw, mostTelling(failures, false))
	}
	for i := range candidates {
		candidates[i].name, candidates[i].url = name, (&url.URL{Scheme: "https", Host: u.Host}).String()
	}
	return candidates, nil
}
