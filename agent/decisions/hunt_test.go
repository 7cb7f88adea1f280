package decisions

import (
	"testing"
	"time"

	"liqo.io/agent/api"
	"liqo.io/agent/endpoint/wire"
)

// TestInviteBeforeItWasMade: by a clock that is behind, as that of a box that has just started and was not told
// the time, nobody can say whether an invite has expired. It is not used then, and not lost.
func TestInviteBeforeItWasMade(t *testing.T) {
	b, x := newBed(t, asks()), newBox(t, barn)
	a := x.ask()
	invited(t, b, &a)
	b.pass(400 * 24 * time.Hour) // it expired long ago
	b.pass(-410 * 24 * time.Hour)
	if got := b.Ask(t.Context(), x.caller("192.0.2.7"), a); got.Auth != api.AuthPending || got.Reason != wire.ReasonBusy || b.Pin(barn) != nil {
		t.Errorf("by a clock of before the invite was made: %+v, pin %v", got, b.Pin(barn))
	}
	b.pass(10*24*time.Hour - time.Minute) // a clock that was set a little right after it was made is no reason
	if got := b.Ask(t.Context(), x.caller("192.0.2.7"), a); got.Auth != api.AuthAccepted {
		t.Errorf("a minute before it was made: %+v", got)
	}
}
