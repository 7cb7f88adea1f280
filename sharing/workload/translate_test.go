package workload

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"
)

// everything is a pod that uses all that goes along, and all that silently does not.
const everything = `
activeDeadlineSeconds: 600
affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: liqo.io/type, operator: Exists}]}]}}}
containers:
- name: app
  image: registry/app:1
  command: [run]
  args: [--fast]
  workingDir: /srv
  ports: [{name: http, containerPort: 8080, protocol: TCP}]
  envFrom: [{prefix: P_, configMapRef: {name: env}}, {secretRef: {name: env, optional: true}}]
  env:
  - {name: NS, valueFrom: {fieldRef: {fieldPath: metadata.namespace, apiVersion: v1}}}
  - {name: UID, valueFrom: {fieldRef: {fieldPath: metadata.uid}}}
  - {name: NODE, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}
  - {name: SA, valueFrom: {fieldRef: {fieldPath: spec.serviceAccountName}}}
  - {name: IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}
  - {name: DROPPED, valueFrom: {fieldRef: {fieldPath: "metadata.annotations['kubernetes.io/secret-sauce']"}}}
  - {name: KEPT, valueFrom: {fieldRef: {fieldPath: "metadata.labels['tier']"}}}
  - {name: CPU, valueFrom: {resourceFieldRef: {resource: limits.cpu, divisor: "1"}}}
  - {name: KEY, valueFrom: {configMapKeyRef: {name: conf, key: k}}}
  - {name: PW, valueFrom: {secretKeyRef: {name: pw, key: k}}}
  resources: {limits: {cpu: "1", memory: 64Mi}, requests: {cpu: 100m}}
  volumeMounts:
  - {name: kube-api-access-x7x2p, mountPath: /var/run/secrets/kubernetes.io/serviceaccount, readOnly: true}
  - {name: tmp, mountPath: /tmp}
  - {name: conf, mountPath: /conf, subPath: k}
  livenessProbe: {httpGet: {path: /, port: http}, terminationGracePeriodSeconds: 7200}
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
nodeName: barn
nodeSelector: {disk: ssd}
os: {name: linux}
priority: 100
priorityClassName: high
readinessGates: [{conditionType: example.com/gate}]
restartPolicy: Always
runtimeClassName: gvisor
schedulerName: default-scheduler
securityContext: {fsGroup: 1000, sysctls: [{name: net.ipv4.tcp_syncookies, value: "1"}]}
serviceAccountName: robot
terminationGracePeriodSeconds: 7200
tolerations: [{operator: Exists}]
topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule}]
volumes:
- name: kube-api-access-x7x2p
  projected: {sources: [{serviceAccountToken: {path: token, expirationSeconds: 3607}}, {configMap: {name: kube-root-ca.crt}}, {downwardAPI: {items: [{path: namespace, fieldRef: {fieldPath: metadata.namespace}}]}}]}
- {name: tmp, emptyDir: {medium: Memory, sizeLimit: 1Mi}}
- {name: conf, configMap: {name: conf, optional: true}}
- {name: tls, secret: {secretName: tls}}
- name: both
  projected: {sources: [{configMap: {name: other}}, {secret: {name: other}}, {downwardAPI: {items: [{path: uid, fieldRef: {fieldPath: metadata.uid}}]}}]}
- name: info
  downwardAPI: {items: [{path: ns, fieldRef: {fieldPath: metadata.namespace}}, {path: labels, fieldRef: {fieldPath: metadata.labels}}]}
`

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

