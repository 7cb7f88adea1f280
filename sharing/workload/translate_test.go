package workload

import (
	"bytes"
	_ "embed"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"
)

// everything is the spec of a pod that uses all that goes along, and all that
// silently does not.
//
//go:embed testdata/everything.yaml
var everything string

func full(t testing.TB) *corev1.Pod {
	pod := podOf(t, everything)
	pod.Labels = map[string]string{"tier": "web", "app.kubernetes.io/name": "web", "liqo.io/type": "virtual-node", "topology.kubernetes.io/zone": "z"}
	pod.Annotations = map[string]string{
		"note": "a $(b)", "kubernetes.io/secret-sauce": "$(HOME) costs $5", "kubectl.kubernetes.io/last-applied-configuration": "{}",
		"k8s.v1.cni.cncf.io/networks": "macvlan", "io.kubernetes.cri-o.Devices": "/dev/sda", "kubectl.kubernetes.io/restartedAt": "today",
	}
	pod.OwnerReferences = []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "web"}}
	pod.Finalizers = []string{"example.com/x"}
	return pod
}

func TestTranslate(t *testing.T) {
	pod := full(t)
	before := pod.DeepCopy()
	got, r := Translate(pod, origin)
	if r != nil {
		t.Fatal(r)
	}
	if d := cmp.Diff(before, pod); d != "" {
		t.Errorf("Translate changed its argument: %s", d)
	}
	want := podOf(t, `
activeDeadlineSeconds: 600
automountServiceAccountToken: false
enableServiceLinks: false
containers:
- name: app
  image: registry/app:1
  command: [run]
  args: [--fast]
  workingDir: /srv
  ports: [{name: http, containerPort: 8080, protocol: TCP}]
  envFrom: [{prefix: P_, configMapRef: {name: env}}, {secretRef: {name: env, optional: true}}]
  env:
  - {name: NS, value: shop}
  - {name: UID, value: 6f2b1c1e-2a52-4b0c-9a55-0d6f0a3c9b11}
  - {name: NODE, value: barn}
  - {name: SA, value: robot}
  - {name: IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}
  - {name: DROPPED, value: "$$(HOME) costs $$5"}
  - {name: KEPT, valueFrom: {fieldRef: {fieldPath: "metadata.labels['tier']"}}}
  - {name: CPU, valueFrom: {resourceFieldRef: {resource: limits.cpu, divisor: "1"}}}
  - {name: KEY, valueFrom: {configMapKeyRef: {name: conf, key: k}}}
  - {name: PW, valueFrom: {secretKeyRef: {name: pw, key: k}}}
  resources: {limits: {cpu: "1", memory: 64Mi}, requests: {cpu: 100m}}
  volumeMounts:
  - {name: tmp, mountPath: /tmp}
  - {name: conf, mountPath: /conf, subPath: k}
  livenessProbe: {httpGet: {path: /, port: http}, terminationGracePeriodSeconds: 3600}
  readinessProbe: {tcpSocket: {port: 8080}}
  startupProbe: {exec: {command: [ok]}}
  lifecycle: {preStop: {sleep: {seconds: 1}}, stopSignal: SIGTERM}
  securityContext: {runAsUser: 1000, capabilities: {drop: [ALL], add: [CHOWN]}, seccompProfile: {type: RuntimeDefault}}
  tty: true
initContainers:
- name: sidecar
  image: registry/sidecar:1
  restartPolicy: Always
  env: [{name: POD, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]
dnsPolicy: ClusterFirst
hostAliases: [{ip: 10.0.0.1, hostnames: [db]}]
imagePullSecrets: [{name: regcred}]
os: {name: linux}
restartPolicy: Always
securityContext: {fsGroup: 1000, sysctls: [{name: net.ipv4.tcp_syncookies, value: "1"}]}
terminationGracePeriodSeconds: 3600
volumes:
- {name: tmp, emptyDir: {medium: Memory, sizeLimit: 1Mi}}
- {name: conf, configMap: {name: conf, optional: true}}
- {name: tls, secret: {secretName: tls}}
- name: both
  projected: {sources: [{configMap: {name: other}}, {secret: {name: other}}, {downwardAPI: {items: [{path: uid, fieldRef: {fieldPath: "metadata.annotations['liqo.io/origin-uid']"}}]}}]}
- name: info
  downwardAPI: {items: [{path: ns, fieldRef: {fieldPath: "metadata.annotations['liqo.io/origin-namespace']"}}, {path: labels, fieldRef: {fieldPath: metadata.labels}}]}
`)
	want.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
	want.ObjectMeta = metav1.ObjectMeta{
		Name: "web", Namespace: "liqo-11111111-shop",
		Labels: map[string]string{"tier": "web", "app.kubernetes.io/name": "web", LabelOriginCluster: string(consumer)},
		Annotations: map[string]string{
			"note": "a $(b)", "kubectl.kubernetes.io/restartedAt": "today",
			AnnotationOriginUID: string(pod.UID), AnnotationOriginNamespace: "shop",
			AnnotationApplied: `{"labels":["app.kubernetes.io/name","tier"],"annotations":["kubectl.kubernetes.io/restartedAt","note"],` +
				`"images":{"app":"registry/app:1","sidecar":"registry/sidecar:1"}}`,
		},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("Translate (-want +got):\n%s", d)
	}
}

