package host

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"liqo.io/agent/peer"
	"liqo.io/agent/peer/text"
	"liqo.io/agent/sharing/workload"
)

// Pod takes what a consumer wants to create in one of its namespaces, and returns
// what may be created. Room in the offer is reserved for it until it is seen, for 30 s
// at most. done must be called once, with what the API server answered: nil when it
// certainly did not create the pod, the pod when it did, and anything else when that
// is not known.
func (h *Host) Pod(ctx context.Context, id peer.ClusterID, namespace string, body []byte) (clean []byte, done func(created []byte), err error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	st, err := h.room(id, namespace)
	if err != nil {
		return nil, nil, err
	}
	if st.unnamed {
		return nil, nil, refuse(ReasonNotReady, "this cluster does not know yet whom the pods of %s ask for names; try again later", id).after(retryNotReady)
	}
	in := h.in(st, namespace)
	clean, pod, no := workload.Admit(body, in)
	if no != nil {
		return nil, nil, refusedIn(in, no)
	}
	if err := st.session.pods.Failure(); err != nil {
		return nil, nil, refuse(ReasonNotReady, "this cluster does not know yet what %s uses; try again later", id).after(retryNotReady)
	}
	key, more, offer := keyOf(namespace, pod.Name), amountsOf(pod), st.offer
	if st.settings.Enforce == enforceLimits {
		offer = withLimits(offer)
	} else {
		delete(more, limitsCPU)
		delete(more, limitsMemory)
	}
	room, refused := st.tenant.account.reserve(key, more, offer, int64(len(clean)))
	if refused != nil {
		return nil, nil, refused
	}
	var once sync.Once
	return clean, func(created []byte) {
		once.Do(func() { st.tenant.account.answered(key, room, created) })
	}, nil
}

// Named returns the names of the ConfigMaps, Secrets and claims that a pod, as Pod returned it,
// refers to, by the plural name of their resource.
func Named(pod []byte) (map[string][]string, error) {
	var p corev1.Pod
	if err := json.Unmarshal(pod, &p); err != nil {
		return nil, fmt.Errorf("read a pod back: %w", err)
	}
	names := func(all []workload.Reference) []string {
		var out []string
		for _, r := range all {
			out = append(out, r.Name)
		}
		return out
	}
	c, s := workload.References(&p)
	return map[string][]string{resourceConfigMaps: names(c), resourceSecrets: names(s), resourceClaims: workload.Claims(&p.Spec)}, nil
}

// answered ends a reservation with the API server's answer.
func (a *account) answered(key string, r *reserved, answer []byte) {
	if answer == nil {
		a.settle(key, r, nil)
		return
	}
	pod := &guestPod{}
	if err := json.Unmarshal(answer, pod); err != nil {
		pod = &guestPod{}
	}
	pod.weigh()
	a.settle(key, r, pod)
}

// in is the place of a consumer, as package workload wants to know it.
func (h *Host) in(st standing, namespace string) workload.Guest {
	var servers []string
	for _, addr := range st.servers {
		servers = append(servers, addr.String())
	}
	return workload.Guest{
		Cluster: st.tenant.id, Namespace: namespace, Origin: st.guest.Labels[workload.LabelOriginNamespace], Nameservers: servers, Arch: st.arch, Enforce: st.settings.Enforce, Offer: st.offer,
		Registries: h.cfg.Registries(), LocalImages: st.settings.LocalImages, Network: st.network, Down: st.down,
		Class:    st.settings.GuestStorageClass,
		HasClaim: func(name string) bool { return st.tenant.account.hasClaim(keyOf(namespace, name)) },
	}
}

// refusedIn is why something is refused in a place, which may pass where it is not
// known yet what is allowed there.
func refusedIn(in workload.Guest, r *workload.Refusal) *Refused {
	if r.Reason == workload.ReasonRegistryNotAllowed && !in.Registries.Known() {
		return refuse(ReasonNotReady, "this cluster does not know yet which registries its own pods use; try again later").after(retryNotReady)
	}
	return refusedBy(r)
}

