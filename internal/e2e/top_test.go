//go:build linux

package e2e

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/agent/internal/bed"
)

// newContainersPair is a pair of clusters that is joined, each with a real kubelet, and with namespace shop of A opted in.
func newContainersPair(t *testing.T, more string, config bed.ControllerConfig) *pair {
	t.Helper()
	if !bed.RealRoot() {
		t.Skip("containers need root on the machine; run the tests as root to have this one")
	}
	// The image lies in the boxes' stores, and there is no registry.
	p := newPair(t, "[sharing]\nregistries = [\"bed.example.com\"]\nlocal_images = true\n"+more)
	for _, x := range []*box{p.a, p.b} {
		if err := errors.Join(x.kube.StartControllersWith(t.Context(), config), x.kube.StartKubelet(t.Context())); err != nil {
			t.Fatal(err)
		}
	}
	p.dump()
	p.share()
	return p
}

// burning is a Deployment whose pods use a hundredth of a processor, the least that can be set, which is twice what they ask for,
// and some megabytes, and its autoscaler, which wants them to use half of what they ask for.
func burning(name, node string) string {
	return strings.NewReplacer("NAME", name, "NODE", node, "IMAGE", bed.Image).Replace(`apiVersion: apps/v1
kind: Deployment
metadata: {name: NAME, namespace: shop}
spec:
  selector: {matchLabels: {app: NAME}}
  template:
    metadata: {labels: {app: NAME}}
    spec:
      nodeSelector: {kubernetes.io/hostname: NODE}
      terminationGracePeriodSeconds: 0
      containers:
      - name: main
        image: IMAGE
        imagePullPolicy: Never
        command: [sh, -c, 'x=$(printf %08000000d 0); while true; do :; done']
        resources: {requests: {cpu: 5m, memory: 32Mi}, limits: {cpu: 10m}}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: NAME, namespace: shop}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: NAME}
  minReplicas: 1
  maxReplicas: 3
  metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 50}}}]
`)
}

// topped reads a table of kubectl top: CPU and memory by the first column.
func topped(table string) (map[string][2]resource.Quantity, error) {
	out := make(map[string][2]resource.Quantity)
	for line := range strings.Lines(table) {
		f := strings.Fields(line)
		if len(f) < 3 {
			return nil, errors.New(table)
		}
		cpu, err := resource.ParseQuantity(f[1])
		if err != nil {
			return nil, fmt.Errorf("%w:\n%s", err, table)
		}
		// Of a node, there are percentages in between.
		memory, err := resource.ParseQuantity(f[len(f)-1])
		if len(f) > 3 {
			memory, err = resource.ParseQuantity(f[3])
		}
		if err != nil {
			return nil, fmt.Errorf("%w:\n%s", err, table)
		}
		out[f[0]] = [2]resource.Quantity{cpu, memory}
	}
	return out, nil
}

// top: with metrics-server in both clusters, kubectl top at home has pods next door and their node, and an autoscaler adds
// pods next door to those that use more than it wants, as it does at home.
func (p *pair) top(t *testing.T) {
	a, b := p.a, p.b
	for _, x := range []*box{a, b} {
		if _, err := x.kube.StartMetricsServer(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	where := map[string]string{"home": a.host.Name, "away": b.asNode()}
	for name, node := range where {
		a.apply(burning(name, node))
	}
	for name, node := range where {
		a.eventually("the pods of "+name+" become three", func() error {
			scaler, _, err := get[autoscalingv2.HorizontalPodAutoscaler](a, "/apis/autoscaling/v2/namespaces/shop/horizontalpodautoscalers/"+name)
			if err == nil && scaler.Status.DesiredReplicas != 3 {
				err = fmt.Errorf("%+v", scaler.Status)
			}
			return err
		})
		a.eventually("kubectl top has the pods of "+name, func() error {
			measured, err := list[metav1.PartialObjectMetadata](a, "/apis/metrics.k8s.io/v1beta1/namespaces/shop/pods?labelSelector=app%3D"+name)
			if err == nil && len(measured) != 3 {
				err = fmt.Errorf("%d pods are measured", len(measured))
			}
			if err != nil {
				return err
			}
			out, err := a.tryShell("kubectl top pods -n shop -l app=" + name + " --no-headers")
			if err != nil {
				return fmt.Errorf("%w: %s", err, out)
			}
			top, err := topped(out)
			if err != nil {
				return err
			}
			pods, err := list[corev1.Pod](a, "/api/v1/namespaces/shop/pods?labelSelector=app%3D"+name)
			for _, pod := range pods {
				if use := top[pod.Name]; pod.Spec.NodeName != node || use[0].Sign() <= 0 || use[1].Sign() <= 0 {
					return fmt.Errorf("pod %s on %s is not among them, or with nothing:\n%s", pod.Name, pod.Spec.NodeName, out)
				}
			}
			if err == nil && len(pods) != 3 {
				err = fmt.Errorf("there are %d pods", len(pods))
			}
			return err
		})
	}
	a.eventually("kubectl top has both nodes", func() error {
		out, err := a.tryShell("kubectl top nodes --no-headers")
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		top, err := topped(out)
		for _, node := range where {
			if use := top[node]; err == nil && (use[0].Sign() <= 0 || use[1].Sign() <= 0) {
				err = fmt.Errorf("node %s is not among them, or with nothing:\n%s", node, out)
			}
		}
		return err
	})
}
