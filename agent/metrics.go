package agent

import (
	"cmp"
	"context"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/api/resource"

	"liqo.io/agent/agent/config"
	"liqo.io/agent/agent/control"
	"liqo.io/agent/agent/domains"
	"liqo.io/agent/agent/metrics"
	"liqo.io/agent/agent/problems"
	"liqo.io/agent/api"
	"liqo.io/agent/dnssd"
	"liqo.io/agent/endpoint"
	"liqo.io/agent/health"
	"liqo.io/agent/ifwatch"
	"liqo.io/agent/kube/conn"
	"liqo.io/agent/mdnssvc"
	"liqo.io/agent/peer"
	"liqo.io/agent/state"
	"liqo.io/agent/trust"
)

// measures are the metrics of the agent about its own parts, such as restarts. The zero
// value is that of an agent that has not built its parts yet.
type measures struct {
	mu       sync.Mutex
	restarts map[string]uint64 // by part
	failing  map[string]bool   // parts that failed lately
	badRead  bool              // the last reading of the configuration found faults
	read     time.Time         // when one did not, last; zero: at the start only

	disk sync.Mutex // held by who asks the disk, which may take long
	kept onDisk     // what it said last; mu guards it
}

// onDisk are the metrics that need the disk.
type onDisk struct {
	state   metrics.State
	keyMade time.Time
	invites []state.Invite
}

// failed records that a part failed, or with a nil error that it runs steadily.
func (m *measures) failed(part string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err == nil {
		delete(m.failing, part)
		return
	}
	if m.failing == nil {
		m.failing, m.restarts = make(map[string]bool), make(map[string]uint64)
	}
	m.failing[part] = true
	m.restarts[part]++
}

// anew records that all parts were rebuilt.
func (m *measures) anew() {
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.failing)
}

// reloaded records the outcome of a reload of the configuration.
func (m *measures) reloaded(now time.Time, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.badRead = err != nil; err == nil {
		m.read = now
	}
}

// buildMetrics builds the server of the metrics. A port that is taken is an error only
// at the first start: later, it must not end a working agent.
func (s *session) buildMetrics(ctx context.Context, cfg config.Config) error {
	s.measures.anew()
	source := &metricsSource{
		views: s.views, agent: s.Agent, store: s.store, links: s.links, mdns: s.mdns, server: s.server, poller: s.poller,
		issuer: s.issuer, domains: s.domains, certificates: s.certificates, problems: s.problems,
	}
	s.metrics = metrics.New(source.snapshot, s.logger)
	s.scrapes = metrics.NewListener(s.metrics.Handler(), s.logger)
	if s.generation.Load() == 0 {
		return s.scrapes.Listen(ctx, cfg.Metrics.Listen)
	}
	s.listenForMetrics(ctx, cfg)
	return nil
}

// listenForMetrics serves the metrics at the configured address.
func (s *session) listenForMetrics(ctx context.Context, cfg config.Config) {
	s.health.Report(health.MetricsListen, s.scrapes.Listen(ctx, cfg.Metrics.Listen))
}

// metricsSource are the parts that metrics are read from.
type metricsSource struct {
	*views
	agent        *Agent
	store        *state.Store
	links        *ifwatch.Watcher
	mdns         *mdnssvc.Service
	server       *endpoint.Server
	poller       *dnssd.Poller
	issuer       *trust.Issuer
	domains      *domains.Keeper
	certificates *certificates
	problems     *problems.Monitor
}

// snapshot returns the present metrics. It is called for each scrape, on any goroutine,
// and does not use the network.
func (m *metricsSource) snapshot() metrics.Snapshot {
	cfg, disk := m.agent.config(), m.askDisk()
	out := metrics.Snapshot{
		Agent: m.agentMetrics(), Discovery: m.discoveryMetrics(cfg), Endpoint: m.endpointMetrics(), APIServer: m.apiServerMetrics(cfg),
		Offer: m.offerMetrics(), Trust: m.trustMetrics(disk), State: disk.state, Problems: m.problemMetrics(),
	}
	m.peeringMetrics(&out)
	for _, r := range m.requests() {
		if r.State == string(api.RequestPending) {
			out.Peerings.Requests++
		}
	}
	for _, i := range disk.invites {
		if i.Live(m.agent.now()) {
			out.Peerings.Invites++
			if ends := out.Peerings.InviteEnds; ends.IsZero() || i.ExpiresAt.Before(ends) {
				out.Peerings.InviteEnds = i.ExpiresAt
			}
		}
	}
	return out
}

