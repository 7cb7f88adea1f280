package sharing

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/client-go/rest"

	"liqo.io/agent/agent/config"
	"liqo.io/agent/agent/connect"
	"liqo.io/agent/agent/supervise"
	"liqo.io/agent/api"
	"liqo.io/agent/endpoint"
	"liqo.io/agent/endpoint/client"
	"liqo.io/agent/endpoint/tunnel"
	"liqo.io/agent/health"
	"liqo.io/agent/kube/work"
	"liqo.io/agent/peer"
	"liqo.io/agent/peering"
	"liqo.io/agent/peering/plan"
	"liqo.io/agent/sharing/host"
	"liqo.io/agent/sharing/kubelet"
	"liqo.io/agent/sharing/offload"
	"liqo.io/agent/sharing/registry"
	"liqo.io/agent/sharing/spec"
	"liqo.io/agent/sharing/usage"
	"liqo.io/agent/sharing/vnode"
	"liqo.io/agent/sharing/volumes"
)

// settleAfter is how long after the connection to the API server the list of
// providers counts as complete at the earliest, so that nodes of others can be removed. If it is not, that is looked at
// again every settleEvery.
const settleAfter, settleEvery = time.Minute, time.Second

// Config is what Sharing needs. All of it is required.
type Config struct {
	Self     peer.ClusterID
	Settings func() config.Config
	// Names stores the names of nodes.
	Names vnode.Names
	// Client connects to providers.
	Client *client.Client
	// Network connects the pods of joined clusters.
	Network *connect.Connect
	// Label returns what people call a cluster.
	Label func(id peer.ClusterID) string
	// OwnRegistries are the image registries of this cluster.
	OwnRegistries func() []string
	// OnlyNode returns the node of this cluster that all pods of consumers run on, "" if there is not exactly one.
	OnlyNode func() string
	// Users returns as whom peers reach the API server.
	Users func() api.PeerUsers
	// Told reports whether Provide and Host were called for all peers since the connection to the API server.
	Told func() bool
	// Webhook returns the configuration of the webhook for pods, or only for those with claims.
	Webhook func(claims bool) map[string]any
	// Requeue has the peering controller reconcile a peer.
	Requeue func(id peer.ClusterID)
	// ClockTrusted reports whether the clock can be believed for a decision about a peer.
	ClockTrusted func(about peer.ClusterID) bool
	// Recheck ends the connections of a peer that is no longer admitted.
	Recheck    func(id peer.ClusterID)
	Supervisor *supervise.Supervisor
	Tracker    *health.Tracker
	Logger     *slog.Logger
	Now        func() time.Time
}

// Sharing holds the parts that turn peerings into nodes and pods, and the connections to
// the providers. It is safe for concurrent use.
type Sharing struct {
	cfg     Config
	hosts   *host.Host
	nodes   *vnode.Nodes
	pods    *offload.Offload
	volumes *volumes.Volumes
	kubelet *kubelet.Server

	// startKubelet starts the kubelet API: it closes kubeletWanted.
	startKubelet  func()
	kubeletWanted <-chan struct{}

	mu        sync.Mutex
	providers map[peer.ClusterID]*provider
	consumers map[peer.ClusterID]spec.Tenant
}

// provider is a Provider with the connection to it.
type provider struct {
	Provider
	link   *tunnel.Link
	target peer.Target
}

// Provider is a cluster that has, or will have, a node here.
type Provider struct {
	Spec   spec.Node
	Status spec.NodeStatus
}

// Consumer is a cluster that has, or may create, namespaces and pods here.
type Consumer struct {
	Spec   spec.Tenant
	Status spec.TenantStatus
}

var (
	_ peering.Sharing = (*Sharing)(nil)
	_ endpoint.Guests = (*Sharing)(nil)
)

