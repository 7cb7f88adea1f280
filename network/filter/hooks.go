package filter

import (
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
)

// toBlock matches packets from or to a block. What is no such packet, as most of a machine, is told by one comparison.
func (b *builder) toBlock(d direction, and ...[]expr.Any) []expr.Any {
	return rule(b.within(d, b.blocks), rule(and...), b.in(d, "theirs"))
}

// arrivingBy goes on in a chain with what comes by a device to peers. The device itself is compared first, because nearly
// everything comes by that.
func (b *builder) arrivingBy(chain string) [][]expr.Any {
	return b.by(iif(b.device), arriving(), chain)
}

// departingBy does the same with what leaves by one.
func (b *builder) departingBy(chain string) [][]expr.Any {
	return b.by(oif(b.device), departing(), chain)
}

func (b *builder) by(device, any []expr.Any, chain string) [][]expr.Any {
	out := [][]expr.Any{rule(device, goTo(chain))}
	if b.tunnel != "" {
		out = append(out, rule(any, goTo(chain)))
	}
	return out
}

// addHooks adds the chains that packets come into, and those that they call whatever
// the peers are. The first rules of each are those that decide about most packets.
func (b *builder) addHooks() {
	// What comes by the device is from a peer's block to the one that this peer chose, and nothing else is from a peer's block.
	// Connections that began so go on so; those of others have no source in a block. Addresses are still those that the
	// packet came with.
	guard := b.arrivingBy("from_peers")
	var known [][]expr.Any
	if b.blocks.IsValid() {
		known = append(known, rule(b.within(source, b.blocks), ofConnection(), accept()))
	}
	b.chains["from_peers"] = &chain{rules: append(known, rule(b.pair("pairs"), accept()), rule(drop()))}
	prerouting := [][]expr.Any{rule(arriving(), b.lookup(source, "dnat"))}
	var input, spoofed, output, leaving [][]expr.Any
	if b.tunnel != "" && b.pods.IsValid() {
		// One connection for each peer, so they are not counted.
		host := netip.PrefixFrom(b.host, b.host.BitLen())
		between := slices.Concat(fromPort(dnsUDP, ProbePort), port(dnsUDP, ProbePort), accept())
		input = append(input, rule(iif(b.tunnel), b.in(source, "gateways"), b.within(destination, host), between))
		output = append(output, rule(oif(b.tunnel), b.in(destination, "gateways"), between))
	}
	input = append(input, b.arrivingBy("host_in")...)
	if b.asked.IsValid() && b.askers.IsValid() {
		for _, protocol := range []byte{dnsUDP, dnsTCP} {
			prerouting = append(prerouting,
				rule(b.within(destination, b.asked), port(protocol, b.names.AskPort), b.redirect(b.asked.Addr(), b.names.Port)))
		}
		input = append(input, rule(b.within(destination, b.asked), jump("names")))
		spoofed = append(spoofed, rule(b.within(destination, b.asked), b.within(source, b.askers), noRouteBack(), drop()))
		// While nobody listens, resolvers wait and ask again, instead of giving up.
		output = append(output, rule(b.within(source, b.asked), notOif("lo"), b.icmp(icmpUnreachable), drop()))
		b.chains["names"] = &chain{rules: [][]expr.Any{
			rule(iif("lo"), accept()),
			rule(b.in(source, "silent"), drop()),
			rule(b.within(source, b.askers), port(dnsUDP, b.names.Port), accept()),
			rule(b.within(source, b.askers), port(dnsTCP, b.names.Port), accept()),
			rule(drop()),
		}}
	}
	output = append(output, b.departingBy("host_out")...)
	if b.blocks.IsValid() {
		guard = append(guard, rule(b.toBlock(source, notIif("lo")), drop()))
		// If others translated the destination to a block just now, the kernel still shows the device
		// to the previous one.
		output = append(output, rule(b.toBlock(destination), goTo("host_out")))
		// There may be no route to a block by the device.
		leaving = append(leaving, rule(b.toBlock(destination, notOif(b.device), notDeparting()), drop()))
	}

	// What guests begin is bounded here, where all of it passes, wherever it goes.
	if b.hosts {
		guard = append(guard, rule(first(), b.lookup(source, guests)))
	}

	outgoing := [][]expr.Any{
		rule(clampMSS()),
		rule(established(), accept()),
		rule(invalid(), drop()),
		// From one peer to another.
		rule(arriving(), b.lookup(destination, "out")),
		rule(arriving(), drop()),
	}
	hostIn := [][]expr.Any{
		rule(established(), accept()),
		rule(invalid(), drop()),
	}
	if b.pods.IsValid() {
		// After translation of destinations, also by others: who claims to be a pod must come from
		// where the pods are.
		if b.blocks.IsValid() {
			from := b.within(source, b.pods)
			if b.bridge != "" {
				from = rule(notIif(b.bridge), from)
			}
			spoofed = append(spoofed, rule(b.toBlock(destination, from), noRouteBack(), drop()))
		}
		outgoing = append(outgoing,
			rule(b.within(source, b.pods), b.lookup(destination, "out")),
			rule(b.within(source, b.pods), drop()),
			// A client that asked for a Service here; who asks for a block itself is dropped.
			rule(redirected(), b.in(destination, "services"), accept()),
		)
		host := netip.PrefixFrom(b.host, b.host.BitLen())
		hostIn = append(hostIn, rule(b.within(destination, host), b.icmp(icmpEcho), b.lookup(source, "admit")), rule(b.lookup(source, "api")))
	}
	b.chains["outgoing"] = &chain{rules: append(outgoing, rule(drop()))}
	b.chains["incoming"] = &chain{rules: [][]expr.Any{
		rule(clampMSS()),
		rule(established(), accept()),
		rule(invalid(), drop()),
		rule(b.lookup(source, "in")),
		rule(drop()),
	}}
	b.chains["host_in"] = &chain{rules: append(hostIn, rule(drop()))}
	b.chains["host_out"] = &chain{rules: [][]expr.Any{
		rule(established(), accept()),
		rule(invalid(), drop()),
		rule(b.in(destination, "services"), accept()),
		rule(b.in(destination, "gateways"), b.icmp(icmpEcho), accept()),
		rule(drop()),
	}}

	// After connection tracking (-200), before translation.
	b.base("guard", nftables.ChainTypeFilter, nftables.ChainHookPrerouting, -150, guard)
	b.base("prerouting", nftables.ChainTypeNAT, nftables.ChainHookPrerouting, -105, prerouting)
	if len(spoofed) > 0 {
		b.base("spoofed", nftables.ChainTypeFilter, nftables.ChainHookPrerouting, -90, spoofed)
	}
	b.base("forward", nftables.ChainTypeFilter, nftables.ChainHookForward, -5, append(b.departingBy("outgoing"), b.arrivingBy("incoming")...))
	b.base("input", nftables.ChainTypeFilter, nftables.ChainHookInput, -5, input)
	b.base("output", nftables.ChainTypeFilter, nftables.ChainHookOutput, -5, output)
	if len(leaving) > 0 {
		b.base("leaving", nftables.ChainTypeFilter, nftables.ChainHookPostrouting, -5, leaving)
	}
	b.base("postrouting", nftables.ChainTypeNAT, nftables.ChainHookPostrouting, 95, [][]expr.Any{
		rule(departing(), b.lookup(destination, "snat")),
	})
}

func (b *builder) base(name string, kind nftables.ChainType, hook *nftables.ChainHook, priority nftables.ChainPriority, rules [][]expr.Any) {
	b.chains[name] = &chain{hook: hook, kind: kind, priority: priority, rules: rules}
}
