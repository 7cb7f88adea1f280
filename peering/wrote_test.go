package peering

import (
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"liqo.io/agent/api"
	"liqo.io/agent/internal/kubetest"
	"liqo.io/agent/peer"
	"liqo.io/agent/peering/discovered"
	"liqo.io/agent/peering/fields"
	"liqo.io/agent/peering/foreign"
	"liqo.io/agent/peering/plan"
	"liqo.io/agent/peering/reason"
)

// TestEditBehindOwnWrite: what somebody changes at the moment in which the agent
// writes to the same object comes back with the answer to that write. When the watch
// tells of it, it is no news to the store any more, and has to be acted upon all the
// same.
func TestEditBehindOwnWrite(t *testing.T) {
	at := metav1.NewTime(t0)
	for _, tc := range []struct {
		name string
		edit func(fc *foreign.Cluster)
		want string // what the decision store is told
	}{
		{"joined", func(fc *foreign.Cluster) {
			fc.Spec.Join = true
			fc.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl", Operation: "Update", Time: &at, FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:join":{}}}`)}}
		}, "join true kubectl"},
		{"deleted", func(fc *foreign.Cluster) { fc.DeletionTimestamp = &at }, "hung up"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			decisions := &diary{policy: plan.Policy{Pin: &peer.Pin{ID: testID, Fingerprint: barn().Fingerprint}}}
			before := versioned(made(barn()), 10)
			before.Finalizers = []string{api.FinalizerPeering}
			before.Spec.Join = tc.name == "deleted"
			kept := *before // what the API server has
			history := []*foreign.Cluster{}
			change := func(f func(*foreign.Cluster)) {
				next := foreign.Cluster{ForeignCluster: *kept.DeepCopy()}
				f(&next)
				next.ResourceVersion = strconv.Itoa(11 + len(history))
				kept, history = next, append(history, &next)
			}
			_, s, _ := connected(t, decisions, func(r *http.Request, body string) (int, string) {
				if !strings.HasPrefix(r.URL.Path, foreign.Kind().Object(string(testID))) {
					return http.StatusOK, strings.Replace(body, `"metadata":{`, `"metadata":{"uid":"1","resourceVersion":"1",`, 1) // as it was applied
				}
				if len(history) == 0 {
					change(tc.edit)
				}
				change(func(fc *foreign.Cluster) {
					if err := json.Unmarshal([]byte(body), fc); err != nil {
						t.Error(err)
					}
				})
				answer, err := json.Marshal(&kept)
				if err != nil {
					t.Error(err)
				}
				return http.StatusOK, string(answer)
			})
			if err := kubetest.Tell(s.foreign).Replace("10", before); err != nil {
				t.Fatal(err)
			}
			// look empties the queue until the decision store hears of the edit.
			look := func() (told []string) {
				for len(told) == 0 && len(s.queue.Ready()) > 0 {
					id := s.queue.Ready()[0]
					s.queue.Drop(id)
					s.process(t.Context(), id)
					told = slices.DeleteFunc(decisions.take(), func(text string) bool { return !strings.HasPrefix(text, tc.want) })
				}
				return told
			}
			told := look()
			if len(history) < 2 {
				t.Fatal("nothing was written")
			}
			for _, fc := range history {
				if err := kubetest.Tell(s.foreign).Update(fc.DeepCopyObject().(*foreign.Cluster)); err != nil {
					t.Fatal(err)
				}
			}
			if told = append(told, look()...); len(told) == 0 {
				t.Errorf("nobody notices %q", tc.want)
			}
		})
	}
}

// TestRoomByCommand: an offer that a person refuses on the command line gives up its
// place at once, and the next one that waits for it is looked at.
func TestRoomByCommand(t *testing.T) {
	c, s, _ := connected(t, &diary{}, func(_ *http.Request, body string) (int, string) {
		return http.StatusOK, strings.Replace(body, `"metadata":{`, `"metadata":{"resourceVersion":"9",`, 1) // as it was applied
	})
	offer := func(id peer.ClusterID, status api.AdvertisementStatus, reason string) *api.Advertisement {
		adv := &api.Advertisement{Status: api.AdvertisementState{AdvertisementStatus: status, Reason: reason}}
		adv.Name, adv.UID, adv.ResourceVersion = string(id), types.UID(id), "1"
		return adv
	}
	accepted, waiting := offer(testID, api.AdvertisementAccepted, reason.Joined), offer(idB, api.AdvertisementRefused, reason.TooMany)
	if err := kubetest.Tell(s.offers).Replace("1", accepted, waiting); err != nil {
		t.Fatal(err)
	}
	queued(s)
	if err := c.DecideOffer(t.Context(), testID, false, "alice"); err != nil {
		t.Fatal(err)
	}
	if _, ids := queued(s); !slices.Equal(ids, []peer.ClusterID{testID, idB}) {
		t.Errorf("queued are %q", ids)
	}
}

// TestNobodyIsOverruled: what somebody sets between the look at an object and a write
// to it is seen before spec.join is set to anything else.
func TestNobodyIsOverruled(t *testing.T) {
	no, at := false, metav1.NewTime(t0)
	before := versioned(made(barn()), 10)
	intent := plan.Plan(plan.Observed{
		ID: testID, Peer: barn(), Settled: true, RequestsKnown: true, Objects: []*api.ForeignCluster{changed(&before.ForeignCluster, func(fc *api.ForeignCluster) { fc.Spec.Join = true })},
		Owners: map[string]fields.Owners{string(testID): {Join: fields.Owner{Manager: fields.ManagerIntent}}}, Policy: plan.Policy{Connect: plan.No},
	}, t0).Actions
	i := slices.IndexFunc(intent, func(a plan.Action) bool { return a.Kind == plan.ApplyIntent })
	if i < 0 || intent[i].ResourceVersion != "10" || *intent[i].Intent.Join != no {
		t.Fatalf("planned is %+v", intent)
	}
	_, s, fake := connected(t, &diary{}, func(*http.Request, string) (int, string) {
		fc := versioned(&before.ForeignCluster, 12)
		fc.Spec.Join = true
		fc.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl", Operation: "Update", Time: &at, FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:join":{}}}`)}}
		answer, err := json.Marshal(fc)
		if err != nil {
			t.Error(err)
		}
		return http.StatusOK, string(answer)
	})
	if err := kubetest.Tell(s.foreign).Replace("10", before); err != nil {
		t.Fatal(err)
	}
	err := s.act(t.Context(), testID, []plan.Action{{Kind: plan.UpdateStatus, Name: before.Name, UID: before.UID, Status: &discovered.Status{}}, intent[i]})
	if sent := fake.Take(); !apierrors.IsConflict(err) || len(sent) != 1 {
		t.Errorf("error %v, sent %q", err, sent)
	}
}

