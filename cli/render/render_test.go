package render

import (
	"testing"
	"time"
)

func TestSpan(t *testing.T) {
	for in, want := range map[string]string{"-1s": "0s", "999ms": "0s", "119s": "119s", "2m": "2m", "119m": "119m", "2h": "2h", "47h": "47h", "48h": "2d", "2400h": "100d"} {
		d, err := time.ParseDuration(in)
		if got := Span(d); err != nil || got != want {
			t.Errorf("Span(%s) = %s, want %s", in, got, want)
		}
	}
}
