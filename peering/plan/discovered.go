package plan

import (
	"cmp"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/agent/api"
	"liqo.io/agent/peer"
)

// DiscoveredSpec are the fields of a ForeignCluster's spec, and its labels,
// that discovery owns.
type DiscoveredSpec struct {
	Labels          map[string]string   `json:"-"`
	ClusterIdentity api.ClusterIdentity `json:"clusterIdentity"`
	Namespace       string              `json:"namespace,omitempty"`
	DiscoveryType   api.DiscoveryType   `json:"discoveryType"`
	AuthURL         string              `json:"authUrl,omitempty"`
}

// DiscoveredStatus are the fields of a ForeignCluster's status that discovery
// owns.
type DiscoveredStatus struct {
	Fingerprint string          `json:"fingerprint,omitempty"`
	TTL         int64           `json:"ttl,omitempty"`
	Conditions  []api.Condition `json:"conditions,omitempty"`
}

// The reasons that discovered conditions carry.
const (
	ReasonAnswers      = "EndpointAnswers"
	ReasonChecksFailed = "ChecksFailed"
	ReasonLost         = "Lost"
	ReasonKeyProven    = "KeyProven"
	ReasonOtherKey     = "OtherKeySeen"
)

func (obs Observed) present() bool {
	return obs.Peer != nil && obs.Peer.Phase == peer.PhasePresent
}

// asker is who waits for a decision and is known by nothing but that; nil for nobody.
func (obs Observed) asker() *peer.Peer {
	ask := obs.Policy.Ask
	if ask == nil || obs.Peer != nil && !obs.Peer.Fingerprint.IsZero() {
		return nil
	}
	return &peer.Peer{ID: obs.ID, Name: ask.Name, Namespace: ask.Namespace, Source: peer.IncomingPeering, Fingerprint: ask.Fingerprint}
}

// subject is who the agent's own object is about.
func (obs Observed) subject() *peer.Peer {
	if asker := obs.asker(); asker != nil && !obs.present() {
		return asker
	}
	return obs.Peer
}

// gone reports whether the cluster is known not to be there.
func (obs Observed) gone() bool { return obs.Unseen() && (obs.Peer != nil || obs.Settled) }

// Unseen reports whether nothing was seen of the cluster, for whatever reason.
func (obs Observed) Unseen() bool { return obs.Peer == nil || obs.Peer.Phase == peer.PhaseLost }

// classify returns the object that the agent created for the cluster, nil when there
// is none, and the objects that others wrote for it and do not delete.
func (obs Observed) classify() (own *api.ForeignCluster, others []*api.ForeignCluster) {
	for _, fc := range obs.Objects {
		switch {
		case fc.ClusterID() != string(obs.ID):
		case fc.Name == string(obs.ID) && fc.CreatedByAgent():
			own = fc
		case fc.DeletionTimestamp == nil:
			others = append(others, fc)
		}
	}
	return own, others
}

// urlProbe returns what is known about fc's URL, and false when nobody is asked about
// it.
func (obs Observed) urlProbe(fc *api.ForeignCluster) (URLProbe, bool) {
	probe, asked := obs.URLs[fc.Name]
	if !asked || !ProbesURL(fc, obs.Owners[fc.Name].Identity) {
		return URLProbe{}, false
	}
	return probe.checked(fc, obs.Self.Identity.ClusterID), true
}

// nameTaken reports whether a ForeignCluster that is not about this cluster, or
// is being deleted, has its ID as name, so that none can be created for it.
func (obs Observed) nameTaken() bool {
	for _, fc := range obs.Objects {
		if fc.Name == string(obs.ID) && (fc.ClusterID() != string(obs.ID) || fc.DeletionTimestamp != nil) {
			return true
		}
	}
	return false
}

// NameBlocked reports whether the cluster ought to have a ForeignCluster and cannot
// have one before a person makes room for it.
func (obs Observed) NameBlocked() bool {
	own, others := obs.classify()
	if own != nil || len(others) > 0 || !obs.present() || !obs.nameTaken() {
		return false
	}
	for _, fc := range obs.Objects {
		if fc.DeletionTimestamp != nil {
			return false // it makes room by itself
		}
	}
	return true
}

// discoveredSpec returns what fc's spec is to show. What the peer does not say
// stays as it is.
func discoveredSpec(p *peer.Peer, fc *api.ForeignCluster) DiscoveredSpec {
	var name string
	if fc.Spec.ClusterIdentity != nil {
		name = fc.Spec.ClusterIdentity.ClusterName
	}
	found := cmp.Or(api.DiscoveryType(p.Source), api.DiscoveryLAN)
	return DiscoveredSpec{
		Labels:          api.AgentLabels(found),
		ClusterIdentity: api.ClusterIdentity{ClusterID: string(p.ID), ClusterName: cmp.Or(p.Name, name)},
		Namespace:       cmp.Or(p.Namespace, fc.Spec.Namespace),
		DiscoveryType:   found,
		AuthURL:         cmp.Or(p.URL, fc.Spec.AuthURL),
	}
}

