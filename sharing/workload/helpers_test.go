package workload

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand"
	"reflect"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"liqo.io/agent/peer"
	"liqo.io/agent/peer/text"
	"liqo.io/agent/sharing/registry"
)

const consumer = peer.ClusterID("11111111-1111-4111-8111-111111111111")

var (
	origin = Origin{Cluster: consumer, Namespace: "liqo-11111111-shop", Node: "barn"}
	guest  = Guest{Cluster: consumer, Namespace: "liqo-11111111-shop", Registries: registry.List{Entries: []string{"docker.io"}}}
	now    = time.Date(2026, 11, 22, 4, 0, 0, 0, time.UTC)
)

// podOf returns a pod as the consumer's API server has it, with a spec in YAML.
func podOf(t testing.TB, spec string) *corev1.Pod {
	t.Helper()
	var s corev1.PodSpec
	if err := yaml.UnmarshalStrict([]byte(spec), &s); err != nil {
		t.Fatal(err)
	}
	return podWith(t, s)
}

func podWith(t testing.TB, spec corev1.PodSpec) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{Spec: spec, ObjectMeta: metav1.ObjectMeta{
		Name: "web", Namespace: "shop", UID: "6f2b1c1e-2a52-4b0c-9a55-0d6f0a3c9b11", CreationTimestamp: metav1.Time{Time: now.Add(-time.Hour)}, Generation: 1,
	}}
	if len(pod.Spec.Containers) == 0 {
		pod.Spec.Containers = []corev1.Container{{Name: "app", Image: "registry/app:1"}}
	}
	return pod
}

func encode(t testing.TB, v any) []byte {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func decode[T any](t testing.TB, raw []byte) *T {
	t.Helper()
	out := new(T)
	if err := json.Unmarshal(raw, out); err != nil {
		t.Fatalf("%s: %v", raw, err)
	}
	return out
}

// stored returns v as an API server gives it back.
func stored[T any](t testing.TB, v *T) *T { return decode[T](t, encode(t, v)) }

// sentence reports what is wrong with a text that is told to people.
func sentence(r *Refusal) string {
	switch {
	case r.Reason == "" || strings.Contains(r.Reason, " "):
		return "no reason"
	case len(r.Message) > 4096:
		return "too long"
	case !strings.HasSuffix(r.Message, "."):
		return "no full stop"
	case !strings.Contains(r.Message, ": "):
		return "does not say what to do"
	case text.Line(r.Message, 1<<20) != r.Message:
		return "has control characters"
	}
	return ""
}

// filler fills values with random things.
type filler struct {
	r       *rand.Rand
	nilOdds float64 // how likely a pointer, list or map stays empty
	strings []string
}

func (f *filler) fill(v reflect.Value, depth int) {
	switch at := v.Addr().Interface().(type) {
	case *resource.Quantity:
		*at = resource.MustParse([]string{"0", "1", "250m", "64Mi", "1.5", "3e2"}[f.r.Intn(6)])
		return
	case *metav1.Time:
		if f.r.Intn(3) > 0 {
			*at = metav1.Time{Time: time.Date(f.r.Intn(10100), 12, 31, 23, 59, 59, f.r.Intn(1e9), time.FixedZone("", f.r.Intn(86400)-43200))}
		}
		return
	case *metav1.MicroTime:
		*at = metav1.MicroTime{Time: now}
		return
	case *metav1.FieldsV1:
		return
	}
	empty := depth > 12 || f.r.Float64() < f.nilOdds
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(f.r.Float64() > f.nilOdds)
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt([]int64{0, 1, 2, 8080, -1, 1 << 30}[f.r.Intn(6)])
	case reflect.String:
		if f.r.Intn(4) > 0 {
			v.SetString(f.strings[f.r.Intn(len(f.strings))])
		}
	case reflect.Uint8:
		v.SetUint(uint64(f.r.Intn(256)))
	case reflect.Pointer:
		if !empty {
			v.Set(reflect.New(v.Type().Elem()))
			f.fill(v.Elem(), depth+1)
		}
	case reflect.Slice:
		for n := f.r.Intn(3); !empty && n >= 0; n-- {
			v.Set(reflect.Append(v, reflect.Zero(v.Type().Elem())))
			f.fill(v.Index(v.Len()-1), depth+1)
		}
	case reflect.Map:
		if !empty {
			v.Set(reflect.MakeMap(v.Type()))
			for range f.r.Intn(3) {
				key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
				f.fill(key, depth+1)
				f.fill(value, depth+1)
				v.SetMapIndex(key, value)
			}
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Field(i).CanSet() {
				f.fill(v.Field(i), depth+1)
			}
		}
	}
}

