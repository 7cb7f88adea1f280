package peering

import (
	"encoding/json"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/agent/api"
	"liqo.io/agent/peering/plan"
)

func TestOwners(t *testing.T) {
	const created = "2026-11-01T10:00:00Z"
	object := func(join bool, managers string) *foreignCluster {
		fc := &foreignCluster{}
		text := `{"metadata":{"name":"x","uid":"u","creationTimestamp":"` + created + `","managedFields":[` + managers + `]},"spec":{"join":` +
			map[bool]string{true: "true", false: "false"}[join] + `,"trustMode":"Unknown"}}`
		if err := json.Unmarshal([]byte(text), fc); err != nil {
			t.Fatal(err)
		}
		return fc
	}
	entry := func(manager, operation, at, fields string) string {
		return `{"manager":"` + manager + `","operation":"` + operation + `","apiVersion":"v1","time":"` + at + `","fieldsType":"FieldsV1","fieldsV1":` + fields + `}`
	}
	const (
		join = `{"f:spec":{"f:join":{}}}`
		both = `{"f:spec":{"f:join":{},"f:trustMode":{},"f:authUrl":{}}}`
		// What is left of the creator's when somebody else set the URL since.
		creators = `{"f:spec":{".":{},"f:join":{},"f:trustMode":{},"f:discoveryType":{}}}`

		trust  = `{"f:spec":{"f:trustMode":{}}}`
		status = `{"f:status":{"f:join":{}}}`
		later  = "2026-11-01T11:00:00Z"
		latest = "2026-11-01T12:00:00Z"
	)
	annotated := func(fc *foreignCluster, text string) *foreignCluster {
		fc.Annotations = map[string]string{lastApplied: text}
		return fc
	}
	showing := func(fc *foreignCluster, condition, reason string) *foreignCluster {
		fc.Status.Conditions = []api.Condition{{Type: condition, Reason: reason}}
		return fc
	}
	for _, tc := range []struct {
		name     string
		fc       *foreignCluster
		join     plan.Owner
		trusting plan.Owner
	}{
		{"nobody", object(false, entry(plan.ManagerDiscovery, "Apply", created, `{"f:spec":{"f:authUrl":{}}}`)), plan.Owner{}, plan.Owner{}},
		{"somebody", object(true, entry("kubectl-patch", "Update", later, join)), plan.Owner{Manager: "kubectl-patch", Stamp: "u kubectl-patch " + later + " true"}, plan.Owner{}},
		{"the default of who created it", object(false, entry("kubectl-create", "Update", created, both)), plan.Owner{}, plan.Owner{}},
		{"joined by who created it", object(true, entry("kubectl-create", "Update", created, both)), plan.Owner{Manager: "kubectl-create", Stamp: "u kubectl-create " + created + " true"}, plan.Owner{}},
		{"said no by who created it", object(false, entry("gitops", "Apply", created, join)), plan.Owner{Manager: "gitops", Stamp: "u gitops " + created + " false"}, plan.Owner{}},
		{"said no at once", object(false, entry("kubectl-patch", "Update", created, join)), plan.Owner{Manager: "kubectl-patch", Stamp: "u kubectl-patch " + created + " false"}, plan.Owner{}},
		{"changed by who created it", object(false, entry("kubectl-edit", "Update", later, both)),
			plan.Owner{Manager: "kubectl-edit", Stamp: "u kubectl-edit " + later + " false"}, plan.Owner{Manager: "kubectl-edit", Stamp: "u kubectl-edit " + later + " Unknown"}},
		{"the agent", object(true, entry(plan.ManagerIntent, "Apply", later, join)), plan.Owner{Manager: plan.ManagerIntent, Stamp: "u " + plan.ManagerIntent + " " + later + " true"}, plan.Owner{}},
		{"a person and the agent", object(true, entry("k", "Apply", later, join)+","+entry(plan.ManagerIntent, "Apply", latest, join)), plan.Owner{Manager: "k", Stamp: "u k " + later + " true"}, plan.Owner{}},
		{"the agent and a person", object(true, entry(plan.ManagerIntent, "Apply", latest, join)+","+entry("k", "Apply", later, join)), plan.Owner{Manager: "k", Stamp: "u k " + later + " true"}, plan.Owner{}},
		{"two people", object(true, entry("a", "Apply", latest, join)+","+entry("b", "Apply", later, join)), plan.Owner{Manager: "a", Stamp: "u a " + latest + " true"}, plan.Owner{}},
		{"one for each", object(true, entry("a", "Apply", later, join)+","+entry("b", "Apply", latest, trust)),
			plan.Owner{Manager: "a", Stamp: "u a " + later + " true"}, plan.Owner{Manager: "b", Stamp: "u b " + latest + " Unknown"}},
		{"the default of who created it, without the URL that somebody corrected", object(false, entry("kubectl-create", "Update", created, creators)), plan.Owner{}, plan.Owner{}},
		{"the default of who applied it again", object(false, entry("kubectl-client-side-apply", "Update", later, creators)), plan.Owner{}, plan.Owner{}},
		{"the default that kubectl took along to the server", object(false, entry("kubectl", "Apply", later, creators)), plan.Owner{}, plan.Owner{}},
		{"joined by who applied it again", object(true, entry("k", "Update", later, creators)), plan.Owner{Manager: "k", Stamp: "u k " + later + " true"}, plan.Owner{}},
		{"said no by who applied it", annotated(object(false, entry("k", "Update", created, both)), `{"spec":{"join":false}}`), plan.Owner{Manager: "k", Stamp: "u k " + created + " false"}, plan.Owner{}},
		{"said nothing by who applied it", annotated(object(false, entry("k", "Update", created, both)), `{"spec":{"authUrl":"x"}}`), plan.Owner{}, plan.Owner{}},
		{"a damaged annotation", annotated(object(false, entry("k", "Update", created, both)), `{"spec":7}`), plan.Owner{}, plan.Owner{}},
		{"removed from what was applied", showing(object(false, entry("k", "Update", later, creators)), api.ConditionOutgoingPeering, plan.ReasonJoined), plan.Owner{Manager: "k", Stamp: "u k " + later + " false"}, plan.Owner{}},
		{"never in what was applied", showing(object(false, entry("k", "Update", later, creators)), api.ConditionOutgoingPeering, plan.ReasonAnotherObject), plan.Owner{}, plan.Owner{}},
		{"trust removed from what was applied", showing(object(false, entry("k", "Update", later, creators)), api.ConditionTrusted, plan.ReasonPersonDecided), plan.Owner{}, plan.Owner{Manager: "k", Stamp: "u k " + later + " Unknown"}},
		{"trust never decided", showing(object(false, entry("k", "Update", later, creators)), api.ConditionTrusted, plan.ReasonNotDecided), plan.Owner{}, plan.Owner{}},
		{"of the status", object(true, entry("a", "Update", later, status)), plan.Owner{}, plan.Owner{}},
		{"damaged", object(true, entry("a", "Update", later, `{"f:spec":7}`)), plan.Owner{}, plan.Owner{}},
	} {
		tc.fc.trim()
		tc.fc.trim()
		if tc.fc.owners.Join != tc.join || tc.fc.owners.TrustMode != tc.trusting {
			t.Errorf("%s: %+v", tc.name, tc.fc.owners)
		}
		if tc.fc.ManagedFields != nil {
			t.Errorf("%s: managedFields are kept", tc.name)
		}
		if copied := tc.fc.DeepCopyObject().(*foreignCluster); copied.owners != tc.fc.owners {
			t.Errorf("%s: a copy has owners %+v", tc.name, copied.owners)
		}
	}
	sub := metav1.ManagedFieldsEntry{Manager: "a", Subresource: "status", FieldsV1: metav1.NewFieldsV1(join)}
	fc := &foreignCluster{ForeignCluster: api.ForeignCluster{ObjectMeta: metav1.ObjectMeta{ManagedFields: []metav1.ManagedFieldsEntry{sub}}}}
	if fc.trim(); fc.owners != (plan.Owners{}) {
		t.Errorf("a subresource's manager counts: %+v", fc.owners)
	}
}

