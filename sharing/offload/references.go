package offload

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/agent/kube"
	"liqo.io/agent/sharing/workload"
)

// bundleKey names all objects of a kind in a local namespace.
type bundleKey struct {
	kind      kind
	namespace string
}

// bundle is their cache, shared by the controllers whose pods need some. It keeps only
// metadata: the data is read when it is sent.
type bundle struct {
	cache *kube.Cache[*metadata]
	stop  context.CancelFunc
	users map[*controller]bool
}

// copied is a provider's copy of a ConfigMap, Secret or Service.
type copied struct {
	mu       sync.Mutex
	version  string // resource version of the original that it was made from; "" if it is to be sent
	revision string // resource version of the copy; "" if not known
	written  uint64 // remoteNamespace.writes after it was sent
	there    bool   // it may exist
	dropped  bool   // there is none, and another copied in its place

	// slices are the EndpointSlices of a Service that may exist there. They were made for that
	// network.
	slices  map[string]sentSlice
	network *workload.Network

	// due is when the tokens of a pod are to be renewed, which are in that Secret. version is the UID
	// of the pod.
	due    time.Time
	secret string
}

// sentSlice is the hash of what an EndpointSlice was made from, and the resource version that it
// has at the provider; "" if not known. written is as in copied.
type sentSlice struct {
	sum, revision string
	written       uint64
}

// maxCopies bounds how many copies are known in a remote namespace: the provider says which there
// are of earlier runs.
const maxCopies = 2 * maxSwept

// collection returns the path of the objects of the kind in a namespace.
func (k key) collection(namespace string) string {
	group := "/api/v1"
	if k.kind == aSlice {
		group = "/apis/discovery.k8s.io/v1"
	}
	return group + "/namespaces/" + namespace + "/" + string(k.kind)
}

func (k key) path(namespace string) string { return k.collection(namespace) + "/" + k.name }

// bundle returns the cache for an object, and starts it if necessary. The
// controller becomes one of its users.
func (s *session) bundle(pc *controller, ref key) *kube.Cache[*metadata] {
	s.mu.Lock()
	defer s.mu.Unlock()
	bk := bundleKey{ref.kind, ref.namespace}
	b := s.bundles[bk]
	if b == nil {
		b = &bundle{users: make(map[*controller]bool)}
		b.cache = kube.NewCache(kube.Kind[*metadata]{
			Fresh: func() *metadata { return &metadata{} },
			Trim:  trimMetadata,
			Changed: func(before, after *metadata) {
				o := after
				if o == nil {
					o = before
				}
				for _, pc := range s.all() {
					switch bk.kind {
					case aService:
						pc.serviceChanged(bk.namespace, o.Name)
					case aSlice:
						pc.serviceChanged(bk.namespace, o.Labels[discoveryv1.LabelServiceName])
					default:
						pc.referenceChanged(key{bk.kind, bk.namespace, o.Name}, before == nil)
					}
				}
			},
		})
		query := kube.Query{Path: ref.collection(bk.namespace)}
		if bk.kind == aSecret {
			// They are many and large, and no pod references them.
			query.Fields = "type!=helm.sh/release.v1"
		}
		var ctx context.Context
		ctx, b.stop = context.WithCancel(s.ctx)
		s.bundles[bk] = b
		s.running.Go(func() { b.cache.Follow(ctx, s.local, query) })
		s.running.Go(func() {
			select {
			case <-ctx.Done():
			case <-b.cache.Synced():
				for _, pc := range s.all() {
					for _, k := range pc.index.in(bk.namespace) {
						pc.queue.Add(k)
					}
					if rn := pc.remoteNamespace(bk.namespace); rn != nil {
						pc.enqueueServices(rn)
					}
				}
			}
		})
	}
	b.users[pc] = true
	return b.cache
}

// followed returns the objects of a bundle; none if nobody has started it.
func (s *session) followed(bk bundleKey) []*metadata {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b := s.bundles[bk]; b != nil {
		return b.cache.All()
	}
	return nil
}

// release stops the bundles of a namespace ("": of all) that only pc used.
func (s *session) release(pc *controller, namespace string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for bk, b := range s.bundles {
		if namespace != "" && bk.namespace != namespace {
			continue
		}
		if delete(b.users, pc); len(b.users) == 0 {
			b.stop()
			delete(s.bundles, bk)
		}
	}
}

// referenceChanged handles a change of a local ConfigMap or Secret.
func (pc *controller) referenceChanged(ref key, fresh bool) {
	pods := pc.index.using(ref)
	if len(pods) == 0 {
		return
	}
	pc.queue.Add(ref)
	if fresh { // some may have waited for it
		for _, k := range pods {
			pc.queue.Add(k)
		}
	}
}

// missing returns which required references of a pod do not exist; ready is false while
// that is not known.
func (pc *controller) missing(local *corev1.Pod) (why *workload.Refusal, ready bool) {
	var lost = map[kind][]string{}
	ready = true
	configMaps, secrets := workload.References(local)
	for what, refs := range map[kind][]workload.Reference{aConfigMap: configMaps, aSecret: secrets} {
		for _, ref := range refs {
			k := key{what, local.Namespace, ref.Name}
			cache := pc.s.bundle(pc, k)
			if !cache.HasSynced() {
				ready = false
			} else if cache.Get(k.namespace, k.name) == nil && !ref.Optional {
				lost[what] = append(lost[what], ref.Name)
			}
		}
	}
	if ready && len(lost) > 0 {
		return workload.Missing(lost[aConfigMap], lost[aSecret]), true
	}
	return nil, ready
}

