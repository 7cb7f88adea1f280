package api

import "k8s.io/apimachinery/pkg/runtime"

// ClusterID returns the cluster ID of the consumer that asks.
func (r *PeeringRequest) ClusterID() string { return r.Spec.ClusterIdentity.ClusterID }

// DeepCopyObject implements runtime.Object.
func (r *PeeringRequest) DeepCopyObject() runtime.Object { return r.DeepCopy() }

// DeepCopy returns a copy that shares no memory with r.
func (r *PeeringRequest) DeepCopy() *PeeringRequest {
	out := *r
	r.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	return &out
}
