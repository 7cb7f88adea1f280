package plan

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"liqo.io/agent/api"
	"liqo.io/agent/endpoint/wire"
	"liqo.io/agent/peer"
	"liqo.io/agent/peering/fields"
	"liqo.io/agent/peering/reason"
)

// seen is what a table changes about the observation of a peering: of box A,
// which is joined to B and serves it.
type seen = func(obs *Observed)

// bothWays returns what A observes while it is peered with B in both directions,
// and makes no node of it.
func bothWays(t *testing.T) Observed {
	t.Helper()
	w := peered(t)
	w.a.sharing.Use = false
	w.b.book.connect()
	mustRest(t, w)
	obs := w.a.observe()
	if plan := Plan(obs, w.now); len(plan.Actions) != 0 || !w.a.joined() || !w.a.serves() {
		t.Fatalf("not at rest: %v", kinds(plan.Actions))
	}
	return obs
}

// change returns a copy of obs with changes. Objects that are changed are copied
// before.
func (obs Observed) change(changes ...seen) Observed {
	for i, fc := range obs.Objects {
		obs.Objects = slices.Clone(obs.Objects)
		obs.Objects[i] = fc.DeepCopy()
	}
	if obs.Request != nil {
		obs.Request = obs.Request.DeepCopy()
	}
	if obs.Advertisement != nil {
		obs.Advertisement = obs.Advertisement.DeepCopy()
	}
	if p := obs.Peer; p != nil {
		clone := p.Clone()
		obs.Peer = &clone
	}
	if s := obs.Remote.State; s != nil {
		state := *s
		obs.Remote.State = &state
		if s.Request != nil {
			request := *s.Request
			state.Request = &request
		}
		if s.Advertisement != nil {
			offer := *s.Advertisement
			state.Advertisement = &offer
		}
	}
	owners := map[string]fields.Owners{}
	for name, o := range obs.Owners {
		owners[name] = o
	}
	obs.Owners = owners
	for _, change := range changes {
		change(&obs)
	}
	return obs
}

// both puts changes together.
func both(changes ...seen) seen {
	return func(obs *Observed) {
		for _, change := range changes {
			change(obs)
		}
	}
}

// The changes that the tables are made of.
var (
	unreachable = func(obs *Observed) { obs.Peer.Phase, obs.Away = peer.PhaseUnreachable, time.Minute }
	lost        = func(obs *Observed) { obs.Peer.Phase, obs.Away = peer.PhaseLost, modelLostAfter }
	unpinned    = func(obs *Observed) { obs.Policy.Pin = nil }
	distrusted  = func(obs *Observed) { obs.Policy.Distrusted = true }
	blocked     = func(obs *Observed) { obs.Policy.Blocked, obs.Policy.Connect = true, No }
	unwished    = func(obs *Observed) { obs.Policy.Connect, obs.Policy.ConnectReason = No, "alice said so" }
	fresh       = func(obs *Observed) {
		obs.Objects[0].Status.Outgoing, obs.Objects[0].Status.Conditions = api.OutgoingPeering{}, nil
		obs.Advertisement = nil
	}
	silent    = func(obs *Observed) { obs.Remote = RemoteStatus{CA: obs.Remote.CA} }
	theirs    = func(change func(s *wire.State)) seen { return func(obs *Observed) { change(obs.Remote.State) } }
	down      = theirs(func(s *wire.State) { *s = wire.State{} })
	noRequest = theirs(func(s *wire.State) { s.Request = nil })
	phase     = func(p api.RequestPhase, message string) seen {
		return theirs(func(s *wire.State) { s.Request.Phase, s.Request.Message = p, message })
	}
	answered = func(auth api.AuthStatus, message string) seen {
		return func(obs *Observed) { obs.Remote.Asked = &wire.Answer{Auth: auth, Message: message} }
	}
	denied   = func(reason string) seen { return func(obs *Observed) { obs.Remote.Denied = reason } }
	noOffer  = func(obs *Observed) { obs.Advertisement = nil }
	ask      = func(obs *Observed) { obs.Request = nil }
	deleted  = func(d Deleter) seen { return func(obs *Observed) { obs.RequestDeleted = d } }
	accepts  = func(p api.RequestPhase) seen { return func(obs *Observed) { obs.Policy.Accept.Phase = p } }
	otherOne = func(obs *Observed) { obs.Peer.Fingerprint, obs.Away = otherKey, time.Second }
	// ended: the certificate of the fleet by which we trust the peer has; endedThere: the
	// one by which it trusts us.
	ended = func(obs *Observed) {
		pin := *obs.Policy.Pin
		pin.Method, pin.NotAfter, pin.Suspended = peer.TrustFleet, t0.Add(-time.Hour), t0
		obs.Policy.Pin, obs.Away = &pin, time.Minute
	}
	endedThere = both(denied(wire.ReasonCertificateEnded), func(obs *Observed) { obs.Away = time.Minute })
	forTooLong = func(obs *Observed) { obs.Away = modelLostAfter }
	// rotated: who watches the peer has not seen yet that its key was replaced.
	rotated = func(obs *Observed) {
		pin := *obs.Policy.Pin
		obs.Policy.Former = []peer.Fingerprint{pin.Fingerprint}
		pin.Fingerprint = otherKey
		obs.Policy.Pin = &pin
	}
)

// verdictOf returns a condition as the plan would show it; nil when it shows none
// or deletes the object.
func verdictOf(obs Observed, condition string, now time.Time) *api.Condition {
	d := Plan(obs, now)
	for _, a := range d.Actions {
		if a.Kind == UpdatePeering {
			for i := range a.Peering.Conditions {
				if a.Peering.Conditions[i].Type == condition {
					return &a.Peering.Conditions[i]
				}
			}
			return nil
		}
	}
	for _, fc := range obs.Objects {
		return fc.Condition(condition)
	}
	return nil
}

