package workload

import (
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"liqo.io/agent/peer/text"
)

// Network says how pods of a provider are reached from this cluster. It is not changed once
// it is in use.
type Network struct {
	// Here returns the address by which a pod of the provider is known in this cluster;
	// false for an address that none of its pods can have.
	Here func(netip.Addr) (netip.Addr, bool)
	// Blocks are the ranges in which these addresses are.
	Blocks []netip.Prefix
	// There returns the address by which a pod of this cluster is known at the provider;
	// false for an address that none of its pods can have.
	There func(netip.Addr) (netip.Addr, bool)
	// Thirds are the addresses by which pods at other providers are known at this one, by
	// their addresses here; nil while not known.
	Thirds map[netip.Addr]netip.Addr
	// Version is the same for those that differ in Thirds only; 0 is like no other.
	Version uint64
	// Down is why no packets pass at present, a sentence; "" while they do.
	Down string
	// Domain is the cluster domain of this cluster, which the provider is told with a pod; ""
	// while it is not known.
	Domain string
	// Unknown: nothing is known yet, as after a start of the agent. Pods keep the addresses
	// that they show; those that show some are not ready if it is Down.
	Unknown bool
}

// Alike reports whether two differ in Thirds at most.
func (n *Network) Alike(o *Network) bool {
	return n == o || n != nil && o != nil && n.Version != 0 && n.Version == o.Version
}

// dualStack reports whether pods of the provider have addresses of both families.
func (n *Network) dualStack() bool {
	four := func(p netip.Prefix) bool { return p.Addr().Is4() }
	six := func(p netip.Prefix) bool { return p.Addr().Is6() }
	return slices.ContainsFunc(n.Blocks, four) && slices.ContainsFunc(n.Blocks, six)
}

// ReasonNetworkDown is why a pod is not ready that runs, but cannot be reached from this
// cluster at present.
const ReasonNetworkDown = "NetworkDown"

// addresses returns the addresses of a pod as this cluster knows them.
func (n *Network) addresses(mine, theirs []corev1.PodIP) []corev1.PodIP {
	switch {
	case n == nil:
		return nil
	case n.Unknown:
		return mine
	}
	var out []corev1.PodIP
	for _, ip := range theirs {
		addr, err := netip.ParseAddr(ip.IP)
		if err != nil || len(out) == maxPodIPs {
			continue
		}
		if here, ok := n.Here(addr); ok && !slices.ContainsFunc(out, func(o corev1.PodIP) bool { return sameFamily(o.IP, here) }) {
			out = append(out, corev1.PodIP{IP: here.String()})
		}
	}
	return out
}

// Withdraw returns the status of a pod of which nothing new is known, without addresses that are not the provider's any more,
// and may be another one's soon; nil if it has none.
func (n *Network) Withdraw(mine *corev1.PodStatus) *corev1.PodStatus {
	if n != nil && n.Unknown {
		return nil
	}
	kept := slices.DeleteFunc(slices.Clone(mine.PodIPs), func(ip corev1.PodIP) bool {
		addr, err := netip.ParseAddr(ip.IP)
		return n == nil || err != nil || !slices.ContainsFunc(n.Blocks, func(b netip.Prefix) bool { return b.Contains(addr) })
	})
	if len(kept) == len(mine.PodIPs) {
		return nil
	}
	out := mine.DeepCopy()
	out.PodIP, out.PodIPs = "", nil
	if len(kept) > 0 {
		out.PodIP, out.PodIPs = kept[0].IP, kept
	}
	return out
}

// Unheard returns the status of a pod of which nothing new is known: as by Withdraw, and not ready if it shows addresses to which
// no packets pass; nil if that changes nothing.
func (n *Network) Unheard(mine *corev1.Pod, now time.Time) *corev1.PodStatus {
	out := n.Withdraw(&mine.Status)
	shown := out
	if shown == nil {
		shown = &mine.Status
	}
	is := condition(shown.Conditions, corev1.PodReady)
	if n == nil || n.Down == "" || len(shown.PodIPs) == 0 || is == nil || is.Status != corev1.ConditionTrue {
		return out
	}
	if out == nil {
		out = mine.Status.DeepCopy()
	}
	setter{out, mine.Status.Conditions, now}.as(corev1.PodReady, n.unreachable())
	return out
}

// unreachable is the condition of a pod that runs, and to which no packets pass.
func (n *Network) unreachable() *corev1.PodCondition {
	return &corev1.PodCondition{Status: corev1.ConditionFalse, Reason: ReasonNetworkDown, Message: text.Line(n.Down, maxMessage)}
}

// maxPodIPs is how many addresses a pod can have: one of each family.
const maxPodIPs = 2

func sameFamily(ip string, addr netip.Addr) bool {
	other, err := netip.ParseAddr(ip)
	return err == nil && other.Is4() == addr.Is4()
}
