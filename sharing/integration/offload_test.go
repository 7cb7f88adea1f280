package integration

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"liqo.io/agent/internal/bed/bedtest"
	"liqo.io/agent/sharing/offload"
	"liqo.io/agent/sharing/workload"
)

func quantity(s string) resource.Quantity { return resource.MustParse(s) }

// TestOffload goes through the life of pods and Services between a consumer, which is dual-stack, and its provider, or another one
// that is dual-stack, too: clusters take longer to start than the tests.
func TestOffload(t *testing.T) {
	t.Parallel()
	pairs := startPairs(t, bothRanges(), nil, bothRanges())
	p, dual := pairs[0], pairs[1]
	t.Run("reflection in both families", func(t *testing.T) { reflectionInBothFamilies(dual.with(t)) })
	dual.leave("families")
	t.Run("reflection in IPv4", func(t *testing.T) { reflectionInIPv4(p.with(t)) })
	p.leave("families")
	t.Run("reflection", func(t *testing.T) { reflection(p.with(t)) })
	p.leave("square")
	t.Run("by hand", func(t *testing.T) { byHand(p.sub(t, "shop")) })
	t.Run("refused", func(t *testing.T) { refusedPods(p.sub(t, "misfits")) })
	p.kubelet()
	t.Run("deployment", func(t *testing.T) { deployment(p.sub(t, "web")) })
	t.Run("burst", func(t *testing.T) { burst(p.sub(t, "crowd")) })
	t.Run("leftovers", func(t *testing.T) { leftovers(p.sub(t, "past")) })
	t.Run("away", func(t *testing.T) { away(p.sub(t, "island")) })
}

