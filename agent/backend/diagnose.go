package backend

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"liqo.io/agent/agent/control"
	"liqo.io/agent/endpoint/client"
	"liqo.io/agent/peer"
)

// Reach implements socket.Diagnoser.
func (b *Backend) Reach(ctx context.Context) ([]control.Reach, error) {
	var asked []peer.Peer
	for _, p := range b.registry.Peers() {
		if p.Phase == peer.PhasePresent && b.decisions.Policy(p.ID).Pin != nil {
			asked = append(asked, p)
		}
	}
	// Peers with a peering come first: those must be able to connect.
	slices.SortStableFunc(asked, func(x, y peer.Peer) int {
		return cmp.Compare(b.closeness(y.ID), b.closeness(x.ID))
	})
	asked = asked[:min(len(asked), control.MaxReach)]
	out := make([]control.Reach, len(asked))
	var asking sync.WaitGroup
	for i, p := range asked {
		asking.Go(func() { out[i] = b.reachFrom(ctx, p) })
	}
	asking.Wait()
	slices.SortFunc(out, func(x, y control.Reach) int { return cmp.Or(cmp.Compare(x.Name, y.Name), cmp.Compare(x.ID, y.ID)) })
	return out, nil
}

// closeness orders peers by their peerings: it counts those that are wanted or joined,
// in each direction.
func (b *Backend) closeness(id peer.ClusterID) int {
	view, n := b.peering.View(id), 0
	for _, holds := range []bool{view.Outgoing.Wanted, view.Outgoing.Joined, view.Incoming.Wanted, view.Incoming.Joined} {
		if holds {
			n++
		}
	}
	return n
}

// reachFrom asks one peer to call us back.
func (b *Backend) reachFrom(ctx context.Context, p peer.Peer) control.Reach {
	out := control.Reach{ID: string(p.ID), Name: cmp.Or(p.Alias, p.Name)}
	target := peer.Target{ID: p.ID, Fingerprint: p.Fingerprint, Addrs: p.Addrs, URL: p.URL}
	reached, err := b.Client.Reach(ctx, target, b.Greeting())
	if err != nil {
		out.Error, out.Unsupported = err.Error(), errors.Is(err, client.ErrNoReach)
		return out
	}
	out.Outcome, out.Address, out.Detail = string(reached.Outcome), reached.Address, reached.Detail
	if !reached.Time.IsZero() {
		skew := time.Until(reached.Time).Seconds()
		out.SkewSeconds = &skew
	}
	return out
}

// errSelf: the URL is our own.
var errSelf = errors.New("this is our own endpoint")

// identify returns the cluster that answers at a URL.
func (b *Backend) identify(ctx context.Context, target peer.Target) (client.Result, error) {
	res, err := b.Client.Identify(ctx, target)
	if err == nil && res.Identity.ClusterID == b.id {
		return client.Result{}, errSelf
	}
	return res, err
}
