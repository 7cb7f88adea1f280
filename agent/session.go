package agent

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"liqo.io/agent/agent/backend"
	"liqo.io/agent/agent/calls"
	"liqo.io/agent/agent/clock"
	"liqo.io/agent/agent/config"
	"liqo.io/agent/agent/connect"
	"liqo.io/agent/agent/decisions"
	"liqo.io/agent/agent/domains"
	"liqo.io/agent/agent/lan"
	"liqo.io/agent/agent/metrics"
	"liqo.io/agent/agent/policy"
	"liqo.io/agent/agent/problems"
	"liqo.io/agent/agent/proofs"
	"liqo.io/agent/agent/reload"
	"liqo.io/agent/agent/reset"
	"liqo.io/agent/agent/sharing"
	"liqo.io/agent/agent/socket"
	"liqo.io/agent/agent/supervise"
	"liqo.io/agent/agent/urls"
	"liqo.io/agent/agent/watchdog"
	"liqo.io/agent/api"
	"liqo.io/agent/discovery/registry"
	"liqo.io/agent/dnssd"
	"liqo.io/agent/endpoint"
	"liqo.io/agent/endpoint/client"
	"liqo.io/agent/endpoint/wire"
	"liqo.io/agent/health"
	"liqo.io/agent/ifwatch"
	"liqo.io/agent/liqo"
	"liqo.io/agent/mdnssvc"
	"liqo.io/agent/mdnssvc/responder"
	"liqo.io/agent/peer"
	"liqo.io/agent/peering"
	"liqo.io/agent/peering/admission"
	"liqo.io/agent/state"
	"liqo.io/agent/trust"
)

// session is the agent with one cluster ID and one key. It ends with the agent, or when
// ID, key or settings change that need new parts.
type session struct {
	agent  *Agent
	logger *slog.Logger
	health *health.Tracker
	config func() config.Config // in use
	store  *state.Store
	key    *trust.Key
	id     peer.ClusterID
	origin string
	end    context.CancelCauseFunc // ends the session

	links     *ifwatch.Watcher
	mdns      *mdnssvc.Service
	issuer    *trust.Issuer
	clock     *clock.Clock
	server    *endpoint.Server
	client    *client.Client
	registry  *registry.Registry
	fresh     *client.Client // keeps no connections: each call looks up the name and connects
	poller    *dnssd.Poller
	decisions *decisions.Store
	peering   *peering.Controller
	admission *admission.Server
	control   *socket.Server
	metrics   *metrics.Metrics
	scrapes   *metrics.Listener
	sharing   *sharing.Sharing
	liqo      *liqo.Liqo // nil: the agents peer all clusters
	connect   *connect.Connect
	reset     *reset.Resetter
	claim     *reset.Claim
	problems  *problems.Monitor
	domains   *domains.Keeper

	hub          hub
	certificates *policy.Certificates
	policy       *policy.Source
	proofs       *proofs.Queue
	incoming     *calls.Incoming
	notifier     *calls.Notifier
	uses         lan.Uses
	lan          *lan.Links
	urls         *urls.Prober

	follower *reload.Follower
	rotation *backend.Rotation
	views    *backend.Views
}

