package workload

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func mustQuantity(s string) resource.Quantity { return resource.MustParse(s) }

// document returns the JSON of a pod as a consumer might send it.
func document(meta, spec string) string {
	if meta != "" {
		meta = "," + meta
	}
	if spec != "" {
		spec = "," + spec
	}
	return `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web","annotations":{"liqo.io/origin-uid":"u"}` + meta + `},"spec":{"containers":[{"name":"app","image":"i"}]` + spec + `}}`
}

func TestAdmit(t *testing.T) {
	in := guest
	in.Arch, in.Offer = "arm64", corev1.ResourceList{corev1.ResourceEphemeralStorage: resource.MustParse("8Gi")}
	raw := document(`"labels":{"a":"b"},"uid":"x","resourceVersion":"1","unknown":{"x":1}`,
		`"terminationGracePeriodSeconds":99999,"future":true,"initContainers":[{"name":"i","image":"i","resources":{"limits":{"cpu":"2","nvidia.com/gpu":"1"},"requests":{"memory":"1Mi"}}}]`)
	clean, pod, r := Admit([]byte(raw), in)
	if r != nil {
		t.Fatal(r)
	}
	want := `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"web","namespace":"liqo-11111111-shop","labels":{"a":"b","liqo.io/origin-cluster-id":"11111111-1111-4111-8111-111111111111"},` +
		`"annotations":{"liqo.io/origin-uid":"u"}},"spec":{"initContainers":[{"name":"i","image":"i","resources":{"limits":{"cpu":"2","ephemeral-storage":"8Gi","nvidia.com/gpu":"1"},` +
		`"requests":{"cpu":"2","ephemeral-storage":"0","memory":"1Mi"}},"imagePullPolicy":"Always","securityContext":{"capabilities":{"drop":["NET_RAW"]},"allowPrivilegeEscalation":false}}],` +
		`"containers":[{"name":"app","image":"i","resources":{"limits":{"ephemeral-storage":"8Gi"},"requests":{"cpu":"0","ephemeral-storage":"0","memory":"0"}},"imagePullPolicy":"Always",` +
		`"securityContext":{"capabilities":{"drop":["NET_RAW"]},"allowPrivilegeEscalation":false}}],` +
		`"terminationGracePeriodSeconds":3600,"nodeSelector":{"kubernetes.io/arch":"arm64"},"automountServiceAccountToken":false,` +
		`"securityContext":{"seccompProfile":{"type":"RuntimeDefault"}},"enableServiceLinks":false},"status":{}}`
	if d := cmp.Diff(want, string(clean)); d != "" {
		t.Errorf("admitted (-want +got):\n%s", d)
	}
	if got := Requests(pod); got.Pods().Value() != 1 || got.Cpu().Value() != 2 || got.Memory().String() != "1Mi" {
		t.Errorf("requests %v", got)
	}
}

