package api

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
)

// DeepCopyObject implements runtime.Object.
func (c *ClusterConfig) DeepCopyObject() runtime.Object { return c.DeepCopy() }

// DeepCopy returns a copy that shares no memory with c.
func (c *ClusterConfig) DeepCopy() *ClusterConfig {
	out := *c
	c.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	out.Spec = c.Spec.DeepCopy()
	out.Status.Conditions = slices.Clone(c.Status.Conditions)
	out.Status.Effective = copyOf(c.Status.Effective)
	return &out
}

// Condition returns the condition of that type, nil when there is none. The
// pointer is into s.
func (s *ClusterConfigStatus) Condition(conditionType string) *Condition {
	return FindCondition(s.Conditions, conditionType)
}

// DeepCopy returns a copy that shares no memory with s.
func (s ClusterConfigSpec) DeepCopy() ClusterConfigSpec {
	s.DiscoveryConfig = copyOf(s.DiscoveryConfig)
	if d := s.DiscoveryConfig; d != nil {
		d.ClusterName, d.Domain, d.Service = copyOf(d.ClusterName), copyOf(d.Domain), copyOf(d.Service)
		d.EnableDiscovery, d.EnableAdvertisement = copyOf(d.EnableDiscovery), copyOf(d.EnableAdvertisement)
		d.Autojoin, d.AutojoinUntrusted, d.TTL = copyOf(d.Autojoin), copyOf(d.AutojoinUntrusted), copyOf(d.TTL)
	}
	s.AuthConfig = copyOf(s.AuthConfig)
	if a := s.AuthConfig; a != nil {
		a.AllowEmptyToken = copyOf(a.AllowEmptyToken)
	}
	s.AdvertisementConfig = copyOf(s.AdvertisementConfig)
	if a := s.AdvertisementConfig; a != nil {
		a.KeepaliveThreshold, a.KeepaliveRetryTime = copyOf(a.KeepaliveThreshold), copyOf(a.KeepaliveRetryTime)
		a.OutgoingConfig, a.IngoingConfig = copyOf(a.OutgoingConfig), copyOf(a.IngoingConfig)
		if o := a.OutgoingConfig; o != nil {
			o.EnableBroadcaster, o.ResourceSharingPercentage = copyOf(o.EnableBroadcaster), copyOf(o.ResourceSharingPercentage)
		}
		if i := a.IngoingConfig; i != nil {
			i.AcceptPolicy, i.MaxAcceptableAdvertisement = copyOf(i.AcceptPolicy), copyOf(i.MaxAcceptableAdvertisement)
		}
	}
	return s
}
