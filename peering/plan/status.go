package plan

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/agent/api"
	"liqo.io/agent/peer"
	"liqo.io/agent/peer/text"
)

// trustedVerdict says whether the peer's key is trusted, by whom and since when;
// nil when nobody asks.
func (d *derived) trustedVerdict() *verdict {
	pin := d.Policy.Pin
	switch {
	case d.Policy.Distrusted:
		return no(ReasonDistrusted, "Its key is marked as not trusted. To trust it: liqo-agent peers trust "+d.commandName())
	case pin != nil && d.otherKeySeen() != "":
		return no(ReasonAnotherKey, "The cluster shows the key "+d.otherKeySeen()+", and trusted is "+pin.Fingerprint.String()+
			". If it was set up anew, take the new key with: liqo-agent peers trust "+d.commandName()+". Otherwise somebody pretends to be it.")
	case d.suspendedHere():
		return no(ReasonCertificateEnded, d.suspension())
	case pin != nil:
		return yes(trustReason(pin.Method), trustMessage(*pin))
	case d.intent.join, d.Request != nil, d.Policy.Asked, d.shownTrusted():
		return no(ReasonNotDecided, d.trustAdvice())
	}
	return nil
}

// otherKeySeen returns the key that is shown instead of the trusted one, "" for
// none. A second cluster with the same ID beside the right one is a conflict, and
// no reason to doubt the latter.
func (d *derived) otherKeySeen() string {
	switch p := d.Peer; {
	case d.otherKey():
		return p.Fingerprint.String()
	case p != nil && p.Conflict != nil && p.Phase != peer.PhasePresent && d.isOther(p.Conflict.Fingerprint):
		return p.Conflict.Fingerprint.String()
	}
	return ""
}

// suspension says why trust is suspended, and what ends that.
func (d *derived) suspension() string {
	if !d.suspendedHere() {
		return "The cluster no longer trusts this one: the fleet certificate of this cluster has expired." +
			" Make a newer one with liqo-agent fleet sign, put it in place and reload the configuration."
	}
	message := "Its fleet certificate expired"
	if at := d.Policy.Pin.NotAfter; !at.IsZero() {
		message += " on " + text.Time(at)
	}
	return message + ". It is trusted again once it shows a newer one (liqo-agent fleet sign), or when somebody here says so: liqo-agent peers trust " + d.commandName()
}

// suspendedVerdict is for a peering while trust is suspended.
func (d *derived) suspendedVerdict(joined bool) *verdict {
	if !joined {
		return no(ReasonCertificateEnded, d.suspension())
	}
	message := "The peering is established, but suspended. "
	if d.LostAfter > 0 {
		message += "It is kept for " + d.LostAfter.String() + ". "
	}
	return yes(ReasonCertificateEnded, message+d.suspension())
}

// absence says for how long there was nothing between us and the peer, called who,
// when that is too long.
func (d *derived) absence(who string) string {
	if d.suspended() {
		return "Trust between the two clusters has been suspended for longer than " + d.LostAfter.String() + ": a fleet certificate has expired."
	}
	return who + " has been away for longer than " + d.LostAfter.String() + "."
}

func (d *derived) shownTrusted() bool {
	return slices.ContainsFunc(d.live(), func(fc *api.ForeignCluster) bool { return fc.Condition(api.ConditionTrusted) != nil })
}

// trustAdvice says what a person does to trust the peer.
func (d *derived) trustAdvice() string {
	advice := "Nobody has decided about its key yet."
	if d.Policy.Distrusted {
		advice = "Its key is marked as not trusted."
	}
	if d.Policy.Code != "" {
		advice += " Compare the code with the other side: " + d.Policy.Code + "."
	}
	advice += " Then run: liqo-agent peers connect " + d.commandName()
	if d.effective != nil {
		advice += ", or: kubectl patch foreigncluster " + d.effective.Name + ` --type=merge -p '{"spec":{"trustMode":"Trusted"}}'`
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
		message += " since " + text.Time(pin.At)
	}
	if pin.Detail != "" {
		message += " (" + pin.Detail + ")"
	}
	return text.Sentence(message) + "."
}