func TestAdmitRefuses(t *testing.T) {
	long := strings.Repeat(" ", MaxPod)
	for _, tc := range []struct{ raw, reason, word string }{
		{"", ReasonInvalid, "JSON"},
		{"null", ReasonInvalid, "v1 Pod"},
		{"[]", ReasonInvalid, "pod"},
		{document("", "") + "x", ReasonInvalid, "JSON"},
		{document("", "") + long, ReasonInvalid, "256 KiB"},
		{strings.Repeat("[", 1000), ReasonInvalid, "deep"},
		{document("", `"initContainers":[`+strings.Repeat("{},", maxNested)+`{}]`), ReasonInvalid, "too many"},
		{strings.Replace(document("", ""), `"Pod"`, `"Node"`, 1), ReasonInvalid, "v1 Pod"},
		{strings.Replace(document("", ""), `"web"`, `"../x"`, 1), ReasonInvalid, "name"},
		{strings.Replace(document("", ""), `"web"`, `""`, 1), ReasonInvalid, "name"},
		{strings.Replace(document("", ""), `"liqo.io/origin-uid":"u"`, ``, 1), ReasonInvalid, "origin-uid"},
		{strings.Replace(document("", ""), `"u"`, `"u","liqo.io/origin-namespace":"../x"`, 1), ReasonInvalid, "namespace"},
		{document(`"namespace":"kube-system"`, ""), ReasonForbidden, "kube-system"},
		{document(`"generateName":"x"`, ""), ReasonForbidden, "generateName"},
		{document(`"ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"n","uid":"u"}]`, ""), ReasonForbidden, "ownerReferences"},
		{document(`"finalizers":["x/y"]`, ""), ReasonForbidden, "finalizers"},
		{document(`"labels":{"liqo.io/origin-cluster-id":"another"}`, ""), ReasonForbidden, "another"},
		{document(`"labels":{"liqo.io/enabled":"true"}`, ""), ReasonForbidden, "liqo.io/enabled"},
		{document(`"labels":{"kubernetes.io/cluster-service":"true"}`, ""), ReasonForbidden, "cluster-service"},
		{document(`"labels":{"node-role.kubernetes.io/x":""}`, ""), ReasonForbidden, "node-role"},
		{strings.Replace(document("", ""), `"u"`, `"u","container.apparmor.security.beta.kubernetes.io/app":"unconfined"`, 1), ReasonForbidden, "apparmor"},
		{strings.Replace(document("", ""), `"u"`, `"u","seccomp.security.alpha.kubernetes.io/pod":"unconfined"`, 1), ReasonForbidden, "seccomp"},
		{strings.Replace(document("", ""), `"u"`, `"u","k8s.v1.cni.cncf.io/networks":"lan"`, 1), ReasonForbidden, "cncf"},
		{strings.Replace(document("", ""), `"u"`, `"u","io.kubernetes.cri-o.userns-mode":"auto"`, 1), ReasonForbidden, "cri-o"},
		{strings.Replace(document("", ""), `"u"`, `"u","sidecar.example/inject":"true"`, 1), ReasonForbidden, "sidecar.example"},
		{strings.Replace(document("", ""), `"u"`, `"u","org.systemd.property.X":"y"`, 1), ReasonForbidden, "systemd"},
		{document(`"labels":{"a b":""}`, ""), ReasonInvalid, "key of a label"},
		{document("", `"nodeName":"n"`), ReasonForbidden, "nodeName"},
		{document("", `"nodeSelector":{"a":"b"}`), ReasonForbidden, "nodeSelector"},
		{document("", `"affinity":{}`), ReasonForbidden, "affinity"},
		{document("", `"tolerations":[{"operator":"Exists"}]`), ReasonForbidden, "tolerations"},
		{document("", `"serviceAccountName":"admin"`), ReasonForbidden, "serviceAccountName"},
		{document("", `"serviceAccount":"admin"`), ReasonForbidden, "serviceAccountName"},
		{document("", `"automountServiceAccountToken":true`), ReasonForbidden, "automount"},
		{document("", `"priorityClassName":"system-node-critical"`), ReasonForbidden, "priority"},
		{document("", `"priority":1`), ReasonForbidden, "priority"},
		{document("", `"preemptionPolicy":"PreemptLowerPriority"`), ReasonForbidden, "preemption"},
		{document("", `"runtimeClassName":"x"`), ReasonForbidden, "runtime"},
		{document("", `"overhead":{"cpu":"1"}`), ReasonForbidden, "overhead"},
		{document("", `"schedulerName":"mine"`), ReasonForbidden, "scheduler"},
		{document("", `"schedulingGates":[{"name":"x"}]`), ReasonForbidden, "scheduling"},
		{document("", `"readinessGates":[{"conditionType":"x"}]`), ReasonForbidden, "readinessGates"},
		{document("", `"ephemeralContainers":[{"name":"x"}]`), ReasonForbidden, "ephemeral"},
		{document("", `"topologySpreadConstraints":[{}]`), ReasonForbidden, "topology"},
		{document("", `"resources":{"requests":{"cpu":"-1"}}`), ReasonInvalid, "negative"},
		{document("", `"initContainers":[{"name":"x","resources":{"requests":{"cpu":"-1"}}}]`), ReasonInvalid, "negative"},
		{document("", `"initContainers":[{"name":"x","resources":{"requests":{"cpu":"1e-999999999"}}}]`), ReasonInvalid, "range"},
		{document("", `"initContainers":[{"name":"x","resources":{"requests":{"cpu":1e-999999999}}}]`), ReasonInvalid, "range"},
		{document("", `"overhead":{"cpu":"1e999999999"},"overhead":{}`), ReasonInvalid, "range"},
		{document("", `"volumes":[{"name":"v","emptyDir":{"sizeLimit":"1e-999999999"}}]`), ReasonInvalid, "range"},
		{document("", `"volumes":[{"name":"v","emptyDir":{"SIZELIMIT":"1e-999999999"}}]`), ReasonInvalid, "range"},
		{document("", `"volumes":[{"name":"v","emptyDir":{"sizeLimit":"`+strings.Repeat("1", 100)+`"}}]`), ReasonInvalid, "more than"},
	} {
		began := time.Now()
		_, _, r := Admit([]byte(tc.raw), guest)
		if r == nil || r.Reason != tc.reason || !strings.Contains(r.Message, tc.word) || sentence(r) != "" {
			t.Errorf("%.200s: refused with %+v, want %s about %s", tc.raw, r, tc.reason, tc.word)
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("%.200s: took %v", tc.raw, took)
		}
	}
}

