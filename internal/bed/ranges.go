//go:build linux

package bed

import (
	"net/netip"
	"strings"
)

// Ranges are the addresses of a cluster's pods, as K3s is told by --cluster-cidr: an IPv4 range, and an IPv6 range after
// it if the cluster is dual-stack.
type Ranges []netip.Prefix

// k3sRanges are those of K3s without options.
var k3sRanges = Ranges{netip.MustParsePrefix("10.42.0.0/16")}

// RangesOf returns the ranges that a text has, as an option of K3s has it.
func RangesOf(text string) Ranges {
	var out Ranges
	for one := range strings.SplitSeq(text, ",") {
		out = append(out, netip.MustParsePrefix(one))
	}
	return out
}

// String returns the ranges as options have them.
func (r Ranges) String() string {
	texts := make([]string, 0, len(r))
	for _, p := range r {
		texts = append(texts, p.String())
	}
	return strings.Join(texts, ",")
}

// Node returns what the first node of the cluster has of them, as the controller manager gives it.
func (r Ranges) Node() Ranges {
	var out Ranges
	for _, p := range r {
		bits := 24
		if p.Addr().Is6() {
			bits = 64
		}
		out = append(out, netip.PrefixFrom(p.Addr(), bits))
	}
	return out
}

// Services returns the range of Services of a cluster with such pods for each family.
func (r Ranges) Services() Ranges {
	out := Ranges{netip.MustParsePrefix(serviceRange)}
	if r.dualStack() {
		out = append(out, netip.MustParsePrefix(serviceRange6))
	}
	return out
}

func (r Ranges) dualStack() bool { return len(r) > 1 }

// gateways returns the addresses of the pods' bridge on a node with these ranges.
func (r Ranges) gateways() Ranges {
	var out Ranges
	for _, p := range r {
		out = append(out, netip.PrefixFrom(p.Addr().Next(), p.Bits()))
	}
	return out
}