// withLimits is an offer that holds limits too.
func withLimits(offer corev1.ResourceList) corev1.ResourceList {
	out := offer.DeepCopy()
	for name, as := range map[corev1.ResourceName]corev1.ResourceName{corev1.ResourceCPU: limitsCPU, corev1.ResourceMemory: limitsMemory} {
		if q, offered := offer[name]; offered {
			out[as] = q
		}
	}
	return out
}

// PodPatch takes a consumer's patch of one of its pods, and returns the patch that
// may be sent, with its media type.
func (h *Host) PodPatch(id peer.ClusterID, namespace, _ string, body []byte) (clean []byte, contentType string, err error) {
	st, err := h.place(id, namespace)
	if err != nil {
		return nil, "", err
	}
	in := h.in(st, namespace)
	clean, no := workload.AdmitPatch(body, in)
	if no != nil {
		return nil, "", refusedIn(in, no)
	}
	return clean, string(workload.PatchType), nil
}

// Object takes a ConfigMap, Secret, Service, EndpointSlice or PersistentVolumeClaim, by the plural
// name of its resource, that a consumer wants to apply in one of its namespaces, and returns what
// may be written. An EndpointSlice is for a Service that the consumer has made before.
func (h *Host) Object(id peer.ClusterID, namespace, resource, name string, body []byte) (clean []byte, err error) {
	st, err := h.room(id, namespace)
	if err != nil {
		return nil, err
	}
	if resource == resourceClaims {
		clean, r := h.claim(name, body, h.in(st, namespace), st)
		if r != nil {
			return nil, r
		}
		return clean, nil
	}
	clean, r := admitObject(resource, name, body, h.in(st, namespace), st)
	if r != nil {
		return nil, r
	}
	wants, err := weighObject(clean)
	if err != nil {
		return nil, fmt.Errorf("%s %s/%s: %w", resource, namespace, name, err)
	}
	if refused := st.tenant.account.reserveObject(keyOf(resource, namespace, name), wants); refused != nil {
		return nil, refused
	}
	return clean, nil
}

// admitObject checks an object of a resource.
func admitObject(resource, name string, body []byte, in workload.Guest, st standing) ([]byte, *Refused) {
	var clean []byte
	var no *workload.Refusal
	switch resource {
	case resourceConfigMaps:
		if name == workload.RootCA {
			return nil, refuse(ReasonBadName, "%s belongs to this cluster", workload.RootCA)
		}
		clean, no = workload.AdmitObject(body, "ConfigMap", name, in)
	case resourceSecrets:
		clean, no = workload.AdmitObject(body, "Secret", name, in)
	case resourceServices, resourceSlices:
		if st.session.servicesRefused() {
			return nil, refuse(ReasonNoServices, "the agent of this cluster may not read Services and EndpointSlices; run `liqo-agent rbac --apply` there")
		}
		if !st.session.servicesKnown() {
			return nil, refuse(ReasonNotReady, "this cluster does not know yet which Services %s has; try again later", in.Cluster).after(retryNotReady)
		}
		if resource == resourceServices {
			clean, no = workload.AdmitService(body, name, in)
			break
		}
		var service string
		if clean, service, no = workload.AdmitSlice(body, name, in); no == nil && !st.tenant.account.has(keyOf(resourceServices, in.Namespace, service)) {
			return nil, refuse(ReasonNotYours, "the Service %s in namespace %s is none of %s; make it before its endpoints", service, in.Namespace, in.Cluster)
		}
	default:
		return nil, refuse(ReasonBadName, "%q are not accepted here, only configmaps, secrets, services, endpointslices and persistentvolumeclaims", text.Excerpt(resource))
	}
	if no != nil {
		return nil, refusedBy(no)
	}
	return clean, nil
}
