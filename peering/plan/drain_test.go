package plan

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/agent/api"
	"liqo.io/agent/peering/reason"
)

// decideOffer is a person with kubectl.
func (s *box) decideOffer(status api.AdvertisementStatus) {
	if s.kube.Advertisement == nil {
		return
	}
	adv := s.kube.Advertisement.DeepCopy()
	adv.Status.AdvertisementStatus = status
	adv.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl-patch", Subresource: "status", FieldsV1: decisionField}}
	s.kube.Advertisement = adv
}

// used returns a world in which A uses B, and pods run there.
func used(t testing.TB) *world {
	t.Helper()
	w := peered(t)
	w.a.pods = true
	if w.a.node.Name != string(idB) || !w.a.node.Ready || w.a.kube.Advertisement.Status.VnodeReference == nil || !w.a.own().Status.Modules.Offloading.Enabled {
		t.Fatalf("there is no node: %s", w.a)
	}
	return w
}

// TestDraining: as long as pods leave, the provider is asked for nothing and told
// nothing, whatever ended the peering.
func TestDraining(t *testing.T) {
	for name, tc := range map[string]struct {
		end    func(w *world)
		reason string // while it drains
		after  string // "" when there is no object any more
	}{
		"disconnected":            {func(w *world) { w.a.book.disconnect() }, reason.Draining, reason.Disconnected},
		"disconnected by kubectl": {func(w *world) { w.a.kubectlJoin(false) }, reason.Draining, reason.Disconnected},
		"blocked":                 {func(w *world) { w.a.book.Blocked = true }, reason.Draining, reason.Blocked},
		"deleted by kubectl":      {func(w *world) { w.a.kubectlDelete() }, reason.Draining, reason.Disconnected},
	} {
		t.Run(name, func(t *testing.T) {
			for how, leave := range map[string]func(w *world){
				"the pods leave":           func(w *world) { w.a.pods = false },
				"it takes too long":        func(w *world) { w.pass(w.a.sharing.DrainTimeout + drainSlack) },
				"the agent was restarted":  func(w *world) { w.a.restart(); mustRest(t, w); w.a.pods = false },
				"the provider goes away":   func(w *world) { w.link = false; w.round(time.Second); w.round(modelLostAfter); w.link = true },
				"it is not used meanwhile": func(w *world) { w.a.sharing.Use = false; mustRest(t, w); w.a.pods = false },
			} {
				w := used(t)
				tc.end(w)
				mustRest(t, w)
				if w.a.node.Name == "" || w.b.kube.Request == nil || !w.b.serves() && name != "blocked" || w.a.joined() || w.a.kube.Advertisement == nil || w.a.kube.Secret == nil ||
					w.a.kube.Access == nil || !w.a.own().Status.Outgoing.AvailableIdentity || !hasFinalizer(w.a.own()) || w.a.reason(api.ConditionOutgoingPeering) != tc.reason {
					t.Fatalf("%s: %s\n%s", how, w.a, w.b)
				}
				if c := w.a.own().Condition(api.ConditionOutgoingPeering); !strings.Contains(c.Message, "1 pod is left.") {
					t.Errorf("%s: %s", how, c.Message)
				}
				leave(w)
				mustRest(t, w)
				if name == "deleted by kubectl" && how == "the provider goes away" {
					// It returned from an absence, and is connected to again.
					if !w.a.joined() {
						t.Errorf("%s", w.a)
					}
					continue
				}
				w.wantClean(t)
				if got := w.a.reason(api.ConditionOutgoingPeering); name != "deleted by kubectl" && how != "the provider goes away" && got != tc.after {
					t.Errorf("%s: then it shows %q: %s", how, got, w.a)
				}
			}
		})
	}
}

