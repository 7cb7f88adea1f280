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
	"liqo.io/agent/sharing/workload"
)

// Remote connects to one provider. Requests to its API server have the paths of an API
// server, and any host. Many goroutines use it.
type Remote interface {
	http.RoundTripper
	// Namespace returns the provider's namespace for a local one. The provider creates it
	// if necessary.
	Namespace(ctx context.Context, origin string) (string, error)
	// Release deletes the provider's namespace for a local one with everything in it. It
	// is no error if there is none.
	Release(ctx context.Context, origin string) error
}

// Provider is a cluster whose virtual node may have pods.
type Provider struct {
	ID   peer.ClusterID
	Node string // the virtual node; "" while its name is not known
	// Remote connects to it. It is a pointer, compared with ==: another Remote restarts the
	// controller, which lists the provider's pods again.
	Remote Remote
	// Offer is any text that changes with the provider's offer. Refused pods are tried
	// again then.
	Offer string
	// Reachable: the provider answers. While it does not, pods stay as they are; after
	// that, all are reconciled.
	Reachable bool
	// Gone: the provider is given up. It gets no more requests, and local pods that are
	// being deleted end at once.
	Gone bool
	// Expelled: the provider says that it no longer admits this cluster. Local pods that
	// are being deleted end at once, until it says otherwise or gives a namespace again.
	Expelled bool
	// Network says how the provider's pods are reached from here, nil if they are not. It is
	// another pointer whenever it says something else.
	Network *workload.Network
}

// Config is what an Offload works with.
type Config struct {
	// Self returns this cluster's ID.
	Self func() peer.ClusterID
	// Changed is called when the Counts of a provider may have changed. It must not
	// block, nor call the Offload. It may be nil.
	Changed func(peer.ClusterID)
	// Exceeded is called when the result of Excess for a provider has changed. It must
	// not block, nor call the Offload. It may be nil.
	Exceeded func(peer.ClusterID)
	// Tokens returns "" if pods of a namespace with workload.LabelTokens may have service account
	// tokens with them, otherwise why they may not: part of a sentence.
	Tokens func(namespace string) string
	// Claim returns what a claim of this cluster is called at a provider, or why a pod there
	// cannot mount it. Nil: no pod with claims can be there.
	Claim func(id peer.ClusterID, namespace, name string) (string, *workload.Refusal)
	// Holds reports whether a provider's namespace for a local one is needed for claims. It may be
	// nil.
	Holds func(id peer.ClusterID, namespace string) bool
	// Mounted is called when a pod at a provider that mounts claims gets on: they may have volumes
	// there by now. It must not block, and may be nil.
	Mounted func(namespace string, claims []string)
	Logger  *slog.Logger
	Now     func() time.Time // time.Now if nil

	limits limits // the usual ones if zero
}

// Counts counts the pods that are bound to a provider's node, by state.
type Counts struct {
	Bound   int
	Running int // phase Running
	Pending int // phase Pending, the refused ones among them
	Refused int // not offloadable, or refused by the provider
	Ending  int // being deleted
}

// Stats are the counters of an Offload since New.
type Stats struct {
	// Created is the distribution of the durations of requests that created a pod at a provider.
	Created tally.Distribution
	// Retries counts failed reconciles, each of which is tried again.
	Retries uint64
	// TokensIssued counts the service account tokens that the local API server gave for pods at
	// providers, TokensRefused those that it did not.
	TokensIssued, TokensRefused uint64
}

// Stats returns the counts.
func (o *Offload) Stats() Stats {
	return Stats{
		Created: o.created.Distribution(), Retries: o.retries.Load(),
		TokensIssued: o.tokens.issued.Load(), TokensRefused: o.tokens.refused.Load(),
	}
}

// Place is where a pod of this cluster runs.
type Place struct {
	ID        peer.ClusterID // of the provider
	Node      string         // the virtual node
	Namespace string         // there
	Name      string         // there
	UID       types.UID      // there; "" when the provider's list was not read yet
}

// Offload reconciles the pods of all virtual nodes. Its methods may be called from any
// goroutine, and do not block.
type Offload struct {
	cfg Config

	created tally.Histogram // how long it took to create a pod at a provider
	retries atomic.Uint64
	tokens  tokenCounts

	mu        sync.Mutex
	providers map[peer.ClusterID]Provider
	session   *session // nil while Run does not run
}

