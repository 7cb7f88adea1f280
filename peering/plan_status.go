package peering

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/agent/api"
	"liqo.io/agent/peer"
)

// trustedVerdict says whether the peer's key is trusted, by whom and since when;
// nil when nobody asks.
func (f *facts) trustedVerdict() *verdict {
	pin := f.Standing.Pin
	switch {
	case f.Standing.Distrusted:
		return no(ReasonDistrusted, "Somebody said that its key is not to be trusted. That ends with: liqo-agent peers trust "+f.called())
	case pin != nil && f.otherKeySeen() != "":
		return no(ReasonAnotherKey, "The cluster shows the key "+f.otherKeySeen()+", and trusted is "+pin.Fingerprint.String()+
			". If it was set up anew, take the new key with: liqo-agent peers trust "+f.called()+". Otherwise somebody pretends to be it.")
	case f.suspendedHere():
		return no(ReasonCertificateEnded, f.suspension())
	case pin != nil:
		return yes(trustReason(pin.Method), trustMessage(*pin))
	case f.intent.join, f.Request != nil, f.Standing.Asked, f.shownTrusted():
		return no(ReasonNotDecided, f.trustAdvice())
	}
	return nil
}

// otherKeySeen returns the key that is shown instead of the trusted one, "" for
// none. A second cluster with the same ID beside the right one is a conflict, and
// no reason to doubt the latter.
func (f *facts) otherKeySeen() string {
	switch p := f.Peer; {
	case f.otherKey():
		return p.Fingerprint.String()
	case p != nil && p.Conflict != nil && p.Phase != peer.PhasePresent && f.isOther(p.Conflict.Fingerprint):
		return p.Conflict.Fingerprint.String()
	}
	return ""
}

// suspension says why trust is suspended, and what ends that.
func (f *facts) suspension() string {
	if !f.suspendedHere() {
		return "The cluster does not trust this one any more, because the certificate that this one has of the fleet has ended." +
			" Make a newer one with liqo-agent fleet sign, put it in place and reload the configuration."
	}
	message := "The certificate of the fleet by which its key was trusted has ended"
	if at := f.Standing.Pin.NotAfter; !at.IsZero() {
		message += " on " + at.UTC().Format("2006-01-02 15:04 MST")
	}
	return message + ". It is trusted again once it shows a newer one (liqo-agent fleet sign), or when somebody here says so: liqo-agent peers trust " + f.called()
}

// suspendedVerdict is for a peering while trust is suspended.
func (f *facts) suspendedVerdict(joined bool) *verdict {
	if !joined {
		return no(ReasonCertificateEnded, f.suspension())
	}
	message := "The peering is established, and nothing goes through it now. "
	if f.LostAfter > 0 {
		message += "It is kept for " + f.LostAfter.String() + ". "
	}
	return yes(ReasonCertificateEnded, message+f.suspension())
}

// missed says for how long there was nothing between us and the peer, called who,
// when that is too long.
func (f *facts) missed(who string) string {
	if f.suspended() {
		return "Trust between the two clusters has been suspended for longer than " + f.LostAfter.String() + ", because a certificate of the fleet has ended."
	}
	return who + " has been away for longer than " + f.LostAfter.String() + "."
}

func (f *facts) shownTrusted() bool {
	return slices.ContainsFunc(f.live(), func(fc *api.ForeignCluster) bool { return fc.Condition(api.ConditionTrusted) != nil })
}

// trustAdvice says what a person does to trust the peer.
func (f *facts) trustAdvice() string {
	advice := "Nobody has decided yet whether its key is its own."
	if f.Standing.Distrusted {
		advice = "Somebody said that its key is not to be trusted."
	}
	if f.Standing.Code != "" {
		advice += " If both sides show the code " + f.Standing.Code + ", it is."
	}
	advice += " Then run: liqo-agent peers connect " + f.called()
	if f.decider != nil {
		advice += ", or: kubectl patch foreigncluster " + f.decider.Name + ` --type=merge -p '{"spec":{"trustMode":"Trusted"}}'`
	}
	return advice
}

