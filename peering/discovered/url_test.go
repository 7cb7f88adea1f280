package discovered

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/agent/api"
	"liqo.io/agent/peer"
	"liqo.io/agent/peering/fields"
	"liqo.io/agent/peering/reason"
)

const testID peer.ClusterID = "0558de48-097b-4b7d-ba04-6bd2a0f9d24f"

const barnURL = "https://barn.example:6447"

// manual returns an object as a person writes it: with a URL, and with an ID unless it is "".
func manual(id peer.ClusterID, changes ...func(*api.ForeignCluster)) *api.ForeignCluster {
	fc := &api.ForeignCluster{ObjectMeta: metav1.ObjectMeta{Name: "mine"}}
	fc.Spec.AuthURL = barnURL
	if id != "" {
		fc.Spec.ClusterIdentity = &api.ClusterIdentity{ClusterID: string(id)}
	}
	for _, change := range changes {
		change(fc)
	}
	return fc
}

// at returns a probe about which something is known.
func at(found Result) Probe { return Probe{Known: true, Result: found} }

func TestAuthURL(t *testing.T) {
	named := manual(testID)
	unnamed := manual("")
	for _, tc := range []struct {
		name   string
		fc     *api.ForeignCluster
		place  Probe
		status api.ConditionStatus // "" for none
		reason string
		text   string
	}{
		{"asked just now", unnamed, Probe{}, "", "", ""},
		{"asked for a while", unnamed, Probe{Overdue: true}, api.ConditionUnknown, reason.NotAskedYet, "is being asked"},
		{"answers", unnamed, at(Result{ID: testID}), api.ConditionTrue, reason.Answering, "leads to the cluster"},
		{"answers as expected", named, at(Result{ID: testID}), api.ConditionTrue, reason.Answering, ""},
		{"names no cluster", unnamed, at(Result{}), api.ConditionFalse, reason.NotACluster, "names no cluster ID"},
		{"names a bad cluster", unnamed, at(Result{ID: "../x"}), api.ConditionFalse, reason.NotACluster, ""},
		{"this cluster", unnamed, at(Result{ID: "self"}), api.ConditionFalse, reason.ThisCluster, "this very cluster"},
		{"said to be this cluster", unnamed, at(Result{Reason: reason.ThisCluster}), api.ConditionFalse, reason.ThisCluster, "Set authUrl"},
		{"another cluster", named, at(Result{ID: "other"}), api.ConditionFalse, reason.OtherCluster, "leads to cluster other, and this ForeignCluster is about " + string(testID)},
		{"said to be another cluster", named, at(Result{Reason: reason.OtherCluster, ID: "other"}), api.ConditionFalse, reason.OtherCluster, "create another one"},
		{"said to be some other cluster", named, at(Result{Reason: reason.OtherCluster, Message: "not the one"}), api.ConditionFalse, reason.OtherCluster, "not the one. Correct authUrl"},
		{"unreachable", unnamed, at(Result{Reason: reason.Unreachable, Message: "connection\nrefused."}), api.ConditionFalse, reason.Unreachable, "does not answer: connection refused. It is asked again"},
		{"unreachable without a word", unnamed, at(Result{Reason: reason.Unreachable}), api.ConditionFalse, reason.Unreachable, "does not answer. It is asked again"},
		{"not a cluster", unnamed, at(Result{Reason: reason.NotACluster, Message: "404"}), api.ConditionFalse, reason.NotACluster, "404. Check its address"},
		{"another key", named, at(Result{Reason: reason.AnotherKey}), api.ConditionFalse, reason.AnotherKey, "peers trust " + string(testID)},
		{"whatever", named, at(Result{Reason: "Tuesday", Message: "closed"}), api.ConditionFalse, "Tuesday", "cannot be used: closed."},
	} {
		t.Run(tc.name, func(t *testing.T) {
			place := tc.place.Checked(tc.fc, "self")
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
			if place.Answers() != (c.Status == api.ConditionTrue) || place.fails() != (c.Status == api.ConditionFalse) {
				t.Errorf("answers %v, fails %v", place.Answers(), place.fails())
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
		"a person's":                 {manual(""), false, true},
		"a person's with an ID":      {manual(testID), false, true},
		"without a URL":              {manual(testID, func(fc *api.ForeignCluster) { fc.Spec.AuthURL = "" }), false, false},
		"the agent's":                {manual(testID, func(fc *api.ForeignCluster) { fc.Labels = api.AgentLabels(api.DiscoveryLAN) }), true, false},
		"taken over":                 {manual(testID), true, false},
		"taken over, URL confirmed":  {manual(testID), false, true},
		"on its way out":             {manual("", deleted), false, false},
		"on its way out, peered yet": {manual(testID, deleted, held), false, true},
	} {
		if got := ProbesURL(tc.fc, fields.IdentityOwners{DiscoveredURL: tc.discovered}); got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
