package integration

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"liqo.io/agent/internal/bed"
	"liqo.io/agent/internal/bed/bedtest"
	"liqo.io/agent/sharing/spec"
	"liqo.io/agent/sharing/vnode"
)

const podsPath = "/api/v1/namespaces/%s/pods/%s"

const (
	// grace is after how long the node lifecycle controller takes a node for dead.
	grace = 8 * time.Second
	// heartbeat is how often a Lease is renewed: many times within that, on a busy machine, too.
	heartbeat = time.Second
)

// fakeOffload does what sharing/offload does for the pods on the virtual node: it says
// that they run, and deletes those that are to end. It keeps the host's own node
// alive, too.
func fakeOffload(t *testing.T, k *bed.Kube) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	do := func(method, path, contentType, body string) error {
		_, err := k.Request(ctx, method, path, contentType, []byte(body))
		return err
	}
	every := func(span time.Duration, do func()) {
		running.Go(func() {
			for ctx.Err() == nil {
				do()
				select {
				case <-ctx.Done():
				case <-time.After(span):
				}
			}
		})
	}
	every(2*time.Second, func() {
		now := time.Now().UTC().Format("2006-01-02T15:04:05.000000Z07:00")
		if do("PATCH", leasesPath+"box", merge, `{"spec":{"renewTime":"`+now+`"}}`) != nil {
			_ = do("POST", strings.TrimSuffix(leasesPath, "/"), jsonMIME, `{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"box"},"spec":{"holderIdentity":"box","leaseDurationSeconds":40}}`)
		}
	})
	every(200*time.Millisecond, func() {
		pods, err := get[corev1.PodList](t, k, "/api/v1/pods?fieldSelector=spec.nodeName="+barnNode)
		if err != nil {
			return // the test is over, or the API server is not there at the moment
		}
		for _, p := range pods.Items {
			path := fmt.Sprintf(podsPath, p.Namespace, p.Name)
			switch {
			case p.DeletionTimestamp != nil:
				_ = do("DELETE", path, jsonMIME, `{"gracePeriodSeconds":0,"preconditions":{"uid":"`+string(p.UID)+`"}}`)
			case p.Status.Phase != corev1.PodRunning:
				_ = do("PATCH", path+"/status", strategic, `{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}`)
			}
		}
	})
}

// workloads are a namespace that is enabled, one that is not, and a budget for what
// runs in the former.
const workloads = `
{apiVersion: v1, kind: Namespace, metadata: {name: shop, labels: {liqo.io/enabled: "true"}}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: plain}}
---
{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: one, namespace: shop}, spec: {minAvailable: 1, selector: {matchLabels: {app: one}}}}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: daemon, namespace: shop}
spec:
  selector: {matchLabels: {app: daemon}}
  template: {metadata: {labels: {app: daemon}}, spec: {containers: [{name: c, image: i}]}}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: everywhere, namespace: shop}
spec:
  selector: {matchLabels: {app: everywhere}}
  template: {metadata: {labels: {app: everywhere}}, spec: {tolerations: [{operator: Exists}], containers: [{name: c, image: i}]}}
`

// claims are pods with claims of a class such as K3s', of which a claim is made when its
// first pod has a node.
const claims = `
{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: local-path}, provisioner: rancher.io/local-path, volumeBindingMode: WaitForFirstConsumer}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: base, namespace: shop}
spec:
  serviceName: base
  selector: {matchLabels: {app: base}}
  template:
    metadata: {labels: {app: base}}
    spec: {nodeSelector: {liqo.io/type: virtual-node}, containers: [{name: c, image: i}]}
  volumeClaimTemplates:
  - metadata: {name: data}
    spec: {storageClassName: local-path, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
---
apiVersion: v1
kind: Pod
metadata: {name: scratch, namespace: shop}
spec:
  nodeSelector: {liqo.io/type: virtual-node}
  containers: [{name: c, image: i}]
  volumes:
  - name: data
    ephemeral:
      volumeClaimTemplate: {spec: {storageClassName: local-path, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}
`

