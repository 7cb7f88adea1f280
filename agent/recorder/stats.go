package recorder

import (
	"context"
	"errors"

	"liqo.io/agent/peer"
)

// Stats are what the Recorder did since New, and whom it knows now.
type Stats struct {
	Sightings      uint64 // of others, repetitions included
	Refused        uint64 // sightings of unknown clusters for which there was no room
	ChecksAnswered uint64
	ChecksFailed   uint64

	Phases    map[peer.Phase]int // peers by phase
	Conflicts int                // peers whose ID somebody else shows with another key
}

// Stats returns the counts. It may be called at any time, and copies no peer.
func (r *Recorder) Stats() Stats {
	s := Stats{
		Sightings: r.sightings.Load(), Refused: r.refused.Load(),
		ChecksAnswered: r.checksAnswered.Load(), ChecksFailed: r.checksFailed.Load(),
		Phases: make(map[peer.Phase]int),
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

// countCheck counts a check by how it ended; one that was cut off says nothing.
func (r *Recorder) countCheck(err error) {
	switch {
	case err == nil:
		r.checksAnswered.Add(1)
	case !errors.Is(err, context.Canceled):
		r.checksFailed.Add(1)
	}
}