//go:embed testdata/unportable.yaml
var unportableYAML []byte

// unportables are specs that neither side lets through, with a word of the refusal.
func unportables(t testing.TB) []struct {
	Word string         `json:"word"`
	Spec corev1.PodSpec `json:"spec"`
} {
	t.Helper()
	var out []struct {
		Word string         `json:"word"`
		Spec corev1.PodSpec `json:"spec"`
	}
	if err := yaml.Unmarshal(unportableYAML, &out); err != nil {
		t.Fatal(err)
	}
	if len(out) < 30 {
		t.Fatalf("only %d specs", len(out))
	}
	return out
}

func TestUnportable(t *testing.T) {
	for _, tc := range unportables(t) {
		pod := podWith(t, tc.Spec)
		_, r := Translate(pod, origin)
		if r == nil || r.Reason != ReasonNotOffloadable || !strings.Contains(r.Message, tc.Word) || sentence(r) != "" {
			t.Errorf("Translate(%+v) refuses with %v", tc.Spec, r)
		}
		pod.TypeMeta, pod.Namespace = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ""
		pod.Annotations = map[string]string{AnnotationOriginUID: "u"}
		_, _, r = Admit(encode(t, pod), guest)
		if r == nil || r.Reason != ReasonForbidden || !strings.Contains(r.Message, tc.Word) || sentence(r) != "" {
			t.Errorf("Admit(%+v) refuses with %v", tc.Spec, r)
		}
	}
	pod := podOf(t, "{}")
	pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "d"}}
	if _, r := Translate(pod, origin); r == nil || r.Reason != ReasonNotOffloadable || sentence(r) != "" {
		t.Errorf("a pod of a DaemonSet is refused with %v", r)
	}
	pod = podOf(t, "{}")
	for range 300 {
		pod.Spec.Containers[0].Args = append(pod.Spec.Containers[0].Args, strings.Repeat("x", 1024))
	}
	if _, r := Translate(pod, origin); r == nil || r.Reason != ReasonNotOffloadable || sentence(r) != "" {
		t.Errorf("a huge pod is refused with %v", r)
	}
}

func TestLongAnnotations(t *testing.T) {
	pod := podOf(t, "{}")
	pod.Annotations = map[string]string{"long": strings.Repeat("x", 65<<10), "short": "x", "kubernetes.io/long": strings.Repeat("x", 65<<10)}
	got, r := Translate(pod, origin)
	if r != nil || got.Annotations["short"] != "x" || got.Annotations["long"] != "" {
		t.Errorf("annotations %v, %v", foreign(got.Annotations, carriesAnnotation), r)
	}
}

func TestReferences(t *testing.T) {
	configs, secrets := References(full(t))
	if d := cmp.Diff([]Reference{{"conf", false}, {"env", false}, {"other", false}}, configs); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]Reference{{"env", true}, {"other", false}, {"pw", false}, {"regcred", true}, {"tls", false}}, secrets); d != "" {
		t.Error(d)
	}
}

