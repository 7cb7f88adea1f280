package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/rest"

	"liqo.io/agent/agent/config"
	"liqo.io/agent/api"
	"liqo.io/agent/endpoint"
	"liqo.io/agent/endpoint/tunnel"
	"liqo.io/agent/endpoint/wire"
	"liqo.io/agent/health"
	"liqo.io/agent/peer"
	"liqo.io/agent/peering"
	"liqo.io/agent/peering/plan"
	"liqo.io/agent/sharing/host"
	"liqo.io/agent/sharing/kubelet"
	"liqo.io/agent/sharing/offload"
	"liqo.io/agent/sharing/registry"
	"liqo.io/agent/sharing/vnode"
)

const (
	// settleAfter is how long after the connection to the API server the list of
	// providers counts as complete, so that nodes of others can be removed.
	settleAfter = time.Minute
	// archLabel is the label of an offer for the architecture of its nodes.
	archLabel = "kubernetes.io/arch"
)

// sharing holds the parts that turn peerings into nodes and pods, and the clients of the
// providers. It is safe for concurrent use.
type sharing struct {
	*session

	hosts   *host.Host
	nodes   *vnode.Nodes
	pods    *offload.Offload
	kubelet *kubelet.Server
	needed  chan struct{} // closed when the kubelet API is needed
	need    sync.Once

	mu        sync.Mutex
	providers map[peer.ClusterID]*provider
	consumers map[peer.ClusterID]plan.TenantSpec
}

// provider is a cluster that has, or is to get, a node here.
type provider struct {
	link   *tunnel.Link
	target peer.Target

	spec   plan.NodeSpec
	status plan.NodeStatus
}

// consumer is a cluster that has, or may create, namespaces and pods here.
type consumer struct {
	spec   plan.TenantSpec
	status host.TenantStatus
}

var (
	_ peering.Sharing = (*sharing)(nil)
	_ endpoint.Guests = (*sharing)(nil)
	_ vnode.Names     = (*sharing)(nil)
)

func newSharing(s *session) *sharing {
	sh := &sharing{session: s, needed: make(chan struct{}), providers: make(map[peer.ClusterID]*provider),
		consumers: make(map[peer.ClusterID]plan.TenantSpec)}
	sh.hosts = host.New(host.Config{
		Settings: func() host.Settings { return hostSettings(s.config()) },
		Registries: func() registry.List {
			return registry.List{Entries: s.config().Sharing.Registries, Own: s.peering.OwnRegistries()}
		},
		Users:   func(id peer.ClusterID) []string { return s.peering.PeerUsers().Names(string(id)) },
		Changed: s.looksAgain, Logger: s.logger, Now: s.now,
	})
	host, _ := os.Hostname() // without one, no name is left out
	sh.nodes = vnode.New(vnode.Config{
		Settings: func() vnode.Settings {
			shared := s.config().Sharing
			return vnode.Settings{Heartbeat: shared.Heartbeat, DrainTimeout: shared.DrainTimeout}
		},
		Kubelet: sh.where, Changed: s.looksAgain, Names: sh, Host: strings.ToLower(host),
		Webhook: func() map[string]any { return s.admission.MutatingWebhook() },
		Logger:  s.logger, Now: s.now,
	})
	sh.pods = offload.New(offload.Config{Self: func() peer.ClusterID { return s.id }, Exceeded: s.looksAgain, Logger: s.logger, Now: s.now})
	sh.kubelet = kubelet.New(kubelet.Config{
		Listen: func() string { return s.config().Sharing.KubeletListen },
		Find:   sh.find, Dir: filepath.Join(s.config().State.Dir, "kubelet"), Self: func() peer.ClusterID { return s.id },
		Logger: s.logger, Changed: sh.kubeletChanged,
	})
	return sh
}

// looksAgain requeues a peer in the peering controller.
func (s *session) looksAgain(id peer.ClusterID) {
	s.hub.reconcile(id)
}

func hostSettings(cfg config.Config) host.Settings {
	shared := cfg.Sharing
	return host.Settings{
		Prefix: shared.NamespacePrefix, PodSecurity: shared.PodSecurity, Enforce: shared.Enforce, MaxNamespaces: shared.MaxNamespaces,
		GuestEgress: shared.GuestEgress, LocalImages: shared.LocalImages,
	}
}

