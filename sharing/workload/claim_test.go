package workload

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"
)

// claimOf returns a claim as the consumer's API server has it, with a spec in YAML.
func claimOf(t *testing.T, spec string) *corev1.PersistentVolumeClaim {
	t.Helper()
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "data", Namespace: "shop", UID: "6f2b1c1e-2a52-4b0c-9a55-0d6f0a3c9b11", Labels: map[string]string{"app": "db"}}}
	if err := yaml.UnmarshalStrict([]byte(spec), &claim.Spec); err != nil {
		t.Fatal(err)
	}
	return claim
}

const plainClaim = `{accessModes: [ReadWriteOnce], resources: {requests: {storage: 5Gi}}, storageClassName: liqo, volumeMode: Filesystem}`

// TestClaim: what a consumer sends of a claim is what a provider takes, with the provider's class.
func TestClaim(t *testing.T) {
	for _, spec := range []string{plainClaim, strings.Replace(plainClaim, "ReadWriteOnce", "ReadWriteOncePod", 1), strings.Replace(plainClaim, "5Gi", "5G", 1)} {
		claim := claimOf(t, spec)
		raw, why := ClaimOf(claim, origin)
		if why != nil {
			t.Fatalf("%s: %v", spec, why)
		}
		in := guest
		in.Class = "local-path"
		name := ClaimName(claim.Name, string(claim.UID))
		clean, size, why := AdmitClaim(raw, name, in)
		if why != nil {
			t.Fatalf("%s: %v", spec, why)
		}
		var got corev1.PersistentVolumeClaim
		if err := json.Unmarshal(clean, &got); err != nil {
			t.Fatal(err)
		}
		asked := claim.Spec.Resources.Requests[corev1.ResourceStorage]
		if have := got.Spec.Resources.Requests[corev1.ResourceStorage]; size != asked.Value() || have.Value() != size {
			t.Errorf("%s: %d bytes, %s in the claim", spec, size, &have)
		}
		if got.Name != name || got.Namespace != guest.Namespace || *got.Spec.StorageClassName != "local-path" || got.Labels[LabelOriginCluster] != string(consumer) || got.Labels["app"] != "" ||
			got.Annotations[AnnotationOriginUID] != string(claim.UID) || got.Spec.AccessModes[0] != claim.Spec.AccessModes[0] {
			t.Errorf("%s: %s", spec, clean)
		}
	}
}

func TestClaimStays(t *testing.T) {
	for spec, says := range map[string]string{
		strings.Replace(plainClaim, "ReadWriteOnce", "ReadWriteMany", 1):                                        "use ReadWriteOnce or ReadWriteOncePod",
		strings.Replace(plainClaim, "Filesystem", "Block", 1):                                                   "use Filesystem",
		strings.Replace(plainClaim, "volumeMode", "dataSource: {kind: VolumeSnapshot, name: x}, volumeMode", 1): "data source",
		strings.Replace(plainClaim, "volumeMode", "selector: {matchLabels: {a: b}}, volumeMode", 1):             "remove the selector",
		strings.Replace(plainClaim, "5Gi", "2Pi", 1):                                                            "ask for less",
		strings.Replace(plainClaim, "5Gi", `"0"`, 1):                                                            "set resources.requests.storage",
		`{resources: {requests: {storage: 5Gi}}}`:                                                               "no access mode",
		strings.Replace(plainClaim, "volumeMode", "volumeAttributesClassName: fast, volumeMode", 1):             "volumeAttributesClassName",
	} {
		if _, why := ClaimOf(claimOf(t, spec), origin); why == nil || !strings.Contains(why.Message, says) {
			t.Errorf("%s: %v, want %q", spec, why, says)
		}
	}
}

