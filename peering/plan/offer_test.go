package plan

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/agent/api"
)

func entry(manager, subresource, fields string) metav1.ManagedFieldsEntry {
	return metav1.ManagedFieldsEntry{Manager: manager, Subresource: subresource, FieldsV1: metav1.NewFieldsV1(fields)}
}

const (
	decidedField = `{"f:status":{"f:advertisementStatus":{},"f:reason":{}}}`
	otherField   = `{"f:status":{"f:message":{}}}`
)

// TestDecisionOf: whoever set the decision and is not the agent by itself took it.
func TestDecisionOf(t *testing.T) {
	for name, tc := range map[string]struct {
		status api.AdvertisementStatus
		fields []metav1.ManagedFieldsEntry
		want   OfferDecision
	}{
		"nobody":                       {"", nil, OfferDecision{}},
		"the policy":                   {api.AdvertisementAccepted, []metav1.ManagedFieldsEntry{entry(ManagerAdvertisement, "status", decidedField)}, OfferDecision{}},
		"a person":                     {api.AdvertisementRefused, []metav1.ManagedFieldsEntry{entry("kubectl-edit", "status", decidedField)}, OfferDecision{"kubectl-edit", api.AdvertisementRefused}},
		"a person, of something else":  {api.AdvertisementAccepted, []metav1.ManagedFieldsEntry{entry("kubectl-edit", "status", otherField)}, OfferDecision{}},
		"a person, and the policy too": {api.AdvertisementAccepted, []metav1.ManagedFieldsEntry{entry(ManagerAdvertisement, "status", decidedField), entry("k", "status", decidedField)}, OfferDecision{"k", api.AdvertisementAccepted}},
		"the command line":             {api.AdvertisementAccepted, []metav1.ManagedFieldsEntry{entry(ManagerIntent, "status", decidedField)}, OfferDecision{ManagerIntent, api.AdvertisementAccepted}},
		"both, and kubectl says who":   {api.AdvertisementAccepted, []metav1.ManagedFieldsEntry{entry("k", "status", decidedField), entry(ManagerIntent, "status", decidedField)}, OfferDecision{"k", api.AdvertisementAccepted}},
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
				if TrimAdvertisement(adv); DecisionOf(adv) != tc.want || len(adv.ManagedFields) > 2 {
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
	none, refused := status("", ""), status(api.AdvertisementRefused, ReasonTooMany)
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
		{"new", none, yes, ReasonJoined, "", true, ReasonJoined},
		{"new, no room", both(none, full), no, ReasonTooMany, "sharing.max_accepted is 128", false, ReasonOffered},
		{"no room before, room now", refused, yes, ReasonJoined, "", true, ReasonJoined},
		{"accepted, no room", full, yes, ReasonJoined, "", true, ReasonJoined},
		{"new, by hand", both(none, manual), api.AdvertisementPending, ReasonAwaitingDecision, "liqo-agent adverts accept box", false, ReasonAwaitingDecision},
		{"no room before, by hand", both(refused, manual), api.AdvertisementPending, ReasonAwaitingDecision, "", false, ReasonAwaitingDecision},
		{"accepted, by hand since", manual, yes, ReasonJoined, "", true, ReasonJoined},
		{"accepted by a person", both(person("kubectl", yes), manual), yes, ReasonAcceptedByPerson, "with kubectl.", true, ReasonJoined},
		{"accepted by a person, no room", both(person("kubectl", yes), full), yes, ReasonAcceptedByPerson, "", true, ReasonJoined},
		{"refused by a person", person("kubectl", no), no, ReasonRefusedByPerson, "with kubectl.", false, ReasonOffered},
		{"refused by a person, by hand", both(person("kubectl", no), manual), no, ReasonRefusedByPerson, "", false, ReasonOffered},
		{"accepted by the command line", both(person(ManagerIntent, yes), func(obs *Observed) {
			obs.Advertisement.Status.Reason, obs.Advertisement.Status.Message = ReasonAcceptedByPerson, "Accepted by user alice."
		}), yes, ReasonAcceptedByPerson, "by user alice.", true, ReasonJoined},
		{"taken back by a person", both(person("kubectl", ""), manual), api.AdvertisementPending, ReasonAwaitingDecision, "", false, ReasonAwaitingDecision},
		{"ended, the provider is there", expired, no, ReasonExpired, "did not renew", false, ReasonOffered},
		{"ended, the provider is away", both(expired, unreachable), yes, ReasonJoined, "", true, ReasonAwaitingPeer},
		{"ended, then the provider went away", both(expired, unreachable, status(no, ReasonExpired)), no, ReasonExpired, "", false, ReasonAwaitingPeer},
		{"renewed", status(no, ReasonExpired), yes, ReasonJoined, "", true, ReasonJoined},
		{"ended, accepted by a person", both(person("kubectl", yes), expired), yes, ReasonExpired, "", false, ReasonOffered},
		{"bad", both(none, bad), no, ReasonBadAmount, "memory", false, ReasonOffered},
		{"bad, accepted by a person", both(person("kubectl", yes), bad), yes, ReasonBadAmount, "", false, ReasonOffered},
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
			if tc.verdict == ReasonAwaitingDecision && !strings.Contains(f.outgoing.verdict.message, "cpu 4") {
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
	if w.a.joined() || w.a.node.Name != "" || !w.a.own().Spec.Join || w.b.kube.Request == nil || w.a.kube.Advertisement.Status.Reason != ReasonRefusedByPerson {
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
	if w.a.joined() || w.a.reason(api.ConditionOutgoingPeering) != ReasonAwaitingDecision {
		t.Fatalf("%s", w.a)
	}
}
