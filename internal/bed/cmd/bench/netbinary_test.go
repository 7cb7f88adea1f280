//go:build linux

package main

import (
	"os"
	"path/filepath"
	"testing"
)

// What is only used inside functions is gone, and the rest is as it was.
func TestHollowFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a.go")
	if err := os.WriteFile(file, []byte(`// Package a does things.
package a

import (
	"fmt"
	"io"
	n "net"
	other "os"
)

// W is kept.
type W struct{ io.Writer }

var zero n.IP

func (w W) Say(x int) error { _, err := fmt.Fprintln(w, x, other.Args); return err }
`), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := hollowFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if want := `package a

import (
	"io"
	n "net"
)

type W struct{ io.Writer }

var zero n.IP

func (w W) Say(x int) error { panic(0) }
`; string(got) != want {
		t.Errorf("%s", got)
	}
}
