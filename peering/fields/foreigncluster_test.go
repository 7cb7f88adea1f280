package fields

import (
	"encoding/json"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/agent/api"
	"liqo.io/agent/peering/reason"
)

func TestOwners(t *testing.T) {
	const created = "2026-11-01T10:00:00Z"
	object := func(join bool, managers string) *api.ForeignCluster {
		fc := &api.ForeignCluster{}
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
	annotated := func(fc *api.ForeignCluster, text string) *api.ForeignCluster {
		fc.Annotations = map[string]string{lastApplied: text}
		return fc
	}
	showing := func(fc *api.ForeignCluster, condition, reason string) *api.ForeignCluster {
		fc.Status.Conditions = []api.Condition{{Type: condition, Reason: reason}}
		return fc
	}
	for _, tc := range []struct {
		name     string
		fc       *api.ForeignCluster
		join     Owner
		trusting Owner
	}{
		{"nobody", object(false, entry(ManagerDiscovery, "Apply", created, `{"f:spec":{"f:authUrl":{}}}`)), Owner{}, Owner{}},
		{"somebody", object(true, entry("kubectl-patch", "Update", later, join)), Owner{Manager: "kubectl-patch", Stamp: "u kubectl-patch " + later + " true"}, Owner{}},
		{"the default of who created it", object(false, entry("kubectl-create", "Update", created, both)), Owner{}, Owner{}},
		{"joined by who created it", object(true, entry("kubectl-create", "Update", created, both)), Owner{Manager: "kubectl-create", Stamp: "u kubectl-create " + created + " true"}, Owner{}},
		{"said no by who created it", object(false, entry("gitops", "Apply", created, join)), Owner{Manager: "gitops", Stamp: "u gitops " + created + " false"}, Owner{}},
		{"said no at once", object(false, entry("kubectl-patch", "Update", created, join)), Owner{Manager: "kubectl-patch", Stamp: "u kubectl-patch " + created + " false"}, Owner{}},
		{"changed by who created it", object(false, entry("kubectl-edit", "Update", later, both)),
			Owner{Manager: "kubectl-edit", Stamp: "u kubectl-edit " + later + " false"}, Owner{Manager: "kubectl-edit", Stamp: "u kubectl-edit " + later + " Unknown"}},
		{"the agent", object(true, entry(ManagerIntent, "Apply", later, join)), Owner{Manager: ManagerIntent, Stamp: "u " + ManagerIntent + " " + later + " true"}, Owner{}},
		{"a person and the agent", object(true, entry("k", "Apply", later, join)+","+entry(ManagerIntent, "Apply", latest, join)), Owner{Manager: "k", Stamp: "u k " + later + " true"}, Owner{}},
		{"the agent and a person", object(true, entry(ManagerIntent, "Apply", latest, join)+","+entry("k", "Apply", later, join)), Owner{Manager: "k", Stamp: "u k " + later + " true"}, Owner{}},
		{"two people", object(true, entry("a", "Apply", latest, join)+","+entry("b", "Apply", later, join)), Owner{Manager: "a", Stamp: "u a " + latest + " true"}, Owner{}},
		{"one for each", object(true, entry("a", "Apply", later, join)+","+entry("b", "Apply", latest, trust)),
			Owner{Manager: "a", Stamp: "u a " + later + " true"}, Owner{Manager: "b", Stamp: "u b " + latest + " Unknown"}},
		{"the default of who created it, without the URL that somebody corrected", object(false, entry("kubectl-create", "Update", created, creators)), Owner{}, Owner{}},
		{"the default of who applied it again", object(false, entry("kubectl-client-side-apply", "Update", later, creators)), Owner{}, Owner{}},
		{"the default that kubectl took along to the server", object(false, entry("kubectl", "Apply", later, creators)), Owner{}, Owner{}},
		{"joined by who applied it again", object(true, entry("k", "Update", later, creators)), Owner{Manager: "k", Stamp: "u k " + later + " true"}, Owner{}},
		{"said no by who applied it", annotated(object(false, entry("k", "Update", created, both)), `{"spec":{"join":false}}`), Owner{Manager: "k", Stamp: "u k " + created + " false"}, Owner{}},
		{"said nothing by who applied it", annotated(object(false, entry("k", "Update", created, both)), `{"spec":{"authUrl":"x"}}`), Owner{}, Owner{}},
		{"a damaged annotation", annotated(object(false, entry("k", "Update", created, both)), `{"spec":7}`), Owner{}, Owner{}},
		{"removed from what was applied", showing(object(false, entry("k", "Update", later, creators)), api.ConditionOutgoingPeering, reason.Joined), Owner{Manager: "k", Stamp: "u k " + later + " false"}, Owner{}},
		{"never in what was applied", showing(object(false, entry("k", "Update", later, creators)), api.ConditionOutgoingPeering, reason.AnotherObject), Owner{}, Owner{}},
		{"trust removed from what was applied", showing(object(false, entry("k", "Update", later, creators)), api.ConditionTrusted, reason.PersonDecided), Owner{}, Owner{Manager: "k", Stamp: "u k " + later + " Unknown"}},
		{"trust never decided", showing(object(false, entry("k", "Update", later, creators)), api.ConditionTrusted, reason.NotDecided), Owner{}, Owner{}},
		{"of the status", object(true, entry("a", "Update", later, status)), Owner{}, Owner{}},
		{"damaged", object(true, entry("a", "Update", later, `{"f:spec":7}`)), Owner{}, Owner{}},
	} {
		if owners := OwnersOf(tc.fc); owners.Join != tc.join || owners.TrustMode != tc.trusting {
			t.Errorf("%s: %+v", tc.name, owners)
		}
	}
	sub := metav1.ManagedFieldsEntry{Manager: "a", Subresource: "status", FieldsV1: metav1.NewFieldsV1(join)}
	fc := &api.ForeignCluster{ObjectMeta: metav1.ObjectMeta{ManagedFields: []metav1.ManagedFieldsEntry{sub}}}
	if owners := OwnersOf(fc); owners != (Owners{}) {
		t.Errorf("a subresource's manager counts: %+v", owners)
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
		want    IdentityOwners
	}{
		{"nobody", nil, IdentityOwners{}},
		{"a person's URL", []metav1.ManagedFieldsEntry{entry("k", "", `{"f:spec":{"f:authUrl":{}}}`)}, IdentityOwners{}},
		{"a person's name", []metav1.ManagedFieldsEntry{entry("k", "", `{"f:spec":{"f:clusterIdentity":{"f:clusterName":{}}}}`)}, IdentityOwners{Name: true}},
		{"a person's namespace", []metav1.ManagedFieldsEntry{entry("k", "", `{"f:spec":{"f:namespace":{}}}`)}, IdentityOwners{Namespace: true}},
		{"filled in", []metav1.ManagedFieldsEntry{entry(ManagerDiscovery, "", filled), entry(ManagerDiscovery, "status", `{"f:status":{}}`)}, IdentityOwners{Filled: true}},
		{"filled in, and named since", []metav1.ManagedFieldsEntry{entry(ManagerDiscovery, "", filled), entry("k", "", `{"f:spec":{"f:clusterIdentity":{"f:clusterName":{}}}}`)}, IdentityOwners{Filled: true, Name: true}},
		{"in a status", []metav1.ManagedFieldsEntry{entry(ManagerDiscovery, "status", filled), entry("k", "status", filled)}, IdentityOwners{}},
		{"made by the agent", []metav1.ManagedFieldsEntry{entry(ManagerDiscovery, "", `{"f:metadata":{"f:labels":{}},"f:spec":{"f:clusterIdentity":{"f:clusterID":{}},"f:authUrl":{},"f:discoveryType":{}}}`)}, IdentityOwners{DiscoveredURL: true}},
		{"taken over, URL left", []metav1.ManagedFieldsEntry{entry(ManagerDiscovery, "", `{"f:spec":{"f:clusterIdentity":{"f:clusterID":{}},"f:authUrl":{}}}`)}, IdentityOwners{DiscoveredURL: true}},
		{"taken over, URL confirmed", []metav1.ManagedFieldsEntry{entry("k", "", `{"f:spec":{"f:authUrl":{}}}`), entry(ManagerDiscovery, "", `{"f:spec":{"f:clusterIdentity":{"f:clusterID":{}},"f:authUrl":{}}}`)}, IdentityOwners{}},
		{"taken over, type left", []metav1.ManagedFieldsEntry{entry(ManagerDiscovery, "", `{"f:spec":{"f:clusterIdentity":{"f:clusterID":{}},"f:discoveryType":{}}}`)}, IdentityOwners{}},
		{"taken over, a label left", []metav1.ManagedFieldsEntry{entry(ManagerDiscovery, "", `{"f:metadata":{"f:labels":{"f:x":{}}},"f:spec":{"f:clusterIdentity":{"f:clusterID":{}}}}`)}, IdentityOwners{}},
		{"damaged", []metav1.ManagedFieldsEntry{entry("k", "", `{"f:spec":{"f:clusterIdentity":3,"f:namespace":{}}}`), entry("k", "", "")}, IdentityOwners{}},
	} {
		fc := &api.ForeignCluster{}
		fc.ManagedFields = tc.managed
		if owners := OwnersOf(fc); owners.Identity != tc.want {
			t.Errorf("%s: %+v", tc.name, owners.Identity)
		}
	}
}

// TestFollow has a person and the agent take a field from each other.
func TestFollow(t *testing.T) {
	agent := Owner{Manager: ManagerIntent, Stamp: "u agent 9"}
	at := func(manager, stamp string) Owner { return Owner{Manager: manager, Stamp: stamp} }
	for _, tc := range []struct {
		name string
		seen []Owner
		want string
	}{
		{"one edit", []Owner{at("k", "10 true")}, "10 true"},
		{"seen twice", []Owner{at("k", "10 true"), at("k", "10 true")}, "10 true"},
		{"a later one", []Owner{at("k", "10 true"), agent, at("k", "11 true")}, "11 true"},
		{"in the same second", []Owner{at("k", "10 true"), agent, at("k", "10 true")}, "10 true+"},
		{"seen twice in the same second", []Owner{at("k", "10 true"), agent, at("k", "10 true"), at("k", "10 true")}, "10 true+"},
		{"three in the same second", []Owner{at("k", "10 true"), agent, at("k", "10 true"), agent, agent, at("k", "10 true")}, "10 true++"},
		{"another value", []Owner{at("k", "10 true"), agent, at("k", "10 false")}, "10 false"},
		{"another person", []Owner{at("k", "10 true"), at("l", "10 true l")}, "10 true l"},
		{"removed", []Owner{at("k", "10 true"), {}}, "10 true removed"},
		{"removed, and seen twice", []Owner{at("k", "10 true"), {}, {}}, "10 true removed"},
		{"removed, and the agent set it", []Owner{at("k", "10 true"), {}, agent}, agent.Stamp},
		{"never set", []Owner{{}, {}}, ""},
		{"given up by the agent", []Owner{agent, {}}, ""},
		{"removed, and set again", []Owner{at("k", "10 true"), {}, at("k", "10 true")}, "10 true+"},
		{"the same, seen twice", []Owner{at("k", "10 true"), {}, at("k", "10 true"), at("k", "10 true")}, "10 true+"},
	} {
		var owner, past Owner
		for i, now := range tc.seen {
			if i == 0 {
				owner = now
				continue
			}
			owner, past = Follow(owner, past, now)
		}
		if owner.Stamp != tc.want {
			t.Errorf("%s: %q, want %q", tc.name, owner.Stamp, tc.want)
		}
	}
}