// TestAttackClaims: a consumer chooses neither class, volume nor source, and gets nobody else's.
func TestAttackClaims(t *testing.T) {
	document := func(meta, spec string) string {
		return fmt.Sprintf(`{"apiVersion":"v1","kind":"PersistentVolumeClaim","metadata":{"name":"data","annotations":{"liqo.io/origin-uid":"u"}%s},"spec":{%s}}`, meta, spec)
	}
	const fine = `"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}}`
	if _, _, why := AdmitClaim([]byte(document("", fine)), "data", guest); why != nil {
		t.Fatal(why)
	}
	for name, raw := range map[string]string{
		"a class":             document("", fine+`,"storageClassName":"hostpath"`),
		"no class":            document("", fine+`,"storageClassName":""`),
		"a volume":            document("", fine+`,"volumeName":"disk-of-others"`),
		"a source":            document("", fine+`,"dataSource":{"kind":"PersistentVolumeClaim","name":"theirs"}`),
		"a source elsewhere":  document("", fine+`,"dataSourceRef":{"kind":"PersistentVolumeClaim","name":"theirs","namespace":"kube-system"}`),
		"a selector":          document("", fine+`,"selector":{}`),
		"a block device":      document("", fine+`,"volumeMode":"Block"`),
		"limits":              document("", strings.Replace(fine, `"requests"`, `"limits":{"storage":"1Gi"},"requests"`, 1)),
		"other resources":     document("", strings.Replace(fine, `"storage"`, `"cpu":"1","storage"`, 1)),
		"a petabyte and more": document("", strings.Replace(fine, "1Gi", "1025Ti", 1)),
		"an endless number":   document("", strings.Replace(fine, "1Gi", "1e999999999", 1)),
		"a negative size":     document("", strings.Replace(fine, "1Gi", "-1Gi", 1)),
		"nothing":             document("", `"accessModes":["ReadWriteOnce"]`),
		"finalizers":          document(`,"finalizers":["a/b"]`, fine),
		"owners":              document(`,"ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"x","uid":"x"}]`, fine),
		"annotations":         document(`,"labels":{"a":"b"}`, fine),
		"a selected node":     strings.Replace(document("", fine), `"liqo.io/origin-uid"`, `"volume.kubernetes.io/selected-node":"n","liqo.io/origin-uid"`, 1),
		"a volume type":       strings.Replace(document("", fine), `"liqo.io/origin-uid"`, `"volumeType":"hostPath","liqo.io/origin-uid"`, 1), // local-path would follow it
		"another name":        strings.Replace(document("", fine), `"name":"data"`, `"name":"other"`, 1),
		"another namespace":   document(`,"namespace":"kube-system"`, fine),
		"another cluster":     document(`,"labels":{"liqo.io/origin-cluster-id":"other"}`, fine),
		"another kind":        strings.Replace(document("", fine), "PersistentVolumeClaim\",\"metadata", "PersistentVolume\",\"metadata", 1),
		"too long":            document(`,"labels":{"a":"`+strings.Repeat("x", 70<<10)+`"}`, fine),
		"no object":           `[]`,
		"an attributes class": document("", fine+`,"volumeAttributesClassName":"x"`),
		"many writers":        strings.Replace(document("", fine), "ReadWriteOnce", "ReadWriteMany", 1),
		"one writer and many": strings.Replace(document("", fine), `["ReadWriteOnce"]`, `["ReadWriteOnce","ReadOnlyMany"]`, 1),
	} {
		if clean, _, why := AdmitClaim([]byte(raw), "data", guest); why == nil || why.Message == "" {
			t.Errorf("%s: %s", name, clean)
		}
	}
}

// TestMountedClaims: a pod mounts the copy of its claim, and at a provider only what its consumer made.
func TestMountedClaims(t *testing.T) {
	pod := podOf(t, `{volumes: [{name: data, persistentVolumeClaim: {claimName: data, readOnly: true}}], containers: [{name: app, image: "docker.io/app:1", volumeMounts: [{name: data, mountPath: /data}]}]}`)
	if _, why := Translate(pod, origin); why == nil || why.Reason != ReasonNotOffloadable {
		t.Errorf("without claims at the provider: %v", why)
	}
	in := origin
	in.Claim = func(namespace, name string) (string, *Refusal) {
		if namespace != "shop" || name != "data" {
			return "", notOffloadable("another claim")
		}
		return "data-there", nil
	}
	out, why := Translate(pod, in)
	if why != nil {
		t.Fatal(why)
	}
	if c := out.Spec.Volumes[0].PersistentVolumeClaim; c == nil || c.ClaimName != "data-there" || !c.ReadOnly || pod.Spec.Volumes[0].PersistentVolumeClaim.ClaimName != "data" {
		t.Errorf("%+v", c)
	}
	raw := encode(t, out)
	if _, _, why := Admit(raw, guest); why == nil || why.Reason != ReasonForbidden {
		t.Errorf("a claim of nobody: %v", why)
	}
	has := guest
	has.HasClaim = func(name string) bool { return name == "data-there" }
	if _, pod, why := Admit(raw, has); why != nil || pod.Spec.Volumes[0].PersistentVolumeClaim.ClaimName != "data-there" {
		t.Errorf("its own claim: %v", why)
	}
}

func TestClaimName(t *testing.T) {
	for _, name := range []string{"data", "data.db-0", strings.Repeat("a", 253), "a.b"} {
		got := ClaimName(name, "u1")
		if len(validation.IsDNS1123Label(got)) > 0 || got != ClaimName(name, "u1") || got == ClaimName(name, "u2") {
			t.Errorf("%s: %s", name, got)
		}
	}
}
