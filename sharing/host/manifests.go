package host

import (
	"maps"
	"reflect"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/agent/peer"
	"liqo.io/agent/sharing/workload"
)

const (
	// Manager is the field manager of what the agent makes for consumers.
	Manager = "liqo-agent-host"
	// QuotaName and RoleName are what a consumer's ResourceQuota, and its Role and
	// RoleBinding, are called in each of its namespaces.
	QuotaName = "liqo-offer"
	RoleName  = "liqo-consumer"

	labelEnforce        = "pod-security.kubernetes.io/enforce"
	labelEnforceVersion = "pod-security.kubernetes.io/enforce-version"

	// annotationResources on a quota is how many resources we limit there: those that
	// are left over when there are fewer are ours to take away, others' are not.
	annotationResources = "liqo.io/resources"
	// annotationNamespace on a quota is the UID of the namespace that it was made for: a copy
	// of it elsewhere says nothing about where it lies.
	annotationNamespace = "liqo.io/namespace-uid"

	enforceLimits = workload.EnforceLimits

	rbacPath = "/apis/rbac.authorization.k8s.io/v1/"

	metricsGroup = "metrics.k8s.io"
)

// labels are those of everything that is made for a consumer.
func labels(id peer.ClusterID) map[string]string {
	return map[string]string{labelManagedBy: managedBy, workload.LabelOriginCluster: string(id)}
}

// labelsOf are those of a guest namespace, and of the quota in it, that stands for the
// namespace origin; "" if that is not known any more.
func labelsOf(id peer.ClusterID, origin string) map[string]string {
	all := labels(id)
	if origin != "" {
		all[workload.LabelOriginNamespace] = origin
	}
	return all
}

// podSecurity are the labels that hold a namespace's pods to a standard.
func podSecurity(settings Settings) map[string]string {
	return map[string]string{labelEnforce: settings.PodSecurity, labelEnforceVersion: "latest"}
}

// namespaceFor is the guest namespace that stands for a namespace of a consumer.
func namespaceFor(name string, id peer.ClusterID, origin string, settings Settings) *corev1.Namespace {
	all := labelsOf(id, origin)
	maps.Copy(all, podSecurity(settings))
	return &corev1.Namespace{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: all},
	}
}

// quotaFor is the second line of what a consumer may have: the whole offer in one
// namespace. What it cannot create by its Role is zero here nevertheless. It also says
// whose the namespace is, should that lose its labels. With services or claims, it may have some.
func quotaFor(guest *corev1.Namespace, id peer.ClusterID, origin string, offer corev1.ResourceList, settings Settings, services, claims bool) *corev1.ResourceQuota {
	hard := corev1.ResourceList{}
	for name, q := range offer {
		switch {
		case name == corev1.ResourcePods:
			hard[name] = q
			hard["count/pods"] = *resource.NewQuantity(podsPerSlot*q.Value(), resource.DecimalSI)
		case strings.Contains(string(name), "hugepages-"): // never offered
		default:
			hard["requests."+name] = q
			if settings.Enforce == enforceLimits && (name == corev1.ResourceCPU || name == corev1.ResourceMemory) {
				hard["limits."+name] = q
			}
		}
	}
	for _, name := range []corev1.ResourceName{
		"services", "services.nodeports", "services.loadbalancers", "persistentvolumeclaims", "replicationcontrollers",
	} {
		hard[name] = *resource.NewQuantity(0, resource.DecimalSI)
	}
	// One ConfigMap is there already: kube-root-ca.crt.
	hard["count/configmaps"] = *resource.NewQuantity(maxObjects+1, resource.DecimalSI)
	if services {
		hard["services"] = *resource.NewQuantity(maxServices, resource.DecimalSI)
	}
	if storage := offer[corev1.ResourceStorage]; claims && storage.Sign() > 0 {
		hard[corev1.ResourcePersistentVolumeClaims] = *resource.NewQuantity(maxClaims, resource.DecimalSI)
	}
	hard["count/secrets"] = *resource.NewQuantity(maxObjects, resource.DecimalSI)
	return &corev1.ResourceQuota{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ResourceQuota"},
		ObjectMeta: metav1.ObjectMeta{
			Name: QuotaName, Namespace: guest.Name, Labels: labelsOf(id, origin),
			Annotations: map[string]string{annotationResources: strconv.Itoa(len(hard)), annotationNamespace: string(guest.UID)},
		},
		Spec: corev1.ResourceQuotaSpec{Hard: hard},
	}
}

