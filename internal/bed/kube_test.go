//go:build linux

package bed

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestControlPlanes(t *testing.T) {
	b := New(t)
	a := b.AddHost("a", "10.77.0.1/24")
	ctx := within(t, 3*time.Minute)
	kubes := append(b.StartKubes(ctx, a), b.AddClusters(ctx, HostSpec{Name: "c", Prefix: "10.77.0.2/24", Pods: RangesOf("10.50.0.0/16,fd50::/56")})...)

	for i, k := range kubes {
		out, err := k.Kubectl(ctx, "get", "nodes", "--no-headers", "-o",
			"custom-columns=N:.metadata.name,A:.status.addresses[*].address,I:.metadata.annotations['k3s\\.io/internal-ip'],P:.spec.podCIDRs[*]")
		want := [][]string{
			{"a", "a,10.77.0.1", "10.77.0.1", "10.42.0.0/24"},
			{"c", "c,10.77.0.2,fd77::a4d:2", "10.77.0.2,fd77::a4d:2", "10.50.0.0/24,fd50::/64"},
		}[i]
		if got := strings.Fields(out); err != nil || !slices.Equal(got, want) {
			t.Errorf("nodes: %q, %v, want %q", got, err, want)
		}
		out, err = k.Kubectl(ctx, "get", "nodes")
		if err != nil || !strings.Contains(out, " Ready ") || !strings.Contains(out, "control-plane,master") {
			t.Errorf("nodes: %q, %v", out, err)
		}
	}
	// As a person on the box would call it.
	out, err := a.Run(ctx, "kubectl", "version")
	if err != nil || !strings.Contains(out, "Server Version: v1.36.3") {
		t.Errorf("version: %q, %v", out, err)
	}
	// Nobody may do anything without credentials, as with K3s.
	if out, err := a.Run(ctx, "curl", "--silent", "--insecure", "--output", "/dev/null", "--write-out", "%{http_code}",
		"https://127.0.0.1:6443/version"); out != "401" || err != nil {
		t.Errorf("anonymous: %q, %v", out, err)
	}

	if out, err := a.Run(ctx, "stat", "-c", "%a %u", Kubeconfig); out != "600 0\n" || err != nil {
		t.Errorf("the kubeconfig: %q, %v", out, err)
	}

	const object = `{apiVersion: v1, kind: ConfigMap, metadata: {name: kept, namespace: default}, data: {k: v}}`
	if err := kubes[0].Apply(ctx, object); err != nil {
		t.Fatal(err)
	}
	if err := kubes[0].Stop(); err != nil {
		t.Error(err)
	}
	if _, err := kubes[0].Request(ctx, http.MethodGet, "/readyz", "", nil); err == nil {
		t.Error("answers after Stop")
	}
	end, err := kubes[0].Starting()
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{"/ping": "200", "/version": "503", "/api/v1/nodes?watch=1": "503"} {
		if out, err := a.Run(ctx, "curl", "--silent", "--insecure", "--output", "/dev/null", "--write-out", "%{http_code}", "https://127.0.0.1:6443"+path); out != want || err != nil {
			t.Errorf("%s while it starts: %q, %v, want %s", path, out, err, want)
		}
	}
	if err := errors.Join(end(), kubes[0].Start(ctx)); err != nil {
		t.Fatal(err)
	}
	if err := kubes[0].Kill(); err != nil {
		t.Error(err)
	}
	if err := kubes[0].Start(ctx); err != nil {
		t.Fatal(err)
	}
	if out, err := kubes[0].Kubectl(ctx, "get", "configmap", "kept", "-o", "jsonpath={.data.k}"); out != "v" || err != nil {
		t.Errorf("after two restarts: %q, %v", out, err)
	}
	if out, err := kubes[1].Kubectl(ctx, "get", "configmap", "kept"); err == nil {
		t.Errorf("the other cluster has it too: %s", out)
	}
}

func TestControllers(t *testing.T) {
	ctx := within(t, 3*time.Minute)
	k := New(t).AddCluster(ctx, "a", "10.77.0.1/24")
	if err := k.StartControllers(ctx); err != nil {
		t.Fatal(err)
	}
	const pod = `{apiVersion: v1, kind: Pod, metadata: {name: p, namespace: default},
		spec: {containers: [{name: c, image: i}]}}`
	// The controller manager makes the service account without which there is no pod, and the
	// scheduler binds it.
	if err := Poll(ctx, func() error {
		return k.Apply(ctx, pod)
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := k.Kubectl(ctx, "wait", "pod", "p", "--for=condition=PodScheduled", "--timeout=60s"); err != nil {
		t.Error(err)
	}
}
