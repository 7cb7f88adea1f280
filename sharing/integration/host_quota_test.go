package integration

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/agent/internal/bed"
	"liqo.io/agent/internal/bed/bedtest"
	"liqo.io/agent/kube"
	"liqo.io/agent/peer"
	"liqo.io/agent/sharing/host"
	"liqo.io/agent/sharing/spec"
)

// guestPod is a document of a pod as a consumer's agent sends it.
func guestPod(namespace, name string, requests object) object {
	p := hostPod(namespace, name, requests)
	p["metadata"].(object)["annotations"] = object{"liqo.io/origin-uid": "uid-of-" + name}
	return p
}

// countPods returns how many pods are in a namespace.
func countPods(t *testing.T, root *kube.Client, namespace string) (n int) {
	t.Helper()
	var list struct{ Items []json.RawMessage }
	must(t, root.Get(t.Context(), namespaces+namespace+"/pods", &list))
	return len(list.Items)
}

// send lets a pod through as the gateway does.
func (r *runningHost) send(t *testing.T, me *kube.Client, id peer.ClusterID, namespace, name string, requests object) error {
	clean, done, err := r.Pod(t.Context(), id, namespace, marshal(t, guestPod(namespace, name, requests)))
	if err != nil {
		return err
	}
	var created json.RawMessage
	if err := me.Create(t.Context(), namespaces+namespace+"/pods", json.RawMessage(clean), &created); err != nil {
		done(nil)
		return err
	}
	done(created)
	return nil
}

