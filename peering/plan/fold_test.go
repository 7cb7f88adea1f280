package plan

import (
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/agent/api"
	"liqo.io/agent/peering/discovered"
	"liqo.io/agent/peering/fields"
	"liqo.io/agent/peering/reason"
)

// TestFolding holds the rules about a person's object beside the agent's own, which
// is joined: what is to be wanted then, and what is done with both.
func TestFolding(t *testing.T) {
	base := bothWays(t)
	add := func(change func(fc *api.ForeignCluster, o *fields.Owners)) seen {
		return func(obs *Observed) {
			mine, owners := manual("mine", idB), fields.Owners{}
			mine.Spec.TrustMode = api.TrustTrusted
			change(mine, &owners)
			obs.Objects, obs.Owners["mine"] = append(obs.Objects, mine), owners
		}
	}
	plain := add(func(*api.ForeignCluster, *fields.Owners) {})
	own := func(change func(fc *api.ForeignCluster, o *fields.Owners)) seen {
		return func(obs *Observed) {
			owners := obs.Owners[obs.Objects[0].Name]
			change(obs.Objects[0], &owners)
			obs.Owners[obs.Objects[0].Name] = owners
		}
	}
	undecided := func(obs *Observed) { obs.Policy.Connect = Unset }
	intended := fields.Owner{Manager: fields.ManagerIntent}
	for _, tc := range []struct {
		name   string
		change seen
		wanted bool
		intent string // what ApplyIntent says, in order
		does   string // some of the other actions
		not    string // and what is not done
	}{
		{"wanted", plain, true, "mine=true", "add-finalizer remove-finalizer delete", "delete-advertisement"},
		{"nobody says anything", both(undecided, plain), true, "mine=true", "delete", "delete-advertisement record-joined"},
		{"nobody says anything, its author said no", both(undecided, add(func(_ *api.ForeignCluster, o *fields.Owners) { o.Join = fields.Owner{Manager: "kubectl", Stamp: "old"} }),
			func(obs *Observed) { obs.Policy.JoinStamp = "old" }), false, "own=false", "delete-advertisement", "delete"},
		{"its author says no", add(func(_ *api.ForeignCluster, o *fields.Owners) { o.Join = fields.Owner{Manager: "kubectl", Stamp: "new"} }), false, "own=false", "record-join-edited delete-advertisement", "delete"},
		{"not wanted any more", both(unwished, plain), false, "own=false", "delete-advertisement", "delete add-finalizer"},
		{"the agent's own was edited just now", both(plain, own(func(fc *api.ForeignCluster, o *fields.Owners) {
			fc.Spec.Join, o.Join = false, fields.Owner{Manager: "kubectl", Stamp: "new"}
		})), false, "", "record-join-edited delete-advertisement", "add-finalizer"},
		{"the trust in the agent's own was edited just now", both(plain, own(func(fc *api.ForeignCluster, o *fields.Owners) {
			fc.Spec.TrustMode, o.TrustMode = api.TrustUntrusted, fields.Owner{Manager: "kubectl", Stamp: "new"}
		})), true, "mine=true", "record-trust-edited", ""},
		{"it awaited contact", both(silent, add(func(fc *api.ForeignCluster, o *fields.Owners) {
			fc.Spec.Join, o.Join = true, fields.Owner{Manager: "kubectl", Stamp: "old"}
			fc.Status.Conditions = []api.Condition{{Type: api.ConditionOutgoingPeering, Status: api.ConditionFalse, Reason: reason.AwaitingContact}}
		}), func(obs *Observed) { obs.Policy.JoinStamp = "old" }), true, "", "add-finalizer delete", "record-joined"},
		{"an older one takes over what the agent joined", both(undecided, func(obs *Observed) {
			delete(obs.Objects[0].Labels, api.LabelManagedBy)
			obs.Objects[0].Name, obs.Objects[0].CreationTimestamp = "younger", metav1.Time{Time: t0}
			obs.Owners["younger"] = fields.Owners{Join: intended}
		}, plain), true, "mine=true younger=false", "add-finalizer remove-finalizer", "delete record-joined"},
		{"an older one beside what a person joined", both(func(obs *Observed) {
			delete(obs.Objects[0].Labels, api.LabelManagedBy)
			obs.Objects[0].Name, obs.Objects[0].CreationTimestamp = "younger", metav1.Time{Time: t0}
			obs.Owners["younger"] = fields.Owners{Join: fields.Owner{Manager: "kubectl", Stamp: "old"}}
		}, plain), true, "mine=true", "add-finalizer remove-finalizer", "delete record-joined"},
		{"the agent's own is being deleted", both(plain, own(func(fc *api.ForeignCluster, _ *fields.Owners) { fc.DeletionTimestamp = &metav1.Time{Time: t0} })), false, "own=false", "record-hung-up", "delete"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			obs := base.change(tc.change)
			d := Plan(obs, t0)
			var intents, does []string
			for _, a := range d.Actions {
				does = append(does, string(a.Kind))
				if a.Kind == ApplyIntent && a.Intent.Join != nil {
					name := strings.Replace(a.Name, string(idB), "own", 1)
					intents = append(intents, name+"="+map[bool]string{true: "true", false: "false"}[*a.Intent.Join])
				}
				if a.Kind == Delete && a.Heir != "mine" {
					t.Errorf("the heir is %q", a.Heir)
				}
			}
			if got := strings.Join(intents, " "); got != tc.intent {
				t.Errorf("it is to say %q, want %q", got, tc.intent)
			}
			for _, kind := range strings.Fields(tc.does) {
				if !slices.Contains(does, kind) {
					t.Errorf("does not %s: %v", kind, does)
				}
			}
			for _, kind := range strings.Fields(tc.not) {
				if slices.Contains(does, kind) {
					t.Errorf("does %s: %v", kind, does)
				}
			}
			if tc.does == "record-hung-up" && !d.Replan {
				t.Error("what the decision store makes of it is not shown")
			}
			if got := obs.View().Outgoing.Wanted; got != tc.wanted {
				t.Errorf("wanted: %v", got)
			}
		})
	}
}

// TestUnmet: an object that is to be joined and whose cluster was never seen awaits
// contact, and nobody is told to trust a key that nobody has seen.
func TestUnmet(t *testing.T) {
	mine := changed(manual("mine", testID), func(fc *api.ForeignCluster) { fc.Spec.Join = true })
	obs := Observed{
		ID: testID, Settled: true, RequestsKnown: true, Objects: []*api.ForeignCluster{mine}, Policy: Policy{Connect: Yes},
		URLs: map[string]discovered.Probe{"mine": at(discovered.Result{Reason: reason.Unreachable})},
	}
	if got := obs.View().Outgoing.Reason; got != reason.AwaitingContact {
		t.Errorf("it shows %s", got)
	}
	obs.Peer = barn()
	if got := obs.View().Outgoing.Reason; got != reason.AwaitingTrust {
		t.Errorf("it shows %s", got)
	}
}
