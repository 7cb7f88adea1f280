package agent

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"liqo.io/agent/agent/clock"
	"liqo.io/agent/agent/config"
	"liqo.io/agent/agent/control"
	"liqo.io/agent/agent/decisions"
	"liqo.io/agent/agent/domains"
	"liqo.io/agent/agent/metrics"
	"liqo.io/agent/agent/problems"
	"liqo.io/agent/agent/reset"
	"liqo.io/agent/api"
	"liqo.io/agent/discovery/registry"
	"liqo.io/agent/dnssd"
	"liqo.io/agent/endpoint"
	"liqo.io/agent/endpoint/client"
	"liqo.io/agent/endpoint/wire"
	"liqo.io/agent/health"
	"liqo.io/agent/ifwatch"
	"liqo.io/agent/kube/work"
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
	*Agent
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
	asker     *client.Client // keeps no connections, so that a name is looked up each time
	poller    *dnssd.Poller
	decisions *decisions.Store
	peering   *peering.Controller
	admission *admission.Server
	control   *control.Server
	metrics   *metrics.Metrics
	scrapes   *metrics.Listener
	sharing   *sharing
	reset     *reset.Resetter
	claim     *reset.Claim
	problems  *problems.Monitor
	domains   *domains.Keeper

	hub          hub
	certificates *certificates
	policies     *policySource
	policy       *policyApplier
	proofs       *proofs
	callers      *callers
	callBacks    *callBacks
	networks     *networks
	places       *places

	settings *configFollower
	rotation *rotation
	views    *views
}

// partMDNS is the name of the part that holds port 5353.
const partMDNS = "mDNS"

// run builds the parts, runs them until ctx ends or the identity changes, and
// waits for all of them.
func (s *session) run(ctx context.Context) error {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	s.end = end
	if err := s.build(ctx); err != nil {
		return err
	}
	s.logger.Info("liqo-agent is up", "cluster", s.identity(s.id).ClusterName, "id", s.id, "id-from", s.origin,
		"fingerprint", s.key.Fingerprint(), "port", s.server.Port(), "version", s.opts.Version)

	s.health.Replace(health.PartFailing) // of those before
	s.health.Clear(health.MDNSPort, "")

	// The responder stops last: nothing may announce this cluster after its
	// goodbyes.
	var parts sync.WaitGroup
	for _, p := range []part{
		{"links", s.links.Run},
		{partMDNS, s.mdns.Run},
		{"endpoint", s.server.Run},
		{"registry", s.registry.Run},
		{"kubernetes", s.peering.Run},
		{"admission", s.admission.Run},
		{"control socket", s.control.Run},
		{"link feed", s.feedLinks},
		{"sightings", s.feedSightings},
		{"watchers", s.feedWatchers},
		{"proofs", s.proofs.Run},
		{"certificates", func(ctx context.Context) error { return suspendTrust(ctx, s.decisions) }},
		{"calls", s.callers.Run},
		{"answers", s.callBacks.Run},
		{"given URLs", s.places.Run},
		{"DNS", s.poller.Run},
		{"search domains", s.domains.Run},
		{"configuration", s.settings.Run},
		{"upkeep", s.upkeep},
		{"reset", s.reset.Run},
		{"identity", s.claim.Run},
		{"health", s.problems.Run},
		{"metrics", s.scrapes.Run},
	} {
		parts.Go(func() { supervise(ctx, s.logger, p, s.partFailed) })
	}
	s.up(s)
	<-ctx.Done()
	s.down()
	parts.Wait()
	s.sharing.close()
	s.client.Close()
	s.asker.Close()
	s.logger.Info("liqo-agent has stopped", "id", s.id)
	var changed *identityChanged
	var replaced *keyReplaced
	var settings *settingsChanged
	var due *resetDue
	if cause := context.Cause(ctx); errors.As(cause, &changed) || errors.As(cause, &replaced) || errors.As(cause, &settings) || errors.As(cause, &due) {
		return cause
	}
	return nil
}

