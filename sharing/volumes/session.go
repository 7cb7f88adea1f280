package volumes

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"liqo.io/agent/kube"
	"liqo.io/agent/kube/work"
	"liqo.io/agent/peer"
	"liqo.io/agent/sharing/storageclass"
	"liqo.io/agent/sharing/vnode"
)

const (
	// manager is the field manager of all writes.
	manager = "liqo-agent-volumes"
	// workers is how many claims and volumes are worked on at the same time. A worker mostly
	// waits for an API server.
	workers = 4
	// retryFirst and retryMax bound the backoff after a failure; refusedFirst and refusedMax the
	// time until the scheduler may choose again after a refusal.
	retryFirst   = 100 * time.Millisecond
	retryMax     = 30 * time.Second
	refusedFirst = 2 * time.Second
	refusedMax   = 5 * time.Minute
	// checkEvery is how often it is looked whether the provider still has a claim.
	checkEvery = 5 * time.Minute
	// growFirst is how soon it is looked first whether a claim has grown there.
	growFirst = time.Second

	// Finalizer is on claims that may be at a provider and have no volume yet, and on volumes
	// whose claims are at a provider.
	Finalizer = "storage.liqo.io/remote"

	// annotationProvider on a claim is the provider where it may be, while it has the finalizer.
	annotationProvider = "storage.liqo.io/provider"
	// annotationRemoteNamespace and annotationRemoteClaim on a volume are where its claim is at
	// the provider.
	annotationRemoteNamespace = "storage.liqo.io/remote-namespace"
	annotationRemoteClaim     = "storage.liqo.io/remote-claim"

	// annotationSelected on a claim is the node that the scheduler chose. Taken away, it has
	// the scheduler choose again.
	annotationSelected = "volume.kubernetes.io/selected-node"
	// annotationFor on a claim is the provisioner that is to act.
	annotationFor = "volume.kubernetes.io/storage-provisioner"
	// annotationProvisioner on a volume is who made it, and is to delete it.
	annotationProvisioner = "pv.kubernetes.io/provisioned-by"
)

// kind is the kind of what a key names.
type kind string

const (
	aClass  kind = "storage class" // namespace and name are empty
	aClaim  kind = "claim"
	aVolume kind = "volume" // namespace is empty
)

// key names something to reconcile.
type key struct {
	kind            kind
	namespace, name string
}

// node is what matters of a node.
type node struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec struct {
		ProviderID string `json:"providerID"`
	} `json:"spec"`
}

// DeepCopyObject implements runtime.Object.
func (n *node) DeepCopyObject() runtime.Object {
	out := *n
	n.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	return &out
}

// trimNode keeps the name of a node, its label for it, and whose it is.
func trimNode(n *node) {
	n.ObjectMeta = metav1.ObjectMeta{
		Name: n.Name, UID: n.UID, ResourceVersion: n.ResourceVersion, Labels: map[string]string{corev1.LabelHostname: n.Labels[corev1.LabelHostname]},
	}
}

// provider returns the provider that a node stands for; false for a node of this cluster.
func (n *node) provider() (peer.ClusterID, bool) {
	return vnode.ProviderOf(&corev1.Node{Spec: corev1.NodeSpec{ProviderID: n.Spec.ProviderID}})
}

// session is one connection to the local API server.
type session struct {
	v      *Volumes
	client *kube.Client
	class  string // the name of the storage class

	claims  *kube.Cache[*corev1.PersistentVolumeClaim] // of the class, those with our finalizer, and those behind others
	volumes *kube.Cache[*corev1.PersistentVolume]      // ours, and those that are being handed over
	classes *kube.Cache[*storageclass.Class]
	nodes   *kube.Cache[*node]
	queue   *work.Queue[key]

	mu      sync.Mutex
	refused map[types.UID]refused
	// states is what the providers said of volumes.
	states map[types.UID]state
	taken  string // what was logged about another storage class of that name
}

// refused is the backoff of a claim that no provider takes.
type refused struct {
	times int       // in a row
	until time.Time // the scheduler may not choose again before; zero after it was asked to
	why   string    // what was told last
}

// state is what a provider said of a volume.
type state struct {
	at      time.Time
	missing bool
	phase   corev1.PersistentVolumeClaimPhase

	wanted  int    // how often there was a reason to ask again
	asked   int64  // how many bytes the claim here asked for
	tries   int    // how often it was looked whether the provider gives as much, if it gave less
	growing bool   // the provider has taken that the claim grows, and is not done
	said    string // why it has not, as it was told last
}

