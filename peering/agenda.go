package peering

import (
	"context"
	"sync"
	"time"
)

// agenda is a small work queue of names for one worker: a name is on it once,
// however often it is added. All methods are safe for concurrent use.
type agenda struct {
	added chan struct{} // capacity 1

	mu  sync.Mutex
	due map[string]time.Time
}

func newAgenda() *agenda {
	return &agenda{added: make(chan struct{}, 1), due: make(map[string]time.Time)}
}

// add has name looked at now.
func (a *agenda) add(name string) { a.put(name, time.Now()) }

// addAfter has name looked at after a pause, unless it is due before.
func (a *agenda) addAfter(name string, pause time.Duration) { a.put(name, time.Now().Add(pause)) }

func (a *agenda) put(name string, at time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if due, there := a.due[name]; !there || at.Before(due) {
		a.due[name] = at
		wake(a.added)
	}
}

// next waits for the name that is due first and takes it from the agenda; false
// when ctx ended.
func (a *agenda) next(ctx context.Context) (string, bool) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return "", false
		case <-a.added:
		case <-timer.C:
		}
		name, pause := a.take(time.Now())
		if name != "" {
			return name, true
		}
		if pause > 0 {
			timer.Reset(pause)
		} else {
			timer.Stop()
		}
	}
}

// take takes the name that is due first from the agenda. It returns "" when none
// is due, and the time until one is; 0 when there is none.
func (a *agenda) take(now time.Time) (string, time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	first := ""
	for name, at := range a.due {
		if first == "" || at.Before(a.due[first]) {
			first = name
		}
	}
	if first == "" {
		return "", 0
	}
	if pause := a.due[first].Sub(now); pause > 0 {
		return "", pause
	}
	delete(a.due, first)
	return first, 0
}
