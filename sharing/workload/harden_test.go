package workload

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// soft returns what a guest's pod leaves open that it may not; "" for nothing.
func soft(spec *corev1.PodSpec) string {
	if spec.OS != nil && spec.OS.Name == corev1.Windows {
		return ""
	}
	if spec.SecurityContext == nil || spec.SecurityContext.SeccompProfile == nil {
		return "no seccomp profile"
	}
	for _, list := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for _, c := range list {
			switch sc := c.SecurityContext; {
			case sc == nil || sc.Capabilities == nil:
				return "capabilities are open"
			case !slices.ContainsFunc(sc.Capabilities.Drop, func(c corev1.Capability) bool { return c == "ALL" || c == "NET_RAW" }):
				return "raw sockets are open"
			case sc.AllowPrivilegeEscalation == nil && (sc.Privileged == nil || !*sc.Privileged):
				return "new privileges are open"
			}
		}
	}
	return ""
}

func TestHarden(t *testing.T) {
	in := guest
	in.Offer = corev1.ResourceList{corev1.ResourceEphemeralStorage: resource.MustParse("8Gi"), corev1.ResourceMemory: resource.MustParse("1Gi")}
	const filled = `{"capabilities":{"drop":["NET_RAW"]},"allowPrivilegeEscalation":false}`
	for _, tc := range []struct{ name, container, pod, wantContainer, wantPod string }{
		{"nothing said", ``, ``, `"resources":{"limits":{"ephemeral-storage":"8Gi"}},"securityContext":` + filled, `{"seccompProfile":{"type":"RuntimeDefault"}}`},
		{"said already", `,"securityContext":{"capabilities":{"drop":["ALL"]},"allowPrivilegeEscalation":false},"resources":{"limits":{"ephemeral-storage":"1Gi"}}`,
			`,"securityContext":{"runAsUser":1,"seccompProfile":{"type":"Localhost","localhostProfile":"p"}}`,
			`"resources":{"limits":{"ephemeral-storage":"1Gi"}},"securityContext":{"capabilities":{"drop":["ALL"]},"allowPrivilegeEscalation":false}`,
			`{"runAsUser":1,"seccompProfile":{"type":"Localhost","localhostProfile":"p"}}`},
		{"sudo", `,"securityContext":{"allowPrivilegeEscalation":true,"capabilities":{"add":["KILL"],"drop":["CHOWN"]}},"resources":{"limits":{"cpu":"1"}}`, ``,
			`"resources":{"limits":{"cpu":"1","ephemeral-storage":"8Gi"}},"securityContext":{"capabilities":{"add":["KILL"],"drop":["CHOWN","NET_RAW"]},"allowPrivilegeEscalation":true}`,
			`{"seccompProfile":{"type":"RuntimeDefault"}}`},
		{"another spelling, and too large a limit", `,"securityContext":{"capabilities":{"drop":["CAP_NET_RAW"]}},"resources":{"limits":{"ephemeral-storage":"9Gi"}}`, ``,
			`"resources":{"limits":{"ephemeral-storage":"8Gi"}},"securityContext":{"capabilities":{"drop":["CAP_NET_RAW","NET_RAW"]},"allowPrivilegeEscalation":false}`, `{"seccompProfile":{"type":"RuntimeDefault"}}`},
		// Pod Security refuses it; that is better than what the API server says about the two together.
		{"privileged", `,"securityContext":{"privileged":true}`, ``,
			`"resources":{"limits":{"ephemeral-storage":"8Gi"}},"securityContext":{"capabilities":{"drop":["NET_RAW"]},"privileged":true}`, `{"seccompProfile":{"type":"RuntimeDefault"}}`},
	} {
		var spec corev1.PodSpec
		if err := json.Unmarshal([]byte(`{"containers":[{"name":"app","image":"i"`+tc.container+`}]`+tc.pod+`}`), &spec); err != nil {
			t.Fatal(err)
		}
		for range 2 { // the second time it is hard already
			harden(&spec, in)
			if got := string(mustEncode(t, spec.Containers[0])); got != `{"name":"app","image":"i",`+tc.wantContainer+`}` {
				t.Errorf("%s: %s", tc.name, got)
			}
			if got := string(mustEncode(t, spec.SecurityContext)); got != tc.wantPod || soft(&spec) != "" {
				t.Errorf("%s: %s, %s", tc.name, got, soft(&spec))
			}
		}
	}
}

func TestHardenVolumes(t *testing.T) {
	offer := corev1.ResourceList{corev1.ResourceEphemeralStorage: resource.MustParse("8Gi"), corev1.ResourceMemory: resource.MustParse("1Gi")}
	for _, tc := range []struct {
		dir   string
		offer corev1.ResourceList
		want  string
	}{
		{`{}`, offer, `{"sizeLimit":"8Gi"}`},
		{`{"sizeLimit":"0"}`, offer, `{"sizeLimit":"8Gi"}`},
		{`{"sizeLimit":"1Gi"}`, offer, `{"sizeLimit":"1Gi"}`},
		{`{"sizeLimit":"9Gi"}`, offer, `{"sizeLimit":"8Gi"}`},
		{`{"medium":"Memory"}`, offer, `{"medium":"Memory","sizeLimit":"1Gi"}`},
		{`{"medium":"Memory","sizeLimit":"2Gi"}`, offer, `{"medium":"Memory","sizeLimit":"1Gi"}`},
		{`{"sizeLimit":"9Gi"}`, nil, `{"sizeLimit":"9Gi"}`},
	} {
		var spec corev1.PodSpec
		if err := json.Unmarshal([]byte(`{"volumes":[{"name":"v","emptyDir":`+tc.dir+`}]}`), &spec); err != nil {
			t.Fatal(err)
		}
		harden(&spec, Guest{Offer: tc.offer})
		if got := string(mustEncode(t, spec.Volumes[0].EmptyDir)); got != tc.want {
			t.Errorf("%s: %s, want %s", tc.dir, got, tc.want)
		}
	}
}

// TestEmptyFiles: a file that would be empty at the provider is no file to send.
func TestEmptyFiles(t *testing.T) {
	for _, tc := range []struct{ path, word string }{
		{"metadata.annotations['example.com/motto']", "example.com/motto"},
		{"metadata.labels['liqo.io/x']", "liqo.io/x"},
		{"metadata.annotations['note']", ""},
		{"metadata.annotations['example.com/unset']", ""},
		{"metadata.labels", ""},
	} {
		for _, volume := range []string{
			`downwardAPI: {items: [{path: f, fieldRef: {fieldPath: "` + tc.path + `"}}]}`,
			`projected: {sources: [{downwardAPI: {items: [{path: f, fieldRef: {fieldPath: "` + tc.path + `"}}]}}]}`,
		} {
			pod := podOf(t, "volumes: [{name: v, "+volume+"}]")
			pod.Labels = map[string]string{"liqo.io/x": "y"}
			pod.Annotations = map[string]string{"example.com/motto": "onward", "note": "n"}
			_, r := Translate(pod, origin)
			if tc.word == "" && r != nil || tc.word != "" && (r == nil || r.Reason != ReasonNotOffloadable || !strings.Contains(r.Message, tc.word) || sentence(r) != "") {
				t.Errorf("%s: %v", tc.path, r)
			}
		}
	}
}
