package integration

import (
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"liqo.io/agent/internal/bed"
	"liqo.io/agent/internal/bed/bedtest"
	"liqo.io/agent/kube"
	"liqo.io/agent/sharing/host"
	"liqo.io/agent/sharing/spec"
)

func TestHost(t *testing.T) {
	t.Parallel()
	k := startHostKube(t)
	// One after the other, before the rest: a second Host would repair what these break, too.
	for _, test := range []struct {
		name string
		run  func(*testing.T, *bed.Kube)
	}{{"lost labels", attackLostLabels}, {"copied quota", attackCopiedQuota}, {"retention", testRetention}} {
		t.Run(test.name, func(t *testing.T) { test.run(t, k) })
	}
	// Each has a Host of its own, which is told nothing of the others' consumers.
	for name, test := range map[string]func(*testing.T, *bed.Kube){
		"namespaces": testNamespaces, "isolation": testIsolation, "quota": testQuota, "eviction": testEviction,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, k)
		})
	}
}

// testNamespaces has namespaces made, kept and given back.
func testNamespaces(t *testing.T, k *bed.Kube) {
	root := admin(t, k)
	r := startHost(t, k)
	if err := refusedWith(second(r.Namespace(t.Context(), barn, "shop")), host.ReasonNotReady); err != nil {
		t.Errorf("somebody whom consumer(1) spoke of: %v", err)
	}
	r.Set(tenancy(barn, smallOffer()))
	r.Set(tenancy(cellar, smallOffer()))
	// The obvious name of one of them is somebody else's.
	taken := object{"apiVersion": "v1", "kind": "Namespace", "metadata": object{"name": "liqo-0558de48-taken"}}
	must(t, root.Create(t.Context(), "/api/v1/namespaces", taken, nil))

	began := time.Now()
	shop := r.namespace(t, barn, "shop")
	t.Logf("a namespace took %v", time.Since(began))
	if shop != "liqo-0558de48-shop" {
		t.Errorf("it is called %s", shop)
	}
	began = time.Now()
	other := r.namespace(t, cellar, "shop")
	t.Logf("another took %v", time.Since(began))
	if other == shop {
		t.Error("two consumers have the same namespace")
	}
	if name := r.namespace(t, barn, "taken"); name == "liqo-0558de48-taken" {
		t.Error("somebody's namespace was taken over")
	}
	if r.Owns(barn, other) == nil || r.Owns(cellar, shop) == nil || r.Owns(barn, "liqo-0558de48-taken") == nil || r.Owns(barn, "kube-system") == nil || r.Owns(consumer(9), shop) == nil || r.Owns(barn, shop) != nil {
		t.Error("it is not clear who owns what")
	}
	// A pod can be created at once.
	must(t, asConsumer(t, k, barn).Create(t.Context(), namespaces+shop+"/pods", hostPod(shop, "web", object{"cpu": "100m", "memory": "1Mi"}), nil))
	if err := asConsumer(t, k, barn).Create(t.Context(), namespaces+shop+"/pods", object{
		"apiVersion": "v1", "kind": "Pod", "metadata": object{"name": "root"},
		"spec": object{"hostNetwork": true, "containers": []any{object{"name": "main", "image": "example.com/main:1", "resources": object{"requests": object{"cpu": "1m", "memory": "1Mi"}}}}},
	}, nil); err == nil {
		t.Error("a pod on the network of its node was let in")
	}
	bedtest.Within(t, "everything is settled", func() error {
		if stands := r.Set(tenancy(barn, smallOffer())); stands.Namespaces != 2 || !stands.Busy {
			return fmt.Errorf("it stands %+v", stands)
		}
		return nil
	})

	// Nothing is written again.
	r.taken(barn, cellar)
	r.Set(tenancy(barn, smallOffer()))
	if again := r.namespace(t, barn, "shop"); again != shop {
		t.Errorf("it is called %s now", again)
	}
	r.Set(tenancy(barn, map[string]string{"cpu": "2000m", "memory": "2048Mi", "pods": "10"}))
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			if name, err := r.Namespace(t.Context(), barn, "shop"); name != shop || err != nil {
				t.Errorf("at the same time: %q, %v", name, err)
			}
		})
	}
	group.Wait()
	if writes := r.taken(barn, cellar); len(writes) > 0 {
		t.Errorf("written without a change: %q", writes)
	}
	// Nor by one that was started again.
	r.stop()
	again := startHost(t, k)
	if stands := again.Set(tenancy(barn, smallOffer())); !stands.Busy {
		t.Errorf("before anything is known it stands %+v", stands)
	}
	again.Set(tenancy(cellar, smallOffer()))
	if name := again.namespace(t, barn, "shop"); name != shop {
		t.Errorf("after a restart it is called %s", name)
	}
	again.namespace(t, cellar, "shop")
	if writes := again.taken(barn, cellar); len(writes) > 0 {
		t.Errorf("written after a restart: %q", writes)
	}
	t.Run("repaired", func(t *testing.T) { repaired(t, again, root, shop) })
	t.Run("limits", func(t *testing.T) {
		for _, origin := range []string{"", "Shop", "../kube-system", "a.b", "kube-system/", string(make([]byte, 64))} {
			if err := refusedWith(second(again.Namespace(t.Context(), barn, origin)), host.ReasonBadName); err != nil {
				t.Errorf("%q: %v", origin, err)
			}
		}
		again.set(func(s *host.Settings) { s.MaxNamespaces = 3 })
		again.namespace(t, barn, "kube-system")
		if err := refusedWith(second(again.Namespace(t.Context(), barn, "fourth")), host.ReasonTooManyNamespaces); err != nil {
			t.Error(err)
		}
		again.set(func(s *host.Settings) { s.MaxNamespaces = 8 })
		again.Set(spec.Tenant{ID: consumer(1), Admitted: true})
		if err := refusedWith(second(again.Namespace(t.Context(), consumer(1), "shop")), host.ReasonNothingOffered); err != nil {
			t.Error(err)
		}
		// One that is let in no more and has nothing here is forgotten, sooner or later.
		again.Set(spec.Tenant{ID: consumer(1)})
		_, err := again.Namespace(t.Context(), consumer(1), "shop")
		if no := refusedWith(err, host.ReasonNotAdmitted); no != nil && refusedWith(err, host.ReasonNotReady) != nil {
			t.Error(no)
		}
	})
	t.Run("deleted", func(t *testing.T) { deleted(t, again, root, shop) })
	if troubles := again.log.Lines(slog.LevelWarn); len(troubles) > 0 {
		t.Errorf("logged: %q", troubles)
	}
	again.stop()
}

