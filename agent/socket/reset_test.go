package socket

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"liqo.io/agent/agent/control"
)

// PlanReset, BeginReset and ResetState make memory a Resetter.
func (m *memory) PlanReset(_ context.Context, opts control.ResetOptions) (control.ResetPlan, error) {
	return control.ResetPlan{ClusterID: "me", Peers: []control.ResetPeer{{ID: "barn", State: control.ResetPeerPlanned}}}, m.tell("plan %+v", opts)
}

func (m *memory) BeginReset(_ context.Context, opts control.ResetOptions, by string) (control.Reset, error) {
	return control.Reset{Phase: control.ResetParting, Options: opts, By: by}, m.tell("reset %+v", opts)
}

func (m *memory) ResetState(context.Context) (control.Reset, error) {
	return control.Reset{Phase: control.ResetNone}, nil
}

func TestReset(t *testing.T) {
	m := &memory{}
	s, client := serve(t, m)
	ctx := t.Context()
	plan, err := client.PlanReset(ctx, control.ResetOptions{All: true, CRDs: true})
	if err != nil || plan.ClusterID != "me" || len(plan.Peers) != 1 || plan.Deletes == nil || plan.Keeps == nil || plan.Unknown == nil {
		t.Errorf("plan %+v, %v", plan, err)
	}
	begun, err := client.BeginReset(ctx, control.ResetOptions{Identity: true, Stop: true})
	if err != nil || begun.Phase != control.ResetParting || !begun.Options.Stop || !strings.Contains(begun.By, "command line") || begun.Failed == nil {
		t.Errorf("begun %+v, %v", begun, err)
	}
	if state, err := client.ResetState(ctx); err != nil || state.Phase != control.ResetNone || state.Peers == nil || !state.StartedAt.Equal(time.Time{}) {
		t.Errorf("state %+v, %v", state, err)
	}
	for _, opts := range []control.ResetOptions{{CRDs: true}, {CRDs: true, Identity: true}} {
		_, planned := client.PlanReset(ctx, opts)
		_, begun := client.BeginReset(ctx, opts)
		if !errors.Is(planned, control.ErrInvalid) || !errors.Is(begun, control.ErrInvalid) {
			t.Errorf("%+v: %v, %v", opts, planned, begun)
		}
	}
	if status, answer := raw(t, s, "GET", "/v1/reset/plan?all=perhaps", ""); status != 400 {
		t.Errorf("all=perhaps: %d %s", status, answer)
	}
	want := []string{"plan {Identity:false Stop:false All:true CRDs:true}", "reset {Identity:true Stop:true All:false CRDs:false}"}
	if got := m.heard(); strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("the agent heard %q", got)
	}
}
