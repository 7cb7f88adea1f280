package volumes

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/agent/api"
	"liqo.io/agent/sharing/storageclass"
	"liqo.io/agent/sharing/workload"
)

// reconcileClass keeps the storage class, with the nodes where claims can be.
func (s *session) reconcileClass(ctx context.Context) (again time.Duration, err error) {
	found := s.classes.Get("", s.class)
	if found != nil && found.Labels[api.LabelManagedBy] != api.ManagedByAgent {
		if found.Provisioner != workload.Provisioner {
			s.complainOnce("another storage class has the name in sharing.storage_class, so nothing is kept at providers; choose another name", found.Provisioner)
		}
		return 0, nil // somebody's own, with whatever is in it
	}
	if used, known := s.v.InUse(); !used {
		if found == nil || !known {
			return 0, nil
		}
		err := s.client.Delete(ctx, storageclass.Path+"/"+s.class, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &found.UID}})
		if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			return 0, nil
		}
		return 0, err
	}
	want := &storageclass.Class{
		TypeMeta:    metav1.TypeMeta{APIVersion: "storage.k8s.io/v1", Kind: "StorageClass"},
		ObjectMeta:  metav1.ObjectMeta{Name: s.class, Labels: map[string]string{api.LabelManagedBy: api.ManagedByAgent}},
		Provisioner: workload.Provisioner, ReclaimPolicy: corev1.PersistentVolumeReclaimDelete, VolumeBindingMode: storageclass.WaitForFirstConsumer,
		AllowVolumeExpansion: true, AllowedTopologies: s.topologies(found),
	}
	switch {
	case want.AllowedTopologies == nil && found == nil:
		return 0, nil // no node to say
	case want.AllowedTopologies == nil:
		want.AllowedTopologies = found.AllowedTopologies // no list would mean all nodes
	}
	if found != nil && found.AllowVolumeExpansion && reflect.DeepEqual(found.AllowedTopologies, want.AllowedTopologies) {
		return 0, nil
	}
	_, err = s.classes.Apply(ctx, s.client, storageclass.Path+"/"+s.class, manager, true, want)
	return 0, err
}

// topologies returns the nodes where claims can be: the virtual ones of providers that offer
// storage, and those of this cluster if it has a class for claims at home. Those of providers that were not
// heard yet are as in found, the class that there is. There is nil if there are none.
func (s *session) topologies(found *storageclass.Class) []corev1.TopologySelectorTerm {
	_, why := s.homeClass()
	complete := s.v.complete()
	var names []string
	for _, n := range s.nodes.All() {
		name, here := n.Labels[corev1.LabelHostname], why == ""
		if id, virtual := n.provider(); virtual {
			p, there := s.v.provider(id)
			here = there && p.Storage > 0 || !there && !complete && lists(found, name)
		}
		if here && name != "" {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	slices.Sort(names)
	return []corev1.TopologySelectorTerm{{MatchLabelExpressions: []corev1.TopologySelectorLabelRequirement{{Key: corev1.LabelHostname, Values: slices.Compact(names)}}}}
}

// lists reports whether claims of a class, which is nil if there is none, can be on a node.
func lists(class *storageclass.Class, node string) bool {
	return class != nil && slices.ContainsFunc(class.AllowedTopologies, func(t corev1.TopologySelectorTerm) bool {
		return slices.ContainsFunc(t.MatchLabelExpressions, func(e corev1.TopologySelectorLabelRequirement) bool {
			return e.Key == corev1.LabelHostname && slices.Contains(e.Values, node)
		})
	})
}

// homeClass returns the class that claims at home have behind them, or why there is none, in a
// sentence without its end.
func (s *session) homeClass() (class *storageclass.Class, why string) {
	const choose = "make another class the default one, or set sharing.home_storage_class"
	if name := s.v.cfg.HomeClass(); name != "" {
		if class = s.classes.Get("", name); class == nil {
			return nil, fmt.Sprintf("this cluster has no storage class %s, which sharing.home_storage_class names: correct it", name)
		}
	} else {
		others := slices.DeleteFunc(s.classes.All(), func(c *storageclass.Class) bool { return c.Provisioner == workload.Provisioner })
		if class = storageclass.Default(others); class == nil {
			return nil, "this cluster has no other storage class that is the default one: " + choose
		}
	}
	switch class.Provisioner {
	case workload.Provisioner:
		return nil, fmt.Sprintf("the storage class %s, which sharing.home_storage_class names, is the agent's: correct it", class.Name)
	case storageclass.NoProvisioner:
		return nil, fmt.Sprintf("the storage class %s makes no volumes: %s", class.Name, choose)
	}
	return class, ""
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
