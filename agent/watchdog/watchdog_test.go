package watchdog

import (
	"context"
	"errors"
	"testing"
	"time"

	"liqo.io/agent/agent/control"
	"liqo.io/agent/internal/bubble"
)

func TestAskAll(t *testing.T) { bubble.Test(t, askedAll) }

func askedAll(t *testing.T) {
	fine := Probe{"fine", func(context.Context) error { return nil }}
	broken := Probe{"broken", func(context.Context) error { return errors.New("out of order") }}
	hang := make(chan struct{})
	defer close(hang)
	hung := Probe{"hung", func(context.Context) error { <-hang; return nil }}
	if err := askAll(t.Context(), []Probe{fine, fine}); err != nil {
		t.Error(err)
	}
	if err := askAll(t.Context(), []Probe{fine, broken}); err == nil || err.Error() != "broken: out of order" {
		t.Errorf("error %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := askAll(ctx, []Probe{hung, fine, broken}); err == nil || err.Error() != "no answer from hung\nbroken: out of order" {
		t.Errorf("error %v", err)
	}
}

func TestAliveWithoutParts(t *testing.T) {
	w := New(nil)
	if err := w.alive(t.Context()); err != nil {
		t.Errorf("while parts start: %v", err)
	}
	w.state.Store(&state{since: time.Now().Add(-2 * rebuildLimit)})
	if err := w.alive(t.Context()); err == nil {
		t.Error("parts may take for ever to start")
	}
}

func TestSummary(t *testing.T) {
	problem := control.Problem{Text: "the disk is full"}
	for want, st := range map[string]control.Status{
		"barn: 0 peers":                                            {},
		"barn: 1 peer":                                             {Peers: map[string]int{"Present": 1, "Lost": 7}},
		"barn: 2 peers, 3 more unreachable":                        {Peers: map[string]int{"Present": 2, "Unreachable": 3}},
		"barn: 0 peers; 1 problem: the disk is full":               {Problems: []control.Problem{problem}},
		"barn: 0 peers; 2 problems, one of them: the disk is full": {Problems: []control.Problem{problem, {}}},
	} {
		st.Identity.Name = "barn"
		if got := summary(st); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
