package control

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

// PlanReset, BeginReset and ResetState make memory a Resetter.
func (m *memory) PlanReset(_ context.Context, opts ResetOptions) (ResetPlan, error) {
	return ResetPlan{ClusterID: "me", Peers: []ResetPeer{{ID: "barn", State: ResetPeerPlanned}}}, m.tell("plan %+v", opts)
}

func (m *memory) BeginReset(_ context.Context, opts ResetOptions, by string) (Reset, error) {
	return Reset{Phase: ResetParting, Options: opts, By: by}, m.tell("reset %+v", opts)
}

func (m *memory) ResetState(context.Context) (Reset, error) { return Reset{}, nil }

func TestReset(t *testing.T) {
	m := &memory{}
	_, client := serve(t, m)
	ctx := t.Context()
	plan, err := client.PlanReset(ctx, ResetOptions{All: true, CRDs: true})
	if err != nil || plan.ClusterID != "me" || len(plan.Peers) != 1 || plan.Deletes == nil || plan.Keeps == nil || plan.Unknown == nil {
		t.Errorf("plan %+v, %v", plan, err)
	}
	begun, err := client.BeginReset(ctx, ResetOptions{Identity: true, Stop: true})
	if err != nil || begun.Phase != ResetParting || !begun.Options.Stop || !strings.Contains(begun.By, "command line") || begun.Failed == nil {
		t.Errorf("begun %+v, %v", begun, err)
	}
	if state, err := client.ResetState(ctx); err != nil || state.Phase != ResetNone || state.Peers == nil || !state.StartedAt.Equal(time.Time{}) {
		t.Errorf("state %+v, %v", state, err)
	}
	for _, opts := range []ResetOptions{{CRDs: true}, {CRDs: true, Identity: true}} {
		_, planned := client.PlanReset(ctx, opts)
		_, begun := client.BeginReset(ctx, opts)
		if !errors.Is(planned, ErrInvalid) || !errors.Is(begun, ErrInvalid) {
			t.Errorf("%+v: %v, %v", opts, planned, begun)
		}
	}
	if err := client.call(ctx, "GET", "/v1/reset/plan?all=perhaps", nil, nil); !errors.Is(err, ErrInvalid) {
		t.Errorf("all=perhaps: %v", err)
	}
	want := []string{"plan {Identity:false Stop:false All:true CRDs:true}", "reset {Identity:true Stop:true All:false CRDs:false}"}
	if got := m.heard(); strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("the agent heard %q", got)
	}
}
