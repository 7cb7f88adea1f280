package peering

import (
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"liqo.io/agent/api"
	"liqo.io/agent/peer"
	"liqo.io/agent/peering/plan"
)

// acceptQuota keeps the number of offers that are accepted by policy at the maximum,
// although clusters are reconciled at the same time. Its methods are safe for
// concurrent use.
type acceptQuota struct {
	mu sync.Mutex
	// taken are the offers that are being accepted: the API server has been asked to
	// write so, and the store does not say so yet.
	taken map[peer.ClusterID]types.UID
}

func newAcceptQuota() *acceptQuota { return &acceptQuota{taken: make(map[peer.ClusterID]types.UID)} }

// fits reports whether an offer may be accepted: fewer than most are, or are about
// to be, and those that waited for longer come first. all are the offers that there
// are.
func (r *acceptQuota) fits(all []*api.Advertisement, id peer.ClusterID, most int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.fitsLocked(all, id, most)
}

// reserve is fits, and takes the place if there is one, until the store says that the
// offer is accepted or give is called.
func (r *acceptQuota) reserve(all []*api.Advertisement, id peer.ClusterID, uid types.UID, most int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.fitsLocked(all, id, most) {
		return false
	}
	r.taken[id] = uid
	return true
}

// release gives back the place of an offer that is not accepted after all.
func (r *acceptQuota) release(id peer.ClusterID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.taken, id)
}

// fitsLocked is fits with mu held.
func (r *acceptQuota) fitsLocked(all []*api.Advertisement, id peer.ClusterID, most int) bool {
	var own *api.Advertisement
	used := 0
	for _, adv := range all {
		switch {
		case peer.ClusterID(adv.Name) == id:
			own = adv
		case adv.Status.AdvertisementStatus == api.AdvertisementAccepted:
			used++
		}
	}
	for about, uid := range r.taken {
		at := slices.IndexFunc(all, func(adv *api.Advertisement) bool { return peer.ClusterID(adv.Name) == about })
		switch {
		case at < 0 || all[at].UID != uid || all[at].Status.AdvertisementStatus == api.AdvertisementAccepted || plan.DecisionOf(all[at]).Manager != "":
			delete(r.taken, about)
		case about != id:
			used++
		}
	}
	if own == nil {
		return used < most // it is on its way out
	}
	if own.Status.AdvertisementStatus == api.AdvertisementAccepted || r.taken[id] == own.UID {
		return true
	}
	for _, adv := range all {
		if used >= most {
			return false
		}
		if _, taken := r.taken[peer.ClusterID(adv.Name)]; !taken && plan.OlderOffer(adv, own) < 0 && plan.Waits(adv) {
			used++
		}
	}
	return used < most
}
