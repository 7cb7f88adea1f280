package discovered

import (
	"cmp"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/agent/api"
	"liqo.io/agent/peer"
	"liqo.io/agent/peering/reason"
)

// Status are the fields of a ForeignCluster's status that discovery
// owns.
type Status struct {
	Fingerprint string          `json:"fingerprint,omitempty"`
	TTL         int64           `json:"ttl,omitempty"`
	Conditions  []api.Condition `json:"conditions,omitempty"`
}

// Seen is what the discovered status of a ForeignCluster depends on.
type Seen struct {
	// Peer is what the registry knows about the cluster; nil when it knows nothing.
	Peer *peer.Peer
	// Gone: the cluster is known not to be there.
	Gone bool
	// Asker is a cluster that asked for access and was not discovered; nil for none.
	Asker *peer.Peer
	// Probe is what is known about the URL in the object, as Checked returns it; nil if it is
	// not probed.
	Probe *Probe
}

// Status returns what fc's status is to show. What is not known stays as it is shown.
func (s Seen) Status(fc *api.ForeignCluster, now time.Time) Status {
	status, known := s.status(fc, now)
	if !known {
		status = shownStatus(fc)
	}
	if s.Probe != nil {
		status = status.withURL(fc, *s.Probe, now)
	}
	return status
}

// status returns what fc's status is to show without the condition AuthURL, and false
// when nothing is known that it could show.
func (s Seen) status(fc *api.ForeignCluster, now time.Time) (Status, bool) {
	status := Status{Fingerprint: fc.Status.Fingerprint, TTL: fc.Status.TTL}
	if p := s.Peer; p != nil {
		status.Fingerprint = cmp.Or(p.Fingerprint.String(), status.Fingerprint)
		status.TTL = cmp.Or(int64(p.TTL/time.Second), status.TTL)
	}
	reachable := api.Condition{Type: api.ConditionReachable}
	if asker := s.Asker; asker != nil && s.Probe == nil && (status.Fingerprint == "" || status.Fingerprint == asker.Fingerprint.String()) {
		// It called, and was not called yet, so nothing is known about its endpoint.
		status.Fingerprint = asker.Fingerprint.String()
		c := api.Condition{Type: api.ConditionVerified, Status: api.ConditionTrue, Reason: reason.KeyProven, Message: "The cluster proved that it has the key with this fingerprint when it asked for access."}
		status.Conditions = []api.Condition{carryOver(c, fc.Condition(c.Type), now)}
		return status, true
	}
	switch {
	case s.Peer == nil && s.Probe != nil && s.Probe.fails():
		reachable = s.Probe.unmetReachable()
	case s.Peer == nil && s.Probe != nil:
		// The status stays until it is known who answers; discovery is about to see it.
		return Status{}, false
	case s.Gone:
		// The cluster of a person's object that was never seen is not lost.
		if s.Peer == nil && fc.Condition(api.ConditionReachable) == nil {
			return Status{}, false
		}
		reachable.Status, reachable.Reason, reachable.Message = api.ConditionFalse, reason.Lost, "The cluster is no longer seen."
	case s.Peer == nil || s.Peer.Phase == peer.PhaseLost || s.Peer.Phase == peer.PhaseUnverified:
		return Status{}, false
	case s.Peer.Phase == peer.PhasePresent:
		reachable.Status, reachable.Reason, reachable.Message = api.ConditionTrue, reason.Answers, "The endpoint answers."
	default:
		reachable.Status, reachable.Reason = api.ConditionFalse, reason.ChecksFailed
		reachable.Message = cmp.Or(s.Peer.Reason, "The endpoint does not answer.")
	}
	wanted := []api.Condition{reachable}
	if status.Fingerprint != "" {
		wanted = append(wanted, api.Condition{
			Type: api.ConditionVerified, Status: api.ConditionTrue, Reason: reason.KeyProven,
			Message: "The endpoint proved that it has the key with this fingerprint.",
		})
	}
	if s.Peer != nil && s.Peer.Conflict != nil {
		c := s.Peer.Conflict
		wanted = append(wanted, api.Condition{
			Type: api.ConditionConflict, Status: api.ConditionTrue, Reason: reason.OtherKey,
			Message: "Another key claims this cluster ID: " + c.Fingerprint.String() + " at " + c.Addr +
				". Two clusters were cloned from one disk, or one pretends to be the other.",
		})
	}
	for _, c := range wanted {
		status.Conditions = append(status.Conditions, carryOver(c, fc.Condition(c.Type), now))
	}
	return status, true
}