// byHand follows one pod whose kubelet is the test.
func byHand(p *pair) {
	t, ctx := p.t, p.t.Context()
	a := p.run()
	ns, guest := "shop", guestNamespace("shop")
	core := "/api/v1/namespaces/" + ns
	p.must(p.a.Create(ctx, core+"/configmaps", &corev1.ConfigMap{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: metav1.ObjectMeta{Name: "settings"}, Data: map[string]string{"color": "red"},
	}, nil))
	p.must(p.a.Create(ctx, core+"/secrets", &corev1.Secret{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}, ObjectMeta: metav1.ObjectMeta{Name: "token"}, StringData: map[string]string{"token": "abc"},
	}, nil))
	mine := p.create(virtualPod(ns, "web", func(pod *corev1.Pod) {
		grace := int64(600)
		pod.Spec.TerminationGracePeriodSeconds = &grace
		pod.Spec.Containers[0].EnvFrom = []corev1.EnvFromSource{
			{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}}},
			{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "token"}}},
		}
	}))
	theirs := await(t, p.b, guest, "web", func(pod *corev1.Pod) error {
		if pod.Spec.NodeName == "" {
			return errors.New("the scheduler has not placed it")
		}
		return nil
	})
	if theirs.Annotations[workload.AnnotationOriginUID] != string(mine.UID) {
		t.Fatalf("the copy has annotations %v, want the UID %s", theirs.Annotations, mine.UID)
	}
	var cm corev1.ConfigMap
	var secret corev1.Secret
	p.must(p.b.Get(ctx, "/api/v1/namespaces/"+guest+"/configmaps/settings", &cm))
	p.must(p.b.Get(ctx, "/api/v1/namespaces/"+guest+"/secrets/token", &secret))
	if cm.Data["color"] != "red" || string(secret.Data["token"]) != "abc" {
		t.Fatalf("the copies hold %v and %q", cm.Data, secret.Data)
	}
	p.must(p.a.Patch(ctx, core+"/configmaps/settings", "", types.MergePatchType, []byte(`{"data":{"color":"blue"}}`), nil))
	p.must(p.a.Patch(ctx, core+"/secrets/token", "", types.MergePatchType, []byte(`{"stringData":{"token":"xyz"}}`), nil))
	bedtest.Within(t, "changes of ConfigMap and Secret", func() error {
		p.must(p.b.Get(ctx, "/api/v1/namespaces/"+guest+"/configmaps/settings", &cm))
		p.must(p.b.Get(ctx, "/api/v1/namespaces/"+guest+"/secrets/token", &secret))
		if cm.Data["color"] != "blue" || string(secret.Data["token"]) != "xyz" {
			return fmt.Errorf("the copies hold %v and %q", cm.Data, secret.Data)
		}
		return nil
	})

	p.setStatus(guest, "web", runningStatus(theirs))
	mine = await(t, p.a, ns, "web", phase(corev1.PodRunning))
	if mine.Status.PodIP+mine.Status.HostIP != "" || len(mine.Status.PodIPs)+len(mine.Status.HostIPs) != 0 || !mine.Status.ContainerStatuses[0].Ready {
		t.Errorf("the status is %+v", mine.Status)
	}
	bedtest.Within(t, "Find", func() error {
		place, ok := a.Find(ns, "web")
		if !ok || place.ID != providerID || place.Node != barnNode || place.Namespace != guest || place.Name != "web" || place.UID != theirs.UID {
			return fmt.Errorf("it says %+v, %t", place, ok)
		}
		return nil
	})
	if c := a.Count(providerID); c.Bound != 1 {
		t.Errorf("Count says %+v", c)
	}
	if pods := a.Pods(barnNode); len(pods) != 1 || pods[0].UID != mine.UID {
		t.Errorf("Pods says %v", pods)
	}

	now := metav1.Now()
	p.must(p.b.Create(ctx, "/api/v1/namespaces/"+guest+"/events", &corev1.Event{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Event"}, ObjectMeta: metav1.ObjectMeta{Namespace: guest, Name: "web.1"},
		InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: guest, Name: "web", UID: theirs.UID},
		Type:           corev1.EventTypeWarning, Reason: "BackOff", Message: "it does not start", Count: 3, FirstTimestamp: now, LastTimestamp: now,
		Source: corev1.EventSource{Component: "kubelet"},
	}, nil))
	awaitEvent(p, ns, "web", "BackOff")

	// What may change is carried over.
	p.must(p.a.Patch(ctx, podPath(ns, "web"), "", types.StrategicMergePatchType, []byte(`{"metadata":{"labels":{"tier":"front"}},"spec":{"containers":[{"name":"main","image":"registry.test/web:2"}]}}`), nil))
	await(t, p.a, ns, "web", func(pod *corev1.Pod) error {
		if pod.Status.ObservedGeneration != pod.Generation {
			return fmt.Errorf("generation %d is not shown to be carried over", pod.Generation)
		}
		return nil
	})
	await(t, p.b, guest, "web", func(pod *corev1.Pod) error {
		if pod.Labels["tier"] != "front" || pod.Spec.Containers[0].Image != "registry.test/web:2" {
			return fmt.Errorf("labels %v, image %s", pod.Labels, pod.Spec.Containers[0].Image)
		}
		return nil
	})

	// Nothing is written without a change.
	before := resourceVersions(p, ns, guest, "web")
	a.stop()
	a = p.run()
	bedtest.Within(t, "the new agent to know the pod", func() error {
		if place, ok := a.Find(ns, "web"); !ok || place.UID != theirs.UID {
			return errors.New("it does not")
		}
		return nil
	})
	if after := resourceVersions(p, ns, guest, "web"); after != before {
		t.Errorf("a restart changed resource versions from %s to %s", before, after)
	}

	// What somebody removed there is sent again.
	p.must(p.b.Delete(ctx, "/api/v1/namespaces/"+guest+"/configmaps/settings", metav1.DeleteOptions{}))
	starved := runningStatus(theirs)
	starved.ContainerStatuses[0].State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CreateContainerConfigError"}}
	p.setStatus(guest, "web", starved)
	bedtest.Within(t, "the ConfigMap to be sent again", func() error {
		return p.b.Get(ctx, "/api/v1/namespaces/"+guest+"/configmaps/settings", nil)
	})

	p.must(p.a.Delete(ctx, podPath(ns, "web"), metav1.DeleteOptions{}))
	theirs = await(t, p.b, guest, "web", func(pod *corev1.Pod) error {
		if pod.DeletionTimestamp == nil {
			return errors.New("it is not being deleted")
		}
		return nil
	})
	if g := *theirs.DeletionGracePeriodSeconds; g < 500 || g > 600 { // what is left of it
		t.Errorf("the copy is deleted with a grace period of %d seconds, want 600", g)
	}
	if err := p.a.Get(ctx, podPath(ns, "web"), nil); err != nil {
		t.Errorf("ours went first: %v", err)
	}
	zero := int64(0)
	p.must(p.b.Delete(ctx, podPath(guest, "web"), metav1.DeleteOptions{GracePeriodSeconds: &zero}))
	awaitGone(t, p.kubeA, podPath(ns, "web"))
	awaitGone(t, p.kubeB, "/api/v1/namespaces/"+guest+"/configmaps/settings")
	awaitGone(t, p.kubeB, "/api/v1/namespaces/"+guest+"/secrets/token")

	// The provider's namespace goes with ours.
	p.must(p.a.Delete(ctx, core, metav1.DeleteOptions{}))
	awaitGone(t, p.kubeB, "/api/v1/namespaces/"+guest)
	awaitGone(t, p.kubeA, core)
}

