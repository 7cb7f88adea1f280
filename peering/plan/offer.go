package plan

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/agent/api"
	"liqo.io/agent/peer/text"
)

// OfferDecision is what a person decided about an Advertisement: whoever set
// status.advertisementStatus and is not the agent by itself. It belongs to that
// Advertisement and ends with it.
type OfferDecision struct {
	Manager string // field manager; "" when nobody decided
	Status  api.AdvertisementStatus
}

// ours reports whether the decision came by the command line, with its words.
func (d OfferDecision) ours() bool { return d.Manager == ManagerIntent }

// DecisionOf returns what a person decided about an Advertisement. One that was
// taken back, by making the field empty, is none.
func DecisionOf(adv *api.Advertisement) OfferDecision {
	var d OfferDecision
	for _, m := range adv.ManagedFields {
		if ownsDecision(m) && (d.Manager == "" || d.Manager == ManagerIntent) {
			d.Manager = m.Manager
		}
	}
	if d.Status = knownStatus(adv.Status.AdvertisementStatus); d.Manager == "" || d.Status == "" {
		return OfferDecision{}
	}
	return d
}

// TrimAdvertisement keeps of the list of field managers, which is most of the
// object, only the people who decided about it.
func TrimAdvertisement(adv *api.Advertisement) {
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

// TrimRequest keeps of the list of field managers only the people who set the phase.
func TrimRequest(r *api.PeeringRequest) {
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

// OlderOffer orders Advertisements by their age.
func OlderOffer(a, b *api.Advertisement) int {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
}

// decideOffer decides about the Advertisement that is there. What a person said
// goes before everything else, and what is accepted stays so unless the provider
// lets it end.
func (d *derived) decideOffer() *api.AdvertisementState {
	adv := d.Advertisement
	state := &api.AdvertisementState{AdvertisementStatus: api.AdvertisementRefused, VnodeReference: d.nodeRef()}
	set := func(status api.AdvertisementStatus, reason, message string) *api.AdvertisementState {
		state.AdvertisementStatus, state.Reason, state.Message = status, reason, message
		return state
	}
	person, was := DecisionOf(adv), adv.Status.AdvertisementStatus
	bad := badAmount(adv)
	expired := d.OfferExpired && (d.Reachable() || adv.Status.Reason == ReasonExpired)
	switch {
	case person.Manager != "" && person.Status == api.AdvertisementRefused:
		return d.bySomebody(set(person.Status, ReasonRefusedByPerson, "Refused with "+text.Sentence(person.Manager)+"."), person)
	case bad != "":
		return set(refusedUnless(person), ReasonBadAmount, "The offer has no valid amount of "+bad+".")
	case expired:
		return set(refusedUnless(person), ReasonExpired, "The offer has expired: the provider answers, but did not renew it.")
	case person.Manager != "":
		return d.bySomebody(set(person.Status, ReasonAcceptedByPerson, "Accepted with "+text.Sentence(person.Manager)+"."), person)
	case was == api.AdvertisementAccepted:
		return set(was, ReasonJoined, "The offer is accepted.")
	case d.Sharing.AcceptManually:
		return set(api.AdvertisementPending, ReasonAwaitingDecision, "Somebody has to decide: liqo-agent adverts accept "+d.commandName()+", or refuse.")
	case !d.OfferFits:
		return set(api.AdvertisementRefused, ReasonTooMany, fmt.Sprintf("sharing.max_accepted is %d, and as many offers are accepted.", d.Sharing.MaxAccepted))
	}
	return set(api.AdvertisementAccepted, ReasonJoined, "The offer is accepted.")
}

// refusedUnless is the status of an offer that is of no use: refused, unless a person
// accepted it, whose word stays.
func refusedUnless(person OfferDecision) api.AdvertisementStatus {
	return cmp.Or(person.Status, api.AdvertisementRefused)
}

// bySomebody keeps the words of a decision that came by the command line: they name
// who took it.
func (d *derived) bySomebody(state *api.AdvertisementState, decision OfferDecision) *api.AdvertisementState {
	if shown := d.Advertisement.Status; decision.ours() && shown.Reason == state.Reason && shown.Message != "" {
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
			return text.Line(name, 64)
		}
	}
	return ""
}

// applied is what of an offer's state the agent is to own: not the decision while
// it is a person's.
func (d *derived) appliedOffer(state api.AdvertisementState) *api.AdvertisementState {
	if DecisionOf(d.Advertisement).Manager != "" {
		state.AdvertisementStatus = ""
	}
	return &state
}

func sameOfferState(a, b api.AdvertisementState) bool {
	return a.AdvertisementStatus == b.AdvertisementStatus && a.Reason == b.Reason && a.Message == b.Message && same(a.VnodeReference, b.VnodeReference)
}

// Waits reports whether an offer is to be accepted as soon as there is room for
// it.
func Waits(adv *api.Advertisement) bool {
	return adv.DeletionTimestamp == nil && adv.Status.AdvertisementStatus != api.AdvertisementAccepted && adv.Status.Reason != ReasonExpired &&
		DecisionOf(adv).Manager == "" && badAmount(adv) == ""
}