func trustReason(m peer.TrustMethod) string {
	switch m {
	case peer.TrustInvite:
		return ReasonInvited
	case peer.TrustFleet:
		return ReasonFleetCertified
	case peer.TrustStatic:
		return ReasonConfigured
	case peer.TrustRoots:
		return ReasonSystemRoots
	case peer.TrustOpen:
		return ReasonOpenPolicy
	}
	return ReasonPersonDecided
}

func trustMessage(pin peer.Pin) string {
	message := "The key " + pin.Fingerprint.String() + " is trusted"
	if pin.By != "" {
		message += " by " + pin.By
	}
	if !pin.At.IsZero() {
		message += " since " + pin.At.UTC().Format("2006-01-02 15:04:05 MST")
	}
	if pin.Detail != "" {
		message += " (" + pin.Detail + ")"
	}
	return sentence(message) + "."
}

// peeringStatus returns what fc is to show about the peering.
func (f *facts) peeringStatus(fc *api.ForeignCluster) PeeringStatus {
	in, out, shown := f.incoming, f.outgoing, f.shown.Status
	status := PeeringStatus{Role: f.role(), AuthStatus: f.authStatus(), Modules: f.modules(fc)}
	ref := f.secretRef()
	if (out.active || out.draining) && !f.spare(fc) {
		status.Outgoing = api.PeeringState{Joined: out.joined, CADataRef: ref, AvailableIdentity: out.letIn}
		if out.draining {
			status.Outgoing.AvailableIdentity, status.Outgoing.AdvertisementStatus = shown.Outgoing.AvailableIdentity, shown.Outgoing.AdvertisementStatus
		}
		switch heard := f.heard(); {
		case heard != nil && heard.Request != nil:
			status.Outgoing.RemotePeeringRequestName = string(f.Self.Identity.ClusterID)
		default:
			status.Outgoing.RemotePeeringRequestName = shown.Outgoing.RemotePeeringRequestName
		}
		if out.offer != nil {
			status.Outgoing.AdvertisementStatus = out.offer.AdvertisementStatus
		}
	}
	if in.stays {
		status.Incoming.RemotePeeringRequestName = f.Request.Name
	}
	if in.keep && in.serves {
		status.Incoming.Joined, status.Incoming.CADataRef, status.Incoming.AvailableIdentity = in.joined, ref, true
		status.Incoming.AdvertisementStatus = in.decision.AdvertisementStatus
	}
	for _, c := range []struct {
		kind    string
		verdict *verdict
	}{
		{api.ConditionTrusted, f.trustedVerdict()},
		{api.ConditionOutgoingPeering, f.outgoingShown(fc)},
		{api.ConditionIncomingPeering, in.verdict},
		{api.ConditionAutojoin, f.unjoinedVerdict()},
		{api.ConditionAccessRequested, f.askVerdict(fc)},
	} {
		if c.verdict != nil {
			status.Conditions = append(status.Conditions, c.verdict.condition(c.kind, fc.Status.Conditions, f.now))
		}
	}
	return status
}

// unjoinedVerdict says why it is not joined by itself, nil when nobody said that it is
// to be.
func (f *facts) unjoinedVerdict() *verdict {
	if why := f.Standing.Unjoined; why != (Unjoined{}) && !f.intent.wanted {
		return no(why.Reason, why.Message)
	}
	return nil
}

