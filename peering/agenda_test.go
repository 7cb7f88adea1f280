package peering

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestAgenda(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, begun := newAgenda(), time.Now()
		next := func(want string, after time.Duration) {
			t.Helper()
			name, ok := a.next(t.Context())
			if waited := time.Since(begun); !ok || name != want || waited != after {
				t.Errorf("next is %q, %v after %v; want %q after %v", name, ok, waited, want, after)
			}
		}
		a.addAfter("slow", 3*time.Second)
		for range 100 {
			a.add("now")
		}
		a.addAfter("now", time.Second)  // it is due already
		a.addAfter("soon", time.Minute) // and then sooner
		a.addAfter("soon", time.Second) // than that
		a.addAfter("soon", 2*time.Hour) // and not later
		a.addAfter("urgent", time.Hour) // until somebody
		time.AfterFunc(2*time.Second, func() { a.add("urgent") })
		next("now", 0)
		next("soon", time.Second)
		next("urgent", 2*time.Second)
		next("slow", 3*time.Second)

		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		if name, ok := a.next(ctx); ok {
			t.Errorf("next is %q, want none", name)
		}
		if len(a.due) != 0 {
			t.Errorf("%v is left", a.due)
		}
	})
}
