package integration

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"liqo.io/agent/kube"
)

// guestKubelet is the kubelet of the provider: pods run as soon as they are bound, and end
// as soon as they are deleted.
type guestKubelet struct {
	admin *kube.Client
	work  chan *corev1.Pod
}

// kubelet starts one.
func (p *pair) kubelet() {
	g := &guestKubelet{admin: p.b, work: make(chan *corev1.Pod, 10000)}
	cache := kube.NewCache(kube.Kind[*corev1.Pod]{
		Fresh: func() *corev1.Pod { return &corev1.Pod{} },
		Changed: func(_, after *corev1.Pod) {
			if after != nil && after.Spec.NodeName == "b" {
				g.work <- after
			}
		},
	})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { cache.Follow(ctx, p.b, kube.Query{Path: "/api/v1/pods"}) })
	for range 4 {
		running.Go(func() {
			for {
				select {
				case <-ctx.Done():
					return
				case pod := <-g.work:
					g.sync(ctx, pod)
				}
			}
		})
	}
	p.t.Cleanup(func() { cancel(); running.Wait() })
}

func (g *guestKubelet) sync(ctx context.Context, pod *corev1.Pod) {
	path := podPath(pod.Namespace, pod.Name)
	switch {
	case pod.DeletionTimestamp != nil:
		zero := int64(0)
		_ = g.admin.Delete(ctx, path, metav1.DeleteOptions{GracePeriodSeconds: &zero, Preconditions: &metav1.Preconditions{UID: &pod.UID}})
	case pod.Status.Phase == corev1.PodPending:
		text, err := json.Marshal(map[string]any{"status": runningStatus(pod)})
		if err == nil {
			_ = g.admin.Patch(ctx, path+"/status", "kubelet", types.StrategicMergePatchType, text, nil)
		}
	}
}

// runningStatus is the status that a kubelet gives to a pod that runs.
func runningStatus(pod *corev1.Pod) corev1.PodStatus {
	now := metav1.NewTime(time.Now().Truncate(time.Second))
	started := true
	s := corev1.PodStatus{Phase: corev1.PodRunning, StartTime: &now, HostIP: "10.77.0.2", PodIP: "10.42.0.7", PodIPs: []corev1.PodIP{{IP: "10.42.0.7"}}}
	for _, c := range []corev1.PodConditionType{corev1.PodInitialized, corev1.ContainersReady, corev1.PodReady} {
		s.Conditions = append(s.Conditions, corev1.PodCondition{Type: c, Status: corev1.ConditionTrue, LastTransitionTime: now})
	}
	for _, c := range pod.Spec.Containers {
		s.ContainerStatuses = append(s.ContainerStatuses, corev1.ContainerStatus{
			Name: c.Name, Image: c.Image, ImageID: "sha256:1", ContainerID: "containerd://1", Ready: true, Started: &started,
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}},
		})
	}
	return s
}
