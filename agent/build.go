package agent

import (
	"context"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"k8s.io/client-go/rest"

	"liqo.io/agent/agent/backend"
	"liqo.io/agent/agent/calls"
	"liqo.io/agent/agent/config"
	"liqo.io/agent/agent/connect"
	"liqo.io/agent/agent/decisions"
	"liqo.io/agent/agent/domains"
	"liqo.io/agent/agent/metrics"
	"liqo.io/agent/agent/problems"
	"liqo.io/agent/agent/proofs"
	"liqo.io/agent/agent/reload"
	"liqo.io/agent/agent/sharing"
	"liqo.io/agent/agent/snapshot"
	"liqo.io/agent/agent/urls"
	"liqo.io/agent/api"
	"liqo.io/agent/discovery/registry"
	"liqo.io/agent/dnssd"
	"liqo.io/agent/endpoint"
	"liqo.io/agent/endpoint/client"
	"liqo.io/agent/endpoint/gateway"
	"liqo.io/agent/endpoint/wire"
	"liqo.io/agent/health"
	"liqo.io/agent/liqo"
	"liqo.io/agent/liqo/engine"
	"liqo.io/agent/peer"
	"liqo.io/agent/peering"
	peeringconfig "liqo.io/agent/peering/config"
	"liqo.io/agent/peering/plan"
)

const (
	// maxChecks bounds the peers contacted at once.
	maxChecks = 32
	// maxLookups bounds the concurrent probes of addresses whose cluster is unknown.
	maxLookups = 16
	// maxKept bounds the connections kept open for the next check. Each takes
	// about 20 KB here and as much at the peer.
	maxKept = 128
)

// buildEndpoint builds our HTTPS port.
func (s *session) buildEndpoint(ctx context.Context, cfg config.Config) error {
	var answer endpoint.LiqoExchange
	if byLiqo(cfg) {
		answer = s.answerLiqo
	}
	s.server = endpoint.NewServer(endpoint.ServerConfig{
		Listen: cfg.Endpoint.Listen, Issuer: s.issuer, Identity: s.self,
		Peers: s.incoming, Reach: s.callBack, Liqo: answer,
		Gateway: gateway.New(gateway.Config{Upstream: s.peering.Upstream, DeletedByPeer: s.peering.DeletedByPeer, Logger: s.logger}),
		Guests:  s.sharing, Network: s.connect.Endpoint(), MaxConns: cfg.Endpoint.MaxConnections, Logger: s.logger,
	})
	return s.server.Listen(ctx)
}

// byLiqo reports whether Liqo may peer this cluster. If not, nobody looks for it.
func byLiqo(cfg config.Config) bool { return engine.Setting(cfg.Peering.Engine) != engine.OnlyBuiltin }

// installedLiqo returns the Liqo of this cluster, nil for none, as far as it is looked for.
func (s *session) installedLiqo() *engine.Installation {
	if s.liqo == nil {
		return nil
	}
	found, _ := s.liqo.Installed()
	return found
}

// answerLiqo answers a step of the exchange with a peer's Liqo.
func (s *session) answerLiqo(ctx context.Context, id peer.ClusterID, from netip.Addr, body []byte) (any, error) {
	return s.liqo.Answer(ctx, id, from, body)
}

// beside runs what works beside the peering controller while there is an API server.
func (s *session) beside(ctx context.Context, local *rest.Config) {
	var running sync.WaitGroup
	if s.liqo != nil {
		running.Go(func() { s.liqo.Run(ctx, local) })
	}
	s.sharing.Run(ctx, local)
	running.Wait()
}

// callBack checks for a peer whether its endpoint can be reached from here, with a new
// connection.
func (s *session) callBack(ctx context.Context, caller endpoint.Caller, at netip.AddrPort) wire.Reached {
	return s.fresh.CallBack(ctx, caller.Shown.Fingerprint, at)
}

