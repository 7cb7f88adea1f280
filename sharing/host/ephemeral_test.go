package host

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/agent/internal/bubble"
	"liqo.io/agent/sharing/workload"
)

// withEphemeral is a pod with that many ephemeral containers, as the API server has it.
func withEphemeral(t *testing.T, n int) *guestPod {
	t.Helper()
	var spec corev1.PodSpec
	for i := range n {
		spec.EphemeralContainers = append(spec.EphemeralContainers, corev1.EphemeralContainer{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: fmt.Sprint("e", i)}})
	}
	text, err := json.Marshal(map[string]any{"metadata": metav1.ObjectMeta{Namespace: "ns", Name: "web", UID: "u"}, "spec": spec})
	if err != nil {
		t.Fatal(err)
	}
	pod := &guestPod{}
	if err := json.Unmarshal(text, pod); err != nil {
		t.Fatal(err)
	}
	pod.weigh()
	return pod
}

// Ephemeral containers stay in a pod, so there is a limit to them. What failed does not count.
func TestEphemeralContainersAreBounded(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		const much = 1 << 20
		a := newAccount(time.Now)
		refused := func(what, reason string, limit int64) {
			t.Helper()
			if _, no := a.extend("ns/web", 100, limit); no == nil || no.Reason != reason {
				t.Errorf("%s: %v, want %s", what, no, reason)
			}
		}
		refused("a pod that is not there", ReasonNotReady, much)
		a.put(withEphemeral(t, 1))

		// An API server that refuses them, again and again.
		for range 10 * workload.MaxEphemeralContainers {
			e, no := a.extend("ns/web", 100, much)
			if no != nil {
				t.Fatal(no)
			}
			a.extended("ns/web", e)
		}
		// One that does not answer.
		for range workload.MaxEphemeralContainers - 1 {
			if _, no := a.extend("ns/web", 100, much); no != nil {
				t.Fatal(no)
			}
		}
		refused("more than may be on their way", ReasonTooManyPods, much)
		time.Sleep(reservation)
		e, no := a.extend("ns/web", 100, much)
		if no != nil {
			t.Fatalf("after a while: %v", no)
		}
		a.put(withEphemeral(t, workload.MaxEphemeralContainers))
		a.extended("ns/web", e)
		refused("one more", ReasonTooManyPods, much)

		a.put(withEphemeral(t, 2))
		size := a.slots["ns/web"].size()
		refused("too many bytes", ReasonTooManyPods, size+99)
		if _, no := a.extend("ns/web", 100, size+100); no != nil {
			t.Error(no)
		}
		refused("too many bytes with what is on its way", ReasonTooManyPods, size+199)

		// A pod that goes meanwhile leaves nothing.
		a.drop(withEphemeral(t, 2))
		time.Sleep(reservation)
		if !a.empty() {
			t.Errorf("%+v", a.slots)
		}
	})
}

// The agents of older versions may not give the right to add ephemeral containers.
func TestRoleWithoutEphemeralContainers(t *testing.T) {
	for _, ephemeral := range []bool{true, false} {
		if has := strings.Contains(fmt.Sprint(roleFor("ns", barn, grants{services: true, claims: true, ephemeral: ephemeral}).Rules), "ephemeralcontainers"); has != ephemeral {
			t.Errorf("%t: %t", ephemeral, has)
		}
	}
}
