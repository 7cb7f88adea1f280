package host

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"liqo.io/agent/peer/text"
	"liqo.io/agent/sharing/workload"
)

const (
	// AnnotationDefaultClass, with value "true", makes a storage class the default one.
	AnnotationDefaultClass = "storageclass.kubernetes.io/is-default-class"
	// waitForPod is the volumeBindingMode of classes that choose a node with the first pod.
	waitForPod = "WaitForFirstConsumer"
)

// StorageClass is what matters of a StorageClass.
type StorageClass struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Provisioner       string `json:"provisioner"`
	VolumeBindingMode string `json:"volumeBindingMode"`
}

// DeepCopyObject implements runtime.Object.
func (c *StorageClass) DeepCopyObject() runtime.Object {
	out := *c
	out.ObjectMeta = *c.ObjectMeta.DeepCopy()
	return &out
}

// Waits reports whether volumes of the class are made when their first pod is scheduled.
func (c *StorageClass) Waits() bool { return c.VolumeBindingMode == waitForPod }

// GuestClass returns the storage class for guests' claims: that of a name (sharing.guest_storage_class), or the default one
// for "". The Refused says why there is none.
func GuestClass(name string, classes []*StorageClass) (*StorageClass, *Refused) {
	var class *StorageClass
	if name != "" {
		i := slices.IndexFunc(classes, func(c *StorageClass) bool { return c.Name == name })
		if i < 0 {
			return nil, refuse(ReasonNoStorage, "this cluster has no storage class %q, which sharing.guest_storage_class there names; correct it there", text.Excerpt(name))
		}
		class = classes[i]
	} else {
		defaults := slices.DeleteFunc(slices.Clone(classes), func(c *StorageClass) bool { return c.Annotations[AnnotationDefaultClass] != "true" })
		if len(defaults) == 0 {
			return nil, refuse(ReasonNoStorage, "this cluster has no default storage class; set sharing.guest_storage_class there, or make a class the default one")
		}
		// As the API server chooses among several.
		class = slices.MinFunc(defaults, func(a, b *StorageClass) int {
			return cmp.Or(b.CreationTimestamp.Compare(a.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
		})
	}
	if class.Provisioner == workload.Provisioner {
		return nil, refuse(ReasonNoStorage, "the storage class for guests of this cluster, %s, keeps its data at peers of this cluster; set sharing.guest_storage_class there to another one", text.Excerpt(class.Name))
	}
	return class, nil
}

// ClassProblem returns why guests' claims cannot be kept as they should, given the name in sharing.guest_storage_class and all
// classes, in a sentence without its end; "" if they can.
func ClassProblem(name string, classes []*StorageClass) string {
	class, why := GuestClass(name, classes)
	switch {
	case why != nil:
		return strings.ReplaceAll(why.Message, " there", "")
	case !class.Waits():
		return fmt.Sprintf("the storage class %s does not wait for the first pod (volumeBindingMode %s), so data may be on a node where the pod does not fit; set sharing.guest_storage_class to another one",
			text.Excerpt(class.Name), text.Excerpt(class.VolumeBindingMode))
	}
	return ""
}