func second(_ string, err error) error { return err }

// repaired has people change what is not theirs. What else makes a quota or a policy another one is in TestQuotaFor and TestSamePolicy
// of sharing/host.
func repaired(t *testing.T, r *runningHost, root *kube.Client, shop string) {
	quota, role, binding := namespaces+shop+"/resourcequotas/"+host.QuotaName, rbac+shop+"/roles/"+host.RoleName, rbac+shop+"/rolebindings/"+host.RoleName
	policy := networking + shop + "/networkpolicies/" + host.PolicyName
	merge := func(path, patch string) func() error {
		return func() error {
			return root.Patch(t.Context(), path, "somebody", types.MergePatchType, []byte(patch), nil)
		}
	}
	remove := func(path string) func() error {
		return func() error { return root.Delete(t.Context(), path, metav1.DeleteOptions{}) }
	}
	for _, test := range []struct {
		name   string
		break_ func() error
		path   string
		fields []string
		want   string
	}{
		{"quota deleted", remove(quota), quota, []string{"spec", "hard", "requests.cpu"}, "2"},
		{"quota raised", merge(quota, `{"spec":{"hard":{"requests.cpu":"200"}}}`), quota, []string{"spec", "hard", "requests.cpu"}, "2"},
		{"label of the quota", merge(quota, `{"metadata":{"labels":null}}`), quota, []string{"metadata", "labels", "liqo.io/origin-cluster-id"}, string(barn)},
		{"policy deleted", remove(policy), policy, []string{"spec", "policyTypes"}, "Egress"},
		{"everything allowed", merge(policy, `{"spec":{"egress":[{}]}}`), policy, []string{"spec", "egress"}, "10.0.0.0/8"},
		{"label of the policy", merge(policy, `{"metadata":{"labels":null}}`), policy, []string{"metadata", "labels", "liqo.io/origin-cluster-id"}, string(barn)},
		{"role deleted", remove(role), role, []string{"metadata", "name"}, host.RoleName},
		{"rights added", merge(role, `{"rules":[{"apiGroups":["*"],"resources":["*"],"verbs":["*"]}]}`), role, []string{"rules"}, "pods/log"},
		{"binding deleted", remove(binding), binding, []string{"roleRef", "name"}, host.RoleName},
		{"rights given away", merge(binding, `{"subjects":[{"kind":"User","apiGroup":"rbac.authorization.k8s.io","name":"somebody"}]}`), binding, []string{"subjects"}, "system:serviceaccount:liqo:liqo-peer-" + string(barn)},
		{"other rights", func() error {
			if err := root.Delete(t.Context(), binding, metav1.DeleteOptions{}); err != nil {
				return err
			}
			return root.Create(t.Context(), rbac+shop+"/rolebindings", object{
				"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": object{"name": host.RoleName},
				"roleRef": object{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
			}, nil)
		}, binding, []string{"roleRef", "name"}, host.RoleName},
		{"pod security", merge(namespaces+shop, `{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"privileged"}}}`), namespaces + shop, []string{"metadata", "labels", "pod-security.kubernetes.io/enforce"}, "baseline"},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := test.break_()
			if err != nil && test.name != "other rights" { // it may be repaired before
				t.Fatal(err)
			}
			bedtest.Within(t, test.path, func() error {
				found := object{}
				if err := root.Get(t.Context(), test.path, &found); err != nil {
					return err
				}
				if got := fmt.Sprint(pick(found, test.fields...)); !strings.Contains(got, test.want) {
					return fmt.Errorf("%v is %s, want %s", test.fields, got, test.want)
				}
				return nil
			})
		})
	}
	t.Run("egress", func(t *testing.T) {
		for _, egress := range []string{host.EgressAll, host.EgressNone, host.EgressInternet} {
			r.set(func(s *host.Settings) { s.GuestEgress = egress })
			r.Set(tenancy(barn, smallOffer()))
			bedtest.Within(t, policy, func() error {
				found := object{}
				if err := root.Get(t.Context(), policy, &found); err != nil {
					return err
				}
				rules, _ := pick(found, "spec", "egress").([]any)
				if want := map[string]int{host.EgressAll: 1, host.EgressNone: 2, host.EgressInternet: 4}[egress]; len(rules) != want || (fmt.Sprint(rules) == "[map[]]") != (egress == host.EgressAll) {
					return fmt.Errorf("with %q the rules are %v", egress, rules)
				}
				return nil
			})
		}
	})
	t.Run("offer and settings", func(t *testing.T) {
		r.set(func(s *host.Settings) { s.Enforce, s.PodSecurity = "limits", "restricted" })
		r.Set(tenancy(barn, map[string]string{"cpu": "1500m", "memory": "1Gi", "pods": "5", "nvidia.com/gpu": "1"}))
		hard := func(want object, labels string) {
			t.Helper()
			bedtest.Within(t, quota, func() error {
				found := object{}
				if err := root.Get(t.Context(), quota, &found); err != nil {
					return err
				}
				for name, value := range want {
					if got := pick(found, "status", "hard", name); got != value {
						return fmt.Errorf("%s is %v, want %v", name, got, value)
					}
				}
				if err := root.Get(t.Context(), namespaces+shop, &found); err != nil {
					return err
				}
				if got := pick(found, "metadata", "labels", "pod-security.kubernetes.io/enforce"); got != labels {
					return fmt.Errorf("pod security is %v, want %s", got, labels)
				}
				return nil
			})
		}
		hard(object{"requests.cpu": "1500m", "limits.cpu": "1500m", "limits.memory": "1Gi", "pods": "5", "count/pods": "25", "requests.nvidia.com/gpu": "1"}, "restricted")
		must(t, merge(quota, `{"spec":{"hard":{"count/cronjobs.batch":"0"}}}`)())
		r.set(func(s *host.Settings) { s.Enforce, s.PodSecurity = "requests", "baseline" })
		r.Set(tenancy(barn, smallOffer()))
		hard(object{"requests.cpu": "2", "limits.cpu": nil, "pods": "10", "requests.nvidia.com/gpu": nil, "count/cronjobs.batch": "0"}, "baseline")
	})
}