// TestNobodyEdited: the answer to a write is no edit because the watch was faster.
// What the store concludes from an earlier state, as that somebody gave a field up,
// is not in the answer.
func TestNobodyEdited(t *testing.T) {
	at := metav1.NewTime(t0)
	after := versioned(made(barn()), 12)
	answer, err := json.Marshal(after)
	if err != nil {
		t.Fatal(err)
	}
	var s *session
	_, s, _ = connected(t, &diary{}, func(*http.Request, string) (int, string) {
		if err := kubetest.Tell(s.foreign).Update(after); err != nil {
			t.Error(err)
		}
		return http.StatusOK, string(answer)
	})
	set := versioned(made(barn()), 10)
	set.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl", Operation: "Update", Time: &at, FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:join":{}}}`)}}
	if err := kubetest.Tell(s.foreign).Replace("10", set); err != nil {
		t.Fatal(err)
	}
	if err := kubetest.Tell(s.foreign).Update(versioned(made(barn()), 11)); err != nil {
		t.Fatal(err)
	}
	if by := s.foreign.Get(set.Name).Owners.Join; !strings.HasSuffix(by.Stamp, " removed") {
		t.Fatalf("the store says %+v", by)
	}
	if err := s.act(t.Context(), testID, []plan.Action{{Kind: plan.UpdateStatus, Name: set.Name, UID: set.UID, Status: &discovered.Status{}}}); err != nil {
		t.Error(err)
	}
}