func TestConditions(t *testing.T) {
	obs := bothWays(t)
	method := func(m peer.TrustMethod) seen {
		return func(obs *Observed) { pin := *obs.Policy.Pin; pin.Method = m; obs.Policy.Pin = &pin }
	}
	for _, tc := range []struct {
		name      string
		change    seen
		condition string
		status    api.ConditionStatus
		reason    string
		text      string
	}{
		{"pinned by a person", method(peer.TrustPerson), api.ConditionTrusted, api.ConditionTrue, reason.PersonDecided, "by user alice since 2027-01-15 08:00 UTC"},
		{"pinned by an invite", method(peer.TrustInvite), api.ConditionTrusted, api.ConditionTrue, reason.Invited, ""},
		{"pinned by the fleet CA", method(peer.TrustFleet), api.ConditionTrusted, api.ConditionTrue, reason.FleetCertified, ""},
		{"pinned by the configuration", method(peer.TrustStatic), api.ConditionTrusted, api.ConditionTrue, reason.Configured, ""},
		{"pinned by the system roots", method(peer.TrustRoots), api.ConditionTrusted, api.ConditionTrue, reason.SystemRoots, ""},
		{"pinned by an open policy", method(peer.TrustOpen), api.ConditionTrusted, api.ConditionTrue, reason.OpenPolicy, ""},
		{"not pinned", unpinned, api.ConditionTrusted, api.ConditionFalse, reason.NotDecided, "aaaaa-bbbbb"},
		{"distrusted", distrusted, api.ConditionTrusted, api.ConditionFalse, reason.Distrusted, "peers trust"},
		{"another key at the endpoint", otherOne, api.ConditionTrusted, api.ConditionFalse, reason.AnotherKey, otherKey.String()},
		{"another key instead of it", both(unreachable, func(obs *Observed) { obs.Peer.Conflict = &peer.Conflict{Fingerprint: otherKey} }), api.ConditionTrusted, api.ConditionFalse, reason.AnotherKey, otherKey.String()},
		{"the key that it had before", rotated, api.ConditionTrusted, api.ConditionTrue, reason.PersonDecided, ""},
		{"the key that it had before, instead of it", both(rotated, unreachable, func(obs *Observed) {
			obs.Peer.Conflict = &peer.Conflict{Fingerprint: obs.Policy.Former[0]}
		}), api.ConditionTrusted, api.ConditionTrue, reason.PersonDecided, ""},
		{"joined, and the key that it had before", rotated, api.ConditionOutgoingPeering, api.ConditionTrue, reason.Joined, ""},
		{"its certificate has ended", ended, api.ConditionTrusted, api.ConditionFalse, reason.CertificateEnded, "expired on 2027-01-15 07:00 UTC"},
		{"our certificate has ended", endedThere, api.ConditionTrusted, api.ConditionTrue, reason.PersonDecided, ""},
		{"joined, its certificate has ended", ended, api.ConditionOutgoingPeering, api.ConditionTrue, reason.CertificateEnded, "peers trust"},
		{"joined, our certificate has ended", endedThere, api.ConditionOutgoingPeering, api.ConditionTrue, reason.CertificateEnded, "fleet sign"},
		{"serving, its certificate has ended", ended, api.ConditionIncomingPeering, api.ConditionTrue, reason.CertificateEnded, "kept for 15m0s"},
		{"serving, our certificate has ended", endedThere, api.ConditionIncomingPeering, api.ConditionTrue, reason.CertificateEnded, "reload the configuration."},
		{"to be joined, its certificate has ended", both(fresh, silent, ended), api.ConditionOutgoingPeering, api.ConditionFalse, reason.CertificateEnded, "peers trust"},
		{"its certificate has ended for too long", both(ended, forTooLong), api.ConditionOutgoingPeering, api.ConditionFalse, reason.Lost, "suspended for longer than 15m0s"},
		{"our certificate had ended, away", both(endedThere, unreachable), api.ConditionOutgoingPeering, api.ConditionTrue, reason.AwaitingPeer, "does not answer"},
		{"our certificate has ended for too long", both(endedThere, forTooLong), api.ConditionIncomingPeering, api.ConditionFalse, reason.Lost, "suspended for longer than 15m0s"},
		{"another key beside it", func(obs *Observed) { obs.Peer.Conflict = &peer.Conflict{Fingerprint: otherKey} }, api.ConditionTrusted, api.ConditionTrue, reason.PersonDecided, ""},

		{"joined", func(*Observed) {}, api.ConditionOutgoingPeering, api.ConditionTrue, reason.Joined, "accepted"},
		{"joined, away", unreachable, api.ConditionOutgoingPeering, api.ConditionTrue, reason.AwaitingPeer, "15m0s"},
		{"joined, other key seen", otherOne, api.ConditionOutgoingPeering, api.ConditionTrue, reason.AwaitingPeer, ""},
		{"joined, its API server down", down, api.ConditionOutgoingPeering, api.ConditionTrue, reason.ProviderDown, "API server"},
		{"joined, other versions", denied(wire.ReasonProtocol), api.ConditionOutgoingPeering, api.ConditionTrue, reason.Incompatible, "established"},
		{"new, other versions", both(fresh, silent, denied(wire.ReasonProtocol), func(obs *Observed) { obs.Remote.Err = errors.New("it speaks version 2") }),
			api.ConditionOutgoingPeering, api.ConditionFalse, reason.Incompatible, "it speaks version 2"},
		{"joined, nothing heard since the start", silent, api.ConditionOutgoingPeering, api.ConditionTrue, reason.Joined, ""},
		{"joined, denied", denied(wire.ReasonNotTrusted), api.ConditionOutgoingPeering, api.ConditionFalse, reason.Asking, ""},
		{"joined, blocked there", denied(wire.ReasonBlocked), api.ConditionOutgoingPeering, api.ConditionFalse, reason.Refused, "blocked"},
		{"joined, our key changed", denied(wire.ReasonOtherKey), api.ConditionOutgoingPeering, api.ConditionFalse, reason.Refused, "another key"},
		{"joined, the request is gone", noRequest, api.ConditionOutgoingPeering, api.ConditionFalse, reason.Asking, ""},
		{"joined, the offer is gone", noOffer, api.ConditionOutgoingPeering, api.ConditionFalse, reason.AwaitingOffer, ""},
		{"ended there", both(noRequest, theirs(func(s *wire.State) { s.Ended = "Bob\nended\x1b it." })), api.ConditionOutgoingPeering, api.ConditionFalse, reason.EndedByProvider, "Bob ended it."},
		{"offer withdrawn", both(noOffer, func(obs *Observed) { obs.OfferDeleted = DeletedByPeer }), api.ConditionOutgoingPeering, api.ConditionFalse, reason.AwaitingOffer, "offers nothing"},
		{"offer withdrawn, held back", both(noOffer, phase(api.RequestPending, ""), func(obs *Observed) { obs.OfferDeleted = DeletedByPeer }), api.ConditionOutgoingPeering, api.ConditionFalse, reason.EndedByProvider, "withdrew"},
		{"offer withdrawn, refused", both(noOffer, phase(api.RequestRefused, "Bob rejected it."), func(obs *Observed) { obs.OfferDeleted = DeletedByPeer }), api.ConditionOutgoingPeering, api.ConditionFalse, reason.EndedByProvider, "Bob rejected it."},
		{"offer deleted by a person", both(noOffer, func(obs *Observed) { obs.OfferDeleted = DeletedByPerson }), api.ConditionOutgoingPeering, api.ConditionFalse, reason.AwaitingOffer, ""},
		{"lost", both(lost, func(obs *Observed) { delete(obs.Objects[0].Labels, api.LabelManagedBy) }), api.ConditionOutgoingPeering, api.ConditionFalse, reason.Lost, "15m0s"},
		{"unwished", unwished, api.ConditionOutgoingPeering, api.ConditionFalse, reason.Disconnected, "alice said so"},
		{"blocked", blocked, api.ConditionOutgoingPeering, api.ConditionFalse, reason.Blocked, "peers unblock"},
		{"trust withdrawn", unpinned, api.ConditionOutgoingPeering, api.ConditionFalse, reason.AwaitingTrust, `{"spec":{"trustMode":"Trusted"}}`},
		{"distrusted", distrusted, api.ConditionOutgoingPeering, api.ConditionFalse, reason.AwaitingTrust, "marked as not trusted"},
		{"a bad offer", func(obs *Observed) { obs.Advertisement.Spec.ResourceQuota.Hard = map[string]string{"cpu": "-1"} }, api.ConditionOutgoingPeering, api.ConditionFalse, reason.Offered, "cpu"},
		{"refused there", phase(api.RequestRefused, "No."), api.ConditionOutgoingPeering, api.ConditionFalse, reason.Refused, "No."},
		{"refused there without a word", phase(api.RequestRefused, ""), api.ConditionOutgoingPeering, api.ConditionFalse, reason.Refused, "gave no reason"},
		{"pending there", phase(api.RequestPending, "Bob has to decide."), api.ConditionOutgoingPeering, api.ConditionFalse, reason.AwaitingAcceptance, "Bob has to decide. Both sides show the code aaaaa-"},
		{"a phase that is none", phase("Whatever", ""), api.ConditionOutgoingPeering, api.ConditionFalse, reason.AwaitingAcceptance, ""},

		{"new, nothing heard", both(fresh, silent), api.ConditionOutgoingPeering, api.ConditionFalse, reason.Asking, "for access"},
		{"new, away", both(fresh, silent, unreachable), api.ConditionOutgoingPeering, api.ConditionFalse, reason.AwaitingPeer, "does not answer"},
		{"new, asked and pending", both(fresh, silent, answered(api.AuthPending, "Bob has to decide.")), api.ConditionOutgoingPeering, api.ConditionFalse, reason.AwaitingAcceptance, "Bob has to decide."},
		{"new, asked and refused", both(fresh, silent, answered(api.AuthRefused, "Never.")), api.ConditionOutgoingPeering, api.ConditionFalse, reason.Refused, "Never."},
		{"new, asked without a token", both(fresh, silent, answered(api.AuthEmptyRefused, "")), api.ConditionOutgoingPeering, api.ConditionFalse, reason.Refused, "gave no reason"},
		{"new, let in", both(fresh, silent, answered(api.AuthAccepted, "")), api.ConditionOutgoingPeering, api.ConditionFalse, reason.Asking, "gives this cluster access"},
		{"new, its API server down", both(fresh, down), api.ConditionOutgoingPeering, api.ConditionFalse, reason.ProviderDown, "API server"},
		{"new, accepted", fresh, api.ConditionOutgoingPeering, api.ConditionFalse, reason.AwaitingOffer, ""},
		{"refused before a person asked anew", both(fresh, noRequest, func(obs *Observed) {
			obs.Remote.Denied, obs.Remote.Answered, obs.GenerationSince = wire.ReasonBlocked, t0, t0.Add(time.Second)
		}), api.ConditionOutgoingPeering, api.ConditionFalse, reason.Asking, "again"},
		{"asked anew, and it was too busy", both(fresh, noRequest, func(obs *Observed) {
			obs.Remote.Denied, obs.Remote.Answered, obs.GenerationSince, obs.Remote.Tried = wire.ReasonBlocked, t0, t0.Add(time.Second), t0.Add(2*time.Second)
		}), api.ConditionOutgoingPeering, api.ConditionFalse, reason.Asking, "again"},
		{"refused after a person asked anew", both(fresh, noRequest, func(obs *Observed) {
			obs.Remote.Denied, obs.Remote.Answered, obs.GenerationSince = wire.ReasonBlocked, t0.Add(time.Second), t0
		}), api.ConditionOutgoingPeering, api.ConditionFalse, reason.Refused, "blocked"},
		{"new, ended before", both(fresh, noRequest, theirs(func(s *wire.State) { s.Ended = "Long ago." }), func(obs *Observed) { obs.GenerationSince = obs.Remote.At }), api.ConditionOutgoingPeering, api.ConditionFalse, reason.Asking, ""},
		{"new, ended after it was asked for", both(fresh, noRequest, theirs(func(s *wire.State) { s.Ended = "Just now." }), func(obs *Observed) { obs.GenerationSince = obs.Remote.At.Add(-time.Minute) }), api.ConditionOutgoingPeering, api.ConditionFalse, reason.EndedByProvider, "Just now."},
		{"never anything", both(fresh, silent, func(obs *Observed) {
			obs.Policy.Connect, obs.Policy.LastJoined, obs.Objects[0].Finalizers = No, false, nil
		}), api.ConditionOutgoingPeering, "", "", ""},

		{"serving", func(*Observed) {}, api.ConditionIncomingPeering, api.ConditionTrue, reason.Joined, ""},
		{"serving, away", unreachable, api.ConditionIncomingPeering, api.ConditionTrue, reason.ConsumerAway, "15m0s"},
		{"serving, other versions", denied(wire.ReasonProtocol), api.ConditionIncomingPeering, api.ConditionTrue, reason.Incompatible, "established"},
		{"serving, its API server down", down, api.ConditionIncomingPeering, api.ConditionTrue, reason.ConsumerDown, ""},
		{"serving, nothing heard since the start", silent, api.ConditionIncomingPeering, api.ConditionTrue, reason.Joined, ""},
		{"serving, denied", denied(wire.ReasonNotTrusted), api.ConditionIncomingPeering, api.ConditionFalse, reason.AwaitingConsumer, ""},
		{"serving, offer gone there", theirs(func(s *wire.State) { s.Advertisement = nil }), api.ConditionIncomingPeering, api.ConditionFalse, reason.AwaitingConsumer, ""},
		{"serving, offer refused there", theirs(func(s *wire.State) {
			s.Advertisement.Status, s.Advertisement.Message = api.AdvertisementRefused, "Too little."
		}), api.ConditionIncomingPeering, api.ConditionFalse, reason.AwaitingConsumer, "Too little."},
		{"nothing to offer", both(theirs(func(s *wire.State) { s.Advertisement = nil }), func(obs *Observed) { obs.Offer = nil }), api.ConditionIncomingPeering, api.ConditionFalse, reason.NothingToOffer, ""},
		{"a request waits", accepts(api.RequestPending), api.ConditionIncomingPeering, api.ConditionFalse, reason.AwaitingDecision, "peers accept box"},
		{"a request waits, not trusted", both(accepts(api.RequestPending), unpinned), api.ConditionIncomingPeering, api.ConditionFalse, reason.AwaitingDecision, "code aaaaa-"},
		{"accepted, not trusted", unpinned, api.ConditionIncomingPeering, api.ConditionFalse, reason.AwaitingDecision, ""},
		{"rejected", accepts(api.RequestRefused), api.ConditionIncomingPeering, api.ConditionFalse, reason.Refused, ""},
		{"withdrawn", theirs(func(s *wire.State) { s.Consumes = false }), api.ConditionIncomingPeering, api.ConditionFalse, reason.Withdrawn, ""},
		{"deleted by the peer", both(ask, deleted(DeletedByPeer), func(obs *Observed) { obs.Policy.LastServed = false }), api.ConditionIncomingPeering, api.ConditionFalse, reason.Withdrawn, ""},
		{"deleted by a person", both(ask, deleted(DeletedByPerson)), api.ConditionIncomingPeering, api.ConditionFalse, reason.Ended, "deleted its PeeringRequest"},
		{"deleted while nobody looked", both(ask, silent), api.ConditionIncomingPeering, api.ConditionFalse, reason.Ended, "deleted its PeeringRequest"},
		{"missing", both(ask, func(obs *Observed) { obs.Objects[0].Status.Incoming = api.IncomingPeering{} }), api.ConditionIncomingPeering, api.ConditionFalse, reason.RequestMissing, ""},
		{"disconnected here", both(accepts(api.RequestPending), func(obs *Observed) { obs.Policy.Ended = "Enough." }), api.ConditionIncomingPeering, api.ConditionFalse, reason.Ended, "Enough."},
		{"blocked", blocked, api.ConditionIncomingPeering, api.ConditionFalse, reason.Blocked, ""},
		{"lost", both(lost, func(obs *Observed) { delete(obs.Objects[0].Labels, api.LabelManagedBy) }), api.ConditionIncomingPeering, api.ConditionFalse, reason.Lost, ""},
		{"withdrawn, and ended before that", both(ask, func(obs *Observed) {
			obs.Policy.LastServed, obs.Policy.Ended = false, "Long ago."
			obs.Objects[0].Condition(api.ConditionIncomingPeering).Status = api.ConditionFalse
			obs.Objects[0].Condition(api.ConditionIncomingPeering).Reason = reason.Withdrawn
		}), api.ConditionIncomingPeering, api.ConditionFalse, reason.Withdrawn, ""},
		{"never asked", both(ask, func(obs *Observed) {
			obs.Policy.LastServed, obs.Objects[0].Status = false, api.ForeignClusterStatus{}
		}), api.ConditionIncomingPeering, "", "", ""},
	} {
		t.Run(tc.condition+" "+tc.name, func(t *testing.T) {
			obs := obs.change(tc.change)
			now := obs.Remote.At.Add(time.Hour)
			got := verdictOf(obs, tc.condition, now)
			if tc.reason == "" {
				if got != nil {
					t.Fatalf("shows %+v", got)
				}
				return
			}
			if got == nil || got.Status != tc.status || got.Reason != tc.reason || !strings.Contains(got.Message, tc.text) {
				t.Fatalf("shows %+v, want %s/%s with %q", got, tc.status, tc.reason, tc.text)
			}
			if !strings.HasSuffix(got.Message, ".") && !strings.Contains(got.Message, "liqo-agent peers") && !strings.Contains(got.Message, "code") || len(got.Message) > 1000 {
				t.Errorf("no sentence: %q", got.Message)
			}
			var before *api.Condition
			if len(obs.Objects) > 0 {
				before = obs.Objects[0].Condition(tc.condition)
			}
			if moved := before == nil || before.Status != got.Status; moved != got.LastTransitionTime.Time.Equal(now.Truncate(time.Second)) {
				t.Errorf("transition at %v, before %+v", got.LastTransitionTime, before)
			}
			// What a person sees on the command line is the same.
			view := obs.View()
			direction := view.Outgoing
			if tc.condition == api.ConditionIncomingPeering {
				direction = view.Incoming
			}
			if tc.condition != api.ConditionTrusted && (direction.Reason != got.Reason || direction.Message != got.Message || direction.Joined != (got.Status == api.ConditionTrue)) {
				t.Errorf("the view says %+v", direction)
			}
		})
	}
}

