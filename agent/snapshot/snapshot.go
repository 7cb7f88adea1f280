package snapshot

import (
	"cmp"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/api/resource"

	"liqo.io/agent/agent/backend"
	"liqo.io/agent/agent/config"
	"liqo.io/agent/agent/connect"
	"liqo.io/agent/agent/control"
	"liqo.io/agent/agent/decisions"
	"liqo.io/agent/agent/metrics"
	"liqo.io/agent/agent/problems"
	"liqo.io/agent/agent/sharing"
	"liqo.io/agent/agent/supervise"
	"liqo.io/agent/discovery/registry"
	"liqo.io/agent/dnssd/resolver"
	"liqo.io/agent/endpoint/guard"
	"liqo.io/agent/health"
	"liqo.io/agent/ifwatch"
	"liqo.io/agent/kube/conn"
	"liqo.io/agent/mdnssvc"
	"liqo.io/agent/network"
	"liqo.io/agent/peer"
	"liqo.io/agent/peering"
	"liqo.io/agent/state"
	"liqo.io/agent/trust"
)

// onDisk are the metrics that are read from the disk.
type onDisk struct {
	state   metrics.State
	keyMade time.Time
}

// Config are the parts that a Source reads. All of it is required.
type Config struct {
	Version  string
	Self     func() peer.Identity
	Key      *trust.Key
	Settings func() config.Config
	// Sessions returns how often the parts were built.
	Sessions func() int64
	// Reloaded returns when the configuration was last read without faults, and whether
	// the last attempt had none.
	Reloaded     func() (at time.Time, ok bool)
	Supervisor   *supervise.Supervisor
	Store        *state.Store
	Links        func() []ifwatch.Link
	MDNS         interface{ Stats() mdnssvc.Stats }
	Registry     *registry.Registry
	Decisions    *decisions.Store
	Peering      *peering.Controller
	Sharing      *sharing.Sharing
	Connect      *connect.Connect
	Server       interface{ Stats() guard.Stats }
	Lookups      func() map[resolver.Outcome]uint64
	Domains      func() map[string]int
	Issuer       *trust.Issuer
	Certificates func() problems.Certificates
	Problems     func() []control.Problem
	// PendingRequests counts the requests that wait for a decision, Offers the offers of
	// other clusters.
	PendingRequests func() int
	Offers          func() (accepted, refused, pending int)
}

// Source reads the metrics. It is safe for concurrent use.
type Source struct {
	cfg Config

	reading sync.Mutex // held while the disk is read, which may take long

	mu   sync.Mutex
	disk onDisk // the last result
}

// New returns a Source for one session.
func New(cfg Config) *Source { return &Source{cfg: cfg} }

// Snapshot returns the present metrics. It does not use the network.
func (s *Source) Snapshot() metrics.Snapshot {
	cfg, disk := s.cfg.Settings(), s.readDisk()
	out := metrics.Snapshot{
		Agent: s.agentMetrics(), Discovery: s.discoveryMetrics(cfg), Endpoint: s.endpointMetrics(), APIServer: s.apiServerMetrics(cfg),
		Offer: s.offerMetrics(), Trust: s.trustMetrics(disk), State: disk.state, Problems: s.problemMetrics(),
	}
	s.peeringMetrics(&out)
	out.Peerings.Requests = s.cfg.PendingRequests()
	for _, i := range s.cfg.Decisions.LiveInvites() {
		out.Peerings.Invites++
		if ends := out.Peerings.InviteEnds; ends.IsZero() || i.ExpiresAt.Before(ends) {
			out.Peerings.InviteEnds = i.ExpiresAt
		}
	}
	return out
}

