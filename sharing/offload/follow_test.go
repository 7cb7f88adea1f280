package offload

import (
	"errors"
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
	n := between(t, listsCopy(pod), pod)
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