// New returns Sharing for one session. Run does the work.
func New(cfg Config) *Sharing {
	wanted := make(chan struct{})
	s := &Sharing{
		cfg: cfg, startKubelet: sync.OnceFunc(func() { close(wanted) }), kubeletWanted: wanted,
		providers: make(map[peer.ClusterID]*provider), consumers: make(map[peer.ClusterID]spec.Tenant),
	}
	self := func() peer.ClusterID { return cfg.Self }
	s.hosts = host.New(host.Config{
		Settings: func() host.Settings { return hostSettings(cfg.Settings()) },
		Registries: func() registry.List {
			return registry.List{Entries: cfg.Settings().Sharing.Registries, Own: cfg.OwnRegistries()}
		},
		OnlyNode: cfg.OnlyNode, Users: cfg.Users, Changed: cfg.Requeue, ClockTrusted: cfg.ClockTrusted, Logger: cfg.Logger, Now: cfg.Now,
	})
	host, _ := os.Hostname() // without one, no name is left out
	s.nodes = vnode.New(vnode.Config{
		Settings: func() vnode.Settings {
			shared := cfg.Settings().Sharing
			return vnode.Settings{Heartbeat: shared.Heartbeat, DrainTimeout: shared.DrainTimeout}
		},
		Kubelet: s.kubeletAddress, MetricsPath: kubelet.ResourcePath, Changed: cfg.Requeue, Names: cfg.Names, Host: strings.ToLower(host),
		Webhook: cfg.Webhook, Claims: func() (bool, bool) { return s.volumes.InUse() }, Logger: cfg.Logger, Now: cfg.Now,
	})
	s.volumes = volumes.New(volumes.Config{
		Self: self, Class: func() string { return cfg.Settings().Sharing.StorageClass },
		HomeClass: func() string { return cfg.Settings().Sharing.HomeStorageClass },
		Changed:   func(namespace string) { s.pods.ClaimsChanged(namespace) }, Used: s.nodes.Touch, Logger: cfg.Logger, Now: cfg.Now,
	})
	s.pods = offload.New(offload.Config{
		Self: self, Exceeded: cfg.Requeue, Tokens: func(namespace string) string { return NoTokens(cfg.Settings(), namespace) }, Claim: s.volumes.Claim, Holds: s.volumes.Holds, Mounted: s.volumes.Look, Logger: cfg.Logger, Now: cfg.Now,
	})
	s.kubelet = kubelet.New(kubelet.Config{
		Listen: func() string { return cfg.Settings().Sharing.KubeletListen },
		Find:   s.find, Usage: usage.New(usage.Config{Node: s.measured, Names: s.pods.Nodes, Logger: cfg.Logger}), Dir: filepath.Join(cfg.Settings().State.Dir, "kubelet"), Self: self,
		Logger: cfg.Logger, Changed: s.kubeletChanged,
	})
	return s
}

func hostSettings(cfg config.Config) host.Settings {
	shared := cfg.Sharing
	return host.Settings{
		Prefix: shared.NamespacePrefix, PodSecurity: shared.PodSecurity, Enforce: shared.Enforce, MaxNamespaces: shared.MaxNamespaces,
		GuestEgress: shared.GuestEgress, LocalImages: shared.LocalImages,
		Storage: storage(cfg), GuestStorageClass: shared.GuestStorageClass, StorageKeep: shared.StorageKeep,
	}
}

// storage returns how many bytes the claims of consumers may ask for together.
func storage(cfg config.Config) int64 {
	amount, err := resource.ParseQuantity(cfg.Sharing.Storage)
	if err != nil { // a configuration that was not read from anywhere
		return 0
	}
	return amount.Value()
}

// Settings returns the settings of sharing that peerings depend on.
func Settings(cfg config.Config) plan.SharingSettings {
	shared := cfg.Sharing
	return plan.SharingSettings{
		Enable: shared.Enable, Percentage: shared.Percentage, Overcommit: shared.Overcommit, Hysteresis: shared.Hysteresis,
		Labels: shared.Labels, Registries: shared.Registries, Storage: storage(cfg), Use: shared.Use, AcceptManually: shared.AcceptPolicy == "manual", MaxAccepted: shared.MaxAccepted,
		KeepaliveThreshold: shared.KeepaliveThreshold, KeepaliveRetry: shared.KeepaliveRetry, DrainTimeout: shared.DrainTimeout,
		NoNetwork: shared.Network == config.NetworkOff,
	}
}

// SettingsChanged takes changed settings into use.
func (s *Sharing) SettingsChanged() {
	s.nodes.Touch()
	s.volumes.Touch()
	s.cfg.Network.Touch()
	s.pods.TokensChanged()
}

// Run runs the parts of sharing that need an API server, until ctx ends.
func (s *Sharing) Run(ctx context.Context, local *rest.Config) {
	s.cfg.Supervisor.Run(ctx, []supervise.Part{
		{Name: "consumers", Run: func(ctx context.Context) error { return s.hosts.Run(ctx, local) }},
		{Name: "virtual nodes", Run: func(ctx context.Context) error { return s.nodes.Run(ctx, local) }},
		{Name: "pods", Run: func(ctx context.Context) error { return s.pods.Run(ctx, local) }},
		{Name: "volumes", Run: func(ctx context.Context) error { return s.volumes.Run(ctx, local) }},
		{Name: "kubelet API", Run: func(ctx context.Context) error {
			// It requests a certificate, which a machine without providers does not need.
			select {
			case <-ctx.Done():
				return nil
			case <-s.kubeletWanted:
			}
			return s.kubelet.Run(ctx, local)
		}},
		{Name: "connectivity", Run: func(ctx context.Context) error { return s.cfg.Network.RunRules(ctx, local) }},
		{Name: "leftovers", Run: s.settle},
	}...)
}

