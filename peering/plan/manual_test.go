package plan

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/agent/api"
	"liqo.io/agent/peer"
)

const barnURL = "https://barn.example:6447"

// at returns a probe about which something is known.
func at(found ProbeResult) URLProbe { return URLProbe{Known: true, Result: found} }

func TestAuthURL(t *testing.T) {
	named := manual("mine", testID)
	unnamed := manual("mine", "")
	for _, tc := range []struct {
		name   string
		fc     *api.ForeignCluster
		place  URLProbe
		status api.ConditionStatus // "" for none
		reason string
		text   string
	}{
		{"asked just now", unnamed, URLProbe{}, "", "", ""},
		{"asked for a while", unnamed, URLProbe{Overdue: true}, api.ConditionUnknown, ReasonNotAskedYet, "is being asked"},
		{"answers", unnamed, at(ProbeResult{ID: testID}), api.ConditionTrue, ReasonAnswering, "leads to the cluster"},
		{"answers as expected", named, at(ProbeResult{ID: testID}), api.ConditionTrue, ReasonAnswering, ""},
		{"names no cluster", unnamed, at(ProbeResult{}), api.ConditionFalse, ReasonNotACluster, "names no cluster ID"},
		{"names a bad cluster", unnamed, at(ProbeResult{ID: "../x"}), api.ConditionFalse, ReasonNotACluster, ""},
		{"this cluster", unnamed, at(ProbeResult{ID: "self"}), api.ConditionFalse, ReasonThisCluster, "this very cluster"},
		{"said to be this cluster", unnamed, at(ProbeResult{Reason: ReasonThisCluster}), api.ConditionFalse, ReasonThisCluster, "Set authUrl"},
		{"another cluster", named, at(ProbeResult{ID: "other"}), api.ConditionFalse, ReasonOtherCluster, "leads to cluster other, and this ForeignCluster is about " + string(testID)},
		{"said to be another cluster", named, at(ProbeResult{Reason: ReasonOtherCluster, ID: "other"}), api.ConditionFalse, ReasonOtherCluster, "create another one"},
		{"said to be some other cluster", named, at(ProbeResult{Reason: ReasonOtherCluster, Message: "not the one"}), api.ConditionFalse, ReasonOtherCluster, "not the one. Correct authUrl"},
		{"unreachable", unnamed, at(ProbeResult{Reason: ReasonUnreachable, Message: "connection\nrefused."}), api.ConditionFalse, ReasonUnreachable, "does not answer: connection refused. It is asked again"},
		{"unreachable without a word", unnamed, at(ProbeResult{Reason: ReasonUnreachable}), api.ConditionFalse, ReasonUnreachable, "does not answer. It is asked again"},
		{"not a cluster", unnamed, at(ProbeResult{Reason: ReasonNotACluster, Message: "404"}), api.ConditionFalse, ReasonNotACluster, "404. Check its address"},
		{"another key", named, at(ProbeResult{Reason: ReasonAnotherKey}), api.ConditionFalse, ReasonAnotherKey, "peers trust " + string(testID)},
		{"whatever", named, at(ProbeResult{Reason: "Tuesday", Message: "closed"}), api.ConditionFalse, "Tuesday", "cannot be used: closed."},
	} {
		t.Run(tc.name, func(t *testing.T) {
			place := tc.place.checked(tc.fc, "self")
			c, known := place.urlCondition(tc.fc)
			if !known {
				if tc.status != "" {
					t.Fatal("nothing is to be shown")
				}
				return
			}
			if c.Type != api.ConditionAuthURL || c.Status != tc.status || c.Reason != tc.reason || !strings.Contains(c.Message, tc.text) ||
				!strings.HasPrefix(c.Message, barnURL+" ") || !strings.HasSuffix(c.Message, ".") || strings.ContainsAny(c.Message, "\n") {
				t.Errorf("shows %+v", c)
			}
			if place.answers() != (c.Status == api.ConditionTrue) || place.fails() != (c.Status == api.ConditionFalse) {
				t.Errorf("answers %v, fails %v", place.answers(), place.fails())
			}
		})
	}
}