// buildPeers builds the parts with the state of peers: registry, decisions, peerings.
func (s *session) buildPeers(ctx context.Context, cfg config.Config, found *domains.Set) error {
	s.client = client.New(client.Config{
		SelfFingerprint: s.key.Fingerprint(), Issuer: s.issuer, MaxSessions: cfg.Discovery.MaxNeighbours, Keep: maxKept,
	})
	s.fresh = client.New(client.Config{SelfFingerprint: s.key.Fingerprint(), Issuer: s.issuer})
	remembered, seen, err := s.rememberedPeers(ctx)
	if err != nil {
		return err
	}
	sightings := slices.Concat(slices.Collect(maps.Values(seen))...)
	var objects []string
	for _, one := range sightings {
		if object, ok := urls.Object(one.Key()); ok {
			objects = append(objects, object)
		}
	}
	s.notifier = calls.NewNotifier(s.hub.seen, s.client, s.logger)
	s.decisions, err = decisions.Open(ctx, decisions.Config{
		Database: s.store, Self: func() peer.ClusterID { return s.id }, SelfKey: s.key.Fingerprint,
		Peer:   s.hub.seen,
		Policy: s.policy.Policy(), ClockTrusted: s.clockTrusted, Changed: s.hub.decided, Opened: s.notifier.Accepted, Logger: s.logger, Now: time.Now,
	})
	if err != nil {
		return err
	}
	s.proofs = proofs.New(s.decisions, s.clock, remembered)
	s.registry = registry.New(registry.Config{
		Self: s.id, SelfKey: s.key.Fingerprint(), Identify: proofs.Identifier(s.client, s.decisions), Lookup: proofs.Identifier(s.fresh, s.decisions),
		Reconfirm: func(link, instance string) { s.mdns.Reconfirm(link, instance) },
		Changed:   s.hub.changed, CandidateChanged: s.candidateChanged,
		Proved: s.proofs.Proved, Pinned: s.pinned,
		Store: s.store, Remembered: remembered, Recall: s.store.Others, Seen: seen, Joined: s.decisions.Partner,
		Limit: 2 * cfg.Discovery.MaxNeighbours, Checkers: maxChecks, Lookups: maxLookups, Interval: cfg.Discovery.CheckInterval,
		Logger: s.logger,
	})
	s.urls = urls.New(urls.Config{Self: s.id, Settings: s.config, Registry: s.registry, Decisions: s.decisions, Seen: sightings})
	s.connect = connect.New(connect.Config{
		Self: func() peer.ClusterID { return s.id }, Settings: s.config, Database: s.store, Client: s.client, Trusted: s.decisions.Trusted,
		Consumer:   func(namespace string) (peer.ClusterID, bool) { return s.sharing.ConsumerOf(namespace) },
		Namespaces: func(id peer.ClusterID) map[string]string { return s.sharing.Namespaces(id) },
		Tokens:     func(namespace string) bool { return sharing.NoTokens(s.config(), namespace) == "" },
		Changed:    s.hub.reconcile, Logger: s.logger,
	})
	s.sharing = sharing.New(sharing.Config{
		Network: s.connect,
		Self:    s.id, Settings: s.config, Names: s.decisions, Client: s.client,
		Label:         func(id peer.ClusterID) string { return s.views.Label(id) },
		OwnRegistries: func() []string { return s.peering.OwnRegistries() },
		OnlyNode:      func() string { return s.peering.OnlyNode() },
		Users:         func() api.PeerUsers { return s.peering.PeerUsers() },
		Told:          func() bool { return s.peering.Told() },
		Webhook:       func(claims bool) map[string]any { return s.admission.MutatingWebhook(claims) },
		ClockTrusted:  s.clockTrusted,
		Requeue:       s.hub.reconcile, Recheck: func(id peer.ClusterID) { s.server.Recheck(id) },
		Supervisor: s.agent.supervisor, Tracker: s.health, Logger: s.logger, Now: time.Now,
	})
	outgoing := calls.Outgoing{Client: s.client, Pin: s.decisions.Pin}
	var peersByLiqo peering.Liqo
	if byLiqo(cfg) {
		s.liqo = liqo.New(liqo.Config{Peers: outgoing, Changed: s.hub.reconcile, Found: s.hub.enginesChanged, Addresses: net.InterfaceAddrs, Logger: s.logger, Now: time.Now})
		peersByLiqo = s.liqo
	}
	s.peering = peering.New(peering.Config{
		Kubeconfig: func() string { return s.config().Cluster.Kubeconfig },
		Registry:   lookedAfter{s.registry, s.decisions}, Identity: s.self, Namespace: cfg.Cluster.Namespace, Logger: s.logger,
		OnClusterID: s.otherID,
		Decisions:   s.decisions, Peers: outgoing, Greeting: s.greeting, TokenUsed: s.decisions.TokenUsed, Reached: s.proofs.Reached,
		LostAfter: func() time.Duration { return s.config().Discovery.LostAfter },
		Webhook:   func() map[string]any { return s.admission.Webhook() },
		Viewed:    s.hub.viewed, Interval: cfg.Discovery.CheckInterval,
		URLs: s.urls, URLsAsked: objects, StatusChanged: func() { s.problems.Again() },
		People: peeringconfig.Config{
			SearchDomains:      found.Tell,
			SearchDomainStatus: func(name string) (api.SearchDomainStatus, bool) { return s.domains.Status(name) },
			ClusterConfig:      func(spec *api.ClusterConfigSpec) { s.follower.ClusterConfig(spec) },
			Health:             func() (peeringconfig.Health, bool) { return s.problems.Shown() },
			Effective:          func() api.EffectiveConfig { return reload.Shown(s.config()) },
		},
		Sharing: s.sharing, While: s.beside, SharingSettings: func() plan.SharingSettings { return sharing.Settings(s.config()) },
		Liqo: peersByLiqo, Engine: func() engine.Setting { return engine.Setting(cfg.Peering.Engine) },
	})
	s.poller = dnssd.New(dnssd.Config{
		Service: cfg.Discovery.Service, Report: func(r dnssd.Report) { s.domains.Looked(r) },
		Recall: func(domain string) []dnssd.Instance { return s.domains.Recall(domain) }, MaxInstances: cfg.Discovery.MaxNeighbours, Logger: s.logger,
	})
	s.domains = domains.New(found, domains.Config{
		Self: s.self, Loaded: s.agent.settings.Loaded, Store: s.store, Poller: s.poller, Registry: s.registry, Decisions: s.decisions, Peering: s.peering,
		Merged: s.applyPolicy, Now: time.Now, Seen: sightings,
	})
	s.follower = reload.NewFollower(s.agent.settings, reload.Config{
		Store: s.store, Notifier: s.agent.opts.Notify, Changed: s.peering.HealthChanged, Differ: s.certificates.Differ, Apply: s.apply,
		Rebuild: func() { s.end(errSettings) }, Sessions: s.agent.watchdog.Sessions, Logger: s.logger, Now: time.Now,
	})
	s.views = backend.NewViews(s.id, s.key, s.registry, s.decisions, s.peering, s.sharing, s.connect)
	s.incoming = calls.NewIncoming(calls.IncomingConfig{
		Decisions: s.decisions, Registry: s.registry, Peering: s.peering, Decided: s.hub.decided, Logger: s.logger,
	})
	return nil
}

