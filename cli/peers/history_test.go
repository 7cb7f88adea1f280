package peers

import (
	"testing"
	"time"
)

func TestParseSince(t *testing.T) {
	for in, want := range map[string]string{
		"90m": "2026-11-21T10:30:00Z", "2d": "2026-11-19T12:00:00Z", "2026-11-20": "2026-11-20T00:00:00Z",
		"2026-11-20 08:15": "2026-11-20T08:15:00Z", "2026-11-20T08:15:00+02:00": "2026-11-20T08:15:00+02:00",
	} {
		got, err := parseSince(in, time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC))
		if err != nil || got.Format("2006-01-02T15:04:05Z07:00") != want {
			t.Errorf("parseSince(%q) = %v, %v; want %s", in, got, err, want)
		}
	}
	for _, in := range []string{"-1h", "-2d", "d", "soon", "21.11.2026"} {
		if got, err := parseSince(in, time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)); err == nil {
			t.Errorf("parseSince(%q) = %v", in, got)
		}
	}
}
