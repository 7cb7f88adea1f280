//go:build race

package bubble

import (
	"runtime"
	"testing"
)

func TestOneProcessor(t *testing.T) {
	before := runtime.GOMAXPROCS(0)
	Test(t, func(t *testing.T) {
		if n := runtime.GOMAXPROCS(0); n != 1 {
			t.Errorf("%d processors in a bubble", n)
		}
	})
	if n := runtime.GOMAXPROCS(0); n != before {
		t.Errorf("%d processors after a bubble, %d before", n, before)
	}
}
