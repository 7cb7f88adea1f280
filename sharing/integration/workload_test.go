package integration

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"liqo.io/agent/internal/bed"
	"liqo.io/agent/internal/bed/bedtest"
	"liqo.io/agent/kube"
	"liqo.io/agent/sharing/registry"
	"liqo.io/agent/sharing/workload"
)

var (
	shopOrigin = workload.Origin{Cluster: consumerID, Namespace: "liqo-11111111-shop", Node: "barn"}
	shopGuest  = workload.Guest{Cluster: consumerID, Namespace: "liqo-11111111-shop", Arch: "amd64", Registries: registry.List{Entries: []string{"docker.io"}}}
)

const (
	minePods   = "/api/v1/namespaces/shop/pods"
	theirPods  = "/api/v1/namespaces/liqo-11111111-shop/pods"
	theirMaps  = "/api/v1/namespaces/liqo-11111111-shop/configmaps/"
	theirQuota = "/api/v1/namespaces/liqo-11111111-shop/resourcequotas"
)

const quotaText = `{"apiVersion":"v1","kind":"ResourceQuota","metadata":{"name":"liqo-offer"},"spec":{"hard":%[1]s},"status":{"hard":%[1]s,"used":%[2]s}}`

type bench struct {
	*testing.T
	*kube.Client
}

// newBench returns a client for a control plane with a namespace of the consumer and
// the one that stands for it.
func newBench(t *testing.T) bench {
	k := bed.New(t).AddCluster(t.Context(), "box", "10.77.0.1/24")
	b := bench{t, admin(t, k)}
	b.create("/api/v1/namespaces", `{"metadata":{"name":"shop"}}`, nil)
	b.create("/api/v1/namespaces", `{"metadata":{"name":"liqo-11111111-shop","labels":{"pod-security.kubernetes.io/enforce":"baseline"}}}`, nil)
	b.create("/api/v1/namespaces/shop/serviceaccounts", `{"metadata":{"name":"robot"}}`, nil)
	b.create("/api/v1/namespaces/shop/serviceaccounts", `{"metadata":{"name":"default"}}`, nil)
	b.create("/api/v1/namespaces/liqo-11111111-shop/serviceaccounts", `{"metadata":{"name":"default"}}`, nil)
	b.create("/apis/scheduling.k8s.io/v1/priorityclasses", `{"metadata":{"name":"high"},"value":100}`, nil)
	b.create("/apis/node.k8s.io/v1/runtimeclasses", `{"metadata":{"name":"gvisor"},"handler":"runsc","overhead":{"podFixed":{"cpu":"10m"}}}`, nil)
	hard := `{"requests.cpu":"2","requests.memory":"1Gi","requests.ephemeral-storage":"1Gi","pods":"100"}`
	text := fmt.Sprintf(quotaText, hard, `{"requests.cpu":"0","requests.memory":"0","requests.ephemeral-storage":"0","pods":"0"}`)
	var made json.RawMessage
	b.create(theirQuota, text, &made)
	// In place of the quota controller.
	must(t, b.Patch(t.Context(), theirQuota+"/liqo-offer/status", "", types.MergePatchType, []byte(text), nil))
	bedtest.Within(t, "an API server that has read the quota and the priority class", func() error {
		for path, pod := range map[string]string{
			theirPods: `{"metadata":{"name":"try"},"spec":{"automountServiceAccountToken":false,"containers":[{"name":"a","image":"a","resources":{"requests":{"cpu":"1m","memory":"1Mi","ephemeral-storage":"1Mi"}}}]}}`,
			minePods:  `{"metadata":{"name":"try"},"spec":{"priorityClassName":"high","containers":[{"name":"a","image":"a"}]}}`,
		} {
			if _, err := k.Request(t.Context(), "POST", path+"?dryRun=All", jsonMIME, []byte(pod)); err != nil {
				return err
			}
		}
		return nil
	})
	return b
}

func (b bench) create(path, object string, into any) {
	b.Helper()
	if err := b.Create(b.Context(), path, json.RawMessage(object), into); err != nil {
		b.Fatal(err)
	}
}

func (b bench) pod(path string) *corev1.Pod {
	b.Helper()
	pod := new(corev1.Pod)
	if err := b.Get(b.Context(), path, pod); err != nil {
		b.Fatal(err)
	}
	return pod
}

// write writes a status as a whole and returns the pod with it.
func (b bench) write(pod *corev1.Pod, path string, s corev1.PodStatus) *corev1.Pod {
	b.Helper()
	update, out := pod.DeepCopy(), new(corev1.Pod)
	update.APIVersion, update.Kind, update.Status = "v1", "Pod", s
	if err := b.Update(b.Context(), path+"/status", update, out); err != nil {
		b.Fatalf("%v\n%+v", err, s)
	}
	return out
}

