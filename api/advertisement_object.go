package api

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
)

// DeepCopyObject implements runtime.Object.
func (a *Advertisement) DeepCopyObject() runtime.Object { return a.DeepCopy() }

// DeepCopy returns a copy that shares no memory with a.
func (a *Advertisement) DeepCopy() *Advertisement {
	out := *a
	a.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	out.Spec = a.Spec.DeepCopy()
	out.Status.VnodeReference = copyOf(a.Status.VnodeReference)
	return &out
}

// DeepCopy returns a copy that shares no memory with s.
func (s AdvertisementSpec) DeepCopy() AdvertisementSpec {
	s.ResourceQuota.Hard = maps.Clone(s.ResourceQuota.Hard)
	s.Labels = maps.Clone(s.Labels)
	s.Images = slices.Clone(s.Images)
	for i := range s.Images {
		s.Images[i].Names = slices.Clone(s.Images[i].Names)
	}
	s.Prices = maps.Clone(s.Prices)
	s.Timestamp, s.TimeToLive = *s.Timestamp.DeepCopy(), *s.TimeToLive.DeepCopy()
	return s
}