// TestActions holds the rules about what is done, apart from what is shown.
func TestActions(t *testing.T) {
	obs := bothWays(t)
	edit := func(change func(fc *api.ForeignCluster, o *fields.Owners)) seen {
		return func(obs *Observed) {
			fc := obs.Objects[0]
			o := obs.Owners[fc.Name]
			change(fc, &o)
			obs.Owners[fc.Name] = o
		}
	}
	for _, tc := range []struct {
		name   string
		change seen
		want   string // the kinds of the actions
	}{
		{"nothing new", func(*Observed) {}, ""},
		{"API server known in part", func(obs *Observed) {
			obs.RequestsKnown = false
			obs.Request, obs.Advertisement, obs.Secret = nil, nil, nil
		}, ""},
		{"API server known in part, lost", both(lost, func(obs *Observed) { obs.RequestsKnown = false }), "update-status"},
		{"away", unreachable, "update-status update-peering"},
		{"rumour only", func(obs *Observed) { obs.Peer.Phase, obs.Away = peer.PhaseUnverified, time.Minute }, "update-peering"},
		{"unknown after a restart", both(silent, func(obs *Observed) { obs.Peer, obs.Settled, obs.Away = nil, false, time.Hour }), "update-peering"},
		{"lost", lost, "delete-advertisement record-joined record-served delete-request delete-secret delete-access remove-finalizer delete"},
		{"lost, kept as long as it takes", both(lost, func(obs *Observed) { obs.LostAfter = 0 }), "update-status update-peering"},
		{"other key seen", otherOne, "update-status update-peering"},
		{"blocked", blocked, "apply-intent request-ref advertisement-ref update-peering delete-advertisement record-joined record-served delete-request delete-secret delete-access"},
		{"unwished", unwished, "apply-intent apply-access advertisement-ref update-peering delete-advertisement record-joined"},
		{"unwished for ten seconds", both(unwished, func(obs *Observed) { obs.TearingDown = undoFor }), "apply-intent apply-access advertisement-ref update-peering delete-advertisement record-joined remove-finalizer"},
		{"unwished, away", both(unwished, unreachable), "update-status apply-intent apply-access advertisement-ref update-peering delete-advertisement record-joined remove-finalizer"},
		{"unwished, confirmed", both(unwished, noRequest, func(obs *Observed) { obs.TearingDown = time.Second; obs.Remote.At = obs.Remote.At.Add(time.Hour) }), "apply-intent apply-access advertisement-ref update-peering delete-advertisement record-joined remove-finalizer"},
		{"unwished, denied", both(unwished, denied(wire.ReasonNotTrusted)), "apply-intent apply-access set-request-status advertisement-ref update-peering delete-advertisement record-joined remove-finalizer"},
		{"unwished, an offer that others hold", both(unwished, func(obs *Observed) { obs.TearingDown = undoFor; obs.Advertisement.Finalizers = []string{"theirs"} }), "apply-intent apply-access advertisement-ref update-peering delete-advertisement record-joined"},
		{"an offer from nowhere", both(fresh, silent, func(obs *Observed) {
			obs.Policy.Connect, obs.Policy.LastJoined, obs.Objects[0].Finalizers, obs.Objects[0].Spec.Join = Unset, false, nil, false
			obs.Advertisement = &api.Advertisement{}
		}), "update-status apply-access update-peering delete-advertisement"},
		{"join edited", edit(func(fc *api.ForeignCluster, o *fields.Owners) {
			fc.Spec.Join = false
			o.Join = fields.Owner{Manager: "kubectl", Stamp: "new"}
		}), "record-join-edited apply-access advertisement-ref update-peering delete-advertisement record-joined"},
		{"an edit that was told", both(edit(func(_ *api.ForeignCluster, o *fields.Owners) { o.Join = fields.Owner{Manager: "kubectl", Stamp: "old"} }), func(obs *Observed) { obs.Policy.JoinStamp = "old" }), ""},
		{"an edit that was told, and another wish since", both(edit(func(fc *api.ForeignCluster, o *fields.Owners) {
			fc.Spec.Join = false
			o.Join = fields.Owner{Manager: "kubectl", Stamp: "old"}
		}), func(obs *Observed) { obs.Policy.JoinStamp = "old" }), "apply-intent"},
		{"join set by nobody", edit(func(fc *api.ForeignCluster, o *fields.Owners) { fc.Spec.Join = false; o.Join = fields.Owner{} }), "apply-intent"},
		{"trust edited", edit(func(fc *api.ForeignCluster, o *fields.Owners) {
			fc.Spec.TrustMode = api.TrustUntrusted
			o.TrustMode = fields.Owner{Manager: "kubectl", Stamp: "new"}
		}), "record-trust-edited"},
		{"trust set by nobody", edit(func(fc *api.ForeignCluster, o *fields.Owners) { fc.Spec.TrustMode = api.TrustUnknown }), "apply-intent"},
		{"hung up", func(obs *Observed) { obs.Objects[0].DeletionTimestamp = &metav1.Time{Time: t0} }, "record-hung-up apply-intent apply-access delete-advertisement record-joined"},
		{"hung up, told", both(unwished, func(obs *Observed) {
			obs.Objects[0].DeletionTimestamp, obs.Objects[0].Spec.Join = &metav1.Time{Time: t0}, false
			obs.TearingDown = undoFor
		}), "apply-access delete-advertisement record-joined remove-finalizer"},
		{"ended there", both(noRequest, theirs(func(s *wire.State) { s.Ended = "No more." })), "record-ended-by-provider apply-intent apply-access advertisement-ref update-peering delete-advertisement record-joined"},
		{"ended there, asked for anew", both(noRequest, theirs(func(s *wire.State) { s.Ended = "No more." }), func(obs *Observed) { obs.Policy.Generation++; obs.GenerationSince = obs.Remote.At.Add(time.Second) }), "update-peering record-joined"},
		{"asked for anew, there", func(obs *Observed) { obs.Policy.Generation++; obs.GenerationSince = obs.Remote.At.Add(-time.Second) }, "observe-generation"},
		{"asked for anew, not seen since", func(obs *Observed) { obs.Policy.Generation++; obs.GenerationSince = obs.Remote.At.Add(time.Second) }, ""},
		{"a new certificate of another key", func(obs *Observed) { obs.Remote.CA = modelKeys[3].ca }, ""},
		{"the key rotated", func(obs *Observed) {
			pin := *obs.Policy.Pin
			pin.Fingerprint = modelKeys[3].fingerprint
			obs.Policy.Pin, obs.Peer.Fingerprint, obs.Remote.CA = &pin, modelKeys[3].fingerprint, modelKeys[3].ca
		}, "update-status apply-secret update-peering"},
		{"the key rotated, its certificate not seen", func(obs *Observed) {
			pin := *obs.Policy.Pin
			pin.Fingerprint = modelKeys[3].fingerprint
			obs.Policy.Pin, obs.Peer.Fingerprint = &pin, modelKeys[3].fingerprint
		}, "update-status update-peering"},
		{"Secret edited", func(obs *Observed) { s := *obs.Secret; s.Intact = false; obs.Secret = &s }, "apply-secret"},
		{"Secret deleted, certificate unknown", func(obs *Observed) { obs.Secret, obs.Remote.CA = nil, nil }, "update-peering"},
		{"access edited", func(obs *Observed) { a := *obs.Access; a.Intact = false; obs.Access = &a }, "apply-access"},
		{"access deleted", func(obs *Observed) { obs.Access = nil }, "apply-access"},
		{"status edited", func(obs *Observed) { obs.Objects[0].Status.Role = api.RoleUnknown }, "update-peering"},
		{"reference edited", func(obs *Observed) { obs.Objects[0].Status.Incoming.PeeringRequest = nil }, "request-ref"},
		{"deleted by a person", both(ask, deleted(DeletedByPerson)), "record-ended-here record-served request-ref update-peering"},
		{"deleted by the peer", both(ask, deleted(DeletedByPeer), theirs(func(s *wire.State) { s.Consumes = false })), "apply-access request-ref update-peering record-served"},
		{"missing after a restore", both(ask, silent, func(obs *Observed) { obs.Objects[0].Status.Incoming = api.IncomingPeering{} }), "update-peering"},
		{"withdrawn", theirs(func(s *wire.State) { s.Consumes = false }), "apply-access request-ref update-peering record-served delete-request"},
		{"withdrawn, as said before the request", both(theirs(func(s *wire.State) { s.Consumes = false }), func(obs *Observed) { obs.RequestSeen = obs.Remote.At }), ""},
		{"withdrawn, away", both(unreachable, theirs(func(s *wire.State) { s.Consumes = false })), "update-status update-peering"},
		{"rejected", accepts(api.RequestRefused), "record-requested set-request-status update-peering record-served"},
		{"one of two objects deleted, the other one joined", func(obs *Observed) {
			mine := obs.Objects[0].DeepCopy()
			mine.Name, mine.UID, mine.Labels = "mine", "uid-mine", nil
			obs.Objects[0].DeletionTimestamp = &metav1.Time{Time: t0}
			obs.Objects = append(obs.Objects, mine)
		}, "remove-finalizer"},
		{"another object in which somebody decides about trust", func(obs *Observed) {
			mine := manual("mine", idB)
			mine.Spec.TrustMode = api.TrustTrusted
			obs.Objects = append(obs.Objects, mine)
			obs.Owners["mine"] = fields.Owners{TrustMode: fields.Owner{Manager: "kubectl", Stamp: "told"}}
			obs.Policy.TrustStamp = "told"
		}, "update-status apply-intent add-finalizer request-ref advertisement-ref update-peering remove-finalizer delete"},
		{"lost, an offer that others hold", both(lost, func(obs *Observed) { obs.Advertisement.Finalizers = []string{"theirs"} }), "update-status request-ref advertisement-ref update-peering delete-advertisement record-joined record-served delete-request delete-secret delete-access"},
		{"present, whatever the clock says", func(obs *Observed) { obs.Away = time.Hour }, ""},
		{"missing, and the peer wants nothing to do with us", both(ask, denied(wire.ReasonNotTrusted), func(obs *Observed) {
			obs.Objects[0].Status.Incoming = api.IncomingPeering{}
		}), "apply-access update-peering record-joined record-served"},
		{"nothing decided", func(obs *Observed) { obs.Policy.Accept = AcceptDecision{}; obs.Policy.LastServed = false }, "update-peering"},
		{"disconnected here", both(accepts(api.RequestPending), func(obs *Observed) { obs.Policy.Ended = "Enough." }), "request-ref update-peering record-served delete-request"},
		{"asks again after it was ended", both(accepts(api.RequestPending), func(obs *Observed) {
			obs.Policy.Ended, obs.Policy.LastServed = "Enough.", false
			obs.Request.Status = api.PeeringRequestStatus{Phase: api.RequestPending}
		}), "record-requested set-request-status update-peering"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			obs := obs.change(tc.change)
			now := obs.Remote.At.Add(time.Millisecond)
			var got []string
			d := Plan(obs, now)
			for _, a := range d.Actions {
				got = append(got, string(a.Kind))
			}
			if strings.Join(got, " ") != tc.want {
				t.Errorf("does  %s\nwants %s", strings.Join(got, " "), tc.want)
			}
		})
	}
}