// settle tells the nodes that all providers are known, settleAfter after the connection.
func (s *Sharing) settle(ctx context.Context) error {
	if complete(ctx, s.cfg.Told) {
		s.nodes.Settled()
		s.volumes.Settled()
		s.cfg.Network.Settled()
	}
	return nil
}

// complete waits until all peers were told of, and is false when ctx ended before. With many of them, or a slow API server,
// that takes longer than settleAfter.
func complete(ctx context.Context, told func() bool) bool {
	for pause := settleAfter; work.Sleep(ctx, pause) == nil; pause = settleEvery {
		if told() {
			return true
		}
	}
	return false
}

// Provide implements peering.Sharing.
func (s *Sharing) Provide(node spec.Node, target peer.Target) spec.NodeStatus {
	if node.Wanted {
		s.startKubelet()
	}
	node.Called = s.cfg.Label(node.ID)
	if err := s.pods.Excess(node.ID); err != nil {
		node.Excess = err.Error()
	}
	node.Network = s.cfg.Network.State(node.ID)
	status := s.nodes.Set(node)
	network := s.cfg.Network.Use(node.ID, target, used(node, status))
	if node.Wanted || status.Busy {
		link := s.link(node.ID, target)
		s.volumes.Set(volumes.Provider{ID: node.ID, Remote: link, Storage: offeredStorage(node), Reachable: node.Reachable && !node.Gone && !node.Expelled})
		s.pods.Set(offload.Provider{
			ID: node.ID, Node: status.Assigned, Remote: link,
			Offer: describe(node.Offer), Reachable: node.Reachable, Gone: node.Gone, Expelled: node.Expelled,
			Network: network,
		})
	} else {
		s.remove(node.ID)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if known := s.providers[node.ID]; known != nil {
		known.Spec, known.Status = node, status
	}
	return status
}

// used reports whether pods may be at a provider. While it is not known whether there is a node, what is shown counts: pods
// stay on one that is drained, and keep their network.
func used(node spec.Node, status spec.NodeStatus) bool {
	return !node.Gone && (node.Wanted && node.Offer != nil || status.Name != "" || status.Unknown && node.Shown)
}

// offeredStorage returns how many bytes a provider offers for claims.
func offeredStorage(node spec.Node) int64 {
	if !node.Wanted || node.Offer == nil {
		return 0
	}
	amount, err := resource.ParseQuantity(node.Offer.ResourceQuota.Hard[string(corev1.ResourceStorage)])
	if err != nil || amount.Sign() < 0 {
		return 0
	}
	return amount.Value()
}

// describe is a text that changes when an offer's amounts do.
func describe(offer *api.AdvertisementSpec) string {
	if offer == nil {
		return ""
	}
	return fmt.Sprint(offer.ResourceQuota.Hard) // maps are printed in order
}

// link returns the connection to a provider. It stays the same as long as there is
// anything of the provider here.
func (s *Sharing) link(id peer.ClusterID, target peer.Target) *tunnel.Link {
	s.mu.Lock()
	known := s.providers[id]
	if known == nil {
		known = &provider{}
		known.link = tunnel.New(s.cfg.Client, tunnel.Config{Target: func() (peer.Target, bool) { return s.target(id) }, Logger: s.cfg.Logger})
		s.providers[id] = known
	}
	moved := !reflect.DeepEqual(known.target, target)
	known.target = target
	s.mu.Unlock()
	if moved {
		known.link.Moved() // it reads the target again
	}
	return known.link
}

func (s *Sharing) target(id peer.ClusterID) (peer.Target, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.providers[id]
	if known == nil || known.target.Fingerprint.IsZero() {
		return peer.Target{}, false
	}
	return known.target, true
}

// remove closes the connection to a provider of which nothing is left here.
func (s *Sharing) remove(id peer.ClusterID) {
	s.mu.Lock()
	known := s.providers[id]
	delete(s.providers, id)
	s.mu.Unlock()
	if known == nil {
		return
	}
	s.pods.Remove(id)
	s.volumes.Remove(id)
	go known.link.Close() // it waits for pending requests
}

// Close closes the connections to all providers. Nothing may use them any more.
func (s *Sharing) Close() {
	s.mu.Lock()
	providers := s.providers
	s.providers = make(map[peer.ClusterID]*provider)
	s.mu.Unlock()
	for _, known := range providers {
		known.link.Close()
	}
}

// kubeletAddress returns the address of the kubelet API.
func (s *Sharing) kubeletAddress() vnode.Kubelet {
	addr, port, _ := s.kubelet.Where()
	return vnode.Kubelet{Address: addr, Port: port}
}

// kubeletChanged is called when the state or address of the kubelet API changed.
func (s *Sharing) kubeletChanged() {
	state := s.kubelet.State()
	s.cfg.Tracker.When(health.KubeletAPI, state.Problem != "", health.Args{"problem": state.Problem, "remedy": state.Remedy})
	s.nodes.Touch()
	s.mu.Lock()
	ids := slices.Collect(maps.Keys(s.providers))
	s.mu.Unlock()
	for _, id := range ids {
		s.cfg.Requeue(id) // its pods show the address
	}
}

// find returns the provider and the pod there that an offloaded pod of this cluster runs as.
func (s *Sharing) find(namespace, pod string) (kubelet.Place, bool) {
	place, ok := s.pods.Find(namespace, pod)
	if !ok {
		return kubelet.Place{}, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.providers[place.ID]
	if known == nil {
		return kubelet.Place{}, false
	}
	return kubelet.Place{ID: place.ID, Node: place.Node, Namespace: place.Namespace, Name: place.Name, Upstream: known.link}, true
}

// Host implements peering.Sharing.
func (s *Sharing) Host(tenant spec.Tenant) spec.TenantStatus {
	tenant.Network, tenant.NetworkDown = s.cfg.Network.Serve(tenant.ID, tenant.Admitted)
	if tenant.Admitted {
		servers, known := s.cfg.Network.Nameservers(tenant.ID)
		tenant.Nameservers, tenant.NamesUnknown = servers, !known
	}
	status := s.hosts.Set(tenant)
	if !tenant.Admitted {
		s.cfg.Recheck(tenant.ID)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if tenant.Admitted || status.Namespaces > 0 {
		s.consumers[tenant.ID] = tenant
	} else {
		delete(s.consumers, tenant.ID)
	}
	return status
}

// Network implements peering.Sharing.
func (s *Sharing) Network(id peer.ClusterID) spec.Network { return s.cfg.Network.State(id) }

// Peers returns all clusters with which something is shared.
func (s *Sharing) Peers() []peer.ClusterID {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []peer.ClusterID
	for id := range s.providers {
		out = append(out, id)
	}
	for id := range s.consumers {
		if _, both := s.providers[id]; !both {
			out = append(out, id)
		}
	}
	return out
}

// Provider returns the state of a provider.
func (s *Sharing) Provider(id peer.ClusterID) (Provider, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if known := s.providers[id]; known != nil {
		return known.Provider, true
	}
	return Provider{}, false
}

// Consumer returns the state of a consumer.
func (s *Sharing) Consumer(id peer.ClusterID) (Consumer, bool) {
	status := s.hosts.Stands(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	tenant, ok := s.consumers[id]
	return Consumer{tenant, status}, ok
}

// OwnClaims reports whether claims of this cluster are, or may be, at providers.
func (s *Sharing) OwnClaims(ctx context.Context, namespace string, names []string) bool {
	return s.volumes.Ours(ctx, namespace, names)
}

// OfferedStorage returns how many bytes the claims of consumers may ask for together.
func (s *Sharing) OfferedStorage() int64 { return storage(s.cfg.Settings()) }

// StorageProblem returns why claims of consumers cannot be kept here, "" if they can.
func (s *Sharing) StorageProblem() string { return s.hosts.StorageProblem() }

// Settings returns the settings of sharing that are in use.
func (s *Sharing) Settings() config.Sharing { return s.cfg.Settings().Sharing }

// Stored returns the consumers that have claims here.
func (s *Sharing) Stored() map[peer.ClusterID]spec.TenantStatus { return s.hosts.Stored() }

// ReclaimStorage removes the claims of a consumer that are only kept.
func (s *Sharing) ReclaimStorage(ctx context.Context, id peer.ClusterID) error {
	return s.hosts.Discard(ctx, id)
}

// Volumes returns the data of claims of the storage class.
func (s *Sharing) Volumes() []volumes.Volume { return s.volumes.List() }

// Pods counts the pods at a provider.
func (s *Sharing) Pods(id peer.ClusterID) offload.Counts { return s.pods.Count(id) }

// Services returns the Services of this cluster at a provider.
func (s *Sharing) Services(id peer.ClusterID) offload.Services { return s.pods.Services(id) }

// Stats are counters since the start of the session.
type Stats struct {
	Pods offload.Stats
	// LeasesRenewed and LeasesFailed count the renewals of leases of nodes.
	LeasesRenewed, LeasesFailed uint64
	// KubeletCertificateEnds is when the certificate of the kubelet API expires, zero
	// without one.
	KubeletCertificateEnds time.Time
}

// Stats returns the present counters.
func (s *Sharing) Stats() Stats {
	out := Stats{Pods: s.pods.Stats(), KubeletCertificateEnds: s.kubelet.State().NotAfter}
	out.LeasesRenewed, out.LeasesFailed = s.nodes.Leases()
	return out
}