// pause returns how long after it the provider is asked again; grows reports whether the claim asks for
// more than the provider gave.
func (st state) pause(grows bool) time.Duration {
	if !grows || st.tries == 0 {
		return checkEvery
	}
	return work.Backoff{First: growFirst, Max: checkEvery}.Pause(st.tries)
}

func newSession(v *Volumes, client *kube.Client) *session {
	s := &session{
		v: v, client: client, class: v.cfg.Class(),
		queue:   work.New(work.Config[key]{Backoff: work.Backoff{First: retryFirst, Max: retryMax}, Observe: v.attempted}),
		refused: make(map[types.UID]refused), states: make(map[types.UID]state),
	}
	s.claims = kube.NewCache(kube.Kind[*corev1.PersistentVolumeClaim]{
		Fresh: func() *corev1.PersistentVolumeClaim { return &corev1.PersistentVolumeClaim{} },
		Trim:  func(c *corev1.PersistentVolumeClaim) { c.ManagedFields = nil },
		Keep: func(c *corev1.PersistentVolumeClaim) bool {
			_, behind := owner(c)
			return behind || s.ofClass(c)
		},
		Index: func(c *corev1.PersistentVolumeClaim) []string {
			if ref, behind := owner(c); behind {
				return []string{c.Namespace + "/" + ref.Name}
			}
			return nil
		},
		Changed: s.claimChanged,
	})
	s.volumes = kube.NewCache(kube.Kind[*corev1.PersistentVolume]{
		Fresh: func() *corev1.PersistentVolume { return &corev1.PersistentVolume{} },
		Trim:  func(v *corev1.PersistentVolume) { v.ManagedFields = nil },
		Keep:  ofVolumes,
		Index: func(v *corev1.PersistentVolume) []string {
			if namespace, name, _, is := handedTo(v); is {
				return []string{namespace + "/" + name}
			}
			return nil
		},
		Changed: s.volumeChanged,
	})
	s.classes = kube.NewCache(kube.Kind[*storageclass.Class]{
		Fresh:   func() *storageclass.Class { return &storageclass.Class{} },
		Trim:    func(c *storageclass.Class) { c.ManagedFields = nil },
		Changed: func(_, _ *storageclass.Class) { s.touch() },
	})
	s.nodes = kube.NewCache(kube.Kind[*node]{
		Fresh: func() *node { return &node{} }, Trim: trimNode,
		Changed: func(before, after *node) {
			if before == nil || after == nil || before.Labels[corev1.LabelHostname] != after.Labels[corev1.LabelHostname] {
				s.touch()
			}
		},
	})
	return s
}

// touch enqueues what depends on nodes, classes and settings.
func (s *session) touch() {
	s.queue.Add(key{kind: aClass})
	s.enqueueClaims()
}

// ofClass reports whether a claim is of the storage class, or may be at a provider.
func (s *session) ofClass(c *corev1.PersistentVolumeClaim) bool {
	return c.Spec.StorageClassName != nil && *c.Spec.StorageClassName == s.class || c.Annotations[annotationProvider] != ""
}

// ofVolumes reports whether a volume stands for a claim at a provider, or is made for one behind a
// claim at home, or is being handed over to that.
func ofVolumes(v *corev1.PersistentVolume) bool {
	_, _, _, handed := handedTo(v)
	return handed || providerOf(v) != "" || v.Spec.ClaimRef != nil && behindName.MatchString(v.Spec.ClaimRef.Name)
}

// providerOf returns the provider that has the data of a volume, "" of a volume that the agent
// did not make.
func providerOf(v *corev1.PersistentVolume) peer.ClusterID {
	if v.Annotations[annotationRemoteClaim] == "" {
		return ""
	}
	id, err := peer.ParseClusterID(v.Annotations[annotationProvider])
	if err != nil {
		return ""
	}
	return id
}

