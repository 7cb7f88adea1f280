package backend

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"time"

	"liqo.io/agent/agent/config"
	"liqo.io/agent/agent/control"
	"liqo.io/agent/agent/lan"
	"liqo.io/agent/agent/policy"
	"liqo.io/agent/agent/problems"
	"liqo.io/agent/agent/socket"
	"liqo.io/agent/endpoint"
	"liqo.io/agent/endpoint/client"
	"liqo.io/agent/endpoint/wire"
	"liqo.io/agent/ifwatch"
	"liqo.io/agent/liqo/engine"
	"liqo.io/agent/mdnssvc"
	"liqo.io/agent/peer"
	"liqo.io/agent/peering/plan"
	"liqo.io/agent/state"
)

// Backend answers the control socket for a session. All fields are required. Its methods
// are safe for concurrent use.
type Backend struct {
	*Views
	socket.Resetter
	SearchDomains
	Decisions

	Version string
	// Origin is where the cluster ID came from.
	Origin  string
	Started time.Time
	// Loaded returns the configuration in use.
	Loaded     func() *config.Loaded
	Self       func() peer.Identity
	Greeting   func() wire.Greeting
	Now        func() time.Time
	Logger     *slog.Logger
	LastErrors func() []control.LogEntry
	// Liqo returns the Liqo of this cluster, nil for none, as far as it is looked for.
	Liqo func() *engine.Installation
	// URLsChanged has the URLs that people gave for peers compared with the candidates.
	URLsChanged func()

	Store        *state.Store
	Links        func() []ifwatch.Link
	Uses         *lan.Uses
	MDNS         interface{ Stats() mdnssvc.Stats }
	Server       *endpoint.Server
	Client       *client.Client
	Certificates func() problems.Certificates
	Problems     func() []control.Problem
	Rotation     *Rotation
}

// SearchDomains are the calls about search domains.
type SearchDomains interface {
	socket.Domains
	// Summary returns the search domains for status.
	Summary() []control.DomainSummary
}

// Decisions are the calls that the decision store answers itself.
type Decisions interface {
	Reject(ctx context.Context, id peer.ClusterID, by string) error
	Block(ctx context.Context, id peer.ClusterID, by string) error
	Unblock(ctx context.Context, id peer.ClusterID, by string) error
	Distrust(ctx context.Context, id peer.ClusterID, by string) error
	RevokeInvite(ctx context.Context, id, by string) error
}

var _ socket.Backend = (*Backend)(nil)

func (b *Backend) config() config.Config { return b.Loaded().Config }

// Status implements socket.Backend.
func (b *Backend) Status(context.Context) (control.Status, error) {
	loaded, identity := b.Loaded(), b.Self()
	cfg, sources := loaded.Config, loaded.Sources
	links := make([]control.Link, 0)
	for _, l := range b.Links() {
		links = append(links, control.Link{Name: l.Name, Addresses: linkAddrs(l)})
	}
	mdns, api, served := b.MDNS.Stats(), b.peering.Status(), b.Server.Stats()
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
		Version: b.Version, Protocol: peer.Spoken().String(),
		Identity: control.Identity{
			ClusterID: string(b.id), Name: identity.ClusterName, Namespace: identity.GuestNamespace,
			Fingerprint: b.key.Fingerprint().String(), IDOrigin: b.Origin,
		},
		StartedAt: b.Started,
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
		Domains:  b.Summary(),
		Networks: b.networksStatus(cfg, links),
		Endpoint: control.Endpoint{Listen: cfg.Endpoint.Listen, Port: int(b.Server.Port()), Connections: served.Open, Requests: served.Requests},
		Kubernetes: control.Kubernetes{
			Connected: api.Connected, Disabled: cfg.Cluster.Kubeconfig == "none", Server: api.Server, Version: api.Version, Kubeconfig: api.Kubeconfig,
			LastError: api.LastError, ForeignClusters: api.ForeignClusters, Writes: api.Writes, Since: api.Since,
		},
		Liqo:     b.liqo(cfg),
		State:    b.state(),
		Peers:    Named(seen.Phases),
		Peering:  b.peeringStatus(),
		Sharing:  b.sharingStatus(cfg, sources),
		Network:  b.network().Summary(),
		Trust:    b.trustStatus(cfg),
		Packets:  control.Packets{Received: mdns.Received, Sent: mdns.Sent, SocketDrops: mdns.SocketDrops},
		Drops:    drops,
		Problems: b.Problems(), LastErrors: b.LastErrors(),
	}, nil
}

