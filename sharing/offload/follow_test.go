package offload

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"liqo.io/agent/internal/bed/bedtest"
)

// TestReferencesAreFollowedAgain: what a pod references is followed for as long as it has a copy, also after the provider was
// away for a moment, so that an optional ConfigMap can still come.
func TestReferencesAreFollowedAgain(t *testing.T) {
	optional := true
	pod := podHere("web")
	pod.Spec.Containers[0].EnvFrom = []corev1.EnvFromSource{
		{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "flags"}, Optional: &optional}},
	}
	n := between(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		var items []any
		if strings.HasSuffix(r.URL.Path, "/pods") {
			items = append(items, copyThere(pod, "1", corev1.PodRunning))
		}
		listOrHang(w, r, items)
	}, pod)
	pc, _ := n.opened(t)
	k := podKey(pod)
	bedtest.Within(t, "the copy is known", func() error {
		if v, _ := pc.observe(k); v.copy() == nil {
			return errors.New("it is not")
		}
		return nil
	})
	pc.s.release(pc, "shop") // as when the namespace at the provider is opened again
	pc.observe(k)
	pc.s.mu.Lock()
	defer pc.s.mu.Unlock()
	if pc.s.bundles[bundleKey{aConfigMap, "shop"}] == nil {
		t.Error("its ConfigMaps are not followed any more")
	}
}
