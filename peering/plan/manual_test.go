package plan

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"liqo.io/agent/api"
	"liqo.io/agent/peer"
	"liqo.io/agent/peering/discovered"
	"liqo.io/agent/peering/fields"
	"liqo.io/agent/peering/reason"
)

// at returns a probe about which something is known.
func at(found discovered.Result) discovered.Probe {
	return discovered.Probe{Known: true, Result: found}
}

// TestUnidentified holds the rules about an object that does not say which cluster
// it is about.
func TestUnidentified(t *testing.T) {
	join := func(fc *api.ForeignCluster) { fc.Spec.Join = true }
	name := func(fc *api.ForeignCluster) { fc.Spec.ClusterIdentity = &api.ClusterIdentity{ClusterName: "mine"} }
	refused := at(discovered.Result{Reason: reason.Unreachable, Message: "refused"})
	answer := at(discovered.Result{ID: testID, ClusterName: "barn", Namespace: "liqo"})
	for _, tc := range []struct {
		name   string
		fc     *api.ForeignCluster
		owners fields.IdentityOwners
		place  discovered.Probe
		want   string
	}{
		{"asked just now", manual("mine", ""), fields.IdentityOwners{}, discovered.Probe{}, ""},
		{"asked just now, to be joined", changed(manual("mine", ""), join), fields.IdentityOwners{}, discovered.Probe{}, ""},
		{"asked for a while", manual("mine", ""), fields.IdentityOwners{}, discovered.Probe{Overdue: true}, "update-status"},
		{"asked for a while, to be joined", changed(manual("mine", ""), join), fields.IdentityOwners{}, discovered.Probe{Overdue: true}, "update-status update-peering"},
		{"refused", manual("mine", ""), fields.IdentityOwners{}, refused, "update-status"},
		{"refused, to be joined", changed(manual("mine", ""), join), fields.IdentityOwners{}, refused, "update-status update-peering"},
		{"answers", manual("mine", ""), fields.IdentityOwners{}, answer, `identify {ID barn} liqo`},
		{"answers, named by a person", changed(manual("mine", ""), name), fields.IdentityOwners{Name: true}, answer, `identify {ID } liqo`},
		{"answers, placed by a person", manual("mine", ""), fields.IdentityOwners{Namespace: true}, answer, `identify {ID barn} `},
		{"answers nonsense", manual("mine", ""), fields.IdentityOwners{}, at(discovered.Result{ID: testID, ClusterName: "a\nb", Namespace: "Not A Label"}), `identify {ID } `},
		{"answers as this cluster", manual("mine", ""), fields.IdentityOwners{}, at(discovered.Result{ID: "self"}), "update-status"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.fc.ResourceVersion = "7"
			before := tc.fc.DeepCopy()
			var got []string
			plan := PlanUnidentified(tc.fc, fields.Owners{Identity: tc.owners}, tc.place, "self", t0)
			fc := tc.fc.DeepCopy()
			for _, a := range plan {
				if a.UID != tc.fc.UID || a.ResourceVersion != "7" || a.Name != "mine" {
					t.Errorf("%s on %s %s %s", a.Kind, a.Name, a.UID, a.ResourceVersion)
				}
				word := string(a.Kind)
				switch a.Kind {
				case Identify:
					word += " {" + a.Identity.ClusterIdentity.ClusterID + " " + a.Identity.ClusterIdentity.ClusterName + "} " + a.Identity.Namespace
				case UpdateStatus:
					fc.Status.Conditions = append(fc.Status.Conditions, a.Status.Conditions...)
				case UpdatePeering:
					fc.Status.Conditions = append(fc.Status.Conditions, a.Peering.Conditions...)
				}
				got = append(got, strings.ReplaceAll(word, string(testID), "ID"))
			}
			if diff := cmp.Diff(tc.want, strings.Join(got, " ")); diff != "" {
				t.Errorf("plan (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(before, tc.fc); diff != "" {
				t.Errorf("the plan changed what it looked at:\n%s", diff)
			}
			if tc.place.Answers() && len(plan) == 1 && plan[0].Kind == Identify {
				return
			}
			if again := PlanUnidentified(fc, fields.Owners{Identity: tc.owners}, tc.place, "self", t0.Add(time.Hour)); len(again) != 0 {
				t.Errorf("there is another plan: %v", kinds(again))
			}
		})
	}
}

