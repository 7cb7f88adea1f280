package peering

import (
	"encoding/json"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"liqo.io/agent/api"
	"liqo.io/agent/kube"
	"liqo.io/agent/peer"
	"liqo.io/agent/peering/plan"
	"liqo.io/agent/sharing/offer"
)

// kind is what has to be known about one kind of objects to watch it.
type kind[T kube.Object] struct {
	gvk schema.GroupVersionKind
	// path is that of the collection.
	path string
	// namespace is that of the objects, "" for a kind without.
	namespace string
	// selector chooses objects by their labels; "" for all.
	selector string
	// fresh returns an empty object.
	fresh func() T
	// about returns the clusters that an object is about.
	about func(T) []peer.ClusterID
	// trim drops what nobody reads. It may be called again with its own result.
	trim func(T)
	// inherit, if not nil, takes over from an older version of the same object what
	// only that tells.
	inherit func(older, newer T)
}

// object returns the path of one object.
func (k kind[T]) object(name string) string { return k.path + "/" + name }

var (
	gvkSecret  = schema.GroupVersionKind{Version: "v1", Kind: "Secret"}
	gvkNode    = schema.GroupVersionKind{Version: "v1", Kind: "Node"}
	gvkRole    = schema.GroupVersionKind{Group: rbacGroup, Version: "v1", Kind: "ClusterRole"}
	gvkBinding = schema.GroupVersionKind{Group: rbacGroup, Version: "v1", Kind: "ClusterRoleBinding"}
)

const rbacGroup = "rbac.authorization.k8s.io"

func foreignClusterKind() kind[*foreignCluster] {
	return kind[*foreignCluster]{
		gvk:   api.GroupVersion.WithKind(api.KindForeignCluster),
		path:  api.Collection(api.GroupVersion, api.PluralForeignClusters),
		fresh: func() *foreignCluster { return &foreignCluster{} },
		// By their spec, and by their name, which keeps that name from being used for
		// another one.
		about: func(fc *foreignCluster) []peer.ClusterID { return clusterIDs(fc.ClusterID(), fc.Name) },
		trim:  (*foreignCluster).trim,
		inherit: func(older, newer *foreignCluster) {
			if older.UID == newer.UID {
				newer.owners.Join, newer.past.Join = follows(older.owners.Join, older.past.Join, newer.owners.Join)
				newer.owners.TrustMode, newer.past.TrustMode = follows(older.owners.TrustMode, older.past.TrustMode, newer.owners.TrustMode)
			}
		},
	}
}

func requestKind() kind[*api.PeeringRequest] {
	return kind[*api.PeeringRequest]{
		gvk:   api.GroupVersion.WithKind(api.KindPeeringRequest),
		path:  api.Collection(api.GroupVersion, api.PluralPeeringRequests),
		fresh: func() *api.PeeringRequest { return &api.PeeringRequest{} },
		about: func(r *api.PeeringRequest) []peer.ClusterID { return clusterIDs(r.Name) },
		trim:  plan.TrimRequest,
	}
}

func advertisementKind() kind[*api.Advertisement] {
	return kind[*api.Advertisement]{
		gvk:   api.SharingGroupVersion.WithKind(api.KindAdvertisement),
		path:  api.Collection(api.SharingGroupVersion, api.PluralAdvertisements),
		fresh: func() *api.Advertisement { return &api.Advertisement{} },
		about: func(a *api.Advertisement) []peer.ClusterID { return clusterIDs(a.Name) },
		trim:  plan.TrimAdvertisement,
	}
}

func secretKind(namespace string) kind[*secret] {
	return kind[*secret]{
		gvk: gvkSecret, path: "/api/v1/namespaces/" + namespace + "/secrets", namespace: namespace, selector: api.OwnObjects,
		fresh: func() *secret { return &secret{} },
		about: func(s *secret) []peer.ClusterID { return clusterIDs(strings.TrimPrefix(s.Name, plan.SecretName(""))) },
		trim:  func(s *secret) { s.ManagedFields, s.Annotations = nil, nil },
	}
}

func roleKind() kind[*clusterRole] {
	return kind[*clusterRole]{
		gvk: gvkRole, path: api.Collection(gvkRole.GroupVersion(), "clusterroles"), selector: api.OwnObjects,
		fresh: func() *clusterRole { return &clusterRole{} },
		about: func(r *clusterRole) []peer.ClusterID {
			return clusterIDs(strings.TrimPrefix(r.Name, api.PeerRolePrefix))
		},
		trim: func(r *clusterRole) { r.ManagedFields, r.Annotations = nil, nil },
	}
}

