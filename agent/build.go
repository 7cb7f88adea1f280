package agent

import (
	"context"
	"time"

	"liqo.io/agent/agent/config"
	"liqo.io/agent/agent/decisions"
	"liqo.io/agent/agent/domains"
	"liqo.io/agent/agent/problems"
	"liqo.io/agent/api"
	"liqo.io/agent/discovery/registry"
	"liqo.io/agent/dnssd"
	"liqo.io/agent/endpoint"
	"liqo.io/agent/endpoint/client"
	"liqo.io/agent/endpoint/gateway"
	"liqo.io/agent/kube/work"
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

// buildEndpoint makes our HTTPS port.
func (s *session) buildEndpoint(ctx context.Context, cfg config.Config) error {
	s.server = endpoint.NewServer(endpoint.ServerConfig{
		Listen: cfg.Endpoint.Listen, Issuer: s.issuer, Identity: s.self,
		Peers: s.callers, Reach: s.callBackTo,
		Gateway: gateway.New(gateway.Config{Upstream: s.peering.Upstream, DeletedByPeer: s.peering.DeletedByPeer, Logger: s.logger}),
		Guests:  s.sharing, MaxConns: cfg.Endpoint.MaxConnections, Logger: s.logger,
	})
	return s.server.Listen(ctx)
}

// buildPeers makes the parts that know the peers: who is there, what was decided
// about them, and what is to be done.
func (s *session) buildPeers(ctx context.Context, cfg config.Config, found *domains.Set) error {
	s.client = client.New(client.Config{
		SelfFingerprint: s.key.Fingerprint(), Issuer: s.issuer, MaxSessions: cfg.Discovery.MaxNeighbours, Keep: maxKept,
	})
	s.asker = client.New(client.Config{SelfFingerprint: s.key.Fingerprint(), Issuer: s.issuer})
	remembered, err := s.rememberedPeers(ctx)
	if err != nil {
		return err
	}
	s.callBacks = &callBacks{seen: s.hub.seen, client: s.client, logger: s.logger, waiting: make(chan decisions.Request, maxCallBacks)}
	s.decisions, err = decisions.Open(ctx, decisions.Config{
		Database: s.store, Self: func() peer.ClusterID { return s.id }, SelfKey: s.key.Fingerprint,
		Peer:   s.hub.seen,
		Policy: s.policies.policy(), ClockTrusted: s.clockTrusted, Changed: s.hub.decided, Opened: s.callBacks.letIn, Logger: s.logger, Now: s.now,
	})
	if err != nil {
		return err
	}
	s.policy = &policyApplier{source: s.policies, decisions: s.decisions, logger: s.logger}
	s.proofs = newProofs(s.decisions, s.clock)
	for _, p := range remembered {
		s.proofs.absences.note(p.ID, p.Phase)
	}
	s.registry = registry.New(registry.Config{
		Self: s.id, SelfKey: s.key.Fingerprint(), Identify: identifier(s.client, s.decisions), Lookup: identifier(s.asker, s.decisions),
		Reconfirm: func(link, instance string) { s.mdns.Reconfirm(link, instance) },
		Changed:   s.hub.changed, CandidateChanged: s.candidateChanged,
		Proved: s.proofs.proved, Pinned: s.pinned,
		Store: s.store, Remembered: remembered,
		Limit: 2 * cfg.Discovery.MaxNeighbours, Checkers: maxChecks, Lookups: maxLookups, Interval: cfg.Discovery.CheckInterval,
		Logger: s.logger,
	})
	s.places = &places{self: s.id, settings: s.config, registry: s.registry, decisions: s.decisions, given: make(chan struct{}, 1), wanted: make(map[string]place)}
	s.peering = peering.New(peering.Config{
		Kubeconfig: func() string { return s.config().Cluster.Kubeconfig },
		Registry:   lookedAfter{s.registry, s.decisions}, Identity: s.self, Namespace: cfg.Cluster.Namespace, Logger: s.logger,
		OnClusterID: s.otherID,
		Decisions:   s.decisions, Peers: outward{s.client, s.decisions}, Greeting: s.greeting, TokenUsed: s.decisions.TokenUsed, Reached: s.proofs.reached,
		LostAfter: func() time.Duration { return s.config().Discovery.LostAfter },
		Webhook:   func() map[string]any { return s.admission.Webhook() },
		Viewed:    s.hub.viewed, Interval: cfg.Discovery.CheckInterval,
		URLs: s.places, StatusChanged: func() { s.problems.Again() },
		People: peeringconfig.Config{
			SearchDomains:      found.Tell,
			SearchDomainStatus: func(name string) (api.SearchDomainStatus, bool) { return s.domains.Status(name) },
			ClusterConfig:      func(spec *api.ClusterConfigSpec) { s.settings.clusterConfig(spec) },
			Health:             func() (peeringconfig.Health, bool) { return s.problems.Shown() },
			Effective:          func() api.EffectiveConfig { return shownSettings(s.config()) },
		},
		Sharing: s.sharing, While: s.sharing.run, SharingSettings: func() plan.SharingSettings { return sharingSettings(s.config()) },
	})
	s.poller = dnssd.New(dnssd.Config{
		Service: cfg.Discovery.Service, Report: func(r dnssd.Report) { s.domains.Looked(r) }, MaxInstances: cfg.Discovery.MaxNeighbours, Logger: s.logger,
	})
	s.domains = domains.New(found, domains.Config{
		Self: s.self, Loaded: s.current.Load, Store: s.store, Poller: s.poller, Registry: s.registry, Decisions: s.decisions, Peering: s.peering,
		Merged: s.policy.apply, Now: s.now,
	})
	s.settings = &configFollower{
		agent: s.Agent, store: s.store, peering: s.peering, certificates: s.certificates, apply: s.apply, end: s.end,
		switching: make(chan struct{}, 1), reloads: make(chan reloadAsk), pings: make(chan struct{}),
	}
	s.views = &views{id: s.id, key: s.key, registry: s.registry, decisions: s.decisions, peering: s.peering, sharing: s.sharing}
	s.callers = &callers{decisions: s.decisions, registry: s.registry, peering: s.peering, decided: s.hub.decided, logger: s.logger, parted: make(chan struct{}, 1)}
	return nil
}

// newMonitor returns the monitor that reports problems of the other parts.
func (s *session) newMonitor() *problems.Monitor {
	return problems.New(problems.Config{
		ID: s.id, Settings: s.config, Tracker: &s.health, Logger: s.unrecorded, Told: func() { work.Wake(s.told) },
		Peering: s.peering, Registry: s.registry, Decisions: s.decisions, MDNS: s.mdns,
		Links: s.linksInUse, Domains: s.domains.Reports, GivenURLs: s.places.answers,
		Requests: s.views.requests, Label: s.views.label,
		Certificates: s.certificates.inUse, Clock: func() error { return s.clock.Check("", s.hub.joined) }, SetAside: s.store.Recovered,
	})
}

// newBackend returns the backend of the control socket.
func (s *session) newBackend() *backend {
	return &backend{
		views: s.views, Resetter: s.reset, domainHandlers: s.domains,
		version: s.opts.Version, origin: s.origin, started: s.started, loaded: s.current.Load, self: s.self, greeting: s.greeting, now: s.now,
		logger: s.logger, warned: &s.warned,
		store: s.store, links: s.links, mdns: s.mdns, server: s.server, client: s.client, domains: s.domains, places: s.places,
		networks: s.networks, certificates: s.certificates, problems: s.problems, rotation: s.rotation,
	}
}
