package workload

import (
	"cmp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"liqo.io/agent/internal/attack"
	"liqo.io/agent/sharing/registry"
)

// TestAttackImages: a guest's pod has images of the registries on the list and of no
// others, wherever in it they are named.
func TestAttackImages(t *testing.T) {
	in := guest
	in.Registries = registry.List{Entries: []string{"docker.io", registry.Own}, Own: []string{"registry.example.com"}}
	pod := func(spec string) string {
		return strings.Replace(document("", ""), `"containers":[{"name":"app","image":"i"}]`, spec, 1)
	}
	verdict := func(raw string) string {
		_, _, r := Admit([]byte(raw), in)
		if r == nil {
			return "admitted"
		}
		if s := sentence(r); s != "" {
			t.Errorf("%q: %s", r.Message, s)
		}
		return r.Reason
	}
	for _, image := range []string{"nginx", "docker.io/library/nginx:1", "index.docker.io/a/b", "registry.example.com/a@sha256:" + strings.Repeat("0", 64)} {
		if got := verdict(pod(`"containers":[{"name":"app","image":"` + image + `"}]`)); got != "admitted" {
			t.Errorf("%s: %s", image, got)
		}
	}
	for _, tc := range []struct{ what, image, want string }{
		{"from a registry that is not on the list", "ghcr.io/evil/miner", ReasonRegistryNotAllowed},
		{"from an address on the LAN", "192.168.1.1:80/a", ReasonRegistryNotAllowed},
		{"from an IPv6 address", "[fe80::1]:6443/a", ReasonRegistryNotAllowed},
		{"from the address of the cloud's metadata", "169.254.169.254/latest/meta-data", ReasonRegistryNotAllowed},
		{"from the box itself", "localhost:6443/a", ReasonRegistryNotAllowed},
		{"from a service of the cluster", "registry.default.svc.cluster.local:5000/a", ReasonRegistryNotAllowed},
		{"from a name that only the LAN knows", "nas.local/a", ReasonRegistryNotAllowed},
		{"from a single word with a port", "router:8080/a", ReasonRegistryNotAllowed},
		{"from another port of a registry on the list", "registry.example.com:6443/a", ReasonRegistryNotAllowed},
		{"from a name that begins like one on the list", "docker.io.evil.example/a", ReasonRegistryNotAllowed},
		{"by the ID of what is in the store", strings.Repeat("ab", 32), ReasonInvalid},
		{"with a user's name before the registry", "docker.io@192.168.1.1/a", ReasonInvalid},
		{"as a URL", "http://192.168.1.1/a", ReasonInvalid},
		{"without a name", "", ReasonInvalid},
	} {
		for _, at := range []struct{ where, spec string }{
			{"a container", `"containers":[{"name":"app","image":"` + tc.image + `"}]`},
			{"an init container", `"initContainers":[{"name":"i","image":"` + tc.image + `"}],"containers":[{"name":"app","image":"i"}]`},
			{"a sidecar", `"initContainers":[{"name":"i","image":"` + tc.image + `","restartPolicy":"Always"}],"containers":[{"name":"app","image":"i"}]`},
			{"a volume", `"volumes":[{"name":"v","image":{"reference":"` + tc.image + `"}}],"containers":[{"name":"app","image":"i"}]`},
		} {
			attempt := attack.Attempt{What: "have an image for " + at.where + " " + tc.what, As: "consumer", Want: tc.want}
			attempt.Saw(t, verdict(pod(at.spec)))
		}
		_, r := AdmitPatch([]byte(`{"spec":{"containers":[{"name":"app","image":"`+tc.image+`"}]}}`), in)
		if r == nil {
			r = &Refusal{Reason: "admitted"}
		}
		attack.Attempt{What: "change the image of a pod to one " + tc.what, As: "consumer", Want: tc.want}.Saw(t, r.Reason)
	}
	attack.Attempt{What: "have an image for an ephemeral container", As: "consumer", Want: ReasonForbidden}.
		Saw(t, verdict(pod(`"ephemeralContainers":[{"name":"e","image":"nginx"}],"containers":[{"name":"app","image":"i"}]`)))
}

// TestAttackLocalImages: an image that only lies in the box's store is pulled first, so
// that who may not pull it does not run it.
func TestAttackLocalImages(t *testing.T) {
	for _, local := range []bool{false, true} {
		for _, policy := range []corev1.PullPolicy{"", corev1.PullNever, corev1.PullIfNotPresent, corev1.PullAlways} {
			in := guest
			in.LocalImages = local
			raw := strings.Replace(document("", `"initContainers":[{"name":"i","image":"i","imagePullPolicy":"P"}],"volumes":[{"name":"v","image":{"reference":"d","pullPolicy":"P"}}]`),
				`"image":"i"}]`, `"image":"i","imagePullPolicy":"P"}]`, 1)
			raw = strings.ReplaceAll(raw, `"P"`, `"`+string(policy)+`"`)
			_, pod, r := Admit([]byte(raw), in)
			if r != nil {
				t.Fatal(r)
			}
			want := string(corev1.PullAlways)
			if local {
				want = cmp.Or(string(policy), "none")
			}
			got := []string{string(pod.Spec.InitContainers[0].ImagePullPolicy), string(pod.Spec.Containers[0].ImagePullPolicy), string(pod.Spec.Volumes[0].Image.PullPolicy)}
			slices.Sort(got)
			saw := cmp.Or(strings.Join(slices.Compact(got), " and "), "none")
			if local {
				if saw != want {
					t.Errorf("with local images, %q becomes %s", policy, saw)
				}
				continue
			}
			attack.Attempt{What: "run what lies in the store, with imagePullPolicy " + cmp.Or(string(policy), "left out"), As: "consumer", Want: want}.Saw(t, saw)
		}
	}
}