func (s DiscoveredSpec) shownBy(fc *api.ForeignCluster) bool {
	for key, value := range s.Labels {
		if fc.Labels[key] != value {
			return false
		}
	}
	return fc.Spec.ClusterIdentity != nil && *fc.Spec.ClusterIdentity == s.ClusterIdentity &&
		fc.Spec.Namespace == s.Namespace && fc.Spec.DiscoveryType == s.DiscoveryType && fc.Spec.AuthURL == s.AuthURL
}

func statusActions(obs Observed, fc *api.ForeignCluster, now time.Time) []Action {
	status, known := discoveredStatus(obs, fc, now)
	if !known {
		status = shownStatus(fc)
	}
	if probe, asked := obs.urlProbe(fc); asked {
		status = status.withURL(fc, probe, now)
	}
	if status.shownBy(fc) {
		return nil
	}
	return []Action{{Kind: UpdateStatus, Name: fc.Name, UID: fc.UID, Status: &status}}
}

// discoveredStatus returns what fc's status is to show, and false when nothing
// is known that it could show.
func discoveredStatus(obs Observed, fc *api.ForeignCluster, now time.Time) (DiscoveredStatus, bool) {
	status := DiscoveredStatus{Fingerprint: fc.Status.Fingerprint, TTL: fc.Status.TTL}
	if p := obs.Peer; p != nil {
		status.Fingerprint = cmp.Or(p.Fingerprint.String(), status.Fingerprint)
		status.TTL = cmp.Or(int64(p.TTL/time.Second), status.TTL)
	}
	reachable := api.Condition{Type: api.ConditionReachable}
	probe, asked := obs.urlProbe(fc)
	if asker := obs.asker(); asker != nil && !asked && (status.Fingerprint == "" || status.Fingerprint == asker.Fingerprint.String()) {
		// It called, and was not called yet: that nothing is known about its endpoint is
		// all there is to say about that.
		status.Fingerprint = asker.Fingerprint.String()
		c := api.Condition{Type: api.ConditionVerified, Status: api.ConditionTrue, Reason: ReasonKeyProven, Message: "The cluster proved that it has the key with this fingerprint when it asked for access."}
		status.Conditions = []api.Condition{carryOver(c, fc.Condition(c.Type), now)}
		return status, true
	}
	switch {
	case obs.Peer == nil && asked && probe.fails():
		reachable = probe.unmetReachable()
	case obs.Peer == nil && asked:
		// What was shown holds until it is known who answers; and who answers is about
		// to be seen.
		return DiscoveredStatus{}, false
	case obs.gone():
		// An object by hand for a cluster that nobody has ever seen is not lost.
		if obs.Peer == nil && fc.Condition(api.ConditionReachable) == nil {
			return DiscoveredStatus{}, false
		}
		reachable.Status, reachable.Reason, reachable.Message = api.ConditionFalse, ReasonLost, "The cluster is no longer seen."
	case obs.Unseen() || obs.Peer.Phase == peer.PhaseUnverified:
		return DiscoveredStatus{}, false
	case obs.present():
		reachable.Status, reachable.Reason, reachable.Message = api.ConditionTrue, ReasonAnswers, "The endpoint answers."
	default:
		reachable.Status, reachable.Reason = api.ConditionFalse, ReasonChecksFailed
		reachable.Message = cmp.Or(obs.Peer.Reason, "The endpoint does not answer.")
	}
	wanted := []api.Condition{reachable}
	if status.Fingerprint != "" {
		wanted = append(wanted, api.Condition{
			Type: api.ConditionVerified, Status: api.ConditionTrue, Reason: ReasonKeyProven,
			Message: "The endpoint proved that it has the key with this fingerprint.",
		})
	}
	if obs.Peer != nil && obs.Peer.Conflict != nil {
		c := obs.Peer.Conflict
		wanted = append(wanted, api.Condition{
			Type: api.ConditionConflict, Status: api.ConditionTrue, Reason: ReasonOtherKey,
			Message: "Another key claims this cluster ID: " + c.Fingerprint.String() + " at " + c.Addr +
				". Two clusters were cloned from one disk, or one pretends to be the other.",
		})
	}
	for _, c := range wanted {
		status.Conditions = append(status.Conditions, carryOver(c, fc.Condition(c.Type), now))
	}
	return status, true
}

// carryOver returns the condition to show, given the one shown until now. The
// transition time moves only with the status, and an observation whose wording
// alone differs (one check failed with a timeout, the next one with a refusal)
// is the same observation.
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

func (s DiscoveredStatus) shownBy(fc *api.ForeignCluster) bool {
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
