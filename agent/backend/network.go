package backend

import (
	"cmp"
	"context"
	"net/netip"
	"slices"
	"strings"
	"time"

	"liqo.io/agent/agent/control"
	"liqo.io/agent/network"
	"liqo.io/agent/peer"
	"liqo.io/agent/peer/text"
	"liqo.io/agent/peering/reason"
	"liqo.io/agent/sharing/connectivity"
)

// Network implements socket.Backend.
func (b *Backend) Network(context.Context) (control.Network, error) { return b.network(), nil }

func (b *Backend) network() control.Network {
	var out control.Network
	b.connect.Refresh()
	if problem := b.connect.Problem(); problem != nil {
		out.Reason, out.Message = problem.Reason, problem.Message
	}
	addresses, _, wrong := b.connect.Names()
	out.Names.Addresses = make([]string, 0, len(addresses))
	for _, a := range addresses {
		out.Names.Addresses = append(out.Names.Addresses, a.String())
	}
	if wrong != nil {
		out.Names.Message = wrong.Error()
	}
	for _, id := range b.sharing.Peers() {
		out.Peers = append(out.Peers, b.networkTo(id))
	}
	slices.SortFunc(out.Peers, func(a, b control.NetworkPeer) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.ID, b.ID))
	})
	return out
}

// probeTimeout is how long the answer to a probe is waited for.
const probeTimeout = 3 * time.Second

// ProbeNetwork implements socket.Backend.
func (b *Backend) ProbeNetwork(ctx context.Context, id peer.ClusterID) (control.NetworkProbe, error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	took, err := b.connect.Probe(ctx, id)
	if err != nil {
		return control.NetworkProbe{Message: err.Error()}, nil
	}
	return control.NetworkProbe{RTTMicroseconds: max(took.Microseconds(), 1)}, nil
}

// networkTo is the network to a peer with which resources are shared.
func (v *Views) networkTo(id peer.ClusterID) control.NetworkPeer {
	out := networkOff(v.connect.Problem())
	if status, wanted := v.connect.Status(id); wanted {
		out = networkPeer(status)
	}
	out.ID, out.Name = string(id), v.Label(id)
	services := v.sharing.Services(id)
	out.Services = services.Reflected
	for _, r := range services.Refused {
		out.RefusedServices = append(out.RefusedServices, control.RefusedService(r))
	}
	return out
}

// networkOff is a peer that is not to be connected, or not yet.
func networkOff(problem *connectivity.Problem) control.NetworkPeer {
	out := control.NetworkPeer{State: control.NetworkOff, Reason: reason.NotShared, Message: "The peering is beginning or ending: no resources are shared with it now."}
	if problem != nil {
		out.Reason, out.Message = problem.Reason, problem.Message
	}
	return out
}

// networkPeer is a peer that is to be connected, as the control socket shows it.
func networkPeer(s network.Status) control.NetworkPeer {
	out := control.NetworkPeer{
		State: string(s.State), Since: s.Since.UTC(), Engine: s.Engine, MTU: s.MTU, RTTMicroseconds: s.RTT.Microseconds(), Theirs: prefixes(s.Blocks.Theirs), Ours: prefixes(s.Blocks.Ours),
		SentBytes: s.Counters.BytesOut, ReceivedBytes: s.Counters.BytesIn, Dropped: s.Counters.Dropped,
	}
	if s.Problem != nil && s.State != network.Connected {
		out.Message = s.Problem.Error()
	}
	if s.NoWireGuard != nil {
		out.NoWireGuard = text.Line(s.NoWireGuard.Error(), maxReason)
	}
	return out
}

// maxReason is how long a reason is that is shown, in bytes.
const maxReason = 200

func prefixes(of []netip.Prefix) []string {
	out := make([]string, 0, len(of))
	for _, p := range of {
		out = append(out, p.String())
	}
	return out
}
