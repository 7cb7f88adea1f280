package peering

import (
	"net/http"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/agent/internal/kubetest"
	"liqo.io/agent/peer"
	"liqo.io/agent/peering/plan"
)

// TestExplain: what is not done although it is decided shows, and no secret does.
func TestExplain(t *testing.T) {
	decisions := &diary{policy: plan.Policy{Pin: &peer.Pin{ID: testID, Fingerprint: barn().Fingerprint}, Connect: plan.Yes, Token: "the-secret-of-an-invite"}}
	c, s, _ := connected(t, decisions, func(*http.Request, string) (int, string) {
		return kubetest.Failure(http.StatusInternalServerError, metav1.StatusReasonInternalError)
	})
	now := t0
	c.cfg.Now = func() time.Time { return now }
	if err := kubetest.Tell(s.foreign).Replace("10", versioned(made(barn()), 10)); err != nil {
		t.Fatal(err)
	}
	text := func() string {
		var out strings.Builder
		if err := c.Explain(&out); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	if got := text(); !strings.Contains(got, "connected; 1 clusters and 0 objects wait") || !strings.Contains(got, "cluster "+string(testID)+"\nnever looked at") {
		t.Error(got)
	}
	s.process(t.Context(), testID)
	now = now.Add(time.Minute)
	got := text()
	for _, want := range []string{
		"looked at 1m0s ago, next in ", "it failed: apply-intent: ", "would do now: apply-intent, ", "connect=true",
		"join=false", "outgoing: wanted=true joined=false", "missing: let-in", "remote: wants contact=true ask=true", "look begun never, due in ",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing in\n%s", want, got)
		}
	}
	if strings.Contains(got, decisions.policy.Token) {
		t.Error("the token is in it")
	}
	c.attach(nil, c.upstream)
	if got := text(); !strings.Contains(got, "API server: none") || strings.Contains(got, "would do now") {
		t.Error(got)
	}
}