// TestRemote holds the rules about what is to be so at the peer, how long it is
// held and when to look again.
func TestRemote(t *testing.T) {
	obs := bothWays(t)
	for _, tc := range []struct {
		name   string
		change seen
		want   string
	}{
		{"joined both ways", func(*Observed) {}, "contact request offer hold"},
		{"joined both ways, away", unreachable, "contact request offer hold again"},
		{"other key seen", otherOne, "contact request offer hold again"},
		{"lost", lost, ""},
		{"the key that it had before seen", rotated, "contact request offer hold"},
		{"its certificate has ended", ended, "hold again"},
		{"our certificate has ended", endedThere, "contact request offer hold again"},
		{"its certificate has ended for too long", both(ended, forTooLong), ""},
		{"our certificate has ended for too long", both(endedThere, forTooLong), "contact"},
		{"nothing heard since the start", silent, "contact ask offer hold"},
		{"request gone there", noRequest, "contact ask request offer hold"},
		{"ended there", both(noRequest, theirs(func(s *wire.State) { s.Ended = "No." })), "contact request-gone offer hold undoing again"},
		{"asked for anew", func(obs *Observed) { obs.Policy.Generation++; obs.GenerationSince = obs.Remote.At.Add(time.Second) }, "contact fresh request offer hold"},
		{"new", both(fresh, silent), "contact ask fresh request offer hold"},
		{"new, refused", both(fresh, silent, answered(api.AuthRefused, "")), "contact ask fresh offer hold"},
		{"denied", denied(wire.ReasonNotTrusted), "contact ask offer hold"},
		{"our own ID unknown", func(obs *Observed) { obs.Self = wire.Greeting{} }, "contact offer hold"},
		{"not welcome", theirs(func(s *wire.State) { s.AdvertisementWelcome = false }), "contact request hold"},
		{"nothing to offer", func(obs *Observed) { obs.Offer = nil }, "contact request hold"},
		{"rejected", accepts(api.RequestRefused), "contact request offer-gone hold"},
		{"withdrawn", theirs(func(s *wire.State) { s.Consumes = false }), "contact request offer-gone hold"},
		{"withdrawn, nothing left there", theirs(func(s *wire.State) { s.Consumes, s.Advertisement = false, nil }), "contact request hold"},
		{"missing", both(ask, func(obs *Observed) { obs.Objects[0].Status.Incoming = api.IncomingPeering{} }), "contact request hold"},
		{"unwished", unwished, "contact request-gone offer hold undoing again"},
		{"blocked", blocked, "contact request-gone offer-gone hold undoing again"},
		{"not trusted", unpinned, ""},
		{"distrusted", distrusted, ""},
		{"API server unknown", func(obs *Observed) { obs.RequestsKnown = false }, "hold"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			obs := obs.change(tc.change)
			d := Plan(obs, obs.Remote.At.Add(time.Millisecond))
			var got []string
			for _, f := range []struct {
				name string
				set  bool
			}{
				{"contact", d.Remote.Contact}, {"ask", d.Remote.Ask}, {"fresh", d.Remote.Fresh}, {"request", d.Remote.Request != nil},
				{"request-gone", d.Remote.RequestGone}, {"offer", d.Remote.Advertisement != nil}, {"offer-gone", d.Remote.AdvertisementGone},
				{"hold", d.Hold}, {"undoing", d.TearingDown}, {"again", d.Again > 0},
			} {
				if f.set {
					got = append(got, f.name)
				}
			}
			if strings.Join(got, " ") != tc.want {
				t.Errorf("desires %s\nwants   %s", strings.Join(got, " "), tc.want)
			}
			if d.Remote.Contact == d.Remote.Target.Fingerprint.IsZero() {
				t.Errorf("target %+v", d.Remote.Target)
			}
			if (d.Remote.RequestGone || d.Remote.AdvertisementGone) && d.Remote.Reason == "" {
				t.Error("no reason is given to the peer")
			}
		})
	}
}

