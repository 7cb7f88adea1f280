package plan

import (
	"time"

	"liqo.io/agent/api"
	"liqo.io/agent/peer"
	"liqo.io/agent/peer/text"
	"liqo.io/agent/peering/reason"
	"liqo.io/agent/sharing/spec"
)

// drainSlack is how much longer than sharing.drain_timeout a peering is kept for a draining
// node.
const drainSlack = time.Minute

// NodeSpec returns the desired state of the peer's node here, without Called and Excess, and the
// target at which to call the provider. A target without a fingerprint cannot be called.
func (obs Observed) NodeSpec(now time.Time) (node spec.Node, target peer.Target) {
	d := derive(obs, now)
	if d.Policy.Pin != nil && !d.Policy.Distrusted && !d.suspendedHere() {
		target = d.target()
	}
	return d.nodeSpec(), target
}

func (d *derived) nodeSpec() spec.Node {
	p := spec.Node{ID: d.ID, Gone: d.outgoing.abandoned, Expelled: d.expelled(), Reachable: !d.unresponsive() && !d.denied() && !d.suspended()}
	if d.Peer != nil {
		p.Name = d.Peer.Name
	}
	if p.Wanted = d.usesNode(); p.Wanted && !d.OfferExpired {
		p.Offer = &d.Advertisement.Spec
	}
	p.Shown = d.Advertisement != nil && d.Advertisement.Status.VnodeReference != nil
	switch {
	case p.Reachable:
	case d.suspended():
		p.Why = d.suspension()
	case d.denied():
		p.Why = "The provider no longer gives this cluster access."
	case d.Remote.State != nil && !d.Remote.State.Kubernetes && d.Reachable():
		p.Why = "The API server of the provider does not answer."
	case d.Peer != nil && d.Peer.Reason != "":
		p.Why = "The provider does not answer: " + text.Sentence(d.Peer.Reason)
	default:
		p.Why = "The provider does not answer."
	}
	return p
}

// usesNode reports whether to have a node for the peer: while the outgoing peering is
// established, and an existing one also while it is unknown whether it still is.
func (d *derived) usesNode() bool {
	out := d.outgoing
	if !d.Sharing.Use || !out.active || !usable(out.offer) {
		return false
	}
	return out.joined || d.hasNode() && !d.refusedThere()
}

// hasNode reports whether there is a node for the peer. While that is not known, what is shown counts.
func (d *derived) hasNode() bool {
	if !d.NodeKnown {
		return d.Advertisement != nil && d.nodeRef() != nil
	}
	return d.Node.Name != ""
}

// refusedThere reports whether the provider has decided against this cluster. Without an answer, and
// while it has no decision, it has not.
func (d *derived) refusedThere() bool {
	state := d.remoteState()
	return d.denied() || state != nil && state.Request != nil && state.Request.Phase == api.RequestRefused
}

// busy reports whether something of the node, or of what Liqo made, is left, or may be.
func (d *derived) busy() bool {
	return d.Node.Busy || !d.NodeKnown || d.Liqo.Consuming.Busy || d.Liqo.Consuming.Unknown
}

// abandons reports whether to send no more requests to the provider.
func (d *derived) abandons(keep bool) bool {
	s := d.Policy
	switch {
	case keep:
		return d.denied() && d.drainOverdue()
	case d.lost, s.Pin == nil, s.Distrusted, s.Blocked && !d.Reachable():
		return true
	}
	return d.drainOverdue()
}

// requestEnded reports whether the provider reports that it has no request of ours.
func (d *derived) requestEnded() bool {
	state := d.remoteState()
	return state != nil && state.Request == nil
}

// drainOverdue reports whether the drain of the node takes too long.
func (d *derived) drainOverdue() bool { return d.Draining >= d.Sharing.DrainTimeout+drainSlack }

// drains reports whether a peering that is no longer wanted is kept until our pods have left.
func (d *derived) drains(out outgoing) bool {
	return !out.keep && !out.abandoned && d.past() && d.busy()
}

// past reports whether there is something of an outgoing peering.
func (d *derived) past() bool {
	return d.finalizers() || d.shown.Status.Outgoing.RemotePeeringRequestName != ""
}

// unresponsive reports whether so many checks failed that the node is not ready.
func (d *derived) unresponsive() bool { return d.Quiet > 0 && d.Quiet >= d.keepaliveLimit() }

// keepaliveLimit is how long a peer may be silent after the first failed check.
func (d *derived) keepaliveLimit() time.Duration {
	return time.Duration(max(d.Sharing.KeepaliveThreshold-1, 0)) * d.Sharing.KeepaliveRetry
}

// suspects reports whether a check of the peer failed, and its node is still ready.
func (d *derived) suspects() bool {
	return d.Quiet > 0 && !d.unresponsive() && (d.usesNode() || d.Node.Name != "")
}

// keepalive returns whether to check the peer now, and after how long to reconcile again.
func (d *derived) keepalive() (check bool, again time.Duration) {
	if !d.suspects() {
		return false, 0
	}
	next := d.Sharing.KeepaliveRetry - d.now.Sub(d.Remote.Tried)
	if check = next <= 0; check {
		next = d.Sharing.KeepaliveRetry
	}
	return check, max(min(next, d.keepaliveLimit()-d.Quiet), time.Millisecond)
}

// nodeRef refers to the node of the peer, nil while there is none.
func (d *derived) nodeRef() *api.ObjectReference {
	switch {
	case !d.NodeKnown:
		return d.Advertisement.Status.VnodeReference
	case d.Node.Name == "":
		return nil
	}
	return &api.ObjectReference{APIVersion: "v1", Kind: "Node", Name: d.Node.Name}
}

// offloading returns the state of the module offloading.
func (d *derived) offloading(shown api.Module) api.Module {
	if d.outgoing.active && d.outgoing.liqo {
		return d.liqoOffloading(shown)
	}
	v := d.nodeVerdict()
	if !d.NodeKnown && len(shown.Conditions) > 0 {
		return shown
	}
	return api.Module{Enabled: d.Node.Name != "", Conditions: []api.Condition{v.condition(ConditionVirtualNode, shown.Conditions, d.now)}}
}

// nodeVerdict returns the content of the condition VirtualNode.
func (d *derived) nodeVerdict() *verdict {
	use, message := d.Node, text.Sentence(d.Node.Message)
	switch {
	case use.Name != "" && use.Ready:
		if message == "" {
			message = "Node " + use.Name + " is ready."
		}
		return yes(reason.NodeReady, message)
	case !d.Sharing.Use && d.outgoing.active:
		off := "Offers of other clusters are not used here (sharing.use = false)."
		if message != "" && use.Busy {
			off += " " + message
		}
		return no(reason.SwitchedOff, off)
	case use.Reason != "" && (use.Busy || d.usesNode()):
		return no(use.Reason, message)
	case d.usesNode():
		return no(reason.NodePending, "The node is being created.")
	}
	return no(reason.NoNode, "There is no node for this cluster; its resources are not used.")
}