func TestProbesURL(t *testing.T) {
	deleted := func(fc *api.ForeignCluster) { fc.DeletionTimestamp = &metav1.Time{} }
	held := func(fc *api.ForeignCluster) { fc.Finalizers = []string{api.FinalizerPeering} }
	for name, tc := range map[string]struct {
		fc         *api.ForeignCluster
		discovered bool
		want       bool
	}{
		"a person's":                 {manual("mine", ""), false, true},
		"a person's with an ID":      {manual("mine", testID), false, true},
		"without a URL":              {changed(manual("mine", testID), func(fc *api.ForeignCluster) { fc.Spec.AuthURL = "" }), false, false},
		"the agent's":                {made(barn()), true, false},
		"taken over":                 {changed(made(barn()), func(fc *api.ForeignCluster) { delete(fc.Labels, api.LabelManagedBy) }), true, false},
		"taken over, URL confirmed":  {changed(made(barn()), func(fc *api.ForeignCluster) { delete(fc.Labels, api.LabelManagedBy) }), false, true},
		"on its way out":             {changed(manual("mine", ""), deleted), false, false},
		"on its way out, peered yet": {changed(changed(manual("mine", testID), deleted), held), false, true},
	} {
		if got := ProbesURL(tc.fc, IdentityOwners{DiscoveredURL: tc.discovered}); got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestUnidentified holds the rules about an object that does not say which cluster
// it is about.
func TestUnidentified(t *testing.T) {
	join := func(fc *api.ForeignCluster) { fc.Spec.Join = true }
	name := func(fc *api.ForeignCluster) { fc.Spec.ClusterIdentity = &api.ClusterIdentity{ClusterName: "mine"} }
	refused := at(ProbeResult{Reason: ReasonUnreachable, Message: "refused"})
	answer := at(ProbeResult{ID: testID, ClusterName: "barn", Namespace: "liqo"})
	for _, tc := range []struct {
		name   string
		fc     *api.ForeignCluster
		owners IdentityOwners
		place  URLProbe
		want   string
	}{
		{"asked just now", manual("mine", ""), IdentityOwners{}, URLProbe{}, ""},
		{"asked just now, to be joined", changed(manual("mine", ""), join), IdentityOwners{}, URLProbe{}, ""},
		{"asked for a while", manual("mine", ""), IdentityOwners{}, URLProbe{Overdue: true}, "update-status"},
		{"asked for a while, to be joined", changed(manual("mine", ""), join), IdentityOwners{}, URLProbe{Overdue: true}, "update-status update-peering"},
		{"refused", manual("mine", ""), IdentityOwners{}, refused, "update-status"},
		{"refused, to be joined", changed(manual("mine", ""), join), IdentityOwners{}, refused, "update-status update-peering"},
		{"answers", manual("mine", ""), IdentityOwners{}, answer, `identify {ID barn} liqo`},
		{"answers, named by a person", changed(manual("mine", ""), name), IdentityOwners{Name: true}, answer, `identify {ID } liqo`},
		{"answers, placed by a person", manual("mine", ""), IdentityOwners{Namespace: true}, answer, `identify {ID barn} `},
		{"answers nonsense", manual("mine", ""), IdentityOwners{}, at(ProbeResult{ID: testID, ClusterName: "a\nb", Namespace: "Not A Label"}), `identify {ID } `},
		{"answers as this cluster", manual("mine", ""), IdentityOwners{}, at(ProbeResult{ID: "self"}), "update-status"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.fc.ResourceVersion = "7"
			before := tc.fc.DeepCopy()
			var got []string
			plan := PlanUnidentified(tc.fc, Owners{Identity: tc.owners}, tc.place, "self", t0)
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
			if tc.place.answers() && len(plan) == 1 && plan[0].Kind == Identify {
				return
			}
			if again := PlanUnidentified(fc, Owners{Identity: tc.owners}, tc.place, "self", t0.Add(time.Hour)); len(again) != 0 {
				t.Errorf("there is another plan: %v", kinds(again))
			}
		})
	}
}

// TestURLOfAKnownCluster holds the rules about an object that says which cluster it
// is about.
func TestURLOfAKnownCluster(t *testing.T) {
	refused := func(message string) URLProbe { return at(ProbeResult{Reason: ReasonUnreachable, Message: message}) }
	answer := at(ProbeResult{ID: testID})
	fc := manual("mine", testID)
	var now time.Time
	look := func(p *peer.Peer, place URLProbe, settled bool) []Action {
		obs := Observed{ID: testID, Peer: p, Settled: settled, Objects: []*api.ForeignCluster{fc}, URLs: map[string]URLProbe{"mine": place}}
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
	look(nil, URLProbe{}, true)
	shows("", "")
	look(nil, URLProbe{Overdue: true}, true)
	shows("", "Unknown/NotAskedYet")
	look(nil, refused("a"), false)
	shows("False/Unreachable", "False/Unreachable")
	if plan := look(nil, refused("b"), true); len(plan) != 0 {
		t.Errorf("another wording is written: %v", kinds(plan))
	}
	// A process that starts knows nothing yet.
	if plan := append(look(nil, URLProbe{}, true), look(nil, URLProbe{Overdue: true}, true)...); len(plan) != 0 {
		t.Errorf("what is known is forgotten: %v", kinds(plan))
	}
	look(nil, answer, true)
	shows("False/Unreachable", "True/Answers") // it is about to be seen
	look(barn(), answer, true)
	shows("True/EndpointAnswers", "True/Answers")
	look(barn(), refused("c"), true)
	shows("True/EndpointAnswers", "False/Unreachable") // it is seen elsewhere
	look(barn(), at(ProbeResult{ID: "other"}), true)
	shows("True/EndpointAnswers", "False/OtherCluster")
	if plan := look(barn(), at(ProbeResult{ID: "third"}), true); len(plan) != 1 || !strings.Contains(fc.Condition(api.ConditionAuthURL).Message, "third") {
		t.Errorf("another stranger is not told: %v", fc.Status.Conditions)
	}
	look(with(barn(), func(p *peer.Peer) { p.Phase = peer.PhaseLost }), refused("d"), true)
	shows("False/Lost", "False/Unreachable")
	before := fc.Condition(api.ConditionAuthURL).LastTransitionTime
	fc = changed(fc, func(fc *api.ForeignCluster) { fc.Spec.AuthURL = "https://elsewhere:1" })
	if plan := look(barn(), URLProbe{}, true); len(plan) != 1 || plan[0].Kind != UpdateStatus {
		t.Errorf("%v", kinds(plan))
	}
	shows("True/EndpointAnswers", "False/Unreachable")
	look(barn(), URLProbe{Overdue: true}, true)
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
	look(barn(), URLProbe{}, true)
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
		owners IdentityOwners
		peer   *peer.Peer
		want   string
	}{
		{"completed", IdentityOwners{Filled: true}, barn(), "barn liqo"},
		{"completed, named by a person", IdentityOwners{Filled: true, Name: true}, barn(), " liqo"},
		{"completed, all else by a person", IdentityOwners{Filled: true, Name: true, Namespace: true}, barn(), "none"},
		{"not completed", IdentityOwners{}, barn(), "none"},
		{"nothing is said", IdentityOwners{Filled: true}, with(barn(), func(p *peer.Peer) { p.Name, p.Namespace = "", "" }), "none"},
		{"away", IdentityOwners{Filled: true}, with(barn(), func(p *peer.Peer) { p.Phase = peer.PhaseUnreachable }), "none"},
	} {
		obs := Observed{ID: testID, Peer: tc.peer, Objects: []*api.ForeignCluster{mine}, Owners: map[string]Owners{"mine": {Identity: tc.owners}}}
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
