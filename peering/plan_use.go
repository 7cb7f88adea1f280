package peering

import (
	"time"

	"liqo.io/agent/api"
)

// drainSlack is how much longer than sharing.drain_timeout a peering is kept for a
// node that is being drained.
const drainSlack = time.Minute

// This file is about what comes of our consuming a peer's resources: its node here.

// provision returns how our use of the peer is to stand.
func (f *facts) provision() Provision {
	p := Provision{ID: f.ID, Gone: f.outgoing.givenUp, Reachable: !f.silent() && !f.denied() && !f.suspended()}
	if f.Peer != nil {
		p.Name = f.Peer.Name
	}
	if f.Standing.Pin != nil && !f.Standing.Distrusted && !f.suspendedHere() {
		p.Target = f.target()
	}
	if p.Wanted = f.usesNode(); p.Wanted && !f.OfferExpired {
		p.Offer = &f.Advertisement.Spec
	}
	switch {
	case p.Reachable:
	case f.suspended():
		p.Why = f.suspension()
	case f.denied():
		p.Why = "The provider does not let this cluster in any more."
	case f.Remote.State != nil && !f.Remote.State.Kubernetes && f.Reachable():
		p.Why = "The API server of the provider does not answer."
	case f.Peer != nil && f.Peer.Reason != "":
		p.Why = "The provider does not answer: " + sentence(f.Peer.Reason)
	default:
		p.Why = "The provider does not answer."
	}
	return p
}

// usesNode reports whether there is to be a node for the peer: while we are joined.
// One that is there stays while it is not known whether we still are, for what the
// provider does not say is not so.
func (f *facts) usesNode() bool {
	out, heard := f.outgoing, f.heard()
	if !f.Sharing.Use || !out.active || !usable(out.offer) {
		return false
	}
	refused := f.denied() || heard != nil && heard.Request != nil && heard.Request.Phase == api.RequestRefused
	return out.joined || f.Use.Node != "" && !refused
}

// busy reports whether something of our use of the peer is left, or may be.
func (f *facts) busy() bool { return f.Use.Busy || !f.UseKnown }

// gaveUp reports whether there is no point in asking the provider anything any
// more.
func (f *facts) gaveUp(keep bool) bool {
	s := f.Standing
	switch {
	case keep:
		return f.denied() && f.overdue()
	case f.lost, s.Pin == nil, s.Distrusted, s.Blocked && !f.Reachable():
		return true
	}
	return f.overdue()
}

// requestEnded reports whether the provider says that it has no request of ours.
func (f *facts) requestEnded() bool {
	heard := f.heard()
	return heard != nil && heard.Request == nil
}

// overdue reports whether the node has been drained for longer than that may take.
func (f *facts) overdue() bool { return f.Draining >= f.Sharing.DrainTimeout+drainSlack }

// drains reports whether a peering that nobody wants any more is kept until the
// pods that run there have left.
func (f *facts) drains(out outgoing) bool {
	past := f.finalizers() || f.shown.Status.Outgoing.RemotePeeringRequestName != ""
	return !out.keep && !out.givenUp && past && f.busy()
}

// silent reports whether the peer has failed so many checks that its node is not
// ready.
func (f *facts) silent() bool { return f.Quiet > 0 && f.Quiet >= f.patience() }

// patience is how long a peer may be silent from the first check that failed.
func (f *facts) patience() time.Duration {
	return time.Duration(max(f.Sharing.KeepaliveThreshold-1, 0)) * f.Sharing.KeepaliveRetry
}

// worries reports whether a check of a peer failed whose node is ready still.
func (f *facts) worries() bool {
	return f.Quiet > 0 && !f.silent() && (f.usesNode() || f.Use.Node != "")
}

// keepalive returns whether the peer is to be asked now, and after how long it is
// to be looked at again.
func (f *facts) keepalive() (check bool, again time.Duration) {
	if !f.worries() {
		return false, 0
	}
	next := f.Sharing.KeepaliveRetry - f.now.Sub(f.Remote.Tried)
	if check = next <= 0; check {
		next = f.Sharing.KeepaliveRetry
	}
	return check, max(min(next, f.patience()-f.Quiet), time.Millisecond)
}

// nodeRef names the node that stands for the offer, nil while there is none.
func (f *facts) nodeRef() *api.ObjectReference {
	switch {
	case !f.UseKnown:
		return f.Advertisement.Status.VnodeReference
	case f.Use.Node == "":
		return nil
	}
	return &api.ObjectReference{APIVersion: "v1", Kind: "Node", Name: f.Use.Node}
}

// offloading says how the module stands that runs pods in the other cluster.
func (f *facts) offloading(shown api.Module) api.Module {
	v := f.nodeVerdict()
	if !f.UseKnown && len(shown.Conditions) > 0 {
		return shown
	}
	return api.Module{Enabled: f.Use.Node != "", Conditions: []api.Condition{v.condition(ConditionVirtualNode, shown.Conditions, f.now)}}
}

// nodeVerdict says how the node of the peer stands.
func (f *facts) nodeVerdict() *verdict {
	use, message := f.Use, sentence(f.Use.Message)
	switch {
	case use.Node != "" && use.Ready:
		if message == "" {
			message = "Node " + use.Node + " is ready."
		}
		return yes(ReasonNodeReady, message)
	case !f.Sharing.Use && f.outgoing.active:
		text := "What other clusters offer is not used here (sharing.use = false)."
		if message != "" && use.Busy {
			text += " " + message
		}
		return no(ReasonSwitchedOff, text)
	case use.Reason != "" && (use.Busy || f.usesNode()):
		return no(use.Reason, message)
	case f.usesNode():
		return no(ReasonNodePending, "The node is about to be made.")
	}
	return no(ReasonNoNode, "There is no node for the cluster: its resources are not used.")
}