func resourceVersions(p *pair, ns, guest, name string) string {
	p.t.Helper()
	var mine, theirs, cm metav1.PartialObjectMetadata
	p.must(p.a.Get(p.t.Context(), podPath(ns, name), &mine))
	p.must(p.b.Get(p.t.Context(), podPath(guest, name), &theirs))
	p.must(p.b.Get(p.t.Context(), "/api/v1/namespaces/"+guest+"/configmaps/settings", &cm))
	return mine.ResourceVersion + " " + theirs.ResourceVersion + " " + cm.ResourceVersion
}

func awaitEvent(p *pair, ns, name, reason string) {
	p.t.Helper()
	bedtest.Within(p.t, "event "+reason, func() error {
		var events corev1.EventList
		p.must(p.a.Get(p.t.Context(), "/api/v1/namespaces/"+ns+"/events", &events))
		for _, e := range events.Items {
			if e.InvolvedObject.Name == name && e.Reason == reason && e.Message != "" {
				return nil
			}
		}
		return fmt.Errorf("there are %d others", len(events.Items))
	})
}

// refusedPods is about pods that cannot run there, or not yet.
func refusedPods(p *pair) {
	t, ctx := p.t, p.t.Context()
	a := p.run()
	ns, guest := "misfits", guestNamespace("misfits")
	// Beside a provider that does not answer at all.
	stuck := offload.Provider{ID: "stuck", Node: "stuck", Remote: hanging{}, Reachable: true}
	a.Set(stuck)
	for i := range 20 {
		p.create(virtualPod(ns, fmt.Sprintf("stuck-%d", i), func(pod *corev1.Pod) { pod.Spec.NodeName = stuck.Node }))
	}
	bedtest.Within(t, "the pods of the provider that hangs", func() error {
		if c := a.Count(stuck.ID); c.Bound != 20 || c.Pending != 20 {
			return fmt.Errorf("%+v", c)
		}
		return nil
	})
	p.create(virtualPod(ns, "host", func(pod *corev1.Pod) { pod.Spec.HostNetwork = true }))
	await(t, p.a, ns, "host", waiting(workload.ReasonNotOffloadable))
	awaitEvent(p, ns, "host", workload.ReasonNotOffloadable)
	if err := p.b.Get(ctx, "/api/v1/namespaces/"+guest, nil); err == nil {
		t.Error("the provider has a namespace for nothing")
	}
	p.must(p.a.Delete(ctx, podPath(ns, "host"), metav1.DeleteOptions{}))
	awaitGone(t, p.kubeA, podPath(ns, "host"))

	p.create(virtualPod(ns, "early", func(pod *corev1.Pod) {
		pod.Spec.Containers[0].EnvFrom = []corev1.EnvFromSource{
			{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "late"}}}}
	}))
	await(t, p.a, ns, "early", waiting(workload.ReasonMissingReference))
	p.must(p.a.Create(ctx, "/api/v1/namespaces/"+ns+"/configmaps", &corev1.ConfigMap{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: metav1.ObjectMeta{Name: "late"},
	}, nil))
	await(t, p.b, guest, "early", there)

	quota := "/api/v1/namespaces/" + guest + "/resourcequotas"
	p.must(p.b.Create(ctx, quota, &corev1.ResourceQuota{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ResourceQuota"}, ObjectMeta: metav1.ObjectMeta{Name: "liqo-offer"},
		Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"pods": quantity("0")}}, // the one that is there may not be counted yet
	}, nil))
	bedtest.Within(t, "an API server that has read the quota", func() error {
		_, err := p.kubeB.Request(ctx, "POST", "/api/v1/namespaces/"+guest+"/pods?dryRun=All", jsonMIME,
			[]byte(`{"metadata":{"name":"try"},"spec":{"containers":[{"name":"a","image":"a"}]}}`))
		if err == nil || !strings.Contains(err.Error(), "exceeded quota: liqo-offer") {
			return fmt.Errorf("it says %w", orNil(err))
		}
		return nil
	})
	p.create(virtualPod(ns, "toomany"))
	await(t, p.a, ns, "toomany", waiting(workload.ReasonRefusedByProvider))
	awaitEvent(p, ns, "toomany", workload.ReasonRefusedByProvider)
	bedtest.Within(t, "Count", func() error {
		if c := a.Count(providerID); c.Refused != 1 || c.Bound != 2 {
			return fmt.Errorf("it says %+v", c)
		}
		return nil
	})
	p.must(p.b.Delete(ctx, quota+"/liqo-offer", metav1.DeleteOptions{}))
	larger := p.provider()
	larger.Offer = "2"
	a.Set(larger)
	await(t, p.b, guest, "toomany", there)
	a.Remove(stuck.ID)
	bedtest.Within(t, "the end of its line", func() error {
		if c := a.Count(stuck.ID); c != (offload.Counts{}) {
			return fmt.Errorf("%+v", c)
		}
		return nil
	})
	a.stop()
	for i := range 20 {
		p.remove(ns, fmt.Sprintf("stuck-%d", i))
	}
	p.must(p.b.Delete(ctx, "/api/v1/namespaces/"+guest, metav1.DeleteOptions{}))
	for _, name := range []string{"early", "toomany"} {
		p.remove(ns, name)
	}
}

