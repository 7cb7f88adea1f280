package fields

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/agent/api"
	"liqo.io/agent/peering/reason"
)

// OwnersOf returns who owns the fields of fc that belong to people.
func OwnersOf(fc *api.ForeignCluster) Owners {
	return Owners{
		Join:      owner(fc, fieldJoin, strconv.FormatBool(fc.Spec.Join), !fc.Spec.Join),
		TrustMode: owner(fc, fieldTrustMode, string(fc.Spec.TrustMode), fc.Spec.TrustMode == api.TrustUnknown),
		Identity:  identityOwners(fc.ManagedFields),
	}
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
func owner(fc *api.ForeignCluster, field, value string, isDefault bool) Owner {
	var owner *metav1.ManagedFieldsEntry
	for i := range fc.ManagedFields {
		m := &fc.ManagedFields[i]
		if m.Subresource != "" || !api.FieldsOf(m.FieldsV1).Has("f:spec", field) {
			continue
		}
		if isDefault && defaulted(fc, m, field) {
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

// specItself is in the managed fields of who created the object: it stands for the
// spec as a whole.
const specItself = "."

// defaulted reports whether a field that has its default value has it because its
// creator said nothing about it. Who that is shows by what else came with it: the
// spec itself, or a field that is always there. What the creator does later renews
// the time of everything that came with the creation, and counts as a decision only
// where there was one before: somebody removed "join: true" from a file, and
// applied it again.
func defaulted(fc *api.ForeignCluster, m *metav1.ManagedFieldsEntry, field string) bool {
	spec := api.FieldsOf(m.FieldsV1).At("f:spec")
	atOnce := m.Time == nil || !fc.CreationTimestamp.Before(m.Time)
	switch {
	case applied(fc, field):
		return false
	case atOnce && m.Operation != metav1.ManagedFieldsOperationApply && (spec.Has("f:authUrl") || spec.Has("f:clusterIdentity")):
		return true
	}
	// kubectl turns the creator's entry into one of an apply when it begins to apply on
	// the server.
	return spec.Has(specItself) && (atOnce || !decided(fc, field))
}

// applied reports whether the author of the object named the field, as far as that
// is kept: "kubectl apply" does so.
func applied(fc *api.ForeignCluster, field string) bool {
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
func decided(fc *api.ForeignCluster, field string) bool {
	if field == fieldJoin {
		c := fc.Condition(api.ConditionOutgoingPeering)
		return c != nil && c.Reason != reason.AnotherObject
	}
	c := fc.Condition(api.ConditionTrusted)
	return c != nil && c.Reason != reason.NotDecided
}

// identityOwners returns whose spec.clusterIdentity, spec.namespace and spec.authUrl are.
func identityOwners(managed []metav1.ManagedFieldsEntry) IdentityOwners {
	var owners IdentityOwners
	url := false
	for _, m := range managed {
		if m.Subresource != "" {
			continue
		}
		set := api.FieldsOf(m.FieldsV1)
		spec := set.At("f:spec")
		if m.Manager != ManagerDiscovery {
			owners.Name = owners.Name || spec.Has("f:clusterIdentity", "f:clusterName")
			owners.Namespace = owners.Namespace || spec.Has("f:namespace")
			url = url || spec.Has("f:authUrl")
			continue
		}
		owners.Filled = spec.Has("f:clusterIdentity", "f:clusterID") && !set.Has("f:metadata") && !spec.Has("f:authUrl") && !spec.Has("f:discoveryType")
		owners.DiscoveredURL = spec.Has("f:authUrl")
	}
	owners.DiscoveredURL = owners.DiscoveredURL && !url
	return owners
}

func later(a, b *metav1.Time) bool { return b == nil || a != nil && b.Before(a) }
