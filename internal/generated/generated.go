// Package generated keeps files that are made from the code in step with it: a test
// compares them, and writes them anew when it is run with -update.
package generated

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the files that are made from the code anew")

// File fails the test unless the file at path holds want. With -update it is
// written. It reports whether the file was as it should be.
func File(t testing.TB, path, want string) bool {
	t.Helper()
	found, err := os.ReadFile(path)
	if err != nil && !(*update && os.IsNotExist(err)) {
		t.Fatal(err)
	}
	switch {
	case err == nil && string(found) == want:
		return true
	case *update:
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("%s is not what the code says; if the code is right, run this test with -update (-code +file):\n%s", path, cmp.Diff(want, string(found)))
	}
	return false
}

// Section is File for what stands between begin, which the file has once, and the
// first end after it. Empty ones are the beginning and the end of the file.
func Section(t testing.TB, path, begin, end, want string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	whole, ok := replace(string(text), begin, end, want)
	if !ok {
		t.Fatalf("%s has no place for what is generated, between %q and %q", path, begin, end)
	}
	File(t, path, whole)
}

// replace returns text with want between begin and end.
func replace(text, begin, end, want string) (string, bool) {
	before, rest, ok := strings.Cut(text, begin)
	if !ok || begin != "" && strings.Contains(rest, begin) {
		return "", false
	}
	if end == "" {
		return before + begin + want, true
	}
	_, after, ok := strings.Cut(rest, end)
	if !ok {
		return "", false
	}
	return before + begin + want + end + after, true
}