// TestDrainingIsTakenBack: who connects again while pods are leaving keeps them.
func TestDrainingIsTakenBack(t *testing.T) {
	w := used(t)
	uid := w.b.kube.Request.UID
	w.a.book.disconnect()
	mustRest(t, w)
	w.a.book.connect()
	mustRest(t, w)
	if !w.a.joined() || !w.a.node.Ready || w.b.kube.Request.UID != uid || !w.a.draining.IsZero() {
		t.Errorf("%s\n%s", w.a, w.b)
	}
}

// TestProviderEndsIt: the node is drained, and nothing is asked of the provider.
func TestProviderEndsIt(t *testing.T) {
	for name, tc := range map[string]struct {
		end    func(w *world)
		reason string
	}{
		"disconnected there": {func(w *world) { w.b.book.Ended, w.b.book.Accept = "alice had enough.", api.RequestPending }, reason.EndedByProvider},
		"rejected there":     {func(w *world) { w.b.book.Accept = api.RequestRefused }, reason.EndedByProvider},
		"blocked there":      {func(w *world) { w.b.book.Blocked = true }, reason.EndedByProvider},
	} {
		t.Run(name, func(t *testing.T) {
			w := used(t)
			tc.end(w)
			mustRest(t, w)
			if w.a.node.Ready || w.a.node.Name == "" || w.a.desired.Request != nil && w.b.kube.Request == nil || w.a.reason(api.ConditionOutgoingPeering) != tc.reason {
				t.Errorf("%s\n%s", w.a, w.b)
			}
			w.a.pods = false
			mustRest(t, w)
			if w.a.node.Name != "" || w.a.reason(api.ConditionOutgoingPeering) != tc.reason {
				t.Errorf("%s", w.a)
			}
		})
	}
}

// TestLostProvider: nobody waits for the pods of a provider that is given up.
func TestLostProvider(t *testing.T) {
	w := used(t)
	w.link = false
	w.round(time.Second)
	w.round(modelLostAfter - time.Minute)
	if w.a.node.Name == "" || !w.a.joined() {
		t.Fatalf("given up too early: %s", w.a)
	}
	w.round(2 * time.Minute)
	w.round(time.Second)
	w.wantClean(t)
}

// TestNotUsed: switched off, the peering stays, and the node goes in order.
func TestNotUsed(t *testing.T) {
	w := used(t)
	w.a.sharing.Use = false
	mustRest(t, w)
	c := w.a.own().Condition(api.ConditionOutgoingPeering)
	module := w.a.own().Status.Modules.Offloading
	if !w.a.joined() || w.a.node.Ready || !strings.Contains(c.Message, "sharing.use") || !module.Enabled || module.Conditions[0].Reason != reason.SwitchedOff {
		t.Fatalf("%s %+v", w.a, module)
	}
	w.a.pods = false
	mustRest(t, w)
	module = w.a.own().Status.Modules.Offloading
	if !w.a.joined() || w.a.node.Name != "" || module.Enabled || w.a.kube.Advertisement.Status.VnodeReference != nil {
		t.Fatalf("%s %+v", w.a, module)
	}
	w.a.sharing.Use = true
	mustRest(t, w)
	if !w.a.joined() || !w.a.node.Ready || !w.a.own().Status.Modules.Offloading.Enabled {
		t.Fatalf("%s", w.a)
	}
}

// TestOfferIsWithdrawn: that a provider offers nothing at present ends nothing.
func TestOfferIsWithdrawn(t *testing.T) {
	w := used(t)
	w.b.quietly = true
	mustRest(t, w)
	if w.a.joined() || w.a.node.Ready || w.a.kube.Advertisement != nil || w.b.kube.Request == nil || !w.a.own().Spec.Join ||
		w.a.reason(api.ConditionOutgoingPeering) != reason.AwaitingOffer {
		t.Fatalf("%s\n%s", w.a, w.b)
	}
	w.a.pods = false
	mustRest(t, w)
	if w.a.node.Name != "" {
		t.Fatalf("%s", w.a)
	}
	w.b.quietly = false
	mustRest(t, w)
	if !w.a.joined() || !w.a.node.Ready {
		t.Fatalf("%s\n%s", w.a, w.b)
	}
}
