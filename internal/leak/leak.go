// Package leak finds goroutines that tests leave behind.
package leak

import (
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// patience is how long goroutines that are about to end may take, on a busy machine, too. [goleak.Find] alone waits 0.43 s.
const patience = time.Minute

// Main runs the tests of a package and ends the process. If they pass but leave goroutines behind, the package fails.
func Main(m *testing.M) {
	code := m.Run()
	if code == 0 {
		if err := find(patience); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// Check fails a test that leaves goroutines behind.
func Check(t testing.TB, options ...goleak.Option) {
	t.Helper()
	if err := find(patience, options...); err != nil {
		t.Error(err)
	}
}

func find(patience time.Duration, options ...goleak.Option) error {
	for deadline := time.Now().Add(patience); ; {
		if err := goleak.Find(options...); err == nil || time.Now().After(deadline) {
			return err
		}
	}
}
