package agent

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"liqo.io/agent/agent/clock"
	"liqo.io/agent/agent/config"
	"liqo.io/agent/agent/contact"
	"liqo.io/agent/agent/control"
	"liqo.io/agent/agent/ledger"
	"liqo.io/agent/agent/metrics"
	"liqo.io/agent/agent/recorder"
	"liqo.io/agent/api"
	"liqo.io/agent/dnssd"
	"liqo.io/agent/endpoint"
	"liqo.io/agent/health"
	"liqo.io/agent/ifwatch"
	"liqo.io/agent/mdnssvc"
	"liqo.io/agent/mdnssvc/responder"
	"liqo.io/agent/peer"
	"liqo.io/agent/peering"
	"liqo.io/agent/peering/admission"
	"liqo.io/agent/state"
	"liqo.io/agent/trust"
)

const (
	// maxChecks bounds the peers contacted at once.
	maxChecks = 32
	// maxKept bounds the connections kept open for the next check. Each takes
	// about 20 KB here and as much at the peer.
	maxKept = 128
)

// session is the agent under one cluster ID. It ends with the agent, or when
// the cluster turns out to have another ID.
type session struct {
	*Agent
	store  *state.Store
	key    *trust.Key
	id     peer.ClusterID
	origin string

	links     *ifwatch.Watcher
	mdns      *mdnssvc.Service
	issuer    *trust.Issuer
	clock     *clock.Clock
	server    *endpoint.Server
	client    *endpoint.Client
	recorder  *recorder.Recorder
	asker     *endpoint.Client // keeps no connections, so that a name is looked up each time
	contacts  *contact.Contacts
	poller    *dnssd.Poller
	ledger    *ledger.Ledger
	peering   *peering.Controller
	admission *admission.Server
	control   *control.Server
	metrics   *metrics.Metrics
	scrapes   *metrics.Listener
	sharing   *sharing

	end      context.CancelCauseFunc // ends the session
	proofs   *proofs
	absences absences
	calls    calls
	manual   chan struct{} // a URL was given or taken back; capacity 1
	parted   chan struct{} // a peering with a caller may have ended; capacity 1
	// spoken is what the ClusterConfig said last; switching has an element when that
	// is new.
	spoken    atomic.Pointer[*api.ClusterConfigSpec]
	switching chan struct{}
	// reloads are those who wait for the outcome of one, pings for any sign of life.
	reloads chan reloadAsk
	pings   chan struct{}
	// callbacks are clusters to be told that they were let in.
	callbacks chan ledger.Request

	domains  *searchDomains
	networks *networks
	places   *places

	ills        ills
	looking     sync.Mutex // while is looked what is the matter
	lookedOnce  atomic.Bool
	shownHealth sync.Mutex                       // guards ills.shown and ills.message
	fleetCert   atomic.Pointer[x509.Certificate] // our own, nil for none
	namedCert   atomic.Pointer[x509.Certificate] // of the host name, nil for none

	policies sync.Mutex
	trusted  ledger.Policy // of the configuration
	deciding sync.Mutex    // while the ledger takes a policy in

	built     atomic.Bool                         // all parts that know peers are there
	fleet     atomic.Pointer[[]*x509.Certificate] // whose certificates make keys trusted
	certified atomic.Bool                         // our own key has such a certificate

	resets   chan struct{} // a reset was asked for; capacity 1
	resetter resetter
	claimed  chan struct{} // the API server has another ID than this cluster claims; capacity 1

	rotating sync.Mutex
	rotated  bool // the session is about to end because of a new key
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

	// The responder outlives the rest by a moment: its goodbyes are the last
	// thing the neighbours hear, and nothing may announce us after them.
	var parts sync.WaitGroup
	for _, p := range []part{
		{"links", s.links.Run},
		{partMDNS, s.mdns.Run},
		{"endpoint", s.server.Run},
		{"recorder", s.recorder.Run},
		{"kubernetes", s.peering.Run},
		{"admission", s.admission.Run},
		{"control socket", s.control.Run},
		{"link feed", s.feedLinks},
		{"sightings", s.feedSightings},
		{"watchers", s.feedWatchers},
		{"proofs", s.feedProofs},
		{"certificates", s.followCertificates},
		{"calls", s.expireCalls},
		{"answers", s.callBack},
		{"given URLs", s.feedManual},
		{"contacts", s.contacts.Run},
		{"DNS", s.poller.Run},
		{"search domains", s.followDomains},
		{"configuration", s.followConfig},
		{"upkeep", s.upkeep},
		{"reset", s.followReset}, {"identity", s.claimIdentity},
		{"health", s.followHealth},
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

// build makes every part and binds what can be taken by somebody else, so that
// a port or socket in use is an error of the start.
func (s *session) build(ctx context.Context) error {
	cfg := s.config()
	s.proofs, s.manual, s.callbacks = newProofs(), make(chan struct{}, 1), make(chan ledger.Request, 16)
	s.switching, s.parted = make(chan struct{}, 1), make(chan struct{}, 1)
	s.resets, s.claimed = make(chan struct{}, 1), make(chan struct{}, 1)
	s.reloads, s.pings = make(chan reloadAsk), make(chan struct{})
	s.issuer = trust.NewIssuer(s.key, func() peer.ClusterID { return s.id })
	s.clock = clock.New()
	s.ills.again = make(chan struct{}, 1)
	s.domains, s.networks, s.places = newSearchDomains(), newNetworks(), newPlaces()
	s.showCertificates(cfg)
	s.trusting(cfg)
	s.sharing = newSharing(s)
	if err := s.buildEndpoint(ctx, cfg); err != nil {
		return err
	}
	if err := s.buildPeers(ctx, cfg); err != nil {
		return err
	}
	var err error
	s.admission, err = admission.NewServer(admission.Config{
		Listen: cfg.Cluster.AdmissionListen, Dir: cfg.State.Dir, Standing: s.admissionStanding, Logger: s.logger,
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
	s.mdns.Browse(cfg.Discovery.EnableDiscovery)
	s.mdns.Advertise(s.announcement(cfg))

	if err := s.buildMetrics(ctx, cfg); err != nil {
		return err
	}
	s.control = control.NewServer(control.ServerConfig{
		Path: cfg.State.Socket, Backend: (*backend)(s), Reloader: (*backend)(s), Level: s.opts.Level, Logger: s.logger,
		Metrics: s.metrics.Handler(), Explain: s.peering.Explain,
	})
	return s.control.Listen(ctx)
}

// self is who we say that we are.
func (s *session) self() peer.Identity { return s.identity(s.id) }

// greeting is what we say about ourselves when we call a peer.
func (s *session) greeting() endpoint.Greeting {
	return endpoint.Greeting{Identity: s.self(), Port: s.server.Port(), URL: s.config().Endpoint.AdvertiseURL}
}

// buildEndpoint makes our HTTPS port and the client for those of the peers.
func (s *session) buildEndpoint(ctx context.Context, cfg config.Config) error {
	s.server = endpoint.NewServer(endpoint.ServerConfig{
		Listen: cfg.Endpoint.Listen, Issuer: s.issuer, Identity: s.self,
		Peers: (*callers)(s), Reach: s.callBackTo,
		Gateway: endpoint.NewGateway(endpoint.GatewayConfig{
			Upstream:      func() (endpoint.Upstream, bool) { return s.peering.Upstream() },
			DeletedByPeer: func(id peer.ClusterID, resource string) func(int) { return s.peering.DeletedByPeer(id, resource) },
			Guests:        s.sharing,
			Logger:        s.logger,
		}),
		MaxConns: cfg.Endpoint.MaxConnections, Logger: s.logger,
	})
	s.client = endpoint.NewClient(endpoint.ClientConfig{
		SelfFingerprint: s.key.Fingerprint(), Issuer: s.issuer, MaxSessions: cfg.Discovery.MaxNeighbours, Keep: maxKept,
	})
	s.asker = endpoint.NewClient(endpoint.ClientConfig{SelfFingerprint: s.key.Fingerprint(), Issuer: s.issuer})
	return s.server.Listen(ctx)
}

// buildPeers makes the parts that know the peers: who is there, what was decided
// about them, and what is to be done.
func (s *session) buildPeers(ctx context.Context, cfg config.Config) error {
	remembered, err := s.rememberedPeers(ctx)
	if err != nil {
		return err
	}
	for _, p := range remembered {
		s.absences.note(p.ID, p.Phase)
	}
	s.ledger, err = ledger.Open(ctx, ledger.Config{
		Store: s.store, Self: func() peer.ClusterID { return s.id }, SelfKey: s.key.Fingerprint,
		Peer:   s.seen,
		Policy: s.policy(), ClockTrusted: s.clockTrusted, Changed: s.decided, Opened: s.letIn, Logger: s.logger, Now: s.now,
	})
	if err != nil {
		return err
	}
	s.recorder = recorder.New(recorder.Config{
		Self: s.id, SelfKey: s.key.Fingerprint(), Identify: s.check,
		Reconfirm: func(link, instance string) { s.mdns.Reconfirm(link, instance) },
		Changed:   s.changed,
		Proved:    s.proved,
		Pinned:    s.pinned,
		Store:     s.store, Remembered: remembered,
		Limit: 2 * cfg.Discovery.MaxNeighbours, Checkers: maxChecks, Interval: cfg.Discovery.CheckInterval,
		Logger: s.logger,
	})
	s.peering = peering.New(peering.Config{
		Kubeconfig: func() string { return s.config().Cluster.Kubeconfig },
		Registry:   (*lookedAfter)(s), Identity: s.self, Namespace: cfg.Cluster.Namespace, Logger: s.logger,
		OnClusterID: s.otherID,
		Ledger:      s.ledger, Peers: (*outward)(s), Greeting: s.greeting, TokenUsed: s.ledger.TokenUsed, Reached: s.reached,
		LostAfter: func() time.Duration { return s.config().Discovery.LostAfter },
		Webhook:   func() map[string]any { return s.admission.Webhook() },
		Viewed:    s.viewed, Interval: cfg.Discovery.CheckInterval,
		Places: (*askedPlaces)(s), SearchDomains: s.domains.tell, SearchDomainStatus: s.searchDomainStatus, ClusterConfig: s.clusterConfig,
		Health: s.healthShown, Effective: func() api.EffectiveConfig { return shownSettings(s.config()) }, StatusChanged: func() { wake(s.ills.again) },
		Sharing: s.sharing, While: s.sharing.run, SharingSettings: func() peering.SharingSettings { return sharingSettings(s.config()) },
	})
	s.contacts = contact.New(contact.Config{
		Self: s.id, SelfKey: s.key.Fingerprint(), Identify: s.asker.Identify, Recorder: s.recorder, Known: s.recorder.Peer,
		Changed: s.contacted, Limit: 2 * cfg.Discovery.MaxNeighbours, Logger: s.logger,
	})
	s.poller = dnssd.New(dnssd.Config{
		Service: cfg.Discovery.Service, Report: s.looked, MaxInstances: cfg.Discovery.MaxNeighbours, Logger: s.logger,
	})
	s.built.Store(true)
	return nil
}

// lookedAfter is what the controller of ForeignClusters looks after: the peers, and who
// waits to be let in without being one.
type lookedAfter session

var _ peering.Registry = (*lookedAfter)(nil)

// Peer implements peering.Registry.
func (r *lookedAfter) Peer(id peer.ClusterID) (peer.Peer, bool) { return r.recorder.Peer(id) }

// Settled implements peering.Registry.
func (r *lookedAfter) Settled() bool { return r.recorder.Settled() }

// Hold implements peering.Registry.
func (r *lookedAfter) Hold(id peer.ClusterID, hold bool) { r.recorder.Hold(id, hold) }

// IDs implements peering.Registry.
func (r *lookedAfter) IDs() []peer.ClusterID {
	ids := r.recorder.IDs()
	for _, waiting := range r.ledger.Requests() {
		ids = append(ids, waiting.ID)
	}
	return ids
}

// pinned is the key that is trusted to be a cluster's, zero for none.
func (s *session) pinned(id peer.ClusterID) peer.Fingerprint {
	if pin := s.ledger.Pin(id); pin != nil {
		return pin.Fingerprint
	}
	return peer.Fingerprint{}
}

// admissionStanding is what the admission of PeeringRequests has to know about a
// peer.
func (s *session) admissionStanding(id peer.ClusterID) admission.Standing {
	standing := s.ledger.Standing(id)
	return admission.Standing{
		Pinned: standing.Pin != nil, Blocked: standing.Blocked,
		// What a person rejected is stored all the same: a person can still accept it.
		Never:  standing.Accept.Phase == api.RequestRefused && standing.Accept.Reason != ledger.ReasonRejected,
		Accept: standing.Accept.Phase, Message: standing.Accept.Message,
	}
}

// seen is what is known about a peer now; nothing before the recorder is there.
func (s *session) seen(id peer.ClusterID) (peer.Peer, bool) {
	if !s.built.Load() {
		return peer.Peer{}, false
	}
	return s.recorder.Peer(id)
}

// decided is told that something was decided about a peer. What the configuration
// decides while the parts are being made, they find when they start.
func (s *session) decided(id peer.ClusterID) {
	if !s.built.Load() {
		return
	}
	s.peering.Enqueue(id)
	s.recorder.Touch(id)
	s.remarked(id)
	s.server.Recheck(id)
	wake(s.ills.again)
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

// announcement is what to advertise under a configuration, nil for nothing.
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

// remembered reports whether an instance belongs to a peer whose key we know,
// so that a flood of others cannot push it out. Of the names it would take after
// conflicts only the first counts: anybody can announce any number of them.
func (s *session) remembered(instance string) bool {
	id := strings.TrimSuffix(strings.ToLower(instance), " (2)")
	p, ok := s.recorder.Peer(peer.ClusterID(id))
	return ok && !p.Fingerprint.IsZero()
}

// changed is told of every change of a peer's view.
func (s *session) changed(id peer.ClusterID) {
	if p, ok := s.recorder.Peer(id); ok {
		if p.Phase == peer.PhaseLost {
			s.client.Forget(p.Fingerprint)
		}
		if s.absences.note(id, p.Phase) {
			s.proofs.putReturn(id) // it writes to the disk, and this is the recorder's goroutine
		}
	}
	s.peering.Enqueue(id)
	s.contacts.Touch(id)
	wake(s.ills.again)
	wake(s.told)
}

// otherID is told that the API server knows this cluster by another ID.
func (s *session) otherID(id peer.ClusterID) {
	switch {
	case id == s.id:
		s.health.Clear(health.ClusterIDDiffers, "")
	case s.config().Cluster.ID != "":
		s.health.Set(health.ClusterIDDiffers, health.Finding{Args: health.Args{
			"ours": string(s.id), "namespace": s.config().Cluster.Namespace, "theirs": string(id),
		}})
	case s.claims():
		wake(s.claimed) // the API server is to follow us
	default:
		s.end(&identityChanged{id: id})
	}
}

// linkFilter is the choice of interfaces under a configuration.
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
