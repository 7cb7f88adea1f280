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
	"liqo.io/agent/peering/reason"
	"liqo.io/agent/sharing/spec"
)

// The conditions of the modules in a ForeignCluster's status.
const (
	// ConditionIdentityStored, of module authentication: the cluster's key is trusted
	// and its certificate is kept in a Secret.
	ConditionIdentityStored = "IdentityStored"
	// ConditionVirtualNode, of module offloading: there is a node for the cluster, and
	// it is ready. Its other reasons are those of the node.
	ConditionVirtualNode = "VirtualNode"
)

// trustedVerdict returns the content of the condition Trusted: whether the peer's key is trusted,
// by whom and since when; nil if that does not matter yet.
func (d *derived) trustedVerdict() *verdict {
	pin := d.Policy.Pin
	switch {
	case d.Policy.Distrusted:
		return no(reason.Distrusted, "Its key is marked as not trusted. To trust it: liqo-agent peers trust "+d.commandName())
	case pin != nil && d.otherKeySeen() != "":
		return no(reason.AnotherKey, "The cluster shows the key "+d.otherKeySeen()+", and trusted is "+pin.Fingerprint.String()+
			". If it was set up anew, take the new key with: liqo-agent peers trust "+d.commandName()+". Otherwise somebody pretends to be it.")
	case d.suspendedHere():
		return no(reason.CertificateEnded, d.suspension())
	case pin != nil:
		return yes(trustReason(pin.Method), trustMessage(*pin))
	case d.intent.join, d.Request != nil, d.Policy.Asked, d.shownTrusted():
		return no(reason.NotDecided, d.trustAdvice())
	}
	return nil
}

// otherKeySeen returns the key that is shown instead of the trusted one, "" for none. A second
// cluster with the same ID beside the right one is a conflict, and no reason to distrust the
// right one.
func (d *derived) otherKeySeen() string {
	switch p := d.Peer; {
	case d.otherKey():
		return p.Fingerprint.String()
	case p != nil && p.Conflict != nil && p.Phase != peer.PhasePresent && d.isOther(p.Conflict.Fingerprint):
		return p.Conflict.Fingerprint.String()
	}
	return ""
}

// suspension returns why trust is suspended, and what to do.
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
		return no(reason.CertificateEnded, d.suspension())
	}
	return yes(reason.CertificateEnded, d.keptFor("The peering is established, but suspended.")+" "+d.suspension())
}

// keptFor adds to a message for how long the peering is kept.
func (d *derived) keptFor(message string) string {
	if d.LostAfter > 0 {
		message += " It is kept for " + d.LostAfter.String() + "."
	}
	return message
}

// absence returns a sentence about the absence of a lost peer, called who.
func (d *derived) absence(who string) string {
	if d.suspended() {
		return "Trust between the two clusters has been suspended for longer than " + d.LostAfter.String() + ": a fleet certificate has expired."
	}
	return who + " has been away for longer than " + d.LostAfter.String() + "."
}

func (d *derived) shownTrusted() bool {
	return slices.ContainsFunc(d.live(), func(fc *api.ForeignCluster) bool { return fc.Condition(api.ConditionTrusted) != nil })
}

// trustAdvice returns what to do to trust the peer.
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
		advice += ", or: " + patchTrust(d.effective, api.TrustTrusted)
	}
	return advice
}

// patchTrust returns the command that sets spec.trustMode. Liqo has a kind of the same name, which is meant without the group
// where it is installed.
func patchTrust(fc *api.ForeignCluster, mode api.TrustMode) string {
	return "kubectl patch " + api.PluralForeignClusters + "." + api.GroupVersion.Group + " " + fc.Name + ` --type=merge -p '{"spec":{"trustMode":"` + string(mode) + `"}}'`
}

func trustReason(m peer.TrustMethod) string {
	switch m {
	case peer.TrustInvite:
		return reason.Invited
	case peer.TrustFleet:
		return reason.FleetCertified
	case peer.TrustStatic:
		return reason.Configured
	case peer.TrustRoots:
		return reason.SystemRoots
	case peer.TrustOpen:
		return reason.OpenPolicy
	}
	return reason.PersonDecided
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

// peeringStatus returns the desired status of fc about the peering.
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
		{api.ConditionNetworkReady, d.networkVerdict(fc.Status.Conditions)},
		{api.ConditionAutojoin, d.unjoinedVerdict()},
		{api.ConditionEngine, d.engineVerdict()},
		{api.ConditionAccessRequested, d.askVerdict(fc)},
	} {
		if c.verdict != nil {
			status.Conditions = append(status.Conditions, c.verdict.condition(c.kind, fc.Status.Conditions, d.now))
		}
	}
	return status
}

// unjoinedVerdict returns the content of the condition Autojoin: why the peer is not joined
// automatically; nil if it does not apply.
func (d *derived) unjoinedVerdict() *verdict {
	if why := d.Policy.NotAutojoined; why != (NotAutojoined{}) && !d.intent.wanted {
		return no(why.Reason, why.Message)
	}
	return nil
}

