package volumes

import (
	"context"
	"reflect"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"liqo.io/agent/api"
	"liqo.io/agent/sharing/workload"
)

const classesPath = "/apis/storage.k8s.io/v1/storageclasses"

// storageClass is a StorageClass.
type storageClass struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Provisioner       string                               `json:"provisioner"`
	ReclaimPolicy     corev1.PersistentVolumeReclaimPolicy `json:"reclaimPolicy,omitempty"`
	VolumeBindingMode string                               `json:"volumeBindingMode,omitempty"`
	AllowedTopologies []corev1.TopologySelectorTerm        `json:"allowedTopologies,omitempty"`
}

// DeepCopyObject implements runtime.Object.
func (c *storageClass) DeepCopyObject() runtime.Object {
	out := *c
	c.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	out.AllowedTopologies = slices.Clone(c.AllowedTopologies)
	return &out
}

// reconcileClass keeps the storage class, with the nodes where claims can be.
func (s *session) reconcileClass(ctx context.Context) (again time.Duration, err error) {
	found := s.classes.Get("", s.class)
	if found != nil && found.Labels[api.LabelManagedBy] != api.ManagedByAgent {
		if found.Provisioner != workload.Provisioner {
			s.complainOnce("another storage class has the name in sharing.storage_class, so nothing is kept at providers; choose another name", found.Provisioner)
		}
		return 0, nil // somebody's own, with whatever is in it
	}
	if !s.v.InUse() {
		s.v.mu.Lock()
		settled := s.v.settled
		s.v.mu.Unlock()
		if found == nil || !settled {
			return 0, nil
		}
		err := s.client.Delete(ctx, classesPath+"/"+s.class, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &found.UID}})
		if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			return 0, nil
		}
		return 0, err
	}
	want := &storageClass{
		TypeMeta:    metav1.TypeMeta{APIVersion: "storage.k8s.io/v1", Kind: "StorageClass"},
		ObjectMeta:  metav1.ObjectMeta{Name: s.class, Labels: map[string]string{api.LabelManagedBy: api.ManagedByAgent}},
		Provisioner: workload.Provisioner, ReclaimPolicy: corev1.PersistentVolumeReclaimDelete, VolumeBindingMode: "WaitForFirstConsumer",
		AllowedTopologies: s.topologies(),
	}
	switch {
	case want.AllowedTopologies == nil && found == nil:
		return 0, nil // no node to say
	case want.AllowedTopologies == nil:
		want.AllowedTopologies = found.AllowedTopologies // no list would mean all nodes
	}
	if found != nil && reflect.DeepEqual(found.AllowedTopologies, want.AllowedTopologies) {
		return 0, nil
	}
	_, err = s.classes.Apply(ctx, s.client, classesPath+"/"+s.class, manager, true, want)
	return 0, err
}

// topologies returns the nodes where claims can be: the virtual ones of providers that offer
// storage. There is nil if there are none.
func (s *session) topologies() []corev1.TopologySelectorTerm {
	var names []string
	for _, n := range s.nodes.All() {
		id, virtual := n.provider()
		if p, there := s.v.provider(id); virtual && there && p.Storage > 0 && n.Labels[corev1.LabelHostname] != "" {
			names = append(names, n.Labels[corev1.LabelHostname])
		}
	}
	if len(names) == 0 {
		return nil
	}
	slices.Sort(names)
	return []corev1.TopologySelectorTerm{{MatchLabelExpressions: []corev1.TopologySelectorLabelRequirement{{Key: corev1.LabelHostname, Values: slices.Compact(names)}}}}
}

// complainOnce logs a warning, until it is about something else.
func (s *session) complainOnce(message, about string) {
	s.mu.Lock()
	told := s.taken == about
	s.taken = about
	s.mu.Unlock()
	if !told {
		s.v.cfg.Logger.Warn(message, "class", s.class, "provisioner", about)
	}
}