// TestIdentityOwners: the agent follows a cluster's name only in an object of which
// it owns nothing else.
func TestIdentityOwners(t *testing.T) {
	entry := func(manager, subresource, fields string) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{Manager: manager, Subresource: subresource, FieldsV1: metav1.NewFieldsV1(fields)}
	}
	const filled = `{"f:spec":{"f:clusterIdentity":{"f:clusterID":{},"f:clusterName":{}},"f:namespace":{}}}`
	for _, tc := range []struct {
		name    string
		managed []metav1.ManagedFieldsEntry
		want    plan.IdentityOwners
	}{
		{"nobody", nil, plan.IdentityOwners{}},
		{"a person's URL", []metav1.ManagedFieldsEntry{entry("k", "", `{"f:spec":{"f:authUrl":{}}}`)}, plan.IdentityOwners{}},
		{"a person's name", []metav1.ManagedFieldsEntry{entry("k", "", `{"f:spec":{"f:clusterIdentity":{"f:clusterName":{}}}}`)}, plan.IdentityOwners{Name: true}},
		{"a person's namespace", []metav1.ManagedFieldsEntry{entry("k", "", `{"f:spec":{"f:namespace":{}}}`)}, plan.IdentityOwners{Namespace: true}},
		{"filled in", []metav1.ManagedFieldsEntry{entry(plan.ManagerDiscovery, "", filled), entry(plan.ManagerDiscovery, "status", `{"f:status":{}}`)}, plan.IdentityOwners{Filled: true}},
		{"filled in, and named since", []metav1.ManagedFieldsEntry{entry(plan.ManagerDiscovery, "", filled), entry("k", "", `{"f:spec":{"f:clusterIdentity":{"f:clusterName":{}}}}`)}, plan.IdentityOwners{Filled: true, Name: true}},
		{"in a status", []metav1.ManagedFieldsEntry{entry(plan.ManagerDiscovery, "status", filled), entry("k", "status", filled)}, plan.IdentityOwners{}},
		{"made by the agent", []metav1.ManagedFieldsEntry{entry(plan.ManagerDiscovery, "", `{"f:metadata":{"f:labels":{}},"f:spec":{"f:clusterIdentity":{"f:clusterID":{}},"f:authUrl":{},"f:discoveryType":{}}}`)}, plan.IdentityOwners{DiscoveredURL: true}},
		{"taken over, URL left", []metav1.ManagedFieldsEntry{entry(plan.ManagerDiscovery, "", `{"f:spec":{"f:clusterIdentity":{"f:clusterID":{}},"f:authUrl":{}}}`)}, plan.IdentityOwners{DiscoveredURL: true}},
		{"taken over, URL confirmed", []metav1.ManagedFieldsEntry{entry("k", "", `{"f:spec":{"f:authUrl":{}}}`), entry(plan.ManagerDiscovery, "", `{"f:spec":{"f:clusterIdentity":{"f:clusterID":{}},"f:authUrl":{}}}`)}, plan.IdentityOwners{}},
		{"taken over, type left", []metav1.ManagedFieldsEntry{entry(plan.ManagerDiscovery, "", `{"f:spec":{"f:clusterIdentity":{"f:clusterID":{}},"f:discoveryType":{}}}`)}, plan.IdentityOwners{}},
		{"taken over, a label left", []metav1.ManagedFieldsEntry{entry(plan.ManagerDiscovery, "", `{"f:metadata":{"f:labels":{"f:x":{}}},"f:spec":{"f:clusterIdentity":{"f:clusterID":{}}}}`)}, plan.IdentityOwners{}},
		{"damaged", []metav1.ManagedFieldsEntry{entry("k", "", `{"f:spec":{"f:clusterIdentity":3,"f:namespace":{}}}`), entry("k", "", "")}, plan.IdentityOwners{}},
	} {
		fc := &foreignCluster{}
		fc.ManagedFields = tc.managed
		if fc.trim(); fc.owners.Identity != tc.want {
			t.Errorf("%s: %+v", tc.name, fc.owners.Identity)
		}
	}
}

