package peering

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/agent/api"
)

// trim keeps of the list of field managers, which is most of the object, only
// who owns the two fields.
func (fc *foreignCluster) trim() {
	if fc.ManagedFields == nil {
		return
	}
	fc.owners = Owners{
		Join:      fc.owner("f:join", strconv.FormatBool(fc.Spec.Join), !fc.Spec.Join),
		TrustMode: fc.owner("f:trustMode", string(fc.Spec.TrustMode), fc.Spec.TrustMode == api.TrustUnknown),
	}
	fc.ManagedFields = nil
}

// owner returns who owns a field of the spec, which has that value. Where several
// do, it is one that is not the agent, for a person's edit counts even if it says
// the same; and among several others the latest.
//
// The API server fills in a default as if the creator had written it. So a
// default that is as old as the object is nobody's, if it came with a field that
// only the creator sets. (Whoever applies an object owns what they name only.)
func (fc *foreignCluster) owner(field, value string, isDefault bool) Owner {
	var owner *metav1.ManagedFieldsEntry
	for i := range fc.ManagedFields {
		m := &fc.ManagedFields[i]
		if m.Subresource != "" || !owns(m.FieldsV1, field) {
			continue
		}
		if isDefault && m.Operation != metav1.ManagedFieldsOperationApply && (m.Time == nil || !fc.CreationTimestamp.Before(m.Time)) &&
			(owns(m.FieldsV1, "f:authUrl") || owns(m.FieldsV1, "f:clusterIdentity")) {
			continue
		}
		if owner == nil || owner.Manager == ManagerIntent || m.Manager != ManagerIntent && later(m.Time, owner.Time) {
			owner = m
		}
	}
	if owner == nil {
		return Owner{}
	}
	var at string
	if owner.Time != nil {
		at = owner.Time.UTC().Format(time.RFC3339)
	}
	return Owner{Manager: owner.Manager, Stamp: strings.Join([]string{string(fc.UID), owner.Manager, at, value}, " ")}
}

// follows returns who owns a field, given who did before, and whom the agent took
// it from last. The time of an edit is only known to the second: one that follows
// within the same second, after the agent set the field in between, gets a stamp
// of its own.
func follows(before, past, now Owner) (owner, taken Owner) {
	person := func(o Owner) bool { return o.Manager != "" && o.Manager != ManagerIntent }
	switch {
	case !person(now) && person(before):
		return now, before
	case !person(now):
		return now, past
	case person(before):
		if baseStamp(before.Stamp) == now.Stamp {
			now.Stamp = before.Stamp
		}
	case baseStamp(past.Stamp) == now.Stamp:
		now.Stamp = past.Stamp + againMark
	}
	return now, Owner{}
}

// againMark is at the end of a stamp, once for each time that the same stamp was
// there before.
const againMark = "+"

func baseStamp(stamp string) string { return strings.TrimRight(stamp, againMark) }

func later(a, b *metav1.Time) bool { return b == nil || a != nil && b.Before(a) }

// owns reports whether a set of managed fields holds a field of the spec.
func owns(fields *metav1.FieldsV1, field string) bool {
	if fields == nil {
		return false
	}
	var set struct {
		Spec map[string]json.RawMessage `json:"f:spec"`
	}
	if err := json.Unmarshal(fields.GetRawBytes(), &set); err != nil {
		return false
	}
	_, ok := set.Spec[field]
	return ok
}
