package cli

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
)

func TestLogHandler(t *testing.T) {
	for _, tc := range []struct {
		format  string
		journal bool
		want    string // how a line begins
	}{
		{"auto", false, "time="},
		{"auto", true, "<4>msg=hello time="},
		{"text", false, "time="},
		{"text", true, "<4>time="},
		{"json", false, `{"time":`},
		{"json", true, `<4>{"time":`},
	} {
		var out bytes.Buffer
		slog.New(logHandler(&out, tc.journal, tc.format, slog.LevelInfo)).Warn("hello", "time", "not the time", "level", "not the level")
		if !strings.HasPrefix(out.String(), tc.want) || !strings.Contains(out.String(), "not the time") || !strings.Contains(out.String(), "not the level") {
			t.Errorf("%s %v: %s", tc.format, tc.journal, out.String())
		}
	}
}
