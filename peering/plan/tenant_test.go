package plan

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/agent/api"
	"liqo.io/agent/endpoint/wire"
	"liqo.io/agent/peering/reason"
)

// TestTenancy says of everything that can become of a consumer whether it may run
// pods here, and what is shown and done about its offer.
func TestTenancy(t *testing.T) {
	const admitted, ended, asItIs = "admitted", "ended", "as it is"
	off := func(obs *Observed) { obs.NotSharing = true }
	lostRequest := both(ask, func(obs *Observed) { obs.Objects[0].Status.Incoming = api.IncomingPeering{} })
	obs := bothWays(t)
	for _, tc := range []struct {
		name    string
		change  seen
		want    string
		reason  string // of the condition
		offered string // what happens with the offer
	}{
		{"served", func(*Observed) {}, admitted, reason.Joined, "there"},
		{"served, away", unreachable, admitted, reason.ConsumerAway, "there"},
		{"served, nothing heard since the start", silent, admitted, reason.Joined, "there"},
		{"served, its API server down", down, admitted, reason.ConsumerDown, "there"},
		{"served, denied", denied(wire.ReasonNotTrusted), admitted, reason.AwaitingConsumer, "there"},
		{"other key seen", otherOne, admitted, reason.ConsumerAway, "there"},
		{"not welcome", theirs(func(s *wire.State) { s.AdvertisementWelcome = false }), admitted, reason.Joined, ""},
		{"our API server unknown", func(obs *Observed) { obs.RequestsKnown = false }, asItIs, "", ""},
		{"request missing", lostRequest, asItIs, reason.RequestMissing, ""},
		{"request going", func(obs *Observed) { obs.Request.DeletionTimestamp = &metav1.Time{} }, asItIs, reason.RequestMissing, ""},
		{"request missing, not shared", both(lostRequest, off), ended, reason.RequestMissing, "gone"},
		{"request missing, blocked", both(lostRequest, blocked), ended, reason.Blocked, "gone"},
		{"request going, blocked", both(blocked, func(obs *Observed) { obs.Request.DeletionTimestamp = &metav1.Time{} }), ended, reason.RequestMissing, ""},
		{"lost", lost, ended, reason.Lost, ""},
		{"withdrawn", theirs(func(s *wire.State) { s.Consumes = false }), ended, reason.Withdrawn, "gone"},
		{"withdrawn before", both(ask, deleted(DeletedByPeer), func(obs *Observed) { obs.Policy.LastServed = false }), ended, reason.Withdrawn, "gone"},
		{"deleted by a person, who is noted first", both(ask, deleted(DeletedByPerson)), ended, reason.Ended, ""},
		{"blocked", blocked, ended, reason.Blocked, "gone"},
		{"not trusted", unpinned, ended, reason.AwaitingDecision, ""},
		{"distrusted", distrusted, ended, reason.AwaitingDecision, ""},
		{"refused", accepts(api.RequestRefused), ended, reason.Refused, "gone"},
		{"waiting", accepts(api.RequestPending), ended, reason.AwaitingDecision, "gone"},
		{"disconnected here", both(accepts(api.RequestPending), func(obs *Observed) { obs.Policy.Ended = "Enough." }), ended, reason.Ended, "gone"},
		{"not shared", off, ended, reason.NotSharing, "gone"},
		{"not shared, nothing heard since the start", both(off, silent), ended, reason.NotSharing, "gone"},
		{"not shared, taken back", both(off, theirs(func(s *wire.State) { s.Advertisement = nil })), ended, reason.NotSharing, ""},
		{"nothing known about it", func(obs *Observed) { *obs = Observed{ID: obs.ID, RequestsKnown: true, Settled: true} }, ended, "", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			obs := obs.change(tc.change)
			if obs.Request != nil {
				obs.Request = obs.Request.DeepCopy()
				obs.Request.Spec.ClusterIdentity.ClusterName = "named"
				obs.Request.Spec.Resources.CPU = "2"
			}
			d := Plan(obs, obs.Remote.At.Add(time.Millisecond))
			got := asItIs
			if d.Tenant != nil {
				got = ended
				if d.Tenant.Admitted {
					got = admitted
				}
				if d.Tenant.ID != obs.ID || (d.Tenant.Asked.CPU == "2") != d.Tenant.Admitted || (d.Tenant.Offer != nil) != d.Tenant.Admitted {
					t.Errorf("%+v", d.Tenant)
				}
			}
			offered := ""
			switch {
			case d.Remote.Advertisement != nil:
				offered = "there"
			case d.Remote.AdvertisementGone:
				offered = "gone"
			}
			in := obs.View().Incoming
			if !obs.RequestsKnown {
				in.Reason = ""
			}
			if got != tc.want || offered != tc.offered || in.Reason != tc.reason {
				t.Errorf("it is %s, the offer is to be %q, %s: %s", got, offered, in.Reason, in.Message)
			}
			// Something is left as long as the end is not through.
			obs.Hosting = true
			left := strings.HasSuffix(obs.View().Incoming.Message, removalNote)
			over := got == ended && in.Reason != reason.AwaitingDecision && in.Reason != reason.Refused && in.Reason != reason.RequestMissing
			if left != over {
				t.Errorf("with something left: %s", obs.View().Incoming.Message)
			}
		})
	}
}

// TestLeftoversEnd: that namespaces are being removed is not said for ever, to
// nobody else, and is no reason to keep anything.
func TestLeftoversEnd(t *testing.T) {
	w := peered(t)
	b := w.b
	b.book.Ended, b.book.Accept = "alice had enough.", api.RequestPending
	mustRest(t, w)
	obs := b.observe()
	obs.Hosting = true
	d := Plan(obs, w.now)
	if len(d.Actions) != 1 || d.Actions[0].Kind != UpdatePeering || d.Remote.Reason != "" && strings.HasSuffix(d.Remote.Reason, removalNote) {
		t.Fatalf("%+v", d)
	}
	b.apply(d.Actions[0])
	obs = b.observe()
	obs.Hosting = true
	if d := Plan(obs, w.now); len(d.Actions) != 0 {
		t.Errorf("it is shown again: %v", kinds(d.Actions))
	}
	obs.Hosting = false
	d = Plan(obs, w.now)
	if len(d.Actions) != 1 {
		t.Fatalf("%v", kinds(d.Actions))
	}
	b.apply(d.Actions[0])
	if obs := b.observe(); strings.Contains(obs.View().Incoming.Message, removalNote) || len(Plan(obs, w.now).Actions) != 0 {
		t.Errorf("%s", obs.View().Incoming.Message)
	}
}
