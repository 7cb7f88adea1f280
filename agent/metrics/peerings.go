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
		help: "Peerings by direction (outgoing: this cluster consumes) and state: joined, or waiting while one is wanted and not established.",
		collect: func(s *Snapshot, add add) {
			p := s.Peerings
			add(float64(p.OutgoingJoined), outgoing, "joined")
			add(float64(p.OutgoingWanted-p.OutgoingJoined), outgoing, "waiting")
			add(float64(p.IncomingJoined), incoming, "joined")
			add(float64(p.IncomingWanted-p.IncomingJoined), incoming, "waiting")
		}},
	{name: "requests_waiting", kind: gauge, help: "Clusters that want to consume this one's resources and wait for a person to decide.",
		collect: number(func(s *Snapshot) int { return s.Peerings.Requests })},
	{name: "invites_open", kind: gauge, help: "Invites that can be used.",
		collect: number(func(s *Snapshot) int { return s.Peerings.Invites })},
	{name: "invite_expiry_timestamp_seconds", kind: gauge, help: "When the first of the open invites ends, as Unix time. No value without one.",
		collect: moment(func(s *Snapshot) time.Time { return s.Peerings.InviteEnds })},
	{name: "peer_info", kind: gauge, labels: []string{"peer", "name"}, help: "What a peer with which there is, or is to be, a peering is called; always 1.",
		collect: peers(func(p *Peer, add add) { add(1, p.ID, p.Name) })},
	{name: "peer_joined", kind: gauge, labels: []string{"peer", "direction"}, help: "1 while a peering is established, 0 while it is wanted only.",
		collect: peers(func(p *Peer, add add) {
			if p.OutgoingWanted || p.OutgoingJoined {
				add(truth(p.OutgoingJoined), p.ID, outgoing)
			}
			if p.IncomingWanted || p.IncomingJoined {
				add(truth(p.IncomingJoined), p.ID, incoming)
			}
		})},
	{name: "peer_reachable", kind: gauge, labels: []string{"peer"}, help: "1 while a peer's endpoint answers with its key.",
		collect: peers(func(p *Peer, add add) { add(truth(p.Reachable), p.ID) })},
	{name: "peer_last_seen_timestamp_seconds", kind: gauge, labels: []string{"peer"}, help: "When a peer was last seen or answered, as Unix time.",
		collect: peers(func(p *Peer, add add) { seconds(p.LastSeen, add, p.ID) })},
	{name: "peer_failed_checks", kind: gauge, labels: []string{"peer"}, help: "Checks of a peer that failed in a row.",
		collect: peers(func(p *Peer, add add) { add(float64(p.Failures), p.ID) })},
	{name: "peer_series_omitted", kind: gauge, help: "Peers that have no series of their own because there are more than 256.",
		collect: number(func(s *Snapshot) int { return s.omitted })},
}
