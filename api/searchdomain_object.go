package api

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
)

// Condition returns the condition of that type, nil when there is none. The
// pointer is into s.
func (s *SearchDomainStatus) Condition(conditionType string) *Condition {
	return FindCondition(s.Conditions, conditionType)
}

// DeepCopyObject implements runtime.Object.
func (d *SearchDomain) DeepCopyObject() runtime.Object { return d.DeepCopy() }

// DeepCopy returns a copy that shares no memory with d.
func (d *SearchDomain) DeepCopy() *SearchDomain {
	out := *d
	d.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	out.Spec.Autojoin = copyOf(d.Spec.Autojoin)
	out.Status = d.Status.DeepCopy()
	return &out
}

// DeepCopy returns a copy that shares no memory with s.
func (s SearchDomainStatus) DeepCopy() SearchDomainStatus {
	s.LastQuery = copyOf(s.LastQuery)
	s.Found = slices.Clone(s.Found)
	s.Conditions = slices.Clone(s.Conditions)
	return s
}
