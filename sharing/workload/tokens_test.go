package workload

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

// withTokens is where a pod of a namespace with the label goes.
func withTokens() Origin {
	in := origin
	in.Tokens = true
	return in
}

// mountsTokens is the spec of a pod with the volume of admission, one of its author's, and the CA in a third.
const mountsTokens = `
serviceAccountName: robot
volumes:
- name: kube-api-access-x7k2b
  projected: {defaultMode: 420, sources: [{serviceAccountToken: {path: token, expirationSeconds: 3607}}, {configMap: {name: kube-root-ca.crt, items: [{key: ca.crt, path: ca.crt}]}}, {downwardAPI: {items: [{path: namespace, fieldRef: {fieldPath: metadata.namespace}}]}}]}
- name: vault
  projected: {defaultMode: 288, sources: [{serviceAccountToken: {path: vault/token, audience: vault, expirationSeconds: 900}}, {serviceAccountToken: {path: again, audience: vault, expirationSeconds: 900}}, {serviceAccountToken: {path: long, expirationSeconds: 31536000}}, {secret: {name: pw}}]}
- {name: ca, configMap: {name: kube-root-ca.crt, defaultMode: 256}}
initContainers:
- {name: init, image: i, volumeMounts: [{name: kube-api-access-x7k2b, mountPath: /var/run/secrets/kubernetes.io/serviceaccount, readOnly: true}]}
containers:
- {name: app, image: i, env: [{name: KUBERNETES_SERVICE_HOST, value: proxy.example.com}, {name: URL, value: "https://$(KUBERNETES_SERVICE_HOST)"}]}
`

func TestTokensGoAlong(t *testing.T) {
	pod := podOf(t, mountsTokens)
	before := pod.DeepCopy()
	got, r := Translate(pod, withTokens())
	if r != nil {
		t.Fatal(r)
	}
	if d := cmp.Diff(before, pod); d != "" {
		t.Errorf("Translate changed its argument: %s", d)
	}
	const secret = "liqo-tokens-6f2b1c1e-2a52-4b0c-9a55-0d6f0a3c9b11"
	want := podOf(t, strings.ReplaceAll(`
volumes:
- name: kube-api-access-x7k2b
  projected: {defaultMode: 420, sources: [{secret: {name: SECRET, items: [{key: token-0, path: token}]}}, {secret: {name: SECRET, items: [{key: ca.crt, path: ca.crt}]}}, {downwardAPI: {items: [{path: namespace, fieldRef: {fieldPath: "metadata.annotations['liqo.io/origin-namespace']"}}]}}]}
- name: vault
  projected: {defaultMode: 288, sources: [{secret: {name: SECRET, items: [{key: token-1, path: vault/token}]}}, {secret: {name: SECRET, items: [{key: token-1, path: again}]}}, {secret: {name: SECRET, items: [{key: token-2, path: long}]}}, {secret: {name: pw}}]}
- {name: ca, secret: {secretName: SECRET, items: [{key: ca.crt, path: ca.crt}], defaultMode: 256}}
`, "SECRET", secret)).Spec.Volumes
	if d := cmp.Diff(want, got.Spec.Volumes); d != "" {
		t.Errorf("volumes (-want +got):\n%s", d)
	}
	if d := cmp.Diff([]Token{{"", 3600}, {"vault", 900}, {"", 86400}}, Tokens(&pod.Spec)); d != "" {
		t.Errorf("tokens (-want +got):\n%s", d)
	}
	if m := got.Spec.InitContainers[0].VolumeMounts; len(m) != 1 || m[0].Name != "kube-api-access-x7k2b" {
		t.Errorf("mounts %+v", m)
	}
	for _, c := range append(got.Spec.InitContainers, got.Spec.Containers...) {
		env := make(map[string]string)
		for i, v := range c.Env {
			if _, twice := env[v.Name]; twice {
				t.Errorf("%s has %s twice", c.Name, v.Name)
			}
			if env[v.Name] = v.Value; v.Name == "URL" && i < 7 {
				t.Errorf("%s is before what it refers to", v.Name)
			}
		}
		host := APIServer
		if c.Name == "app" { // its author's
			host = "proxy.example.com"
		}
		if env["KUBERNETES_SERVICE_HOST"] != host || env["KUBERNETES_SERVICE_PORT"] != "443" || env["KUBERNETES_PORT"] != "tcp://kubernetes.default.svc:443" {
			t.Errorf("%s has %v", c.Name, env)
		}
	}
	if !MountsTokens(got) || !ReachesHome(&got.Spec) || *got.Spec.AutomountServiceAccountToken || got.Spec.ServiceAccountName != "" {
		t.Errorf("%+v", got)
	}
	// The provider lets it in as it is.
	if _, admitted, r := Admit(encode(t, got), guest); r != nil || !cmp.Equal(admitted.Spec.Volumes, got.Spec.Volumes) || !ReachesHome(&admitted.Spec) {
		t.Errorf("%v: %s", r, cmp.Diff(got.Spec.Volumes, admitted.Spec.Volumes))
	}
	// Its Secrets are what its author wrote.
	if _, secrets := References(pod); len(secrets) != 1 || secrets[0].Name != "pw" {
		t.Errorf("it references %v", secrets)
	}
}

