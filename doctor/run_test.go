package doctor

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"liqo.io/agent/agent/control"
	"liqo.io/agent/internal/bubble"
)

// boxOf is a box that looks at nothing.
func boxOf() *Box {
	return &Box{opts: Options{Version: "1"}, ask: probes{now: time.Now}}
}

// One check that hangs keeps neither the others nor the report waiting.
func TestRunKeepsLimits(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		quick := func(context.Context, *Box) []Finding { return []Finding{fine("x")} }
		slow := func(ctx context.Context, _ *Box) []Finding {
			<-ctx.Done()
			return []Finding{info("late", "it is late")}
		}
		hangs := func(context.Context, *Box) []Finding { <-release; return nil }
		began := time.Now()
		r := run(t.Context(), boxOf(), []Check{
			{ID: "a", Limit: time.Second, run: quick}, {ID: "b", Limit: 2 * time.Second, run: slow}, {ID: "c", Limit: 3 * time.Second, run: hangs},
		})
		if took := time.Since(began); took != 3*time.Second+graceTime {
			t.Errorf("it took %s", took)
		}
		var got []string
		for _, c := range r.Checks {
			got = append(got, string(c.Status))
		}
		if strings.Join(got, " ") != "ok info skipped" || r.Status != Info || r.Summary != (Summary{OK: 1, Info: 1, Skipped: 1}) {
			t.Errorf("%v, %+v", got, r)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if r := run(ctx, boxOf(), []Check{{ID: "c", Limit: time.Hour, run: hangs}}); r.Checks[0].Status != Skipped {
			t.Errorf("after an interruption: %+v", r)
		}
		close(release)
		synctest.Wait()
	})
}

// What a check found is not told again because the agent reports it, too.
func TestOnce(t *testing.T) {
	check := func(id string, codes ...string) Check {
		return Check{ID: id, Limit: time.Second, run: func(context.Context, *Box) []Finding {
			var out []Finding
			for _, code := range codes {
				out = append(out, Finding{Code: code, Status: Error, What: "x"})
			}
			return out
		}}
	}
	for _, tc := range []struct {
		others, agent []string
		want          string
	}{
		{[]string{"disk-full"}, []string{"disk-full", "state-write"}, "ok"},
		{[]string{"disk-full"}, []string{"disk-full", "key-chain"}, "error key-chain"},
		{[]string{"rbac-gaps"}, []string{"disk-full"}, "error disk-full"},
	} {
		r := run(t.Context(), boxOf(), []Check{check("disk", tc.others...), check(agentCheck, tc.agent...)})
		if got := brief(r.Checks[1].Findings); got != tc.want {
			t.Errorf("%v with %v: %s, want %s", tc.agent, tc.others, got, tc.want)
		}
	}
}

// asked counts how often the agent is asked.
type asked struct {
	agent
	times int
	err   error
}

func (a *asked) Status(ctx context.Context) (control.Status, error) {
	a.times++
	if _, ok := ctx.Deadline(); !ok {
		return control.Status{}, errors.New("there is no deadline")
	}
	return control.Status{Version: "1"}, a.err
}

func (a *asked) Peers(context.Context, bool) ([]control.Peer, error) { return nil, nil }

func TestAgentIsAskedOnce(t *testing.T) {
	for _, tc := range []struct {
		err    error
		agent  string
		others string
	}{
		{nil, "ok", "ok"},
		{control.ErrNotRunning, "error agent-stopped", "skipped"},
		{control.ErrPermission, "skipped", "skipped"},
		{errors.New("x"), "error agent-hangs", "skipped"},
	} {
		a := &asked{err: tc.err}
		b := boxOf()
		b.agent = a
		ended, cancel := context.WithCancel(t.Context())
		cancel() // of whom asks first; others wait for the same answer
		judged(t, "agent", checkAgent(ended, b), tc.agent)
		judged(t, "peers", checkPeers(t.Context(), b), tc.others)
		if a.times != 1 {
			t.Errorf("asked %d times", a.times)
		}
	}
}
