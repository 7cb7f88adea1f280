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

// bundle follows them, for the lines that have pods which name some. Only metadata
// is kept: what is in one is read when it is sent.
type bundle struct {
	cache *kube.Cache[*metadata]
	stop  context.CancelFunc
	users map[*line]bool
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

// bundle returns the bundle of what a key is one of, for a line. It is begun if
// there is none.
func (s *session) bundle(l *line, ref key) *kube.Cache[*metadata] {
	s.mu.Lock()
	defer s.mu.Unlock()
	bk := bundleKey{ref.kind, ref.namespace}
	b := s.bundles[bk]
	if b == nil {
		b = &bundle{users: make(map[*line]bool)}
		b.cache = kube.NewCache(kube.Kind[*metadata]{
			Fresh: func() *metadata { return &metadata{} },
			Trim:  trimMetadata,
			Changed: func(before, after *metadata) {
				o := after
				if o == nil {
					o = before
				}
				for _, l := range s.all() {
					l.referenceChanged(key{bk.kind, bk.namespace, o.Name}, before == nil)
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
				for _, l := range s.all() {
					for _, k := range l.index.in(bk.namespace) {
						l.queue.Add(k)
					}
				}
			}
		})
	}
	b.users[l] = true
	return b.cache
}

// release ends what only l needed of a namespace; "" for all.
func (s *session) release(l *line, namespace string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for bk, b := range s.bundles {
		if namespace != "" && bk.namespace != namespace {
			continue
		}
		if delete(b.users, l); len(b.users) == 0 {
			b.stop()
			delete(s.bundles, bk)
		}
	}
}

// referenceChanged takes in that a ConfigMap or Secret here is another.
func (l *line) referenceChanged(ref key, fresh bool) {
	pods := l.index.using(ref)
	if len(pods) == 0 {
		return
	}
	l.queue.Add(ref)
	if fresh { // some may have waited for it
		for _, k := range pods {
			l.queue.Add(k)
		}
	}
}

func synced(cache *kube.Cache[*metadata]) bool {
	select {
	case <-cache.Synced():
		return true
	default:
		return false
	}
}

// missing returns what a pod cannot be without and does not exist here; ready is
// false while that is not known.
func (l *line) missing(mine *corev1.Pod) (why *workload.Refusal, ready bool) {
	var lost = map[kind][]string{}
	ready = true
	configMaps, secrets := workload.References(mine)
	for what, refs := range map[kind][]workload.Reference{aConfigMap: configMaps, aSecret: secrets} {
		for _, ref := range refs {
			k := key{what, mine.Namespace, ref.Name}
			cache := l.s.bundle(l, k)
			if !synced(cache) {
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
func (l *line) send(ctx context.Context, sp *space, v view) (*workload.Refusal, error) {
	for ref, optional := range references(v.mine) {
		why, err := l.copy(ctx, sp, ref, v.origin)
		if err != nil || why != nil && !optional {
			return why, err
		}
	}
	return nil, nil
}

// copied returns the copy of what a key names.
func (sp *space) copied(ref key) *copied {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	c := sp.copies[ref]
	if c == nil {
		c = &copied{}
		sp.copies[ref] = c
	}
	return c
}

// copy makes the provider's copy of a ConfigMap or Secret what ours is. It returns
// why there is none.
func (l *line) copy(ctx context.Context, sp *space, ref key, origin workload.Origin) (*workload.Refusal, error) {
	cache := l.s.bundle(l, ref)
	if !synced(cache) {
		return nil, nil // it is looked at again when that has changed
	}
	c := sp.copied(ref)
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(l.index.using(ref)) == 0 {
		return nil, l.uncopy(ctx, sp, ref, c)
	}
	ours := cache.Get(ref.namespace, ref.name)
	if ours == nil {
		return missing(ref), l.uncopy(ctx, sp, ref, c)
	}
	if c.version == ours.ResourceVersion {
		return nil, nil
	}
	body, version, why, err := l.read(ctx, ref, origin)
	if err != nil || why != nil {
		return why, err
	}
	path := ref.path(sp.name)
	c.there = true
	err = sp.client.Apply(ctx, path, manager, true, json.RawMessage(body), nil)
	if apierrors.IsInvalid(err) {
		// Immutable, and ours was made anew.
		if err = sp.client.Delete(ctx, path, metav1.DeleteOptions{}); err == nil || apierrors.IsNotFound(err) {
			err = sp.client.Apply(ctx, path, manager, true, json.RawMessage(body), nil)
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
func (l *line) uncopy(ctx context.Context, sp *space, ref key, c *copied) error {
	if !c.there {
		return nil
	}
	if err := sp.client.Delete(ctx, ref.path(sp.name), metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	c.there, c.version = false, ""
	return nil
}

// read reads what a key names here, and returns what is sent to a provider.
func (l *line) read(ctx context.Context, ref key, origin workload.Origin) (body []byte, version string, why *workload.Refusal, err error) {
	path := ref.path(ref.namespace)
	if ref.kind == aConfigMap {
		cm := &corev1.ConfigMap{}
		if err = l.s.local.Get(ctx, path, cm); err == nil {
			body, why = workload.Config(cm, origin)
			return body, cm.ResourceVersion, why, nil
		}
	} else {
		secret := &corev1.Secret{}
		if err = l.s.local.Get(ctx, path, secret); err == nil {
			body, why = workload.SecretOf(secret, origin)
			return body, secret.ResourceVersion, why, nil
		}
	}
	if apierrors.IsNotFound(err) {
		return nil, "", missing(ref), nil
	}
	return nil, "", nil, err
}

// reference looks at one ConfigMap or Secret: at the copy of what pods use, or used.
func (l *line) reference(ctx context.Context, ref key) (again time.Duration, err error) {
	p, sp := l.provider.Load(), l.space(ref.namespace)
	if p.Gone || !p.Reachable || sp == nil || !sp.known() {
		return 0, nil
	}
	if rest := l.holds(); rest > 0 {
		return rest, nil
	}
	why, err := l.copy(ctx, sp, ref, workload.Origin{Cluster: l.s.o.cfg.Self(), Namespace: sp.name, Node: l.node})
	if err == nil && why != nil && why.Reason == workload.ReasonRefusedByProvider {
		return 0, why
	}
	return 0, err
}

// sweep looks at everything that earlier runs sent to a provider's namespace.
func (l *line) sweep(ctx context.Context, origin string) error {
	sp := l.space(origin)
	if sp == nil {
		return nil
	}
	for _, what := range []kind{aConfigMap, aSecret} {
		sent, err := kube.List(ctx, sp.client, kube.Query{Path: "/api/v1/namespaces/" + sp.name + "/" + string(what)}, kube.Kind[*workload.ObjectCopy]{
			Fresh:  func() *workload.ObjectCopy { return &workload.ObjectCopy{} },
			Keep:   func(o *workload.ObjectCopy) bool { return o.Annotations[workload.AnnotationOriginUID] != "" },
			Bounds: &kube.Bounds{Objects: maxSwept, Bytes: maxTheirs, List: maxListed, Object: maxTold},
		})
		if err != nil {
			return err
		}
		for _, o := range sent {
			ref := key{what, origin, o.Name}
			c := sp.copied(ref)
			c.mu.Lock()
			c.there = true
			c.mu.Unlock()
			l.queue.Add(ref)
		}
	}
	return nil
}
