//go:build race

package bubble

import (
	"runtime"
	"sync"
)

// turn is held by the bubble that runs: the number of processors is the whole process's.
var turn sync.Mutex

func oneProcessor() (restore func()) {
	turn.Lock()
	before := runtime.GOMAXPROCS(1)
	return func() {
		runtime.GOMAXPROCS(before)
		turn.Unlock()
	}
}