// askVerdict says that somebody has to decide whether the cluster may use ours, and
// how; nil when nobody has to.
func (f *facts) askVerdict(fc *api.ForeignCluster) *verdict {
	patch := "kubectl patch foreigncluster " + fc.Name + ` --type=merge -p '{"spec":{"trustMode":"%s"}}'`
	switch ask := f.Standing.Ask; {
	case f.spare(fc):
		return nil
	case ask != nil && f.knownKey(fc) != ask.Fingerprint.String():
		return yes(ReasonOtherKey, "Somebody at "+ask.From+" asks to use this cluster, with the key "+ask.Fingerprint.String()+
			", which is not the one that is known. Find out why; then: liqo-agent peers accept, or reject, "+string(f.ID))
	case ask != nil:
		return yes(ReasonPending, "It asks to use this cluster, from "+ask.From+". If it shows the code "+ask.Code+" as well, let it in with: "+
			fmt.Sprintf(patch, api.TrustTrusted)+", or: liqo-agent peers accept "+f.called()+". Refuse it with: "+fmt.Sprintf(patch, api.TrustUntrusted)+
			", or: liqo-agent peers reject "+f.called())
	case f.incoming.decision != nil && f.incoming.decision.Phase == api.RequestPending:
		phase := "kubectl patch peeringrequest " + string(f.ID) + ` --subresource=status --type=merge -p '{"status":{"phase":"%s"}}'`
		return yes(ReasonPending, "Its PeeringRequest waits. Accept it with: "+fmt.Sprintf(phase, api.RequestAccepted)+", or: liqo-agent peers accept "+f.called()+
			". Refuse it with: "+fmt.Sprintf(phase, api.RequestRefused)+", or: liqo-agent peers reject "+f.called())
	}
	return nil
}

// knownKey is the key that fc is to show, which is the one that spec.trustMode is about.
func (f *facts) knownKey(fc *api.ForeignCluster) string {
	if f.Peer != nil && !f.Peer.Fingerprint.IsZero() {
		return f.Peer.Fingerprint.String()
	}
	if fc.Status.Fingerprint == "" && f.Standing.Ask != nil {
		return f.Standing.Ask.Fingerprint.String()
	}
	return fc.Status.Fingerprint
}

// condition returns the condition to show, given those shown until now. The
// transition time moves only with the status.
func (v verdict) condition(kind string, shown []api.Condition, now time.Time) api.Condition {
	next := api.Condition{
		Type: kind, Status: v.status, Reason: v.reason, Message: v.message, LastTransitionTime: metav1.NewTime(now.Truncate(time.Second)),
	}
	for _, c := range shown {
		if c.Type == kind && c.Status == next.Status {
			next.LastTransitionTime = c.LastTransitionTime
		}
	}
	return next
}

// role is what the peer is to us.
func (f *facts) role() api.Role {
	switch {
	case f.outgoing.joined && f.incoming.joined:
		return api.RoleConsumerAndProvider
	case f.outgoing.joined:
		return api.RoleProvider
	case f.incoming.joined:
		return api.RoleConsumer
	}
	return api.RoleUnknown
}

// authStatus is how the peer answered our asking to be let in.
func (f *facts) authStatus() api.AuthStatus {
	switch asked := f.Remote.Asked; {
	case f.outgoing.draining:
		return cmp.Or(f.shown.Status.AuthStatus, api.AuthPending)
	case !f.outgoing.active:
		return api.AuthPending
	case asked != nil:
		return knownAuth(asked.Auth)
	case f.denied():
		return api.AuthRefused
	case f.outgoing.letIn:
		return api.AuthAccepted
	}
	return api.AuthPending
}

// knownAuth returns auth if it is one, and AuthPending otherwise: it comes from
// the peer.
func knownAuth(auth api.AuthStatus) api.AuthStatus {
	switch auth {
	case api.AuthAccepted, api.AuthRefused, api.AuthEmptyRefused:
		return auth
	}
	return api.AuthPending
}

// secretRef names the Secret with the peer's identity, nil while there is none.
func (f *facts) secretRef() *api.ObjectReference {
	if !f.stored() {
		return nil
	}
	return &api.ObjectReference{APIVersion: "v1", Kind: "Secret", Name: SecretName(f.ID), Namespace: f.Namespace}
}

