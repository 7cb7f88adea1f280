package render

import (
	"testing"
)

func TestQuoted(t *testing.T) {
	for in, want := range map[string]string{"barn": "barn", "Halle 3": "'Halle 3'", "it's": `'it'\''s'`, "": "''", "-x": "-- -x", "a$(b)": "'a$(b)'", "s\x1b": `'s\x1b'`} {
		if got := Quoted(in); got != want {
			t.Errorf("Quoted(%q) = %s, want %s", in, got, want)
		}
	}
}
