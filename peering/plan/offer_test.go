package plan

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/agent/api"
	"liqo.io/agent/peering/fields"
	"liqo.io/agent/peering/reason"
)

func entry(manager, subresource, fields string) metav1.ManagedFieldsEntry {
	return metav1.ManagedFieldsEntry{Manager: manager, Subresource: subresource, FieldsV1: metav1.NewFieldsV1(fields)}
}

const (
	decidedField = `{"f:status":{"f:advertisementStatus":{},"f:reason":{}}}`
	otherField   = `{"f:status":{"f:message":{}}}`
)

// What a person owns who decided about an offer, or about a request.
var (
	decisionField = metav1.NewFieldsV1(`{"f:status":{"f:advertisementStatus":{}}}`)
	phaseField    = metav1.NewFieldsV1(`{"f:status":{"f:phase":{}}}`)
)

// TestDecisionOf: whoever set the decision and is not the agent by itself took it.
func TestDecisionOf(t *testing.T) {
	for name, tc := range map[string]struct {
		status api.AdvertisementStatus
		fields []metav1.ManagedFieldsEntry
		want   OfferDecision
	}{
		"nobody":                       {"", nil, OfferDecision{}},
		"the policy":                   {api.AdvertisementAccepted, []metav1.ManagedFieldsEntry{entry(fields.ManagerAdvertisement, "status", decidedField)}, OfferDecision{}},
		"a person":                     {api.AdvertisementRefused, []metav1.ManagedFieldsEntry{entry("kubectl-edit", "status", decidedField)}, OfferDecision{"kubectl-edit", api.AdvertisementRefused}},
		"a person, of something else":  {api.AdvertisementAccepted, []metav1.ManagedFieldsEntry{entry("kubectl-edit", "status", otherField)}, OfferDecision{}},
		"a person, and the policy too": {api.AdvertisementAccepted, []metav1.ManagedFieldsEntry{entry(fields.ManagerAdvertisement, "status", decidedField), entry("k", "status", decidedField)}, OfferDecision{"k", api.AdvertisementAccepted}},
		"the command line":             {api.AdvertisementAccepted, []metav1.ManagedFieldsEntry{entry(fields.ManagerIntent, "status", decidedField)}, OfferDecision{fields.ManagerIntent, api.AdvertisementAccepted}},
		"both, and kubectl says who":   {api.AdvertisementAccepted, []metav1.ManagedFieldsEntry{entry("k", "status", decidedField), entry(fields.ManagerIntent, "status", decidedField)}, OfferDecision{"k", api.AdvertisementAccepted}},
		"a person took it back":        {"", []metav1.ManagedFieldsEntry{entry("k", "status", decidedField)}, OfferDecision{}},
		"a person wrote that it waits": {api.AdvertisementPending, []metav1.ManagedFieldsEntry{entry("k", "status", decidedField)}, OfferDecision{}},
		"a person wrote nonsense":      {"Maybe", []metav1.ManagedFieldsEntry{entry("k", "status", decidedField)}, OfferDecision{}},
		"the provider":                 {api.AdvertisementAccepted, []metav1.ManagedFieldsEntry{entry("liqo-agent", "", decidedField)}, OfferDecision{}},
		"broken fields":                {api.AdvertisementAccepted, []metav1.ManagedFieldsEntry{entry("k", "status", `{"f:status":[`), {Manager: "k", Subresource: "status"}}, OfferDecision{}},
	} {
		t.Run(name, func(t *testing.T) {
			adv := &api.Advertisement{Status: api.AdvertisementState{AdvertisementStatus: tc.status}}
			adv.ManagedFields = tc.fields
			if got := DecisionOf(adv); got != tc.want {
				t.Errorf("got %+v, want %+v", got, tc.want)
			}
			for range 2 { // what is trimmed says the same, however often
				if fields.TrimAdvertisement(adv); DecisionOf(adv) != tc.want || len(adv.ManagedFields) > 2 {
					t.Errorf("trimmed: %+v", adv.ManagedFields)
				}
			}
		})
	}
}

