//go:build linux

package bed

import (
	"slices"
	"strings"
	"testing"
)

func TestScript(t *testing.T) {
	for _, test := range []struct {
		name  string
		body  func(TB, func(string))
		calls []string
		err   string
	}{
		{"success", func(tb TB, call func(string)) {
			tb.Cleanup(func() { call("first registered"); tb.Cleanup(func() { call("late") }) })
			tb.Cleanup(func() { call("second registered") })
			call("body")
		}, []string{"body", "second registered", "first registered", "late"}, ""},
		{"fatal", func(tb TB, call func(string)) {
			tb.Cleanup(func() { call("cleanup") })
			tb.Fatalf("no %d", 1)
			call("not reached")
		}, []string{"cleanup"}, "no 1"},
		{"error and failing cleanup", func(tb TB, call func(string)) {
			tb.Cleanup(func() { call("other cleanup") })
			tb.Cleanup(func() { tb.Fatalf("no 2") })
			tb.Errorf("no 1")
			call("reached")
		}, []string{"reached", "other cleanup"}, "no 1\nno 2"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var calls []string
			var out strings.Builder
			err := Script(t.Context(), test.name, &out, func(tb TB) { test.body(tb, func(c string) { calls = append(calls, c) }) })
			if got := errorText(err); got != test.err || strings.TrimSuffix(out.String(), "\n") != test.err {
				t.Errorf("error %q, output %q, want %q", got, out.String(), test.err)
			}
			if !slices.Equal(calls, test.calls) {
				t.Errorf("calls %q, want %q", calls, test.calls)
			}
		})
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