// unportables are specs that neither side lets through, with a word of the refusal.
// baseline marks those that Pod Security's level baseline refuses too.
var unportables = []struct {
	spec, word string
	baseline   bool
}{
	{"hostNetwork: true", "hostNetwork", true},
	{"hostPID: true", "hostPID", true},
	{"hostIPC: true", "hostIPC", true},
	{"os: {name: windows}", "windows", false},
	{"resourceClaims: [{name: gpu, resourceClaimName: gpu}]", "resourceClaims", false},
	{"volumes: [{name: v, hostPath: {path: /}}]", "hostPath", true},
	{"volumes: [{name: v, persistentVolumeClaim: {claimName: c}}]", "persistentVolumeClaim", false},
	{"volumes: [{name: v, ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}}}]", "ephemeral", false},
	{"volumes: [{name: v, csi: {driver: d}}]", "csi", false},
	{"volumes: [{name: v, nfs: {server: s, path: /}}]", "of a type", false},
	{"volumes: [{name: v, emptyDir: {medium: HugePages}}]", "HugePages", false},
	{"volumes: [{name: v, projected: {sources: [{serviceAccountToken: {path: t}}]}}]", "token", false},
	{"volumes: [{name: kube-api-access-mine, projected: {sources: [{serviceAccountToken: {path: t}}, {secret: {name: s}}]}}]", "token", false},
	{"volumes: [{name: v, projected: {sources: [{clusterTrustBundle: {name: b, path: t}}]}}]", "trust bundle", false},
	{"securityContext: {sysctls: [{name: kernel.msgmax, value: '1'}]}", "kernel.msgmax", true},
	{"securityContext: {windowsOptions: {hostProcess: true}}", "windowsOptions", true},
	{"securityContext: {seLinuxOptions: {type: spc_t}}", "SELinux", true},
	{"securityContext: {seLinuxOptions: {user: u}}", "SELinux", true},
	{"securityContext: {seccompProfile: {type: Unconfined}}", "seccomp", true},
	{"securityContext: {appArmorProfile: {type: Unconfined}}", "AppArmor", true},
	{"containers: [{name: a, image: i, ports: [{containerPort: 1, hostPort: 1}]}]", "hostPort", true},
	{"initContainers: [{name: a, image: i, ports: [{containerPort: 1, hostPort: 1}]}]", "hostPort", true},
	{"containers: [{name: a, image: i, volumeMounts: [{name: v, mountPath: /v, mountPropagation: Bidirectional}]}]", "propagation", false},
	{"containers: [{name: a, image: i, volumeDevices: [{name: v, devicePath: /v}]}]", "block devices", false},
	{"containers: [{name: a, image: i, resources: {claims: [{name: gpu}]}}]", "claims", false},
	{"containers: [{name: a, image: i, resources: {limits: {hugepages-2Mi: 2Mi}}}]", "huge pages", false},
	{"containers: [{name: a, image: i, livenessProbe: {httpGet: {host: 10.0.0.1, port: 80}}}]", "host", true},
	{"containers: [{name: a, image: i, readinessProbe: {tcpSocket: {host: 10.0.0.1, port: 80}}}]", "host", true},
	{"containers: [{name: a, image: i, lifecycle: {preStop: {httpGet: {host: 10.0.0.1, port: 80}}}}]", "host", true},
	{"containers: [{name: a, image: i, securityContext: {privileged: true}}]", "privileged", true},
	{"initContainers: [{name: a, image: i, securityContext: {privileged: true}}]", "privileged", true},
	{"containers: [{name: a, image: i, securityContext: {procMount: Unmasked}}]", "procMount", true},
	{"containers: [{name: a, image: i, securityContext: {capabilities: {add: [NET_RAW]}}}]", "NET_RAW", true},
	{"containers: [{name: a, image: i, securityContext: {capabilities: {add: [ALL]}}}]", "ALL", true},
	{"containers: [{name: a, image: i, securityContext: {seccompProfile: {type: Unconfined}}}]", "seccomp", true},
	{"containers: [{name: a, image: i, securityContext: {appArmorProfile: {type: Unconfined}}}]", "AppArmor", true},
	{"containers: [{name: a, image: i, securityContext: {seLinuxOptions: {role: r}}}]", "SELinux", true},
	{"containers: [{name: a, image: i, securityContext: {windowsOptions: {hostProcess: true}}}]", "windowsOptions", true},
}

func TestUnportable(t *testing.T) {
	for _, tc := range unportables {
		pod := podOf(t, tc.spec)
		_, r := Translate(pod, origin)
		if r == nil || r.Reason != ReasonNotOffloadable || !strings.Contains(r.Message, tc.word) || sentence(r) != "" {
			t.Errorf("Translate(%s) refuses with %v", tc.spec, r)
		}
		pod.TypeMeta, pod.Namespace = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ""
		pod.Annotations = map[string]string{AnnotationOriginUID: "u"}
		_, _, r = Admit(encode(t, pod), guest)
		if r == nil || r.Reason != ReasonForbidden || !strings.Contains(r.Message, tc.word) || sentence(r) != "" {
			t.Errorf("Admit(%s) refuses with %v", tc.spec, r)
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
		t.Errorf("annotations %v, %v", foreign(got.Annotations), r)
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