func TestOurRequest(t *testing.T) {
	obs := bothWays(t)
	obs.Self.URL = "https://example.com:6447"
	obs.Policy.Asks = api.RequestedResources{CPU: "2", Memory: "4Gi"}
	d := Plan(obs, t0)
	want := api.PeeringRequestSpec{
		ClusterIdentity: api.ClusterIdentity{ClusterID: string(idA), ClusterName: "box-a"}, Namespace: "liqo", AuthURL: "https://example.com:6447",
		Resources: api.RequestedResources{CPU: "2", Memory: "4Gi"},
	}
	if d.Remote.Request == nil || *d.Remote.Request != want {
		t.Errorf("got %+v", d.Remote.Request)
	}
	if tg := d.Remote.Target; tg.ID != idB || tg.Fingerprint != modelKeys[1].fingerprint || tg.URL != "https://192.0.2.1:6447" {
		t.Errorf("target %+v", tg)
	}
}

// TestDirectionsAreIndependent changes everything that belongs to one direction,
// and sees that nothing moves in the other one.
func TestDirectionsAreIndependent(t *testing.T) {
	base := bothWays(t)
	rapid.Check(t, func(t *rapid.T) {
		flip := func(label string) bool { return rapid.Bool().Draw(t, label) }
		incoming := func(obs *Observed) {
			s := obs.Remote.State
			s.Consumes = flip("consumes")
			if flip("no offer there") {
				s.Advertisement = nil
			}
			obs.RequestDeleted = Deleter(rapid.IntRange(0, 3).Draw(t, "deleted"))
			if flip("no request") {
				obs.Request = nil
			}
			obs.Policy.Accept.Phase = rapid.SampledFrom([]api.RequestPhase{"", api.RequestAccepted, api.RequestPending, api.RequestRefused}).Draw(t, "accept")
			obs.Policy.LastServed, obs.Policy.Asked = flip("served"), flip("asked")
			if flip("ended") {
				obs.Policy.Ended = "Enough."
			}
			if flip("no capacity") {
				obs.Offer = nil
			}
		}
		outgoing := func(obs *Observed) {
			s := obs.Remote.State
			if flip("no request there") {
				s.Request = nil
			} else {
				s.Request.Phase = rapid.SampledFrom([]api.RequestPhase{api.RequestAccepted, api.RequestPending, api.RequestRefused}).Draw(t, "phase")
			}
			if flip("ended there") {
				s.Ended = "Enough."
			}
			obs.OfferDeleted = Deleter(rapid.IntRange(0, 3).Draw(t, "offer deleted"))
			if flip("no offer") {
				obs.Advertisement = nil
			}
			obs.Policy.Connect = Tristate(rapid.IntRange(0, 2).Draw(t, "connect"))
			obs.Policy.LastJoined = flip("joined")
			obs.Policy.Generation += uint64(rapid.IntRange(0, 1).Draw(t, "anew"))
			if flip("asked") {
				answered(rapid.SampledFrom([]api.AuthStatus{api.AuthAccepted, api.AuthPending, api.AuthRefused}).Draw(t, "auth"), "")(obs)
			}
		}
		now := base.Remote.At.Add(time.Second)
		if out := base.change(incoming).View().Outgoing; !slices.Equal(out.Steps, base.View().Outgoing.Steps) || out.Message != base.View().Outgoing.Message {
			t.Fatalf("the outgoing direction moved: %+v", out)
		}
		for _, a := range Plan(base.change(incoming), now).Actions {
			switch a.Kind {
			case DeleteAdvertisement, RecordJoined, RecordEndedByProvider, RecordHungUp, ApplyIntent, AddFinalizer, RemoveFinalizer, SetAdvertisementStatus, AdvertisementRef, DeleteSecret, DeleteAccess:
				t.Fatalf("the outgoing direction moved: %s", a.Kind)
			}
		}
		if in := base.change(outgoing).View().Incoming; !slices.Equal(in.Steps, base.View().Incoming.Steps) || in.Message != base.View().Incoming.Message {
			t.Fatalf("the incoming direction moved: %+v", in)
		}
		for _, a := range Plan(base.change(outgoing), now).Actions {
			switch a.Kind {
			case DeleteRequest, RecordServed, RecordEndedHere, RecordRequested, RequestRef, DeleteSecret, DeleteAccess:
				t.Fatalf("the incoming direction moved: %s", a.Kind)
			}
		}
	})
}

// TestToldHere: people at the provider read a decision in words for them, and those of
// somebody else as they are.
func TestToldHere(t *testing.T) {
	accept := AcceptDecision{Phase: api.RequestRefused, Message: "Somebody at the provider rejected it.", Here: "It was rejected."}
	f := &derived{Observed: Observed{Policy: Policy{Accept: accept}}}
	for message, want := range map[string]string{accept.Message: accept.Here, "Bob rejected it.": "Bob rejected it.", "": ""} {
		if got := f.messageHere(&api.PeeringRequestStatus{Message: message}); got != want {
			t.Errorf("%q is %q here", message, got)
		}
	}
}