func TestAdmitLimits(t *testing.T) {
	in := guest
	in.Enforce = EnforceLimits
	if _, _, r := Admit([]byte(document("", "")), in); r == nil || r.Reason != ReasonForbidden || sentence(r) != "" {
		t.Errorf("without limits: %v", r)
	}
	for _, raw := range []string{
		document("", `"resources":{"limits":{"cpu":"1","memory":"1Mi"}}`),
		strings.Replace(document("", ""), `"image":"i"`, `"image":"i","resources":{"limits":{"cpu":"1","memory":"1Mi"}}`, 1),
	} {
		if _, _, r := Admit([]byte(raw), in); r != nil {
			t.Errorf("with limits: %v", r)
		}
	}
}

func TestAdmitPatch(t *testing.T) {
	for _, tc := range []struct{ raw, want, word string }{
		{`{}`, `{"metadata":{}}`, ""},
		{`{"metadata":{"labels":{"a":"b","c":null}}}`, `{"metadata":{"labels":{"a":"b","c":null}}}`, ""},
		{`{"spec":{"containers":[{"name":"a","image":"i"}],"activeDeadlineSeconds":1}}`, `{"metadata":{},"spec":{"activeDeadlineSeconds":1,"containers":[{"name":"a","image":"i"}]}}`, ""},
		{`{"spec":{"containers":[{"$patch":"delete","name":"a","image":"i"}]}}`, "", "$patch"},
		{`{"spec":{"containers":[{"name":"a"}]}}`, "", "name or image"},
		{`{"spec":{"containers":[{"name":"a","image":"ghcr.io/a/b"}]}}`, "", "ghcr.io"},
		{`{"spec":{"initContainers":[{"name":"a","image":"localhost:5000/a"}]}}`, "", "localhost:5000"},
		{`{"spec":{"containers":[{"name":"a","image":"Not an image"}]}}`, "", "not a valid name"},
		{`{"spec":{"nodeName":"n"}}`, "", "nodeName"},
		{`{"spec":{"tolerations":[]}}`, "", "tolerations"},
		{`{"metadata":{"finalizers":[]}}`, "", "finalizers"},
		{`{"metadata":{"ownerReferences":[]}}`, "", "ownerReferences"},
		{`{"status":{}}`, "", "status"},
		{`{"$patch":"replace"}`, "", "$patch"},
		{`{"metadata":{"labels":{"liqo.io/origin-cluster-id":null}}}`, "", "origin-cluster-id"},
		{`{"metadata":{"annotations":{"liqo.io/origin-uid":"x"}}}`, "", "origin-uid"},
		{`{"metadata":{"annotations":{"liqo.io/origin-namespace":"/"}}}`, "", "namespace"},
		{`{"metadata":{"labels":{"$patch":"replace"}}}`, "", "$patch"},
		{`{"metadata":{"annotations":{"sidecar.example/inject":"true"}}}`, "", "sidecar.example"},
		{`{"metadata":{"annotations":{"$retainKeys":"x"}}}`, "", "$retainKeys"},
		{`{"metadata":{"uid":"../x"}}`, "", "UID"},
		{`{"spec":{"activeDeadlineSeconds":-1}}`, "", "range"},
		{`[]`, "", "JSON object"},
		{strings.Repeat("{", 200), "", "JSON"},
		{strings.Repeat(" ", MaxPatch+1), "", "128 KiB"},
	} {
		got, r := AdmitPatch([]byte(tc.raw), guest)
		switch {
		case tc.word == "" && (r != nil || string(got) != tc.want):
			t.Errorf("%s: %s, %v", tc.raw, got, r)
		case tc.word != "" && (r == nil || !strings.Contains(r.Message, tc.word) || sentence(r) != ""):
			t.Errorf("%.100s: refused with %v, want %s", tc.raw, r, tc.word)
		}
	}
}

