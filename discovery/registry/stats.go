package registry

import "liqo.io/agent/peer"

// Stats are what the Registry did since New, and whom it knows now.
type Stats struct {
	Sightings      uint64 // of others, repetitions included
	Refused        uint64 // sightings and candidates for which there was no room, see Config.Limit
	ChecksAnswered uint64
	ChecksFailed   uint64

	Phases    map[peer.Phase]int // peers by phase
	Conflicts int                // peers whose ID somebody else shows with another key
}

// Stats returns the counts. It may be called at any time, and copies no peer.
func (r *Registry) Stats() Stats {
	m := r.machine
	s := Stats{
		Sightings: m.sightings.Load(), Refused: m.refused.Load(),
		ChecksAnswered: m.checksAnswered.Load(), ChecksFailed: m.checksFailed.Load(), Phases: make(map[peer.Phase]int),
	}
	r.views.mu.RLock()
	defer r.views.mu.RUnlock()
	for _, p := range r.views.peers {
		s.Phases[p.Phase]++
		if p.Conflict != nil {
			s.Conflicts++
		}
	}
	return s
}
