package api

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
)

// Condition returns the condition of that type, nil when there is none. The
// pointer is into s.
func (s *SearchDomainStatus) Condition(conditionType string) *Condition {
	for i := range s.Conditions {
		if s.Conditions[i].Type == conditionType {
			return &s.Conditions[i]
		}
	}
	return nil
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

// DeepCopyObject implements runtime.Object.
func (l *SearchDomainList) DeepCopyObject() runtime.Object {
	out := *l
	l.ListMeta.DeepCopyInto(&out.ListMeta)
	out.Items = slices.Clone(l.Items)
	for i := range out.Items {
		out.Items[i] = *l.Items[i].DeepCopy()
	}
	return &out
}
