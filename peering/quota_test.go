package peering

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"liqo.io/agent/api"
	"liqo.io/agent/peer"
	"liqo.io/agent/peering/reason"
)

// TestRation: the oldest come first, and a place that is taken counts.
func TestRation(t *testing.T) {
	const yes = api.AdvertisementAccepted
	person := func(adv *api.Advertisement) *api.Advertisement {
		adv.ManagedFields = []metav1.ManagedFieldsEntry{{
			Manager: "k", Subresource: "status", FieldsV1: metav1.NewFieldsV1(`{"f:status":{"f:advertisementStatus":{}}}`),
		}}
		return adv
	}
	bad := offerOf(1, "")
	bad.Spec.ResourceQuota.Hard = map[string]string{"cpu": "x"}
	ended := offerOf(1, api.AdvertisementRefused)
	ended.Status.Reason = reason.Expired
	for _, tc := range []struct {
		name  string
		all   []*api.Advertisement
		taken int // 0: none
		most  int
		want  bool
	}{
		{"alone", []*api.Advertisement{offerOf(5, "")}, 0, 1, true},
		{"none is allowed", []*api.Advertisement{offerOf(5, "")}, 0, 0, false},
		{"accepted already", []*api.Advertisement{offerOf(5, yes), offerOf(1, yes), offerOf(2, yes)}, 0, 1, true},
		{"another is accepted", []*api.Advertisement{offerOf(5, ""), offerOf(9, yes)}, 0, 1, false},
		{"an older one waits", []*api.Advertisement{offerOf(5, ""), offerOf(1, "")}, 0, 1, false},
		{"an older one waits, and there is room for both", []*api.Advertisement{offerOf(5, ""), offerOf(1, "")}, 0, 2, true},
		{"an older one is refused by a person", []*api.Advertisement{offerOf(5, ""), person(offerOf(1, api.AdvertisementRefused))}, 0, 1, true},
		{"an older one is accepted by a person", []*api.Advertisement{offerOf(5, ""), person(offerOf(1, yes))}, 0, 1, false},
		{"an older one is no good", []*api.Advertisement{offerOf(5, ""), bad}, 0, 1, true},
		{"an older one ended", []*api.Advertisement{offerOf(5, ""), ended}, 0, 1, true},
		{"a newer one waits", []*api.Advertisement{offerOf(5, ""), offerOf(9, "")}, 0, 1, true},
		{"a newer one is being accepted", []*api.Advertisement{offerOf(5, ""), offerOf(9, "")}, 9, 1, false},
		{"one that is gone was being accepted", []*api.Advertisement{offerOf(5, "")}, 9, 1, true},
		{"it is being accepted itself", []*api.Advertisement{offerOf(5, ""), offerOf(1, yes)}, 5, 1, true},
	} {
		r := newAcceptQuota()
		if tc.taken != 0 {
			r.taken[peer.ClusterID(offerOf(tc.taken, "").Name)] = types.UID(fmt.Sprint(tc.taken))
		}
		if got := r.fits(tc.all, "cluster-005", tc.most); got != tc.want {
			t.Errorf("%s: %v", tc.name, got)
		}
	}
	r := newAcceptQuota()
	all := []*api.Advertisement{offerOf(5, ""), offerOf(9, "")}
	if !r.reserve(all, "cluster-005", "5", 1) || r.reserve(all, "cluster-009", "9", 1) {
		t.Error("the place is not taken")
	}
	if r.release("cluster-005"); r.reserve(all, "cluster-009", "9", 1) || !r.reserve(all, "cluster-005", "5", 1) {
		t.Error("the older one goes first, still")
	}
}

// TestRationHolds lets many workers accept at the same time, in any order, with a
// store that lags behind: never are more accepted than may be.
func TestRationHolds(t *testing.T) {
	const most, offers = 3, 40
	r := newAcceptQuota()
	var mu sync.Mutex
	stored := make([]*api.Advertisement, 0, offers)
	for n := range offers {
		stored = append(stored, offerOf(n, ""))
	}
	read := func() []*api.Advertisement {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(stored)
	}
	accepted := 0
	var workers sync.WaitGroup
	for range 8 {
		workers.Go(func() {
			for range 20 {
				for _, n := range rand.Perm(offers) {
					adv := offerOf(n, "")
					if !r.reserve(read(), peer.ClusterID(adv.Name), adv.UID, most) {
						continue
					}
					mu.Lock()
					if stored[n].Status.AdvertisementStatus == "" {
						stored[n] = offerOf(n, api.AdvertisementAccepted)
						if accepted++; accepted > most {
							t.Error("too many are accepted")
						}
					}
					mu.Unlock()
				}
			}
		})
	}
	workers.Wait()
	for n, adv := range stored {
		if (adv.Status.AdvertisementStatus == api.AdvertisementAccepted) != (n < most) {
			t.Errorf("offer %d: %q", n, adv.Status.AdvertisementStatus)
		}
	}
}
