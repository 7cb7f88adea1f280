package backend

import (
	"context"

	"liqo.io/agent/agent/control"
	"liqo.io/agent/peer"
)

// Watch publishes the changes of peers to the watchers of the control socket, until ctx
// ends.
func (v *Views) Watch(ctx context.Context, publish func(control.WatchEvent)) error {
	sub := v.registry.Subscribe()
	defer sub.Close()
	here := make(map[peer.ClusterID]peer.Peer)
	for _, p := range v.registry.Peers() {
		if p.Phase != peer.PhaseLost {
			here[p.ID] = p
		}
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-sub.Ready():
		}
		for _, id := range sub.Take() {
			before, was := here[id]
			p, known := v.registry.Peer(id)
			is := known && p.Phase != peer.PhaseLost
			kind := control.WatchUpdated
			switch {
			case !was && !is:
				continue
			case !was:
				kind = control.WatchFound
			case !is:
				kind = control.WatchLost
			}
			if is {
				here[id] = p
			} else {
				delete(here, id)
			}
			if !known {
				p = before.Clone()
				p.Phase, p.Reason = peer.PhaseLost, "it is no longer seen"
			}
			view := v.view(p, v.OpenRequests())
			publish(control.WatchEvent{Event: kind, Peer: &view})
		}
	}
}