// run builds the parts, runs them until ctx ends or the identity changes, and
// waits for all of them.
func (s *session) run(parent context.Context) error {
	ctx, end := context.WithCancelCause(parent)
	defer end(nil)
	s.end = end
	if err := s.build(ctx); err != nil {
		return err
	}
	s.logger.Info("liqo-agent is up", "cluster", s.self().ClusterName, "id", s.id, "id-from", s.origin,
		"fingerprint", s.key.Fingerprint(), "port", s.server.Port(), "version", s.agent.opts.Version)

	s.agent.supervisor.Reset()
	// The responder stops last: nothing may announce this cluster after its
	// goodbyes.
	var running sync.WaitGroup
	parts := []supervise.Part{
		{Name: "links", Run: s.links.Run},
		{Name: "mDNS", Run: s.mdns.Run, PortTaken: health.MDNSPort},
		{Name: "endpoint", Run: s.server.Run},
		{Name: "registry", Run: s.registry.Run},
		{Name: "kubernetes", Run: s.peering.Run},
		{Name: "network", Run: s.connect.Run},
		{Name: "names", Run: s.connect.RunNames},
		{Name: "admission", Run: s.admission.Run},
		{Name: "control socket", Run: s.control.Run},
		{Name: "link feed", Run: s.lan.Run},
		{Name: "sightings", Run: lan.Sightings{MDNS: s.mdns, Registry: s.registry, Logger: s.logger}.Run},
		{Name: "watchers", Run: func(ctx context.Context) error { return s.views.Watch(ctx, s.control.Publish) }},
		{Name: "proofs", Run: s.proofs.Run},
		{Name: "certificates", Run: func(ctx context.Context) error { return proofs.SuspendTrust(ctx, s.decisions.Lapse) }},
		{Name: "calls", Run: s.incoming.Run},
		{Name: "answers", Run: s.notifier.Run},
		{Name: "given URLs", Run: s.urls.Run},
		{Name: "DNS", Run: s.poller.Run},
		{Name: "search domains", Run: s.domains.Run},
		{Name: "configuration", Run: s.follower.Run},
		{Name: "upkeep", Run: upkeep{store: s.store, settings: s.config, seen: s.registry.StoreSeen, clock: s.clockProblem, tracker: s.health, logger: s.logger}.Run},
		{Name: "reset", Run: s.reset.Run},
		{Name: "identity", Run: s.claim.Run},
		{Name: "health", Run: s.problems.Run},
		{Name: "metrics", Run: s.scrapes.Run},
	}
	running.Go(func() { s.agent.supervisor.Run(ctx, parts...) })
	s.agent.watchdog.Up(&watchdog.Session{Probes: s.probes(), Status: s.control.SelfCheck})
	<-ctx.Done()
	s.agent.watchdog.Down()
	running.Wait()
	s.sharing.Close()
	s.client.Close()
	s.fresh.Close()
	s.logger.Info("liqo-agent has stopped", "id", s.id)
	if cause := context.Cause(ctx); cause != context.Cause(parent) {
		return cause
	}
	return nil // the agent ends
}

// probes call the parts that own the state of the session.
func (s *session) probes() []watchdog.Probe {
	return []watchdog.Probe{
		// No peer has this ID, so nothing changes, but the owner of the peers has to answer.
		{Owner: "peers (registry)", Ask: func(ctx context.Context) error { _, err := s.registry.Rename(ctx, "", ""); return err }},
		{Owner: "decisions", Ask: func(context.Context) error { s.decisions.Policy(""); return nil }},
		{Owner: "configuration", Ask: s.follower.Answers},
		{Owner: "mDNS", Ask: s.mdns.Answers},
	}
}

