package plan

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/agent/api"
	"liqo.io/agent/peering/fields"
)

// A forgotten peer whose ForeignCluster somebody deletes, and something else holds: there is nothing to do but to wait for
// that, and not to plan again and again at once.
func TestForgottenAndHeld(t *testing.T) {
	for name, created := range map[string]bool{"the agent's": true, "a person's": false} {
		fc := &api.ForeignCluster{}
		fc.Name, fc.UID, fc.ResourceVersion = string(testID), "u", "1"
		fc.Finalizers = []string{"somebody.example/else"}
		fc.DeletionTimestamp = &metav1.Time{Time: t0}
		fc.Spec.ClusterIdentity = &api.ClusterIdentity{ClusterID: string(testID)}
		fc.Spec.Join, fc.Spec.TrustMode = true, api.TrustUnknown
		if created {
			fc.Labels = api.AgentLabels(api.DiscoveryLAN)
		}
		join := fields.Owner{Manager: "kubectl-patch", Stamp: "u kubectl-patch 1 true"}
		obs := Observed{ID: testID, Peer: barn(), Settled: true, RequestsKnown: true, NodeKnown: true, LostAfter: time.Minute,
			Objects: []*api.ForeignCluster{fc}, Owners: map[string]fields.Owners{fc.Name: {Join: join}},
			Policy: Policy{Forgotten: true, Connect: No, JoinStamp: join.Stamp}}
		obs.Self.Identity.ClusterID = "self"
		if d := Plan(obs, t0); d.Replan && len(d.Actions) == 0 {
			t.Errorf("%s: it is planned again at once, and nothing was done", name)
		}
	}
}
