// Package storageclass knows what matters of the StorageClasses of a cluster, and which of them is the
// default one. It is pure: callers follow the API server.
package storageclass

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

const (
	// Path is the collection of the API server.
	Path = "/apis/storage.k8s.io/v1/storageclasses"
	// AnnotationDefault, with value "true", makes a class the default one.
	AnnotationDefault = "storageclass.kubernetes.io/is-default-class"
	// WaitForFirstConsumer is the mode of classes whose claims are provisioned on the node of their
	// first pod.
	WaitForFirstConsumer = "WaitForFirstConsumer"
	// NoProvisioner is the provisioner of classes whose volumes people make.
	NoProvisioner = "kubernetes.io/no-provisioner"
)

// Class is a StorageClass.
type Class struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Provisioner          string                               `json:"provisioner"`
	ReclaimPolicy        corev1.PersistentVolumeReclaimPolicy `json:"reclaimPolicy,omitempty"`
	VolumeBindingMode    string                               `json:"volumeBindingMode,omitempty"`
	AllowVolumeExpansion bool                                 `json:"allowVolumeExpansion,omitempty"`
	AllowedTopologies    []corev1.TopologySelectorTerm        `json:"allowedTopologies,omitempty"`
}

// DeepCopyObject implements runtime.Object.
func (c *Class) DeepCopyObject() runtime.Object {
	out := *c
	c.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	out.AllowedTopologies = nil
	for _, term := range c.AllowedTopologies {
		out.AllowedTopologies = append(out.AllowedTopologies, *term.DeepCopy())
	}
	return &out
}

// Default returns the default class among some, nil if there is none. Of several it is the one that the
// API server takes: the newest, and of those as new the first by name.
func Default(classes []*Class) *Class {
	classes = slices.DeleteFunc(slices.Clone(classes), func(c *Class) bool { return c.Annotations[AnnotationDefault] != "true" })
	if len(classes) == 0 {
		return nil
	}
	return slices.MinFunc(classes, func(a, b *Class) int {
		return cmp.Or(b.CreationTimestamp.Compare(a.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
}
