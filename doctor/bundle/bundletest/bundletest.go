// Package bundletest reads the archives of package bundle in tests.
package bundletest

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
)

// Unpack returns the files of an archive by their names below its directory. It
// fails the test if others than the owner could read one of them.
func Unpack(t testing.TB, path string) map[string]string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }() // read only: nothing is lost
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	out := make(map[string]string)
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		name, ok := strings.CutPrefix(h.Name, "liqo-agent-doctor/")
		if !ok || h.Mode != 0o600 {
			t.Errorf("%s of mode %o", h.Name, h.Mode)
		}
		out[name] = string(content)
	}
}