// grants are the rights of consumers that not every agent may give, or not at any time.
type grants struct{ services, claims, metrics, ephemeral bool }

// roleFor is what a consumer may do in one of its namespaces. Whoever writes it has
// to have these rights too, or the verb escalate on roles: an agent whose own rights are of
// before there were Services, claims, metrics or ephemeral containers of guests gives none.
func roleFor(namespace string, id peer.ClusterID, g grants) *rbacv1.Role {
	all := []string{"get", "list", "watch", "create", "patch", "delete"}
	role := &rbacv1.Role{
		TypeMeta:   metav1.TypeMeta{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "Role"},
		ObjectMeta: metav1.ObjectMeta{Name: RoleName, Namespace: namespace, Labels: labels(id)},
		Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"pods", resourceConfigMaps, resourceSecrets}, Verbs: all},
			{APIGroups: []string{""}, Resources: []string{"pods/log"}, Verbs: []string{"get"}},
			{APIGroups: []string{""}, Resources: []string{"pods/exec", "pods/attach", "pods/portforward"}, Verbs: []string{"get", "create"}},
			{APIGroups: []string{""}, Resources: []string{"events"}, Verbs: []string{"get", "list", "watch"}},
		},
	}
	if g.ephemeral {
		role.Rules = append(role.Rules, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods/ephemeralcontainers"}, Verbs: []string{"patch"}})
	}
	if g.services {
		role.Rules = append(role.Rules,
			rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{resourceServices}, Verbs: all},
			rbacv1.PolicyRule{APIGroups: []string{"discovery.k8s.io"}, Resources: []string{resourceSlices}, Verbs: all})
	}
	if g.claims {
		role.Rules = append(role.Rules, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{resourceClaims}, Verbs: all})
	}
	if g.metrics {
		role.Rules = append(role.Rules, rbacv1.PolicyRule{APIGroups: []string{metricsGroup}, Resources: []string{"pods"}, Verbs: []string{"list"}})
	}
	return role
}

// bindingFor gives a consumer its Role.
func bindingFor(namespace string, id peer.ClusterID, users []string) *rbacv1.RoleBinding {
	var subjects []rbacv1.Subject
	for _, user := range users {
		subjects = append(subjects, rbacv1.Subject{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: user})
	}
	return &rbacv1.RoleBinding{
		TypeMeta:   metav1.TypeMeta{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "RoleBinding"},
		ObjectMeta: metav1.ObjectMeta{Name: RoleName, Namespace: namespace, Labels: labels(id)},
		Subjects:   subjects,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: RoleName},
	}
}

// sameQuota is whether a quota is as it is to be. What others added to it only
// makes it tighter, and stays; what we once asked for must not.
func sameQuota(found, wanted *corev1.ResourceQuota) bool {
	for name, q := range wanted.Spec.Hard {
		if has, there := found.Spec.Hard[name]; !there || has.Cmp(q) != 0 {
			return false
		}
	}
	return covers(found.Labels, wanted.Labels) && covers(found.Annotations, wanted.Annotations)
}

// counted is whether the API server holds pods to what a quota says now.
func counted(quota *corev1.ResourceQuota) bool {
	for name, q := range quota.Spec.Hard {
		hard, known := quota.Status.Hard[name]
		if _, counted := quota.Status.Used[name]; !known || !counted || hard.Cmp(q) != 0 {
			return false
		}
	}
	return true
}

func sameRole(found, wanted *rbacv1.Role) bool {
	return covers(found.Labels, wanted.Labels) && reflect.DeepEqual(found.Rules, wanted.Rules)
}

func sameBinding(found, wanted *rbacv1.RoleBinding) bool {
	return covers(found.Labels, wanted.Labels) && reflect.DeepEqual(found.Subjects, wanted.Subjects) && found.RoleRef == wanted.RoleRef
}

// covers is whether found has everything of wanted.
func covers(found, wanted map[string]string) bool {
	for key, value := range wanted {
		if has, there := found[key]; !there || has != value {
			return false
		}
	}
	return true
}
