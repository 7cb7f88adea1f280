package plan

import (
	"time"

	"liqo.io/agent/api"
	"liqo.io/agent/peer"
	"liqo.io/agent/peering/discovered"
	"liqo.io/agent/peering/fields"
	"liqo.io/agent/peering/reason"
)

// awaitingContact is the condition OutgoingPeering of an object with spec.join whose URL does not
// lead to a cluster yet.
func awaitingContact() *verdict {
	return no(reason.AwaitingContact, "The agent connects as soon as the cluster answers at authUrl; see condition AuthURL.")
}

// identityActions updates the identity that the agent completed in a person's object.
func (d *derived) identityActions(fc *api.ForeignCluster) []Action {
	owners := d.Owners[fc.Name].Identity
	if !owners.Filled || !d.present() {
		return nil
	}
	spec := discovered.IdentityOf(fc, owners, d.ID, d.Peer.Name, d.Peer.Namespace)
	if spec.ShownBy(fc) {
		return nil
	}
	return []Action{{Kind: Identify, Name: fc.Name, UID: fc.UID, ResourceVersion: fc.ResourceVersion, Identity: &spec}}
}

// PlanUnidentified decides what to do about a person's object without a cluster ID: the ID has to
// be found first. Like Plan it is a pure function, and applying its actions leaves nothing to
// do.
func PlanUnidentified(fc *api.ForeignCluster, owners fields.Owners, probe discovered.Probe, self peer.ClusterID, now time.Time) []Action {
	probe = probe.Checked(fc, self)
	if probe.Answers() {
		found := probe.Result
		spec := discovered.IdentityOf(fc, owners.Identity, found.ID, found.ClusterName, found.Namespace)
		return []Action{{Kind: Identify, Name: fc.Name, UID: fc.UID, ResourceVersion: fc.ResourceVersion, Identity: &spec}}
	}
	var plan []Action
	status, known := probe.Unidentified(fc, now)
	if !status.ShownBy(fc) {
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
