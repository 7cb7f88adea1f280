package agent

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"liqo.io/agent/agent/config"
	"liqo.io/agent/agent/control"
	"liqo.io/agent/api"
	"liqo.io/agent/peer"
	"liqo.io/agent/peering"
	"liqo.io/agent/state"
)

// backend answers the control socket for a session. All of it may be called
// from any goroutine.
type backend session

var _ control.Backend = (*backend)(nil)

// Status implements control.Backend.
func (b *backend) Status(ctx context.Context) (control.Status, error) {
	loaded, identity := b.current.Load(), b.identity(b.id)
	cfg, sources := loaded.Config, loaded.Sources
	current, _, cancel := b.links.Subscribe()
	defer cancel()
	links := make([]control.Link, 0)
	for _, l := range current().Links {
		links = append(links, control.Link{Name: l.Name, Addresses: linkAddrs(l)})
	}
	mdns, api, served := b.mdns.Stats(), b.peering.Status(), b.server.Stats()
	drops := make(map[string]uint64, len(mdns.Drops)+len(served.Refused))
	for reason, n := range mdns.Drops {
		drops["mdns:"+string(reason)] = n
	}
	for reason, n := range served.Refused {
		drops["endpoint:"+string(reason)] = n
	}
	if n := b.recorder.Refused(); n > 0 {
		drops["peers:full"] = n
	}
	phases := make(map[string]int)
	for _, p := range b.recorder.Peers() {
		phases[string(p.Phase)]++
	}
	return control.Status{
		Version: b.opts.Version, Protocol: peer.Spoken().String(),
		Identity: control.Identity{
			ClusterID: string(b.id), Name: identity.ClusterName, Namespace: identity.GuestNamespace,
			Fingerprint: b.key.Fingerprint().String(), IDOrigin: b.origin,
		},
		StartedAt: b.started,
		Links:     links,
		Discovery: control.Discovery{
			Enabled: cfg.Discovery.EnableDiscovery, Service: cfg.Discovery.Service, Domain: cfg.Discovery.Domain,
			Source: sources["discovery.enable_discovery"],
		},
		Advertisement: control.Advertisement{
			Enabled: cfg.Discovery.EnableAdvertisement, Established: mdns.Established, Instance: mdns.InstanceName,
			Source: sources["discovery.enable_advertisement"],
		},
		Autojoin: control.Autojoin{
			Enabled: cfg.Discovery.Autojoin, Untrusted: cfg.Discovery.AutojoinUntrusted, Source: sources["discovery.autojoin"],
			NotJoined: b.notJoined(),
		},
		Domains:  b.domainsStatus(),
		Networks: b.networksStatus(cfg, links),
		Endpoint: control.Endpoint{Listen: cfg.Endpoint.Listen, Port: int(b.server.Port()), Connections: served.Open, Requests: served.Requests},
		Kubernetes: control.Kubernetes{
			Connected: api.Connected, Disabled: cfg.Cluster.Kubeconfig == "none", Server: api.Server, Version: api.Version, Kubeconfig: api.Kubeconfig,
			LastError: api.LastError, ForeignClusters: api.ForeignClusters, Writes: api.Writes, Since: api.Since,
		},
		State:    b.state(),
		Peers:    phases,
		Peering:  b.peeringStatus(ctx),
		Sharing:  b.sharingStatus(cfg, sources),
		Trust:    b.trustStatus(cfg),
		Packets:  control.Packets{Received: mdns.Received, Sent: mdns.Sent, SocketDrops: mdns.SocketDrops},
		Drops:    drops,
		Problems: b.allProblems(), LastErrors: b.warned.list(),
	}, nil
}

// notJoined lists who is not joined by itself although somebody said so.
func (b *backend) notJoined() []control.NotJoined {
	out := make([]control.NotJoined, 0)
	for _, p := range b.recorder.Peers() {
		if why := b.ledger.Standing(p.ID).Unjoined; why != (peering.Unjoined{}) && p.Phase != peer.PhaseLost {
			out = append(out, control.NotJoined{ID: string(p.ID), Name: cmp.Or(p.Alias, p.Name), Reason: why.Reason, Message: why.Message})
		}
	}
	slices.SortFunc(out, func(a, b control.NotJoined) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.ID, b.ID))
	})
	return out
}

// peeringStatus sums up the peerings.
func (b *backend) peeringStatus(ctx context.Context) control.PeeringStatus {
	var out control.PeeringStatus
	for _, id := range b.ledger.Wanted() {
		view := b.peering.View(id)
		if view.Outgoing.Wanted {
			out.Wanted++
		}
		if view.Outgoing.Joined {
			out.Joined++
		}
		if view.Incoming.Joined {
			out.Serving++
		}
	}
	for _, r := range b.requests() {
		if r.State == string(api.RequestPending) {
			out.Requests++
		}
	}
	// Without the database there are no invites to be used either.
	invites, _ := b.ledger.Invites(ctx)
	for _, i := range invites {
		if i.Live(b.now()) {
			out.Invites++
		}
	}
	return out
}

// trustStatus says how this cluster comes to trust others.
func (b *backend) trustStatus(cfg config.Config) control.TrustStatus {
	out := control.TrustStatus{Accept: cfg.Trust.Accept, Open: openness(cfg)}
	if fleet := b.fleet.Load(); fleet != nil && len(*fleet) > 0 {
		ca := (*fleet)[0]
		out.FleetCA = &control.FleetCA{
			Name: ca.Subject.CommonName, Fingerprint: peer.FingerprintOf(ca.RawSubjectPublicKeyInfo).String(),
			Path: cfg.Trust.FleetCA, NotAfter: ca.NotAfter, Certified: b.certified.Load(),
		}
	}
	return out
}

// state describes the database.
func (b *backend) state() control.State {
	return control.State{
		Path: b.store.Path(), Volatile: b.store.Volatile(), Recovered: b.store.Recovered(), Transactions: b.store.Transactions(),
	}
}

// History implements control.Backend.
func (b *backend) History(ctx context.Context, q control.HistoryQuery) ([]peer.Event, error) {
	return b.store.History(ctx, state.HistoryQuery{ID: q.ID, Since: q.Since, Limit: q.Limit})
}

// SetAlias implements control.Backend.
func (b *backend) SetAlias(ctx context.Context, id peer.ClusterID, alias string) error {
	if alias != "" {
		name, err := peer.ParseClusterName(alias)
		if err != nil {
			return &control.Error{Kind: control.ErrInvalid, Message: "alias: " + err.Error(), Cause: err}
		}
		for _, p := range b.recorder.Peers() {
			if p.ID != id && p.Alias == name {
				return &control.Error{Kind: control.ErrInvalid, Message: fmt.Sprintf("alias %q already names peer %s", name, p.ID),
					Advice: "choose another one, or remove that one first"}
			}
		}
	}
	// The ledger keeps all preferences; it is no decision that anybody has to be named for.
	if err := b.ledger.Set(ctx, id, func(p *state.Preferences) { p.Alias = alias }, ""); err != nil {
		return fmt.Errorf("store the alias: %w", err)
	}
	_, err := b.recorder.Rename(ctx, id, alias)
	return err
}

// Config implements control.Backend.
func (b *backend) Config(context.Context) (control.Config, error) {
	loaded := b.current.Load()
	var text bytes.Buffer
	if err := loaded.WriteTOML(&text, false); err != nil {
		return control.Config{}, fmt.Errorf("write the configuration as text: %w", err)
	}
	return control.Config{Path: loaded.Path, TOML: text.String(), Sources: loaded.Sources}, nil
}
