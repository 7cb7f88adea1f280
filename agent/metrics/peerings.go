package metrics

import "time"

// The directions of a peering.
const (
	outgoing = "outgoing" // we consume the peer's resources
	incoming = "incoming" // it consumes ours
)

// peeringFamilies are about peerings, and the peers there is one with.
var peeringFamilies = []family{
	{name: "peerings", kind: gauge, labels: []string{"direction", "state"},
		help: "Peerings by direction (outgoing: this cluster consumes) and state: joined, or waiting (wanted, but not established).",
		collect: func(s *Snapshot, add add) {
			p := s.Peerings
			add(float64(p.OutgoingJoined), outgoing, "joined")
			add(float64(p.OutgoingWanted-p.OutgoingJoined), outgoing, "waiting")
			add(float64(p.IncomingJoined), incoming, "joined")
			add(float64(p.IncomingWanted-p.IncomingJoined), incoming, "waiting")
		}},
	{name: "requests_waiting", kind: gauge, help: "Requests to consume resources of this cluster that wait for a person.",
		collect: number(func(s *Snapshot) int { return s.Peerings.Requests })},
	{name: "invites_open", kind: gauge, help: "Valid invites.",
		collect: number(func(s *Snapshot) int { return s.Peerings.Invites })},
	{name: "invite_expiry_timestamp_seconds", kind: gauge, help: "Unix time when the next invite expires. No value without invites.",
		collect: moment(func(s *Snapshot) time.Time { return s.Peerings.InviteEnds })},
	{name: "peer_info", kind: gauge, labels: []string{"peer", "name"}, help: "Name of a peer with an existing or wanted peering, always 1.",
		collect: peers(func(p *Peer, add add) { add(1, p.ID, p.Name) })},
	{name: "peer_joined", kind: gauge, labels: []string{"peer", "direction"}, help: "1 while a peering is established, 0 while it is only wanted.",
		collect: peers(func(p *Peer, add add) {
			if p.OutgoingWanted || p.OutgoingJoined {
				add(truth(p.OutgoingJoined), p.ID, outgoing)
			}
			if p.IncomingWanted || p.IncomingJoined {
				add(truth(p.IncomingJoined), p.ID, incoming)
			}
		})},
	{name: "peer_reachable", kind: gauge, labels: []string{"peer"}, help: "1 while the endpoint of a peer answers with its key.",
		collect: peers(func(p *Peer, add add) { add(truth(p.Reachable), p.ID) })},
	{name: "peer_last_seen_timestamp_seconds", kind: gauge, labels: []string{"peer"}, help: "Unix time when a peer was last seen or answered.",
		collect: peers(func(p *Peer, add add) { seconds(p.LastSeen, add, p.ID) })},
	{name: "peer_failed_checks", kind: gauge, labels: []string{"peer"}, help: "Consecutive failed checks of a peer.",
		collect: peers(func(p *Peer, add add) { add(float64(p.Failures), p.ID) })},
	{name: "peer_series_omitted", kind: gauge, help: "Peers without their own series, because there are more than 256.",
		collect: number(func(s *Snapshot) int { return s.omitted })},
}
