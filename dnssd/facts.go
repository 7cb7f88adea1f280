package dnssd

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/miekg/dns"

	"liqo.io/agent/dnssd/resolver"
	"liqo.io/agent/peer"
)

const (
	maxServices = 16 // SRV records looked at per instance
	maxAddrs    = 16 // addresses kept per host name and IP version
)

// facts is what the records of an answer say, as far as it can be used.
type facts struct {
	names    []string  // PTR: canonical, sorted
	services []service // SRV: sorted by priority, target, port
	txt      *announcement
	addrs    []netip.Addr // A, AAAA: sorted
	// wrong says what is wrong with the records that are left out, for example with one
	// of them; off that one said that there is no service (SRV with target ".").
	wrong string
	off   bool
}

// service is a usable SRV record.
type service struct {
	host             string // a host name in lower case, without a trailing dot
	port             uint16
	priority, weight uint16
}

// announcement is a TXT record of ours.
type announcement struct {
	said peer.Announced
	err  error // it is none that can be understood
}

// interpret reads the records of an answer to a question of type qtype.
func interpret(qtype uint16, a resolver.Answer) facts {
	var f facts
	var texts [][]string
	for _, rr := range a.Records {
		switch rr := rr.(type) {
		case *dns.PTR:
			f.addName(rr.Ptr)
		case *dns.SRV:
			f.addService(rr)
		case *dns.TXT:
			texts = append(texts, rr.Txt)
		case *dns.A:
			f.addAddr(netip.AddrFromSlice(rr.A.To4()))
		case *dns.AAAA:
			f.addAddr(netip.AddrFromSlice(rr.AAAA.To16()))
		}
	}
	slices.Sort(f.names)
	f.names = slices.Clip(slices.Compact(f.names))
	slices.SortFunc(f.services, func(a, b service) int {
		return cmp.Or(cmp.Compare(a.priority, b.priority), cmp.Compare(a.host, b.host), cmp.Compare(a.port, b.port), cmp.Compare(b.weight, a.weight))
	})
	f.services = slices.CompactFunc(f.services, func(a, b service) bool {
		return a.priority == b.priority && a.host == b.host && a.port == b.port
	})
	if len(f.services) > maxServices {
		f.services = slices.Clone(f.services[:maxServices])
	}
	slices.SortFunc(f.addrs, netip.Addr.Compare)
	f.addrs = slices.Compact(f.addrs)
	if len(f.addrs) > maxAddrs {
		f.addrs = slices.Clone(f.addrs[:maxAddrs])
	}
	f.txt = ours(texts)
	return f
}

func (f *facts) addName(name string) {
	if n, ok := canonical(name); ok {
		f.names = append(f.names, n)
	} else {
		f.wrong = fmt.Sprintf("a PTR record holds %s, which is no name", quoted(name))
	}
}

func (f *facts) addService(rr *dns.SRV) {
	if rr.Target == "." {
		f.off = true
		return
	}
	host, problem := hostname(rr.Target)
	switch {
	case problem != "":
		f.wrong = fmt.Sprintf("its SRV target %s %s", quoted(rr.Target), problem)
	case rr.Port == 0:
		f.wrong = fmt.Sprintf("its SRV record for %s has port 0, where nothing can listen", quoted(host))
	default:
		f.services = append(f.services, service{host: host, port: rr.Port, priority: rr.Priority, weight: rr.Weight})
	}
}

func (f *facts) addAddr(a netip.Addr, ok bool) {
	if !ok {
		return
	}
	a = a.Unmap()
	if problem := unusable(a); problem != "" {
		f.wrong = fmt.Sprintf("address %s is %s", a, problem)
		return
	}
	f.addrs = append(f.addrs, a)
}

// unusable says why nobody can be reached at an address that DNS told, "" if somebody
// may.
func unusable(a netip.Addr) string {
	switch {
	case a.IsUnspecified(), a.Is4() && a.As4()[0] == 0:
		return "the unspecified one"
	case a.IsLoopback():
		return "the asking machine's own (loopback)"
	case a.IsMulticast(), a == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return "that of a group"
	case a.IsLinkLocalUnicast():
		return "link-local, and DNS cannot tell of which link"
	}
	return ""
}

// ours returns the first of the TXT records that is about a cluster, whatever the
// order in which they came; nil if none is. Others may have texts at the same name
// (SPF and the like).
func ours(texts [][]string) *announcement {
	slices.SortFunc(texts, slices.Compare)
	for _, text := range texts {
		keys := decodeTXT(text)
		_, id := keys[peer.TXTClusterIDKey]
		_, fp := keys[peer.TXTFingerprintKey]
		if id || fp {
			said, err := peer.ParseTXT(keys)
			return &announcement{said: said, err: err}
		}
	}
	return nil
}

// interleave orders the addresses of a host for trying: in turn one of each version,
// IPv6 first (RFC 8305 section 4), each version in the order of its numbers, so that a
// server that rotates its answers changes nothing.
func interleave(v4, v6 []netip.Addr) []netip.Addr {
	out := make([]netip.Addr, 0, len(v4)+len(v6))
	for i := range max(len(v4), len(v6)) {
		if i < len(v6) {
			out = append(out, v6[i])
		}
		if i < len(v4) {
			out = append(out, v4[i])
		}
	}
	return out
}

// hostname returns the canonical form of a name of a host, or what is wrong with it.
// Underscores are let through; some networks name their hosts with them.
func hostname(name string) (host, problem string) {
	n, ok := canonical(name)
	if !ok || n == "." {
		return "", "is no host name"
	}
	for i := range len(n) {
		if c := n[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '_' && c != '.' {
			return "", "is no host name"
		}
	}
	if last := n[strings.LastIndexByte(n, '.')+1:]; strings.Trim(last, "0123456789") == "" {
		return "", "is an address; an SRV record wants the name of a host, which has an A or AAAA record"
	}
	return n, ""
}