// TestURLOfAKnownCluster holds the rules about an object that says which cluster it
// is about.
func TestURLOfAKnownCluster(t *testing.T) {
	refused := func(message string) discovered.Probe {
		return at(discovered.Result{Reason: reason.Unreachable, Message: message})
	}
	answer := at(discovered.Result{ID: testID})
	fc := manual("mine", testID)
	var now time.Time
	look := func(p *peer.Peer, place discovered.Probe, settled bool) []Action {
		obs := Observed{ID: testID, Peer: p, Settled: settled, Objects: []*api.ForeignCluster{fc}, URLs: map[string]discovered.Probe{"mine": place}}
		now = now.Add(time.Hour)
		plan := Plan(obs, now).Actions
		objects := map[string]*api.ForeignCluster{"mine": fc}
		applyTo(objects, plan, nil)
		fc = objects["mine"]
		if again := Plan(Observed{ID: testID, Peer: p, Settled: settled, Objects: []*api.ForeignCluster{fc}, URLs: obs.URLs}, now).Actions; len(again) != 0 {
			t.Errorf("there is another plan: %v", kinds(again))
		}
		return plan
	}
	now = t0
	step := 0
	shows := func(reachable, url string) {
		t.Helper()
		step++
		for kind, want := range map[string]string{api.ConditionReachable: reachable, api.ConditionAuthURL: url} {
			got := ""
			if c := fc.Condition(kind); c != nil {
				got = string(c.Status) + "/" + c.Reason
			}
			if got != want {
				t.Errorf("step %d: %s is %q, want %q", step, kind, got, want)
			}
		}
	}
	look(nil, discovered.Probe{}, true)
	shows("", "")
	look(nil, discovered.Probe{Overdue: true}, true)
	shows("", "Unknown/NotAskedYet")
	look(nil, refused("a"), false)
	shows("False/Unreachable", "False/Unreachable")
	if plan := look(nil, refused("b"), true); len(plan) != 0 {
		t.Errorf("another wording is written: %v", kinds(plan))
	}
	// A process that starts knows nothing yet.
	if plan := append(look(nil, discovered.Probe{}, true), look(nil, discovered.Probe{Overdue: true}, true)...); len(plan) != 0 {
		t.Errorf("what is known is forgotten: %v", kinds(plan))
	}
	look(nil, answer, true)
	shows("False/Unreachable", "True/Answers") // it is about to be seen
	look(barn(), answer, true)
	shows("True/EndpointAnswers", "True/Answers")
	look(barn(), refused("c"), true)
	shows("True/EndpointAnswers", "False/Unreachable") // it is seen elsewhere
	look(barn(), at(discovered.Result{ID: "other"}), true)
	shows("True/EndpointAnswers", "False/OtherCluster")
	if plan := look(barn(), at(discovered.Result{ID: "third"}), true); len(plan) != 1 || !strings.Contains(fc.Condition(api.ConditionAuthURL).Message, "third") {
		t.Errorf("another stranger is not told: %v", fc.Status.Conditions)
	}
	look(with(barn(), func(p *peer.Peer) { p.Phase = peer.PhaseLost }), refused("d"), true)
	shows("False/Lost", "False/Unreachable")
	before := fc.Condition(api.ConditionAuthURL).LastTransitionTime
	fc = changed(fc, func(fc *api.ForeignCluster) { fc.Spec.AuthURL = "https://elsewhere:1" })
	if plan := look(barn(), discovered.Probe{}, true); len(plan) != 1 || plan[0].Kind != UpdateStatus {
		t.Errorf("%v", kinds(plan))
	}
	shows("True/EndpointAnswers", "False/Unreachable")
	look(barn(), discovered.Probe{Overdue: true}, true)
	shows("True/EndpointAnswers", "Unknown/NotAskedYet")
	look(barn(), refused("e"), true)
	if c := fc.Condition(api.ConditionAuthURL); !strings.HasPrefix(c.Message, "https://elsewhere:1 ") || c.LastTransitionTime.Equal(&before) {
		t.Errorf("%+v", c)
	}
	fc = changed(fc, func(fc *api.ForeignCluster) { fc.Spec.AuthURL = "https://else.where:1" })
	if look(barn(), refused("e"), true); !strings.HasPrefix(fc.Condition(api.ConditionAuthURL).Message, "https://else.where:1 ") {
		t.Error("the old URL is shown")
	}
	fc = changed(fc, func(fc *api.ForeignCluster) { fc.Spec.AuthURL = "" })
	look(barn(), discovered.Probe{}, true)
	shows("True/EndpointAnswers", "")
}

// TestFollowsTheName: a person's object that the agent completed follows the
// cluster's name, but where somebody else set it.
func TestFollowsTheName(t *testing.T) {
	mine := changed(manual("mine", testID), func(fc *api.ForeignCluster) {
		fc.Spec.ClusterIdentity.ClusterName, fc.Spec.Namespace, fc.ResourceVersion = "old", "old", "7"
	})
	for _, tc := range []struct {
		name   string
		owners fields.IdentityOwners
		peer   *peer.Peer
		want   string
	}{
		{"completed", fields.IdentityOwners{Filled: true}, barn(), "barn liqo"},
		{"completed, named by a person", fields.IdentityOwners{Filled: true, Name: true}, barn(), " liqo"},
		{"completed, all else by a person", fields.IdentityOwners{Filled: true, Name: true, Namespace: true}, barn(), "none"},
		{"not completed", fields.IdentityOwners{}, barn(), "none"},
		{"nothing is said", fields.IdentityOwners{Filled: true}, with(barn(), func(p *peer.Peer) { p.Name, p.Namespace = "", "" }), "none"},
		{"away", fields.IdentityOwners{Filled: true}, with(barn(), func(p *peer.Peer) { p.Phase = peer.PhaseUnreachable }), "none"},
	} {
		obs := Observed{ID: testID, Peer: tc.peer, Objects: []*api.ForeignCluster{mine}, Owners: map[string]fields.Owners{"mine": {Identity: tc.owners}}}
		got := "none"
		for _, a := range Plan(obs, t0).Actions {
			if a.Kind == Identify {
				got = a.Identity.ClusterIdentity.ClusterName + " " + a.Identity.Namespace
				if a.ResourceVersion != "7" || a.Identity.ClusterIdentity.ClusterID != string(testID) {
					t.Errorf("%s: %+v", tc.name, a)
				}
			}
		}
		if got != tc.want {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
	}
}
