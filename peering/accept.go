package peering

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"liqo.io/agent/api"
	"liqo.io/agent/peer"
)

// offerDecision is what a person decided about an Advertisement: whoever set
// status.advertisementStatus and is not the agent by itself. It belongs to that
// Advertisement and ends with it.
type offerDecision struct {
	manager string // field manager; "" when nobody decided
	status  api.AdvertisementStatus
}

// ours reports whether the decision came by the command line, with its words.
func (d offerDecision) ours() bool { return d.manager == ManagerIntent }

// decisionOf returns what a person decided about an Advertisement. One that was
// taken back, by making the field empty, is none.
func decisionOf(adv *api.Advertisement) offerDecision {
	var d offerDecision
	for _, m := range adv.ManagedFields {
		if ownsDecision(m) && (d.manager == "" || d.manager == ManagerIntent) {
			d.manager = m.Manager
		}
	}
	if d.status = knownStatus(adv.Status.AdvertisementStatus); d.manager == "" || d.status == "" {
		return offerDecision{}
	}
	return d
}

// trimAdvertisement keeps of the list of field managers, which is most of the
// object, only the people who decided about it.
func trimAdvertisement(adv *api.Advertisement) {
	var people []metav1.ManagedFieldsEntry
	for _, m := range adv.ManagedFields {
		if ownsDecision(m) {
			people = append(people, metav1.ManagedFieldsEntry{Manager: m.Manager, Subresource: m.Subresource, FieldsV1: decisionField})
		}
	}
	adv.ManagedFields = people
}

// decisionField is the one field of managed fields that matters.
var decisionField = metav1.NewFieldsV1(`{"f:status":{"f:advertisementStatus":{}}}`)

// ownsDecision reports whether the entry is that of a person who set the
// decision. A peer cannot: it reaches the object without its status.
func ownsDecision(m metav1.ManagedFieldsEntry) bool {
	return ownsStatus(m, ManagerAdvertisement, "f:advertisementStatus")
}

// ownsStatus reports whether the entry is that of somebody else than us who set a field
// of the status.
func ownsStatus(m metav1.ManagedFieldsEntry, us, field string) bool {
	if m.Subresource != "status" || m.Manager == us || m.FieldsV1 == nil {
		return false
	}
	var set struct {
		Status map[string]json.RawMessage `json:"f:status"`
	}
	return json.Unmarshal(m.FieldsV1.GetRawBytes(), &set) == nil && set.Status[field] != nil
}

// trimRequest keeps of the list of field managers only the people who set the phase.
func trimRequest(r *api.PeeringRequest) {
	var people []metav1.ManagedFieldsEntry
	for _, m := range r.ManagedFields {
		if ownsStatus(m, ManagerPeeringRequest, "f:phase") {
			people = append(people, metav1.ManagedFieldsEntry{Manager: m.Manager, Subresource: m.Subresource, FieldsV1: phaseField})
		}
	}
	r.ManagedFields = people
}

// phaseField is the one field of a request's managed fields that matters.
var phaseField = metav1.NewFieldsV1(`{"f:status":{"f:phase":{}}}`)

// phaseBy returns who accepted or refused a request by its status, "" for nobody. The
// consumer cannot: it reaches the object without its status.
func phaseBy(r *api.PeeringRequest) string {
	if r.Status.Phase != api.RequestAccepted && r.Status.Phase != api.RequestRefused {
		return ""
	}
	for _, m := range r.ManagedFields {
		if ownsStatus(m, ManagerPeeringRequest, "f:phase") {
			return m.Manager
		}
	}
	return ""
}

// olderOffer orders Advertisements by their age.
func olderOffer(a, b *api.Advertisement) int {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
}

// decideOffer decides about the Advertisement that is there. What a person said
// goes before everything else, and what is accepted stays so unless the provider
// lets it end.
func (f *facts) decideOffer() *api.AdvertisementState {
	adv := f.Advertisement
	state := &api.AdvertisementState{AdvertisementStatus: api.AdvertisementRefused, VnodeReference: f.nodeRef()}
	set := func(status api.AdvertisementStatus, reason, message string) *api.AdvertisementState {
		state.AdvertisementStatus, state.Reason, state.Message = status, reason, message
		return state
	}
	person, was := decisionOf(adv), adv.Status.AdvertisementStatus
	bad := badAmount(adv)
	expired := f.OfferExpired && (f.Reachable() || adv.Status.Reason == ReasonExpired)
	switch {
	case person.manager != "" && person.status == api.AdvertisementRefused:
		return f.bySomebody(set(person.status, ReasonRefusedByPerson, "Refused with "+sentence(person.manager)+"."), person)
	case bad != "":
		return set(refusedUnless(person), ReasonBadAmount, "The offer says no amount of "+bad+".")
	case expired:
		return set(refusedUnless(person), ReasonExpired, "The offer ended, and the provider did not renew it although it answers.")
	case person.manager != "":
		return f.bySomebody(set(person.status, ReasonAcceptedByPerson, "Accepted with "+sentence(person.manager)+"."), person)
	case was == api.AdvertisementAccepted:
		return set(was, ReasonJoined, "The offer is accepted.")
	case f.Sharing.AcceptManually:
		return set(api.AdvertisementPending, ReasonAwaitingDecision, "Somebody has to decide: liqo-agent adverts accept "+f.called()+", or refuse.")
	case !f.OfferFits:
		return set(api.AdvertisementRefused, ReasonTooMany, fmt.Sprintf("sharing.max_accepted is %d, and as many offers are accepted.", f.Sharing.MaxAccepted))
	}
	return set(api.AdvertisementAccepted, ReasonJoined, "The offer is accepted.")
}