func TestWorkload(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	mine := b.makeMine("web", nil)
	theirs := b.makeTheirs(mine)
	t.Run("change", func(t *testing.T) { bench{t, b.Client}.change() })
	t.Run("mirror", func(t *testing.T) { bench{t, b.Client}.mirror(theirs.Name) })
	t.Run("hostile", func(t *testing.T) { bench{t, b.Client}.hostile() })
	t.Run("baseline", func(t *testing.T) { bench{t, b.Client}.baseline() })
	t.Run("objects", func(t *testing.T) { bench{t, b.Client}.objects(b.pod(minePods + "/web")) })
}

// makeMine makes a pod with everything in it, the way that a user does.
func (b bench) makeMine(name string, change func(*corev1.Pod)) *corev1.Pod {
	b.Helper()
	raw, err := os.ReadFile("../workload/testdata/everything.yaml")
	if err != nil {
		b.Fatal(err)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: name, Labels: map[string]string{"tier": "web", "liqo.io/x": "y"}, Annotations: map[string]string{"note": "n", "kubernetes.io/secret-sauce": "$5"},
	}}
	if err := yaml.UnmarshalStrict(raw, &pod.Spec); err != nil {
		b.Fatal(err)
	}
	pod.Spec.Volumes = pod.Spec.Volumes[1:] // admission gives it the token
	pod.Spec.Containers[0].VolumeMounts = pod.Spec.Containers[0].VolumeMounts[1:]
	if change != nil {
		change(pod)
	}
	made := new(corev1.Pod)
	if err := b.Create(b.Context(), minePods, pod, made); err != nil {
		b.Fatal(err)
	}
	if !strings.HasPrefix(made.Spec.Volumes[len(made.Spec.Volumes)-1].Name, "kube-api-access-") {
		b.Fatalf("no token was injected: %v", made.Spec.Volumes)
	}
	return made
}

// makeTheirs takes a pod to the provider.
func (b bench) makeTheirs(mine *corev1.Pod) *corev1.Pod {
	b.Helper()
	sent, r := workload.Translate(mine, shopOrigin)
	if r != nil {
		b.Fatal(r)
	}
	raw, err := json.Marshal(sent)
	if err != nil {
		b.Fatal(err)
	}
	clean, admitted, r := workload.Admit(raw, shopGuest)
	if r != nil {
		b.Fatal(r)
	}
	theirs := new(corev1.Pod)
	b.create(theirPods, string(clean), theirs)
	if !workload.IsCopy(mine, theirs) {
		b.Error("the copy is none")
	}
	if patch, ok := workload.Change(mine, theirs, shopOrigin); ok {
		b.Errorf("the fresh copy is changed: %s", patch)
	}
	if a, c := workload.Requests(admitted), workload.Requests(theirs); !cmp.Equal(a, c) {
		b.Errorf("counted as %v, is %v", a, c)
	}
	for _, v := range theirs.Spec.Volumes {
		if strings.HasPrefix(v.Name, "kube-api-access-") {
			b.Error("the provider gave it a token")
		}
	}
	return theirs
}

func (b bench) change() {
	if err := b.Patch(b.Context(), minePods+"/web", "", types.StrategicMergePatchType,
		[]byte(`{"metadata":{"labels":{"tier":null,"new":"1"},"annotations":{"note":"m"}},"spec":{"activeDeadlineSeconds":60,"containers":[{"name":"app","image":"registry/app:2"}]}}`), nil); err != nil {
		b.Fatal(err)
	}
	mine := b.pod(minePods + "/web")
	patch, ok := workload.Change(mine, b.pod(theirPods+"/web"), shopOrigin)
	if !ok {
		b.Fatal("nothing to change")
	}
	clean, r := workload.AdmitPatch(patch, shopGuest)
	if r != nil {
		b.Fatal(r)
	}
	if err := b.Patch(b.Context(), theirPods+"/web", "", workload.PatchType, clean, nil); err != nil {
		b.Fatal(err)
	}
	theirs := b.pod(theirPods + "/web")
	if patch, ok := workload.Change(mine, theirs, shopOrigin); ok {
		b.Errorf("changed again: %s", patch)
	}
	if _, left := theirs.Labels["tier"]; left || theirs.Labels["new"] != "1" || theirs.Annotations["note"] != "m" || theirs.Spec.Containers[0].Image != "registry/app:2" ||
		*theirs.Spec.ActiveDeadlineSeconds != 60 || theirs.Labels[workload.LabelOriginCluster] != string(consumerID) {
		b.Errorf("changed to %v %v %v", theirs.Labels, theirs.Annotations, theirs.Spec.Containers[0].Image)
	}
}