func podText(namespace, name string) string {
	return `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"` + name + `","namespace":"` + namespace + `","labels":{"app":"` + name + `"}},
		"spec":{"nodeSelector":{"liqo.io/type":"virtual-node"},"containers":[{"name":"c","image":"i","resources":{"requests":{"cpu":"1"}}}]}}`
}

// TestPods: which pods get onto the node, how long it counts as alive, and how it is
// drained.
func TestPods(t *testing.T) {
	k := bed.New(t).AddCluster(t.Context(), "box", "10.77.0.1/24")
	if err := k.StartControllersWith(t.Context(), bed.ControllerConfig{NodeLifecycle: true, GracePeriod: grace}); err != nil {
		t.Fatal(err)
	}
	fakeOffload(t, k)
	r := runNodes(t, k, nil)
	p := wantedProvider(providerID)
	first := r.ready(t, k, p)
	began := time.Now()
	before, _ := r.Leases()

	bedtest.Within(t, "workloads", func() error { return k.Apply(t.Context(), workloads) })
	// The API server acts upon a new policy after a moment.
	bedtest.Within(t, "policy", func() error {
		out, err := k.Request(t.Context(), "POST", "/api/v1/namespaces/shop/pods?dryRun=All", jsonMIME, []byte(podText("shop", "try")))
		if err == nil && !strings.Contains(string(out), "virtual-node.liqo.io/not-allowed") {
			err = errors.New("no toleration")
		}
		return err
	})
	t.Logf("the policy is in force after %v", time.Since(began))
	bedtest.Within(t, "the service account of the other namespace", func() error {
		_, err := k.Request(t.Context(), "GET", "/api/v1/namespaces/plain/serviceaccounts/default", "", nil)
		return err
	})
	for _, pod := range [][2]string{{"shop", "one"}, {"shop", "two"}, {"plain", "one"}} {
		request(t, k, "POST", fmt.Sprintf("/api/v1/namespaces/%s/pods", pod[0]), jsonMIME, podText(pod[0], pod[1]))
	}
	pod := func(namespace, name string) (corev1.Pod, error) {
		return get[corev1.Pod](t, k, fmt.Sprintf(podsPath, namespace, name))
	}
	for _, name := range []string{"one", "two"} {
		bedtest.Within(t, "pod of the enabled namespace", func() error {
			p, err := pod("shop", name)
			if err == nil && (p.Spec.NodeName != barnNode || p.Status.Phase != corev1.PodRunning) {
				err = fmt.Errorf("it is on %q: %+v", p.Spec.NodeName, p.Status)
			}
			return err
		})
	}
	bedtest.Within(t, "pod of the other namespace", func() error {
		p, err := pod("plain", "one")
		if err == nil && (p.Spec.NodeName != "" || !strings.Contains(fmt.Sprint(p.Status.Conditions), "untolerated taint")) {
			err = fmt.Errorf("%+v", p.Status)
		}
		return err
	})
	// Nor does a claim get there, which would be made on the node of its first pod.
	bedtest.Within(t, "claims", func() error { return k.Apply(t.Context(), claims) })
	for _, name := range []string{"base-0", "scratch"} {
		bedtest.Within(t, "pod with a claim", func() error {
			p, err := pod("shop", name)
			if err == nil && (p.Spec.NodeName != "" || !strings.Contains(fmt.Sprint(p.Status.Conditions), "untolerated taint")) {
				err = fmt.Errorf("it is on %q: %+v", p.Spec.NodeName, p.Status)
			}
			return err
		})
	}
	list, err := get[corev1.PersistentVolumeClaimList](t, k, "/api/v1/namespaces/shop/persistentvolumeclaims")
	if err != nil || len(list.Items) != 2 {
		t.Errorf("%d claims, %v", len(list.Items), err)
	}
	for _, c := range list.Items {
		if node := c.Annotations["volume.kubernetes.io/selected-node"]; node != "" {
			t.Errorf("claim %s is to be made on %s", c.Name, node)
		}
	}
	// A DaemonSet that tolerates everything has its pod there; any other has none.
	bedtest.Within(t, "DaemonSets", func() error {
		pods, err := get[corev1.PodList](t, k, "/api/v1/pods?fieldSelector=spec.nodeName="+barnNode)
		if err != nil {
			return err
		}
		var names []string
		for _, p := range pods.Items {
			names = append(names, p.Labels["app"])
		}
		if got := strings.Join(names, " "); !strings.Contains(got, "everywhere") || len(names) != 3 {
			return errors.New(got)
		}
		return nil
	})
	bedtest.Within(t, "count of pods", func() error {
		if s := r.Set(p); s.Pods != 3 || !s.Ready {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})

	// The Lease alone keeps the node alive: nothing happens for longer than the grace
	// period. One that was renewed late, because the API server was busy, proves nothing, and the node
	// is looked at for another such time.
	for {
		time.Sleep(time.Until(began.Add(grace + grace/2)))
		n, err := getNode(t, k, barnNode)
		if err == nil && readyCondition(n).Status == corev1.ConditionTrue && readyCondition(n).LastTransitionTime.Time.Equal(readyCondition(first).LastTransitionTime.Time) {
			break
		}
		renewed, _ := r.Leases()
		// The others came at least a heartbeat apart, so the longest time without one is no longer than this.
		if pause := time.Since(began) - time.Duration(renewed-before)*heartbeat + 2*heartbeat; pause < grace*3/4 {
			t.Errorf("after the grace period, with %d renewals: %v %+v, ready before since %v", renewed-before, err, n, readyCondition(first).LastTransitionTime.Time)
			break
		}
		first = r.ready(t, k, p)
		began = time.Now()
		before, _ = r.Leases()
	}
	// Without an agent it is dead, and with one again alive.
	r.stop()
	bedtest.Within(t, "dead node", func() error {
		n, err := getNode(t, k, barnNode)
		if err == nil && readyCondition(n).Status != corev1.ConditionUnknown {
			err = errors.New(string(readyCondition(n).Status))
		}
		return err
	})
	r = runNodes(t, k, nil)
	r.ready(t, k, p)

	// A budget holds the drain up, also over a restart of the agent, and for as long as
	// it may.
	drain := p
	drain.Wanted, drain.Offer = false, nil
	held := func() error {
		s := r.Set(drain)
		if !s.Busy || s.Reason != vnode.ReasonDraining || !strings.Contains(s.Message, "shop/one") || !strings.Contains(s.Message, "disruption budget one") {
			return fmt.Errorf("%+v", s)
		}
		return nil
	}
	bedtest.Within(t, "budget", held)
	awaitGone(t, k, fmt.Sprintf(podsPath, "shop", "two"))
	if n, err := getNode(t, k, barnNode); err != nil || !n.Spec.Unschedulable {
		t.Errorf("%v %+v", err, n)
	}
	if nodes := r.Nodes.Nodes(); len(nodes) != 1 || nodes[0].Accepting {
		t.Errorf("%+v", nodes)
	}
	r.stop()
	timeout := time.Hour
	var mu sync.Mutex
	r = runNodes(t, k, func(c *vnode.Config) {
		c.Settings = func() vnode.Settings {
			mu.Lock()
			defer mu.Unlock()
			return vnode.Settings{Heartbeat: heartbeat, DrainTimeout: timeout}
		}
	})
	bedtest.Within(t, "budget after a restart", held)
	if one, err := pod("shop", "one"); err != nil || one.DeletionTimestamp != nil {
		t.Errorf("the budget was passed over: %v %+v", err, one)
	}
	mu.Lock()
	timeout = 0
	mu.Unlock()
	told := time.Now()
	r.Touch()
	awaitGone(t, k, nodesPath+barnNode)
	if took := time.Since(told); took >= time.Minute {
		t.Errorf("the node went after %v, as if its pods had not ended", took)
	}
	bedtest.Within(t, "nothing left", func() error {
		if s := r.Set(drain); s != (spec.NodeStatus{}) {
			return fmt.Errorf("%+v", s)
		}
		return gone(t, k, fmt.Sprintf(podsPath, "shop", "one"))
	})
}
