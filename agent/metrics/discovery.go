package metrics

// discoveryFamilies are about the neighbours and how they are found.
var discoveryFamilies = []family{
	{name: "links", kind: gauge, help: "Network interfaces in use for discovery.",
		collect: number(func(s *Snapshot) int { return s.Discovery.Links })},
	{name: "peers", kind: gauge, labels: []string{"phase"}, help: "Known clusters, by phase: Unverified, Present, Unreachable or Lost.",
		collect: by(func(s *Snapshot) map[string]int { return s.Discovery.Phases })},
	{name: "peer_conflicts", kind: gauge, help: "Known clusters whose ID is also shown with another key.",
		collect: number(func(s *Snapshot) int { return s.Discovery.Conflicts })},
	{name: "identity_conflict", kind: gauge, help: "1 while another live cluster uses the ID of this one.",
		collect: yes(func(s *Snapshot) bool { return s.Discovery.SelfConflict })},
	{name: "sightings_total", kind: counter, help: "Sightings of clusters, repetitions included.",
		collect: number(func(s *Snapshot) uint64 { return s.Discovery.Sightings })},
	{name: "sightings_refused_total", kind: counter, help: "Sightings of unknown clusters dropped because of discovery.max_neighbours.",
		collect: number(func(s *Snapshot) uint64 { return s.Discovery.Refused })},
	{name: "peer_checks_total", kind: counter, labels: []string{"result"}, help: "Checks of peers at their endpoints, by result: ok or failed.",
		collect: func(s *Snapshot, add add) {
			add(float64(s.Discovery.ChecksOK), "ok")
			add(float64(s.Discovery.ChecksFailed), "failed")
		}},
	{name: "mdns_packets_received_total", kind: counter, help: "Received mDNS packets, of all services.",
		collect: number(func(s *Snapshot) uint64 { return s.Discovery.Received })},
	{name: "mdns_packets_sent_total", kind: counter, help: "Sent mDNS packets.",
		collect: number(func(s *Snapshot) uint64 { return s.Discovery.Sent })},
	{name: "mdns_packets_dropped_total", kind: counter, labels: []string{"reason"},
		help:    "mDNS packets ignored or not sent, by reason. It is normal to ignore packets of other services.",
		collect: by(func(s *Snapshot) map[string]uint64 { return s.Discovery.Dropped })},
	{name: "mdns_socket_drops_total", kind: counter, help: "mDNS packets that the kernel dropped because the socket buffer was full.",
		collect: number(func(s *Snapshot) uint64 { return s.Discovery.SocketDrops })},
	{name: "mdns_instances", kind: gauge, help: "Instances of the service seen on the LAN.",
		collect: number(func(s *Snapshot) int { return s.Discovery.Instances })},
	{name: "mdns_announced", kind: gauge, help: "1 while this cluster is announced on every link, 0 before that. No value if advertisement is off.",
		collect: func(s *Snapshot, add add) {
			if !s.Discovery.AdvertisementOff {
				add(truth(s.Discovery.Announced))
			}
		}},
	{name: "search_domains", kind: gauge, labels: []string{"outcome"}, help: "Search domains by the outcome of their last query; empty before the first one.",
		collect: by(func(s *Snapshot) map[string]int { return s.Discovery.Domains })},
	{name: "dns_lookups_total", kind: counter, labels: []string{"outcome"}, help: "DNS queries about search domains, by outcome. Found, NoData and NoName are answers.",
		collect: by(func(s *Snapshot) map[string]uint64 { return s.Discovery.Lookups })},
}
