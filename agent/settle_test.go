package agent

import (
	"os"
	"strconv"
	"strings"
	"testing"
)

// TestUnmapBinary: pages of files leave this process, which runs on.
func TestUnmapBinary(t *testing.T) {
	before := fileMemory(t)
	if err := unmapBinary(); err != nil {
		t.Fatal(err)
	}
	if after := fileMemory(t); after >= before {
		t.Errorf("%d kB of files are mapped, %d kB before", after, before)
	}
}

// fileMemory returns the resident memory of this process that is of files, in kB.
func fileMemory(t *testing.T) int {
	t.Helper()
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "RssFile:")
	kB, err := strconv.Atoi(strings.Fields(rest)[0])
	if err != nil {
		t.Fatal(err)
	}
	return kB
}