// readDisk reads the metrics of the disk. While another call waits for the disk, it
// returns the last result: a disk that hangs must not block the metrics.
func (s *Source) readDisk() onDisk {
	if s.reading.TryLock() {
		defer s.reading.Unlock()
		fresh := onDisk{state: s.stateMetrics()}
		if info, err := os.Stat(filepath.Join(s.cfg.Settings().State.Dir, trust.KeyFile)); err == nil {
			fresh.keyMade = info.ModTime()
		}
		s.mu.Lock()
		s.disk = fresh
		s.mu.Unlock()
		return fresh
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.disk
}

func (s *Source) stateMetrics() metrics.State {
	stats := s.cfg.Store.Stats()
	out := metrics.State{Transactions: stats.Transactions, Errors: stats.Failures, DatabaseBytes: stats.Bytes, Volatile: s.cfg.Store.Volatile()}
	var st unix.Statfs_t
	if unix.Statfs(s.cfg.Settings().State.Dir, &st) == nil {
		block := uint64(st.Bsize)
		out.FreeBytes, out.SizeBytes, out.SpaceKnown = st.Bavail*block, st.Blocks*block, true
	}
	return out
}

func (s *Source) agentMetrics() metrics.Agent {
	self := s.cfg.Self()
	restarts, steady := s.cfg.Supervisor.Stats()
	read, ok := s.cfg.Reloaded()
	return metrics.Agent{
		Version: s.cfg.Version, ClusterID: string(self.ClusterID), ClusterName: self.ClusterName, Fingerprint: s.cfg.Key.Fingerprint().String(),
		Ready: steady, Restarts: restarts, Sessions: uint64(s.cfg.Sessions()), ReloadOK: ok, Reloaded: read,
	}
}

func (s *Source) discoveryMetrics(cfg config.Config) metrics.Discovery {
	mdns, seen := s.cfg.MDNS.Stats(), s.cfg.Registry.Stats()
	out := metrics.Discovery{
		Links: len(s.cfg.Links()), Phases: backend.Named(seen.Phases), Conflicts: seen.Conflicts, SelfConflict: s.cfg.Registry.SelfConflict() != nil,
		Refused: seen.Refused, Sightings: seen.Sightings, ChecksOK: seen.ChecksAnswered, ChecksFailed: seen.ChecksFailed,
		Received: mdns.Received, Sent: mdns.Sent, SocketDrops: mdns.SocketDrops, Dropped: backend.Named(mdns.Drops), Instances: mdns.Instances,
		Announced: mdns.Established, AdvertisementOff: !cfg.Discovery.EnableAdvertisement,
		Domains: s.cfg.Domains(), Lookups: backend.Named(s.cfg.Lookups()),
	}
	for _, phase := range []peer.Phase{peer.PhasePresent, peer.PhaseUnreachable, peer.PhaseUnverified, peer.PhaseLost} {
		out.Phases[string(phase)] += 0 // so that there is a series from the start
	}
	return out
}

func (s *Source) endpointMetrics() metrics.Endpoint {
	served, passed := s.cfg.Server.Stats(), s.cfg.Peering.Stats()
	return metrics.Endpoint{
		PeerConnections: served.Known, StrangerConnections: served.Open - served.Known,
		Accepted: served.Accepted, Requests: served.Requests, Refused: backend.Named(served.Refused),
		Gateway: passed.PassedRequests, GatewayTook: passed.PassedTook,
	}
}

func (s *Source) apiServerMetrics(cfg config.Config) metrics.APIServer {
	status, stats := s.cfg.Peering.Status(), s.cfg.Peering.Stats()
	return metrics.APIServer{
		Enabled: cfg.Cluster.Kubeconfig != conn.KubeconfigNone, Connected: status.Connected, Connections: stats.Connections,
		Requests: stats.Requests, Took: stats.Took, Writes: status.Writes, PeerWrites: status.PassedWrites,
		ForeignClusters: status.ForeignClusters, Reconciled: stats.Reconciled, Retried: stats.Retried, Rejected: stats.Rejected,
	}
}

func (s *Source) trustMetrics(disk onDisk) metrics.Trust {
	out := metrics.Trust{Certificates: make(map[string]time.Time), KeyMade: disk.keyMade, Successions: len(s.cfg.Key.Successions())}
	out.Certificates["fleet"], out.Certificates["endpoint"] = s.cfg.Issuer.Ends()
	out.Certificates["kubelet"] = s.cfg.Sharing.Stats().KubeletCertificateEnds
	for _, ca := range s.cfg.Certificates().FleetCAs {
		if ends := out.Certificates["fleet-ca"]; ends.IsZero() || ca.NotAfter.Before(ends) {
			out.Certificates["fleet-ca"] = ca.NotAfter
		}
	}
	return out
}

// problemMetrics returns all kinds of problems, and which are active.
func (s *Source) problemMetrics() []metrics.Problem {
	var out []metrics.Problem
	for _, k := range health.All() {
		out = append(out, metrics.Problem{Code: k.Code, Severity: string(k.Severity)})
	}
	for _, p := range s.cfg.Problems() {
		out = append(out, metrics.Problem{Code: p.Code, Severity: p.Severity, Active: true})
	}
	return out
}

func (s *Source) offerMetrics() metrics.Offer {
	shared := s.cfg.Sharing.Stats()
	out := metrics.Offer{
		Pool: amounts(s.cfg.Peering.Offered().Pool), PodCreation: shared.Pods.Created, PodRetries: shared.Pods.Retries,
		TokensIssued: shared.Pods.TokensIssued, TokensRefused: shared.Pods.TokensRefused,
		LeasesRenewed: shared.LeasesRenewed, LeasesFailed: shared.LeasesFailed,
	}
	out.Accepted, out.Refused, out.Pending = s.cfg.Offers()
	return out
}

// peeringMetrics adds the metrics of peerings and offers.
func (s *Source) peeringMetrics(out *metrics.Snapshot) {
	ids := make(map[peer.ClusterID]bool)
	for _, id := range s.cfg.Decisions.Wanted() {
		ids[id] = true
	}
	for _, id := range s.cfg.Sharing.Peers() {
		ids[id] = true
	}
	s.cfg.Connect.Refresh()
	_, names, _ := s.cfg.Connect.Names()
	out.Names = metrics.Names(names)
	for id := range ids {
		p := s.peerMetrics(id)
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

func (s *Source) peerMetrics(id peer.ClusterID) metrics.Peer {
	there := s.cfg.Peering.View(id)
	p := metrics.Peer{
		ID: string(id), OutgoingJoined: there.Outgoing.Joined, IncomingJoined: there.Incoming.Joined,
		OutgoingWanted: there.Outgoing.Wanted || there.Outgoing.Joined, IncomingWanted: there.Incoming.Wanted || there.Incoming.Joined,
	}
	if seen, known := s.cfg.Registry.Peer(id); known {
		p.Name, p.Reachable = cmp.Or(seen.Alias, seen.Name), seen.Phase == peer.PhasePresent
		p.LastSeen, p.Failures = seen.LastSeen, seen.Failures
	}
	if uses, ok := s.cfg.Sharing.Provider(id); ok {
		pods, services := s.cfg.Sharing.Pods(id), s.cfg.Sharing.Services(id)
		p.Provider = &metrics.Provider{
			HasNode: uses.Status.Name != "", Ready: uses.Status.Ready,
			Bound: pods.Bound, Running: pods.Running, Pending: pods.Pending, Refused: pods.Refused, Ending: pods.Ending,
			ReflectedServices: services.Reflected, RefusedServices: len(services.Refused),
		}
		if offer := uses.Spec.Offer; offer != nil {
			p.Provider.Offered = amounts(offer.ResourceQuota.Hard)
		}
	}
	if used, ok := s.cfg.Sharing.Consumer(id); ok {
		p.Consumer = &metrics.Consumer{
			Promised: amounts(used.Spec.Offer), Used: amounts(used.Status.Used), Namespaces: used.Status.Namespaces, Pods: used.Status.Pods,
		}
	}
	if s, ok := s.cfg.Connect.Status(id); ok {
		p.Network = &metrics.Network{
			Connected: s.State == network.Connected, WireGuard: s.Engine == network.EngineWireGuard, Sent: s.Counters.BytesOut, Received: s.Counters.BytesIn, Dropped: s.Counters.Dropped,
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
