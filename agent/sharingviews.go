package agent

import (
	"slices"
	"strings"

	"liqo.io/agent/agent/config"
	"liqo.io/agent/agent/control"
	"liqo.io/agent/peer"
)

// sharingStatus returns what is shared with all peers, as the control socket shows it.
func (b *backend) sharingStatus(cfg config.Config, sources map[string]string) control.Sharing {
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
	// Without an API server it is not known what others offer.
	offers, _ := b.peering.Offers()
	for _, o := range offers {
		switch b.advert(o).Status {
		case control.AdvertAccepted:
			out.Using.Accepted++
		case control.AdvertRefused:
			out.Using.Refused++
		default:
			out.Using.Pending++
		}
	}
	for _, id := range b.sharing.known() {
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
func (v *views) peerSharing(id peer.ClusterID) control.PeerSharing {
	var out control.PeerSharing
	provider, provides, consumer, consumes := v.sharing.with(id)
	if provides {
		p, use := provider.spec, provider.status
		out.Provider = &control.Provider{
			ID: string(id), Name: v.label(id), Node: use.Name, Ready: use.Ready, Reason: use.Reason, Message: use.Message, Pods: use.Pods,
		}
		if p.Offer != nil {
			out.Provider.Offered = p.Offer.ResourceQuota.Hard
		}
	}
	if consumes {
		t, tenant := consumer.spec, consumer.status
		out.Consumer = &control.Consumer{
			ID: string(id), Name: v.label(id), Used: tenant.Used, Pods: tenant.Pods, Namespaces: tenant.Namespaces, Ending: !t.Admitted,
		}
		if t.Offer != nil {
			out.Consumer.Promised = t.Offer.ResourceQuota.Hard
		}
	}
	return out
}

// known returns all clusters with which something is shared.
func (sh *sharing) known() []peer.ClusterID {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	var out []peer.ClusterID
	for id := range sh.providers {
		out = append(out, id)
	}
	for id := range sh.consumers {
		if _, both := sh.providers[id]; !both {
			out = append(out, id)
		}
	}
	return out
}

// with returns what is shared with a cluster: as one that we use, and as one that
// uses us.
func (sh *sharing) with(id peer.ClusterID) (uses provider, is bool, used consumer, has bool) {
	tenant := sh.hosts.Stands(id)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if p := sh.providers[id]; p != nil {
		uses, is = *p, true
	}
	tenancy, has := sh.consumers[id]
	return uses, is, consumer{tenancy, tenant}, has
}
