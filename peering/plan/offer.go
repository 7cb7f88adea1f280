package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"liqo.io/agent/api"
	"liqo.io/agent/peer/text"
	"liqo.io/agent/peering/fields"
	"liqo.io/agent/peering/reason"
)

// OfferDecision is a person's decision about an Advertisement: the person set
// status.advertisementStatus. It ends with that Advertisement.
type OfferDecision struct {
	Manager string // field manager; "" when nobody decided
	Status  api.AdvertisementStatus
}

// ours reports whether the decision came from the command line, with a message.
func (d OfferDecision) ours() bool { return d.Manager == fields.ManagerIntent }

// DecisionOf returns a person's decision about an Advertisement. Emptying the field takes it
// back.
func DecisionOf(adv *api.Advertisement) OfferDecision {
	d := OfferDecision{Manager: fields.DecidedBy(adv), Status: knownStatus(adv.Status.AdvertisementStatus)}
	if d.Manager == "" || d.Status == "" {
		return OfferDecision{}
	}
	return d
}

// OlderOffer orders Advertisements by their age.
func OlderOffer(a, b *api.Advertisement) int {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
}

// decideOffer decides about the existing Advertisement. A person's decision comes first. An
// accepted offer stays accepted unless the provider lets it expire.
func (d *derived) decideOffer() *api.AdvertisementState {
	adv := d.Advertisement
	state := &api.AdvertisementState{AdvertisementStatus: api.AdvertisementRefused, VnodeReference: d.nodeRef()}
	set := func(status api.AdvertisementStatus, reason, message string) *api.AdvertisementState {
		state.AdvertisementStatus, state.Reason, state.Message = status, reason, message
		return state
	}
	person, was := DecisionOf(adv), adv.Status.AdvertisementStatus
	bad := badAmount(adv)
	expired := d.OfferExpired && (d.Reachable() || adv.Status.Reason == reason.Expired)
	switch {
	case person.Manager != "" && person.Status == api.AdvertisementRefused:
		return d.bySomebody(set(person.Status, reason.RefusedByPerson, "Refused with "+text.Sentence(person.Manager)+"."), person)
	case bad != "":
		return set(refusedUnless(person), reason.BadAmount, "The offer has no valid amount of "+bad+".")
	case expired:
		return set(refusedUnless(person), reason.Expired, "The offer has expired: the provider answers, but did not renew it.")
	case person.Manager != "":
		return d.bySomebody(set(person.Status, reason.AcceptedByPerson, "Accepted with "+text.Sentence(person.Manager)+"."), person)
	case was == api.AdvertisementAccepted:
		return set(was, reason.Joined, "The offer is accepted.")
	case d.Sharing.AcceptManually:
		return set(api.AdvertisementPending, reason.AwaitingDecision, "Somebody has to decide: liqo-agent adverts accept "+d.commandName()+", or refuse.")
	case !d.OfferFits:
		return set(api.AdvertisementRefused, reason.TooMany, fmt.Sprintf("sharing.max_accepted is %d, and as many offers are accepted.", d.Sharing.MaxAccepted))
	}
	return set(api.AdvertisementAccepted, reason.Joined, "The offer is accepted.")
}

// refusedUnless returns the status of an unusable offer: refused, unless a person accepted it.
func refusedUnless(person OfferDecision) api.AdvertisementStatus {
	return cmp.Or(person.Status, api.AdvertisementRefused)
}

// bySomebody keeps the message of a decision of the command line, which names the person.
func (d *derived) bySomebody(state *api.AdvertisementState, decision OfferDecision) *api.AdvertisementState {
	if shown := d.Advertisement.Status; decision.ours() && shown.Reason == state.Reason && shown.Message != "" {
		state.Message = shown.Message
	}
	return state
}

// usable reports whether an offer is accepted and usable.
func usable(state *api.AdvertisementState) bool {
	return state != nil && state.AdvertisementStatus == api.AdvertisementAccepted && state.Reason != reason.BadAmount && state.Reason != reason.Expired
}

// badAmount returns the name of a resource with an invalid amount, the first of them, ""
// for none.
func badAmount(adv *api.Advertisement) string {
	var bad []string
	for name, amount := range adv.Spec.ResourceQuota.Hard {
		if quantity, err := resource.ParseQuantity(amount); len(amount) > 64 || err != nil || quantity.Sign() < 0 {
			bad = append(bad, name)
		}
	}
	if len(bad) == 0 {
		return ""
	}
	return text.Line(slices.Min(bad), 64)
}

// appliedOffer returns the part of an offer's state that the agent applies: without the decision
// if it is a person's.
func (d *derived) appliedOffer(state api.AdvertisementState) *api.AdvertisementState {
	if DecisionOf(d.Advertisement).Manager != "" {
		state.AdvertisementStatus = ""
	}
	return &state
}

func sameOfferState(a, b api.AdvertisementState) bool {
	return a.AdvertisementStatus == b.AdvertisementStatus && a.Reason == b.Reason && a.Message == b.Message && same(a.VnodeReference, b.VnodeReference)
}

// Waits reports whether an offer is accepted as soon as sharing.max_accepted allows it.
func Waits(adv *api.Advertisement) bool {
	return adv.DeletionTimestamp == nil && adv.Status.AdvertisementStatus != api.AdvertisementAccepted && adv.Status.Reason != reason.Expired &&
		DecisionOf(adv).Manager == "" && badAmount(adv) == ""
}
