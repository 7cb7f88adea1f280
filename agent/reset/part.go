package reset

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"liqo.io/agent/agent/control"
	"liqo.io/agent/agent/statedir"
	"liqo.io/agent/kube/conn"
	"liqo.io/agent/kube/work"
	"liqo.io/agent/peer"
)

const (
	// partPatience bounds the time to notify peers and to end their pods and ours;
	// unreachedPatience bounds the attempts to reach a peer since it last answered.
	partPatience      = 3 * time.Minute
	unreachedPatience = 10 * time.Second
	// partPause is the pause between two checks of what is left.
	partPause = 250 * time.Millisecond
)

// partners returns the clusters with a peering, with one that is wanted, or with
// leftovers of one.
func (s *Resetter) partners() []peer.ClusterID {
	self, found := s.cfg.Self().ClusterID, make(map[peer.ClusterID]bool)
	consider := func(id peer.ClusterID) {
		if found[id] || id == self {
			return
		}
		view := s.cfg.Peering.View(id)
		between, _ := s.cfg.Peering.Leftovers(id)
		if between.Left() || view.Outgoing.Wanted || view.Outgoing.Joined || view.Incoming.Wanted || view.Incoming.Joined {
			found[id] = true
		}
	}
	for _, id := range s.cfg.Decisions.Wanted() {
		consider(id)
	}
	for _, pin := range s.cfg.Decisions.Pins() {
		consider(pin.ID)
	}
	for _, p := range s.cfg.Registry.Peers() {
		consider(p.ID)
	}
	return slices.Sorted(maps.Keys(found))
}

// partWithAll ends the peerings with all peers, on both sides, and returns which peers
// were notified. It updates the progress.
func (s *Resetter) partWithAll(ctx context.Context, r statedir.Reset, view control.Reset) (peers []control.ResetPeer, failed []string) {
	started := s.cfg.Now()
	told := make(map[peer.ClusterID]string)
	reached := make(map[peer.ClusterID]bool)
	patience := make(map[peer.ClusterID]time.Time) // until when to wait for a peer that does not answer
	noServer := false
	endNew := func() (found bool) {
		for _, id := range s.partners() {
			if told[id] == "" {
				s.endWith(ctx, id, r.By)
				told[id], patience[id], found = control.ResetPeerWaits, s.cfg.Now().Add(unreachedPatience), true
			}
		}
		return found
	}
	for look := 0; ; look++ {
		if look%8 == 0 { // checking thousands of peers takes a while
			endNew()
		}
		now, waiting := s.cfg.Now(), false
		for id := range told {
			between, known := s.cfg.Peering.Leftovers(id)
			noServer = !known
			if known && between.Reachable {
				reached[id], patience[id] = true, now.Add(unreachedPatience)
			}
			switch {
			case !known || between.Left():
				waiting = waiting || !now.After(patience[id])
			case reached[id]: // also if it misses a check, or went, since
				told[id] = control.ResetPeerTold
			default:
				told[id] = control.ResetPeerNotTold
			}
		}
		view.Peers = s.resetPeers(told)
		s.cfg.Progress.set(view)
		took := now.Sub(started)
		if !s.cfg.Peering.Status().Connected && s.cfg.Settings().Cluster.Kubeconfig != conn.KubeconfigNone {
			waiting = waiting || took <= unreachedPatience // after a start, the peerings are not known at once
		}
		if (!waiting || took > partPatience) && !endNew() {
			break
		}
		if work.Sleep(ctx, partPause) != nil {
			return view.Peers, nil
		}
	}
	for id, how := range told {
		if how == control.ResetPeerWaits {
			told[id] = control.ResetPeerNotTold
		}
	}
	peers = s.resetPeers(told)
	for _, p := range peers {
		if p.State == control.ResetPeerNotTold {
			failed = append(failed, fmt.Sprintf("peer %s could not be notified: it notices the reset by itself", orID(p)))
		}
	}
	if noServer && len(failed) > 0 {
		failed = append(failed, "the API server of this cluster does not answer: without it, a peering cannot be ended in order")
	}
	return peers, failed
}

func orID(p control.ResetPeer) string {
	if p.Name != "" {
		return p.Name + " (" + p.ID + ")"
	}
	return p.ID
}

// endWith ends both peerings with a peer, as a person would.
func (s *Resetter) endWith(ctx context.Context, id peer.ClusterID, by string) {
	err := errors.Join(s.cfg.Decisions.Disconnect(ctx, id, by), s.cfg.Decisions.DisconnectIncoming(ctx, id, by, "The provider is being reset to its factory state."))
	if err != nil && ctx.Err() == nil {
		s.cfg.Logger.Warn("the peerings with a peer cannot be ended properly", "peer", id, "error", err)
	}
}

func (s *Resetter) resetPeers(told map[peer.ClusterID]string) []control.ResetPeer {
	var out []control.ResetPeer
	for _, id := range slices.Sorted(maps.Keys(told)) {
		p, _ := s.cfg.Registry.Peer(id)
		out = append(out, control.ResetPeer{ID: string(id), Name: p.Name, State: told[id]})
	}
	return out
}
