package agent

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"liqo.io/agent/agent/control"
	"liqo.io/agent/agent/decisions"
	"liqo.io/agent/api"
	"liqo.io/agent/discovery/registry"
	"liqo.io/agent/peer"
	"liqo.io/agent/peering"
	"liqo.io/agent/peering/plan"
	"liqo.io/agent/trust"
)

// views builds what the control socket shows of peers, their peerings and requests. It
// is safe for concurrent use.
type views struct {
	id        peer.ClusterID
	key       *trust.Key
	registry  *registry.Registry
	decisions *decisions.Store
	peering   *peering.Controller
	sharing   *sharing
}

// Peers implements control.Backend.
func (b *backend) Peers(context.Context) ([]control.Peer, error) {
	all := b.registry.Peers()
	requests := b.requests()
	known := make(map[peer.ClusterID]bool, len(all))
	out := make([]control.Peer, 0, len(all))
	for _, p := range all {
		known[p.ID] = true
		out = append(out, b.view(p, requests))
	}
	// Peers that were trusted or connected in advance may never have been seen.
	for _, id := range b.decisions.Wanted() {
		if !known[id] && id != b.id {
			out = append(out, b.view(b.unseen(id), requests))
		}
	}
	return out, nil
}

// unseen returns the view of a peer that was never seen.
func (v *views) unseen(id peer.ClusterID) peer.Peer {
	return peer.Peer{ID: id, Alias: v.decisions.Preferences(id).Alias, Phase: peer.PhaseLost, Reason: "not seen yet"}
}

// Peer implements control.Backend.
func (b *backend) Peer(_ context.Context, id peer.ClusterID) (control.Peer, error) {
	p, known := b.registry.Peer(id)
	if !known {
		if !slices.Contains(b.decisions.Wanted(), id) {
			return control.Peer{}, notFound(id)
		}
		p = b.unseen(id)
	}
	return b.view(p, b.requests()), nil
}

// Requests implements control.Backend.
func (b *backend) Requests(context.Context) ([]control.Request, error) {
	out := make([]control.Request, 0)
	for _, r := range b.requests() {
		out = append(out, r)
	}
	slices.SortFunc(out, func(a, b control.Request) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.ID, b.ID))
	})
	return out, nil
}

// requests returns the requests that wait for a decision or were rejected, by cluster.
func (v *views) requests() map[peer.ClusterID]control.Request {
	out := make(map[peer.ClusterID]control.Request)
	for _, r := range v.peering.Requests() {
		id := peer.ClusterID(r.Name)
		phase := cmp.Or(r.Status.Phase, api.RequestPending)
		if phase == api.RequestAccepted {
			continue
		}
		view := control.Request{
			ID: r.Name, Name: r.Spec.ClusterIdentity.ClusterName, Kind: control.KindRequest, State: string(phase),
			Since: r.CreationTimestamp.UTC(), Message: r.Status.Message,
		}
		if accept := v.decisions.Policy(id).Accept; view.Message == accept.Message {
			view.Message = accept.Here
		}
		if pin := v.decisions.Pin(id); pin != nil {
			view.Fingerprint, view.Code = pin.Fingerprint.String(), trust.Code(v.key.Fingerprint(), pin.Fingerprint)
		}
		if p, ok := v.registry.Peer(id); ok {
			view.Address = p.URL
		}
		out[id] = view
	}
	for _, r := range v.decisions.Requests() {
		if r.Trusted {
			continue // its PeeringRequest says more
		}
		view := control.Request{
			ID: string(r.ID), Name: r.Name, Kind: control.KindAsk, State: string(api.RequestPending), Since: r.Since,
			Code: r.Code, Fingerprint: r.Fingerprint.String(), Address: address(r),
		}
		if p, ok := v.registry.Peer(r.ID); ok && !p.Fingerprint.IsZero() && p.Fingerprint != r.Fingerprint {
			view.Message = fmt.Sprintf("another key is known for this cluster ID: %s", p.Fingerprint)
		}
		out[r.ID] = view
	}
	return out
}

// view is a peer as the control socket shows it.
func (v *views) view(p peer.Peer, requests map[peer.ClusterID]control.Request) control.Peer {
	out := control.NewPeer(p)
	out.Remembered = !p.Fingerprint.IsZero()
	out.ForeignCluster = v.peering.ForeignCluster(p.ID)
	standing := v.decisions.Policy(p.ID)
	out.Code = standing.Code
	out.Trust = control.NewTrust(standing.Pin, standing.Distrusted)
	prefs := v.decisions.Preferences(p.ID)
	out.Preferences = control.Preferences{
		AutoConnect: choice(prefs.AutoConnect), AutoAccept: choice(prefs.AutoAccept),
		Blocked: standing.Blocked, BlockedHosts: prefs.Hosts(), Note: prefs.Note, URL: prefs.URL,
	}
	if r, ok := requests[p.ID]; ok {
		out.Request = &r
	}
	there := v.peering.View(p.ID)
	out.Role = string(cmp.Or(there.Role, api.RoleUnknown))
	out.Outgoing = direction(there.Outgoing)
	out.Incoming = direction(there.Incoming)
	out.Sharing = v.peerSharing(p.ID)
	if out.Outgoing.Reason == "" && standing.Connect == plan.Yes {
		out.Outgoing.Wanted = true
		out.Outgoing.Message = "It is connected as soon as the API server answers."
	}
	return out
}

// direction is one direction of a peering as the control socket shows it.
func direction(d plan.Direction) control.Direction {
	out := control.Direction{Wanted: d.Wanted, Joined: d.Joined, Ending: d.Ending, Reason: d.Reason, Message: d.Message, Since: d.Since,
		Steps: make([]control.Step, 0, len(d.Steps))}
	for _, s := range d.Steps {
		out.Steps = append(out.Steps, control.Step{Name: s.Name, Text: s.Text, Done: s.Done})
	}
	return out
}
