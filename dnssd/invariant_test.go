package dnssd

import (
	"cmp"
	"fmt"
	"iter"
	"net/netip"
	"net/url"
	"slices"
	"strconv"

	"liqo.io/agent/dnssd/resolver"
)

// problems yields what must not be in any report, whatever the servers answer.
func problems(r Report) iter.Seq[string] {
	return func(yield func(string) bool) {
		bad := func(format string, args ...any) { yield(fmt.Sprintf(format, args...)) }
		if r.Outcome.Conclusive() && !r.Complete {
			bad("outcome %s is conclusive and the report not complete", r.Outcome)
		}
		if !r.Outcome.Conclusive() && rank(r.Outcome) == 0 {
			bad("outcome %q", r.Outcome)
		}
		if r.Message == "" || !printable(r.Message, 500) {
			bad("message %q", r.Message)
		}
		if len(r.Domains) > maxDomains {
			bad("%d further domains", len(r.Domains))
		}
		seen := make(map[string]bool)
		for _, i := range r.Instances {
			if seen[i.Name] {
				bad("instance %s is there twice", i.Name)
			}
			seen[i.Name] = true
			if n, ok := canonical(i.Name); !ok || n != i.Name {
				bad("instance name %q", i.Name)
			}
			if !printable(i.Stale, 500) {
				bad("%s: stale %q", i.Name, i.Stale)
			}
			u, err := url.Parse(i.URL)
			if err != nil || u.Scheme != "https" || u.Hostname() == "" || u.User != nil || u.Path != "" || u.RawQuery != "" || u.Fragment != "" {
				bad("%s: URL %q: %v", i.Name, i.URL, err)
				continue
			}
			if port, err := strconv.ParseUint(u.Port(), 10, 16); err != nil || port == 0 {
				bad("%s: URL %q: port %v", i.Name, i.URL, err)
			}
			if _, err := netip.ParseAddr(u.Hostname()); err == nil {
				bad("%s: URL %q holds an address", i.Name, i.URL)
			}
			if len(i.Addrs) == 0 || len(i.Addrs) > maxInstanceAddrs {
				bad("%s: %d addresses", i.Name, len(i.Addrs))
			}
			for n, a := range i.Addrs {
				if a.Port() == 0 || a.Addr() != a.Addr().Unmap() || a.Addr().IsUnspecified() || a.Addr().IsLoopback() || a.Addr().IsMulticast() || a.Addr().IsLinkLocalUnicast() {
					bad("%s: address %s", i.Name, a)
				}
				if slices.Contains(i.Addrs[:n], a) {
					bad("%s: address %s twice", i.Name, a)
				}
			}
			if i.TTL < 0 {
				bad("%s: TTL %s", i.Name, i.TTL)
			}
			if !printable(i.ClusterName, 63) || !printable(i.Version, 16) || !printable(i.Namespace, 63) {
				bad("%s: text %+v", i.Name, i)
			}
		}
		if !slices.IsSortedFunc(r.Instances, func(a, b Instance) int { return cmp.Compare(a.Name, b.Name) }) {
			bad("the instances are not sorted")
		}
		for _, s := range r.Skipped {
			if !printable(s.Name, maxName) || s.Message == "" || !printable(s.Message, 500) {
				bad("skip %+v", s)
			}
			if seen[s.Name] && s.Name != r.Domain {
				bad("%s is an instance and skipped", s.Name)
			}
			switch s.Reason {
			case SkipNoService, SkipNotAvailable, SkipNoAddress, SkipBadTXT, SkipLookup, SkipTooMany:
			default:
				bad("skip %+v: unknown reason", s)
			}
		}
		if r.Outcome == resolver.NoName && r.Server == "" {
			bad("nobody said that the name does not exist")
		}
	}
}
