package leak

import (
	"testing"
	"time"
)

// What is about to end is no leak, and what waits for ever is one.
func TestFind(t *testing.T) {
	go time.Sleep(2 * time.Second) // longer than goleak waits by itself
	Check(t)
	end := make(chan struct{})
	defer close(end)
	go func() { <-end }()
	if find(0) == nil {
		t.Error("a goroutine that waits is not found")
	}
}