// remove removes a pod of ours at once.
func (p *pair) remove(ns, name string) {
	p.t.Helper()
	p.must(endPod(p.t.Context(), p.a, podPath(ns, name)))
}

// deployment has the provider delete pods of a Deployment.
func deployment(p *pair) {
	t, ctx := p.t, p.t.Context()
	p.run()
	ns, guest := "web", guestNamespace("web")
	deployments := "/apis/apps/v1/namespaces/" + ns + "/deployments"
	p.must(p.a.Create(ctx, deployments, map[string]any{
		"apiVersion": "apps/v1", "kind": "Deployment", "metadata": map[string]any{"name": "web"},
		"spec": map[string]any{
			"replicas": 3, "selector": map[string]any{"matchLabels": map[string]any{"app": "web"}},
			"template": map[string]any{
				"metadata": map[string]any{"labels": map[string]any{"app": "web"}},
				"spec": map[string]any{
					"nodeSelector": map[string]any{workload.LabelType: workload.VirtualNode},
					"containers":   []any{map[string]any{"name": "main", "image": "registry.test/web:1"}},
				},
			},
		},
	}, nil))
	available := func(want int) error {
		var d struct {
			Status struct {
				AvailableReplicas, Replicas int
			}
		}
		p.must(p.a.Get(ctx, deployments+"/web", &d))
		if d.Status.AvailableReplicas != want || d.Status.Replicas != want {
			return fmt.Errorf("%d of %d are available, want %d", d.Status.AvailableReplicas, d.Status.Replicas, want)
		}
		return nil
	}
	bedtest.Within(t, "the Deployment", func() error { return available(3) })
	before := make(map[types.UID]bool)
	for _, theirs := range p.list(p.b, guest) {
		before[theirs.UID] = true
		p.must(p.b.Delete(ctx, podPath(guest, theirs.Name), metav1.DeleteOptions{}))
	}
	bedtest.Within(t, "the Deployment after the provider deleted its pods", func() error {
		fresh, failed := 0, 0
		for _, theirs := range p.list(p.b, guest) {
			if !before[theirs.UID] && theirs.Status.Phase == corev1.PodRunning {
				fresh++
			}
		}
		for _, mine := range p.list(p.a, ns) {
			if mine.Status.Phase == corev1.PodFailed && mine.Status.Reason == workload.ReasonDeletedByProvider {
				failed++
			}
		}
		if fresh != 3 || failed != 3 {
			return fmt.Errorf("%d new ones run, %d are reported as deleted", fresh, failed)
		}
		return available(3)
	})
	p.must(p.a.Delete(ctx, deployments+"/web", metav1.DeleteOptions{PropagationPolicy: background()}))
	bedtest.Within(t, "the end of the pods", func() error {
		if a, b := p.list(p.a, ns), p.list(p.b, guest); len(a)+len(b) > 0 {
			return fmt.Errorf("%d here and %d there are left", len(a), len(b))
		}
		return nil
	})
}

func background() *metav1.DeletionPropagation {
	p := metav1.DeletePropagationBackground
	return &p
}