// modules says which parts of a peering are in use. Where there is no peering
// there is nothing to say.
func (f *facts) modules(fc *api.ForeignCluster) api.Modules {
	var m api.Modules
	if !f.outgoing.active && !f.outgoing.draining && !f.incoming.keep {
		return m
	}
	identity := no(ReasonNotStored, "The certificate of the cluster has not been seen yet.")
	if f.stored() {
		identity = yes(ReasonStored, "The key of the cluster is trusted, and its certificate is kept in Secret "+SecretName(f.ID)+".")
	}
	networking := no(ReasonNotInThisVersion, "This version of liqo-agent does not connect the networks of the two clusters.")
	shown := fc.Status.Modules
	m.Authentication = api.Module{
		Enabled: f.stored(), Conditions: []api.Condition{identity.condition(ConditionIdentityStored, shown.Authentication.Conditions, f.now)},
	}
	m.Networking.Conditions = []api.Condition{networking.condition(ConditionAvailable, shown.Networking.Conditions, f.now)}
	m.Offloading = f.offloading(shown.Offloading)
	return m
}

// showActions returns what makes fc show how the peering stands.
func (f *facts) showActions(fc *api.ForeignCluster) []Action {
	var plan []Action
	var request, offer *api.ObjectReference
	if req := f.Request; req != nil && f.incoming.drop == "" {
		request = &api.ObjectReference{
			APIVersion: api.GroupVersion.String(), Kind: api.KindPeeringRequest, Name: req.Name, UID: string(req.UID),
		}
	}
	if adv := f.Advertisement; adv != nil && !f.dropsOffer() && !f.spare(fc) {
		offer = &api.ObjectReference{
			APIVersion: api.SharingGroupVersion.String(), Kind: api.KindAdvertisement, Name: adv.Name, UID: string(adv.UID),
		}
	}
	if !same(request, fc.Status.Incoming.PeeringRequest) {
		plan = append(plan, Action{Kind: RequestRef, Name: fc.Name, UID: fc.UID, Ref: request})
	}
	if !same(offer, fc.Status.Outgoing.Advertisement) {
		plan = append(plan, Action{Kind: AdvertisementRef, Name: fc.Name, UID: fc.UID, Ref: offer})
	}
	if status := f.peeringStatus(fc); !status.shownBy(fc) {
		plan = append(plan, Action{Kind: UpdatePeering, Name: fc.Name, UID: fc.UID, Peering: &status})
	}
	return plan
}

// shownBy reports whether fc shows all of s and nothing else.
func (s PeeringStatus) shownBy(fc *api.ForeignCluster) bool {
	shown := fc.Status
	role, auth := shown.Role, shown.AuthStatus
	if role == "" {
		role = api.RoleUnknown
	}
	if auth == "" {
		auth = api.AuthPending
	}
	own := slices.DeleteFunc(slices.Clone(shown.Conditions), func(c api.Condition) bool {
		return c.Type != api.ConditionTrusted && c.Type != api.ConditionOutgoingPeering && c.Type != api.ConditionIncomingPeering &&
			c.Type != api.ConditionAutojoin && c.Type != api.ConditionAccessRequested
	})
	return s.Role == role && s.AuthStatus == auth &&
		samePeering(s.Outgoing, shown.Outgoing.PeeringState) && samePeering(s.Incoming, shown.Incoming.PeeringState) &&
		sameModule(s.Modules.Authentication, shown.Modules.Authentication) && sameModule(s.Modules.Networking, shown.Modules.Networking) &&
		sameModule(s.Modules.Offloading, shown.Modules.Offloading) && sameConditions(s.Conditions, own)
}

func samePeering(a, b api.PeeringState) bool {
	if !same(a.CADataRef, b.CADataRef) {
		return false
	}
	a.CADataRef, b.CADataRef = nil, nil
	return a == b
}

func sameModule(a, b api.Module) bool {
	return a.Enabled == b.Enabled && sameConditions(a.Conditions, b.Conditions)
}

func sameConditions(a, b []api.Condition) bool {
	if len(a) != len(b) {
		return false
	}
	for _, c := range a {
		if !slices.ContainsFunc(b, func(o api.Condition) bool {
			return o.Type == c.Type && o.Status == c.Status && o.Reason == c.Reason && o.Message == c.Message
		}) {
			return false
		}
	}
	return true
}

// same reports whether two optional values are equal.
func same[T comparable](a, b *T) bool {
	return a == b || a != nil && b != nil && *a == *b
}
