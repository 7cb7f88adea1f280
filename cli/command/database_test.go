package command

import (
	"errors"
	"fmt"
	"testing"

	"liqo.io/agent/agent/control"
	"liqo.io/agent/state"
)

// What keeps this program from reading a database keeps its agent from starting
// as well, so that is no advice.
func TestUnreadableDatabase(t *testing.T) {
	notRunning := &control.Error{Kind: control.ErrNotRunning, Message: "not running", Advice: "start it"}
	for _, tc := range []struct {
		err    error
		advice string
	}{
		{state.ErrNoDatabase, "start it"},
		{state.ErrDamaged, "start it"},
		{state.ErrNewerSchema, ""},
	} {
		err := Unreadable(notRunning, fmt.Errorf("agent.db: %w", tc.err))
		var advised *control.Error
		if !errors.As(err, &advised) || !errors.Is(err, control.ErrNotRunning) || advised.Try() != tc.advice {
			t.Errorf("%v: %v, advice %q, want %q", tc.err, err, advised.Try(), tc.advice)
		}
	}
}
