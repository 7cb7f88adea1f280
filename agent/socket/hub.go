package socket

import (
	"errors"
	"sync"

	"liqo.io/agent/agent/control"
)

const (
	// watchBuffer is how many changes a watcher may lag behind. A change is a few
	// hundred bytes, so a watcher that hangs costs at most about 1 MB.
	watchBuffer = 2048
	maxWatchers = 32
)

var (
	errTooSlow     = errors.New("the reader did not keep up with the changes")
	errStopping    = errors.New("the agent is stopping")
	errManyWatches = errors.New("too many watches are open")
)

// hub sends each published change to all watchers. It never waits for one.
type hub struct {
	mu       sync.Mutex
	watchers map[*watcher]struct{}
	closed   bool
}

// watcher is one subscription. done is closed when the hub ends it; why says
// the reason and is set before that. It counts until its handler has unsubscribed it.
type watcher struct {
	changes chan control.WatchEvent
	done    chan struct{}
	why     error
}

// ended must be called with the hub's mu held.
func (w *watcher) ended() bool { return w.why != nil }

func newHub() *hub { return &hub{watchers: make(map[*watcher]struct{})} }

func (h *hub) subscribe() (*watcher, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.closed:
		return nil, errStopping
	case len(h.watchers) >= maxWatchers:
		return nil, errManyWatches
	}
	w := &watcher{changes: make(chan control.WatchEvent, watchBuffer), done: make(chan struct{})}
	h.watchers[w] = struct{}{}
	return w, nil
}

func (h *hub) unsubscribe(w *watcher) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.watchers, w)
}

func (h *hub) publish(ev control.WatchEvent) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for w := range h.watchers {
		if w.ended() {
			continue
		}
		select {
		case w.changes <- ev:
		default:
			h.end(w, errTooSlow)
		}
	}
}

func (h *hub) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	for w := range h.watchers {
		if !w.ended() {
			h.end(w, errStopping)
		}
	}
}

// end must be called with mu held.
func (h *hub) end(w *watcher, why error) {
	w.why = why
	close(w.done)
}