// TestDecideOffer holds the rules of acceptance.
func TestDecideOffer(t *testing.T) {
	base := bothWays(t)
	status := func(status api.AdvertisementStatus, reason string) seen {
		return func(obs *Observed) {
			obs.Advertisement.Status = api.AdvertisementState{AdvertisementStatus: status, Reason: reason, Message: "m"}
		}
	}
	person := func(manager string, s api.AdvertisementStatus) seen {
		return both(status(s, ""), func(obs *Observed) {
			obs.Advertisement.ManagedFields = []metav1.ManagedFieldsEntry{entry(manager, "status", decidedField)}
		})
	}
	none, refused := status("", ""), status(api.AdvertisementRefused, reason.TooMany)
	manual := func(obs *Observed) { obs.Sharing.AcceptManually = true }
	full := func(obs *Observed) { obs.OfferFits = false }
	expired := func(obs *Observed) { obs.OfferExpired = true }
	bad := func(obs *Observed) {
		obs.Advertisement.Spec.ResourceQuota.Hard = map[string]string{"cpu": "1", "memory": "lots"}
	}
	const yes, no = api.AdvertisementAccepted, api.AdvertisementRefused
	for _, tc := range []struct {
		name    string
		change  seen
		status  api.AdvertisementStatus
		reason  string
		message string
		joined  bool
		verdict string
	}{
		{"new", none, yes, reason.Joined, "", true, reason.Joined},
		{"new, no room", both(none, full), no, reason.TooMany, "sharing.max_accepted is 128", false, reason.Offered},
		{"no room before, room now", refused, yes, reason.Joined, "", true, reason.Joined},
		{"accepted, no room", full, yes, reason.Joined, "", true, reason.Joined},
		{"new, by hand", both(none, manual), api.AdvertisementPending, reason.AwaitingDecision, "liqo-agent adverts accept box", false, reason.AwaitingDecision},
		{"no room before, by hand", both(refused, manual), api.AdvertisementPending, reason.AwaitingDecision, "", false, reason.AwaitingDecision},
		{"accepted, by hand since", manual, yes, reason.Joined, "", true, reason.Joined},
		{"accepted by a person", both(person("kubectl", yes), manual), yes, reason.AcceptedByPerson, "with kubectl.", true, reason.Joined},
		{"accepted by a person, no room", both(person("kubectl", yes), full), yes, reason.AcceptedByPerson, "", true, reason.Joined},
		{"refused by a person", person("kubectl", no), no, reason.RefusedByPerson, "with kubectl.", false, reason.Offered},
		{"refused by a person, by hand", both(person("kubectl", no), manual), no, reason.RefusedByPerson, "", false, reason.Offered},
		{"accepted by the command line", both(person(fields.ManagerIntent, yes), func(obs *Observed) {
			obs.Advertisement.Status.Reason, obs.Advertisement.Status.Message = reason.AcceptedByPerson, "Accepted by user alice."
		}), yes, reason.AcceptedByPerson, "by user alice.", true, reason.Joined},
		{"taken back by a person", both(person("kubectl", ""), manual), api.AdvertisementPending, reason.AwaitingDecision, "", false, reason.AwaitingDecision},
		{"ended, the provider is there", expired, no, reason.Expired, "did not renew", false, reason.Offered},
		{"ended, the provider is away", both(expired, unreachable), yes, reason.Joined, "", true, reason.AwaitingPeer},
		{"ended, then the provider went away", both(expired, unreachable, status(no, reason.Expired)), no, reason.Expired, "", false, reason.AwaitingPeer},
		{"renewed", status(no, reason.Expired), yes, reason.Joined, "", true, reason.Joined},
		{"ended, accepted by a person", both(person("kubectl", yes), expired), yes, reason.Expired, "", false, reason.Offered},
		{"bad", both(none, bad), no, reason.BadAmount, "memory", false, reason.Offered},
		{"bad, accepted by a person", both(person("kubectl", yes), bad), yes, reason.BadAmount, "", false, reason.Offered},
	} {
		t.Run(tc.name, func(t *testing.T) {
			obs := base.change(tc.change)
			f := derive(obs, t0)
			got := f.outgoing.offer
			if got.AdvertisementStatus != tc.status || got.Reason != tc.reason || !strings.Contains(got.Message, tc.message) {
				t.Errorf("got %+v", got)
			}
			if f.outgoing.joined != tc.joined || f.outgoing.verdict.reason != tc.verdict {
				t.Errorf("joined %v, %s: %s", f.outgoing.joined, f.outgoing.verdict.reason, f.outgoing.verdict.message)
			}
			if tc.verdict == reason.AwaitingDecision && !strings.Contains(f.outgoing.verdict.message, "cpu 4") {
				t.Errorf("it is not said what is offered: %s", f.outgoing.verdict.message)
			}
			// What a person decided is never written over, not even with the same.
			for _, a := range Plan(obs, t0).Actions {
				if a.Kind == SetAdvertisementStatus && DecisionOf(obs.Advertisement).Manager != "" && a.Advertisement.AdvertisementStatus != "" {
					t.Errorf("it takes the decision: %+v", a.Advertisement)
				}
				if a.Kind == SetAdvertisementStatus && (a.ResourceVersion != obs.Advertisement.ResourceVersion || a.UID != obs.Advertisement.UID) {
					t.Errorf("it writes over what it does not know: %+v", a)
				}
			}
		})
	}
}

// TestDecisionsAreFollowed: a person goes before the policy, and a policy that
// changes undoes nothing.
func TestDecisionsAreFollowed(t *testing.T) {
	w := peered(t)
	w.a.decideOffer(api.AdvertisementRefused)
	mustRest(t, w)
	if w.a.joined() || w.a.node.Name != "" || !w.a.own().Spec.Join || w.b.kube.Request == nil || w.a.kube.Advertisement.Status.Reason != reason.RefusedByPerson {
		t.Fatalf("%s\n%s", w.a, w.b)
	}
	w.a.restart()
	w.a.sharing.AcceptManually = true
	mustRest(t, w)
	w.a.sharing.AcceptManually = false
	mustRest(t, w)
	if w.a.joined() {
		t.Fatalf("%s", w.a)
	}
	w.a.decideOffer(api.AdvertisementAccepted)
	mustRest(t, w)
	if !w.a.joined() || !w.a.node.Ready {
		t.Fatalf("%s", w.a)
	}
	w.a.decideOffer("") // as it is set to null
	w.a.sharing.AcceptManually = true
	mustRest(t, w)
	if w.a.joined() || w.a.reason(api.ConditionOutgoingPeering) != reason.AwaitingDecision {
		t.Fatalf("%s", w.a)
	}
}