// build builds all parts, and binds ports and sockets, so that one that is in use is an
// error at the start.
func (s *session) build(ctx context.Context) error {
	cfg := s.config()
	s.claim = reset.NewClaim(s.id, s.config, s.logger)
	s.issuer = trust.NewIssuer(s.key, func() peer.ClusterID { return s.id })
	s.clock = clock.New()
	s.hub.told = s.agent.watchdog.Changed
	s.certificates = policy.NewCertificates(s.id, s.key, s.issuer, s.health)
	found := domains.NewSet()
	s.policy = policy.NewSource(s.agent.settings.Loaded, found, s.uses.NoAutojoin)
	s.useTrust(cfg)
	if err := s.buildPeers(ctx, cfg, found); err != nil {
		return err
	}
	if err := s.buildEndpoint(ctx, cfg); err != nil {
		return err
	}
	s.rotation = &backend.Rotation{Replaced: func(successor *trust.Key) { s.end(&keyReplaced{key: successor}) }}
	s.reset = reset.New(reset.Config{
		Self: s.self, Fingerprint: s.key.Fingerprint(), Settings: s.config, Volatile: s.store.Volatile(), Key: s.rotation,
		Decisions: s.decisions, Registry: s.registry, Peering: s.peering,
		Progress: &s.agent.progress, Parted: func() { s.end(errReset) }, Logger: s.logger, Now: time.Now,
	})
	var err error
	s.admission, err = admission.NewServer(admission.Config{
		Listen: cfg.Cluster.AdmissionListen, Dir: cfg.State.Dir, Policy: s.admissionPolicy, Logger: s.logger,
		OwnClaims: func(ctx context.Context, namespace string, names []string) bool {
			return s.sharing.OwnClaims(ctx, namespace, names)
		},
	})
	if err != nil {
		return err
	}
	if err := s.admission.Listen(ctx); err != nil {
		return err
	}
	s.mdns, err = mdnssvc.New(mdnssvc.Config{
		Service: cfg.Discovery.Service, Domain: cfg.Discovery.Domain, MaxInstances: cfg.Discovery.MaxNeighbours,
		Remembered: s.remembered, Logger: s.logger,
	})
	if err != nil {
		return err
	}
	s.links = ifwatch.New(linkFilter(cfg), s.logger)
	s.lan = lan.NewLinks(lan.Config{
		Settings: s.config, Tracker: s.health, Watcher: s.links, MDNS: s.mdns, Changed: func() { s.problems.Again() }, LinksChanged: s.poller.Hurry,
		AutojoinChanged: s.applyPolicy, Logger: s.logger,
	}, &s.uses)
	s.problems = s.newMonitor()
	s.hub.wired.Store(&wiring{
		registry: s.registry, decisions: s.decisions, peering: s.peering, server: s.server, client: s.client, problems: s.problems,
		incoming: s.incoming, connect: s.connect, proofs: s.proofs, domains: s.domains, liqo: s.liqo,
	})
	s.mdns.Browse(cfg.Discovery.EnableDiscovery)
	s.mdns.Advertise(s.announcement(cfg))

	if err := s.buildMetrics(ctx, cfg); err != nil {
		return err
	}
	s.control = socket.NewServer(socket.ServerConfig{
		Path: cfg.State.Socket, Backend: s.newBackend(), Reloader: s.follower, Level: s.agent.opts.Level, Logger: s.logger,
		Metrics: s.metrics.Handler(), Explain: s.peering.Explain,
	})
	return s.control.Listen(ctx)
}

// useTrust takes the certificates and trust settings of a configuration into use.
func (s *session) useTrust(cfg config.Config) {
	s.certificates.Use(cfg)
	s.policy.Use(cfg, s.certificates.Loaded().FleetCAs)
	why := policy.Openness(cfg)
	s.health.When(health.Open, why != "", health.Args{"setting": why})
}

// applyPolicy passes the present policy to the decision store.
func (s *session) applyPolicy(ctx context.Context) { s.policy.Apply(ctx, s.decisions, s.logger) }

// clockTrusted reports whether our clock can be believed for a decision about a peer.
func (s *session) clockTrusted(about peer.ClusterID) bool {
	return s.clock.Check(about, s.hub.joined) == nil
}

// clockProblem returns why our clock cannot be believed, nil if it can.
func (s *session) clockProblem() error { return s.clock.Check("", s.hub.joined) }

// self returns the identity that this cluster shows.
func (s *session) self() peer.Identity {
	cfg := s.config().Cluster
	return peer.Identity{ClusterID: s.id, ClusterName: cfg.NameOf(s.id), GuestNamespace: cfg.Namespace}
}

// greeting returns the greeting in our calls to peers.
func (s *session) greeting() wire.Greeting {
	return wire.Greeting{Identity: s.self(), Port: s.server.Port(), URL: s.config().Endpoint.AdvertiseURL}
}

// lookedAfter lists the clusters that the controller of ForeignClusters reconciles: the
// peers, and clusters that only wait for access.
type lookedAfter struct {
	*registry.Registry
	decisions *decisions.Store
}

