package peering

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/agent/api"
	"liqo.io/agent/peering/plan"
)

// trim keeps of the list of field managers, which is most of the object, only
// who owns the two fields.
func (fc *foreignCluster) trim() {
	if fc.ManagedFields == nil {
		return
	}
	fc.owners = plan.Owners{
		Join:      fc.owner(fieldJoin, strconv.FormatBool(fc.Spec.Join), !fc.Spec.Join),
		TrustMode: fc.owner(fieldTrustMode, string(fc.Spec.TrustMode), fc.Spec.TrustMode == api.TrustUnknown),
		Identity:  identityOwners(fc.ManagedFields),
	}
	fc.ManagedFields = nil
}

// The two fields of the spec that people set, as managed fields name them.
const (
	fieldJoin      = "f:join"
	fieldTrustMode = "f:trustMode"
)

// owner returns who owns a field of the spec, which has that value. Where several
// do, it is one that is not the agent, for a person's edit counts even if it says
// the same; and among several others the latest.
//
// The API server fills in a default as if the creator had written it. Such a
// default is nobody's: see defaulted. (Whoever applies an object on the server owns
// what they name only.)
func (fc *foreignCluster) owner(field, value string, isDefault bool) plan.Owner {
	var owner *metav1.ManagedFieldsEntry
	for i := range fc.ManagedFields {
		m := &fc.ManagedFields[i]
		if m.Subresource != "" || !owns(m.FieldsV1, field) {
			continue
		}
		if isDefault && fc.defaulted(m, field) {
			continue
		}
		if owner == nil || owner.Manager == plan.ManagerIntent || m.Manager != plan.ManagerIntent && later(m.Time, owner.Time) {
			owner = m
		}
	}
	if owner == nil {
		return plan.Owner{}
	}
	var at string
	if owner.Time != nil {
		at = owner.Time.UTC().Format(time.RFC3339)
	}
	return plan.Owner{Manager: owner.Manager, Stamp: strings.Join([]string{string(fc.UID), owner.Manager, at, value}, " ")}
}

// specItself is in the managed fields of who created the object: it stands for the
// spec as a whole.
const specItself = "."

// defaulted reports whether a field that has its default value has it because its
// creator said nothing about it. Who that is shows by what else came with it: the
// spec itself, or a field that is always there. What the creator does later renews
// the time of everything that came with the creation, and counts as a decision only
// where there was one before: somebody removed "join: true" from a file, and
// applied it again.
func (fc *foreignCluster) defaulted(m *metav1.ManagedFieldsEntry, field string) bool {
	atOnce := m.Time == nil || !fc.CreationTimestamp.Before(m.Time)
	switch {
	case fc.applied(field):
		return false
	case atOnce && m.Operation != metav1.ManagedFieldsOperationApply && (owns(m.FieldsV1, "f:authUrl") || owns(m.FieldsV1, "f:clusterIdentity")):
		return true
	}
	// kubectl turns the creator's entry into one of an apply when it begins to apply on
	// the server.
	return owns(m.FieldsV1, specItself) && (atOnce || !fc.decided(field))
}

// applied reports whether the author of the object named the field, as far as that
// is kept: "kubectl apply" does so.
func (fc *foreignCluster) applied(field string) bool {
	var said struct {
		Spec map[string]json.RawMessage `json:"spec"`
	}
	if json.Unmarshal([]byte(fc.Annotations[lastApplied]), &said) != nil {
		return false
	}
	return said.Spec[strings.TrimPrefix(field, "f:")] != nil
}

// lastApplied is where "kubectl apply" keeps what it applied.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// decided reports whether the object shows that somebody decided about a field
// before.
func (fc *foreignCluster) decided(field string) bool {
	if field == fieldJoin {
		c := fc.Condition(api.ConditionOutgoingPeering)
		return c != nil && c.Reason != plan.ReasonAnotherObject
	}
	c := fc.Condition(api.ConditionTrusted)
	return c != nil && c.Reason != plan.ReasonNotDecided
}

// identityOwners returns whose spec.clusterIdentity, spec.namespace and spec.authUrl are.
func identityOwners(managed []metav1.ManagedFieldsEntry) plan.IdentityOwners {
	var owners plan.IdentityOwners
	url := false
	for _, m := range managed {
		if m.Subresource != "" {
			continue
		}
		set, err := ownedFields(m.FieldsV1)
		if err != nil {
			continue
		}
		identity := set.Spec.Identity
		if m.Manager != plan.ManagerDiscovery {
			owners.Name = owners.Name || identity.Name != nil
			owners.Namespace = owners.Namespace || set.Spec.Namespace != nil
			url = url || set.Spec.AuthURL != nil
			continue
		}
		owners.Filled = identity.ID != nil && set.Metadata == nil && set.Spec.AuthURL == nil && set.Spec.DiscoveryType == nil
		owners.DiscoveredURL = set.Spec.AuthURL != nil
	}
	owners.DiscoveredURL = owners.DiscoveredURL && !url
	return owners
}

// fieldSet is as much of a set of managed fields as tells who set what discovery
// sets as well; nil for what is not in it.
type fieldSet struct {
	Metadata json.RawMessage `json:"f:metadata"`
	Spec     struct {
		Identity struct {
			ID   json.RawMessage `json:"f:clusterID"`
			Name json.RawMessage `json:"f:clusterName"`
		} `json:"f:clusterIdentity"`
		Namespace     json.RawMessage `json:"f:namespace"`
		AuthURL       json.RawMessage `json:"f:authUrl"`
		DiscoveryType json.RawMessage `json:"f:discoveryType"`
	} `json:"f:spec"`
}

func ownedFields(fields *metav1.FieldsV1) (fieldSet, error) {
	var set fieldSet
	if fields == nil {
		return set, nil
	}
	err := json.Unmarshal(fields.GetRawBytes(), &set)
	return set, err
}

// follows returns who owns a field, given who did before, and whom the agent took
// it from last. The time of an edit is only known to the second: one that follows
// within the same second, after the agent set the field in between, gets a stamp
// of its own. Nor does a field show that its author removed it within the second in
// which the object was made: it looks like one that never was there. Only people
// give a field up; the agent sets it.
func follows(before, past, now plan.Owner) (owner, taken plan.Owner) {
	person := func(o plan.Owner) bool { return o.Manager != "" && o.Manager != plan.ManagerIntent }
	switch {
	case now.Manager == "" && person(before):
		stamp := strings.TrimSuffix(baseStamp(before.Stamp), removedMark) + removedMark
		return plan.Owner{Manager: before.Manager, Stamp: stamp}, plan.Owner{}
	case !person(now) && person(before):
		return now, before
	case !person(now):
		return now, past
	case person(before):
		switch base := baseStamp(before.Stamp); {
		case base == now.Stamp:
			now.Stamp = before.Stamp
		case base == now.Stamp+removedMark:
			now.Stamp += againMark
		}
	case baseStamp(past.Stamp) == now.Stamp:
		now.Stamp = past.Stamp + againMark
	}
	return now, plan.Owner{}
}

// againMark is at the end of a stamp, once for each time that the same stamp was
// there before.
const againMark = "+"

// removedMark is at the end of the stamp of an edit that removed a field.
const removedMark = " removed"

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
