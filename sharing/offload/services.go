package offload

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/agent/kube"
	"liqo.io/agent/peer"
	"liqo.io/agent/sharing/workload"
)

// maxRead bounds the EndpointSlices of one Service that are read here.
const maxRead = 16 << 20

// Reasons of the events about Services, besides those of package workload.
const (
	// reasonNotReflected: the Service is not at the provider.
	reasonNotReflected = "NotReflected"
	// reasonEndpointsLeftOut: some of its endpoints are not.
	reasonEndpointsLeftOut = "EndpointsLeftOut"
)

// Services are the Services of this cluster in the guest namespaces of a provider.
type Services struct {
	Reflected int
	Refused   []RefusedService // those that are not there, by namespace and name
}

// RefusedService is a Service that pods at a provider do without.
type RefusedService struct {
	Namespace, Name string
	Reason, Message string
}

// Services returns the Services at a provider. There are none while Run does not run.
func (o *Offload) Services(id peer.ClusterID) Services {
	var out Services
	for _, pc := range o.controllers() {
		if pc.id != id {
			continue
		}
		pc.mu.Lock()
		for ref, why := range pc.services {
			if why == nil || why.Reason == reasonEndpointsLeftOut {
				out.Reflected++
				continue
			}
			out.Refused = append(out.Refused, RefusedService{Namespace: ref.namespace, Name: ref.name, Reason: why.Reason, Message: why.Message})
		}
		pc.mu.Unlock()
	}
	slices.SortFunc(out.Refused, func(a, b RefusedService) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	return out
}

// serviceChanged handles a change of a local Service, or of its EndpointSlices.
func (pc *controller) serviceChanged(namespace, name string) {
	if name != "" && pc.remoteNamespace(namespace) != nil {
		pc.queue.Add(key{aService, namespace, name})
	}
}

// enqueueServices enqueues the Services of a namespace, here and at the provider.
func (pc *controller) enqueueServices(rn *remoteNamespace) {
	for _, svc := range pc.s.followed(bundleKey{aService, rn.origin}) {
		pc.queue.Add(key{aService, rn.origin, svc.Name})
	}
	for _, ref := range rn.of(aService) {
		pc.queue.Add(ref)
	}
}

// reconcileService makes the provider's copy of a Service what it is to be, with the
// EndpointSlices that list the pods of the Service in this cluster.
func (pc *controller) reconcileService(ctx context.Context, ref key) (again time.Duration, err error) {
	p, rn := pc.provider.Load(), pc.remoteNamespace(ref.namespace)
	if p.Gone || !p.Reachable || rn == nil || !rn.known() {
		return 0, nil
	}
	if rest := pc.holds(); rest > 0 {
		return rest, nil
	}
	known, endpoints := pc.s.bundle(pc, ref), pc.s.bundle(pc, key{kind: aSlice, namespace: ref.namespace})
	if !known.HasSynced() || !endpoints.HasSynced() {
		return 0, nil // enqueued again once they have
	}
	c := rn.hold(ref)
	defer rn.letGo(ref, c)
	svc, err := pc.wanted(ctx, ref, known)
	if err != nil {
		return 0, err
	}
	if svc == nil {
		pc.noteService(ctx, ref, nil, nil)
		return 0, pc.withdraw(ctx, rn, ref, c)
	}
	if p.Network != nil && p.Network.Unknown {
		return 0, nil // which families the provider has; enqueued again once it is known
	}
	in := workload.Origin{Cluster: pc.s.o.cfg.Self(), Namespace: rn.name, Node: pc.node, Network: p.Network}
	body, why := workload.ServiceOf(svc, in)
	if why != nil {
		pc.noteService(ctx, ref, svc, &workload.Refusal{Reason: reasonNotReflected, Message: why.Message})
		return 0, pc.withdraw(ctx, rn, ref, c)
	}
	why, err = pc.sendService(ctx, rn, ref, c, svc, body)
	if why == nil && err == nil {
		why, err = pc.sendSlices(ctx, rn, ref, c, svc, in)
	}
	if err != nil {
		return 0, err
	}
	pc.noteService(ctx, ref, svc, why)
	if why != nil && why.Reason == workload.ReasonRefusedByProvider {
		return refusedMax, nil // or as soon as the offer changes
	}
	return 0, nil
}

// wanted returns a Service that is to be at the provider, nil for none.
func (pc *controller) wanted(ctx context.Context, ref key, known *kube.Cache[*metadata]) (*corev1.Service, error) {
	if ns := pc.s.namespaces.Get("", ref.namespace); ns == nil || ns.Labels[workload.LabelEnabled] != "true" || known.Get(ref.namespace, ref.name) == nil {
		return nil, nil
	}
	svc := &corev1.Service{}
	if err := pc.s.local.Get(ctx, ref.path(ref.namespace), svc); err != nil {
		if apierrors.IsNotFound(err) {
			err = nil
		}
		return nil, err
	}
	if svc.DeletionTimestamp != nil || workload.Skipped(&svc.ObjectMeta) {
		return nil, nil
	}
	return svc, nil
}

// noteService notes what became of a Service, and tells in an event what is wrong; svc is nil
// if it is not to be at the provider.
func (pc *controller) noteService(ctx context.Context, ref key, svc *corev1.Service, why *workload.Refusal) {
	pc.mu.Lock()
	before, there := pc.services[ref]
	pc.services[ref] = why
	if svc == nil {
		delete(pc.services, ref)
	}
	pc.mu.Unlock()
	same := there == (svc != nil) && (before == nil) == (why == nil) && (why == nil || *before == *why)
	if same {
		return
	}
	pc.s.o.cfg.Changed(pc.id)
	if svc == nil || why == nil || pc.pace.events.Take(struct{}{}, pc.s.o.cfg.Now()) > 0 { // the provider may say something else each time
		return
	}
	said := *why
	said.Message = fmt.Sprintf("For pods at %s: %s", pc.node, why.Message)
	pc.tell(ctx, "Service", &svc.ObjectMeta, said.Reason+said.Message, &said)
}

// sendService makes the provider's copy of a Service. It returns why the provider does not take
// it.
func (pc *controller) sendService(ctx context.Context, rn *remoteNamespace, ref key, c *copied, svc *corev1.Service, body []byte) (*workload.Refusal, error) {
	// The body depends on what is known of the provider, too.
	version := fmt.Sprintf("%s/%s/%x", svc.UID, svc.ResourceVersion, sha256.Sum256(body))
	if c.version == version {
		return nil, nil
	}
	c.there = true
	// Whether it has an address cannot be changed.
	made, err := rn.apply(ctx, ref.path(rn.name), body, func(made *answered) bool {
		return (made.Spec.ClusterIP == corev1.ClusterIPNone) == workload.Headless(svc)
	})
	if err == nil {
		c.version, c.revision, c.written = version, made.revision(), rn.writes.Add(1)
		return nil, nil
	}
	return pc.refusedService(rn, "The provider does not take the Service", err)
}

// answered is what matters of an object as the provider answers it. Other fields take no memory.
type answered struct {
	Metadata struct {
		ResourceVersion string `json:"resourceVersion"`
	} `json:"metadata"`
	Spec struct {
		ClusterIP string `json:"clusterIP"`
	} `json:"spec"`
}

// maxRevision is the longest resource version that is kept: one of Kubernetes is a number.
const maxRevision = 64

// revision returns the resource version, "" for one that cannot be.
func (a *answered) revision() string {
	if len(a.Metadata.ResourceVersion) > maxRevision {
		return ""
	}
	return strings.Clone(a.Metadata.ResourceVersion)
}

// refusedService divides a provider's error into a refusal that lasts, and what is tried again.
func (pc *controller) refusedService(rn *remoteNamespace, what string, err error) (*workload.Refusal, error) {
	switch {
	case apierrors.IsNotFound(err), apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		pc.doubt(rn)
	case refusal(err) && !apierrors.HasStatusCause(err, workload.ReasonNoNetwork):
		return &workload.Refusal{Reason: workload.ReasonRefusedByProvider, Message: what + ": " + words(err)}, nil
	}
	return nil, err
}

// sendSlices makes the EndpointSlices of a Service at the provider. It returns why endpoints are
// not there.
func (pc *controller) sendSlices(ctx context.Context, rn *remoteNamespace, ref key, c *copied, svc *corev1.Service, in workload.Origin) (*workload.Refusal, error) {
	if in.Network != nil && in.Network.Thirds == nil {
		return nil, nil // they stay; enqueued again once it is known
	}
	var bodies map[string][]byte
	var why *workload.Refusal
	if in.Network != nil {
		local, err := kube.List(ctx, pc.s.local, kube.Query{
			Path: key{kind: aSlice}.collection(ref.namespace), Labels: discoveryv1.LabelServiceName + "=" + ref.name,
		}, kube.Kind[*discoveryv1.EndpointSlice]{
			Fresh:  func() *discoveryv1.EndpointSlice { return &discoveryv1.EndpointSlice{} },
			Bounds: &kube.Bounds{Objects: maxSwept, Bytes: maxTheirs, List: maxRead, Object: maxTold},
		})
		if err != nil {
			return nil, err
		}
		left := 0
		if bodies, left, why = workload.Slices(svc, local, in); why != nil {
			return why, nil
		}
		if left > 0 {
			why = &workload.Refusal{Reason: reasonEndpointsLeftOut, Message: fmt.Sprintf(
				"%d endpoints of the Service are left out: only pods of this namespace in the pod network of this cluster, or at other providers, can be reached from the provider, 1000 of them at most.", left)}
		}
	}
	if !c.network.Alike(in.Network) { // the provider may have changed the endpoints meanwhile
		for name := range c.slices {
			c.slices[name] = sentSlice{}
		}
	}
	c.network = in.Network
	path := func(name string) string { return key{kind: aSlice, name: name}.path(rn.name) }
	for name := range c.slices {
		if bodies[name] != nil {
			continue
		}
		if err := rn.client.Delete(ctx, path(name), metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return nil, err
		}
		delete(c.slices, name)
	}
	for name, body := range bodies {
		sum := fmt.Sprintf("%x", sha256.Sum256(body))
		if c.slices[name].sum == sum {
			continue
		}
		c.slices[name] = sentSlice{}
		made, err := rn.apply(ctx, path(name), body, nil)
		if err != nil { // its family cannot be changed
			return pc.refusedService(rn, "The provider does not take endpoints of the Service", err)
		}
		c.slices[name] = sentSlice{sum, made.revision(), rn.writes.Add(1)}
	}
	return why, nil
}

// withdraw deletes the provider's copy of a Service, with its endpoints first.
func (pc *controller) withdraw(ctx context.Context, rn *remoteNamespace, ref key, c *copied) error {
	for name := range c.slices {
		err := rn.client.Delete(ctx, key{kind: aSlice, name: name}.path(rn.name), metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
		delete(c.slices, name)
	}
	return pc.uncopy(ctx, rn, ref, c)
}
