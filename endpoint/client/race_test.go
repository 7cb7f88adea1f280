package client

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"testing"
	"time"

	"liqo.io/agent/internal/bubble"
)

// The first result wins; what comes too late is handed back, whoever it is from.
func TestRaceHandsBackLateResults(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var candidates []candidate
		for port := range uint16(4) {
			candidates = append(candidates, candidate{addr: netip.AddrPortFrom(netip.IPv6Loopback(), port)})
		}
		begun := make([]time.Duration, len(candidates))
		start := time.Now()
		try := func(ctx context.Context, cand candidate) (uint16, *Error) {
			port := cand.addr.Port()
			begun[port] = time.Since(start)
			switch port {
			case 0: // slow, and does not see that it has lost
				time.Sleep(time.Minute)
			case 1: // gives up at once
				return 0, &Error{Reason: ReasonUnreachable, Err: errors.New("nobody")}
			case 2:
				time.Sleep(time.Second)
			case 3: // sees it
				<-ctx.Done()
				return 0, &Error{Reason: ReasonUnreachable, Err: ctx.Err()}
			}
			return port, nil
		}
		var late []uint16
		won, ok, failures := race(t.Context(), 100*time.Millisecond, candidates, try, func(p uint16) { late = append(late, p) })
		if !ok || won != 2 || failures != nil || !slices.Equal(late, []uint16{0}) {
			t.Errorf("%d won, %v came late, %v", won, late, failures)
		}
		if want := []time.Duration{0, 100 * time.Millisecond, 100 * time.Millisecond, 200 * time.Millisecond}; !slices.Equal(begun, want) {
			t.Errorf("begun after %v", begun)
		}
	})
}