func (b bench) mirror(name string) {
	theirs := b.pod(theirPods + "/" + name)
	at := metav1.Time{Time: time.Now().Truncate(time.Second)}
	theirs = b.write(theirs, theirPods+"/"+name, corev1.PodStatus{
		Phase: corev1.PodRunning, QOSClass: theirs.Status.QOSClass, PodIP: "10.42.0.7", PodIPs: []corev1.PodIP{{IP: "10.42.0.7"}, {IP: "fd42::7"}}, StartTime: &at,
		Conditions:        []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}, {Type: corev1.ContainersReady, Status: corev1.ConditionTrue}},
		ContainerStatuses: []corev1.ContainerStatus{{Name: "app", Ready: true, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: at}}}},
	})
	mine := b.pod(minePods + "/web")
	status := workload.Mirror(mine, theirs, shopOrigin, time.Now())
	after := b.write(mine, minePods+"/web", status)
	if !workload.SameStatus(&status, &after.Status) {
		b.Errorf("stored otherwise: %s", cmp.Diff(status, after.Status))
	}
	if after.Status.Phase != corev1.PodRunning || after.Status.PodIP+after.Status.HostIP != "" || after.Status.ObservedGeneration != mine.Generation {
		b.Errorf("mirrored as %+v", after.Status)
	}
	again := workload.Mirror(after, theirs, shopOrigin, time.Now().Add(time.Hour))
	if !workload.SameStatus(&after.Status, &again) {
		b.Errorf("mirrored again: %s", cmp.Diff(after.Status, again))
	}
}

// nonsense is what a provider may say about any field.
var nonsense = []string{
	"", "app", "sidecar", "\x1b[2J", "\u202e", "999.1.1.1", "::ffff:10.0.0.1", "fe80::1", "10.42.0.7", "010.42.0.7", "10.42.0.8", "fd42::7", "127.0.0.1", "bad type!", strings.Repeat("x", 70000),
}

// hostile writes what is mirrored of providers that mean ill: the API server has to
// take all of it, in any order.
func (b bench) hostile() {
	r := rand.New(rand.NewSource(1))
	any := func() string { return nonsense[r.Intn(len(nonsense))] }
	state := func() (s corev1.ContainerState) {
		when := metav1.Time{Time: time.Date(r.Intn(10000), 12, 31, 23, 59, 59, 5, time.FixedZone("", -80000))}
		if r.Intn(3) == 0 {
			s.Running = &corev1.ContainerStateRunning{StartedAt: when}
		}
		if r.Intn(3) == 0 {
			s.Waiting = &corev1.ContainerStateWaiting{Reason: any(), Message: any()}
		}
		if r.Intn(4) == 0 {
			s.Terminated = &corev1.ContainerStateTerminated{ExitCode: int32(r.Intn(3) - 1), Signal: int32(-r.Intn(2)), Message: any(), FinishedAt: when, ContainerID: any()}
		}
		return s
	}
	statuses := func() (out []corev1.ContainerStatus) {
		for range r.Intn(5) {
			out = append(out, corev1.ContainerStatus{
				Name: any(), State: state(), LastTerminationState: state(), Ready: r.Intn(2) == 0, RestartCount: int32(r.Intn(5) - 2), Image: any(), ImageID: any(), ContainerID: any(),
				User: &corev1.ContainerUser{Linux: &corev1.LinuxContainerUser{UID: -5}}, AllocatedResourcesStatus: []corev1.ResourceStatus{{Name: "bad name!"}},
			})
		}
		return out
	}
	phases := []corev1.PodPhase{"", "Pending", "Running", "Running", "Running", "Unknown", "Nonsense", "Succeeded", "Failed"}
	types := []corev1.PodConditionType{"Ready", "ContainersReady", "Initialized", "PodScheduled", "DisruptionTarget", "PodReadyToStartContainers", "bad type!"}
	conditions := []corev1.ConditionStatus{"True", "False", "Unknown", "", "Maybe"}
	for i, policy := range []corev1.RestartPolicy{"Never", "Never", "OnFailure", "OnFailure", "Always", "Always"} {
		name := fmt.Sprintf("hostile-%d", i)
		mine := b.makeMine(name, func(p *corev1.Pod) { p.Spec.RestartPolicy = policy })
		theirs := mine.DeepCopy()
		for step := range 25 {
			var s corev1.PodStatus
			s.Phase, s.Reason, s.Message, s.PodIP, s.QOSClass, s.ObservedGeneration = phases[r.Intn(len(phases)-2*(1-step/20))], any(), any(), any(), "Nonsense", int64(r.Intn(9)-4)
			for range r.Intn(4) {
				s.PodIPs = append(s.PodIPs, corev1.PodIP{IP: any()})
				s.Conditions = append(s.Conditions, corev1.PodCondition{Type: types[r.Intn(len(types))], Status: conditions[r.Intn(len(conditions))], ObservedGeneration: -3, Reason: any(), Message: any()})
			}
			s.InitContainerStatuses, s.ContainerStatuses, s.EphemeralContainerStatuses = statuses(), statuses(), statuses()
			s.ResourceClaimStatuses, s.NominatedNodeName, s.Resize = []corev1.PodResourceClaimStatus{{Name: "bad"}}, "bad name!", "Odd"
			theirs.Status = s
			status := workload.Mirror(mine, theirs, shopOrigin, time.Now())
			if step == 24 {
				status = workload.DeletedByProvider(mine, theirs, shopOrigin, time.Now())
			}
			mine = b.write(mine, minePods+"/"+name, status)
			if !workload.SameStatus(&status, &mine.Status) {
				b.Fatalf("step %d: stored otherwise: %s", step, cmp.Diff(status, mine.Status))
			}
		}
	}
}

