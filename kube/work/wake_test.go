package work

import "testing"

// Whoever wakes somebody never waits, and however often it happens, one look is enough.
func TestWake(t *testing.T) {
	c := make(chan struct{}, 1)
	for range 3 {
		Wake(c)
	}
	if len(c) != 1 {
		t.Errorf("%d elements wait", len(c))
	}
	<-c
	if Wake(c); len(c) != 1 {
		t.Error("nothing waits after the first was received")
	}
}