// testQuota throws pods at the provider.
func testQuota(t *testing.T, k *bed.Kube) {
	barn := consumer(4)
	root, me := admin(t, k), asConsumer(t, k, barn)
	r := startHost(t, k)
	r.Set(tenancy(barn, smallOffer()))
	one, two := r.namespace(t, barn, "one"), r.namespace(t, barn, "two")
	asked := object{"cpu": "300m", "memory": "1Mi"} // 6 of them fit
	const tries = 40

	// Past the endpoint the ResourceQuota holds.
	flood := func(do func(i int) error) (let int) {
		var group sync.WaitGroup
		var mu sync.Mutex
		began := time.Now()
		for i := range tries {
			group.Go(func() {
				if do(i) == nil {
					mu.Lock()
					let++
					mu.Unlock()
				}
			})
		}
		group.Wait()
		t.Logf("%d of %d pods were let in within %v", let, tries, time.Since(began))
		return let
	}
	let := flood(func(i int) error {
		return me.Create(t.Context(), namespaces+one+"/pods", hostPod(one, fmt.Sprint("direct-", i), asked), nil)
	})
	// A request that the API server has carried out may have failed for its client, which waited too long.
	if n := countPods(t, root, one); let > n || n > 6 || n == 0 {
		t.Errorf("%d pods were let in by the quota, %d are there", let, n)
	}
	empty := func() {
		// One of those that failed for their clients may come later than the others are deleted, and the API server goes by what the
		// controller has counted.
		bedtest.Within(t, "the pods are gone, and counted no more", func() error {
			for _, namespace := range []string{one, two} {
				if err := root.Delete(t.Context(), namespaces+namespace+"/pods", metav1.DeleteOptions{}); err != nil {
					return err // as when etcd stands still for a while
				}
				n := countPods(t, root, namespace)
				quota, err := get[object](t, k, namespaces+namespace+"/resourcequotas/"+host.QuotaName)
				if used := pick(quota, "status", "used"); err != nil || n > 0 || pick(used, "pods") != "0" || pick(used, "requests.cpu") != "0" {
					return fmt.Errorf("%d are left in %s, counted are %v, %w", n, namespace, used, err)
				}
			}
			if stands := r.Set(tenancy(barn, smallOffer())); stands.Pods > 0 {
				return fmt.Errorf("it stands %+v", stands)
			}
			return nil
		})
	}
	empty()

	// Through the endpoint, over both namespaces together. Whose request failed because it took too long gives the room back,
	// though the API server may have carried it out: once more, then.
	for late := 1; late > 0; {
		must(t, root.Create(t.Context(), namespaces+two+"/pods", hostPod(two, "local", object{"cpu": "0", "memory": "0"}), nil))
		var reasons sync.Map
		var slow atomic.Int32
		let = flood(func(i int) error {
			err := r.send(t, me, barn, []string{one, two}[i%2], fmt.Sprint("pod-", i), asked)
			var refused *host.Refused
			switch {
			case errors.As(err, &refused):
				reasons.Store(refused.Reason, refused.Message)
			case err != nil && tooSlow(err):
				slow.Add(1)
			case err != nil:
				reasons.Store(err.Error(), err.Error())
			}
			return err
		})
		late = int(slow.Load())
		if n := countPods(t, root, one) + countPods(t, root, two) - 1; let > n || n > 6+late || n < 6-late {
			t.Errorf("%d pods were let in, %d are there, want 6; %d requests took too long", let, n, late)
		}
		reasons.Range(func(reason, message any) bool {
			if reason != host.ReasonOfferUsedUp {
				t.Errorf("refused because of %s: %s", reason, message)
			}
			return true
		})
		if late > 0 {
			empty()
		}
	}
	bedtest.Within(t, "they are counted", func() error {
		if stands := r.Set(tenancy(barn, smallOffer())); stands.Pods != 6 || stands.Used["cpu"] != "1800m" {
			return fmt.Errorf("it stands %+v", stands)
		}
		return nil
	})
	// One that ended makes room, and so does one that is deleted.
	var list struct {
		Items []struct{ Metadata metav1.ObjectMeta }
	}
	must(t, root.Get(t.Context(), namespaces+one+"/pods", &list))
	if len(list.Items) == 0 {
		t.Fatal("all pods are in one namespace")
	}
	first := list.Items[0].Metadata.Name
	if err := refusedWith(r.send(t, me, barn, two, "more", asked), host.ReasonOfferUsedUp); err != nil {
		t.Error(err)
	}
	if err := r.send(t, me, barn, one, first, asked); err == nil || refusedWith(err, host.ReasonOfferUsedUp) == nil {
		t.Errorf("a pod that is there already: %v", orNil(err))
	}
	if err := refusedWith(r.send(t, me, barn, two, "gpu", object{"cpu": "1m", "memory": "1Mi", "nvidia.com/gpu": "1"}), host.ReasonNotOffered); err != nil {
		t.Error(err)
	}
	must(t, me.Delete(t.Context(), namespaces+one+"/pods/"+first, metav1.DeleteOptions{}))
	bedtest.Within(t, "there is room again", func() error { return r.send(t, me, barn, two, "more", asked) })

	// Objects.
	secret := object{"apiVersion": "v1", "kind": "Secret", "metadata": object{"name": "web", "annotations": object{"liqo.io/origin-uid": "uid"}}, "data": object{"a": "Yg=="}}
	clean, err := r.Object(barn, one, "secrets", "web", marshal(t, secret))
	must(t, err)
	must(t, me.Apply(t.Context(), namespaces+one+"/secrets/web", "liqo-agent", true, json.RawMessage(clean), nil))
	if kind, err := get[object](t, k, namespaces+one+"/secrets/web"); err != nil || pick(kind, "metadata", "labels", "liqo.io/origin-cluster-id") != string(barn) {
		t.Errorf("the secret is %v, %v", kind, err)
	}
	if _, kind, err := r.PodPatch(barn, two, "more", []byte(`{"metadata":{"labels":{"a":"b"}}}`)); err != nil || kind == "" {
		t.Errorf("a patch: %q, %v", kind, err)
	}
	r.Set(spec.Tenant{ID: barn})
	bedtest.Within(t, "everything is gone", func() error {
		if stands := r.Set(spec.Tenant{ID: barn}); stands.Busy || stands.Pods > 0 {
			return fmt.Errorf("it stands %+v", stands)
		}
		return nil
	})
	if troubles := r.log.Lines(slog.LevelWarn); len(troubles) > 0 {
		t.Errorf("logged: %q", troubles)
	}
}