// baseline compares what Admit refuses with what Pod Security does.
func (b bench) baseline() {
	raw, err := os.ReadFile("../workload/testdata/unportable.yaml")
	if err != nil {
		b.Fatal(err)
	}
	var table []struct {
		Word     string         `json:"word"`
		Baseline bool           `json:"baseline"`
		Spec     corev1.PodSpec `json:"spec"`
	}
	if err := yaml.Unmarshal(raw, &table); err != nil {
		b.Fatal(err)
	}
	agreed := 0
	for _, tc := range table {
		pod := &corev1.Pod{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
			ObjectMeta: metav1.ObjectMeta{Name: "bad", Annotations: map[string]string{workload.AnnotationOriginUID: "u"}}, Spec: tc.Spec,
		}
		if len(pod.Spec.Containers) == 0 {
			pod.Spec.Containers = []corev1.Container{{Name: "app", Image: "i"}}
		}
		text, err := json.Marshal(pod)
		if err != nil {
			b.Fatal(err)
		}
		if _, _, r := workload.Admit(text, shopGuest); r == nil {
			b.Errorf("%s is admitted", text)
		}
		zero := corev1.ResourceList{"cpu": {}, "memory": {}, "ephemeral-storage": {}}
		for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
			for i := range list {
				if list[i].Resources.Requests == nil && list[i].Resources.Limits == nil {
					list[i].Resources.Requests = zero // for the quota
				}
			}
		}
		err = b.Create(b.Context(), theirPods, pod, nil)
		violates := err != nil && strings.Contains(err.Error(), "violates PodSecurity")
		switch {
		case apierrors.IsInvalid(err): // on other grounds, before Pod Security
		case violates != tc.Baseline:
			b.Errorf("%s: Pod Security's answer is %v", text, err)
		case violates:
			agreed++
		}
	}
	if agreed < 15 {
		b.Errorf("Pod Security agreed only %d times", agreed)
	}
}

func (b bench) objects(mine *corev1.Pod) {
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "conf", Namespace: "shop", UID: "u"}, Data: map[string]string{"k": "v"}, BinaryData: map[string][]byte{"b": {0}}}
	for _, value := range []string{"v", "w"} {
		cm.Data["k"] = value
		raw, r := workload.Config(cm, shopOrigin)
		if r != nil {
			b.Fatal(r)
		}
		clean, r := workload.AdmitObject(raw, "ConfigMap", "conf", shopGuest)
		if r != nil {
			b.Fatal(r)
		}
		theirs := new(corev1.ConfigMap)
		if err := b.Apply(b.Context(), theirMaps+"conf", "liqo-agent", true, json.RawMessage(clean), theirs); err != nil {
			b.Fatal(err)
		}
		if theirs.Namespace != shopOrigin.Namespace || !maps.Equal(theirs.Data, cm.Data) || !maps.EqualFunc(theirs.BinaryData, cm.BinaryData, bytes.Equal) || theirs.Annotations[workload.AnnotationOriginUID] != "u" {
			b.Errorf("applied as %+v", theirs)
		}
	}
	event, ok := workload.Event(&corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Name: "e", UID: "e"}, Type: "Warning", Reason: "BackOff", Message: strings.Repeat("x", 5000),
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", Name: mine.Name}, EventTime: metav1.MicroTime{Time: time.Now()},
	}, mine, nil, shopOrigin)
	if !ok {
		b.Fatal("the event is not repeated")
	}
	if err := b.Create(b.Context(), "/api/v1/namespaces/shop/events", event, nil); err != nil {
		b.Error(err)
	}
}