// TestFollows has a person and the agent take a field from each other.
func TestFollows(t *testing.T) {
	agent := plan.Owner{Manager: plan.ManagerIntent, Stamp: "u agent 9"}
	at := func(manager, stamp string) plan.Owner { return plan.Owner{Manager: manager, Stamp: stamp} }
	for _, tc := range []struct {
		name string
		seen []plan.Owner
		want string
	}{
		{"one edit", []plan.Owner{at("k", "10 true")}, "10 true"},
		{"seen twice", []plan.Owner{at("k", "10 true"), at("k", "10 true")}, "10 true"},
		{"a later one", []plan.Owner{at("k", "10 true"), agent, at("k", "11 true")}, "11 true"},
		{"in the same second", []plan.Owner{at("k", "10 true"), agent, at("k", "10 true")}, "10 true+"},
		{"seen twice in the same second", []plan.Owner{at("k", "10 true"), agent, at("k", "10 true"), at("k", "10 true")}, "10 true+"},
		{"three in the same second", []plan.Owner{at("k", "10 true"), agent, at("k", "10 true"), agent, agent, at("k", "10 true")}, "10 true++"},
		{"another value", []plan.Owner{at("k", "10 true"), agent, at("k", "10 false")}, "10 false"},
		{"another person", []plan.Owner{at("k", "10 true"), at("l", "10 true l")}, "10 true l"},
		{"removed", []plan.Owner{at("k", "10 true"), {}}, "10 true removed"},
		{"removed, and seen twice", []plan.Owner{at("k", "10 true"), {}, {}}, "10 true removed"},
		{"removed, and the agent set it", []plan.Owner{at("k", "10 true"), {}, agent}, agent.Stamp},
		{"never set", []plan.Owner{{}, {}}, ""},
		{"given up by the agent", []plan.Owner{agent, {}}, ""},
		{"removed, and set again", []plan.Owner{at("k", "10 true"), {}, at("k", "10 true")}, "10 true+"},
		{"the same, seen twice", []plan.Owner{at("k", "10 true"), {}, at("k", "10 true"), at("k", "10 true")}, "10 true+"},
	} {
		var owner, past plan.Owner
		for i, now := range tc.seen {
			if i == 0 {
				owner = now
				continue
			}
			owner, past = follows(owner, past, now)
		}
		if owner.Stamp != tc.want {
			t.Errorf("%s: %q, want %q", tc.name, owner.Stamp, tc.want)
		}
	}
}