// New returns an Offload that does nothing before Run.
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
	if cfg.Tokens == nil {
		cfg.Tokens = func(string) string { return "" }
	}
	if cfg.Holds == nil {
		cfg.Holds = func(peer.ClusterID, string) bool { return false }
	}
	if cfg.Mounted == nil {
		cfg.Mounted = func(string, []string) {}
	}
	if cfg.limits == (limits{}) {
		cfg.limits = limits{objects: maxKept, bytes: maxTheirs, list: maxListed, object: maxTold, keys: maxQueued}
	}
	return &Offload{cfg: cfg, providers: make(map[peer.ClusterID]Provider)}
}

// Run reconciles until ctx ends. It returns an error if there is no client for local. It may
// be called again after it returned.
func (o *Offload) Run(ctx context.Context, local *rest.Config) error {
	client, err := kube.New(local)
	if err != nil {
		return err
	}
	defer client.Close()
	return newSession(o, client).run(ctx)
}

// Set sets the state of a provider. It may be called repeatedly; only changes have an
// effect.
func (o *Offload) Set(p Provider) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if before, there := o.providers[p.ID]; there && before == p {
		return
	}
	o.providers[p.ID] = p
	o.wake()
}

// Remove forgets a provider, and leaves all its pods as they are. It is for a node that
// has no pods any more, or does not exist.
func (o *Offload) Remove(id peer.ClusterID) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, there := o.providers[id]; there {
		delete(o.providers, id)
		o.wake()
	}
}

// ClaimsChanged has the pods of a local namespace reconciled: they may mount other claims than
// before.
func (o *Offload) ClaimsChanged(namespace string) {
	for _, pc := range o.controllers() {
		for _, k := range pc.index.in(namespace) {
			pc.queue.Add(k)
		}
	}
}

// wake makes the session adjust its controllers to the providers.
func (o *Offload) wake() {
	if o.session != nil {
		work.Wake(o.session.woken)
	}
}

// attach makes s the current session; nil: there is none.
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

// controllers returns the controllers of the current session.
func (o *Offload) controllers() []*controller {
	o.mu.Lock()
	s := o.session
	o.mu.Unlock()
	if s == nil {
		return nil
	}
	return s.all()
}

// Count returns the counts of a provider's node. They are zero while Run does not run.
func (o *Offload) Count(id peer.ClusterID) Counts {
	for _, pc := range o.controllers() {
		if pc.id == id {
			return pc.count()
		}
	}
	return Counts{}
}

// Excess returns which limit the answers of a provider exceed, so that the known state of
// its pods is outdated; nil if they exceed none.
func (o *Offload) Excess(id peer.ClusterID) error {
	for _, pc := range o.controllers() {
		if pc.id == id {
			return pc.bounds.Err()
		}
	}
	return nil
}

// Find returns where a pod of this cluster runs; false if it is on no virtual node, or was
// not created at the provider yet.
func (o *Offload) Find(namespace, pod string) (Place, bool) {
	for _, pc := range o.controllers() {
		if place, ok := pc.find(namespace, pod); ok {
			return place, true
		}
	}
	return Place{}, false
}

// Nodes returns the names of the virtual nodes whose pods are reconciled.
func (o *Offload) Nodes() []string {
	var out []string
	for _, pc := range o.controllers() {
		out = append(out, pc.node)
	}
	return out
}

// Guests returns the provider of a virtual node, and the local pods that run there, by the
// provider's namespaces; false if there is no such node. The pods are shared and must not be
// changed.
func (o *Offload) Guests(node string) (id peer.ClusterID, guests map[string][]*corev1.Pod, known bool) {
	for _, pc := range o.controllers() {
		if pc.node != node {
			continue
		}
		guests := make(map[string][]*corev1.Pod)
		for _, pod := range pc.pods.All() {
			if place, there := pc.find(pod.Namespace, pod.Name); there && pod.Status.Phase == corev1.PodRunning {
				guests[place.Namespace] = append(guests[place.Namespace], pod)
			}
		}
		return pc.id, guests, true
	}
	return "", nil, false
}

// Pods returns the local pods that are bound to a node, sorted by namespace and name,
// without managed fields. They are shared and must not be changed.
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
