package workload

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/agent/api"
	"liqo.io/agent/peer/text"
)

// maxClaim is the most that one claim may ask for, in bytes: a pebibyte. Sums of a hundred of
// them fit into 64 bits.
const maxClaim = 1 << 50

var claimShape = shapeOf(reflect.TypeFor[corev1.PersistentVolumeClaim](), map[reflect.Type]*shape{})

// claimBody is a claim as it is written at the provider.
type claimBody struct {
	metav1.TypeMeta `json:",inline"`
	Metadata        bodyMeta  `json:"metadata"`
	Spec            claimSpec `json:"spec"`
}

type claimSpec struct {
	AccessModes      []corev1.PersistentVolumeAccessMode `json:"accessModes"`
	Resources        claimResources                      `json:"resources"`
	StorageClassName string                              `json:"storageClassName,omitempty"`
}

type claimResources struct {
	Requests corev1.ResourceList `json:"requests"`
}

// ClaimName returns what a claim of a consumer is called at a provider. It has a part of the
// claim's UID: data of an earlier claim of that name, which a provider may have kept, is never
// taken for that of the present one.
func ClaimName(name, uid string) string {
	return Hashed(strings.ReplaceAll(name, ".", "-"), uid)
}

// ClaimOf returns the body (JSON) of the apply of the provider's copy of a claim, or why
// providers do not keep its data.
func ClaimOf(claim *corev1.PersistentVolumeClaim, in Origin) ([]byte, *Refusal) {
	modes, size, s := claimed(&claim.Spec)
	if s != "" {
		return nil, notOffloadable(s)
	}
	meta := bodyOf("PersistentVolumeClaim", &claim.ObjectMeta, in).Metadata
	meta.Name = ClaimName(claim.Name, string(claim.UID))
	raw, err := json.Marshal(claimBody{TypeMeta: typeMeta("PersistentVolumeClaim"), Metadata: meta, Spec: claimSpec{
		AccessModes: modes, Resources: claimResources{Requests: corev1.ResourceList{corev1.ResourceStorage: size}},
	}})
	if err != nil {
		return nil, invalid("The claim %s cannot be encoded: %s.", text.Line(claim.Name, 253), text.Line(err.Error(), 200))
	}
	return raw, nil
}

// claimed returns what a claim asks for, or a sentence about the first field with which it
// cannot be in another cluster.
func claimed(spec *corev1.PersistentVolumeClaimSpec) (modes []corev1.PersistentVolumeAccessMode, size resource.Quantity, s string) {
	for _, mode := range spec.AccessModes {
		if mode != corev1.ReadWriteOnce && mode != corev1.ReadWriteOncePod {
			return nil, size, fmt.Sprintf("The claim has the access mode %s, which providers do not offer: use ReadWriteOnce or ReadWriteOncePod.", text.Line(string(mode), 32))
		}
	}
	size, asked := spec.Resources.Requests[corev1.ResourceStorage]
	switch {
	case len(spec.AccessModes) == 0:
		return nil, size, "The claim has no access mode: use ReadWriteOnce or ReadWriteOncePod."
	case spec.VolumeMode != nil && *spec.VolumeMode != corev1.PersistentVolumeFilesystem:
		return nil, size, fmt.Sprintf("The claim has the volume mode %s, which providers do not offer: use Filesystem.", text.Line(string(*spec.VolumeMode), 32))
	case spec.DataSource != nil, spec.DataSourceRef != nil:
		return nil, size, "The claim has a data source, which does not exist at providers: make an empty claim, and copy the data with a Job."
	case spec.Selector != nil:
		return nil, size, "The claim selects volumes, and those of a provider cannot be selected: remove the selector."
	case spec.VolumeAttributesClassName != nil && *spec.VolumeAttributesClassName != "":
		return nil, size, "The claim names a volume attributes class, which does not exist at providers: remove volumeAttributesClassName."
	case !asked, size.Sign() <= 0:
		return nil, size, "The claim does not ask for an amount of storage: set resources.requests.storage."
	case size.CmpInt64(maxClaim) > 0:
		return nil, size, "The claim asks for more than a pebibyte: ask for less."
	}
	return spec.AccessModes, *resource.NewQuantity(size.Value(), resource.BinarySI), ""
}

