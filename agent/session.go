package agent

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"liqo.io/agent/agent/config"
	"liqo.io/agent/agent/control"
	"liqo.io/agent/agent/recorder"
	"liqo.io/agent/endpoint"
	"liqo.io/agent/ifwatch"
	"liqo.io/agent/mdnssvc"
	"liqo.io/agent/mdnssvc/responder"
	"liqo.io/agent/peer"
	"liqo.io/agent/peering"
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

	links    *ifwatch.Watcher
	mdns     *mdnssvc.Service
	server   *endpoint.Server
	client   *endpoint.Client
	recorder *recorder.Recorder
	peering  *peering.Controller
	control  *control.Server
}

// run builds the parts, runs them until ctx ends or the identity changes, and
// waits for all of them.
func (s *session) run(ctx context.Context) error {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	if err := s.build(ctx, end); err != nil {
		return err
	}
	s.logger.Info("liqo-agent is up", "cluster", s.identity(s.id).ClusterName, "id", s.id, "id-from", s.origin,
		"fingerprint", s.key.Fingerprint(), "port", s.server.Port(), "version", s.opts.Version)

	// The responder outlives the rest by a moment: its goodbyes are the last
	// thing the neighbours hear, and nothing may announce us after them.
	var parts sync.WaitGroup
	for _, p := range []part{
		{"links", s.links.Run},
		{"mDNS", s.mdns.Run},
		{"endpoint", s.server.Run},
		{"recorder", s.recorder.Run},
		{"kubernetes", s.peering.Run},
		{"control socket", s.control.Run},
		{"link feed", s.feedLinks},
		{"sightings", s.feedSightings},
		{"watchers", s.feedWatchers},
		{"configuration", s.followConfig},
		{"upkeep", s.upkeep},
	} {
		parts.Go(func() { supervise(ctx, s.logger, p, s.partFailed) })
	}
	<-ctx.Done()
	parts.Wait()
	s.client.Close()
	s.logger.Info("liqo-agent has stopped", "id", s.id)
	var changed *identityChanged
	if cause := context.Cause(ctx); errors.As(cause, &changed) {
		return cause
	}
	return nil
}

// build makes every part and binds what can be taken by somebody else, so that
// a port or socket in use is an error of the start.
func (s *session) build(ctx context.Context, end context.CancelCauseFunc) error {
	cfg := s.config()
	self := func() peer.Identity { return s.identity(s.id) }
	issuer := trust.NewIssuer(s.key, func() peer.ClusterID { return s.id })
	s.server = endpoint.NewServer(endpoint.ServerConfig{
		Listen: cfg.Endpoint.Listen, Issuer: issuer, Identity: self,
		MaxConns: cfg.Endpoint.MaxConnections, Logger: s.logger,
	})
	if err := s.server.Listen(ctx); err != nil {
		return err
	}
	s.client = endpoint.NewClient(endpoint.ClientConfig{
		SelfFingerprint: s.key.Fingerprint(), MaxSessions: cfg.Discovery.MaxNeighbours, Keep: maxKept,
	})
	remembered, err := s.rememberedPeers(ctx)
	if err != nil {
		return err
	}
	s.recorder = recorder.New(recorder.Config{
		Self: s.id, SelfKey: s.key.Fingerprint(), Identify: s.client.Identify,
		Reconfirm: func(link, instance string) { s.mdns.Reconfirm(link, instance) },
		Changed:   s.changed,
		Store:     s.store, Remembered: remembered,
		Limit: 2 * cfg.Discovery.MaxNeighbours, Checkers: maxChecks, Interval: cfg.Discovery.CheckInterval,
		Logger: s.logger,
	})
	s.peering = peering.New(peering.Config{
		Kubeconfig: func() string { return s.config().Cluster.Kubeconfig },
		Registry:   s.recorder, Identity: self, Namespace: cfg.Cluster.Namespace, Logger: s.logger,
		OnClusterID: func(id peer.ClusterID) { s.otherID(id, end) },
	})
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

	s.control = control.NewServer(control.ServerConfig{
		Path: cfg.State.Socket, Backend: (*backend)(s), Level: s.opts.Level, Logger: s.logger,
	})
	return s.control.Listen(ctx)
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
	if p, ok := s.recorder.Peer(id); ok && p.Phase == peer.PhaseLost {
		s.client.Forget(p.Fingerprint)
	}
	s.peering.Enqueue(id)
}

// otherID is told that the API server knows this cluster by another ID.
func (s *session) otherID(id peer.ClusterID, end context.CancelCauseFunc) {
	switch {
	case id == s.id:
		s.report("cluster ID", "", "")
	case s.config().Cluster.ID != "":
		s.report("cluster ID", fmt.Sprintf("cluster.id is %s, but ConfigMap cluster-id in namespace %s says %s",
			s.id, s.config().Cluster.Namespace, id), "make both the same, or remove cluster.id from the configuration")
	default:
		end(&identityChanged{id: id})
	}
}

// partFailed keeps the state of the parts for status.
func (s *session) partFailed(name string, err error) {
	if err == nil {
		s.report("part "+name, "", "")
		return
	}
	text := err.Error()
	if !strings.HasPrefix(text, name) {
		text = name + ": " + text
	}
	s.report("part "+name, text, "it is started again by itself; see the log if this stays")
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