// liqo describes the Liqo of this cluster, nil if there is none.
func (b *Backend) liqo(cfg config.Config) *control.Liqo {
	found := b.Liqo()
	if found == nil {
		return nil
	}
	return &control.Liqo{ID: string(found.ID), Version: found.Version, Problem: found.Problem, Engine: cfg.Peering.Engine}
}

// notJoined lists the clusters that autojoin is on for, and that are not joined, with the
// reasons.
func (b *Backend) notJoined() []control.NotJoined {
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
func (b *Backend) peeringStatus() control.PeeringStatus {
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
	out.Requests = b.PendingRequests()
	out.Invites = len(b.decisions.LiveInvites())
	return out
}

// trustStatus returns by which settings this cluster trusts others.
func (b *Backend) trustStatus(cfg config.Config) control.TrustStatus {
	out := control.TrustStatus{Accept: cfg.Trust.Accept, Open: policy.Openness(cfg)}
	if shown := b.Certificates(); len(shown.FleetCAs) > 0 {
		ca := shown.FleetCAs[0]
		out.FleetCA = &control.FleetCA{
			Name: ca.Subject.CommonName, Fingerprint: peer.FingerprintOf(ca.RawSubjectPublicKeyInfo).String(),
			Path: cfg.Trust.FleetCA, NotAfter: ca.NotAfter, Certified: shown.Fleet != nil,
		}
	}
	return out
}

// state describes the database.
func (b *Backend) state() control.State {
	return control.State{
		Path: b.Store.Path(), Volatile: b.Store.Volatile(), Recovered: b.Store.Recovered(), Transactions: b.Store.Transactions(),
	}
}

// History implements socket.Backend.
func (b *Backend) History(ctx context.Context, q control.HistoryQuery) ([]peer.Event, error) {
	return b.Store.History(ctx, state.HistoryQuery{ID: q.ID, Since: q.Since, Limit: q.Limit})
}

// SetAlias implements socket.Backend.
func (b *Backend) SetAlias(ctx context.Context, id peer.ClusterID, alias string) error {
	// Without a name of who set it: an alias is a preference, not a decision about the peer.
	if err := b.decisions.Set(ctx, id, func(p *state.Preferences) { p.Alias = alias }, ""); err != nil {
		return fmt.Errorf("store the alias: %w", err)
	}
	_, err := b.registry.Rename(ctx, id, alias)
	return err
}

// Config implements socket.Backend.
func (b *Backend) Config(context.Context) (control.Config, error) {
	loaded := b.Loaded()
	var text bytes.Buffer
	if err := loaded.WriteTOML(&text, false); err != nil {
		return control.Config{}, fmt.Errorf("write the configuration as text: %w", err)
	}
	return control.Config{Path: loaded.Path, TOML: text.String(), Sources: loaded.Sources}, nil
}

// networksStatus returns what each link is used for, if [[network]] rules are set.
func (b *Backend) networksStatus(cfg config.Config, links []control.Link) []control.LinkNetwork {
	out := make([]control.LinkNetwork, 0)
	for _, l := range links {
		use, known := b.Uses.Of(l.Name)
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

// linkAddrs lists a link's addresses, for status.
func linkAddrs(l ifwatch.Link) []string {
	out := make([]string, 0, len(l.Addrs))
	for _, a := range slices.SortedFunc(slices.Values(l.Addrs), netip.Prefix.Compare) {
		out = append(out, a.String())
	}
	return out
}

// Named returns a map with plain strings as keys.
func Named[K ~string, N any](of map[K]N) map[string]N {
	out := make(map[string]N, len(of))
	for k, n := range of {
		out[string(k)] = n
	}
	return out
}
