package agent

import (
	"cmp"
	"context"
	"errors"
	"net/netip"
	"slices"
	"sync"
	"time"

	"liqo.io/agent/agent/control"
	"liqo.io/agent/endpoint"
	"liqo.io/agent/endpoint/client"
	"liqo.io/agent/endpoint/wire"
	"liqo.io/agent/peer"
)

// callBackTo checks for a peer whether its endpoint can be reached from here. Its
// client keeps no connections, so each check opens a new one.
func (s *session) callBackTo(ctx context.Context, caller endpoint.Caller, at netip.AddrPort) wire.Reached {
	return s.asker.CallBack(ctx, caller.Shown.Fingerprint, at)
}

// Reach implements control.Diagnoser.
func (b *backend) Reach(ctx context.Context) ([]control.Reach, error) {
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
func (b *backend) closeness(id peer.ClusterID) int {
	view, n := b.peering.View(id), 0
	for _, is := range []bool{view.Outgoing.Wanted, view.Outgoing.Joined, view.Incoming.Wanted, view.Incoming.Joined} {
		if is {
			n++
		}
	}
	return n
}

// reachFrom asks one peer to call us back.
func (b *backend) reachFrom(ctx context.Context, p peer.Peer) control.Reach {
	out := control.Reach{ID: string(p.ID), Name: cmp.Or(p.Alias, p.Name)}
	target := peer.Target{ID: p.ID, Fingerprint: p.Fingerprint, Addrs: p.Addrs, URL: p.URL}
	reached, err := b.client.Reach(ctx, target, b.greeting())
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
func (b *backend) identify(ctx context.Context, target peer.Target) (client.Result, error) {
	res, err := b.client.Identify(ctx, target)
	if err == nil && res.Identity.ClusterID == b.id {
		return client.Result{}, errSelf
	}
	return res, err
}
