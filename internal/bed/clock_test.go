//go:build linux

package bed

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

// TestClockOfAProcess is also the process: it writes the time again and again, and how much of it went by.
func TestClockOfAProcess(t *testing.T) {
	if os.Getenv("LIQO_BED_TELLS_TIME") != "" {
		for began := time.Now(); ; {
			fmt.Println("at", time.Now().Unix(), time.Since(began).Nanoseconds())
			time.Sleep(time.Millisecond)
		}
	}
	h := New(t).AddHost("a", "10.77.0.1/24")
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := h.Start(Cmd{Args: []string{program, "-test.run=^TestClockOfAProcess$"}, Env: []string{"LIQO_BED_TELLS_TIME=1"}})
	// told returns what the process writes from now on says of the time, and how long it runs.
	told := func(ctx context.Context) (at time.Time, ran time.Duration) {
		t.Helper()
		before := strings.Count(p.Log(), "\n")
		if err := Poll(ctx, func() error {
			lines := strings.Split(p.Log(), "\n")
			if len(lines) < before+4 { // one may have been under way, and the last one is not complete
				return fmt.Errorf("it says nothing: %s", p.state())
			}
			var seconds, nanoseconds int64
			_, err := fmt.Sscanf(lines[len(lines)-2], "at %d %d", &seconds, &nanoseconds)
			at, ran = time.Unix(seconds, 0), time.Duration(nanoseconds)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		return at, ran
	}
	began := time.Now()
	for i, ahead := range []time.Duration{0, 24 * time.Hour, -100 * 24 * time.Hour, 0} {
		if i > 0 {
			err := p.SetClock(ahead)
			if errors.Is(err, errors.ErrUnsupported) {
				t.Skip(err)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		low := time.Now()
		at, ran := told(within(t, Hang))
		if off := at.Sub(low) - ahead; off < -time.Second || off > time.Since(low) {
			t.Errorf("%v ahead, it says %v at %v", ahead, at, low)
		}
		if ran < 0 || ran > time.Since(began) {
			t.Errorf("%v ahead, it runs for %v after %v", ahead, ran, time.Since(began))
		}
	}
}