func TestChange(t *testing.T) {
	mine := full(t)
	theirs := copyOf(t, mine)
	theirs.Labels["topology.kubernetes.io/zone"] = "there"
	theirs.Annotations["example.com/injected"] = "by a webhook"
	if patch, ok := Change(mine, theirs, origin); ok {
		t.Fatalf("a fresh copy is changed: %s", patch)
	}
	theirs.Spec.Containers[0].Image = "mirror/app:1"
	if patch, ok := Change(mine, theirs, origin); ok {
		t.Fatalf("the provider's image is changed: %s", patch)
	}
	delete(mine.Labels, "tier")
	mine.Labels["new"] = "1"
	mine.Annotations["note"] = "changed"
	mine.Spec.Containers[0].Image = "registry/app:2"
	less := int64(60)
	mine.Spec.ActiveDeadlineSeconds = &less
	patch, ok := Change(mine, theirs, origin)
	want := `{"metadata":{"uid":"b0b0b0b0-0000-4000-8000-000000000000","labels":{"new":"1","tier":null},` +
		`"annotations":{"liqo.io/applied":"{\"labels\":[\"app.kubernetes.io/name\",\"new\"],\"annotations\":[\"kubectl.kubernetes.io/restartedAt\",\"note\"],` +
		`\"images\":{\"app\":\"registry/app:2\",\"sidecar\":\"registry/sidecar:1\"}}","note":"changed"}},` +
		`"spec":{"activeDeadlineSeconds":60,"containers":[{"name":"app","image":"registry/app:2"}]}}`
	if !ok || string(patch) != want {
		t.Errorf("patch\n%s, want\n%s", patch, want)
	}
	clean, r := AdmitPatch(patch, guest)
	if r != nil || !bytes.Equal(clean, patch) {
		t.Errorf("admitted as\n%s\n%v", clean, r)
	}
	theirs.Annotations[AnnotationApplied] = "nonsense"
	if _, ok := Change(mine, theirs, origin); !ok {
		t.Error("nothing is changed where the record is lost")
	}
	theirs.Annotations[AnnotationOriginUID] = "another"
	if _, ok := Change(mine, theirs, origin); ok {
		t.Error("a pod that is no copy is changed")
	}
}

// TestAdmitsWhatIsTranslated: what Translate lets through, Admit does, and leaves it
// as it is but for what it fills in.
func TestAdmitsWhatIsTranslated(t *testing.T) {
	passed := 0
	rapid.Check(t, func(t *rapid.T) {
		pod := randomPod(rapid.Int64().Draw(t, "seed"), rapid.Float64Range(0.6, 0.99).Draw(t, "odds"))
		sent, r := Translate(pod, origin)
		if r != nil {
			if s := sentence(r); s != "" {
				t.Fatalf("refusal %q: %s", r.Message, s)
			}
			return
		}
		again, _ := Translate(pod, origin)
		if d := cmp.Diff(sent, again); d != "" {
			t.Fatalf("not the same twice: %s", d)
		}
		text := mustEncode(t, sent)
		clean, got, r := Admit(text, guest)
		if r != nil {
			if strings.Contains(r.Message, "negative") || strings.Contains(r.Message, "name of a namespace") {
				return
			}
			t.Fatalf("refused: %v\n%s", r, text)
		}
		passed++
		twice, _, r := Admit(clean, guest)
		if r != nil || !bytes.Equal(twice, clean) {
			t.Fatalf("admitted again: %v\n%s\n%s", r, clean, twice)
		}
		if r := admitImages(&sent.Spec, guest); r != nil {
			t.Fatal(r)
		}
		harden(&sent.Spec, guest)
		for _, p := range []*corev1.Pod{got, sent} {
			for _, list := range [][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers} {
				for i := range list {
					for _, name := range counted {
						delete(list[i].Resources.Requests, name)
					}
					if len(list[i].Resources.Requests) == 0 {
						list[i].Resources.Requests = nil
					}
				}
			}
		}
		if a, b := string(mustEncode(t, sent)), string(mustEncode(t, got)); a != b {
			t.Fatalf("changed:\n%s\n%s", a, b)
		}
	})
	if passed < 5 {
		t.Errorf("only %d pods got as far", passed)
	}
}

func TestChangeLeavesAlone(t *testing.T) {
	mine := podOf(t, "activeDeadlineSeconds: 600")
	theirs := copyOf(t, mine)
	less := int64(60)
	theirs.Spec.ActiveDeadlineSeconds = &less
	theirs.Labels["kubernetes.io/x"] = "y"
	theirs.Annotations[AnnotationApplied] = `{"labels":["kubernetes.io/x"],"images":{"app":"registry/app:1"}}`
	patch, _ := Change(mine, theirs, origin)
	if strings.Contains(string(patch), "activeDeadlineSeconds") || strings.Contains(string(patch), "kubernetes.io/x") {
		t.Errorf("%s", patch)
	}
}

func TestReferencesWithoutRootCA(t *testing.T) {
	pod := podOf(t, "volumes: [{name: ca, configMap: {name: kube-root-ca.crt}}]")
	if configs, _ := References(pod); configs != nil {
		t.Errorf("%v", configs)
	}
}
