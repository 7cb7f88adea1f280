package offload

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"liqo.io/agent/sharing/workload"
)

// reached returns the network of a provider whose pods are known by addresses of 241.7.0.0/24.
func reached(down string) *workload.Network {
	return &workload.Network{Down: down, Blocks: []netip.Prefix{netip.MustParsePrefix("241.7.0.0/24")}, Here: func(a netip.Addr) (netip.Addr, bool) {
		b := a.As4()
		return netip.AddrFrom4([4]byte{241, 7, 0, b[3]}), true
	}}
}

// TestAddresses: a pod shows the address by which it is reached, and is not ready while it is
// not. Where the agent may not say so, the pod runs all the same.
func TestAddresses(t *testing.T) {
	for name, confined := range map[string]bool{"permitted": false, "forbidden": true} {
		t.Run(name, func(t *testing.T) {
			pod := podHere("web")
			there := copyThere(pod, "1", corev1.PodRunning)
			there.Status.PodIPs = []corev1.PodIP{{IP: "10.42.0.9"}}
			there.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
			local := &localServer{namespaces: []string{"shop"}, pods: []*corev1.Pod{pod}, confined: confined}
			n := join(t, local, &far{}, func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/pods") {
					listOrHang(w, r, []any{there})
					return
				}
				listOrHang(w, r, nil)
			})
			shows := func(what string, want func(*corev1.PodStatus) bool) {
				t.Helper()
				for deadline := time.After(hang); ; {
					local.mu.Lock()
					status := local.pods[0].Status
					local.mu.Unlock()
					if want(&status) {
						return
					}
					select {
					case <-local.wrote:
					case <-deadline:
						t.Fatalf("%s: %+v", what, status)
					}
				}
			}
			address := "241.7.0.9"
			if confined {
				address = ""
			}
			ready := func(want corev1.ConditionStatus) func(*corev1.PodStatus) bool {
				return func(s *corev1.PodStatus) bool {
					for _, c := range s.Conditions {
						if c.Type == corev1.PodReady {
							return c.Status == want && s.Phase == corev1.PodRunning && s.PodIP == address
						}
					}
					return false
				}
			}
			p := n.provider()
			p.Network = reached("")
			n.Set(p)
			shows("it is reached", ready(corev1.ConditionTrue))
			// The provider answers no more, as when the cable is out.
			p.Network, p.Reachable = reached("The cable is out."), false
			n.Set(p)
			shows("it is not reached", ready(corev1.ConditionFalse))
			// Meanwhile, the network is switched off: soon the address may be another provider's.
			p.Network, address = nil, ""
			n.Set(p)
			shows("it has no address", func(s *corev1.PodStatus) bool {
				return s.PodIP == "" && len(s.PodIPs) == 0 && s.Phase == corev1.PodRunning
			})
		})
	}
}

// A pod that was ready when the agent ended is not ready if the agent starts again, no packets pass, and the provider does not say
// which pods it has.
func TestNotReadyAfterAStart(t *testing.T) {
	pod := podHere("web")
	pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "241.7.0.9", PodIPs: []corev1.PodIP{{IP: "241.7.0.9"}},
		Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}
	local := &localServer{namespaces: []string{"shop"}, pods: []*corev1.Pod{pod}}
	n := join(t, local, &far{}, func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "not now", http.StatusServiceUnavailable) })
	p := n.provider()
	p.Network = &workload.Network{Unknown: true, Down: "The peer does not answer."}
	n.Set(p)
	for deadline := time.After(hang); ; {
		local.mu.Lock()
		status := local.pods[0].Status
		local.mu.Unlock()
		if slices.ContainsFunc(status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodReady && c.Status == corev1.ConditionFalse && c.Reason == workload.ReasonNetworkDown
		}) && status.PodIP == "241.7.0.9" {
			return
		}
		select {
		case <-local.wrote:
		case <-deadline:
			t.Fatalf("%+v", status)
		}
	}
}