var usual = []string{
	"a", "app", "shop", "default", "Always", "Never", "OnFailure", "Default", "RuntimeDefault", "Memory", "cpu", "memory", "x/y", "app.kubernetes.io/name",
	"liqo.io/type", "kubernetes.io/hostname", "metadata.uid", "metadata.name", "metadata.annotations['x']", "$(HOME)", "10.0.0.1", "v1", "TCP", "kube-root-ca.crt",
}

// randomPod returns a pod with every field filled at random; the lower the odds of
// empty fields, the less will be left of it anywhere.
func randomPod(seed int64, nilOdds float64) *corev1.Pod {
	f := &filler{rand.New(rand.NewSource(seed)), nilOdds, usual}
	pod := new(corev1.Pod)
	f.fill(reflect.ValueOf(pod).Elem(), 0)
	pod.ObjectMeta.Name, pod.Namespace, pod.UID = "web", "shop", "6f2b1c1e-2a52-4b0c-9a55-0d6f0a3c9b11"
	if pod.Spec.OS != nil {
		pod.Spec.OS.Name = corev1.Linux
	}
	// Times that cannot be written are nothing that an API server has.
	pod.CreationTimestamp, pod.DeletionTimestamp, pod.ManagedFields = metav1.Time{Time: now.Add(-time.Hour)}, nil, nil
	pod.Status = corev1.PodStatus{}
	for _, keys := range []map[string]string{pod.Labels, pod.Annotations} {
		maps.DeleteFunc(keys, func(key, _ string) bool { return len(validation.IsQualifiedName(key)) > 0 })
	}
	for i := range pod.Spec.InitContainers {
		pod.Spec.InitContainers[i].Name, pod.Spec.InitContainers[i].Image = fmt.Sprintf("init-%d", i), "init:1"
	}
	for i := range pod.Spec.Containers {
		pod.Spec.Containers[i].Name, pod.Spec.Containers[i].Image = fmt.Sprintf("app-%d", i), "app:1"
	}
	for i := range pod.Spec.Volumes {
		if image := pod.Spec.Volumes[i].Image; image != nil {
			image.Reference = "data:1"
		}
	}
	return pod
}

var hostile = []string{
	"init-0", "app-0", "app-1", "\x1b[2J\x1b[31mroot\u202e", "Running", "True", "False", "Pending", "Failed", "Succeeded", "999.1.1.1", "10.42.0.7",
	"::ffff:1.2.3.4", "fe80::1%eth0", "127.0.0.1", "fd00::7", "Ready", "ContainersReady", "PodScheduled", "Initialized", "Unschedulable", "\xff\xfe",
	strings.Repeat("long\n", 1000), "DisruptionTarget", "bad type!",
}

// randomStatus returns what a provider may say that means ill.
func randomStatus(seed int64) corev1.PodStatus {
	f := &filler{rand.New(rand.NewSource(seed)), 0.3, hostile}
	var s corev1.PodStatus
	f.fill(reflect.ValueOf(&s).Elem(), 0)
	return s
}

// copyOf returns what the provider has of mine.
func copyOf(t testing.TB, mine *corev1.Pod) *corev1.Pod {
	t.Helper()
	sent, r := Translate(mine, origin)
	if r != nil {
		t.Fatal(r)
	}
	_, theirs, r := Admit(encode(t, sent), guest)
	if r != nil {
		t.Fatal(r)
	}
	theirs.UID, theirs.Generation = types.UID("b0b0b0b0-0000-4000-8000-000000000000"), 1
	return theirs
}
