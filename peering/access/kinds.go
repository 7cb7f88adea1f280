package access

import (
	"encoding/json"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"liqo.io/agent/api"
	"liqo.io/agent/peer"
	"liqo.io/agent/peering/objects"
	"liqo.io/agent/peering/plan"
)

const rbacGroup = "rbac.authorization.k8s.io"

var (
	gvkSecret  = schema.GroupVersionKind{Version: "v1", Kind: "Secret"}
	gvkRole    = schema.GroupVersionKind{Group: rbacGroup, Version: "v1", Kind: "ClusterRole"}
	gvkBinding = schema.GroupVersionKind{Group: rbacGroup, Version: "v1", Kind: "ClusterRoleBinding"}
)

func secretKind(namespace string) objects.Kind[*secret] {
	return objects.Kind[*secret]{
		GVK: gvkSecret, Path: "/api/v1/namespaces/" + namespace + "/secrets", Namespace: namespace, Selector: api.OwnObjects,
		Fresh: func() *secret { return &secret{} },
		About: func(s *secret) []peer.ClusterID {
			return objects.ClusterIDs(strings.TrimPrefix(s.Name, plan.SecretName("")))
		},
		Trim: func(s *secret) {
			s.ManagedFields, s.Annotations = nil, nil
			s.identity = readSecret(peer.ClusterID(strings.TrimPrefix(s.Name, plan.SecretName(""))), s)
		},
	}
}

func roleKind() objects.Kind[*clusterRole] {
	return objects.Kind[*clusterRole]{
		GVK: gvkRole, Path: api.Collection(gvkRole.GroupVersion(), "clusterroles"), Selector: api.OwnObjects,
		Fresh: func() *clusterRole { return &clusterRole{} },
		About: func(r *clusterRole) []peer.ClusterID {
			return objects.ClusterIDs(strings.TrimPrefix(r.Name, api.PeerRolePrefix))
		},
		Trim: func(r *clusterRole) { r.ManagedFields, r.Annotations = nil, nil },
	}
}

func bindingKind() objects.Kind[*clusterRoleBinding] {
	return objects.Kind[*clusterRoleBinding]{
		GVK: gvkBinding, Path: api.Collection(gvkBinding.GroupVersion(), "clusterrolebindings"), Selector: api.OwnObjects,
		Fresh: func() *clusterRoleBinding { return &clusterRoleBinding{} },
		About: func(b *clusterRoleBinding) []peer.ClusterID {
			return objects.ClusterIDs(strings.TrimPrefix(b.Name, api.PeerRolePrefix))
		},
		Trim: func(b *clusterRoleBinding) { b.ManagedFields, b.Annotations = nil, nil },
	}
}

// secret is as much of a Secret as is of interest.
type secret struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Type string            `json:"type,omitempty"`
	Data map[string][]byte `json:"data,omitempty"`

	// identity is what readSecret makes of one that is kept: it is asked for at each look at a peer, and most of the work
	// of such a look would be to parse the certificate.
	identity *plan.Secret
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
