package registry

import (
	"net/netip"
	"slices"
	"time"

	"liqo.io/agent/endpoint/client"
	"liqo.io/agent/peer"
)

const (
	// lookEvery is the time between two probes of a place that answers.
	lookEvery = 10 * time.Minute
	// firstRetry is when a place that leads nowhere is probed again; the time doubles
	// up to lastRetry.
	firstRetry = 5 * time.Second
	lastRetry  = 5 * time.Minute
)

// Candidate is a place where a cluster is said to be: by a search domain, by the
// configuration, or by a person. It is what a sighting of that cluster says, as far
// as it is known.
//
// ClusterID and Fingerprint are whom the source expects there; zero: anybody. With
// both it is a sighting, and is checked like any other. URL is https://host[:port],
// Addrs what the source says are the host's addresses; without any the system's
// resolver is asked.
type Candidate peer.Sighting

// Reason says why nobody usable was found at the place of a candidate.
type Reason string

// The reasons. They are printed and shown in conditions, so they never change.
const (
	// NotProbed: nobody was asked yet.
	NotProbed Reason = "NotAskedYet"
	// Unreachable: nothing answers there.
	Unreachable Reason = "Unreachable"
	// NotACluster: something answers that is no cluster.
	NotACluster Reason = "NotACluster"
	// OtherCluster: another cluster answers than the one expected.
	OtherCluster Reason = "OtherCluster"
	// OtherKey: who answers holds another key than the one expected.
	OtherKey Reason = "OtherKey"
	// ThisCluster: it is this cluster.
	ThisCluster Reason = "ThisCluster"
)

// CandidateStatus is what is known about a candidate.
type CandidateStatus struct {
	Candidate Candidate
	// ID, ClusterName, Namespace and Fingerprint are of the cluster that answered
	// last; zero when none did.
	ID          peer.ClusterID
	ClusterName string
	Namespace   string
	Fingerprint peer.Fingerprint
	// Reason is why the candidate cannot be used now, "" when it can; Message says it
	// in one line for people, and what to do about it. Cause is only what went wrong at
	// the last probe, for a message of one's own; "" when Reason says all of that.
	Reason   Reason
	Message  string
	Cause    string
	Failures int       // in a row
	Next     time.Time // when it is probed again
}

// Key tells candidates apart. It is that of the sighting which a candidate becomes.
func (c Candidate) Key() peer.Key { return peer.Sighting(c).Key() }

// identified reports whether a candidate says all that a sighting needs.
func (c Candidate) identified() bool { return c.ClusterID != "" && !c.Fingerprint.IsZero() }

// given reports whether a person named the candidate.
func (c Candidate) given() bool { return c.Source == peer.Manual }

// probed reports whether the place of a candidate is probed. A person wants to know
// whether the URL is right even if the rest is known.
func (c Candidate) probed() bool { return !c.identified() || c.given() }

// samePlace reports whether two candidates are at the same place. DNS gives the
// addresses of a host in any order.
func (c Candidate) samePlace(o Candidate) bool {
	if c.URL != o.URL || len(c.Addrs) != len(o.Addrs) {
		return false
	}
	sorted := func(addrs []netip.AddrPort) []netip.AddrPort {
		return slices.SortedFunc(slices.Values(addrs), netip.AddrPort.Compare)
	}
	return slices.Equal(c.Addrs, o.Addrs) || slices.Equal(sorted(c.Addrs), sorted(o.Addrs))
}

// sameExpectation reports whether two candidates expect the same cluster.
func (c Candidate) sameExpectation(o Candidate) bool {
	return c.ClusterID == o.ClusterID && c.Fingerprint == o.Fingerprint
}

// equal reports whether two candidates say the same.
func (c Candidate) equal(o Candidate) bool {
	same := c.samePlace(o)
	c.Addrs = o.Addrs
	return same && peer.Sighting(c).Equal(peer.Sighting(o))
}

// allows reports whether a sighting can be of whom the candidate expects.
func (c Candidate) allows(s *peer.Sighting) bool {
	return (c.ClusterID == "" || c.ClusterID == s.ClusterID) && (c.Fingerprint.IsZero() || c.Fingerprint == s.Fingerprint)
}

// answered is the sighting that an answer makes of a candidate.
func (c Candidate) answered(res client.Result) *peer.Sighting {
	s := (*peer.Sighting)(&c)
	s.ClusterID, s.Fingerprint = res.Identity.ClusterID, res.Fingerprint
	s.ClusterName, s.Namespace = res.Identity.ClusterName, res.Identity.GuestNamespace
	return s
}

// sameNews reports whether two states of a candidate differ in nothing but the times.
func (s *CandidateStatus) sameNews(o *CandidateStatus) bool {
	return s.Candidate.equal(o.Candidate) && s.ID == o.ID && s.ClusterName == o.ClusterName && s.Namespace == o.Namespace &&
		s.Fingerprint == o.Fingerprint && s.Reason == o.Reason && s.Message == o.Message
}

// holder is a cluster and its key.
type holder struct {
	id  peer.ClusterID
	key peer.Fingerprint
}

// candidate is a Candidate and what became of it.
type candidate struct {
	job    job
	key    peer.Key
	status *CandidateStatus // as published; replaced, never changed
	seen   *peer.Sighting   // whom it is a sighting of; nil: nobody
	about  peer.ClusterID   // whom it is about, see machine.about
	last   holder           // whom it led to last

	proved  bool      // seen is what somebody answered, not what the candidate says
	present bool      // whom it is about is there
	since   time.Time // when somebody answered last
	vain    int       // how often in a row somebody did and was not there for us
}

// place is where the candidate is. It must not be changed.
func (e *candidate) place() *Candidate { return &e.status.Candidate }

// described is the sighting that e has, with what c says now that has nothing to do
// with where it leads; nil if there is none.
func (e *candidate) described(c Candidate) *peer.Sighting {
	if e.seen == nil {
		return nil
	}
	s := *e.seen
	s.Version, s.TTL = c.Version, c.TTL
	if c.identified() && !e.proved {
		s.ClusterName, s.Namespace = c.ClusterName, c.Namespace
	}
	return &s
}