// sharingSettings returns the settings of sharing that peerings depend on.
func sharingSettings(cfg config.Config) plan.SharingSettings {
	shared := cfg.Sharing
	return plan.SharingSettings{
		Enable: shared.Enable, Percentage: shared.Percentage, Overcommit: shared.Overcommit, Hysteresis: shared.Hysteresis,
		Labels: shared.Labels, Registries: shared.Registries, Use: shared.Use, AcceptManually: shared.AcceptPolicy == "manual", MaxAccepted: shared.MaxAccepted,
		KeepaliveThreshold: shared.KeepaliveThreshold, KeepaliveRetry: shared.KeepaliveRetry, DrainTimeout: shared.DrainTimeout,
	}
}

// changed takes changed settings into use.
func (sh *sharing) changed() {
	sh.nodes.Touch()
	sh.peering.SharingChanged()
}

// run runs the parts of sharing that need an API server, until ctx ends.
func (sh *sharing) run(ctx context.Context, local *rest.Config) {
	var parts sync.WaitGroup
	for _, p := range []part{
		{"consumers", func(ctx context.Context) error { return sh.hosts.Run(ctx, local) }},
		{"virtual nodes", func(ctx context.Context) error { return sh.nodes.Run(ctx, local) }},
		{"pods", func(ctx context.Context) error { return sh.pods.Run(ctx, local) }},
		{"kubelet API", func(ctx context.Context) error {
			// Only now: it requests a certificate, which a box without providers does not need.
			select {
			case <-ctx.Done():
				return nil
			case <-sh.needed:
			}
			return sh.kubelet.Run(ctx, local)
		}},
		{"leftovers", sh.settle},
	} {
		parts.Go(func() { supervise(ctx, sh.logger, p, sh.partFailed) })
	}
	parts.Wait()
}

// settle tells the nodes that all providers are known, settleAfter after the connection.
func (sh *sharing) settle(ctx context.Context) error {
	timer := time.NewTimer(settleAfter)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
		sh.nodes.Settled()
	}
	return nil
}

// Provide implements peering.Sharing.
func (sh *sharing) Provide(p plan.NodeSpec) plan.NodeStatus {
	if p.Wanted {
		sh.need.Do(func() { close(sh.needed) })
	}
	excess := ""
	if err := sh.pods.Excess(p.ID); err != nil {
		excess = err.Error()
	}
	state := sh.nodes.Set(vnode.Provider{
		ID: p.ID, Name: p.Name, Called: sh.views.label(p.ID), Wanted: p.Wanted, Offer: p.Offer, Gone: p.Gone, Reachable: p.Reachable, Why: p.Why, Excess: excess,
	})
	if p.Wanted || state.Busy {
		sh.pods.Set(offload.Provider{
			ID: p.ID, Node: state.Name, Remote: sh.lead(p),
			Offer: describe(p.Offer), Reachable: p.Reachable, Gone: p.Gone, Expelled: p.Expelled,
		})
	} else {
		sh.leave(p.ID)
	}
	use := plan.NodeStatus{
		Name: state.Node, Busy: state.Busy, Ready: state.Ready, Reason: state.Reason, Message: state.Message, Pods: state.Pods,
	}
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if known := sh.providers[p.ID]; known != nil {
		known.spec, known.status = p, use
	}
	return use
}

// NodeName implements vnode.Names.
func (sh *sharing) NodeName(id peer.ClusterID) string { return sh.decisions.NodeName(id) }

// NameNode implements vnode.Names.
func (sh *sharing) NameNode(ctx context.Context, id peer.ClusterID, name string) (bool, error) {
	return sh.decisions.NameNode(ctx, id, name)
}

// describe is a text that changes when an offer's amounts do.
func describe(offer *api.AdvertisementSpec) string {
	if offer == nil {
		return ""
	}
	return fmt.Sprint(offer.ResourceQuota.Hard) // maps are printed in order
}

// lead returns the connection to a provider. It stays the same as long as there is
// anything of the provider here.
func (sh *sharing) lead(p plan.NodeSpec) *tunnel.Link {
	sh.mu.Lock()
	known := sh.providers[p.ID]
	if known == nil {
		known = &provider{}
		known.link = tunnel.New(sh.client, tunnel.Config{Target: func() (peer.Target, bool) { return sh.target(p.ID) }, Logger: sh.logger})
		sh.providers[p.ID] = known
	}
	moved := !reflect.DeepEqual(known.target, p.Target)
	known.target = p.Target
	sh.mu.Unlock()
	if moved {
		known.link.Moved() // which asks for the target
	}
	return known.link
}

func (sh *sharing) target(id peer.ClusterID) (peer.Target, bool) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	known := sh.providers[id]
	if known == nil || known.target.Fingerprint.IsZero() {
		return peer.Target{}, false
	}
	return known.target, true
}

