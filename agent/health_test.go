package agent

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"liqo.io/agent/health"
	"liqo.io/agent/peering"
)

// ailing returns a session in which nothing runs, and the log.
func ailing() (*session, *strings.Builder) {
	var log strings.Builder
	a := &Agent{unrecorded: slog.New(slog.NewTextHandler(&log, nil)), told: make(chan struct{}, 1)}
	a.logger = a.warned.recording(a.unrecorded)
	s := &session{Agent: a}
	s.ills.again = make(chan struct{}, 1)
	s.peering = peering.New(peering.Config{Kubeconfig: func() string { return peering.KubeconfigNone }, Logger: a.logger})
	s.lookedOnce.Store(true)
	return s, &log
}

func (s *session) codes() string {
	var codes []string
	for _, p := range s.health.Current() {
		codes = append(codes, p.Kind.Code)
	}
	return strings.Join(codes, " ")
}

// TestAPIServerProblems: every trouble with the API server appears, and goes.
func TestAPIServerProblems(t *testing.T) {
	up := peering.APIStatus{Connected: true, Server: "https://x"}
	with := func(change func(*peering.APIStatus)) peering.APIStatus {
		st := up
		change(&st)
		return st
	}
	down := func(trouble peering.Trouble) peering.APIStatus {
		return peering.APIStatus{Server: "https://x", LastError: "refused", Trouble: trouble, Since: time.Now()}
	}
	for _, tc := range []struct {
		name string
		st   func() peering.APIStatus
		want string
	}{
		{"connected", func() peering.APIStatus { return up }, ""},
		{"off on purpose", func() peering.APIStatus { return down(peering.TroubleOff) }, ""},
		{"not tried yet", func() peering.APIStatus { return down(peering.TroubleNone) }, ""},
		{"unreachable", func() peering.APIStatus { return down(peering.TroubleUnreachable) }, "api-unreachable"},
		{"401", func() peering.APIStatus { return down(peering.TroubleCredentials) }, "api-credentials"},
		{"no kubeconfig", func() peering.APIStatus { return down(peering.TroubleNoKubeconfig) }, "kubeconfig-missing"},
		{"a bad one", func() peering.APIStatus { return down(peering.TroubleKubeconfig) }, "kubeconfig-unusable"},
		{"no definitions", func() peering.APIStatus { return down(peering.TroubleSetup) }, "objects-missing"},
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
			synctest.Test(t, func(t *testing.T) {
				s, _ := ailing()
				s.lookAtAPIServer(tc.st())
				if got := s.codes(); got != "" {
					t.Errorf("at once: %s", got)
				}
				time.Sleep(time.Hour)
				if got := s.codes(); got != tc.want {
					t.Errorf("after an hour: %s, want %s", got, tc.want)
				}
				s.lookAtAPIServer(up)
				if got := s.codes(); got != "" {
					t.Errorf("when it is over: %s", got)
				}
			})
		})
	}
}

// TestHealthIsToldOnce: what begins and ends is logged once, and the ClusterConfig
// changes its mind only when the problems are others.
func TestHealthIsToldOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, log := ailing()
		lines := func() int {
			s.tellHealth()
			n := strings.Count(log.String(), "\n")
			log.Reset()
			return n
		}
		if h, known := s.healthShown(); !known || !h.Healthy || h.Reason != "NoProblems" {
			t.Fatalf("%+v, %v", h, known)
		}
		s.say(health.StateWrite, true, health.Args{"error": "full"})
		if _, known := s.healthShown(); known {
			t.Error("says something about what may pass in a moment")
		}
		if n := lines(); n != 0 {
			t.Errorf("%d lines about a blip", n)
		}
		time.Sleep(time.Minute)
		if n := lines(); n != 1 {
			t.Errorf("%d lines about what begins", n)
		}
		first, _ := s.healthShown()
		if first.Healthy || first.Reason != "StateWrite" || !strings.Contains(first.Message, "full") || !strings.Contains(first.Message, "Try: ") {
			t.Errorf("%+v", first)
		}
		s.say(health.StateWrite, true, health.Args{"error": "still full"})
		if again, _ := s.healthShown(); again != first || lines() != 0 {
			t.Errorf("other words, and it says %+v", again)
		}
		s.say(health.Open, true, health.Args{"setting": "x"})
		both, _ := s.healthShown()
		if both.Reason != "StateWrite" || !strings.Contains(both.Message, "1 more: open to anybody") || lines() != 1 {
			t.Errorf("%+v", both)
		}
		s.say(health.StateWrite, false, nil)
		s.say(health.Open, false, nil)
		if n := lines(); n != 2 {
			t.Errorf("%d lines about the end of two", n)
		}
		if h, _ := s.healthShown(); !h.Healthy {
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
	s, _ := ailing()
	s.lookedOnce.Store(false)
	if h, known := s.healthShown(); known {
		t.Errorf("%+v", h)
	}
}

func TestLastErrors(t *testing.T) {
	var kept lastErrors
	logger := kept.recording(slog.New(slog.DiscardHandler))
	logger.Info("fine")
	logger.With("part", "x").WithGroup("g").Warn("odd", "error", "why", "else", 1)
	for range 3 {
		logger.Error("broken")
	}
	logger.Warn("odd", "error", "why")
	all := kept.list()
	if len(all) != 2 || all[0].Text != "odd: why" || all[0].Count != 2 || all[0].Level != "warn" || all[1].Text != "broken" || all[1].Count != 3 || all[1].Level != "error" {
		t.Fatalf("%+v", all)
	}
	for i := range 3 * maxLastErrors {
		logger.Error(fmt.Sprint(i, strings.Repeat("x", 1000*i)))
	}
	all = kept.list()
	if len(all) != maxLastErrors {
		t.Errorf("%d are kept", len(all))
	}
	for _, e := range all {
		if len(e.Text) > maxLastError+3 {
			t.Errorf("a text of %d bytes", len(e.Text))
		}
	}
}