// send copies the references of a pod to the provider. It returns why the pod cannot run.
func (pc *controller) send(ctx context.Context, rn *remoteNamespace, v view) (*workload.Refusal, error) {
	for ref, optional := range references(v.local) {
		why, err := pc.copy(ctx, rn, ref, v.origin)
		if err != nil || why != nil && !optional {
			return why, err
		}
	}
	return nil, nil
}

// hold returns what is known of the copy of an object, for the caller alone until letGo.
func (rn *remoteNamespace) hold(ref key) *copied {
	for {
		rn.mu.Lock()
		c := rn.copies[ref]
		if c == nil {
			c = &copied{slices: make(map[string]sentSlice)}
			rn.copies[ref] = c
		}
		rn.mu.Unlock()
		if c.mu.Lock(); !c.dropped {
			return c
		}
		c.mu.Unlock()
	}
}

// letGo ends hold. A copy that does not exist is forgotten.
func (rn *remoteNamespace) letGo(ref key, c *copied) {
	if !c.there && len(c.slices) == 0 {
		rn.mu.Lock()
		delete(rn.copies, ref)
		rn.mu.Unlock()
		c.dropped = true
	}
	c.mu.Unlock()
}

// takes reports whether there is room for what the provider says is there.
func (rn *remoteNamespace) takes(ref key) bool {
	rn.mu.Lock()
	defer rn.mu.Unlock()
	return rn.copies[ref] != nil || len(rn.copies) < maxCopies
}

// copy makes the provider's copy of a ConfigMap or Secret equal to the original. It returns
// why there is no copy.
func (pc *controller) copy(ctx context.Context, rn *remoteNamespace, ref key, origin workload.Origin) (*workload.Refusal, error) {
	cache := pc.s.bundle(pc, ref)
	if !cache.HasSynced() {
		return nil, nil // enqueued again once it has
	}
	c := rn.hold(ref)
	defer rn.letGo(ref, c)
	if len(pc.index.using(ref)) == 0 {
		return nil, pc.uncopy(ctx, rn, ref, c)
	}
	ours := cache.Get(ref.namespace, ref.name)
	if ours == nil {
		return missing(ref), pc.uncopy(ctx, rn, ref, c)
	}
	if c.version == ours.ResourceVersion {
		return nil, nil
	}
	body, version, why, err := pc.read(ctx, ref, origin)
	if err != nil || why != nil {
		return why, err
	}
	c.there = true
	made, err := rn.apply(ctx, ref.path(rn.name), body, nil)
	switch {
	case err == nil:
		c.version, c.revision, c.written = version, made.revision(), rn.writes.Add(1)
	case refusal(err) && !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return &workload.Refusal{
			Reason: workload.ReasonRefusedByProvider, Message: "The provider does not take " + ref.String() + ": " + words(err),
		}, nil
	}
	return nil, err
}

// apply applies an object. One that cannot be changed into that, or does not fit then, is made anew: the original was, too.
func (rn *remoteNamespace) apply(ctx context.Context, path string, body []byte, fits func(*answered) bool) (*answered, error) {
	apply := func() (*answered, error) {
		made := &answered{}
		return made, rn.client.Apply(ctx, path, manager, true, json.RawMessage(body), made)
	}
	made, err := apply()
	if !apierrors.IsInvalid(err) && (err != nil || fits == nil || fits(made)) {
		return made, err
	}
	if err := rn.client.Delete(ctx, path, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return nil, err
	}
	return apply()
}

func missing(ref key) *workload.Refusal {
	if ref.kind == aConfigMap {
		return workload.Missing([]string{ref.name}, nil)
	}
	return workload.Missing(nil, []string{ref.name})
}

// String returns the key in words.
func (k key) String() string { return string(k.kind) + " " + k.namespace + "/" + k.name }

// uncopy deletes a copy that is not needed, or has no original any more.
func (pc *controller) uncopy(ctx context.Context, rn *remoteNamespace, ref key, c *copied) error {
	if !c.there {
		return nil
	}
	if err := rn.client.Delete(ctx, ref.path(rn.name), metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	c.there, c.version, c.revision = false, "", ""
	return nil
}

// read reads an original, and returns the body to send to the provider.
func (pc *controller) read(ctx context.Context, ref key, origin workload.Origin) (body []byte, version string, why *workload.Refusal, err error) {
	path := ref.path(ref.namespace)
	if ref.kind == aConfigMap {
		cm := &corev1.ConfigMap{}
		if err = pc.s.local.Get(ctx, path, cm); err == nil {
			body, why = workload.Config(cm, origin)
			return body, cm.ResourceVersion, why, nil
		}
	} else {
		secret := &corev1.Secret{}
		if err = pc.s.local.Get(ctx, path, secret); err == nil {
			body, why = workload.SecretOf(secret, origin)
			return body, secret.ResourceVersion, why, nil
		}
	}
	if apierrors.IsNotFound(err) {
		return nil, "", missing(ref), nil
	}
	return nil, "", nil, err
}

// reconcileReference reconciles the copy of a ConfigMap or Secret.
func (pc *controller) reconcileReference(ctx context.Context, ref key) (again time.Duration, err error) {
	p, rn := pc.provider.Load(), pc.remoteNamespace(ref.namespace)
	if p.Gone || !p.Reachable || rn == nil || !rn.known() {
		return 0, nil
	}
	if rest := pc.holds(); rest > 0 {
		return rest, nil
	}
	why, err := pc.copy(ctx, rn, ref, workload.Origin{Cluster: pc.s.o.cfg.Self(), Namespace: rn.name, Node: pc.node})
	if err == nil && why != nil && why.Reason == workload.ReasonRefusedByProvider {
		return 0, why
	}
	return 0, err
}