// carryOver returns the new condition, given the present one. The transition time changes only
// with the status. If only the wording differs (one check failed with a timeout, the next one
// was refused), the message stays.
func carryOver(next api.Condition, shown *api.Condition, now time.Time) api.Condition {
	if shown == nil || shown.Status != next.Status {
		next.LastTransitionTime = metav1.NewTime(now.Truncate(time.Second))
		return next
	}
	next.LastTransitionTime = shown.LastTransitionTime
	same := shown.Reason == next.Reason
	switch next.Type {
	case api.ConditionConflict:
		same = same && SameConflict(next.Message, shown.Message)
	case api.ConditionAuthURL:
		same = same && aboutURL(next.Message) == aboutURL(shown.Message)
	}
	if same {
		next.Message = shown.Message
	}
	return next
}

// SameConflict reports whether two messages of a conflict name the same key.
func SameConflict(a, b string) bool {
	a, _, _ = strings.Cut(a, " at ")
	b, _, _ = strings.Cut(b, " at ")
	return a == b
}

// ShownBy reports whether fc shows s and no other discovered conditions.
func (s Status) ShownBy(fc *api.ForeignCluster) bool {
	if fc.Status.Fingerprint != s.Fingerprint || fc.Status.TTL != s.TTL {
		return false
	}
	for _, c := range s.Conditions {
		shown := fc.Condition(c.Type)
		if shown == nil || shown.Status != c.Status || shown.Reason != c.Reason || shown.Message != c.Message {
			return false
		}
	}
	return len(s.Conditions) == discoveredConditions(fc)
}

// discoveredConditions counts the conditions of fc that discovery owns.
func discoveredConditions(fc *api.ForeignCluster) int {
	n := 0
	for _, t := range []string{api.ConditionReachable, api.ConditionVerified, api.ConditionConflict, api.ConditionAuthURL} {
		if fc.Condition(t) != nil {
			n++
		}
	}
	return n
}

// withURL returns the discovered status of an object, completed with what is known
// about its URL.
func (s Status) withURL(fc *api.ForeignCluster, probe Probe, now time.Time) Status {
	shown := fc.Condition(api.ConditionAuthURL)
	c, known := probe.urlCondition(fc)
	switch {
	case known:
		s.Conditions = append(s.Conditions, carryOver(c, shown, now))
	case shown != nil:
		s.Conditions = append(s.Conditions, *shown)
	}
	return s
}

// shownStatus returns what an object shows that discovery owns, but for the
// condition AuthURL.
func shownStatus(fc *api.ForeignCluster) Status {
	status := Status{Fingerprint: fc.Status.Fingerprint, TTL: fc.Status.TTL}
	for _, t := range []string{api.ConditionReachable, api.ConditionVerified, api.ConditionConflict} {
		if c := fc.Condition(t); c != nil {
			status.Conditions = append(status.Conditions, *c)
		}
	}
	return status
}

// Unidentified returns what the status of a person's object is to show as long as it is
// not known which cluster it is about, and whether anything is known about its URL.
func (p Probe) Unidentified(fc *api.ForeignCluster, now time.Time) (status Status, known bool) {
	status = shownStatus(fc)
	if _, known = p.urlCondition(fc); known {
		c := p.unmetReachable()
		status.Conditions = []api.Condition{carryOver(c, fc.Condition(c.Type), now)}
	}
	return status.withURL(fc, p, now), known
}
