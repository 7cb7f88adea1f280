package plan

import (
	"cmp"
	"strings"
	"time"

	"liqo.io/agent/api"
	"liqo.io/agent/peer"
	"liqo.io/agent/peer/text"
)

// URLProbe is what is known about the URL in a ForeignCluster that a person wrote.
type URLProbe struct {
	// Known is true when Result is about the URL that the object has now.
	Known  bool
	Result ProbeResult
	// Overdue: nothing is known yet, although it was asked for a while ago.
	Overdue bool
}

// IdentitySpec is everything that ManagerDiscovery is to own in the spec of a
// ForeignCluster that a person wrote.
type IdentitySpec struct {
	ClusterIdentity api.ClusterIdentity `json:"clusterIdentity"`
	Namespace       string              `json:"namespace,omitempty"`
}

// ProbesURL reports whether fc is a person's that says where its cluster is; a URL that
// only the agent set does not count. One
// that is being deleted counts until its peering is undone: for that, the cluster
// must be found.
func ProbesURL(fc *api.ForeignCluster, owners IdentityOwners) bool {
	return fc.Spec.AuthURL != "" && !fc.CreatedByAgent() && !owners.DiscoveredURL && (fc.DeletionTimestamp == nil || hasFinalizer(fc))
}

// checked returns the probe with what only the object and this cluster's identity
// tell about it.
func (p URLProbe) checked(fc *api.ForeignCluster, self peer.ClusterID) URLProbe {
	found := p.Result
	if !p.Known || found.Reason != "" {
		return p
	}
	switch _, err := peer.ParseClusterID(string(found.ID)); {
	case err != nil:
		found.Reason, found.Message = ReasonNotACluster, "it names no cluster ID"
	case found.ID == self:
		found.Reason = ReasonThisCluster
	case fc.ClusterID() != "" && fc.ClusterID() != string(found.ID):
		found.Reason = ReasonOtherCluster
	}
	p.Result = found
	return p
}

// answers reports whether the cluster that the object is about answers there, and
// for an object that does not say which one that is, whether any does.
func (p URLProbe) answers() bool { return p.Known && p.Result.Reason == "" }

// fails reports whether it is known that nobody usable answers there.
func (p URLProbe) fails() bool { return p.Known && p.Result.Reason != "" }

// urlCondition returns the condition AuthURL of an object, and false when it is to
// show what it shows: nothing is known yet.
func (p URLProbe) urlCondition(fc *api.ForeignCluster) (api.Condition, bool) {
	url, shown := fc.Spec.AuthURL, fc.Condition(api.ConditionAuthURL)
	c := api.Condition{Type: api.ConditionAuthURL, Status: api.ConditionFalse, Reason: p.Result.Reason}
	said := strings.TrimSuffix(text.Sentence(p.Result.Message), ".")
	switch {
	case !p.Known && p.Overdue && (shown == nil || !strings.HasPrefix(shown.Message, url+" ")):
		c.Status, c.Reason, c.Message = api.ConditionUnknown, ReasonNotAskedYet, url+" is being asked who is there."
	case !p.Known:
		return api.Condition{}, false
	case p.Result.Reason == "":
		c.Status, c.Reason, c.Message = api.ConditionTrue, ReasonAnswering, url+" leads to the cluster."
	case p.Result.Reason == ReasonUnreachable:
		c.Message = url + " does not answer" + detail(said) + " It is asked again and again. Check its address and port, and that liqo-agent runs there."
	case p.Result.Reason == ReasonNotACluster:
		c.Message = url + " is not the endpoint of a cluster" + detail(said) + " Check its address and port: https://ADDRESS:PORT/ids is to show a clusterId."
	case p.Result.Reason == ReasonOtherCluster && fc.ClusterID() != "" && p.Result.ID != "":
		c.Message = url + " leads to cluster " + string(p.Result.ID) + ", and this ForeignCluster is about " + fc.ClusterID() +
			". Correct authUrl; or delete this ForeignCluster, and create another one for that cluster."
	case p.Result.Reason == ReasonOtherCluster:
		c.Message = url + " leads to another cluster than the one that this ForeignCluster is about" + detail(said) +
			" Correct authUrl; or delete this ForeignCluster, and create another one for that cluster."
	case p.Result.Reason == ReasonThisCluster:
		c.Message = url + " leads to this very cluster, which cannot peer with itself. Set authUrl to the endpoint of another one, or delete this ForeignCluster."
	case p.Result.Reason == ReasonAnotherKey:
		c.Message = url + " does not show the key that is expected" + detail(said) +
			" If the cluster was set up anew, take its new key with: liqo-agent peers trust " + cmp.Or(fc.ClusterID(), string(p.Result.ID), fc.Name) +
			". Otherwise somebody pretends to be it."
	default:
		c.Message = url + " cannot be used" + detail(said)
	}
	return c, true
}

// detail returns the end of a sentence, with what it was said about if anything
// was.
func detail(said string) string {
	if said == "" {
		return "."
	}
	return ": " + said + "."
}

// aboutURL returns the part of the message of condition AuthURL that says what it
// is about, apart from how it was put.
func aboutURL(message string) string {
	before, _, _ := strings.Cut(message, ": ")
	return before
}

