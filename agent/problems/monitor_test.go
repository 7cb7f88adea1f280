package problems

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"liqo.io/agent/health"
	"liqo.io/agent/internal/bubble"
	"liqo.io/agent/kube/conn"
	"liqo.io/agent/peering"
)

// ailing returns a Monitor in a world in which nothing runs, and the log.
func ailing() (*Monitor, *strings.Builder) {
	var log strings.Builder
	logger := slog.New(slog.NewTextHandler(&log, nil))
	m := New(Config{Tracker: new(health.Tracker), Logger: logger, Told: func() {},
		Peering: peering.New(peering.Config{Kubeconfig: func() string { return conn.KubeconfigNone }, Logger: logger})})
	m.looked = true
	return m, &log
}

func (m *Monitor) codes() string {
	var codes []string
	for _, p := range m.cfg.Tracker.Current() {
		codes = append(codes, p.Kind.Code)
	}
	return strings.Join(codes, " ")
}

// TestAPIServerProblems: every trouble with the API server appears, and goes.
func TestAPIServerProblems(t *testing.T) {
	up := peering.APIStatus{Status: conn.Status{Connected: true, Server: "https://x"}}
	with := func(change func(*peering.APIStatus)) peering.APIStatus {
		st := up
		change(&st)
		return st
	}
	down := func(trouble conn.Trouble) peering.APIStatus {
		return peering.APIStatus{Status: conn.Status{Server: "https://x", LastError: "refused", Trouble: trouble, Since: time.Now()}}
	}
	for _, tc := range []struct {
		name string
		st   func() peering.APIStatus
		want string
	}{
		{"connected", func() peering.APIStatus { return up }, ""},
		{"off on purpose", func() peering.APIStatus { return down(conn.TroubleOff) }, ""},
		{"not tried yet", func() peering.APIStatus { return down(conn.TroubleNone) }, ""},
		{"unreachable", func() peering.APIStatus { return down(conn.TroubleUnreachable) }, "api-unreachable"},
		{"401", func() peering.APIStatus { return down(conn.TroubleCredentials) }, "api-credentials"},
		{"no kubeconfig", func() peering.APIStatus { return down(conn.TroubleNoKubeconfig) }, "kubeconfig-missing"},
		{"a bad one", func() peering.APIStatus { return down(conn.TroubleKubeconfig) }, "kubeconfig-unusable"},
		{"no definitions", func() peering.APIStatus { return down(conn.TroubleSetup) }, "objects-missing"},
		{"forbidden", func() peering.APIStatus {
			return with(func(st *peering.APIStatus) {
				st.Forbidden, st.ObjectsError, st.WebhookError = []string{"a", "b"}, "forbidden", "forbidden"
			})
		}, "api-forbidden api-forbidden"},
		{"no webhook", func() peering.APIStatus { return with(func(st *peering.APIStatus) { st.WebhookError = "no" }) }, "webhook-missing"},
		{"no ConfigMap", func() peering.APIStatus { return with(func(st *peering.APIStatus) { st.ObjectsError = "no" }) }, "objects-missing"},
		{"a clock", func() peering.APIStatus { return with(func(st *peering.APIStatus) { st.ClockOffset = -time.Hour }) }, "clock-off"},
		{"nearly right", func() peering.APIStatus {
			return with(func(st *peering.APIStatus) { st.ClockOffset = 59 * time.Second })
		}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				m, _ := ailing()
				m.lookAtAPIServer(tc.st())
				if got := m.codes(); got != "" {
					t.Errorf("at once: %s", got)
				}
				time.Sleep(time.Hour)
				if got := m.codes(); got != tc.want {
					t.Errorf("after an hour: %s, want %s", got, tc.want)
				}
				m.lookAtAPIServer(up)
				if got := m.codes(); got != "" {
					t.Errorf("when it is over: %s", got)
				}
			})
		})
	}
}

// TestHealthIsToldOnce: what begins and ends is logged once, and the ClusterConfig
// changes its mind only when the problems are others.
func TestHealthIsToldOnce(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		m, log := ailing()
		lines := func() int {
			m.tell()
			n := strings.Count(log.String(), "\n")
			log.Reset()
			return n
		}
		if h, known := m.Shown(); !known || !h.Healthy || h.Reason != "NoProblems" {
			t.Fatalf("%+v, %v", h, known)
		}
		m.cfg.Tracker.When(health.StateWrite, true, health.Args{"error": "full"})
		if _, known := m.Shown(); known {
			t.Error("says something about what may pass in a moment")
		}
		if n := lines(); n != 0 {
			t.Errorf("%d lines about a blip", n)
		}
		time.Sleep(time.Minute)
		if n := lines(); n != 1 {
			t.Errorf("%d lines about what begins", n)
		}
		first, _ := m.Shown()
		if first.Healthy || first.Reason != "StateWrite" || !strings.Contains(first.Message, "full") || !strings.Contains(first.Message, "Try: ") {
			t.Errorf("%+v", first)
		}
		m.cfg.Tracker.When(health.StateWrite, true, health.Args{"error": "still full"})
		if again, _ := m.Shown(); again != first || lines() != 0 {
			t.Errorf("other words, and it says %+v", again)
		}
		m.cfg.Tracker.When(health.Open, true, health.Args{"setting": "x"})
		both, _ := m.Shown()
		if both.Reason != "StateWrite" || !strings.Contains(both.Message, "1 more: open to anybody") || lines() != 1 {
			t.Errorf("%+v", both)
		}
		m.cfg.Tracker.When(health.StateWrite, false, nil)
		m.cfg.Tracker.When(health.Open, false, nil)
		if n := lines(); n != 2 {
			t.Errorf("%d lines about the end of two", n)
		}
		if h, _ := m.Shown(); !h.Healthy {
			t.Errorf("%+v", h)
		}
		if n := lines(); n != 0 {
			t.Errorf("%d lines about nothing", n)
		}
	})
}

// TestAStartTakesNothingBack: before the agent has looked, the ClusterConfig stays as
// it was before the restart.
func TestAStartTakesNothingBack(t *testing.T) {
	m, _ := ailing()
	m.looked = false
	if h, known := m.Shown(); known {
		t.Errorf("%+v", h)
	}
}
