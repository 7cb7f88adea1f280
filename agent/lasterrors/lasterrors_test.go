package lasterrors

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
)

func TestLastErrors(t *testing.T) {
	var kept Log
	logger := kept.Recording(slog.New(slog.DiscardHandler))
	logger.Info("fine")
	logger.With("part", "x").WithGroup("g").Warn("odd", "error", "why", "else", 1)
	for range 3 {
		logger.Error("broken")
	}
	logger.Warn("odd", "error", "why")
	all := kept.List()
	if len(all) != 2 || all[0].Text != "odd: why" || all[0].Count != 2 || all[0].Level != "warn" || all[1].Text != "broken" || all[1].Count != 3 || all[1].Level != "error" {
		t.Fatalf("%+v", all)
	}
	for i := range 3 * maxEntries {
		logger.Error(fmt.Sprint(i, strings.Repeat("x", 1000*i)))
	}
	all = kept.List()
	if len(all) != maxEntries {
		t.Errorf("%d are kept", len(all))
	}
	for _, e := range all {
		if len(e.Text) > maxText+3 {
			t.Errorf("a text of %d bytes", len(e.Text))
		}
	}
}
