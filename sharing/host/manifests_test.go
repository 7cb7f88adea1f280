package host

import (
	"encoding/json"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/agent/peer"
)

const barn = peer.ClusterID("0558de48-097b-4b7d-ba04-6bd2a0f9d24f")

func TestQuotaFor(t *testing.T) {
	offer := quantities(map[string]string{"cpu": "2", "memory": "1Gi", "ephemeral-storage": "5Gi", "nvidia.com/gpu": "1", "hugepages-2Mi": "4Mi", "bad": "much", "worse": "-1"})
	for _, test := range []struct {
		enforce string
		want    map[corev1.ResourceName]string // "" for none
	}{
		{"requests", map[corev1.ResourceName]string{
			"requests.cpu": "2", "requests.memory": "1Gi", "requests.ephemeral-storage": "5Gi", "requests.nvidia.com/gpu": "1", "pods": "110", "count/pods": "550",
			"limits.cpu": "", "limits.memory": "", "hugepages-2Mi": "", "requests.hugepages-2Mi": "", "cpu": "",
			"services": "0", "services.nodeports": "0", "persistentvolumeclaims": "0", "count/secrets": "500", "count/configmaps": "501",
			"requests.bad": "0", "requests.worse": "0",
		}},
		{"limits", map[corev1.ResourceName]string{"requests.cpu": "2", "limits.cpu": "2", "limits.memory": "1Gi", "limits.ephemeral-storage": "", "limits.nvidia.com/gpu": ""}},
	} {
		quota := quotaFor(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ns", UID: "u"}}, barn, "shop", offer, Settings{Enforce: test.enforce}, false, false)
		for name, want := range test.want {
			q, there := quota.Spec.Hard[name]
			if (want != "") != there || there && q.String() != want {
				t.Errorf("%s: %s is %s, want %q", test.enforce, name, &q, want)
			}
		}
		same := func(what string, want bool, change func(*corev1.ResourceQuota)) {
			t.Helper()
			found := quota.DeepCopy()
			change(found)
			if sameQuota(found, quota) != want {
				t.Errorf("%s: %s: same is %t, want %t", test.enforce, what, !want, want)
			}
		}
		same("as it is", true, func(*corev1.ResourceQuota) {})
		same("tighter", true, func(q *corev1.ResourceQuota) { q.Spec.Hard["count/jobs.batch"] = amounts("x=0")["x"] })
		same("other notation", true, func(q *corev1.ResourceQuota) { q.Spec.Hard["requests.cpu"] = amounts("x=2000m")["x"] })
		same("other amount", false, func(q *corev1.ResourceQuota) { q.Spec.Hard["requests.cpu"] = amounts("x=2001m")["x"] })
		same("looser", false, func(q *corev1.ResourceQuota) { delete(q.Spec.Hard, "services") })
		same("that of another namespace", false, func(q *corev1.ResourceQuota) { q.Annotations[annotationNamespace] = "v" })
		same("one of ours too many", false, func(q *corev1.ResourceQuota) { q.Annotations[annotationResources] = "99" })
		same("no label", false, func(q *corev1.ResourceQuota) { q.Labels = nil })

		if counted(quota) {
			t.Error("a quota counts before it was counted")
		}
		quota.Status = corev1.ResourceQuotaStatus{Hard: quota.Spec.Hard.DeepCopy(), Used: quota.Spec.Hard.DeepCopy()}
		if !counted(quota) {
			t.Error("a quota that was counted does not count")
		}
		quota.Status.Hard["requests.cpu"] = amounts("x=3")["x"]
		if counted(quota) {
			t.Error("an old quota counts")
		}
	}
}

func TestSameRoleAndBinding(t *testing.T) {
	role, binding := roleFor("ns", barn, grants{services: true, metrics: true}), bindingFor("ns", barn, []string{"user"})
	for name, change := range map[string]func(*rbacv1.Role){
		"more":     func(r *rbacv1.Role) { r.Rules[0].Verbs = append(r.Rules[0].Verbs, "deletecollection") },
		"less":     func(r *rbacv1.Role) { r.Rules = r.Rules[1:] },
		"no label": func(r *rbacv1.Role) { r.Labels = nil },
	} {
		other := role.DeepCopy()
		change(other)
		if sameRole(other, role) || !sameRole(role.DeepCopy(), role) {
			t.Errorf("%s makes no difference", name)
		}
	}
	for name, change := range map[string]func(*rbacv1.RoleBinding){
		"more":     func(b *rbacv1.RoleBinding) { b.Subjects = append(b.Subjects, b.Subjects[0]) },
		"other":    func(b *rbacv1.RoleBinding) { b.RoleRef.Kind = "ClusterRole" },
		"no label": func(b *rbacv1.RoleBinding) { b.Labels = nil },
	} {
		other := binding.DeepCopy()
		change(other)
		if sameBinding(other, binding) || !sameBinding(binding.DeepCopy(), binding) {
			t.Errorf("%s makes no difference", name)
		}
	}
}

// TestWeigh: who has a limit and says nothing asks for that, as for the API server.
func TestWeigh(t *testing.T) {
	var p guestPod
	text := `{"metadata":{"name":"web","namespace":"ns","uid":"u","labels":{"liqo.io/origin-cluster-id":"a","b":"c"},"managedFields":[{}]},
		"spec":{"terminationGracePeriodSeconds":77,"containers":[
			{"name":"a","resources":{"limits":{"cpu":"2","nvidia.com/gpu":"1"},"requests":{"cpu":"1"}}},
			{"name":"b","resources":{"limits":{"memory":"1Gi"}}}]}}`
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		t.Fatal(err)
	}
	p.weigh()
	want := amounts("cpu=1 memory=1Gi nvidia.com/gpu=1 pods=1 limits.cpu=2 limits.memory=1Gi")
	if !sameAmounts(p.amounts, want) || p.grace != 77 || p.size == 0 || p.Spec != nil || len(p.Labels) != 1 || p.ManagedFields != nil {
		t.Errorf("it is %+v", p)
	}
	before := p.amounts
	p.weigh()
	if !sameAmounts(p.amounts, before) || p.size == 0 {
		t.Error("weighed twice it weighs something else")
	}
}