// leave closes the connection to a provider of which nothing is left here.
func (sh *sharing) leave(id peer.ClusterID) {
	sh.mu.Lock()
	known := sh.providers[id]
	delete(sh.providers, id)
	sh.mu.Unlock()
	if known == nil {
		return
	}
	sh.pods.Remove(id)
	go known.link.Close() // it waits for what is under way
}

// close closes the connections to all providers. Nothing may use them any more.
func (sh *sharing) close() {
	sh.mu.Lock()
	providers := sh.providers
	sh.providers = make(map[peer.ClusterID]*provider)
	sh.mu.Unlock()
	for _, known := range providers {
		known.link.Close()
	}
}

// where returns the address of the kubelet API.
func (sh *sharing) where() vnode.Kubelet {
	addr, port, _ := sh.kubelet.Where()
	return vnode.Kubelet{Address: addr, Port: port}
}

// kubeletChanged is called when the state or address of the kubelet API changed.
func (sh *sharing) kubeletChanged() {
	state := sh.kubelet.State()
	sh.health.When(health.KubeletAPI, state.Problem != "", health.Args{"problem": state.Problem, "remedy": state.Remedy})
	sh.nodes.Touch()
	sh.mu.Lock()
	ids := slices.Collect(maps.Keys(sh.providers))
	sh.mu.Unlock()
	for _, id := range ids {
		sh.looksAgain(id) // its pods show the address
	}
}

// find returns the provider and the pod there that an offloaded pod of this cluster runs as.
func (sh *sharing) find(namespace, pod string) (kubelet.Place, bool) {
	place, ok := sh.pods.Find(namespace, pod)
	if !ok {
		return kubelet.Place{}, false
	}
	link, ok := place.Remote.(*tunnel.Link)
	return kubelet.Place{ID: place.ID, Node: place.Node, Namespace: place.Namespace, Name: place.Name, Upstream: link}, ok
}

// Host implements peering.Sharing.
func (sh *sharing) Host(t plan.TenantSpec) plan.TenantStatus {
	spec := host.TenantSpec{ID: t.ID, Name: t.Name, Admitted: t.Admitted}
	if t.Offer != nil {
		spec.Offer, spec.Arch = t.Offer.ResourceQuota.Hard, t.Offer.Labels[archLabel]
	}
	status := sh.hosts.Set(spec)
	if !t.Admitted {
		sh.server.Recheck(t.ID)
	}
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if t.Admitted || status.Namespaces > 0 {
		sh.consumers[t.ID] = t
	} else {
		delete(sh.consumers, t.ID)
	}
	return plan.TenantStatus{Busy: status.Busy, Namespaces: status.Namespaces, Pods: status.Pods, Used: status.Used}
}

// Namespace implements endpoint.Guests.
func (sh *sharing) Namespace(ctx context.Context, id peer.ClusterID, origin string) (string, error) {
	name, err := sh.hosts.Namespace(ctx, id, origin)
	return name, refused(err)
}

// Release implements endpoint.Guests.
func (sh *sharing) Release(ctx context.Context, id peer.ClusterID, origin string) error {
	return refused(sh.hosts.Release(ctx, id, origin))
}

// Owns implements endpoint.Guests.
func (sh *sharing) Owns(id peer.ClusterID, namespace string) bool {
	return sh.hosts.Owns(id, namespace)
}

// Pod implements endpoint.Guests.
func (sh *sharing) Pod(ctx context.Context, id peer.ClusterID, namespace string, body []byte) ([]byte, func([]byte), error) {
	clean, done, err := sh.hosts.Pod(ctx, id, namespace, body)
	return clean, done, refused(err)
}

// Named implements endpoint.Guests.
func (sh *sharing) Named(pod []byte) (configMaps, secrets []string, err error) {
	return host.Named(pod)
}

// PodPatch implements endpoint.Guests.
func (sh *sharing) PodPatch(id peer.ClusterID, namespace, name string, body []byte) ([]byte, string, error) {
	clean, contentType, err := sh.hosts.PodPatch(id, namespace, name, body)
	return clean, contentType, refused(err)
}

// Object implements endpoint.Guests.
func (sh *sharing) Object(id peer.ClusterID, namespace, resource, name string, body []byte) ([]byte, error) {
	clean, err := sh.hosts.Object(id, namespace, resource, name, body)
	return clean, refused(err)
}

// refused converts an error of package host to one of package endpoint.
func refused(err error) error {
	var no *host.Refused
	if !errors.As(err, &no) {
		return err
	}
	out := &wire.Refused{Reason: no.Reason, Message: no.Message}
	if no.Reason == host.ReasonNotReady || no.Reason == host.ReasonTerminating {
		out.Retry = no.Retry // it is not that we do not want to
	}
	return out
}
