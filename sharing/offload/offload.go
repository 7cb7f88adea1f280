package offload

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"liqo.io/agent/kube"
	"liqo.io/agent/kube/tally"
	"liqo.io/agent/kube/work"
	"liqo.io/agent/peer"
)

// Remote is the way to one provider. Requests for its API server have a path as
// at an API server, and any host. It is used by many goroutines.
type Remote interface {
	http.RoundTripper
	// Namespace returns the provider's namespace for one of this cluster's, which
	// the provider makes if need be.
	Namespace(ctx context.Context, origin string) (string, error)
	// Release gives the provider's namespace for one of this cluster's back, with
	// all that is in it. That there is none is no error.
	Release(ctx context.Context, origin string) error
}

// Provider is one whose node may have pods.
type Provider struct {
	ID   peer.ClusterID
	Node string // the virtual node; "" while its name is not known
	// Remote is the way there, a pointer: it is compared with ==. Another one is used for what
	// comes after, and what was known about the provider's pods is listed again.
	Remote Remote
	// Offer is any text that changes when the provider's offer does. Pods that were
	// refused are tried again then.
	Offer string
	// Reachable is whether the provider answers. While it does not, pods stay as they
	// are; when it does again they are looked at.
	Reachable bool
	// Gone: the provider is given up. Nobody there is asked any more, and pods that
	// are being deleted here end at once.
	Gone bool
	// Expelled: the provider says that it does not let this cluster in any more. Pods that
	// are being deleted here end at once, until it gives a namespace again.
	Expelled bool
}

// Config is what an Offload works with.
type Config struct {
	// Self returns this cluster's ID.
	Self func() peer.ClusterID
	// Changed is told that the Counts of a provider may have changed. It must not
	// block, nor call the Offload. It may be nil.
	Changed func(peer.ClusterID)
	// Exceeded is told that what Excess returns about a provider has changed. It must
	// not block, nor call the Offload. It may be nil.
	Exceeded func(peer.ClusterID)
	Logger   *slog.Logger
	Now      func() time.Time // time.Now if nil
}

// Counts is how many pods are bound to a provider's node, and how they fare.
type Counts struct {
	Bound   int
	Running int // phase Running
	Pending int // phase Pending, the refused ones among them
	Refused int // never sent, or not let in by the provider
	Ending  int // being deleted
}

// Stats are what an Offload did since New.
type Stats struct {
	// Created is how long the requests took that created a pod at a provider.
	Created tally.Distribution
	// Retries counts work that failed and is tried again.
	Retries uint64
}

// Stats returns the counts.
func (o *Offload) Stats() Stats {
	return Stats{Created: o.created.Distribution(), Retries: o.retries.Load()}
}

// Place is where a pod of this cluster runs.
type Place struct {
	ID        peer.ClusterID // of the provider
	Node      string         // the virtual node
	Remote    Remote
	Namespace string    // there
	Name      string    // there
	UID       types.UID // there; "" when the provider's list was not read yet
	// Reachable is whether the provider answers.
	Reachable bool
}

// Offload keeps the pods of all virtual nodes. Its methods may be called from any
// goroutine, and do not block.
type Offload struct {
	cfg Config

	created tally.Histogram // how long it took to create a pod at a provider
	retries atomic.Uint64

	mu        sync.Mutex
	providers map[peer.ClusterID]Provider
	session   *session // nil while Run does not run
}

// New returns an Offload that does nothing until Run.
func New(cfg Config) *Offload {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Changed == nil {
		cfg.Changed = func(peer.ClusterID) {}
	}
	if cfg.Exceeded == nil {
		cfg.Exceeded = func(peer.ClusterID) {}
	}
	return &Offload{cfg: cfg, providers: make(map[peer.ClusterID]Provider)}
}

// Run works with the local API server until ctx ends or the work cannot be begun.
// It may run again afterwards, but once at a time.
func (o *Offload) Run(ctx context.Context, local *rest.Config) error {
	client, err := kube.New(local)
	if err != nil {
		return err
	}
	defer client.Close()
	return newSession(o, client).run(ctx)
}

// Set says how a provider stands. It may be called again and again; only changes
// have an effect.
func (o *Offload) Set(p Provider) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if before, there := o.providers[p.ID]; there && before == p {
		return
	}
	o.providers[p.ID] = p
	o.wake()
}

// Remove forgets a provider: its pods, wherever they are, are left as they are. It
// is for a node that has no pods any more, or does not exist.
func (o *Offload) Remove(id peer.ClusterID) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, there := o.providers[id]; there {
		delete(o.providers, id)
		o.wake()
	}
}

// wake has the session look at the providers.
func (o *Offload) wake() {
	if o.session != nil {
		work.Wake(o.session.woken)
	}
}

// attach makes s the session that the methods are about.
func (o *Offload) attach(s *session) {
	o.mu.Lock()
	o.session = s
	ids := slices.Collect(maps.Keys(o.providers))
	o.mu.Unlock()
	for _, id := range ids {
		o.cfg.Changed(id)
	}
}

// snapshot returns the providers.
func (o *Offload) snapshot() map[peer.ClusterID]Provider {
	o.mu.Lock()
	defer o.mu.Unlock()
	return maps.Clone(o.providers)
}

// controllers returns those of the session that runs.
func (o *Offload) controllers() []*controller {
	o.mu.Lock()
	s := o.session
	o.mu.Unlock()
	if s == nil {
		return nil
	}
	return s.all()
}

// Count returns how many pods a provider's node has. While Run does not run, that
// is not known, and all is zero.
func (o *Offload) Count(id peer.ClusterID) Counts {
	for _, pc := range o.controllers() {
		if pc.id == id {
			return pc.count()
		}
	}
	return Counts{}
}

// Excess returns in which way a provider says more than is taken from it, so that
// what is known of its pods is old; nil while it does not.
func (o *Offload) Excess(id peer.ClusterID) error {
	for _, pc := range o.controllers() {
		if pc.id == id {
			return pc.bounds.Err()
		}
	}
	return nil
}

// Find says where a pod of this cluster runs; false when it is on no virtual node
// or was not created at the provider yet.
func (o *Offload) Find(namespace, pod string) (Place, bool) {
	for _, pc := range o.controllers() {
		if place, ok := pc.find(namespace, pod); ok {
			return place, true
		}
	}
	return Place{}, false
}

// Pods returns the pods that are bound to a node, as this cluster has them, sorted
// by namespace and name. They are shared and must not be changed; managed fields
// are left out.
func (o *Offload) Pods(node string) []*corev1.Pod {
	var out []*corev1.Pod
	for _, pc := range o.controllers() {
		if pc.node == node {
			out = append(out, pc.pods.All()...)
		}
	}
	slices.SortFunc(out, func(a, b *corev1.Pod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return out
}
