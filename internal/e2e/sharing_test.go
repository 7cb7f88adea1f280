//go:build linux

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/agent/api"
	"liqo.io/agent/internal/bed"
	"liqo.io/agent/kube/conn"
	"liqo.io/agent/peer"
	"liqo.io/agent/sharing/workload"
)

// list reads the objects of a collection.
func list[T any](x *box, path string) ([]T, error) {
	ctx, cancel := context.WithTimeout(x.t.Context(), soon)
	defer cancel()
	body, err := x.kube.Request(ctx, "GET", path, "", nil)
	if err != nil {
		return nil, err
	}
	var out struct{ Items []T }
	return out.Items, json.Unmarshal(body, &out)
}

// apply applies YAML with kubectl.
func (x *box) apply(yaml string) {
	x.t.Helper()
	ctx, cancel := context.WithTimeout(x.t.Context(), soon)
	defer cancel()
	if err := x.kube.Apply(ctx, yaml); err != nil {
		x.t.Fatalf("%s: %v", x.host.Name, err)
	}
}

// staff has whole clusters on the boxes: controllers, a scheduler, and a kubelet
// without containers.
func staff(t *testing.T, boxes ...*box) {
	t.Helper()
	errs := make([]error, len(boxes))
	var group sync.WaitGroup
	for i, x := range boxes {
		group.Go(func() { errs[i] = errors.Join(x.kube.StartKwok(t.Context()), x.kube.StartControllers(t.Context())) })
	}
	group.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// newSharingPair is a pair of whole clusters that is joined, with the namespace
// "shop" of A opted in, and waits for the node.
func newSharingPair(t *testing.T, more string) *pair {
	t.Helper()
	return newPair(t, more).staffed(t)
}

// staffed makes the clusters whole ones, and has them share.
func (p *pair) staffed(t *testing.T) *pair {
	t.Helper()
	staff(t, p.a, p.b)
	p.dump()
	p.share()
	return p
}

// share joins the pair, waits for the node, and opts the namespace "shop" of A in.
func (p *pair) share(connect ...string) {
	p.a.t.Helper()
	p.join(connect...)
	p.a.awaitNode(p.b.asNode(), true)
	p.a.apply("apiVersion: v1\nkind: Namespace\nmetadata: {name: shop, labels: {liqo.io/enabled: \"true\"}}\n")
	p.a.tolerates()
}

// asNode is what the node is called that stands for a box.
func (x *box) asNode() string { return "liqo-" + x.host.Name }

// node is a virtual node, nil when there is none.
func (x *box) node(name string) (*corev1.Node, error) {
	node, found, err := get[corev1.Node](x, "/api/v1/nodes/"+name)
	if err != nil || !found {
		return nil, err
	}
	return &node, nil
}

func ready(node *corev1.Node) bool {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// awaitNode waits until a provider's node is there, and ready or not.
func (x *box) awaitNode(name string, want bool) *corev1.Node {
	x.t.Helper()
	var node *corev1.Node
	x.eventually(fmt.Sprintf("node %s ready: %v", name, want), func() (err error) {
		node, err = x.node(name)
		if err == nil && node == nil {
			err = errors.New("there is no such node")
		}
		if err == nil && ready(node) != want {
			err = fmt.Errorf("conditions %+v", node.Status.Conditions)
		}
		return err
	})
	return node
}

// events are the Events about a pod of shop, each with its type, reason and message on a line.
func (x *box) events(pod string) (string, error) {
	found, err := list[corev1.Event](x, "/api/v1/namespaces/shop/events?fieldSelector=involvedObject.name%3D"+pod)
	var out strings.Builder
	for _, e := range found {
		fmt.Fprintf(&out, "%s %s: %s\n", e.Type, e.Reason, e.Message)
	}
	return out.String(), err
}

// guests are the pods of a consumer at a provider.
func (x *box) guests(consumer string) ([]corev1.Pod, error) {
	return list[corev1.Pod](x, "/api/v1/pods?labelSelector="+workload.LabelOriginCluster+"%3D"+consumer)
}

// pods are the pods of namespace shop.
func (x *box) pods() ([]corev1.Pod, error) {
	return list[corev1.Pod](x, "/api/v1/namespaces/shop/pods")
}

// deployment is one in namespace shop whose pods spread over all nodes, or run on
// one only.
func deployment(name string, replicas int, node, more string) string {
	where := `topologySpreadConstraints: [{maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app: ` + name + `}}}]`
	if node != "" {
		where = "nodeSelector: {kubernetes.io/hostname: " + node + "}"
	}
	return fmt.Sprintf(`apiVersion: apps/v1
kind: Deployment
metadata: {name: %[1]s, namespace: shop}
spec:
  replicas: %[2]d
  selector: {matchLabels: {app: %[1]s}}
  template:
    metadata: {labels: {app: %[1]s}}
    spec:
      terminationGracePeriodSeconds: 1
      %[3]s
      containers:
      - name: web
        image: web:1
        resources: {requests: {cpu: 10m, memory: 8Mi}}
%[4]s`, name, replicas, where, more)
}

// settled waits until a number of pods of shop are ready on a node of A, -1 for any,
// and each of them, and none else, is at the provider, once.
func (p *pair) settled(want int) []corev1.Pod {
	p.a.t.Helper()
	var mine []corev1.Pod
	p.a.eventually(fmt.Sprintf("%d pods on the neighbour, each there once", want), func() error {
		var err error
		mine, err = p.onNeighbour(want)
		return err
	})
	return mine
}

// onNeighbour checks what settled waits for.
func (p *pair) onNeighbour(want int) ([]corev1.Pod, error) {
	pods, err := p.a.pods()
	if err != nil {
		return nil, err
	}
	var mine []corev1.Pod
	byUID := make(map[string]corev1.Pod)
	for _, pod := range pods {
		if pod.Spec.NodeName != p.b.asNode() {
			continue
		}
		if pod.Status.Phase != corev1.PodRunning || pod.DeletionTimestamp != nil || !podReady(pod) {
			return nil, fmt.Errorf("pod %s is %s %s, deleted %v", pod.Name, pod.Status.Phase, pod.Status.Reason, pod.DeletionTimestamp)
		}
		mine = append(mine, pod)
		byUID[string(pod.UID)] = pod
	}
	theirs, err := p.b.guests(p.aID)
	if err != nil {
		return nil, err
	}
	if want >= 0 && len(mine) != want || len(theirs) != len(mine) {
		return nil, fmt.Errorf("%d pods on the node, %d at the provider, want %d", len(mine), len(theirs), want)
	}
	for _, pod := range theirs {
		origin, ok := byUID[pod.Annotations[workload.AnnotationOriginUID]]
		if !ok {
			return nil, fmt.Errorf("pod %s/%s of the provider stands for none, or for one that has another", pod.Namespace, pod.Name)
		}
		if origin.Name != pod.Name || origin.Status.HostIP != "" || !knownAs(pod.Status.PodIP, origin.Status.PodIP) {
			return nil, fmt.Errorf("pod %s with address %s stands for %s, which shows the addresses %s and %s", pod.Name, pod.Status.PodIP, origin.Name, origin.Status.PodIP, origin.Status.HostIP)
		}
		delete(byUID, string(origin.UID))
	}
	return mine, nil
}

func podReady(pod corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// uids are those of the provider's pods, by name.
func (p *pair) uids() map[string]string {
	p.a.t.Helper()
	theirs, err := p.b.guests(p.aID)
	if err != nil {
		p.a.t.Fatal(err)
	}
	out := make(map[string]string)
	for _, pod := range theirs {
		out[pod.Name] = string(pod.UID)
	}
	return out
}

// untouched fails the test unless the provider's pods are those that they were.
func (p *pair) untouched(before map[string]string) {
	p.a.t.Helper()
	now := p.uids()
	for name, uid := range before {
		if now[name] != uid {
			p.a.t.Errorf("pod %s of the provider is not the one that it was", name)
		}
	}
}

// A provider becomes a node, and what is scheduled there runs at the neighbour, from the first contact to the end, which takes
// most of the privileges that there are. The API servers cannot stream lists, like those before Kubernetes 1.34.
func TestSharing(t *testing.T) {
	t.Parallel() // waiting for controllers is most of it
	bd := bed.New(t)
	boxes := newBoxes(t, bd, "alder", "birch")
	startKubes(t, bd, []string{"--feature-gates=WatchList=false"}, boxes...)
	p := meet(bd, boxes, "[log]\nlevel = \"debug\"\n[sharing]\npercentage = 50\n").staffed(t)
	a, b := p.a, p.b
	for _, x := range boxes {
		x.uses(conn.AgentKubeconfig)
	}

	t.Run("the node", func(t *testing.T) {
		node := a.awaitNode(p.b.asNode(), true)
		offer, _, err := get[api.Advertisement](a, advPath+"/"+p.bID)
		if err != nil {
			t.Fatal(err)
		}
		for name, amount := range offer.Spec.ResourceQuota.Hard {
			if got := node.Status.Allocatable[corev1.ResourceName(name)]; got.String() != amount {
				t.Errorf("the node has %s of %s, offered is %s", got.String(), name, amount)
			}
		}
		if cpu := offer.Spec.ResourceQuota.Hard["cpu"]; cpu != "2" {
			t.Errorf("half of 4 CPUs is offered as %q", cpu)
		}
		table := a.kubectl("get", "nodes", "-l", "liqo.io/type=virtual-node")
		if !strings.Contains(table, p.b.asNode()) || !strings.Contains(table, "agent") || !strings.Contains(table, "v1.36.3") {
			t.Errorf("kubectl get nodes:\n%s", table)
		}
		a.eventually("the offer refers to the node", func() error {
			offer, _, err := get[api.Advertisement](a, advPath+"/"+p.bID)
			if ref := offer.Status.VnodeReference; err == nil && (ref == nil || ref.Name != p.b.asNode()) {
				err = fmt.Errorf("it refers to %+v", ref)
			}
			return err
		})
	})

	t.Run("only namespaces that opted in", func(t *testing.T) {
		a.kubectl("create", "namespace", "quiet")
		a.apply(strings.ReplaceAll(deployment("stays", 1, p.b.asNode(), ""), "namespace: shop", "namespace: quiet"))
		a.apply(deployment("home", 1, "alder", ""))
		a.eventually("the other is scheduled", func() error {
			pods, err := list[corev1.Pod](a, "/api/v1/namespaces/shop/pods?labelSelector=app%3Dhome")
			if err == nil && (len(pods) != 1 || pods[0].Spec.NodeName != "alder") {
				err = fmt.Errorf("%d pods", len(pods))
			}
			return err
		})
		// The scheduler has to have looked at it: one that was not made yet is on no node either.
		a.eventually("the pod of a namespace that did not opt in finds no node", func() error {
			pods, err := list[corev1.Pod](a, "/api/v1/namespaces/quiet/pods")
			if err != nil || len(pods) != 1 {
				return fmt.Errorf("%d pods, %v", len(pods), err)
			}
			for _, condition := range pods[0].Status.Conditions {
				if condition.Type == corev1.PodScheduled && condition.Reason == corev1.PodReasonUnschedulable {
					return nil
				}
			}
			return fmt.Errorf("it is on node %q with %+v", pods[0].Spec.NodeName, pods[0].Status.Conditions)
		})
		a.kubectl("delete", "namespace", "quiet", "--wait=false")
		a.kubectl("delete", "deployment", "-n", "shop", "home")
	})

	t.Run("a deployment spreads", func(t *testing.T) {
		a.kubectl("create", "configmap", "-n", "shop", "settings", "--from-literal=color=green")
		a.kubectl("create", "secret", "generic", "-n", "shop", "password", "--from-literal=word=sesame")
		a.apply(deployment("web", 6, "", `        env:
        - {name: COLOR, valueFrom: {configMapKeyRef: {name: settings, key: color}}}
        volumeMounts: [{name: password, mountPath: /secret}]
      volumes: [{name: password, secret: {secretName: password}}]
`))
		pods := p.settled(3)
		guest := "/api/v1/namespaces/" + workload.Namespace("liqo", peer.ClusterID(p.aID), "shop")
		secret, found, err := get[corev1.Secret](b, guest+"/secrets/password")
		if err != nil || !found || string(secret.Data["word"]) != "sesame" {
			t.Errorf("the secret at the provider: %v %v %v", secret, found, err)
		}
		for _, pod := range pods {
			if len(pod.Status.ContainerStatuses) != 1 || pod.Status.ContainerStatuses[0].State.Running == nil {
				t.Errorf("status of %s: %+v", pod.Name, pod.Status)
			}
		}
		// The containers are kwok's, who answers nothing.
		a.eventually("logs are asked for at the provider", func() error {
			_, err := a.kube.Request(t.Context(), "GET", "/api/v1/namespaces/shop/pods/"+pods[0].Name+"/log", "", nil)
			if err == nil || strings.Contains(err.Error(), "birch") || strings.Contains(err.Error(), b.addr.String()) {
				return nil
			}
			return err
		})
		a.kubectl("patch", "configmap", "-n", "shop", "settings", "--type", "merge", "-p", `{"data":{"color":"red"}}`)
		b.eventually("the change arrives", func() error {
			config, _, err := get[corev1.ConfigMap](b, guest+"/configmaps/settings")
			if err == nil && config.Data["color"] != "red" {
				err = fmt.Errorf("it has %v", config.Data)
			}
			return err
		})
	})

	t.Run("scale", func(t *testing.T) {
		a.kubectl("scale", "deployment", "-n", "shop", "web", "--replicas=20")
		p.settled(10)
		// Which of them go, the ReplicaSet decides.
		a.kubectl("scale", "deployment", "-n", "shop", "web", "--replicas=6")
		a.eventually("six are left", func() error {
			pods, err := a.pods()
			if err == nil && len(pods) != 6 {
				err = fmt.Errorf("%d pods", len(pods))
			}
			return err
		})
		p.settled(-1)
	})

	t.Run("rolling update", func(t *testing.T) {
		a.kubectl("set", "image", "-n", "shop", "deployment/web", "web=web:2")
		a.kubectl("rollout", "status", "-n", "shop", "deployment/web", "--timeout="+soon.String())
		a.eventually("only new pods are left", func() error {
			pods, err := b.guests(p.aID)
			for _, pod := range pods {
				if pod.Spec.Containers[0].Image != "web:2" {
					return fmt.Errorf("%s runs %s", pod.Name, pod.Spec.Containers[0].Image)
				}
			}
			return err
		})
	})

	t.Run("the provider deletes a pod", func(t *testing.T) {
		before, err := b.guests(p.aID)
		if err != nil || len(before) == 0 {
			t.Fatal(before, err)
		}
		victim := before[0]
		b.kubectl("delete", "pod", "-n", victim.Namespace, victim.Name)
		a.eventually("it is Failed or replaced", func() error {
			pod, found, err := get[corev1.Pod](a, "/api/v1/namespaces/shop/pods/"+victim.Name)
			if err == nil && found && pod.Status.Phase != corev1.PodFailed {
				err = fmt.Errorf("it is %s %s", pod.Status.Phase, pod.Status.Reason)
			}
			return err
		})
		a.kubectl("rollout", "status", "-n", "shop", "deployment/web", "--timeout="+soon.String())
	})

	t.Run("what cannot work says so", func(t *testing.T) {
		a.apply(`apiVersion: v1
kind: Pod
metadata: {name: disk, namespace: shop}
spec:
  nodeSelector: {kubernetes.io/hostname: ` + p.b.asNode() + `}
  containers: [{name: web, image: web:1, volumeMounts: [{name: disk, mountPath: /disk}]}]
  volumes: [{name: disk, hostPath: {path: /}}]
`)
		a.eventually("an event says why", func() error {
			out, err := a.events("disk")
			if err == nil && !strings.Contains(out, workload.ReasonNotOffloadable) {
				err = errors.New(out)
			}
			return err
		})
		pod, _, err := get[corev1.Pod](a, "/api/v1/namespaces/shop/pods/disk")
		if err != nil || pod.Status.Phase != corev1.PodPending {
			t.Errorf("it is %s %v", pod.Status.Phase, err)
		}
		a.kubectl("delete", "pod", "-n", "shop", "disk", "--timeout="+soon.String())
		a.apply(`apiVersion: v1
kind: Pod
metadata: {name: elsewhere, namespace: shop}
spec:
  nodeSelector: {kubernetes.io/hostname: ` + p.b.asNode() + `}
  containers: [{name: web, image: registry.example.net/web:1}]
`)
		a.eventually("an event says that the provider takes no images from there", func() error {
			out, err := a.events("elsewhere")
			if err == nil && (!strings.Contains(out, workload.ReasonRefusedByProvider) || !strings.Contains(out, workload.ReasonRegistryNotAllowed+": ") || !strings.Contains(out, "sharing.registries")) {
				err = errors.New(out)
			}
			return err
		})
		a.kubectl("delete", "pod", "-n", "shop", "elsewhere", "--timeout="+soon.String())
	})

	t.Run("the offer holds", func(t *testing.T) {
		// The provider's own API server is asked past the consumer's scheduler: pods are
		// bound by hand, and ask for more than there is.
		a.apply(deployment("greedy", 0, p.b.asNode(), ""))
		for i := range 6 {
			a.apply(fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: greedy-%d, namespace: shop}
spec:
  nodeName: %s
  tolerations: [{key: virtual-node.liqo.io/not-allowed, operator: Exists}]
  containers: [{name: web, image: web:1, resources: {requests: {cpu: 600m}}}]
`, i, p.b.asNode()))
		}
		a.eventually("those that fit run, the others wait", func() error {
			pods, err := a.pods()
			running, refused := 0, 0
			for _, pod := range pods {
				switch {
				case !strings.HasPrefix(pod.Name, "greedy-"):
				case pod.Status.Phase == corev1.PodRunning:
					running++
				case len(pod.Status.ContainerStatuses) == 1 && pod.Status.ContainerStatuses[0].State.Waiting != nil &&
					pod.Status.ContainerStatuses[0].State.Waiting.Reason == workload.ReasonRefusedByProvider:
					refused++
				}
			}
			if err == nil && (running != 3 || refused != 3) {
				err = fmt.Errorf("%d run and %d are refused", running, refused)
			}
			return err
		})
		a.shell("kubectl delete pod -n shop greedy-{0..5} --wait=false")
	})

	t.Run("delete", func(t *testing.T) {
		a.kubectl("delete", "deployment", "-n", "shop", "--all", "--wait=false")
		p.settled(0)
	})

	t.Run("scrape", p.scrape)

	t.Run("evicted by the provider", func(t *testing.T) {
		a.apply(deployment("web", 4, p.b.asNode(), ""))
		p.settled(4)
		b.mustCLI("peers", "disconnect", p.aID, "--incoming")
		b.eventually("everything of it is gone", func() error {
			spaces, err := list[corev1.Namespace](b, "/api/v1/namespaces?labelSelector="+workload.LabelOriginCluster+"%3D"+p.aID)
			if err == nil && len(spaces) > 0 {
				err = fmt.Errorf("%d namespaces are left, the first is %s", len(spaces), spaces[0].Status.Phase)
			}
			return err
		})
		a.eventually("the node is gone", func() error {
			node, err := a.node(p.b.asNode())
			if err == nil && node != nil {
				err = errors.New("it is there")
			}
			return err
		})
		a.kubectl("delete", "deployment", "-n", "shop", "web")
		a.eventually("its pods are gone", func() error {
			pods, err := a.pods()
			if err == nil && len(pods) > 0 {
				err = fmt.Errorf("there are %d", len(pods))
			}
			return err
		})
		a.mustCLI("peers", "disconnect", p.bID, "--timeout", soon.String())
	})

	t.Run("less than is offered, and the end", p.parts)
}

// sized waits until the request asks for that much, and the node and what its pods may have together are of that size.
func (p *pair) sized(asked api.RequestedResources, cpu, memory string) {
	p.a.t.Helper()
	guest := "/api/v1/namespaces/" + workload.Namespace("liqo", peer.ClusterID(p.aID), "shop")
	p.a.eventually("a node with cpu "+cpu+", memory "+memory, func() error {
		node, err := p.a.node(p.b.asNode())
		request, _, prErr := get[api.PeeringRequest](p.b, prPath+"/"+p.aID)
		quota, limited, quotaErr := get[corev1.ResourceQuota](p.b, guest+"/resourcequotas/liqo-offer")
		switch err := errors.Join(err, prErr, quotaErr); {
		case err != nil:
			return err
		case node == nil || node.Status.Allocatable.Cpu().String() != cpu || node.Status.Allocatable.Memory().String() != memory:
			return fmt.Errorf("node %+v; request %+v", node, request.Spec)
		case request.Spec.Resources != asked:
			return fmt.Errorf("request %+v", request.Spec)
		}
		if most := quota.Spec.Hard["requests.cpu"]; limited && most.String() != cpu {
			return fmt.Errorf("quota %+v", quota.Spec)
		}
		return nil
	})
}

// parts connects the pair anew. The consumer gets no more than it asks for, and parts: its pods leave in order, and nothing
// is left at the provider, whoever ends it.
func (p *pair) parts(t *testing.T) {
	a, b := p.a, p.b
	p.share("--cpu", "0.5", "--memory", "256Mi")
	p.sized(api.RequestedResources{CPU: "500m", Memory: "256Mi"}, "500m", "256Mi")
	if table := b.kubectl("get", "peeringrequests"); !strings.Contains(table, "500m") || !strings.Contains(table, "256Mi") {
		t.Errorf("kubectl get peeringrequests:\n%s", table)
	}
	a.apply(deployment("web", 6, "", ""))
	p.settled(3)
	a.mustCLI("peers", "set", p.bID, "--cpu", "1")
	p.sized(api.RequestedResources{CPU: "1", Memory: "256Mi"}, "1", "256Mi")
	if err := a.agent.Kill(); err != nil {
		t.Fatal(err)
	}
	a.start()
	a.mustCLI("peers", "set", p.bID, "--memory", "512Mi")
	p.sized(api.RequestedResources{CPU: "1", Memory: "512Mi"}, "1", "512Mi")
	a.mustCLI("peers", "set", p.bID, "--cpu", "default")
	p.sized(api.RequestedResources{Memory: "512Mi"}, "2", "512Mi")
	a.mustCLI("peers", "disconnect", p.bID, "--timeout", soon.String())
	a.eventually("all run at home", func() error {
		pods, err := a.pods()
		home := 0
		for _, pod := range pods {
			if pod.Spec.NodeName == p.b.asNode() {
				return fmt.Errorf("%s is still on the node", pod.Name)
			}
			if pod.Spec.NodeName == "alder" && pod.Status.Phase == corev1.PodRunning {
				home++
			}
		}
		if err == nil && home != 6 {
			err = fmt.Errorf("%d run at home", home)
		}
		return err
	})
	left := func() {
		b.gone(prPath + "/" + p.aID)
		b.eventually("nothing is left", func() error {
			pods, err := b.guests(p.aID)
			if err == nil && len(pods) > 0 {
				err = fmt.Errorf("%d pods", len(pods))
			}
			spaces, nsErr := list[metav1.PartialObjectMetadata](b, "/api/v1/namespaces?labelSelector="+workload.LabelOriginCluster)
			if nsErr == nil && len(spaces) > 0 {
				nsErr = fmt.Errorf("%d namespaces", len(spaces))
			}
			return errors.Join(err, nsErr)
		})
	}
	a.gone("/api/v1/nodes/" + b.asNode())
	a.gone("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/" + b.asNode())
	left()

	// The provider ends it while the consumer is away, has long cleaned up when that comes back, and has started since.
	a.mustCLI("peers", "connect", p.bID, "--timeout", soon.String())
	a.awaitNode(b.asNode(), true)
	a.apply(deployment("there", 2, b.asNode(), ""))
	p.settled(2)
	if err := a.agent.Kill(); err != nil {
		t.Fatal(err)
	}
	b.mustCLI("peers", "disconnect", p.aID, "--incoming")
	left()
	if err := b.agent.Kill(); err != nil {
		t.Fatal(err)
	}
	b.start()
	a.start()
	a.gone("/api/v1/nodes/" + b.asNode())
}

// Agents are killed, cables pulled and addresses changed: running pods stay what
// they are, and what was under way is done in the end, once.
func TestSharingSurvives(t *testing.T) {
	t.Parallel() // waiting for controllers is most of it
	p := newSharingPair(t, "[log]\nlevel = \"debug\"\n")
	a, b := p.a, p.b
	a.apply(deployment("web", 20, p.b.asNode(), ""))
	p.settled(20)
	before := p.uids()

	t.Run("another address", func(t *testing.T) {
		b.move(t)
		a.eventually("it is known where it is", func() error {
			q, err := a.peer(p.bID)
			if err == nil && !strings.Contains(fmt.Sprint(q), b.addr.String()) {
				err = fmt.Errorf("not at %s yet", b.addr)
			}
			return err
		})
		a.kubectl("scale", "deployment", "-n", "shop", "web", "--replicas=21")
		p.settled(21)
		p.untouched(before)
	})

	t.Run("unplugged and back", func(t *testing.T) {
		link := b.host.Link("eth0")
		link.Unplug()
		a.awaitNode(p.b.asNode(), false)
		a.kubectl("scale", "deployment", "-n", "shop", "web", "--replicas=22")
		link.Plug()
		a.awaitNode(p.b.asNode(), true)
		p.settled(22)
		p.untouched(before)
	})

	for _, x := range []*box{a, b} {
		t.Run("the agent of "+x.host.Name+" killed at any time", func(t *testing.T) {
			replicas := 22
			for round := range 4 {
				replicas += []int{8, -8, 8, -8}[round]
				a.kubectl("scale", "deployment", "-n", "shop", "web", fmt.Sprintf("--replicas=%d", replicas))
				timer := time.NewTimer(time.Duration(round*60) * time.Millisecond)
				<-timer.C // the moment varies; nothing is waited for
				if err := x.agent.Kill(); err != nil {
					t.Fatal(err)
				}
				x.start()
			}
			p.settled(replicas)
		})
	}

	t.Run("API servers stopped and back", func(t *testing.T) {
		before := p.uids()
		for _, x := range []*box{b, a} {
			if err := x.kube.Kill(); err != nil {
				t.Fatal(err)
			}
			if err := x.kube.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		p.settled(len(before))
		p.untouched(before)
	})
	t.Run("a reset, and a backup", p.backedUp)
}

// Two consumers share one provider, and a provider is a consumer as well.
func TestSharingAmongThree(t *testing.T) {
	t.Parallel() // waiting for controllers is most of it
	bd := bed.New(t)
	boxes := newClusters(t, bd, "alder", "birch", "cedar")
	staff(t, boxes...)
	a, b, c := boxes[0], boxes[1], boxes[2]
	c.shell("mount -t tmpfs tmpfs /dev/net") // C has no TUN, and shares as before there were networks
	for _, x := range boxes {
		x.configure("[sharing]\npercentage = 50\n")
		x.start()
	}
	aID, bID, cID := a.id(), b.id(), c.id()
	join := func(consumer *box, consumerID string, provider *box, providerID string) {
		consumer.awaitFC("appears", providerID, reachable)
		provider.awaitFC("appears", consumerID, reachable)
		provider.mustCLI("peers", "accept", consumerID, "--yes")
		consumer.mustCLI("peers", "connect", providerID, "--yes", "--timeout", soon.String())
		consumer.awaitNode(provider.asNode(), true)
		consumer.apply("apiVersion: v1\nkind: Namespace\nmetadata: {name: shop, labels: {liqo.io/enabled: \"true\"}}\n")
		consumer.tolerates()
	}
	join(a, aID, b, bID)
	join(c, cID, b, bID)
	join(b, bID, a, aID) // both ways between A and B

	// Half of B's four CPUs is for both together.
	for _, x := range []*box{a, c} {
		x.eventually("the offer is shared", func() error {
			offer, _, err := get[api.Advertisement](x, advPath+"/"+bID)
			if err == nil && offer.Spec.ResourceQuota.Hard["cpu"] != "1" {
				err = fmt.Errorf("%v", offer.Spec.ResourceQuota.Hard)
			}
			return err
		})
	}
	pairs := []*pair{{bed: bd, a: a, b: b, aID: aID, bID: bID}, {bed: bd, a: c, b: b, aID: cID, bID: bID}, {bed: bd, a: b, b: a, aID: bID, bID: aID}}
	for _, p := range pairs {
		p.a.apply(deployment("web", 3, p.b.asNode(), ""))
	}
	for _, p := range pairs {
		p.settled(3)
	}
	says := func(x *box, id, reason, message string) {
		t.Helper()
		x.awaitStatus("says why the networks are not connected", id, func(fc *api.ForeignCluster) error {
			err := condition(fc, api.ConditionNetworkReady, api.ConditionFalse, reason)
			if err == nil && !strings.Contains(fc.Condition(api.ConditionNetworkReady).Message, message) {
				err = fmt.Errorf("it says %q", fc.Condition(api.ConditionNetworkReady).Message)
			}
			return err
		})
	}
	says(c, bID, "NotPossibleHere", "modprobe tun")
	says(b, cID, "NotWanted", "liqo-agent network list")
	c.logged("the network with other clusters does not work")
	for _, p := range pairs {
		p.a.eventually("pods have addresses where networks are connected", func() error {
			pods, err := p.onNeighbour(3)
			for _, pod := range pods {
				if (pod.Status.PodIP == "") != (p.a == c) {
					err = fmt.Errorf("pod %s has the address %q", pod.Name, pod.Status.PodIP)
				}
			}
			return err
		})
	}
	// A guest's pod is not sent on: what B runs for A and C is on B's own node.
	for _, consumer := range []string{aID, cID} {
		pods, err := b.guests(consumer)
		for _, pod := range pods {
			if pod.Spec.NodeName != "birch" {
				t.Errorf("%s runs on %s", pod.Name, pod.Spec.NodeName)
			}
		}
		if err != nil {
			t.Error(err)
		}
	}
	// One of them is thrown out; the other does not notice.
	before := pairs[1].uids()
	b.mustCLI("peers", "disconnect", aID, "--incoming")
	b.eventually("A is gone", func() error {
		pods, err := b.guests(aID)
		if err == nil && len(pods) > 0 {
			err = fmt.Errorf("%d pods are left", len(pods))
		}
		return err
	})
	pairs[1].settled(3)
	pairs[1].untouched(before)
	pairs[2].settled(3)
}

// A provider with real containers: what kubectl does to a pod, it does to one that
// runs at the neighbour.
func TestSharingWithContainers(t *testing.T) {
	t.Parallel() // waiting for controllers is most of it
	p := newContainersPair(t, "", bed.ControllerConfig{AutoscalerPeriod: time.Second})
	a := p.a
	a.kubectl("create", "configmap", "-n", "shop", "page", "--from-literal=index.html=from the shop")
	a.eventually("the namespace has its service account", func() error {
		_, found, err := get[map[string]any](a, "/api/v1/namespaces/shop/serviceaccounts/default")
		if err == nil && !found {
			err = errors.New("not yet")
		}
		return err
	})
	a.apply(`apiVersion: v1
kind: Pod
metadata: {name: web, namespace: shop, labels: {app: web}}
spec:
  nodeSelector: {kubernetes.io/hostname: ` + p.b.asNode() + `}
  terminationGracePeriodSeconds: 1
  containers:
  - name: web
    image: ` + bed.Image + `
    imagePullPolicy: Never
    command: [sh, -c, 'echo serving $WHERE; exec httpd -f -p 8080 -h /page']
    env:
    - {name: WHERE, valueFrom: {fieldRef: {fieldPath: metadata.namespace}}}
    resources: {requests: {cpu: 10m, memory: 8Mi}}
    volumeMounts: [{name: page, mountPath: /page}]
  volumes: [{name: page, configMap: {name: page}}]
`)
	a.eventually("it runs", func() error {
		pod, _, err := get[corev1.Pod](a, "/api/v1/namespaces/shop/pods/web")
		if err == nil && (pod.Status.Phase != corev1.PodRunning || !podReady(pod)) {
			err = fmt.Errorf("it is %s: %+v", pod.Status.Phase, pod.Status.ContainerStatuses)
		}
		return err
	})

	t.Run("logs", func(t *testing.T) {
		a.eventually("the container has said what it says", func() error {
			if out := a.kubectl("logs", "-n", "shop", "web"); out != "serving shop\n" {
				return fmt.Errorf("logs: %q", out)
			}
			return nil
		})
	})
	t.Run("exec", func(t *testing.T) {
		if out := a.kubectl("exec", "-n", "shop", "web", "--", "hostname"); out != "web\n" {
			t.Errorf("exec: %q", out)
		}
		out, err := a.tryShell("echo -n hello | kubectl exec -i -n shop web -- cat")
		if err != nil || out != "hello" {
			t.Errorf("exec -i: %q %v", out, err)
		}
		if out, err := a.tryShell("kubectl exec -n shop web -- sh -c 'exit 7'; echo it was $?"); err != nil || !strings.Contains(out, "it was 7") {
			t.Errorf("exit code: %q %v", out, err)
		}
	})
	t.Run("cp", func(t *testing.T) {
		a.shell("echo precious > /tmp/cargo && kubectl cp /tmp/cargo shop/web:/tmp/cargo && kubectl cp shop/web:/tmp/cargo /tmp/back && cmp /tmp/cargo /tmp/back")
	})
	t.Run("port-forward", func(t *testing.T) {
		out, err := a.tryShell(`kubectl port-forward -n shop web 18080:8080 > /tmp/forward.log 2>&1 &
pid=$!
for i in $(seq 3000); do grep -q Forwarding /tmp/forward.log && break; sleep 0.1; done
curl -sS --max-time 120 http://127.0.0.1:18080/index.html 2>&1 || cat /tmp/forward.log
kill $pid`)
		if err != nil || !strings.Contains(out, "from the shop") {
			t.Errorf("port-forward: %q %v", out, err)
		}
	})
	t.Run("debug", p.kubectlDebug)
	t.Run("logs that follow", func(t *testing.T) {
		out, err := a.tryShell(`kubectl run -n shop talker --image=` + bed.Image + ` --image-pull-policy=Never --restart=Never --overrides='{"spec":{"nodeSelector":{"kubernetes.io/hostname":"` + p.b.asNode() + `"}}}' -- sh -c 'for i in 1 2 3; do echo line $i; sleep 1; done'
until kubectl logs -f -n shop talker >/tmp/talker.log && grep -q 'line 3' /tmp/talker.log; do sleep 0.5; done
cat /tmp/talker.log
kubectl wait -n shop pod/talker --for=jsonpath='{.status.phase}'=Succeeded --timeout=300s`)
		if err != nil || !strings.Contains(out, "line 1\nline 2\nline 3\n") {
			t.Errorf("logs -f: %q %v", out, err)
		}
	})
	t.Run("a container that fails", func(t *testing.T) {
		a.shell(`kubectl run -n shop loser --image=` + bed.Image + ` --image-pull-policy=Never --restart=OnFailure --overrides='{"spec":{"nodeSelector":{"kubernetes.io/hostname":"` + p.b.asNode() + `"}}}' -- sh -c 'exit 3'`)
		a.eventually("its restarts are seen", func() error {
			pod, _, err := get[corev1.Pod](a, "/api/v1/namespaces/shop/pods/loser")
			if err == nil && (len(pod.Status.ContainerStatuses) != 1 || pod.Status.ContainerStatuses[0].RestartCount == 0) {
				err = fmt.Errorf("%+v", pod.Status.ContainerStatuses)
			}
			return err
		})
		a.eventually("the kubelet's events are there", func() error {
			out, err := a.events("loser")
			if err == nil && !strings.Contains(out, "BackOff") && !strings.Contains(out, "Started") {
				err = errors.New(out)
			}
			return err
		})
	})
	t.Run("deleted within its grace period", func(t *testing.T) {
		a.kubectl("delete", "pod", "-n", "shop", "--all", "--timeout="+soon.String())
		p.settled(0)
	})
	t.Run("top", p.top)
}

// dump shows what a failed test leaves behind.
func (p *pair) dump() {
	p.a.t.Cleanup(func() {
		if !p.a.t.Failed() {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), soon)
		defer cancel()
		for _, x := range []*box{p.a, p.b} {
			for _, args := range [][]string{
				{"get", "nodes,fc", "-o", "wide"}, {"get", "pods", "-A", "-o", "wide"}, {"get", "pods", "-A", "-o", "yaml", "--field-selector=status.phase!=Running"}, {"get", "events", "-A"},
			} {
				out, err := x.kube.Kubectl(ctx, args...)
				p.a.t.Logf("%s: kubectl %s: %v\n%.20000s", x.host.Name, strings.Join(args, " "), err, out)
			}
		}
	})
}

// knownAs reports whether a pod of another cluster may be known by an address here: by none, or
// by one with its host part in the addresses for pods of peers.
func knownAs(theirs, here string) bool {
	if here == "" {
		return true
	}
	a, wrong := netip.ParseAddr(theirs)
	b, bad := netip.ParseAddr(here)
	return wrong == nil && bad == nil && netip.MustParsePrefix("241.0.0.0/8").Contains(b) && a.As4()[3] == b.As4()[3]
}