// askDisk reads the metrics of the disk. If another call still waits for the disk, it
// returns the last result: a disk that hangs must not block the metrics.
func (m *metricsSource) askDisk() onDisk {
	if m.agent.measures.disk.TryLock() {
		defer m.agent.measures.disk.Unlock()
		fresh := onDisk{}
		fresh.state = m.stateMetrics()
		// Without the database there are no invites to be used either.
		fresh.invites, _ = m.decisions.Invites(context.Background())
		if info, err := os.Stat(filepath.Join(m.agent.config().State.Dir, trust.KeyFile)); err == nil {
			fresh.keyMade = info.ModTime()
		}
		m.agent.measures.mu.Lock()
		defer m.agent.measures.mu.Unlock()
		m.agent.measures.kept = fresh
		return fresh
	}
	m.agent.measures.mu.Lock()
	defer m.agent.measures.mu.Unlock()
	return m.agent.measures.kept
}

func (m *metricsSource) stateMetrics() metrics.State {
	stats := m.store.Stats()
	out := metrics.State{Transactions: stats.Transactions, Errors: stats.Failures, DatabaseBytes: stats.Bytes, Volatile: m.store.Volatile()}
	var st unix.Statfs_t
	if unix.Statfs(m.agent.config().State.Dir, &st) == nil {
		block := uint64(st.Bsize)
		out.FreeBytes, out.SizeBytes, out.SpaceKnown = st.Bavail*block, st.Blocks*block, true
	}
	return out
}

func (m *metricsSource) agentMetrics() metrics.Agent {
	identity := m.agent.identity(m.id)
	kept := &m.agent.measures
	kept.mu.Lock()
	defer kept.mu.Unlock()
	read := kept.read
	if read.IsZero() {
		read = m.agent.started
	}
	return metrics.Agent{
		Version: m.agent.opts.Version, ClusterID: string(m.id), ClusterName: identity.ClusterName, Fingerprint: m.key.Fingerprint().String(),
		Ready: len(kept.failing) == 0, Restarts: maps.Clone(kept.restarts), Sessions: uint64(m.agent.generation.Load()),
		ReloadOK: !kept.badRead, Reloaded: read,
	}
}

func (m *metricsSource) discoveryMetrics(cfg config.Config) metrics.Discovery {
	current, _, cancel := m.links.Subscribe()
	defer cancel()
	mdns, seen := m.mdns.Stats(), m.registry.Stats()
	out := metrics.Discovery{
		Links: len(current().Links), Phases: named(seen.Phases), Conflicts: seen.Conflicts, SelfConflict: m.registry.SelfConflict() != nil,
		Refused: seen.Refused, Sightings: seen.Sightings, ChecksOK: seen.ChecksAnswered, ChecksFailed: seen.ChecksFailed,
		Received: mdns.Received, Sent: mdns.Sent, SocketDrops: mdns.SocketDrops, Dropped: named(mdns.Drops), Instances: mdns.Instances,
		Announced: mdns.Established, AdvertisementOff: !cfg.Discovery.EnableAdvertisement,
		Domains: m.domains.Outcomes(), Lookups: named(m.poller.Lookups()),
	}
	for _, phase := range []peer.Phase{peer.PhasePresent, peer.PhaseUnreachable, peer.PhaseUnverified, peer.PhaseLost} {
		out.Phases[string(phase)] += 0 // so that there is a series from the start
	}
	return out
}

// named returns of with plain strings as keys.
func named[K ~string, N any](of map[K]N) map[string]N {
	out := make(map[string]N, len(of))
	for k, n := range of {
		out[string(k)] = n
	}
	return out
}

func (m *metricsSource) endpointMetrics() metrics.Endpoint {
	served, passed := m.server.Stats(), m.peering.Stats()
	return metrics.Endpoint{
		PeerConnections: served.Known, StrangerConnections: served.Open - served.Known,
		Accepted: served.Accepted, Requests: served.Requests, Refused: named(served.Refused),
		Gateway: passed.PassedRequests, GatewayTook: passed.PassedTook,
	}
}

func (m *metricsSource) apiServerMetrics(cfg config.Config) metrics.APIServer {
	status, stats := m.peering.Status(), m.peering.Stats()
	return metrics.APIServer{
		Enabled: cfg.Cluster.Kubeconfig != conn.KubeconfigNone, Connected: status.Connected, Connections: stats.Connections,
		Requests: stats.Requests, Took: stats.Took, Writes: status.Writes, PeerWrites: status.PassedWrites,
		ForeignClusters: status.ForeignClusters, Reconciled: stats.Reconciled, Retried: stats.Retried, Rejected: stats.Rejected,
	}
}

