package config

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/agent/api"
	"liqo.io/agent/internal/bubble"
	"liqo.io/agent/internal/kubetest"
)

// TestHealthyCondition: written when it says something else, and only then.
func TestHealthyCondition(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		health, known := Health{Healthy: true, Reason: "NoProblems", Message: "Nothing."}, false
		var effective api.EffectiveConfig
		var stored *api.ClusterConfig
		_, r, fake := parts(t, Config{
			ClusterConfig: func(*api.ClusterConfigSpec) {},
			Health:        func() (Health, bool) { return health, known },
			Effective:     func() api.EffectiveConfig { return effective },
		}, nil)
		version := 100
		fine := func(r *http.Request, body string) (int, string) {
			version++
			_, text, _ := strings.Cut(body, `"status":`)
			return http.StatusOK, fmt.Sprintf(`{"apiVersion":"config.liqo.io/v1alpha1","kind":"ClusterConfig","metadata":{"name":"liqo-configuration","uid":"u","resourceVersion":"%d"},"spec":{},"status":%s`, version, text)
		}
		fake.Say(fine)
		stored = clusterConfig("u", 1, nil)
		if err := kubetest.Tell(r.store).Replace("1", stored); err != nil {
			t.Fatal(err)
		}
		go r.work(t.Context())
		sent := func(after time.Duration) []string {
			time.Sleep(after)
			synctest.Wait()
			return fake.Take()
		}
		change := func(h Health) []string {
			health, known = h, true
			r.jobs.Add(showHealth)
			return sent(time.Second)
		}
		if got := sent(time.Hour); len(got) != 1 || strings.Contains(got[0], "Healthy") || !strings.Contains(got[0], `"effective":{"enableDiscovery":false,`) {
			t.Fatalf("before the health is known: %s", got)
		}
		first := change(health)
		if len(first) != 1 || !strings.HasPrefix(first[0], "PATCH /apis/config.liqo.io/v1alpha1/clusterconfigs/liqo-configuration/status?fieldManager="+ManagerHealth+"&force=true ") ||
			!strings.Contains(first[0], `"type":"Healthy","status":"True"`) {
			t.Fatalf("%s", first)
		}
		if got := change(health); len(got) != 0 {
			t.Errorf("written again: %s", got)
		}
		since := r.store.Get(api.ClusterConfigName).Status.Condition(api.ConditionHealthy).LastTransitionTime
		time.Sleep(time.Minute)
		if got := change(Health{Reason: "DiskFull", Message: "a"}); len(got) != 1 || !strings.Contains(got[0], `"status":"False"`) {
			t.Errorf("%s", got)
		}
		shown := r.store.Get(api.ClusterConfigName).Status.Condition(api.ConditionHealthy)
		if !shown.LastTransitionTime.After(since.Time) {
			t.Error("the transition has no time")
		}
		if got := change(Health{Reason: "DiskLow", Message: "b"}); len(got) != 1 {
			t.Errorf("%s", got)
		}
		if now := r.store.Get(api.ClusterConfigName).Status.Condition(api.ConditionHealthy); now.Reason != "DiskLow" || !now.LastTransitionTime.Equal(&shown.LastTransitionTime) {
			t.Errorf("%+v", now)
		}

		effective.Autojoin = true
		if got := change(Health{Reason: "DiskLow", Message: "b"}); len(got) != 1 || !strings.Contains(got[0], `"autojoin":true`) || !strings.Contains(got[0], `"DiskLow"`) {
			t.Errorf("other settings: %s", got)
		}
		if now := r.store.Get(api.ClusterConfigName).Status.Condition(api.ConditionHealthy); !now.LastTransitionTime.Equal(&shown.LastTransitionTime) {
			t.Errorf("other settings make it another condition: %+v", now)
		}

		fake.Say(func(*http.Request, string) (int, string) {
			return kubetest.Failure(http.StatusInternalServerError, metav1.StatusReasonInternalError)
		})
		if got := change(Health{Reason: "C", Message: "c"}); len(got) == 0 {
			t.Error("not tried")
		}
		fake.Say(fine)
		if got := sent(time.Minute); len(got) == 0 {
			t.Error("not tried again")
		}
		if got := sent(time.Hour); len(got) != 0 {
			t.Errorf("in steady state: %s", got)
		}
	})
}
