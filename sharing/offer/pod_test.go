package offer

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	helpers "k8s.io/component-helpers/resource"
	"pgregory.net/rapid"
)

func read(t *testing.T, text string) *Pod {
	t.Helper()
	p := &Pod{}
	if err := json.Unmarshal([]byte(text), p); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return p
}

func TestPod(t *testing.T) {
	needs := func(text string) string { return `{"resources":{"requests":{` + text + `}}}` }
	sidecar := func(text string) string {
		return `{"restartPolicy":"Always","resources":{"requests":{` + text + `}}}`
	}
	for _, tc := range []struct {
		name string
		rest string // of the pod, after its metadata
		want Amounts
	}{
		{"not bound", `"spec":{"containers":[` + needs(`"cpu":"1"`) + `]}`, nil},
		{"nothing asked for", `"spec":{"nodeName":"n","containers":[{}]}`, Amounts{pods: 1}},
		{"two containers", `"spec":{"nodeName":"n","containers":[` + needs(`"cpu":"250m","memory":"1Gi"`) + "," + needs(`"cpu":"1","a.example/b":"2","hugepages-2Mi":"4Mi"`) + `]}`,
			Amounts{cpu: 1250, memory: 1 << 30, "a.example/b": 2, pods: 1}},
		{"starting takes more of one", `"spec":{"nodeName":"n","containers":[` + needs(`"cpu":"1","memory":"1Mi"`) + `],"initContainers":[` + needs(`"cpu":"500m","memory":"1Gi"`) + "," + needs(`"memory":"2Mi"`) + `]}`,
			Amounts{cpu: 1000, memory: 1 << 30, pods: 1}},
		{"a sidecar", `"spec":{"nodeName":"n","containers":[` + needs(`"cpu":"1"`) + `],"initContainers":[` + needs(`"cpu":"100m"`) + "," + sidecar(`"cpu":"200m"`) + "," + needs(`"cpu":"1100m"`) + `]}`,
			Amounts{cpu: 1300, pods: 1}},
		{"overhead", `"spec":{"nodeName":"n","containers":[` + needs(`"cpu":"1"`) + `],"overhead":{"cpu":"10m","memory":"64Mi"}}`, Amounts{cpu: 1010, memory: 64 << 20, pods: 1}},
		{"of the pod as a whole", `"spec":{"nodeName":"n","containers":[` + needs(`"cpu":"1","memory":"1Mi"`) + `],"resources":{"requests":{"cpu":"3"}},"overhead":{"cpu":"1m"}}`, Amounts{cpu: 3001, memory: 1 << 20, pods: 1}},
		{"succeeded", `"spec":{"nodeName":"n","containers":[{}]},"status":{"phase":"Succeeded"}`, nil},
		{"failed", `"spec":{"nodeName":"n","containers":[{}]},"status":{"phase":"Failed"}`, nil},
		{"pending", `"spec":{"nodeName":"n","containers":[{}]},"status":{"phase":"Pending"}`, Amounts{pods: 1}},
		{"nonsense", `"spec":{"nodeName":"n","containers":[` + needs(`"cpu":"much","memory":"-1","ephemeral-storage":"`+strings.Repeat("1", 65)+`","a.example/b":"1e99"`) + `]}`,
			Amounts{"a.example/b": maxUnits, pods: 1}},
	} {
		p := read(t, `{"metadata":{"name":"p","namespace":"s","uid":"u","resourceVersion":"7","annotations":{"a":"b"}},`+tc.rest+`}`)
		if !maps.Equal(p.Requests, tc.want) || (p.Node == "n") != (tc.want != nil) {
			t.Errorf("%s: %s asks for %v, want %v", tc.name, p.Node, p.Requests, tc.want)
		}
		if want := (metav1.ObjectMeta{Name: "p", Namespace: "s", UID: "u", ResourceVersion: "7"}); !reflect.DeepEqual(p.ObjectMeta, want) {
			t.Errorf("%s: kept %+v", tc.name, p.ObjectMeta)
		}
		if c := p.DeepCopyObject().(*Pod); !reflect.DeepEqual(c, p) || !c.Same(p) {
			t.Errorf("%s: copied to %+v", tc.name, c)
		}
	}
	guest := read(t, `{"metadata":{"name":"p","labels":{"liqo.io/origin-cluster-id":"x"}},"spec":{"nodeName":"n","containers":[`+needs(`"cpu":"1"`)+`]}}`)
	if guest.Requests != nil {
		t.Errorf("a consumer's pod counts with %v", guest.Requests)
	}
	if end := read(t, `{"kind":"Pod","metadata":{"resourceVersion":"7","annotations":{"k8s.io/initial-events-end":"true"}}}`); end.Annotations[metav1.InitialEventsAnnotationKey] != "true" {
		t.Errorf("the end of a list is lost: %+v", end)
	}
	var none *Pod
	if !none.Same(guest) || none.Same(read(t, `{"spec":{"nodeName":"n"}}`)) || !none.Same(nil) {
		t.Error("pods that make no difference are told from those that do")
	}
	if err := json.Unmarshal([]byte(`{"spec":{"containers":3}}`), guest); err == nil {
		t.Error("no pod is read as one")
	}
}

// TestRequestsAsScheduler compares with what the scheduler adds up.
func TestRequestsAsScheduler(t *testing.T) {
	names := []corev1.ResourceName{"cpu", "memory", "ephemeral-storage", "a.example/gpu"}
	list := rapid.Custom(func(t *rapid.T) corev1.ResourceList {
		out := corev1.ResourceList{}
		for _, name := range names {
			switch n := rapid.Int64Range(0, 3000).Draw(t, string(name)); {
			case n%3 == 0:
			case name == "cpu":
				out[name] = *resource.NewMilliQuantity(n, resource.DecimalSI)
			default:
				out[name] = *resource.NewQuantity(n<<18, resource.BinarySI)
			}
		}
		return out
	})
	rapid.Check(t, func(t *rapid.T) {
		pod := &corev1.Pod{Spec: corev1.PodSpec{NodeName: "n"}}
		always := corev1.ContainerRestartPolicyAlways
		for i := range rapid.IntRange(1, 4).Draw(t, "containers") {
			pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: fmt.Sprint(i), Resources: corev1.ResourceRequirements{Requests: list.Draw(t, "requests")}})
		}
		for i := range rapid.IntRange(0, 4).Draw(t, "init") {
			c := corev1.Container{Name: fmt.Sprint("i", i), Resources: corev1.ResourceRequirements{Requests: list.Draw(t, "requests")}}
			if rapid.Bool().Draw(t, "sidecar") {
				c.RestartPolicy = &always
			}
			pod.Spec.InitContainers = append(pod.Spec.InitContainers, c)
		}
		if rapid.Bool().Draw(t, "overhead") {
			pod.Spec.Overhead = list.Draw(t, "overheads")
		}
		if rapid.Bool().Draw(t, "of the pod") {
			pod.Spec.Resources = &corev1.ResourceRequirements{Requests: list.Draw(t, "requests of the pod")}
		}
		text, err := json.Marshal(pod)
		if err != nil {
			t.Fatal(err)
		}
		got := &Pod{}
		if err := json.Unmarshal(text, got); err != nil {
			t.Fatal(err)
		}
		for name, quantity := range helpers.PodRequests(pod, helpers.PodResourcesOptions{}) {
			want := quantity.Value()
			if name == "cpu" {
				want = quantity.MilliValue()
			}
			if got.Requests[string(name)] != want {
				t.Fatalf("%s: %d, and the scheduler counts %d of %s", name, got.Requests[string(name)], want, text)
			}
		}
	})
}