func (m *metricsSource) trustMetrics(disk onDisk) metrics.Trust {
	out := metrics.Trust{Certificates: make(map[string]time.Time), KeyMade: disk.keyMade, Successions: len(m.key.Successions())}
	out.Certificates["fleet"], out.Certificates["endpoint"] = m.issuer.Ends()
	out.Certificates["kubelet"] = m.sharing.kubelet.State().NotAfter
	for _, ca := range m.certificates.inUse().FleetCAs {
		if ends := out.Certificates["fleet-ca"]; ends.IsZero() || ca.NotAfter.Before(ends) {
			out.Certificates["fleet-ca"] = ca.NotAfter
		}
	}
	return out
}

// problemMetrics returns all kinds of problems, and which are active.
func (m *metricsSource) problemMetrics() []metrics.Problem {
	var out []metrics.Problem
	for _, k := range health.All() {
		out = append(out, metrics.Problem{Code: k.Code, Severity: string(k.Severity)})
	}
	for _, p := range m.problems.Current() {
		out = append(out, metrics.Problem{Code: p.Code, Severity: p.Severity, Active: true})
	}
	return out
}

func (m *metricsSource) offerMetrics() metrics.Offer {
	pods := m.sharing.pods.Stats()
	out := metrics.Offer{Pool: amounts(m.peering.Offered().Pool), PodCreation: pods.Created, PodRetries: pods.Retries}
	out.LeasesRenewed, out.LeasesFailed = m.sharing.nodes.Leases()
	// Without an API server it is not known what others offer.
	offers, _ := m.peering.Offers()
	for _, o := range offers {
		switch m.advert(o).Status {
		case control.AdvertAccepted:
			out.Accepted++
		case control.AdvertRefused:
			out.Refused++
		default:
			out.Pending++
		}
	}
	return out
}

// peeringMetrics adds the metrics of peerings and offers.
func (m *metricsSource) peeringMetrics(out *metrics.Snapshot) {
	ids := make(map[peer.ClusterID]bool)
	for _, id := range m.decisions.Wanted() {
		ids[id] = true
	}
	for _, id := range m.sharing.known() {
		ids[id] = true
	}
	for id := range ids {
		p := m.peerMetrics(id)
		if p.OutgoingWanted {
			out.Peerings.OutgoingWanted++
		}
		if p.OutgoingJoined {
			out.Peerings.OutgoingJoined++
		}
		if p.IncomingWanted {
			out.Peerings.IncomingWanted++
		}
		if p.IncomingJoined {
			out.Peerings.IncomingJoined++
		}
		if p.OutgoingWanted || p.IncomingWanted || p.Provider != nil || p.Consumer != nil {
			out.Peers = append(out.Peers, p)
		}
	}
}

func (m *metricsSource) peerMetrics(id peer.ClusterID) metrics.Peer {
	there := m.peering.View(id)
	p := metrics.Peer{
		ID: string(id), OutgoingJoined: there.Outgoing.Joined, IncomingJoined: there.Incoming.Joined,
		OutgoingWanted: there.Outgoing.Wanted || there.Outgoing.Joined, IncomingWanted: there.Incoming.Wanted || there.Incoming.Joined,
	}
	if seen, known := m.registry.Peer(id); known {
		p.Name, p.Reachable = cmp.Or(seen.Alias, seen.Name), seen.Phase == peer.PhasePresent
		p.LastSeen, p.Failures = seen.LastSeen, seen.Failures
	}
	uses, provides, used, consumes := m.sharing.with(id)
	if provides {
		pods := m.sharing.pods.Count(id)
		p.Provider = &metrics.Provider{
			HasNode: uses.status.Name != "", Ready: uses.status.Ready,
			Bound: pods.Bound, Running: pods.Running, Pending: pods.Pending, Refused: pods.Refused, Ending: pods.Ending,
		}
		if offer := uses.spec.Offer; offer != nil {
			p.Provider.Offered = amounts(offer.ResourceQuota.Hard)
		}
	}
	if consumes {
		p.Consumer = &metrics.Consumer{Used: amounts(used.status.Used), Namespaces: used.status.Namespaces, Pods: used.status.Pods}
		if offer := used.spec.Offer; offer != nil {
			p.Consumer.Promised = amounts(offer.ResourceQuota.Hard)
		}
	}
	return p
}

// amounts parses quantities into base units. It leaves out invalid ones.
func amounts(texts map[string]string) metrics.Amounts {
	if texts == nil {
		return nil
	}
	out := make(metrics.Amounts)
	for _, name := range metrics.Resources() {
		if q, err := resource.ParseQuantity(texts[name]); err == nil {
			out[name] = q.AsApproximateFloat64()
		}
	}
	return out
}