// refusedUnless is how an offer that is of no use stands: refused, unless a person
// accepted it, whose word stays.
func refusedUnless(person offerDecision) api.AdvertisementStatus {
	return cmp.Or(person.status, api.AdvertisementRefused)
}

// bySomebody keeps the words of a decision that came by the command line: they name
// who took it.
func (f *facts) bySomebody(state *api.AdvertisementState, d offerDecision) *api.AdvertisementState {
	if shown := f.Advertisement.Status; d.ours() && shown.Reason == state.Reason && shown.Message != "" {
		state.Message = shown.Message
	}
	return state
}

// usable reports whether an offer counts: it is accepted, and can be used.
func usable(state *api.AdvertisementState) bool {
	return state != nil && state.AdvertisementStatus == api.AdvertisementAccepted && state.Reason != ReasonBadAmount && state.Reason != ReasonExpired
}

// badAmount names a resource of which an Advertisement says no amount, "" for
// none.
func badAmount(adv *api.Advertisement) string {
	for _, name := range slices.Sorted(maps.Keys(adv.Spec.ResourceQuota.Hard)) {
		amount := adv.Spec.ResourceQuota.Hard[name]
		if quantity, err := resource.ParseQuantity(amount); len(amount) > 64 || err != nil || quantity.Sign() < 0 {
			return sentence(clipTo(name, 64))
		}
	}
	return ""
}

func clipTo(text string, n int) string { return strings.ToValidUTF8(text[:min(len(text), n)], "") }

// applied is what of an offer's state the agent is to own: not the decision while
// it is a person's.
func (f *facts) appliedOffer(state api.AdvertisementState) *api.AdvertisementState {
	if decisionOf(f.Advertisement).manager != "" {
		state.AdvertisementStatus = ""
	}
	return &state
}

func sameOfferState(a, b api.AdvertisementState) bool {
	return a.AdvertisementStatus == b.AdvertisementStatus && a.Reason == b.Reason && a.Message == b.Message && same(a.VnodeReference, b.VnodeReference)
}

// ration keeps the number of offers that are accepted by policy at the maximum,
// although clusters are reconciled at the same time. Its methods are safe for
// concurrent use.
type ration struct {
	mu sync.Mutex
	// taken are the offers that are being accepted: the API server has been asked to
	// write so, and the store does not say so yet.
	taken map[peer.ClusterID]types.UID
}

func newRation() *ration { return &ration{taken: make(map[peer.ClusterID]types.UID)} }

// fits reports whether an offer may be accepted: fewer than most are, or are about
// to be, and those that waited for longer come first. all are the offers that there
// are.
func (r *ration) fits(all []*api.Advertisement, id peer.ClusterID, most int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.room(all, id, most)
}

// take is fits, and takes the place if there is one, until the store says that the
// offer is accepted or give is called.
func (r *ration) take(all []*api.Advertisement, id peer.ClusterID, uid types.UID, most int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.room(all, id, most) {
		return false
	}
	r.taken[id] = uid
	return true
}

// give gives back the place of an offer that is not accepted after all.
func (r *ration) give(id peer.ClusterID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.taken, id)
}

// room is fits with mu held.
func (r *ration) room(all []*api.Advertisement, id peer.ClusterID, most int) bool {
	there := make(map[peer.ClusterID]*api.Advertisement, len(all))
	used := 0
	for _, adv := range all {
		about := peer.ClusterID(adv.Name)
		there[about] = adv
		if about != id && adv.Status.AdvertisementStatus == api.AdvertisementAccepted {
			used++
		}
	}
	for about, uid := range r.taken {
		switch adv := there[about]; {
		case adv == nil || adv.UID != uid || adv.Status.AdvertisementStatus == api.AdvertisementAccepted || decisionOf(adv).manager != "":
			delete(r.taken, about)
		case about != id:
			used++
		}
	}
	own := there[id]
	if own == nil {
		return used < most // it is on its way out
	}
	if own.Status.AdvertisementStatus == api.AdvertisementAccepted || r.taken[id] == own.UID {
		return true
	}
	for _, adv := range all {
		if _, taken := r.taken[peer.ClusterID(adv.Name)]; !taken && waits(adv) && olderOffer(adv, own) < 0 {
			used++
		}
	}
	return used < most
}

// waits reports whether an offer is to be accepted as soon as there is room for
// it.
func waits(adv *api.Advertisement) bool {
	return adv.DeletionTimestamp == nil && adv.Status.AdvertisementStatus != api.AdvertisementAccepted && adv.Status.Reason != ReasonExpired &&
		decisionOf(adv).manager == "" && badAmount(adv) == ""
}
