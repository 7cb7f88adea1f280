package backend

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"liqo.io/agent/agent/connect"
	"liqo.io/agent/agent/control"
	"liqo.io/agent/agent/decisions"
	"liqo.io/agent/agent/sharing"
	"liqo.io/agent/api"
	"liqo.io/agent/discovery/registry"
	"liqo.io/agent/peer"
	"liqo.io/agent/peering"
	"liqo.io/agent/peering/plan"
	"liqo.io/agent/trust"
)

// Views builds what the control socket shows of peers, their peerings, requests and
// offers. It is safe for concurrent use.
type Views struct {
	id        peer.ClusterID
	key       *trust.Key
	registry  *registry.Registry
	decisions *decisions.Store
	peering   *peering.Controller
	sharing   *sharing.Sharing
	connect   *connect.Connect
}

// NewViews returns the views of the session of cluster id with its key.
func NewViews(id peer.ClusterID, key *trust.Key, r *registry.Registry, d *decisions.Store, p *peering.Controller, s *sharing.Sharing, c *connect.Connect) *Views {
	return &Views{id: id, key: key, registry: r, decisions: d, peering: p, sharing: s, connect: c}
}

// Peers implements socket.Backend.
func (b *Backend) Peers(context.Context) ([]control.Peer, error) {
	all := b.registry.Peers()
	requests := b.OpenRequests()
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
func (v *Views) unseen(id peer.ClusterID) peer.Peer {
	return peer.Peer{ID: id, Alias: v.decisions.Preferences(id).Alias, Phase: peer.PhaseLost, Reason: "not seen yet"}
}

// Peer implements socket.Backend.
func (b *Backend) Peer(_ context.Context, id peer.ClusterID) (control.Peer, error) {
	p, known := b.registry.Peer(id)
	if !known {
		if !slices.Contains(b.decisions.Wanted(), id) {
			return control.Peer{}, notFound(id)
		}
		p = b.unseen(id)
	}
	b.connect.Refresh()
	return b.view(p, b.OpenRequests()), nil
}

// Requests implements socket.Backend.
func (b *Backend) Requests(context.Context) ([]control.Request, error) {
	return slices.SortedFunc(maps.Values(b.OpenRequests()), func(a, b control.Request) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.ID, b.ID))
	}), nil
}

// OpenRequests returns the requests that wait for a decision or were rejected, by
// cluster.
func (v *Views) OpenRequests() map[peer.ClusterID]control.Request {
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
			continue // its PeeringRequest has more details
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

// PendingRequests counts the requests that wait for a decision.
func (v *Views) PendingRequests() (n int) {
	for _, r := range v.OpenRequests() {
		if r.State == string(api.RequestPending) {
			n++
		}
	}
	return n
}

// view is a peer as the control socket shows it.
func (v *Views) view(p peer.Peer, requests map[peer.ClusterID]control.Request) control.Peer {
	out := control.NewPeer(p)
	out.Remembered = !p.Fingerprint.IsZero()
	out.ForeignCluster = v.peering.ForeignCluster(p.ID)
	standing := v.decisions.Policy(p.ID)
	out.Code = standing.Code
	out.Trust = control.NewTrust(standing.Pin, standing.Distrusted)
	prefs := v.decisions.Preferences(p.ID)
	out.Preferences = control.Preferences{
		AutoConnect: control.Choice(prefs.AutoConnect.String()), AutoAccept: control.Choice(prefs.AutoAccept.String()),
		Blocked: standing.Blocked, BlockedHosts: prefs.Hosts(), Note: prefs.Note, URL: prefs.URL,
		CPU: prefs.CPU, Memory: prefs.Memory,
	}
	if r, ok := requests[p.ID]; ok {
		out.Request = &r
	}
	there := v.peering.View(p.ID)
	out.Role = string(cmp.Or(there.Role, api.RoleUnknown))
	out.Outgoing = direction(there.Outgoing)
	out.Incoming = direction(there.Incoming)
	out.Engine = there.Engine
	if out.Sharing = v.peerSharing(p.ID); out.Sharing.Provider != nil || out.Sharing.Consumer != nil {
		one := v.networkTo(p.ID)
		out.Network = &one
	}
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