// newMonitor returns the monitor that reports problems of the other parts.
func (s *session) newMonitor() *problems.Monitor {
	return problems.New(problems.Config{
		ID: s.id, Settings: s.config, Tracker: s.health, Logger: s.agent.opts.Logger, Told: s.agent.watchdog.Changed,
		Peering: s.peering, Registry: s.registry, Decisions: s.decisions, MDNS: s.mdns,
		Links: func() int { return len(s.lan.InUse()) }, Domains: s.domains.Reports, GivenURLs: s.urls.Results,
		Requests: s.views.OpenRequests, Label: s.views.Label, Networks: s.networks, Storage: s.views.Stored,
		Certificates: s.certificates.Loaded, Clock: s.clockProblem, SetAside: s.store.Recovered,
	})
}

// networks returns the network to each peer with which resources are shared.
func (s *session) networks() map[peer.ClusterID]connect.Seen {
	out := make(map[peer.ClusterID]connect.Seen)
	for _, id := range s.sharing.Peers() {
		out[id] = s.connect.Seen(id)
	}
	return out
}

// newBackend returns the backend of the control socket.
func (s *session) newBackend() *backend.Backend {
	return &backend.Backend{
		Views: s.views, Resetter: s.reset, SearchDomains: s.domains, Decisions: s.decisions,
		Version: s.agent.opts.Version, Origin: s.origin, Started: s.agent.started, Loaded: s.agent.settings.Loaded, Self: s.self, Greeting: s.greeting,
		Liqo: s.installedLiqo,
		Now:  time.Now, Logger: s.logger, LastErrors: s.agent.lastErrors.List, URLsChanged: s.urls.Again,
		Store: s.store, Links: s.lan.InUse, Uses: &s.uses, MDNS: s.mdns, Server: s.server, Client: s.client,
		Certificates: s.certificates.Loaded, Problems: s.problems.Current, Rotation: s.rotation,
	}
}

