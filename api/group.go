package api

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the API group and version of the resources about discovery and
// peering.
var GroupVersion = schema.GroupVersion{Group: "discovery.liqo.io", Version: "v1alpha1"}

// The kinds and the plural names of the resources. Advertisement is in
// SharingGroupVersion, ClusterConfig is in ConfigGroupVersion, and the others are
// in GroupVersion.
const (
	KindForeignCluster    = "ForeignCluster"
	PluralForeignClusters = "foreignclusters"

	KindPeeringRequest    = "PeeringRequest"
	PluralPeeringRequests = "peeringrequests"

	KindAdvertisement    = "Advertisement"
	PluralAdvertisements = "advertisements"

	KindSearchDomain    = "SearchDomain"
	PluralSearchDomains = "searchdomains"

	KindClusterConfig    = "ClusterConfig"
	PluralClusterConfigs = "clusterconfigs"
)

// Collection returns the path of the objects with that plural name at an API server.
func Collection(gv schema.GroupVersion, plural string) string {
	if gv.Group == "" {
		return "/api/" + gv.Version + "/" + plural
	}
	return "/apis/" + gv.String() + "/" + plural
}

// FinalizerPeering is on a ForeignCluster from when the agent begins to consume
// the cluster's resources until that is undone on both sides, so that deleting
// the object ends the peering first.
const FinalizerPeering = "discovery.liqo.io/peering"

// LabelClusterID is on the objects that the agent keeps for one peer: its value
// is the peer's cluster ID.
const LabelClusterID = "discovery.liqo.io/cluster-id"

// ClusterIDConfigMap is the ConfigMap in the agent's namespace that says this cluster's
// ID.
const ClusterIDConfigMap = "cluster-id"

// LabelOriginCluster on objects of a provider is the ID of the consumer that they
// were made for.
const LabelOriginCluster = "liqo.io/origin-cluster-id"

// LabelSliceManager on an EndpointSlice says whose it is. Kubernetes leaves those of others
// alone. On those of peers it is ManagedByAgent.
const LabelSliceManager = "endpointslice.kubernetes.io/managed-by"

// Labels that the agent puts on the objects it creates. An object that does
// not carry both is somebody else's: the agent neither deletes it nor corrects
// its spec. Removing one of them from an object takes it over.
const (
	LabelDiscoveryType = "discovery.liqo.io/discovery-type"
	LabelManagedBy     = "app.kubernetes.io/managed-by"

	// ManagedByAgent is the value of LabelManagedBy.
	ManagedByAgent = "liqo-agent"
	// ManagedByAdministrator is its value on what `liqo-agent rbac --apply` makes with
	// an administrator's rights, and the agent leaves alone.
	ManagedByAdministrator = "liqo-agent-rbac"
	// OwnObjects selects what the agent made.
	OwnObjects = LabelManagedBy + "=" + ManagedByAgent
)

// ClusterID returns the cluster ID the object names, "" when it names none.
func (fc *ForeignCluster) ClusterID() string {
	if fc.Spec.ClusterIdentity == nil {
		return ""
	}
	return fc.Spec.ClusterIdentity.ClusterID
}

// FindCondition returns the condition of that type, nil when there is none. The pointer
// is into conditions.
func FindCondition(conditions []Condition, conditionType string) *Condition {
	for i := range conditions {
		if conditions[i].Type == conditionType {
			return &conditions[i]
		}
	}
	return nil
}

// KeepTransition takes LastTransitionTime over from the condition of the same type in
// shown, if that has the same status. It reports whether it did.
func (c *Condition) KeepTransition(shown []Condition) bool {
	old := FindCondition(shown, c.Type)
	if old == nil || old.Status != c.Status {
		return false
	}
	c.LastTransitionTime = old.LastTransitionTime
	return true
}

// Condition returns the condition of that type, nil when there is none. The
// pointer is into fc.
func (fc *ForeignCluster) Condition(conditionType string) *Condition {
	return FindCondition(fc.Status.Conditions, conditionType)
}

// DeepCopyObject implements runtime.Object.
func (fc *ForeignCluster) DeepCopyObject() runtime.Object { return fc.DeepCopy() }

// DeepCopy returns a copy that shares no memory with fc.
func (fc *ForeignCluster) DeepCopy() *ForeignCluster {
	out := *fc
	fc.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	out.Spec.ClusterIdentity = copyOf(fc.Spec.ClusterIdentity)
	s := &out.Status
	s.Outgoing.CADataRef = copyOf(s.Outgoing.CADataRef)
	s.Outgoing.Advertisement = copyOf(s.Outgoing.Advertisement)
	s.Incoming.CADataRef = copyOf(s.Incoming.CADataRef)
	s.Incoming.PeeringRequest = copyOf(s.Incoming.PeeringRequest)
	s.Conditions = slices.Clone(s.Conditions)
	for _, m := range []*Module{&s.Modules.Networking, &s.Modules.Authentication, &s.Modules.Offloading} {
		m.Conditions = slices.Clone(m.Conditions)
	}
	return &out
}

func copyOf[T any](p *T) *T {
	if p == nil {
		return nil
	}
	v := *p
	return &v
}

// AgentLabels returns the labels of an object that the agent creates for a
// cluster found that way.
func AgentLabels(found DiscoveryType) map[string]string {
	return map[string]string{LabelDiscoveryType: string(found), LabelManagedBy: ManagedByAgent}
}

// CreatedByAgent reports whether the agent created the object and nobody took
// it over since.
func (fc *ForeignCluster) CreatedByAgent() bool {
	return fc.Labels[LabelManagedBy] == ManagedByAgent && fc.Labels[LabelDiscoveryType] != ""
}
