package discovered

import (
	"cmp"
	"slices"
	"strings"

	"liqo.io/agent/api"
	"liqo.io/agent/peer"
	"liqo.io/agent/peer/text"
	"liqo.io/agent/peering/fields"
	"liqo.io/agent/peering/reason"
)

// Probe is what is known about the URL in a ForeignCluster that a person wrote.
type Probe struct {
	// Known is true when Result is about the URL that the object has now.
	Known  bool
	Result Result
	// Overdue: nothing is known yet, although it was asked for a while ago.
	Overdue bool
}

// Result is who answers at a URL.
type Result struct {
	URL         string // that was asked
	ID          peer.ClusterID
	ClusterName string
	Namespace   string
	Fingerprint peer.Fingerprint
	// Reason is "" if it is a cluster that we can deal with, else one word for
	// programs. Message says to people what went wrong; "" when Reason says all of that.
	Reason, Message string
}

// ProbesURL reports whether fc is a person's that says where its cluster is; a URL that
// only the agent set does not count. One
// that is being deleted counts until its peering is undone: for that, the cluster
// must be found.
func ProbesURL(fc *api.ForeignCluster, owners fields.IdentityOwners) bool {
	return fc.Spec.AuthURL != "" && !fc.CreatedByAgent() && !owners.DiscoveredURL && (fc.DeletionTimestamp == nil || slices.Contains(fc.Finalizers, api.FinalizerPeering))
}

// Checked returns the probe with a reason for a result that does not fit the object, or is this
// cluster.
func (p Probe) Checked(fc *api.ForeignCluster, self peer.ClusterID) Probe {
	found := p.Result
	if !p.Known || found.Reason != "" {
		return p
	}
	switch _, err := peer.ParseClusterID(string(found.ID)); {
	case err != nil:
		found.Reason, found.Message = reason.NotACluster, "it names no cluster ID"
	case found.ID == self:
		found.Reason = reason.ThisCluster
	case fc.ClusterID() != "" && fc.ClusterID() != string(found.ID):
		found.Reason = reason.OtherCluster
	}
	p.Result = found
	return p
}

// Answers reports whether the cluster that the object is about answers there, and
// for an object that does not say which one that is, whether any does.
func (p Probe) Answers() bool { return p.Known && p.Result.Reason == "" }

// fails reports whether it is known that no usable cluster answers there.
func (p Probe) fails() bool { return p.Known && p.Result.Reason != "" }

// urlCondition returns the condition AuthURL of an object, and false if nothing is known yet, so
// that it stays.
func (p Probe) urlCondition(fc *api.ForeignCluster) (api.Condition, bool) {
	url, shown := fc.Spec.AuthURL, fc.Condition(api.ConditionAuthURL)
	c := api.Condition{Type: api.ConditionAuthURL, Status: api.ConditionFalse, Reason: p.Result.Reason}
	said := strings.TrimSuffix(text.Sentence(p.Result.Message), ".")
	switch {
	case !p.Known && p.Overdue && (shown == nil || !strings.HasPrefix(shown.Message, url+" ")):
		c.Status, c.Reason, c.Message = api.ConditionUnknown, reason.NotAskedYet, url+" is being asked who is there."
	case !p.Known:
		return api.Condition{}, false
	case p.Result.Reason == "":
		c.Status, c.Reason, c.Message = api.ConditionTrue, reason.Answering, url+" leads to the cluster."
	case p.Result.Reason == reason.Unreachable:
		c.Message = url + " does not answer" + detail(said) + " It is asked again and again. Check its address and port, and that liqo-agent runs there."
	case p.Result.Reason == reason.NotACluster:
		c.Message = url + " is not the endpoint of a cluster" + detail(said) + " Check its address and port: https://ADDRESS:PORT/ids is to show a clusterId."
	case p.Result.Reason == reason.OtherCluster && fc.ClusterID() != "" && p.Result.ID != "":
		c.Message = url + " leads to cluster " + string(p.Result.ID) + ", and this ForeignCluster is about " + fc.ClusterID() +
			". Correct authUrl; or delete this ForeignCluster, and create another one for that cluster."
	case p.Result.Reason == reason.OtherCluster:
		c.Message = url + " leads to another cluster than the one that this ForeignCluster is about" + detail(said) +
			" Correct authUrl; or delete this ForeignCluster, and create another one for that cluster."
	case p.Result.Reason == reason.ThisCluster:
		c.Message = url + " leads to this very cluster, which cannot peer with itself. Set authUrl to the endpoint of another one, or delete this ForeignCluster."
	case p.Result.Reason == reason.AnotherKey:
		c.Message = url + " does not show the key that is expected" + detail(said) +
			" If the cluster was set up anew, take its new key with: liqo-agent peers trust " + cmp.Or(fc.ClusterID(), string(p.Result.ID), fc.Name) +
			". Otherwise somebody pretends to be it."
	default:
		c.Message = url + " cannot be used" + detail(said)
	}
	return c, true
}

// detail returns the end of a sentence, with what was said, if anything.
func detail(said string) string {
	if said == "" {
		return "."
	}
	return ": " + said + "."
}

// aboutURL returns the part of the message of condition AuthURL before the details.
func aboutURL(message string) string {
	before, _, _ := strings.Cut(message, ": ")
	return before
}

// unmetReachable is the condition Reachable of an object whose cluster was never
// seen, because its URL leads nowhere.
func (p Probe) unmetReachable() api.Condition {
	c := api.Condition{
		Type: api.ConditionReachable, Status: api.ConditionFalse, Reason: p.Result.Reason,
		Message: "The cluster does not answer at authUrl; see condition AuthURL.",
	}
	if !p.Known {
		c.Status, c.Reason, c.Message = api.ConditionUnknown, reason.NotAskedYet, "The agent is contacting authUrl."
	}
	return c
}
