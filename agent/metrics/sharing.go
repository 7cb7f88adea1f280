package metrics

import "liqo.io/agent/kube/tally"

// resources are those whose amounts are shown, with their units.
var resources = []struct{ name, unit string }{
	{"cpu", "core"}, {"memory", "byte"}, {"ephemeral-storage", "byte"}, {"storage", "byte"}, {"pods", "integer"},
}

// Resources returns the names of the resources that Amounts may have.
func Resources() []string {
	out := make([]string, 0, len(resources))
	for _, r := range resources {
		out = append(out, r.name)
	}
	return out
}

func amounts(of Amounts, add add, labels ...string) {
	for _, r := range resources {
		if n, there := of[r.name]; there {
			add(n, append(append(make([]string, 0, len(labels)+2), labels...), r.name, r.unit)...)
		}
	}
}

// providers is a family's collect for a value of each provider.
func providers(value func(id string, p *Provider, add add)) func(*Snapshot, add) {
	return peers(func(p *Peer, add add) {
		if p.Provider != nil {
			value(p.ID, p.Provider, add)
		}
	})
}

// consumers is a family's collect for a value of each consumer.
func consumers(value func(id string, c *Consumer, add add)) func(*Snapshot, add) {
	return peers(func(p *Peer, add add) {
		if p.Consumer != nil {
			value(p.ID, p.Consumer, add)
		}
	})
}

// networks is a family's collect for values of each peer whose network is to be connected.
func networks(value func(id string, n *Network, add add)) func(*Snapshot, add) {
	return peers(func(p *Peer, add add) {
		if p.Network != nil {
			value(p.ID, p.Network, add)
		}
	})
}

