package host

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/agent/internal/kubetest"
	"liqo.io/agent/peer"
	"liqo.io/agent/sharing/spec"
	"liqo.io/agent/sharing/workload"
)

// How long the claims of a consumer are kept does not depend on a clock that cannot be believed, nor do they stay for ever.
func TestWrongClockKeepsClaims(t *testing.T) {
	const day = 24 * time.Hour
	const keep = 7 * day
	start := time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)
	type at struct {
		passed    time.Duration // since the parting
		off       time.Duration // what the clock is wrong by
		unsynced  bool
		restarted bool // the agent, just before
		gone      bool // the namespace is to go
	}
	for _, test := range []struct {
		name  string
		keep  time.Duration
		looks []at
	}{
		{"a right clock", keep, []at{{}, {passed: keep - time.Minute}, {passed: keep + time.Minute, gone: true}}},
		{"a right clock and restarts", keep, []at{{}, {passed: 6 * day, restarted: true}, {passed: keep + time.Minute, restarted: true, gone: true}}},
		{"it is behind when the consumer parts, and then set", keep, []at{
			{off: -400 * day, unsynced: true}, {passed: time.Minute}, {passed: keep - time.Minute}, {passed: keep + time.Minute, gone: true}}},
		{"it is behind when the consumer parts, and set after a restart", keep, []at{
			{off: -400 * day, unsynced: true}, {passed: day, restarted: true}, {passed: keep + day - time.Minute}, {passed: keep + day + time.Minute, gone: true}}},
		{"it is ahead for a moment", keep, []at{
			{}, {passed: time.Minute, off: 400 * day, unsynced: true}, {passed: 2 * time.Minute}, {passed: keep + time.Minute, gone: true}}},
		{"it is ahead after a restart, until it is set", keep, []at{
			{}, {passed: day, off: 400 * day, unsynced: true, restarted: true}, {passed: day + time.Minute}, {passed: keep + time.Minute, gone: true}}},
		{"it goes back when it is set", keep, []at{{}, {passed: time.Minute, off: -400 * day}, {passed: keep + time.Minute, off: -400 * day, gone: true}}},
		{"nobody keeps it", keep, []at{
			{off: -400 * day, unsynced: true}, {passed: keep - time.Minute, off: day, unsynced: true}, {passed: keep + time.Minute, off: -day, unsynced: true, gone: true}}},
		{"nobody keeps it, and nothing is to be kept", 0, []at{{unsynced: true, gone: true}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			settings := Settings{PodSecurity: "baseline", StorageKeep: test.keep}
			guest := namespaceFor("ns", barn, "shop", settings)
			guest.UID, guest.ResourceVersion = "n", "1"
			api := kubetest.New(func(r *http.Request, body string) (int, string) {
				if r.Method != http.MethodPatch {
					return http.StatusOK, "{}"
				}
				after := guest.DeepCopy()
				if err := json.Unmarshal([]byte(body), after); err != nil {
					t.Error(err)
				}
				guest, after.ResourceVersion = after, guest.ResourceVersion+"0"
				text, err := json.Marshal(after)
				if err != nil {
					t.Error(err)
				}
				return http.StatusOK, string(text)
			})
			var now at
			var runs time.Duration // since the parting, when the process began
			claim := &guestClaim{}
			claim.Namespace, claim.Name, claim.UID, claim.ResourceVersion = "ns", "data", "c", "1"
			claim.Labels = map[string]string{workload.LabelOriginCluster: string(barn)}
			begin := func() standing {
				cfg := configOf(func() Settings { return settings })
				cfg.Now = func() time.Time { return start.Add(now.passed + now.off) }
				cfg.Elapsed = func() time.Duration { return now.passed - runs }
				cfg.ClockTrusted = func(peer.ClusterID) bool { return !now.unsynced }
				h := New(cfg)
				s := newSession(h, api.Client(t))
				if err := s.claims.Told().Replace([]any{claim}, "1"); err != nil {
					t.Fatal(err)
				}
				return standing{session: s, tenant: &tenant{id: barn}, settings: settings}
			}
			st := begin()
			for _, now = range test.looks {
				if now.restarted {
					runs = now.passed
					st = begin()
				}
				others, again, err := st.session.retain(t.Context(), st, []*corev1.Namespace{guest.DeepCopy()})
				if err != nil || (len(others) == 1) != now.gone {
					t.Errorf("after %v: %d namespaces go, error %v", now.passed, len(others), err)
				}
				if (again <= 0) != now.gone || now.unsynced && again > clockAgain {
					t.Errorf("after %v: looks again in %v", now.passed, again)
				}
			}
		})
	}
}

// While claims cannot be read, a namespace goes only if its quota says that there are none.
func TestUnreadClaimsAreKept(t *testing.T) {
	settings := Settings{PodSecurity: "baseline", StorageKeep: time.Hour}
	for _, test := range []struct {
		name string
		used corev1.ResourceList // nil: there is no quota
		kept bool
	}{
		{"no claims", corev1.ResourceList{corev1.ResourcePersistentVolumeClaims: resource.MustParse("0")}, false},
		{"claims", corev1.ResourceList{corev1.ResourcePersistentVolumeClaims: resource.MustParse("1")}, true},
		{"no quota", nil, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			guest := namespaceFor("ns", barn, "shop", settings)
			s := newSession(New(Config{Logger: slog.New(slog.DiscardHandler)}), nil)
			var quotas []any
			if test.used != nil {
				quotas = append(quotas, &corev1.ResourceQuota{
					ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: QuotaName, UID: "q", ResourceVersion: "1"}, Status: corev1.ResourceQuotaStatus{Used: test.used},
				})
			}
			if err := s.quotas.Told().Replace(quotas, "1"); err != nil {
				t.Fatal(err)
			}
			if kept := s.hasData(guest); kept != test.kept {
				t.Errorf("it is kept: %v", kept)
			}
		})
	}
}

// How long claims are kept begins with the parting, also if a reconciliation from before the last admission ended after that.
func TestKeptSinceTheParting(t *testing.T) {
	var passed time.Duration
	h := New(Config{Settings: func() Settings { return Settings{} }, Elapsed: func() time.Duration { return passed }, Logger: slog.New(slog.DiscardHandler)})
	h.Set(spec.Tenant{ID: barn, Admitted: true})
	n := h.tenants[barn]
	h.kept(n)
	passed = 8 * 24 * time.Hour
	h.Set(spec.Tenant{ID: barn})
	if kept := h.kept(n); kept > 0 {
		t.Errorf("right after the parting, claims were kept for %v", kept)
	}
	passed += time.Hour
	h.Set(spec.Tenant{ID: barn, Name: "barn"})
	if kept := h.kept(n); kept != time.Hour {
		t.Errorf("an hour later, claims were kept for %v", kept)
	}
}
