package offload

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/agent/kube"
	"liqo.io/agent/sharing/workload"
)

// bundleKey names all ConfigMaps, or all Secrets, of a namespace here.
type bundleKey struct {
	kind      kind
	namespace string
}

// bundle follows them, for the controllers that have pods which name some. Only metadata
// is kept: what is in one is read when it is sent.
type bundle struct {
	cache *kube.Cache[*metadata]
	stop  context.CancelFunc
	users map[*controller]bool
}

// copied is a provider's copy of a ConfigMap or Secret.
type copied struct {
	mu      sync.Mutex
	version string // resource version of ours that it was made from; "" if not known
	there   bool   // it may be there
}

func (k key) path(namespace string) string {
	return "/api/v1/namespaces/" + namespace + "/" + string(k.kind) + "/" + k.name
}

// bundle returns the bundle of what a key is one of, for a controller. It is begun if
// there is none.
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
					pc.referenceChanged(key{bk.kind, bk.namespace, o.Name}, before == nil)
				}
			},
		})
		query := kube.Query{Path: "/api/v1/namespaces/" + bk.namespace + "/" + string(bk.kind)}
		if bk.kind == aSecret {
			// They are many and large, and no pod names them.
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
				}
			}
		})
	}
	b.users[pc] = true
	return b.cache
}

// release ends what only l needed of a namespace; "" for all.
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

// referenceChanged takes in that a ConfigMap or Secret here is another.
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

// missing returns what a pod cannot be without and does not exist here; ready is
// false while that is not known.
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

// send has the provider have what a pod names. It returns why the pod cannot run.
func (pc *controller) send(ctx context.Context, rn *remoteNamespace, v view) (*workload.Refusal, error) {
	for ref, optional := range references(v.local) {
		why, err := pc.copy(ctx, rn, ref, v.origin)
		if err != nil || why != nil && !optional {
			return why, err
		}
	}
	return nil, nil
}

// copied returns the copy of what a key names.
func (rn *remoteNamespace) copied(ref key) *copied {
	rn.mu.Lock()
	defer rn.mu.Unlock()
	c := rn.copies[ref]
	if c == nil {
		c = &copied{}
		rn.copies[ref] = c
	}
	return c
}

// copy makes the provider's copy of a ConfigMap or Secret what ours is. It returns
// why there is none.
func (pc *controller) copy(ctx context.Context, rn *remoteNamespace, ref key, origin workload.Origin) (*workload.Refusal, error) {
	cache := pc.s.bundle(pc, ref)
	if !cache.HasSynced() {
		return nil, nil // it is looked at again when that has changed
	}
	c := rn.copied(ref)
	c.mu.Lock()
	defer c.mu.Unlock()
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
	path := ref.path(rn.name)
	c.there = true
	err = rn.client.Apply(ctx, path, manager, true, json.RawMessage(body), nil)
	if apierrors.IsInvalid(err) {
		// Immutable, and ours was made anew.
		if err = rn.client.Delete(ctx, path, metav1.DeleteOptions{}); err == nil || apierrors.IsNotFound(err) {
			err = rn.client.Apply(ctx, path, manager, true, json.RawMessage(body), nil)
		}
	}
	switch {
	case err == nil:
		c.version = version
	case refusal(err) && !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return &workload.Refusal{
			Reason: workload.ReasonRefusedByProvider, Message: "The provider does not take " + ref.String() + ": " + words(err),
		}, nil
	}
	return nil, err
}

func missing(ref key) *workload.Refusal {
	if ref.kind == aConfigMap {
		return workload.Missing([]string{ref.name}, nil)
	}
	return workload.Missing(nil, []string{ref.name})
}

// String returns the key in words.
func (k key) String() string { return string(k.kind) + " " + k.namespace + "/" + k.name }

// uncopy removes a copy that is not needed, or has no original any more.
func (pc *controller) uncopy(ctx context.Context, rn *remoteNamespace, ref key, c *copied) error {
	if !c.there {
		return nil
	}
	if err := rn.client.Delete(ctx, ref.path(rn.name), metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	c.there, c.version = false, ""
	return nil
}

// read reads what a key names here, and returns what is sent to a provider.
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

// reconcileReference looks at one ConfigMap or Secret: at the copy of what pods use, or used.
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

// sweep looks at everything that earlier runs sent to a provider's namespace.
func (pc *controller) sweep(ctx context.Context, origin string) error {
	rn := pc.remoteNamespace(origin)
	if rn == nil {
		return nil
	}
	for _, what := range []kind{aConfigMap, aSecret} {
		sent, err := kube.List(ctx, rn.client, kube.Query{Path: "/api/v1/namespaces/" + rn.name + "/" + string(what)}, kube.Kind[*workload.ObjectCopy]{
			Fresh:  func() *workload.ObjectCopy { return &workload.ObjectCopy{} },
			Keep:   func(o *workload.ObjectCopy) bool { return o.Annotations[workload.AnnotationOriginUID] != "" },
			Bounds: &kube.Bounds{Objects: maxSwept, Bytes: maxTheirs, List: maxListed, Object: maxTold},
		})
		if err != nil {
			return err
		}
		for _, o := range sent {
			ref := key{what, origin, o.Name}
			c := rn.copied(ref)
			c.mu.Lock()
			c.there = true
			c.mu.Unlock()
			pc.queue.Add(ref)
		}
	}
	return nil
}
