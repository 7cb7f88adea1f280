package plan

import (
	"slices"
	"time"

	"liqo.io/agent/api"
)

// Leftovers is what is left between us and a peer while peerings end.
type Leftovers struct {
	// Outgoing: something of our consuming its resources is left, here or there.
	// Incoming: something of its consuming ours is.
	Outgoing, Incoming bool
	// Reachable: it can be told.
	Reachable bool
}

// Left reports whether anything is left.
func (b Leftovers) Left() bool { return b.Outgoing || b.Incoming }

// Leftovers returns what is left between us and the peer.
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
	outgoing = out.keep || out.draining || d.joinIsStale() || d.finalizers() && !d.undone() || d.Advertisement != nil || !d.usesNode() && d.Node.Busy
	return outgoing, d.Request != nil || d.Hosting
}

// joinIsStale reports whether an object still says that the peer is to be joined, and it is
// not.
func (d *derived) joinIsStale() bool {
	return !d.intent.join && slices.ContainsFunc(d.live(), func(fc *api.ForeignCluster) bool { return fc.Spec.Join })
}
