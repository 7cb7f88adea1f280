package throttle

import (
	"testing"
	"time"
)

func TestRetryAfter(t *testing.T) {
	for header, want := range map[string]time.Duration{
		"": 0, "0": 0, "7": 7 * time.Second, "99999": 99999 * time.Second, "4294967295": (1<<32 - 1) * time.Second, "-1": 0, "x": 0, "1.5": 0,
		"99999999999999999999": 0, "Fri, 31 Dec 1999 23:59:59 GMT": 0,
	} {
		if got := RetryAfter(header); got != want {
			t.Errorf("%q: %s", header, got)
		}
	}
}