// peeringStatus returns what fc is to show about the peering.
func (d *derived) peeringStatus(fc *api.ForeignCluster) PeeringStatus {
	in, out, shown := d.incoming, d.outgoing, d.shown.Status
	status := PeeringStatus{Role: d.role(), AuthStatus: d.authStatus(), Modules: d.modules(fc)}
	ref := d.secretRef()
	if (out.active || out.draining) && !d.redundant(fc) {
		status.Outgoing = api.PeeringState{Joined: out.joined, CADataRef: ref, AvailableIdentity: out.letIn}
		if out.draining {
			status.Outgoing.AvailableIdentity, status.Outgoing.AdvertisementStatus = shown.Outgoing.AvailableIdentity, shown.Outgoing.AdvertisementStatus
		}
		switch state := d.remoteState(); {
		case state != nil && state.Request != nil:
			status.Outgoing.RemotePeeringRequestName = string(d.Self.Identity.ClusterID)
		default:
			status.Outgoing.RemotePeeringRequestName = shown.Outgoing.RemotePeeringRequestName
		}
		if out.offer != nil {
			status.Outgoing.AdvertisementStatus = out.offer.AdvertisementStatus
		}
	}
	if in.stays {
		status.Incoming.RemotePeeringRequestName = d.Request.Name
	}
	if in.keep && in.serves {
		status.Incoming.Joined, status.Incoming.CADataRef, status.Incoming.AvailableIdentity = in.joined, ref, true
		status.Incoming.AdvertisementStatus = in.decision.AdvertisementStatus
	}
	for _, c := range []struct {
		kind    string
		verdict *verdict
	}{
		{api.ConditionTrusted, d.trustedVerdict()},
		{api.ConditionOutgoingPeering, d.outgoingShown(fc)},
		{api.ConditionIncomingPeering, in.verdict},
		{api.ConditionAutojoin, d.unjoinedVerdict()},
		{api.ConditionAccessRequested, d.askVerdict(fc)},
	} {
		if c.verdict != nil {
			status.Conditions = append(status.Conditions, c.verdict.condition(c.kind, fc.Status.Conditions, d.now))
		}
	}
	return status
}

// unjoinedVerdict says why it is not joined by itself, nil when nobody said that it is
// to be.
func (d *derived) unjoinedVerdict() *verdict {
	if why := d.Policy.NotAutojoined; why != (NotAutojoined{}) && !d.intent.wanted {
		return no(why.Reason, why.Message)
	}
	return nil
}

// askVerdict says that somebody has to decide whether the cluster may use ours, and
// how; nil when nobody has to.
func (d *derived) askVerdict(fc *api.ForeignCluster) *verdict {
	patch := "kubectl patch foreigncluster " + fc.Name + ` --type=merge -p '{"spec":{"trustMode":"%s"}}'`
	switch ask := d.Policy.Ask; {
	case d.redundant(fc):
		return nil
	case ask != nil && d.knownKey(fc) != ask.Fingerprint.String():
		return yes(ReasonOtherKey, "Somebody at "+ask.From+" asks to use this cluster, with the key "+ask.Fingerprint.String()+
			", which is not the one that is known. Find out why; then: liqo-agent peers accept, or reject, "+string(d.ID))
	case ask != nil:
		return yes(ReasonPending, "It asks for access from "+ask.From+". If it shows the code "+ask.Code+" too, accept it with: "+
			fmt.Sprintf(patch, api.TrustTrusted)+", or: liqo-agent peers accept "+d.commandName()+". Refuse it with: "+fmt.Sprintf(patch, api.TrustUntrusted)+
			", or: liqo-agent peers reject "+d.commandName())
	case d.incoming.decision != nil && d.incoming.decision.Phase == api.RequestPending:
		phase := "kubectl patch peeringrequest " + string(d.ID) + ` --subresource=status --type=merge -p '{"status":{"phase":"%s"}}'`
		return yes(ReasonPending, "Its PeeringRequest is pending. Accept it with: "+fmt.Sprintf(phase, api.RequestAccepted)+", or: liqo-agent peers accept "+d.commandName()+
			". Refuse it with: "+fmt.Sprintf(phase, api.RequestRefused)+", or: liqo-agent peers reject "+d.commandName())
	}
	return nil
}

