package state

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"liqo.io/agent/peer"
)

// TestShrink: the memory of cached pages goes back to the system, and what they said is there.
func TestShrink(t *testing.T) {
	s, _ := openNew(t, Limits{})
	var events []peer.Event
	for i := range 3000 {
		events = append(events, peer.Event{At: epoch, ID: peer.ClusterID(fmt.Sprint("p", i)), Kind: peer.EventLost, Detail: strings.Repeat("x", 200)})
	}
	// A thread that begins meanwhile takes more than that.
	tries := 1
	for ; ; tries++ {
		must(t, s.Apply(t.Context(), Change{Events: events}))
		before := dataMemory(t)
		must(t, s.Shrink(t.Context()))
		after := dataMemory(t)
		if after <= before-512 {
			break
		}
		if tries == 5 {
			t.Fatalf("%d kB of memory, %d kB before", after, before)
		}
	}
	history, err := s.History(t.Context(), HistoryQuery{ID: "p7"})
	must(t, err)
	if len(history) != tries {
		t.Errorf("history = %v", history)
	}
}

// dataMemory returns how much memory of its own the process has mapped, in kB. The heap of
// Go never makes it less.
func dataMemory(t *testing.T) int {
	t.Helper()
	text, err := os.ReadFile("/proc/self/status")
	must(t, err)
	kB, err := strconv.Atoi(string(regexp.MustCompile(`VmData:\s+(\d+)`).FindSubmatch(text)[1]))
	must(t, err)
	return kB
}