var _ peering.Registry = lookedAfter{}

// IDs implements peering.Registry.
func (r lookedAfter) IDs() []peer.ClusterID {
	ids := r.Registry.IDs()
	for _, waiting := range r.decisions.Requests() {
		ids = append(ids, waiting.ID)
	}
	return ids
}

// candidateChanged is called by the registry when the status of a candidate changed.
func (s *session) candidateChanged(k peer.Key) {
	if object, ok := urls.Object(k); ok {
		s.peering.URLProbed(object)
	}
	s.domains.Probed(k)
}

// pinned returns the trusted key of a cluster, zero for none.
func (s *session) pinned(id peer.ClusterID) peer.Fingerprint {
	if pin := s.decisions.Pin(id); pin != nil {
		return pin.Fingerprint
	}
	return peer.Fingerprint{}
}

// admissionPolicy returns the policy for PeeringRequests of a peer.
func (s *session) admissionPolicy(id peer.ClusterID) admission.Policy {
	standing := s.decisions.Policy(id)
	return admission.Policy{
		Pinned: standing.Pin != nil, Blocked: standing.Blocked,
		// A rejected request is stored nevertheless, so that a person can still accept it.
		Never:  standing.Accept.Phase == api.RequestRefused && standing.Accept.Reason != decisions.ReasonRejected,
		Accept: standing.Accept.Phase, Message: standing.Accept.Message,
	}
}

// rememberedPeers returns the stored peers that matter from the start and what saw them
// when the last run ended; those that were there then are Present.
func (s *session) rememberedPeers(ctx context.Context) ([]peer.Peer, map[peer.ClusterID][]peer.Sighting, error) {
	peers, err := s.store.Standing(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("read the remembered peers: %w", err)
	}
	seen, err := s.store.Seen(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("read which peers were there: %w", err)
	}
	for i := range peers {
		if len(seen[peers[i].ID]) > 0 {
			peers[i].Phase = peer.PhasePresent
		}
	}
	return peers, seen, nil
}

// announcement returns what to advertise with a configuration, nil for nothing.
func (s *session) announcement(cfg config.Config) *responder.Announcement {
	if !cfg.Discovery.EnableAdvertisement {
		return nil
	}
	return &responder.Announcement{
		Instance: string(s.id),
		Service:  cfg.Discovery.Service,
		Domain:   cfg.Discovery.Domain,
		// Not the host's own name: that one belongs to whoever runs the
		// host's general responder, with addresses of links we leave out.
		Host: string(s.id),
		Port: s.server.Port(),
		TXT:  mdnssvc.TXT(s.self(), s.key.Fingerprint()),
		TTL:  cfg.Discovery.TTL,
	}
}

// remembered reports whether an mDNS instance belongs to a peer with a known key, so that
// a flood of others cannot displace it. Only the first of the names that it takes after
// conflicts counts, because anybody can announce any number of them.
func (s *session) remembered(instance string) bool {
	id := strings.TrimSuffix(strings.ToLower(instance), " (2)")
	p, ok := s.registry.Peer(peer.ClusterID(id))
	return ok && !p.Fingerprint.IsZero()
}

// otherID ends the session because the API server has another ID for this cluster.
func (s *session) otherID(id peer.ClusterID) {
	switch {
	case id == s.id:
		s.health.Clear(health.ClusterIDDiffers, "")
	case s.config().Cluster.ID != "":
		s.health.Set(health.ClusterIDDiffers, health.Finding{Args: health.Args{
			"ours": string(s.id), "namespace": s.config().Cluster.Namespace, "theirs": string(id),
		}})
	case s.claim.Stands():
		s.claim.Disputed() // Run writes our ID to the API server
	default:
		s.end(&identityChanged{id: id})
	}
}

// linkFilter returns which interfaces a configuration selects.
func linkFilter(cfg config.Config) ifwatch.Filter {
	return ifwatch.Filter{Include: cfg.Discovery.Interfaces, Exclude: cfg.Discovery.ExcludeInterfaces}
}
