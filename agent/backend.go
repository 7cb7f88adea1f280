package agent

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"liqo.io/agent/agent/config"
	"liqo.io/agent/agent/control"
	"liqo.io/agent/agent/domains"
	"liqo.io/agent/agent/problems"
	"liqo.io/agent/api"
	"liqo.io/agent/endpoint"
	"liqo.io/agent/endpoint/client"
	"liqo.io/agent/endpoint/wire"
	"liqo.io/agent/ifwatch"
	"liqo.io/agent/mdnssvc"
	"liqo.io/agent/peer"
	"liqo.io/agent/peering/plan"
	"liqo.io/agent/state"
)

// backend answers the control socket for a session. All of it may be called
// from any goroutine.
type backend struct {
	*views
	control.Resetter
	domainHandlers

	version, origin string
	started         time.Time
	loaded          func() *config.Loaded // in use
	self            func() peer.Identity
	greeting        func() wire.Greeting
	now             func() time.Time
	logger          *slog.Logger
	warned          *lastErrors

	store        *state.Store
	links        *ifwatch.Watcher
	mdns         *mdnssvc.Service
	server       *endpoint.Server
	client       *client.Client
	domains      *domains.Keeper
	places       *places
	networks     *networks
	certificates *certificates
	problems     *problems.Monitor
	rotation     *rotation
}

// domainHandlers has another name than its method Domains.
type domainHandlers = control.Domains

var _ control.Backend = (*backend)(nil)

func (b *backend) config() config.Config { return b.loaded().Config }

// Status implements control.Backend.
func (b *backend) Status(ctx context.Context) (control.Status, error) {
	loaded, identity := b.loaded(), b.self()
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
	seen := b.registry.Stats()
	if seen.Refused > 0 {
		drops["peers:full"] = seen.Refused
	}
	return control.Status{
		Version: b.version, Protocol: peer.Spoken().String(),
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
		Domains:  b.domains.Summary(),
		Networks: b.networksStatus(cfg, links),
		Endpoint: control.Endpoint{Listen: cfg.Endpoint.Listen, Port: int(b.server.Port()), Connections: served.Open, Requests: served.Requests},
		Kubernetes: control.Kubernetes{
			Connected: api.Connected, Disabled: cfg.Cluster.Kubeconfig == "none", Server: api.Server, Version: api.Version, Kubeconfig: api.Kubeconfig,
			LastError: api.LastError, ForeignClusters: api.ForeignClusters, Writes: api.Writes, Since: api.Since,
		},
		State:    b.state(),
		Peers:    named(seen.Phases),
		Peering:  b.peeringStatus(ctx),
		Sharing:  b.sharingStatus(cfg, sources),
		Trust:    b.trustStatus(cfg),
		Packets:  control.Packets{Received: mdns.Received, Sent: mdns.Sent, SocketDrops: mdns.SocketDrops},
		Drops:    drops,
		Problems: b.problems.Current(), LastErrors: b.warned.list(),
	}, nil
}

// notJoined lists the clusters that autojoin is on for, and that are not joined, with the
// reasons.
func (b *backend) notJoined() []control.NotJoined {
	out := make([]control.NotJoined, 0)
	for _, p := range b.registry.Peers() {
		if why := b.decisions.Policy(p.ID).NotAutojoined; why != (plan.NotAutojoined{}) && p.Phase != peer.PhaseLost {
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
	for _, id := range b.decisions.Wanted() {
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
	invites, _ := b.decisions.Invites(ctx)
	for _, i := range invites {
		if i.Live(b.now()) {
			out.Invites++
		}
	}
	return out
}

// trustStatus returns by which settings this cluster trusts others.
func (b *backend) trustStatus(cfg config.Config) control.TrustStatus {
	out := control.TrustStatus{Accept: cfg.Trust.Accept, Open: openness(cfg)}
	if shown := b.certificates.inUse(); len(shown.FleetCAs) > 0 {
		ca := shown.FleetCAs[0]
		out.FleetCA = &control.FleetCA{
			Name: ca.Subject.CommonName, Fingerprint: peer.FingerprintOf(ca.RawSubjectPublicKeyInfo).String(),
			Path: cfg.Trust.FleetCA, NotAfter: ca.NotAfter, Certified: shown.Fleet != nil,
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
		for _, p := range b.registry.Peers() {
			if p.ID != id && p.Alias == name {
				return &control.Error{Kind: control.ErrInvalid, Message: fmt.Sprintf("alias %q already names peer %s", name, p.ID),
					Advice: "choose another one, or remove that one first"}
			}
		}
	}
	// Nobody is named for it: an alias is a preference, not a decision about the peer.
	if err := b.decisions.Set(ctx, id, func(p *state.Preferences) { p.Alias = alias }, ""); err != nil {
		return fmt.Errorf("store the alias: %w", err)
	}
	_, err := b.registry.Rename(ctx, id, alias)
	return err
}

// Config implements control.Backend.
func (b *backend) Config(context.Context) (control.Config, error) {
	loaded := b.loaded()
	var text bytes.Buffer
	if err := loaded.WriteTOML(&text, false); err != nil {
		return control.Config{}, fmt.Errorf("write the configuration as text: %w", err)
	}
	return control.Config{Path: loaded.Path, TOML: text.String(), Sources: loaded.Sources}, nil
}

// networksStatus returns what each link is used for, if [[network]] rules are set.
func (b *backend) networksStatus(cfg config.Config, links []control.Link) []control.LinkNetwork {
	out := make([]control.LinkNetwork, 0)
	for _, l := range links {
		use, known := b.networks.of(l.Name)
		if !known || len(cfg.Networks) == 0 {
			continue
		}
		d := cfg.Discovery
		out = append(out, control.LinkNetwork{
			Link: l.Name, Rule: use.Name, Why: use.Why,
			Advertise: use.Advertise && d.EnableAdvertisement, Discover: use.Discover && d.EnableDiscovery, Autojoin: use.Autojoin && d.Autojoin,
		})
	}
	return out
}