// sharingFamilies are about what clusters use of each other.
var sharingFamilies = []family{
	{name: "offer_pool", kind: gauge, labels: []string{"resource", "unit"}, help: "Resources that can be offered now to all consumers together. No value while unknown.",
		collect: func(s *Snapshot, add add) { amounts(s.Offer.Pool, add) }},
	{name: "consumer_promised", kind: gauge, labels: []string{"peer", "resource", "unit"}, help: "Resources in the last offer to a consumer.",
		collect: consumers(func(id string, c *Consumer, add add) { amounts(c.Promised, add, id) })},
	{name: "consumer_used", kind: gauge, labels: []string{"peer", "resource", "unit"}, help: "Resources that the pods of a consumer request in this cluster.",
		collect: consumers(func(id string, c *Consumer, add add) { amounts(c.Used, add, id) })},
	{name: "consumer_namespaces", kind: gauge, labels: []string{"peer"}, help: "Namespaces of a consumer in this cluster.",
		collect: consumers(func(id string, c *Consumer, add add) { add(float64(c.Namespaces), id) })},
	{name: "consumer_pods", kind: gauge, labels: []string{"peer"}, help: "Pods of a consumer in this cluster.",
		collect: consumers(func(id string, c *Consumer, add add) { add(float64(c.Pods), id) })},
	{name: "offers", kind: gauge, labels: []string{"status"}, help: "Offers of other clusters, by status: accepted, pending or refused.",
		collect: func(s *Snapshot, add add) {
			add(float64(s.Offer.Accepted), "accepted")
			add(float64(s.Offer.Pending), "pending")
			add(float64(s.Offer.Refused), "refused")
		}},
	{name: "provider_offered", kind: gauge, labels: []string{"peer", "resource", "unit"}, help: "Resources that a provider offers to this cluster.",
		collect: providers(func(id string, p *Provider, add add) { amounts(p.Offered, add, id) })},
	{name: "virtual_node_ready", kind: gauge, labels: []string{"peer"}, help: "1 while the virtual node of a provider is ready. No value without a node.",
		collect: providers(func(id string, p *Provider, add add) {
			if p.HasNode {
				add(truth(p.Ready), id)
			}
		})},
	{name: "offloaded_pods", kind: gauge, labels: []string{"peer", "state"},
		help: "Pods on the virtual node of a provider, by state: running, pending (including refused), refused (not sent, or not admitted), ending (being deleted, in any state), other (ended, or unknown).",
		collect: providers(func(id string, p *Provider, add add) {
			add(float64(p.Running), id, "running")
			add(float64(p.Pending), id, "pending")
			add(float64(p.Refused), id, "refused")
			add(float64(p.Ending), id, "ending")
			add(float64(max(0, p.Bound-p.Running-p.Pending)), id, "other")
		})},
	{name: "reflected_services", kind: gauge, labels: []string{"peer", "state"},
		help: "Services of namespaces with pods at a provider, by state: reflected (they are there too) or refused.",
		collect: providers(func(id string, p *Provider, add add) {
			add(float64(p.ReflectedServices), id, "reflected")
			add(float64(p.RefusedServices), id, "refused")
		})},
	{name: "offloaded_pod_creation_duration_seconds", kind: histogram, help: "Duration of the request that creates a pod at a provider, without waiting for a namespace or a retry.",
		took: func(s *Snapshot) tally.Distribution { return s.Offer.PodCreation }},
	{name: "offload_retries_total", kind: counter, help: "Retries after failed work on offloaded pods and on what they need.",
		collect: number(func(s *Snapshot) uint64 { return s.Offer.PodRetries })},
	{name: "offload_tokens_total", kind: counter, labels: []string{"result"},
		help: "Service account tokens of pods at providers that the local API server was asked for, by result: issued or refused.",
		collect: func(s *Snapshot, add add) {
			add(float64(s.Offer.TokensIssued), "issued")
			add(float64(s.Offer.TokensRefused), "refused")
		}},
	{name: "lease_renewals_total", kind: counter, labels: []string{"result"}, help: "Renewals of leases of virtual nodes, by result: ok or failed.",
		collect: func(s *Snapshot, add add) {
			add(float64(s.Offer.LeasesRenewed), "ok")
			add(float64(s.Offer.LeasesFailed), "failed")
		}},
	{name: "network_connected", kind: gauge, labels: []string{"peer"}, help: "1 while the pods of a peer can be reached, 0 while they should be and cannot.",
		collect: networks(func(id string, n *Network, add add) { add(truth(n.Connected), id) })},
	{name: "network_wireguard", kind: gauge, labels: []string{"peer"}, help: "1 while packets to the pods of a peer go by WireGuard, 0 while they go by TLS or not at all.",
		collect: networks(func(id string, n *Network, add add) { add(truth(n.WireGuard), id) })},
	{name: "network_bytes_total", kind: counter, labels: []string{"peer", "direction"}, help: "Bytes of packets between pods here and at a peer, by direction: sent or received.",
		collect: networks(func(id string, n *Network, add add) {
			add(float64(n.Sent), id, "sent")
			add(float64(n.Received), id, "received")
		})},
	{name: "network_packets_dropped_total", kind: counter, labels: []string{"peer", "reason"},
		help: "Packets to and from the pods of a peer that were not passed on, by reason: queue-full, disconnected, source, invalid, foreign, device or connections.",
		collect: networks(func(id string, n *Network, add add) {
			for reason, packets := range n.Dropped {
				add(float64(packets), id, reason)
			}
		})},
	{name: "names_queries_total", kind: counter, help: "DNS queries of pods of consumers.",
		collect: number(func(s *Snapshot) uint64 { return s.Names.Queries })},
	{name: "names_rewritten_total", kind: counter, help: "DNS queries of pods of consumers for names of their own cluster, which have other names in this one.",
		collect: number(func(s *Snapshot) uint64 { return s.Names.Rewritten })},
	{name: "names_refused_total", kind: counter, labels: []string{"reason"},
		help: "DNS queries of pods that were not answered with data, by reason: unknown-source, rate, malformed, unsupported, egress, foreign-name or upstream.",
		collect: func(s *Snapshot, add add) {
			for reason, queries := range s.Names.Refused {
				add(float64(queries), reason)
			}
		}},
}
