package throttle

import (
	"fmt"
	"testing"
	"time"
)

func TestLimiter(t *testing.T) {
	var l Limiter
	now := time.Now()
	got := ""
	for i := range 12 {
		if i == 8 {
			now = now.Add(time.Second)
		}
		if n, ok := l.Allow(now, 2, time.Second); ok {
			got += fmt.Sprint(n, " ")
		}
	}
	if got != "0 0 6 0 " {
		t.Errorf("allowed with %q not shown", got)
	}
}