func TestObjects(t *testing.T) {
	yes := true
	cm := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "conf", Namespace: "shop", UID: "u", Labels: map[string]string{"a": "b"}, OwnerReferences: []metav1.OwnerReference{{Name: "x"}}},
		Data:       map[string]string{"k": "v"}, BinaryData: map[string][]byte{"b": {1}}, Immutable: &yes,
	}
	raw, r := Config(cm, origin)
	want := `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"conf","namespace":"liqo-11111111-shop","labels":{"liqo.io/origin-cluster-id":"11111111-1111-4111-8111-111111111111"},` +
		`"annotations":{"liqo.io/origin-uid":"u"}},"data":{"k":"v"},"binaryData":{"b":"AQ=="}}`
	if r != nil || string(raw) != want {
		t.Errorf("%s, %v", raw, r)
	}
	if clean, r := AdmitObject(raw, "ConfigMap", "conf", guest); r != nil || string(clean) != want {
		t.Errorf("admitted %s, %v", clean, r)
	}
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "pw", Namespace: "shop", UID: "u"}, Data: map[string][]byte{"k": {0, 1}}}
	raw, r = SecretOf(s, origin)
	if r != nil {
		t.Fatal(r)
	}
	clean, r := AdmitObject(raw, "Secret", "pw", guest)
	if r != nil || string(clean) != string(raw) {
		t.Errorf("admitted %s, %v", clean, r)
	}
	if copied := decode[corev1.Secret](t, raw); copied.Namespace != origin.Namespace || copied.Labels[LabelOriginCluster] != string(origin.Cluster) ||
		copied.Annotations[AnnotationOriginUID] != "u" || !maps.EqualFunc(copied.Data, s.Data, bytes.Equal) {
		t.Errorf("the copy is %s", raw)
	}
	s.Type = corev1.SecretTypeServiceAccountToken
	if _, r := SecretOf(s, origin); r == nil || r.Reason != ReasonNotOffloadable || sentence(r) != "" {
		t.Errorf("a token is refused with %v", r)
	}
	s.Type, s.Data["k"] = "", make([]byte, 1<<20)
	if _, r := SecretOf(s, origin); r == nil || sentence(r) != "" {
		t.Errorf("a huge one is refused with %v", r)
	}
	if _, r := Config(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: RootCA}}, origin); r == nil || sentence(r) != "" {
		t.Errorf("the root CA is refused with %v", r)
	}
}

func TestAdmitObjectRefuses(t *testing.T) {
	object := func(kind, name, meta, rest string) string {
		return fmt.Sprintf(`{"apiVersion":"v1","kind":%q,"metadata":{"name":%q,"annotations":{"liqo.io/origin-uid":"u"}%s}%s}`, kind, name, meta, rest)
	}
	for _, tc := range []struct{ raw, kind, name, word string }{
		{object("ConfigMap", "a", "", ""), "Pod", "a", "kind"},
		{object("Secret", "a", "", ""), "ConfigMap", "a", "kind"},
		{object("ConfigMap", "b", "", ""), "ConfigMap", "a", "has the name"},
		{object("ConfigMap", RootCA, "", ""), "ConfigMap", RootCA, "belongs to this cluster"},
		{object("ConfigMap", "a", `,"labels":{"x":"y"}`, ""), "ConfigMap", "a", `"x"`},
		{object("ConfigMap", "a", `,"finalizers":["x"]`, ""), "ConfigMap", "a", "finalizers"},
		{object("ConfigMap", "a", `,"namespace":"default"`, ""), "ConfigMap", "a", "default"},
		{strings.Replace(object("ConfigMap", "a", "", ""), `"u"`, `"u","x":"y"`, 1), "ConfigMap", "a", `"x"`},
		{object("Secret", "a", "", `,"type":"kubernetes.io/service-account-token"`), "Secret", "a", "service-account-token"},
		{object("Secret", "a", "", `,"type":"bootstrap.kubernetes.io/token"`), "Secret", "a", "bootstrap"},
		{strings.Repeat(" ", MaxObject+1), "Secret", "a", "1200 KiB"},
		{"x", "Secret", "a", "JSON"},
		{`{"data":{"k":1}}`, "Secret", "a", "Secret"},
	} {
		if _, r := AdmitObject([]byte(tc.raw), tc.kind, tc.name, guest); r == nil || !strings.Contains(r.Message, tc.word) || sentence(r) != "" {
			t.Errorf("%.200s as %s: refused with %v", tc.raw, tc.kind, r)
		}
	}
}

func TestCopy(t *testing.T) {
	var c Copy
	if err := json.Unmarshal([]byte(document("", "")), &c); err != nil || c.Name != "web" {
		t.Errorf("%v, %v", c.Name, err)
	}
	if err := json.Unmarshal([]byte(`{"spec":{"containers":[{"resources":{"requests":{"cpu":"1e-999999999"}}}]}}`), &c); err == nil {
		t.Error("a quantity that takes for ever was read")
	}
	if d := c.DeepCopyObject().(*Copy); d.Name != "web" {
		t.Error("no copy")
	}
}

