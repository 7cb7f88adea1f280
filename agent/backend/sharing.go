package backend

import (
	"slices"
	"strings"

	"liqo.io/agent/agent/config"
	"liqo.io/agent/agent/control"
	"liqo.io/agent/peer"
)

// sharingStatus returns what is shared with all peers, as the control socket shows it.
func (b *Backend) sharingStatus(cfg config.Config, sources map[string]string) control.Sharing {
	offered, shared := b.peering.Offered(), cfg.Sharing
	out := control.Sharing{
		Offering: control.Offering{
			Enabled: shared.Enable, Percentage: shared.Percentage, Overcommit: shared.Overcommit, Source: sources["sharing.enable"],
			Pool: offered.Pool, Message: offered.Why,
		},
		Using: control.Using{
			Enabled: shared.Use, Policy: shared.AcceptPolicy, MaxAccepted: shared.MaxAccepted, Source: sources["sharing.use"],
		},
	}
	out.Using.Accepted, out.Using.Refused, out.Using.Pending = b.Offers()
	for _, id := range b.sharing.Peers() {
		both := b.peerSharing(id)
		if both.Consumer != nil {
			out.Offering.Consumers = append(out.Offering.Consumers, *both.Consumer)
		}
		if both.Provider != nil {
			out.Using.Providers = append(out.Using.Providers, *both.Provider)
		}
	}
	slices.SortFunc(out.Offering.Consumers, func(a, b control.Consumer) int { return strings.Compare(a.Name, b.Name) })
	slices.SortFunc(out.Using.Providers, func(a, b control.Provider) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// peerSharing returns what is shared with one peer.
func (v *Views) peerSharing(id peer.ClusterID) control.PeerSharing {
	var out control.PeerSharing
	if provider, ok := v.sharing.Provider(id); ok {
		p, use := provider.Spec, provider.Status
		out.Provider = &control.Provider{
			ID: string(id), Name: v.Label(id), Node: use.Name, Ready: use.Ready, Reason: use.Reason, Message: use.Message, Pods: use.Pods,
		}
		if p.Offer != nil {
			out.Provider.Offered = p.Offer.ResourceQuota.Hard
		}
	}
	if consumer, ok := v.sharing.Consumer(id); ok {
		t, tenant := consumer.Spec, consumer.Status
		out.Consumer = &control.Consumer{
			ID: string(id), Name: v.Label(id), Used: tenant.Used, Pods: tenant.Pods, Namespaces: tenant.Namespaces, Ending: !t.Admitted, Promised: t.Offer,
		}
	}
	return out
}