// build builds all parts, and binds ports and sockets, so that one that is in use is an
// error at the start.
func (s *session) build(ctx context.Context) error {
	cfg := s.config()
	s.claim = reset.NewClaim(s.id, s.config, s.logger)
	s.issuer = trust.NewIssuer(s.key, func() peer.ClusterID { return s.id })
	s.clock = clock.New()
	s.networks = newNetworks()
	s.hub.told = func() { work.Wake(s.told) }
	s.certificates = &certificates{id: s.id, key: s.key, issuer: s.issuer, tracker: &s.health}
	found := domains.NewSet()
	s.policies = &policySource{loaded: s.current.Load, domains: found, networks: s.networks}
	s.trusting(cfg)
	s.sharing = newSharing(s)
	if err := s.buildPeers(ctx, cfg, found); err != nil {
		return err
	}
	if err := s.buildEndpoint(ctx, cfg); err != nil {
		return err
	}
	s.rotation = &rotation{end: s.end}
	s.reset = reset.New(reset.Config{
		Self: s.self, Fingerprint: s.key.Fingerprint(), Settings: s.config, Volatile: s.store.Volatile(), Key: s.rotation,
		Decisions: s.decisions, Registry: s.registry, Peering: s.peering,
		Progress: &s.resetProgress, Parted: func() { s.end(&resetDue{}) }, Logger: s.logger, Now: s.now,
	})
	var err error
	s.admission, err = admission.NewServer(admission.Config{
		Listen: cfg.Cluster.AdmissionListen, Dir: cfg.State.Dir, Policy: s.admissionPolicy, Logger: s.logger,
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
	s.problems = s.newMonitor()
	s.hub.wired.Store(&wiring{
		registry: s.registry, decisions: s.decisions, peering: s.peering, server: s.server, client: s.client, problems: s.problems,
		callers: s.callers, proofs: s.proofs, domains: s.domains,
	})
	s.mdns.Browse(cfg.Discovery.EnableDiscovery)
	s.mdns.Advertise(s.announcement(cfg))

	if err := s.buildMetrics(ctx, cfg); err != nil {
		return err
	}
	s.control = control.NewServer(control.ServerConfig{
		Path: cfg.State.Socket, Backend: s.newBackend(), Reloader: s.settings, Level: s.opts.Level, Logger: s.logger,
		Metrics: s.metrics.Handler(), Explain: s.peering.Explain,
	})
	return s.control.Listen(ctx)
}

// trusting takes the certificates and trust settings of a configuration into use.
func (s *session) trusting(cfg config.Config) {
	s.certificates.use(cfg)
	s.policies.use(cfg, s.certificates.inUse().FleetCAs)
	why := openness(cfg)
	s.health.When(health.Open, why != "", health.Args{"setting": why})
}

// clockTrusted reports whether our clock can be believed for a decision about a peer.
func (s *session) clockTrusted(about peer.ClusterID) bool {
	return s.clock.Check(about, s.hub.joined) == nil
}

// self returns the identity that this cluster shows.
func (s *session) self() peer.Identity { return s.identity(s.id) }

// greeting returns what this cluster tells about itself when it calls a peer.
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
	if object, is := strings.CutPrefix(k.Instance, givenBy); is && k.Source == peer.Manual {
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

// admissionPolicy returns what the admission of PeeringRequests needs to know about a
// peer.
func (s *session) admissionPolicy(id peer.ClusterID) admission.Policy {
	standing := s.decisions.Policy(id)
	return admission.Policy{
		Pinned: standing.Pin != nil, Blocked: standing.Blocked,
		// A rejected request is stored nevertheless, so that a person can still accept it.
		Never:  standing.Accept.Phase == api.RequestRefused && standing.Accept.Reason != decisions.ReasonRejected,
		Accept: standing.Accept.Phase, Message: standing.Accept.Message,
	}
}

// rememberedPeers returns the stored peers; those that were there when the last
// run ended are Present.
func (s *session) rememberedPeers(ctx context.Context) ([]peer.Peer, error) {
	peers, err := s.store.Peers(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the remembered peers: %w", err)
	}
	seen, err := s.store.Seen(ctx)
	if err != nil {
		return nil, fmt.Errorf("read which peers were there: %w", err)
	}
	for i := range peers {
		if seen[peers[i].ID] {
			peers[i].Phase = peer.PhasePresent
		}
	}
	return peers, nil
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
		TXT:  mdnssvc.TXT(s.identity(s.id), s.key.Fingerprint()),
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
		s.claim.Disputed() // the API server is to follow us
	default:
		s.end(&identityChanged{id: id})
	}
}

// linkFilter returns which interfaces a configuration selects.
func linkFilter(cfg config.Config) ifwatch.Filter {
	return ifwatch.Filter{Include: cfg.Discovery.Interfaces, Exclude: cfg.Discovery.ExcludeInterfaces}
}

// linkAddrs lists a link's addresses, for status.
func linkAddrs(l ifwatch.Link) []string {
	out := make([]string, 0, len(l.Addrs))
	for _, a := range slices.SortedFunc(slices.Values(l.Addrs), netip.Prefix.Compare) {
		out = append(out, a.String())
	}
	return out
}