func TestResources(t *testing.T) {
	pod := podOf(t, `
initContainers: [{name: side, image: i, restartPolicy: Always, resources: {requests: {cpu: 100m}}}, {name: once, image: i, resources: {requests: {cpu: "2"}}}]
containers: [{name: a, image: i, resources: {requests: {cpu: 500m, memory: 1Gi}, limits: {memory: 2Gi}}}]`)
	got := Requests(pod)
	if got.Cpu().String() != "2100m" || got.Memory().String() != "1Gi" || got.Pods().Value() != 1 {
		t.Errorf("requests %v", got)
	}
	if l := Limits(pod); l.Memory().String() != "2Gi" || len(l) != 1 {
		t.Errorf("limits %v", l)
	}
	sum := corev1.ResourceList{}
	Add(sum, got)
	Add(sum, got)
	if sum.Cpu().String() != "4200m" || got.Cpu().String() != "2100m" {
		t.Errorf("sum %v of %v", sum, got)
	}
	hard := corev1.ResourceList{"cpu": mustQuantity("4200m"), "memory": mustQuantity("1Gi"), "pods": mustQuantity("2")}
	if d := cmp.Diff([]corev1.ResourceName{"memory", "nvidia.com/gpu"}, Exceeded(got, corev1.ResourceList{
		"cpu": mustQuantity("2100m"), "memory": mustQuantity("1"), "nvidia.com/gpu": mustQuantity("1"), "x.io/none": mustQuantity("0"), "pods": mustQuantity("1"),
	}, hard)); d != "" {
		t.Error(d)
	}
}

func TestEvent(t *testing.T) {
	mine := podOf(t, "nodeName: barn")
	theirs := &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Name: "web.1", UID: "e"}, Type: "Warning", Reason: "BackOff", Message: "back\x1b[2J-off", Count: 3,
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", Name: "web", UID: "their-uid", FieldPath: "spec.containers{app}"},
		FirstTimestamp: metav1.Time{Time: now}, LastTimestamp: metav1.Time{Time: now.Add(time.Minute)},
	}
	got, ok := Event(theirs, mine, nil, origin)
	if !ok || got.Namespace != "shop" || got.InvolvedObject.UID != mine.UID || got.Message != "back[2J-off" || got.Count != 3 || got.InvolvedObject.FieldPath == "" ||
		!strings.HasPrefix(got.Name, "web.") || got.Source.Component != EventSource || got.Source.Host != "barn" {
		t.Errorf("%+v", got)
	}
	theirs.Count = 4
	if again, _ := Event(theirs, mine, nil, origin); again.Name != got.Name || again.Count != 4 {
		t.Errorf("later %+v", again)
	}
	theirs.FirstTimestamp, theirs.LastTimestamp, theirs.EventTime = metav1.Time{}, metav1.Time{}, metav1.MicroTime{Time: now}
	theirs.Series = &corev1.EventSeries{Count: 7, LastObservedTime: metav1.MicroTime{Time: now.Add(time.Hour)}}
	if series, _ := Event(theirs, mine, nil, origin); series.Count != 7 || !series.FirstTimestamp.Time.Equal(now) || !series.LastTimestamp.Time.Equal(now.Add(time.Hour)) {
		t.Errorf("series %+v", series)
	}
	theirs.Source.Component, theirs.Message = componentKubelet, "in pod web_liqo-11111111-shop(their-uid)"
	if got, _ := Event(theirs, mine, nil, origin); got.Source.Component != componentKubelet || got.ReportingController != componentKubelet || got.Message != "in pod web_shop("+string(mine.UID)+")" {
		t.Errorf("of a kubelet %+v", got)
	}
	theirs.ReportingController = componentScheduler
	if got, _ := Event(theirs, mine, nil, origin); got.Source.Component != EventSource {
		t.Errorf("of the scheduler %+v", got)
	}
	for name, spoil := range map[string]func(*corev1.Event){
		"scheduled": func(e *corev1.Event) { e.Type = corev1.EventTypeNormal },
		"type":      func(e *corev1.Event) { e.Type = "Odd" },
		"name":      func(e *corev1.Event) { e.InvolvedObject.Name = "other" },
		"kind":      func(e *corev1.Event) { e.InvolvedObject.Kind = "Node" },
		"reason":    func(e *corev1.Event) { e.Reason = "\x00" },
		"uid":       func(e *corev1.Event) { e.UID = "" },
	} {
		bad := theirs.DeepCopy()
		spoil(bad)
		if _, ok := Event(bad, mine, nil, origin); ok {
			t.Errorf("an event with another %s is repeated", name)
		}
	}
}