// deleted has a namespace deleted by people, and by its consumer.
func deleted(t *testing.T, r *runningHost, root *kube.Client, shop string) {
	before := object{}
	must(t, root.Get(t.Context(), namespaces+shop, &before))
	must(t, root.Patch(t.Context(), namespaces+shop, "", types.MergePatchType, []byte(`{"metadata":{"finalizers":["example.com/hold"]}}`), nil))
	must(t, root.Delete(t.Context(), namespaces+shop, metav1.DeleteOptions{}))
	bedtest.Within(t, "it is known that the namespace is going", func() error {
		return refusedWith(second(r.Namespace(t.Context(), barn, "shop")), host.ReasonTerminating)
	})
	// The API server may have said that before the watch did, by which pods are judged.
	bedtest.Within(t, "a pod where everything goes", func() error {
		_, done, err := r.Pod(t.Context(), barn, shop, marshal(t, hostPod(shop, "late", nil)))
		if err == nil {
			done(nil)
		}
		return refusedWith(err, host.ReasonTerminating)
	})
	must(t, root.Patch(t.Context(), namespaces+shop, "", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), nil))
	bedtest.Within(t, "the namespace is made anew", func() error {
		name, err := r.Namespace(t.Context(), barn, "shop")
		if err == nil && name != shop {
			err = fmt.Errorf("it is called %s", name)
		}
		return err
	})
	after := object{}
	must(t, root.Get(t.Context(), namespaces+shop, &after))
	if pick(after, "metadata", "uid") == pick(before, "metadata", "uid") {
		t.Error("the old namespace came back")
	}
	must(t, r.Release(t.Context(), barn, "never-seen"))
	for range 2 { // whose error says to try again
		bedtest.Within(t, "the namespace is given back", func() error { return r.Release(t.Context(), barn, "shop") })
	}
	bedtest.Within(t, "the namespace is gone", func() error {
		found := object{}
		if err := root.Get(t.Context(), namespaces+shop, &found); err == nil {
			return fmt.Errorf("it is %v", pick(found, "status"))
		}
		return nil
	})
	if r.Owns(cellar, "liqo-0558de48-taken") == nil {
		t.Error("a namespace without labels belongs to somebody")
	}
	must(t, root.Get(t.Context(), namespaces+"liqo-0558de48-taken", nil))
}
