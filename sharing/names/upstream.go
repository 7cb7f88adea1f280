package names

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/miekg/dns"

	"liqo.io/agent/sharing/workload"
)

const (
	// tries of tryTimeout each fit into the five seconds that resolvers wait.
	tries      = 3
	tryTimeout = 1300 * time.Millisecond
)

// errSilent: the cluster DNS does not answer, which it may do in a moment.
var errSilent = errors.New("the cluster DNS does not answer")

// exchange asks the cluster DNS by a network, "udp" or "tcp", for at most timeout a try. What comes by UDP may be truncated.
func exchange(ctx context.Context, network string, m *dns.Msg, servers []netip.AddrPort, timeout time.Duration) (*dns.Msg, error) {
	if len(servers) == 0 {
		return nil, errors.New("this cluster has no DNS server")
	}
	var errs []error
	for i := range tries {
		got, err := try(ctx, network, m, servers[i%len(servers)], timeout)
		if err == nil {
			return got, nil
		}
		errs = append(errs, err)
		if ctx.Err() != nil {
			break
		}
	}
	return nil, fmt.Errorf("%w: %w", errSilent, errors.Join(errs...))
}

// try asks one server.
func try(ctx context.Context, network string, m *dns.Msg, server netip.AddrPort, timeout time.Duration) (*dns.Msg, error) {
	client := dns.Client{Net: network, UDPSize: maxUDP, Timeout: timeout}
	got, _, err := client.ExchangeContext(ctx, m, server.String())
	switch {
	case err != nil:
		return nil, err
	case !got.Response || len(got.Question) != 1 || got.Question[0].Qtype != m.Question[0].Qtype || got.Question[0].Qclass != dns.ClassINET ||
		!strings.EqualFold(got.Question[0].Name, m.Question[0].Name):
		return nil, fmt.Errorf("%s answers another question", server)
	case got.Truncated && network == "tcp":
		return nil, fmt.Errorf("%s truncates what it sends by TCP", server)
	}
	return got, nil
}

// Probe asks a server for a name from this machine, which it has to refuse, and returns why it
// did not.
func Probe(ctx context.Context, server string) error {
	m := new(dns.Msg)
	m.SetQuestion("kubernetes.default.svc."+dns.Fqdn(workload.DefaultDomain), dns.TypeA)
	client := dns.Client{Timeout: tryTimeout}
	got, _, err := client.ExchangeContext(ctx, m, net.JoinHostPort(server, strconv.Itoa(Port)))
	if err == nil && got.Rcode != dns.RcodeRefused {
		err = fmt.Errorf("it answers %s", dns.RcodeToString[got.Rcode])
	}
	return err
}

// verify returns why the DNS servers are not those of a cluster with that domain, nil if they are.
func verify(ctx context.Context, domain string, servers []netip.AddrPort, timeout time.Duration) error {
	m := new(dns.Msg)
	m.SetQuestion("kubernetes.default.svc."+dns.Fqdn(domain), dns.TypeA)
	m.SetEdns0(maxUDP, false)
	got, err := exchange(ctx, "udp", m, servers, timeout)
	switch {
	case err != nil:
	case got.Rcode == dns.RcodeServerFailure: // as while CoreDNS starts
		err = fmt.Errorf("%w: %s", errSilent, dns.RcodeToString[got.Rcode])
	case got.Rcode != dns.RcodeSuccess:
		err = fmt.Errorf("the cluster DNS does not know %s: %s", m.Question[0].Name, dns.RcodeToString[got.Rcode])
	}
	return err
}