// run works until ctx ends. Every goroutine it starts has ended when it returns.
func (s *session) run(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { s.claims.Follow(ctx, s.client, kube.Query{Path: "/api/v1/persistentvolumeclaims"}) })
	running.Go(func() { s.volumes.Follow(ctx, s.client, kube.Query{Path: volumesPath}) })
	running.Go(func() { s.classes.Follow(ctx, s.client, kube.Query{Path: storageclass.Path}) })
	running.Go(func() { s.nodes.Follow(ctx, s.client, kube.Query{Path: "/api/v1/nodes"}) })
	for _, synced := range []<-chan struct{}{s.claims.Synced(), s.volumes.Synced(), s.classes.Synced(), s.nodes.Synced()} {
		select {
		case <-ctx.Done():
			return
		case <-synced:
		}
	}
	s.v.attach(s)
	s.enqueueAll("")
	s.v.cfg.Used()
	namespaces := make(map[string]bool)
	for _, c := range s.claims.All() {
		namespaces[c.Namespace] = true
	}
	for namespace := range namespaces {
		s.v.cfg.Changed(namespace)
	}
	s.queue.Run(ctx, workers, s.process)
}

// enqueueAll enqueues everything that has to do with a provider, "" for all.
func (s *session) enqueueAll(id peer.ClusterID) {
	s.queue.Add(key{kind: aClass})
	s.queue.ForgetFailures()
	s.mu.Lock()
	clear(s.refused)
	for uid, st := range s.states {
		st.asked = 0 // it may grow now
		st.wanted++
		s.states[uid] = st
	}
	s.mu.Unlock()
	s.enqueueClaims()
	for _, v := range s.volumes.All() {
		if id == "" || providerOf(v) == id {
			s.queue.Add(key{kind: aVolume, name: v.Name})
		}
	}
}

// enqueueClaims enqueues the claims without a volume.
func (s *session) enqueueClaims() {
	for _, c := range s.claims.All() {
		if c.Spec.VolumeName == "" || c.Annotations[annotationProvider] != "" {
			s.queue.Add(keyOf(c))
		}
	}
}

// claimChanged handles a change of a claim.
func (s *session) claimChanged(before, after *corev1.PersistentVolumeClaim) {
	c := after
	if c == nil {
		c = before
		s.queue.Add(key{kind: aVolume, name: volumeName(c.UID)})
		s.admitted(c)
	}
	s.queue.Add(keyOf(c))
	if after != nil && after.Spec.VolumeName == volumeName(after.UID) {
		s.queue.Add(key{kind: aVolume, name: after.Spec.VolumeName}) // it may grow
	}
	if before == nil || after == nil || before.UID != after.UID || before.Spec.VolumeName != after.Spec.VolumeName {
		s.v.cfg.Changed(c.Namespace)
	}
	s.usedChanged(before == nil, after == nil)
}

// volumeChanged handles a change of a volume.
func (s *session) volumeChanged(before, after *corev1.PersistentVolume) {
	volume := after
	if volume == nil {
		volume = before
		s.mu.Lock()
		delete(s.states, volume.UID)
		s.mu.Unlock()
	}
	s.queue.Add(key{kind: aVolume, name: volume.Name})
	if namespace, name, _, handed := handedTo(volume); handed {
		s.queue.Add(key{aClaim, namespace, name})
	}
	if ref := volume.Spec.ClaimRef; ref != nil {
		if behind := s.claims.Get(ref.Namespace, ref.Name); behind != nil {
			s.queue.Add(keyOf(behind))
		} else {
			s.queue.Add(key{aClaim, ref.Namespace, ref.Name})
		}
		if before == nil || after == nil {
			s.v.cfg.Changed(ref.Namespace)
		}
	}
	s.usedChanged(before == nil, after == nil)
}

// usedChanged is called after a claim or volume appeared or disappeared.
func (s *session) usedChanged(appeared, disappeared bool) {
	if appeared || disappeared {
		s.queue.Add(key{kind: aClass})
		s.v.cfg.Used()
	}
}

// process reconciles what a key names.
func (s *session) process(ctx context.Context, k key) work.Outcome {
	switch k.kind {
	case aClass:
		return work.Result(s.reconcileClass(ctx))
	case aClaim:
		return work.Result(s.reconcileClaim(ctx, k.namespace, k.name))
	default:
		return work.Result(s.reconcileVolume(ctx, k.name))
	}
}

// patience is after how many failures in a row a warning is logged.
const patience = 6

// attempted logs a failed reconcile.
func (v *Volumes) attempted(k key, a work.Attempt) {
	if a.Err == nil {
		return
	}
	log := v.cfg.Logger.Debug
	if a.Failures == patience {
		log = v.cfg.Logger.Warn
	}
	log("storage at a provider makes no progress; trying again", "what", k.kind, "namespace", k.namespace, "name", k.name, "in", a.Next.Round(time.Millisecond), "error", a.Err)
}
