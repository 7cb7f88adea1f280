package plan

import (
	"slices"
	"time"

	"liqo.io/agent/api"
)

// Leftovers says what is left of the peerings with a peer while they end.
type Leftovers struct {
	// Outgoing and Incoming: something of that peering is left, here or there.
	Outgoing, Incoming bool
	// Reachable: the peer can be asked to remove its part.
	Reachable bool
}

// Left reports whether anything is left.
func (b Leftovers) Left() bool { return b.Outgoing || b.Incoming }

// Leftovers returns what is left of the peerings with the peer.
func (obs Observed) Leftovers(now time.Time) Leftovers { return derive(obs, now).leftovers() }

// leftovers is Leftovers for what is derived already.
func (d *derived) leftovers() Leftovers {
	state := d.remoteState()
	outgoing, incoming := d.leftHere()
	return Leftovers{
		Outgoing:  outgoing || state != nil && state.Request != nil,
		Incoming:  incoming || state != nil && state.Advertisement != nil,
		Reachable: d.Reachable(),
	}
}

// leftHere reports whether anything is left in this cluster.
func (d *derived) leftHere() (outgoing, incoming bool) {
	out := d.outgoing
	outgoing = out.keep || out.draining || d.joinIsStale() || d.finalizers() && !d.undone() || d.Advertisement != nil || !d.usesNode() && d.Node.Busy || d.Liqo.Consuming.Busy
	return outgoing, d.Request != nil || d.Hosting || d.Liqo.Serving.Busy
}

// joinIsStale reports whether spec.join of an object is still true although the peering is not
// wanted.
func (d *derived) joinIsStale() bool {
	return !d.intent.join && slices.ContainsFunc(d.live(), func(fc *api.ForeignCluster) bool { return fc.Spec.Join })
}