// knownKey is the key that fc is to show, which is the one that spec.trustMode is about.
func (d *derived) knownKey(fc *api.ForeignCluster) string {
	if d.Peer != nil && !d.Peer.Fingerprint.IsZero() {
		return d.Peer.Fingerprint.String()
	}
	if fc.Status.Fingerprint == "" && d.Policy.Ask != nil {
		return d.Policy.Ask.Fingerprint.String()
	}
	return fc.Status.Fingerprint
}

// condition returns the condition to show, given those shown until now. The
// transition time moves only with the status.
func (v verdict) condition(kind string, shown []api.Condition, now time.Time) api.Condition {
	next := api.Condition{
		Type: kind, Status: v.status, Reason: v.reason, Message: v.message, LastTransitionTime: metav1.NewTime(now.Truncate(time.Second)),
	}
	next.KeepTransition(shown)
	return next
}

// role is what the peer is to us.
func (d *derived) role() api.Role {
	switch {
	case d.outgoing.joined && d.incoming.joined:
		return api.RoleConsumerAndProvider
	case d.outgoing.joined:
		return api.RoleProvider
	case d.incoming.joined:
		return api.RoleConsumer
	}
	return api.RoleUnknown
}

// authStatus is how the peer answered our asking to be let in.
func (d *derived) authStatus() api.AuthStatus {
	switch asked := d.Remote.Asked; {
	case d.outgoing.draining:
		return cmp.Or(d.shown.Status.AuthStatus, api.AuthPending)
	case !d.outgoing.active:
		return api.AuthPending
	case asked != nil:
		return knownAuth(asked.Auth)
	case d.denied():
		return api.AuthRefused
	case d.outgoing.letIn:
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
func (d *derived) secretRef() *api.ObjectReference {
	if !d.identityStored() {
		return nil
	}
	return &api.ObjectReference{APIVersion: "v1", Kind: "Secret", Name: SecretName(d.ID), Namespace: d.Namespace}
}

// modules says which parts of a peering are in use. Where there is no peering
// there is nothing to say.
func (d *derived) modules(fc *api.ForeignCluster) api.Modules {
	var m api.Modules
	if !d.outgoing.active && !d.outgoing.draining && !d.incoming.keep {
		return m
	}
	identity := no(ReasonNotStored, "The certificate of the cluster has not been seen yet.")
	if d.identityStored() {
		identity = yes(ReasonStored, "The key of the cluster is trusted; its certificate is in Secret "+SecretName(d.ID)+".")
	}
	networking := no(ReasonNotInThisVersion, "This version of liqo-agent does not connect the networks of the two clusters.")
	shown := fc.Status.Modules
	m.Authentication = api.Module{
		Enabled: d.identityStored(), Conditions: []api.Condition{identity.condition(ConditionIdentityStored, shown.Authentication.Conditions, d.now)},
	}
	m.Networking.Conditions = []api.Condition{networking.condition(ConditionAvailable, shown.Networking.Conditions, d.now)}
	m.Offloading = d.offloading(shown.Offloading)
	return m
}

// showActions returns the actions that make fc show the state of the peering.
func (d *derived) showActions(fc *api.ForeignCluster) []Action {
	var plan []Action
	var request, offer *api.ObjectReference
	if req := d.Request; req != nil && d.incoming.drop == "" {
		request = &api.ObjectReference{
			APIVersion: api.GroupVersion.String(), Kind: api.KindPeeringRequest, Name: req.Name, UID: string(req.UID),
		}
	}
	if adv := d.Advertisement; adv != nil && !d.dropsOffer() && !d.redundant(fc) {
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
	if status := d.peeringStatus(fc); !status.shownBy(fc) {
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