// withURL returns the discovered status of an object, completed with what is known
// about its URL.
func (s DiscoveredStatus) withURL(fc *api.ForeignCluster, probe URLProbe, now time.Time) DiscoveredStatus {
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
func shownStatus(fc *api.ForeignCluster) DiscoveredStatus {
	status := DiscoveredStatus{Fingerprint: fc.Status.Fingerprint, TTL: fc.Status.TTL}
	for _, t := range []string{api.ConditionReachable, api.ConditionVerified, api.ConditionConflict} {
		if c := fc.Condition(t); c != nil {
			status.Conditions = append(status.Conditions, *c)
		}
	}
	return status
}

// unmetReachable is the condition Reachable of an object whose cluster was never
// seen, because its URL leads nowhere.
func (p URLProbe) unmetReachable() api.Condition {
	c := api.Condition{
		Type: api.ConditionReachable, Status: api.ConditionFalse, Reason: p.Result.Reason,
		Message: "The cluster does not answer at authUrl; see condition AuthURL.",
	}
	if !p.Known {
		c.Status, c.Reason, c.Message = api.ConditionUnknown, ReasonNotAskedYet, "The agent is contacting authUrl."
	}
	return c
}

// awaitingContact is the condition OutgoingPeering of an object that is to be
// joined and whose URL leads nowhere.
func awaitingContact() *verdict {
	return no(ReasonAwaitingContact, "The agent connects as soon as the cluster answers at authUrl; see condition AuthURL.")
}

// identified returns what the agent is to own in the spec of a person's object:
// what is known of the cluster and was not set by somebody else. What the cluster
// does not say, or says in a way that no object can hold, stays as it is.
func identified(fc *api.ForeignCluster, owners IdentityOwners, id peer.ClusterID, name, namespace string) IdentitySpec {
	spec := IdentitySpec{ClusterIdentity: api.ClusterIdentity{ClusterID: string(id)}}
	if _, err := peer.ParseClusterName(name); err != nil {
		name = ""
	}
	if _, err := peer.ParseClusterID(namespace); err != nil { // the same rules
		namespace = ""
	}
	if !owners.Name {
		var shown string
		if fc.Spec.ClusterIdentity != nil {
			shown = fc.Spec.ClusterIdentity.ClusterName
		}
		spec.ClusterIdentity.ClusterName = cmp.Or(name, shown)
	}
	if !owners.Namespace {
		spec.Namespace = cmp.Or(namespace, fc.Spec.Namespace)
	}
	return spec
}

func (s IdentitySpec) shownBy(fc *api.ForeignCluster) bool {
	shown := fc.Spec.ClusterIdentity
	return shown != nil && shown.ClusterID == s.ClusterIdentity.ClusterID &&
		(s.ClusterIdentity.ClusterName == "" || s.ClusterIdentity.ClusterName == shown.ClusterName) &&
		(s.Namespace == "" || s.Namespace == fc.Spec.Namespace)
}

// identityActions has a person's object that the agent completed follow what the
// cluster says about itself.
func (d *derived) identityActions(fc *api.ForeignCluster) []Action {
	owners := d.Owners[fc.Name].Identity
	if !owners.Filled || !d.present() {
		return nil
	}
	spec := identified(fc, owners, d.ID, d.Peer.Name, d.Peer.Namespace)
	if spec.shownBy(fc) {
		return nil
	}
	return []Action{{Kind: Identify, Name: fc.Name, UID: fc.UID, ResourceVersion: fc.ResourceVersion, Identity: &spec}}
}

// PlanUnidentified decides what is to be done about a person's object that does
// not say which cluster it is about: nothing but that can be done before it does.
// Like Plan it is a pure function; applying what it returns leaves nothing to do.
func PlanUnidentified(fc *api.ForeignCluster, owners Owners, probe URLProbe, self peer.ClusterID, now time.Time) []Action {
	probe = probe.checked(fc, self)
	if probe.answers() {
		found := probe.Result
		spec := identified(fc, owners.Identity, found.ID, found.ClusterName, found.Namespace)
		return []Action{{Kind: Identify, Name: fc.Name, UID: fc.UID, ResourceVersion: fc.ResourceVersion, Identity: &spec}}
	}
	var plan []Action
	status := shownStatus(fc)
	_, known := probe.urlCondition(fc)
	if known {
		c := probe.unmetReachable()
		status.Conditions = []api.Condition{carryOver(c, fc.Condition(c.Type), now)}
	}
	if status = status.withURL(fc, probe, now); !status.shownBy(fc) {
		plan = append(plan, Action{Kind: UpdateStatus, Name: fc.Name, UID: fc.UID, ResourceVersion: fc.ResourceVersion, Status: &status})
	}
	peering := PeeringStatus{Role: api.RoleUnknown, AuthStatus: api.AuthPending}
	if fc.Spec.Join && (known || fc.Condition(api.ConditionAuthURL) != nil) {
		c := awaitingContact().condition(api.ConditionOutgoingPeering, fc.Status.Conditions, now)
		peering.Conditions = []api.Condition{c}
	}
	if !peering.shownBy(fc) {
		plan = append(plan, Action{Kind: UpdatePeering, Name: fc.Name, UID: fc.UID, ResourceVersion: fc.ResourceVersion, Peering: &peering})
	}
	return plan
}

// ProbeResult is who answers at a URL.
type ProbeResult struct {
	URL         string // that was asked
	ID          peer.ClusterID
	ClusterName string
	Namespace   string
	Fingerprint peer.Fingerprint
	// Reason is "" if it is a cluster that we can deal with, else one word for
	// programs. Message says to people what went wrong; "" when Reason says all of that.
	Reason, Message string
}