// Bytes returns the amount that a provider says a claim has; false for what is none, is negative, or
// more than a claim can ask for.
func Bytes(quantity string) (int64, bool) {
	q, ok := Quantity(quantity)
	if !ok || q.CmpInt64(maxClaim) > 0 {
		return 0, false
	}
	return q.Value(), true
}

// Quantity reads an amount that a peer says; false for what is none or is negative, see [api.ParseAmount].
func Quantity(quantity string) (resource.Quantity, bool) {
	if len(quantity) > maxQuantity {
		return resource.Quantity{}, false
	}
	q, err := api.ParseAmount(quantity)
	return q, err == nil && q.Sign() >= 0
}

// AdmitClaim checks the body of an apply of the claim with that name, and returns the body (JSON)
// that may be written instead, with how many bytes it asks for, or why it is refused. Its class
// is the provider's choice.
func AdmitClaim(raw []byte, name string, in Guest) (clean []byte, size int64, r *Refusal) {
	if err := scan(raw[:min(len(raw), maxService+1)], claimShape, maxNested); err != nil && len(raw) <= maxService {
		return nil, 0, invalid("The claim %s: send a valid object, as JSON.", text.Line(err.Error(), 200))
	}
	var claim corev1.PersistentVolumeClaim
	meta, r := admitDocument(raw, typeMeta("PersistentVolumeClaim"), name, in, &claim, func(c *corev1.PersistentVolumeClaim) (*metav1.TypeMeta, *metav1.ObjectMeta) {
		return &c.TypeMeta, &c.ObjectMeta
	})
	if r != nil {
		return nil, 0, r
	}
	modes, asked, s := claimed(&claim.Spec)
	rest := claim.Spec
	rest.AccessModes, rest.VolumeMode, rest.Resources.Requests = nil, nil, nil
	switch {
	case s != "":
		return nil, 0, forbidden("%s", s)
	case claim.Spec.StorageClassName != nil:
		return nil, 0, forbidden("Guests may not choose a storage class: remove storageClassName.")
	case claim.Spec.VolumeName != "":
		return nil, 0, forbidden("Guests may not choose a volume: remove volumeName.")
	case len(claim.Spec.Resources.Requests) > 1 || len(claim.Spec.Resources.Limits) > 0 || !reflect.DeepEqual(rest, corev1.PersistentVolumeClaimSpec{}):
		return nil, 0, forbidden("The claim has fields that guests may not set: set only accessModes, volumeMode and resources.requests.storage.")
	}
	clean, r = encoded("PersistentVolumeClaim", claimBody{TypeMeta: typeMeta("PersistentVolumeClaim"), Metadata: *meta, Spec: claimSpec{
		AccessModes: slices.Compact(slices.Sorted(slices.Values(modes))), StorageClassName: in.Class,
		Resources: claimResources{Requests: corev1.ResourceList{corev1.ResourceStorage: asked}},
	}})
	return clean, asked.Value(), r
}

// Claims returns the names of the claims that a pod mounts, each once, in order.
func Claims(spec *corev1.PodSpec) []string {
	var out []string
	for _, v := range spec.Volumes {
		if v.PersistentVolumeClaim != nil {
			out = append(out, v.PersistentVolumeClaim.ClaimName)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// mountClaims gives the claims of a pod the names that they have at the provider.
func mountClaims(pod *corev1.Pod, in Origin) *Refusal {
	for i := range pod.Spec.Volumes {
		mounted := pod.Spec.Volumes[i].PersistentVolumeClaim
		if mounted == nil {
			continue
		}
		if in.Claim == nil {
			return notOffloadable(fmt.Sprintf("Volume %q is a persistentVolumeClaim, whose data is only in the pod's own cluster: use a claim of the storage class of the agent, or %s.",
				text.Line(pod.Spec.Volumes[i].Name, 63), stay))
		}
		remote, why := in.Claim(pod.Namespace, mounted.ClaimName)
		if why != nil {
			return why
		}
		mounted.ClaimName = remote
	}
	return nil
}

// ownClaims refuses a pod that mounts a claim which the consumer did not make.
func ownClaims(spec *corev1.PodSpec, in Guest) *Refusal {
	for _, name := range Claims(spec) {
		if in.HasClaim == nil || !in.HasClaim(name) {
			return forbidden("The pod mounts the persistentVolumeClaim %q, which the caller has not made here: make it first.", text.Line(strings.TrimSpace(name), 253))
		}
	}
	return nil
}
