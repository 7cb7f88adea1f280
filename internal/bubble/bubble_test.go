package bubble

import (
	"testing"
	"testing/synctest"
	"time"
)

// What Test is there for: on more processors, the race detector often ends the process here.
func TestTimersAreAskedByManyGoroutines(t *testing.T) {
	const rounds = 5000
	Test(t, func(t *testing.T) {
		seen := make(chan int)
		for range 16 {
			go func() {
				waited, asked := time.NewTicker(time.Second), time.NewTicker(time.Second)
				defer waited.Stop()
				defer asked.Stop()
				n := 0
				for range rounds {
					<-waited.C
					select {
					case <-asked.C:
						n++
					default:
					}
				}
				seen <- n
			}()
		}
		for range 16 {
			if n := <-seen; n != rounds {
				t.Errorf("a ticker that is due was seen %d times of %d", n, rounds)
			}
		}
		synctest.Wait()
	})
}
