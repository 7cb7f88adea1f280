// Package bubble runs tests in bubbles of testing/synctest, whose clock is theirs alone.
package bubble

import (
	"testing"
	"testing/synctest"
)

// Test is [synctest.Test], and with the race detector on one processor at a time.
//
// Go 1.26 gives all timers of a bubble one state of the race detector, which two threads use at once when a goroutine asks the
// channel of a timer that is due while another does, or while the bubble runs its timers. The detector then ends the process by
// "ThreadSanitizer: CHECK failed" or a crash (golang/go#78156). It finds races on one processor, too: what it compares is what
// happens before what, not what happened at the same time.
//
// Bubbles of one process take turns. Test must not be called inside a bubble.
func Test(t *testing.T, f func(*testing.T)) {
	t.Helper()
	defer oneProcessor()()
	synctest.Test(t, f)
}