func bindingKind() kind[*clusterRoleBinding] {
	return kind[*clusterRoleBinding]{
		gvk: gvkBinding, path: api.Collection(gvkBinding.GroupVersion(), "clusterrolebindings"), selector: api.OwnObjects,
		fresh: func() *clusterRoleBinding { return &clusterRoleBinding{} },
		about: func(b *clusterRoleBinding) []peer.ClusterID {
			return clusterIDs(strings.TrimPrefix(b.Name, api.PeerRolePrefix))
		},
		trim: func(b *clusterRoleBinding) { b.ManagedFields, b.Annotations = nil, nil },
	}
}

func nodeKind() kind[*offer.Node] {
	return kind[*offer.Node]{
		gvk: gvkNode, path: api.Collection(gvkNode.GroupVersion(), "nodes"),
		fresh: func() *offer.Node { return &offer.Node{} },
		about: func(*offer.Node) []peer.ClusterID { return nil },
		trim:  (*offer.Node).Trim,
	}
}

// clusterIDs returns the valid cluster IDs among names, each once.
func clusterIDs(names ...string) []peer.ClusterID {
	var out []peer.ClusterID
	for _, name := range names {
		if id, err := peer.ParseClusterID(name); err == nil && !slices.Contains(out, id) {
			out = append(out, id)
		}
	}
	return out
}

// foreignCluster is a ForeignCluster together with who set the two fields of its
// spec that a person may set as well as the agent.
type foreignCluster struct {
	api.ForeignCluster `json:",inline"`

	owners plan.Owners
	past   plan.Owners // the people whom the agent took a field from
}

// DeepCopyObject implements runtime.Object.
func (fc *foreignCluster) DeepCopyObject() runtime.Object {
	return &foreignCluster{ForeignCluster: *fc.DeepCopy(), owners: fc.owners, past: fc.past}
}

// secret is as much of a Secret as is of interest.
type secret struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Type string            `json:"type,omitempty"`
	Data map[string][]byte `json:"data,omitempty"`
}

// DeepCopyObject implements runtime.Object.
func (s *secret) DeepCopyObject() runtime.Object {
	out := *s
	s.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	out.Data = make(map[string][]byte, len(s.Data))
	for key, value := range s.Data {
		out.Data[key] = slices.Clone(value)
	}
	return &out
}

// clusterRole is a ClusterRole.
type clusterRole struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Rules []policyRule `json:"rules"`
	// AggregationRule, when somebody sets it, has a controller overwrite Rules.
	AggregationRule json.RawMessage `json:"aggregationRule,omitempty"`
}

// policyRule is one rule of a ClusterRole.
type policyRule struct {
	APIGroups       []string `json:"apiGroups,omitempty"`
	Resources       []string `json:"resources,omitempty"`
	ResourceNames   []string `json:"resourceNames,omitempty"`
	Verbs           []string `json:"verbs"`
	NonResourceURLs []string `json:"nonResourceURLs,omitempty"`
}

// DeepCopyObject implements runtime.Object.
func (r *clusterRole) DeepCopyObject() runtime.Object {
	out := *r
	r.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	out.Rules = slices.Clone(r.Rules)
	for i, rule := range out.Rules {
		out.Rules[i] = policyRule{
			APIGroups: slices.Clone(rule.APIGroups), Resources: slices.Clone(rule.Resources), ResourceNames: slices.Clone(rule.ResourceNames),
			Verbs: slices.Clone(rule.Verbs), NonResourceURLs: slices.Clone(rule.NonResourceURLs),
		}
	}
	out.AggregationRule = slices.Clone(r.AggregationRule)
	return &out
}

// clusterRoleBinding is a ClusterRoleBinding.
type clusterRoleBinding struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	RoleRef  roleRef   `json:"roleRef"`
	Subjects []subject `json:"subjects"`
}

// roleRef names a role. It cannot change once it is set.
type roleRef struct {
	APIGroup string `json:"apiGroup"`
	Kind     string `json:"kind"`
	Name     string `json:"name"`
}

// subject is somebody whom a role is given to.
type subject struct {
	APIGroup  string `json:"apiGroup,omitempty"`
	Kind      string `json:"kind"`
	Name      string `json:"name"`
	Namespace string `json:"namespace,omitempty"`
}

// DeepCopyObject implements runtime.Object.
func (b *clusterRoleBinding) DeepCopyObject() runtime.Object {
	out := *b
	b.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	out.Subjects = slices.Clone(b.Subjects)
	return &out
}