// TestTokensStay: without the label, the volume of admission goes, and a pod whose author mounts a token does not.
func TestTokensStay(t *testing.T) {
	automatic := podOf(t, `volumes: [{name: kube-api-access-x7k2b, projected: {sources: [{serviceAccountToken: {path: token}}, {configMap: {name: kube-root-ca.crt}}]}}]`)
	got, r := Translate(automatic, origin)
	if r != nil || len(got.Spec.Volumes) != 0 || len(got.Spec.Containers[0].Env) != 0 || MountsTokens(got) || ReachesHome(&got.Spec) {
		t.Errorf("%v: %+v", r, got)
	}
	if !LacksToken(&automatic.Spec) {
		t.Error("it lacks no token")
	}
	_, r = Translate(podOf(t, mountsTokens), origin)
	if r == nil || r.Reason != ReasonNotOffloadable || !strings.Contains(r.Message, "liqo.io/tokens=true") || sentence(r) != "" {
		t.Errorf("%v", r)
	}
	plain := podOf(t, `automountServiceAccountToken: false`)
	got, r = Translate(plain, withTokens())
	if r != nil || MountsTokens(got) || !ReachesHome(&got.Spec) || WantsTokens(&plain.Spec) || LacksToken(&plain.Spec) {
		t.Errorf("%v: %+v", r, got)
	}
	var many strings.Builder
	for i := range maxTokens + 1 {
		fmt.Fprintf(&many, "- {serviceAccountToken: {path: t%d, audience: a%d}}\n", i, i)
	}
	_, r = Translate(podOf(t, "volumes:\n- name: many\n  projected:\n    sources:\n"+indent(many.String(), 4)), withTokens())
	if r == nil || r.Reason != ReasonNotOffloadable || !strings.Contains(r.Message, "17") || sentence(r) != "" {
		t.Errorf("%v", r)
	}
}

func indent(text string, by int) string {
	return strings.Repeat(" ", by) + strings.ReplaceAll(strings.TrimSuffix(text, "\n"), "\n", "\n"+strings.Repeat(" ", by)) + "\n"
}

// TestTokensDoNotChange: a label that comes or goes does not make another pod of one that runs.
func TestTokensDoNotChange(t *testing.T) {
	pod := podOf(t, mountsTokens)
	for _, sent := range []bool{true, false} {
		in := origin
		if in.Tokens = sent; !sent {
			pod = podOf(t, "{}")
		}
		theirs, r := Translate(pod, in)
		if r != nil {
			t.Fatal(r)
		}
		theirs.UID = "theirs"
		in.Tokens = !sent
		if patch, ok := Change(pod, theirs, in); ok {
			t.Errorf("sent with tokens %v: %s", sent, patch)
		}
		pod.Labels = map[string]string{"a": "b"}
		if patch, ok := Change(pod, theirs, in); !ok || strings.Contains(string(patch), `tokens\":true`) != sent {
			t.Errorf("sent with tokens %v: %s", sent, patch)
		}
	}
}

// jwt is a token as API servers make them, without a signature.
func jwt(claims string) []byte {
	part := base64.RawURLEncoding.EncodeToString
	return []byte(part([]byte(`{"alg":"RS256"}`)) + "." + part([]byte(claims)) + "." + part([]byte("signature")))
}

func TestTokenBody(t *testing.T) {
	pod := podOf(t, mountsTokens)
	raw, r := TokenBody(pod, withTokens(), "CA", []string{"one", "two", "three"})
	if r != nil {
		t.Fatal(r)
	}
	clean, r := AdmitObject(raw, "Secret", TokenSecret(pod.UID), guest)
	if r != nil {
		t.Fatal(r)
	}
	secret := decode[corev1.Secret](t, clean)
	if !IsTokenSecret(secret) || secret.Annotations[AnnotationOriginUID] != string(pod.UID) || len(secret.Data) != 4 || string(secret.Data["token-1"]) != "two" || string(secret.Data["ca.crt"]) != "CA" {
		t.Errorf("%+v", secret)
	}
	if _, r := TokenBody(pod, withTokens(), strings.Repeat("x", MaxObject), nil); r == nil {
		t.Error("a Secret without end is sent")
	}
}

func TestTokenEnds(t *testing.T) {
	pod := podOf(t, mountsTokens)
	claims := func(exp int64, uid string) []byte {
		return jwt(fmt.Sprintf(`{"exp":%d,"kubernetes.io":{"pod":{"uid":%q}}}`, exp, uid))
	}
	good := func() map[string][]byte {
		return map[string][]byte{
			"ca.crt": []byte("CA"), "token-0": claims(5000, string(pod.UID)), "token-1": claims(3000, string(pod.UID)), "token-2": claims(9000, string(pod.UID)),
		}
	}
	if ends, ok := TokenEnds(pod, good()); !ok || !ends.Equal(time.Unix(3000, 0)) {
		t.Errorf("%v %v", ends, ok)
	}
	for name, change := range map[string]func(map[string][]byte){
		"none":           func(d map[string][]byte) { clear(d) },
		"without a CA":   func(d map[string][]byte) { delete(d, "ca.crt") },
		"one is missing": func(d map[string][]byte) { delete(d, "token-2") },
		"of another pod": func(d map[string][]byte) { d["token-1"] = claims(3000, "other") },
		"no token":       func(d map[string][]byte) { d["token-1"] = []byte("secret") },
		"no base64":      func(d map[string][]byte) { d["token-1"] = []byte("a.!.c") },
		"no JSON":        func(d map[string][]byte) { d["token-1"] = jwt("x") },
		"without an end": func(d map[string][]byte) { d["token-1"] = claims(0, string(pod.UID)) },
		"four parts":     func(d map[string][]byte) { d["token-1"] = append(claims(3000, string(pod.UID)), ".x"...) },
		"too long": func(d map[string][]byte) {
			d["token-1"] = append(claims(3000, string(pod.UID)), make([]byte, maxToken)...)
		},
	} {
		d := good()
		change(d)
		if ends, ok := TokenEnds(pod, d); ok {
			t.Errorf("%s: %v", name, ends)
		}
	}
}
