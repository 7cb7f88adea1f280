package offer

import (
	"encoding/json"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"liqo.io/agent/sharing/registry"
	"liqo.io/agent/sharing/workload"
)

// Pod is as much of a Pod as an offer depends on. It is read from the JSON of
// a core/v1 Pod, of which it keeps next to nothing, because there may be
// thousands: of the metadata name, namespace, UID and version.
type Pod struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	// Node is where it takes up something: "" when it is not bound or has ended.
	Node string `json:"-"`
	// Requests is what it asks for there, as the scheduler counts; nil when that is
	// not to be taken off what is free: it ended, or it is a consumer's.
	Requests Amounts `json:"-"`
	// Registries are those that its images are from, if everybody may know them; nil
	// for a consumer's.
	Registries []string `json:"-"`
}

// podDocument is what is read of a Pod.
type podDocument struct {
	Metadata struct {
		Name            string            `json:"name"`
		Namespace       string            `json:"namespace"`
		UID             string            `json:"uid"`
		ResourceVersion string            `json:"resourceVersion"`
		Labels          map[string]string `json:"labels"`
		Annotations     struct {
			ListEnds string `json:"k8s.io/initial-events-end"`
		} `json:"annotations"`
	} `json:"metadata"`
	Spec   podSpec `json:"spec"`
	Status struct {
		Phase string `json:"phase"`
	} `json:"status"`
}

// podSpec is what of a Pod's spec its requests depend on.
type podSpec struct {
	NodeName       string            `json:"nodeName"`
	Containers     []container       `json:"containers"`
	InitContainers []container       `json:"initContainers"`
	Overhead       map[string]string `json:"overhead"`
	Resources      resources         `json:"resources"`
}

type container struct {
	Image         string    `json:"image"`
	RestartPolicy string    `json:"restartPolicy"`
	Resources     resources `json:"resources"`
}

type resources struct {
	Requests map[string]string `json:"requests"`
}

// UnmarshalJSON implements json.Unmarshaler.
func (p *Pod) UnmarshalJSON(text []byte) error {
	var d podDocument
	if err := json.Unmarshal(text, &d); err != nil {
		return err
	}
	m := d.Metadata
	*p = Pod{ObjectMeta: metav1.ObjectMeta{Name: m.Name, Namespace: m.Namespace, UID: types.UID(m.UID), ResourceVersion: m.ResourceVersion}}
	if m.Annotations.ListEnds != "" {
		// A list that comes as a watch ends with this (KEP-3157).
		p.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: m.Annotations.ListEnds}
	}
	_, guest := m.Labels[workload.LabelOriginCluster]
	if !guest {
		p.Registries = d.Spec.registries()
	}
	ended := d.Status.Phase == "Succeeded" || d.Status.Phase == "Failed"
	if d.Spec.NodeName != "" && !guest && !ended {
		p.Node, p.Requests = d.Spec.NodeName, d.Spec.requests()
	}
	return nil
}

// registries returns where the images of the pod are from, in order, as far as others
// may have images from there.
func (s podSpec) registries() []string {
	var out []string
	for _, c := range slices.Concat(s.InitContainers, s.Containers) {
		if from, err := registry.Of(c.Image); err == nil && registry.Public(from) == nil && !slices.Contains(out, from) {
			out = append(out, from)
		}
	}
	slices.Sort(out)
	return out
}

// requests returns what the pod asks for, and that it is one pod: what its
// containers need together, or what initialising takes if that is more, where an
// init container that is restarted always (a sidecar) stays beside those after it
// (KEP-753); what the pod as a whole asks for instead (KEP-2837); and its overhead.
func (s podSpec) requests() Amounts {
	total, sidecars, start := Amounts{}, Amounts{}, Amounts{}
	for _, c := range s.Containers {
		total.add(parseAll(c.Resources.Requests))
	}
	for _, c := range s.InitContainers {
		needs := parseAll(c.Resources.Requests)
		if c.RestartPolicy == "Always" {
			total.add(needs)
			sidecars.add(needs)
			continue
		}
		needs.add(sidecars)
		start.raise(needs)
	}
	total.raise(start)
	for _, name := range []string{cpu, memory} {
		if amount, ok := parse(name, s.Resources.Requests[name]); ok {
			total[name] = amount
		}
	}
	total.add(parseAll(s.Overhead))
	total[pods] = 1
	return total
}

// Same reports whether an offer does not depend on which of the two is there. Either
// may be nil.
func (p *Pod) Same(o *Pod) bool {
	var a, b Pod
	if p != nil {
		a = *p
	}
	if o != nil {
		b = *o
	}
	return a.Node == b.Node && maps.Equal(a.Requests, b.Requests) && slices.Equal(a.Registries, b.Registries)
}

// DeepCopyObject implements runtime.Object.
func (p *Pod) DeepCopyObject() runtime.Object {
	out := *p
	p.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	out.Requests, out.Registries = maps.Clone(p.Requests), slices.Clone(p.Registries)
	return &out
}