// buildMetrics builds the server of the metrics. A port that is taken is an error only
// at the first start: later, it must not end a working agent.
func (s *session) buildMetrics(ctx context.Context, cfg config.Config) error {
	source := snapshot.New(snapshot.Config{
		Version: s.agent.opts.Version, Self: s.self, Key: s.key, Settings: s.config, Sessions: s.agent.watchdog.Sessions, Reloaded: s.agent.settings.Read,
		Supervisor: s.agent.supervisor, Store: s.store, Links: s.lan.InUse, MDNS: s.mdns, Registry: s.registry, Decisions: s.decisions,
		Peering: s.peering, Sharing: s.sharing, Connect: s.connect, Server: s.server, Lookups: s.poller.Lookups, Domains: s.domains.Outcomes, Issuer: s.issuer,
		Certificates: s.certificates.Loaded, Problems: s.problems.Current, PendingRequests: s.views.PendingRequests, Offers: s.views.Offers,
	})
	s.metrics = metrics.New(source.Snapshot, s.logger)
	s.scrapes = metrics.NewListener(s.metrics.Handler(), s.logger)
	if s.agent.watchdog.Sessions() == 0 {
		return s.scrapes.Listen(ctx, cfg.Metrics.Listen)
	}
	s.listenForMetrics(ctx, cfg)
	return nil
}

// listenForMetrics serves the metrics at the configured address.
func (s *session) listenForMetrics(ctx context.Context, cfg config.Config) {
	s.health.Report(health.MetricsListen, s.scrapes.Listen(ctx, cfg.Metrics.Listen))
}

// apply puts a changed configuration into effect in the running parts.
func (s *session) apply(ctx context.Context, cfg config.Config) error {
	s.useTrust(cfg)
	s.problems.Again()
	s.applyPolicy(ctx)
	s.urls.Again()
	s.domains.Again()
	s.links.SetFilter(linkFilter(cfg))
	s.lan.RulesChanged()
	s.mdns.Browse(cfg.Discovery.EnableDiscovery)
	s.mdns.Advertise(s.announcement(cfg))
	s.peering.SetInterval(cfg.Discovery.CheckInterval)
	s.sharing.SettingsChanged()
	s.peering.SharingChanged()
	if s.liqo != nil {
		s.liqo.Look()
	}
	s.listenForMetrics(ctx, cfg)
	return s.registry.SetInterval(ctx, cfg.Discovery.CheckInterval)
}
