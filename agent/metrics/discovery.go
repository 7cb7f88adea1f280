package metrics

// discoveryFamilies are about the neighbours and how they are found.
var discoveryFamilies = []family{
	{name: "links", kind: gauge, help: "Network interfaces in use for discovery.",
		collect: number(func(s *Snapshot) int { return s.Discovery.Links })},
	{name: "peers", kind: gauge, labels: []string{"phase"}, help: "Clusters that are known, by phase: Unverified, Present, Unreachable or Lost.",
		collect: by(func(s *Snapshot) map[string]int { return s.Discovery.Phases })},
	{name: "peer_conflicts", kind: gauge, help: "Known clusters whose ID somebody else shows with another key.",
		collect: number(func(s *Snapshot) int { return s.Discovery.Conflicts })},
	{name: "identity_conflict", kind: gauge, help: "1 while another live cluster uses the ID of this one.",
		collect: yes(func(s *Snapshot) bool { return s.Discovery.SelfConflict })},
	{name: "sightings_total", kind: counter, help: "What discovery said about clusters that it sees, repetitions included.",
		collect: number(func(s *Snapshot) uint64 { return s.Discovery.Sightings })},
	{name: "sightings_refused_total", kind: counter, help: "Sightings of unknown clusters for which there was no room (discovery.max_neighbours).",
		collect: number(func(s *Snapshot) uint64 { return s.Discovery.Refused })},
	{name: "peer_checks_total", kind: counter, labels: []string{"result"}, help: "Checks of peers at their endpoints, by result: ok or failed.",
		collect: func(s *Snapshot, add add) {
			add(float64(s.Discovery.ChecksOK), "ok")
			add(float64(s.Discovery.ChecksFailed), "failed")
		}},
	{name: "mdns_packets_received_total", kind: counter, help: "mDNS packets that came in, those of all services.",
		collect: number(func(s *Snapshot) uint64 { return s.Discovery.Received })},
	{name: "mdns_packets_sent_total", kind: counter, help: "mDNS packets that were sent.",
		collect: number(func(s *Snapshot) uint64 { return s.Discovery.Sent })},
	{name: "mdns_packets_dropped_total", kind: counter, labels: []string{"reason"},
		help:    "mDNS packets that were not used or not sent, by reason. To leave out what other services say is normal.",
		collect: by(func(s *Snapshot) map[string]uint64 { return s.Discovery.Dropped })},
	{name: "mdns_socket_drops_total", kind: counter, help: "mDNS packets that the kernel dropped because the socket's buffer was full.",
		collect: number(func(s *Snapshot) uint64 { return s.Discovery.SocketDrops })},
	{name: "mdns_instances", kind: gauge, help: "Instances of the service that are seen on the LAN.",
		collect: number(func(s *Snapshot) int { return s.Discovery.Instances })},
	{name: "mdns_announced", kind: gauge, help: "1 while this cluster is announced on every link; 0 while it is not yet. No value when it is not to be.",
		collect: func(s *Snapshot, add add) {
			if !s.Discovery.AdvertisementOff {
				add(truth(s.Discovery.Announced))
			}
		}},
	{name: "search_domains", kind: gauge, labels: []string{"outcome"}, help: "Search domains by the outcome of the last look at them; empty before the first one.",
		collect: by(func(s *Snapshot) map[string]int { return s.Discovery.Domains })},
	{name: "dns_lookups_total", kind: counter, labels: []string{"outcome"}, help: "Questions about search domains, by outcome. Found, NoData and NoName are answers.",
		collect: by(func(s *Snapshot) map[string]uint64 { return s.Discovery.Lookups })},
}