// askVerdict returns the content of the condition AccessRequested: a person has to decide whether
// the cluster may use ours, and how to do that; nil if not.
func (d *derived) askVerdict(fc *api.ForeignCluster) *verdict {
	switch ask := d.Policy.Ask; {
	case d.redundant(fc):
		return nil
	case ask != nil && d.knownKey(fc) != ask.Fingerprint.String():
		return yes(reason.OtherKey, "Somebody at "+ask.From+" asks to use this cluster, with the key "+ask.Fingerprint.String()+
			", which is not the one that is known. Find out why; then: liqo-agent peers accept, or reject, "+string(d.ID))
	case ask != nil:
		return yes(reason.Pending, "It asks for access from "+ask.From+". If it shows the code "+ask.Code+" too, accept it with: "+
			patchTrust(fc, api.TrustTrusted)+", or: liqo-agent peers accept "+d.commandName()+". Refuse it with: "+patchTrust(fc, api.TrustUntrusted)+
			", or: liqo-agent peers reject "+d.commandName())
	case d.incoming.decision != nil && d.incoming.decision.Phase == api.RequestPending:
		phase := "kubectl patch peeringrequest " + string(d.ID) + ` --subresource=status --type=merge -p '{"status":{"phase":"%s"}}'`
		return yes(reason.Pending, "Its PeeringRequest is pending. Accept it with: "+fmt.Sprintf(phase, api.RequestAccepted)+", or: liqo-agent peers accept "+d.commandName()+
			". Refuse it with: "+fmt.Sprintf(phase, api.RequestRefused)+", or: liqo-agent peers reject "+d.commandName())
	}
	return nil
}

// knownKey returns the key that fc shows, to which spec.trustMode applies.
func (d *derived) knownKey(fc *api.ForeignCluster) string {
	if d.Peer != nil && !d.Peer.Fingerprint.IsZero() {
		return d.Peer.Fingerprint.String()
	}
	if fc.Status.Fingerprint == "" && d.Policy.Ask != nil {
		return d.Policy.Ask.Fingerprint.String()
	}
	return fc.Status.Fingerprint
}

// condition returns the new condition, given the present ones. The transition time changes only
// with the status.
func (v verdict) condition(kind string, shown []api.Condition, now time.Time) api.Condition {
	next := api.Condition{
		Type: kind, Status: v.status, Reason: v.reason, Message: v.message, LastTransitionTime: metav1.NewTime(now.Truncate(time.Second)),
	}
	next.KeepTransition(shown)
	return next
}

// role returns the role of the peer.
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

// authStatus returns the answer to our request for access.
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

// knownAuth returns auth if it is valid, and AuthPending otherwise. It comes from the peer.
func knownAuth(auth api.AuthStatus) api.AuthStatus {
	switch auth {
	case api.AuthAccepted, api.AuthRefused, api.AuthEmptyRefused:
		return auth
	}
	return api.AuthPending
}

// secretRef refers to the Secret with the peer's identity, nil while there is none.
func (d *derived) secretRef() *api.ObjectReference {
	if !d.identityStored() {
		return nil
	}
	return &api.ObjectReference{APIVersion: "v1", Kind: "Secret", Name: SecretName(d.ID), Namespace: d.Namespace}
}

// modules returns the state of the modules; zero without a peering.
func (d *derived) modules(fc *api.ForeignCluster) api.Modules {
	var m api.Modules
	if !d.outgoing.active && !d.outgoing.draining && !d.incoming.keep {
		return m
	}
	identity := no(reason.NotStored, "The certificate of the cluster has not been seen yet.")
	if d.identityStored() {
		identity = yes(reason.Stored, "The key of the cluster is trusted; its certificate is in Secret "+SecretName(d.ID)+".")
	}
	shown := fc.Status.Modules
	m.Authentication = api.Module{
		Enabled: d.identityStored(), Conditions: []api.Condition{identity.condition(ConditionIdentityStored, shown.Authentication.Conditions, d.now)},
	}
	if v := d.networkVerdict(shown.Networking.Conditions); v != nil {
		m.Networking = api.Module{Enabled: d.Network.Enabled || d.byLiqo() && v.status == api.ConditionTrue, Conditions: []api.Condition{v.condition(api.ConditionNetworkReady, shown.Networking.Conditions, d.now)}}
	}
	m.Offloading = d.offloading(shown.Offloading)
	d.addLiqo(&m, shown)
	return m
}

// networkVerdict returns the content of the condition NetworkReady: whether packets pass between
// the pods of the two clusters; nil without a peering. While that is not known, what is shown
// stays.
func (d *derived) networkVerdict(shown []api.Condition) *verdict {
	if !d.outgoing.active && !d.outgoing.draining && !d.incoming.keep {
		return nil
	}
	n := d.Network
	switch {
	case d.byLiqo():
		n = d.liqoNetworking()
	case n.Status == "":
		n = spec.Network{Status: api.ConditionFalse, Reason: reason.NotShared, Message: "No resources are shared with the cluster at present."}
	}
	if n.Status == api.ConditionUnknown {
		for _, c := range shown {
			if c.Type == api.ConditionNetworkReady {
				return &verdict{c.Status, c.Reason, c.Message}
			}
		}
	}
	return &verdict{n.Status, n.Reason, n.Message}
}

// showActions returns the actions that write the state of the peering to the status of fc.
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
			c.Type != api.ConditionNetworkReady && c.Type != api.ConditionAutojoin && c.Type != api.ConditionEngine && c.Type != api.ConditionAccessRequested
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
