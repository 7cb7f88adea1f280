package decisions

import (
	"context"
	"testing"
	"time"

	"liqo.io/agent/api"
	"liqo.io/agent/endpoint/wire"
	"liqo.io/agent/peer"
	"liqo.io/agent/state"
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

// fullDisk takes no invite for used.
type fullDisk struct{ *state.Store }

func (fullDisk) UseInvite(context.Context, string, time.Time, peer.ClusterID, state.Ruling, ...peer.Event) error {
	return state.ErrFull
}

// TestInviteOfATrustedPeerIsNotLost: the answer to a peer whose key is trusted, and whose requests wait for a person without
// its invite, is not final while the invite cannot be used.
func TestInviteOfATrustedPeerIsNotLost(t *testing.T) {
	b, x := newBed(t, asks()), newBox(t, barn)
	a := x.ask()
	invited(t, b, &a)
	must(t, b.Trust(t.Context(), barn, x.fp(), "alice"))
	whole := b.Store.cfg.Database
	b.Store.cfg.Database = fullDisk{b.store}
	if got := b.Ask(t.Context(), x.caller("192.0.2.7"), a); got.Auth == api.AuthAccepted || got.Reason == wire.ReasonBadToken {
		t.Errorf("on a full disk: %+v, after which the token is not sent again", got)
	}
	b.Store.cfg.Database = whole
	if got := b.Ask(t.Context(), x.caller("192.0.2.7"), a); got.Auth != api.AuthAccepted || b.Policy(barn).Accept.Phase != api.RequestAccepted {
		t.Errorf("afterwards: %+v, %+v", got, b.Policy(barn).Accept)
	}

	// Who is let in anyway is not kept waiting.
	b, x = newBed(t, asks()), newBox(t, barn)
	a = x.ask()
	invited(t, b, &a)
	must(t, b.Accept(t.Context(), barn, x.fp(), "alice"))
	b.Store.cfg.Database = fullDisk{b.store}
	if got := b.Ask(t.Context(), x.caller("192.0.2.7"), a); got.Auth != api.AuthAccepted {
		t.Errorf("accepted before: %+v", got)
	}
}
