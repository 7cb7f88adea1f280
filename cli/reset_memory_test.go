package cli

import (
	"context"

	"liqo.io/agent/agent/control"
)

// PlanReset, BeginReset and ResetState make memory a control.Resetter.
func (m *memory) PlanReset(context.Context, control.ResetOptions) (control.ResetPlan, error) {
	return m.resetPlan, nil
}

func (m *memory) BeginReset(_ context.Context, opts control.ResetOptions, _ string) (control.Reset, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.told = append(m.told, "reset "+describeReset(opts))
	if len(m.resets) == 0 {
		return control.Reset{Phase: control.ResetParting, Options: opts}, nil
	}
	return m.resets[0], nil
}

// ResetState returns one state after the other, and the last one again and again.
func (m *memory) ResetState(context.Context) (control.Reset, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.resets) > 1 {
		m.resets = m.resets[1:]
	}
	if len(m.resets) == 0 {
		return control.Reset{}, nil
	}
	return m.resets[0], nil
}

func describeReset(opts control.ResetOptions) string {
	out := "plain"
	if opts.Identity {
		out = "identity"
	}
	if opts.All {
		out += " all"
	}
	if opts.CRDs {
		out += " crds"
	}
	if opts.Stop {
		out += " stop"
	}
	return out
}
