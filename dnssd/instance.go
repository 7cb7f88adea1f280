package dnssd

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/miekg/dns"

	"liqo.io/agent/dnssd/resolver"
	"liqo.io/agent/peer/text"
)

// maxInstanceAddrs bounds the addresses of one instance.
const maxInstanceAddrs = 32

// entry is what became of a name that a domain lists: an instance, or something that
// is left out.
type entry struct {
	instance Instance
	skip     *Skip
}

func leftOut(name string, reason SkipReason, message string) entry {
	return entry{skip: &Skip{Name: name, Reason: reason, Message: text.Sentence(message)}}
}

// host is a target of SRV records and its addresses.
type host struct {
	v4, v6 reply
}

// lookup looks an instance up that is listed for ttl.
func (l *look) lookup(ctx context.Context, name string, ttl time.Duration) entry {
	srv := l.ask(ctx, name, dns.TypeSRV)
	switch {
	case !srv.outcome.Conclusive():
		return l.stale(name, srv.message)
	case srv.outcome == resolver.NoName:
		return leftOut(name, SkipNoService, "the name does not exist")
	case srv.outcome == resolver.NoData:
		return leftOut(name, SkipNoService, "it has no SRV record")
	case len(srv.facts.services) == 0 && srv.facts.off:
		return leftOut(name, SkipNotAvailable, `its SRV record says that it is not available (target ".")`)
	case len(srv.facts.services) == 0:
		return leftOut(name, SkipNoService, cmp.Or(srv.facts.wrong, "it has no SRV record"))
	}
	services := order(srv.facts.services, l.seed)
	txt, hosts := l.details(ctx, name, services)
	if !txt.outcome.Conclusive() {
		return l.stale(name, txt.message)
	}
	i := Instance{Name: name, TTL: min(ttl, srv.ttl)}
	if txt.outcome == resolver.Found {
		i.TTL = min(i.TTL, txt.ttl)
	}
	if a := txt.facts.txt; a != nil && txt.outcome == resolver.Found {
		if a.err != nil {
			return leftOut(name, SkipBadTXT, a.err.Error())
		}
		i.ID, i.ClusterName, i.Namespace = a.said.ClusterID, a.said.ClusterName, a.said.Namespace
		i.Fingerprint, i.Version = a.said.Fingerprint, a.said.Version
	}
	answered := false // addresses of a target are known now, not only from before
	for _, s := range services {
		h := hosts[s.host]
		addrs := interleave(h.v4.facts.addrs, h.v6.facts.addrs)
		for _, r := range []reply{h.v4, h.v6} {
			if r.outcome == resolver.Found && len(r.facts.addrs) > 0 {
				i.TTL = min(i.TTL, r.ttl)
				answered = true
			}
		}
		if len(addrs) > 0 && i.URL == "" {
			i.URL = fmt.Sprintf("https://%s:%d", s.host, s.port)
		}
		for _, addr := range addrs {
			if at := netip.AddrPortFrom(addr, s.port); len(i.Addrs) < maxInstanceAddrs && !slices.Contains(i.Addrs, at) {
				i.Addrs = append(i.Addrs, at)
			}
		}
	}
	if answered {
		return entry{instance: i}
	}
	for _, s := range services {
		h := hosts[s.host]
		if !h.v4.outcome.Conclusive() {
			return l.stale(name, h.v4.message)
		}
		if !h.v6.outcome.Conclusive() {
			return l.stale(name, h.v6.message)
		}
	}
	return leftOut(name, SkipNoAddress, noAddress(services, hosts))
}

// details asks for the text of an instance and the addresses of its targets, all at
// once.
func (l *look) details(ctx context.Context, name string, services []service) (reply, map[string]*host) {
	hosts := make(map[string]*host, len(services))
	var txt reply
	var wg sync.WaitGroup
	wg.Go(func() { txt = l.ask(ctx, name, dns.TypeTXT) })
	for _, s := range services {
		if hosts[s.host] != nil {
			continue
		}
		h := new(host)
		hosts[s.host] = h
		wg.Go(func() { h.v4 = l.ask(ctx, s.host, dns.TypeA) })
		wg.Go(func() { h.v6 = l.ask(ctx, s.host, dns.TypeAAAA) })
	}
	wg.Wait()
	return txt, hosts
}

// noAddress says why no target of an instance has an address.
func noAddress(services []service, hosts map[string]*host) string {
	target := services[0].host
	h := hosts[target]
	message := fmt.Sprintf("its target %s has neither an A nor an AAAA record", text.Excerpt(target))
	switch {
	case h.v4.facts.wrong != "":
		message = fmt.Sprintf("its target %s has no address that could be used: %s", text.Excerpt(target), h.v4.facts.wrong)
	case h.v6.facts.wrong != "":
		message = fmt.Sprintf("its target %s has no address that could be used: %s", text.Excerpt(target), h.v6.facts.wrong)
	case h.v4.outcome == resolver.NoName || h.v6.outcome == resolver.NoName:
		message = fmt.Sprintf("its target %s does not exist", text.Excerpt(target))
	}
	if more := len(hosts) - 1; more > 0 {
		message += fmt.Sprintf(", and %s not do either", count(more, "other target does", "other targets do"))
	}
	return message
}

// stale returns what was known about an instance before, now that a question about it
// is not answered.
func (l *look) stale(name, why string) entry {
	l.touch(name)
	// Nobody writes to instances while the look runs.
	i, known := l.memory.instances[name]
	if !known {
		return leftOut(name, SkipLookup, why)
	}
	i.Stale = why
	return entry{instance: i}
}
