package registry

import (
	"time"

	"liqo.io/agent/discovery/schedule"
	"liqo.io/agent/peer"
)

// subject is what is probed again and again: a claim, or a candidate.
type subject struct {
	claim     *claim // one of the two is set
	candidate *candidate
}

type job = schedule.Job[subject]

// probe is one look at a subject's endpoint: whom to check, of a claim; where to ask who
// is there, and who was found there last, of a candidate.
type probe struct {
	*schedule.Probe[subject]
	target peer.Target
	place  *Candidate
	last   holder
}

// The ranks of lanes. Anybody can announce thousands of claims whose addresses never
// answer, and a DNS zone can list thousands of places; each keeps a probe busy for
// seconds. So the less somebody has shown, the fewer probes they can hold. Claims and
// candidates have budgets of their own.
const (
	proven   = iota // claims that were verified once: may use every checker
	untried         // claims never checked: three quarters of them, the newest first
	doubtful        // claims checked in vain, never verified: one quarter
	persons         // candidates by name, in the configuration or on the command line: three quarters of the lookups
	domains         // candidates by anybody who writes into a zone that we look into: three quarters; each domain is a lane
	ranks
)

// jobs is the schedule with the lanes of claims and candidates.
type jobs struct {
	*schedule.Schedule[subject]
	lanes [ranks]schedule.Lane
}

func newJobs(checkers, lookups int) jobs {
	checks := schedule.NewBudget(nil, checkers)
	strangers := schedule.NewBudget(checks, checkers*3/4)
	asked, most := schedule.NewBudget(nil, lookups), lookups-max(1, lookups/4)
	return jobs{schedule.New[subject](), [ranks]schedule.Lane{
		proven: {Rank: proven, Budget: checks},
		// What was announced last is most likely not part of the flood before.
		untried:  {Rank: untried, Budget: strangers, NewestFirst: true},
		doubtful: {Rank: doubtful, Budget: schedule.NewBudget(strangers, checkers/4)},
		persons:  {Rank: persons, Budget: schedule.NewBudget(asked, most)},
		domains:  {Rank: domains, Budget: schedule.NewBudget(asked, most)},
	}}
}

// laneOf returns the lane in which a subject waits.
func (s *jobs) laneOf(of subject) schedule.Lane {
	switch {
	case of.claim != nil && of.claim.verified:
		return s.lanes[proven]
	case of.claim != nil && of.claim.failures == 0:
		return s.lanes[untried]
	case of.claim != nil:
		return s.lanes[doubtful]
	case of.candidate.key.Source == peer.Manual:
		return s.lanes[persons]
	}
	lane := s.lanes[domains]
	lane.Name = of.candidate.key.Domain
	return lane
}

// plan has a job probed at due; the zero time takes it off the schedule.
func (s *jobs) plan(j *job, due time.Time) { s.Plan(j, s.laneOf(j.Of), due) }
