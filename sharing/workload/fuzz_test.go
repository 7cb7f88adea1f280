package workload

import (
	"bytes"
	"encoding/json"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func FuzzAdmit(f *testing.F) {
	sent, r := Translate(full(f), origin)
	if r != nil {
		f.Fatal(r)
	}
	f.Add(encode(f, sent))
	f.Add([]byte(document(`"namespace":"kube-system"`, `"nodeName":"n"`)))
	for _, tc := range unportables(f) {
		pod := podWith(f, tc.Spec)
		pod.APIVersion, pod.Kind, pod.Annotations = "v1", "Pod", map[string]string{AnnotationOriginUID: "u"}
		pod.Namespace = guest.Namespace
		f.Add(encode(f, pod))
	}
	in := guest
	in.Arch, in.Enforce = "amd64", EnforceLimits
	f.Fuzz(func(t *testing.T, raw []byte) {
		for _, in := range []Guest{guest, in} {
			clean, pod, r := Admit(raw, in)
			if r != nil {
				if s := sentence(r); s != "" {
					t.Fatalf("%q: %s", r.Message, s)
				}
				continue
			}
			if pod.Namespace != in.Namespace || pod.Labels[LabelOriginCluster] != string(consumer) || pod.Annotations[AnnotationOriginUID] == "" ||
				pod.OwnerReferences != nil || pod.Finalizers != nil || pod.Spec.NodeName != "" || pod.Spec.Tolerations != nil || pod.Spec.ServiceAccountName != "" ||
				*pod.Spec.AutomountServiceAccountToken || unportable(&pod.Spec) != "" {
				t.Fatalf("admitted %s", clean)
			}
			if r := admitImages(pod.Spec.DeepCopy(), in); r != nil {
				t.Fatalf("admitted %s: %v", clean, r)
			}
			if s := soft(&pod.Spec); s != "" {
				t.Fatalf("admitted %s: %s", clean, s)
			}
			for name, q := range Requests(pod) {
				if q.Sign() < 0 {
					t.Fatalf("asks for %s of %s", q.String(), name)
				}
			}
			again := new(corev1.Pod)
			if err := json.Unmarshal(clean, again); err != nil {
				t.Fatalf("%s: %v", clean, err)
			}
			if in.Arch == "" {
				if twice, _, r := Admit(clean, in); r != nil || !bytes.Equal(twice, clean) {
					t.Fatalf("admitted again: %v\n%s\n%s", r, clean, twice)
				}
			}
		}
	})
}

func FuzzAdmitPatch(f *testing.F) {
	f.Add([]byte(`{"metadata":{"uid":"u","labels":{"a":"b","c":null},"annotations":{"liqo.io/applied":"{}"}},"spec":{"activeDeadlineSeconds":1,"containers":[{"name":"a","image":"i"}]}}`))
	f.Add([]byte(`{"metadata":{"labels":{"$patch":"replace"}},"spec":{"$setElementOrder/containers":[{"name":"a"}]}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		clean, r := AdmitPatch(raw, guest)
		if r != nil {
			if s := sentence(r); s != "" {
				t.Fatalf("%q: %s", r.Message, s)
			}
			return
		}
		if twice, r := AdmitPatch(clean, guest); r != nil || !bytes.Equal(twice, clean) {
			t.Fatalf("admitted again: %v\n%s\n%s", r, clean, twice)
		}
		var all struct {
			Metadata map[string]json.RawMessage
			Spec     map[string]json.RawMessage
		}
		if err := json.Unmarshal(clean, &all); err != nil {
			t.Fatal(err)
		}
		for key := range all.Metadata {
			if key != "uid" && key != "labels" && key != "annotations" {
				t.Fatalf("changes %s", key)
			}
		}
		for key := range all.Spec {
			if key != "containers" && key != "initContainers" && key != "activeDeadlineSeconds" {
				t.Fatalf("changes %s", key)
			}
		}
		var labels map[string]*string
		if err := json.Unmarshal(all.Metadata["labels"], &labels); err == nil {
			for key := range labels {
				if !carries(key) || key[0] == '$' {
					t.Fatalf("changes the label %s", key)
				}
			}
		}
		var annotations map[string]*string
		if err := json.Unmarshal(all.Metadata["annotations"], &annotations); err == nil {
			for key := range annotations {
				if !carriesAnnotation(key) && !ownAnnotation(key) {
					t.Fatalf("changes the annotation %s", key)
				}
			}
		}
	})
}

func FuzzAdmitObject(f *testing.F) {
	f.Add([]byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","annotations":{"liqo.io/origin-uid":"u"}},"data":{"k":"v"},"binaryData":{"b":"AQ=="},"immutable":true}`))
	f.Add([]byte(`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"a","annotations":{"liqo.io/origin-uid":"u"}},"type":"Opaque","data":{"b":"AQ=="},"stringData":{"s":"t"}}`))
	f.Add([]byte(`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"a","ownerReferences":[{}]},"type":"kubernetes.io/service-account-token"}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		for _, kind := range []string{"ConfigMap", "Secret"} {
			clean, r := AdmitObject(raw, kind, "a", guest)
			if r != nil {
				if s := sentence(r); s != "" {
					t.Fatalf("%q: %s", r.Message, s)
				}
				continue
			}
			if twice, r := AdmitObject(clean, kind, "a", guest); r != nil || !bytes.Equal(twice, clean) {
				t.Fatalf("admitted again: %v\n%s\n%s", r, clean, twice)
			}
			got := decode[struct {
				metav1.PartialObjectMetadata
				Type corev1.SecretType `json:"type"`
			}](t, clean)
			if got.Kind != kind || got.Name != "a" || got.Namespace != guest.Namespace || len(got.Labels) != 1 || len(got.Annotations) != 1 ||
				got.OwnerReferences != nil || got.Finalizers != nil || credential(got.Type) && kind == "Secret" {
				t.Fatalf("admitted %s", clean)
			}
		}
	})
}

func FuzzMirror(f *testing.F) {
	mine := podOf(f, "{restartPolicy: Never, initContainers: [{name: init-0, image: i}], containers: [{name: app-0, image: i}, {name: app-1, image: i}]}")
	theirs := running(f, mine)
	f.Add(encode(f, theirs.Status))
	for seed := range int64(8) {
		s := randomStatus(seed)
		if raw, err := json.Marshal(s); err == nil {
			f.Add(raw)
		}
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		var c Copy
		if json.Unmarshal([]byte(`{"status":`+string(raw)+`}`), &c) != nil {
			return
		}
		mine, theirs := mine.DeepCopy(), theirs.DeepCopy()
		theirs.Status = c.Status
		for _, got := range []corev1.PodStatus{Mirror(mine, theirs, origin, now), DeletedByProvider(mine, theirs, origin, now)} {
			if s := checkStatus(mine, &got); s != "" {
				t.Fatalf("%s in %+v", s, got)
			}
			after := mine.DeepCopy()
			after.Status = *stored(t, &got)
			if again := Mirror(after, theirs, origin, now); !SameStatus(&again, &after.Status) && theirs.Status.Phase != corev1.PodSucceeded && theirs.Status.Phase != corev1.PodFailed {
				t.Fatalf("not idempotent:\n%+v\n%+v", after.Status, again)
			}
		}
	})
}
