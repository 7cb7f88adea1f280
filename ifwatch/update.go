package ifwatch

import (
	"time"

	"github.com/vishvananda/netlink"
)

// reading is what one Run of a Watcher reads with. Only Run uses it.
type reading struct {
	*Watcher
	handle   *netlink.Handle
	follower *follower // nil: gateways are not followed
	ended    bool      // the follower's goroutine has ended
}

// update reads the state and publishes it when it differs.
func (r *reading) update() error {
	w := r.Watcher
	w.mu.Lock()
	filter, follow, before, known := w.filter, w.follow, w.snapshot, w.known
	lapsed := w.takeLapses()
	w.mu.Unlock()

	if err := r.setFollow(follow); err != nil {
		return err
	}
	snapshot, left, carrier, err := read(r.handle, filter)
	if err != nil {
		return err
	}
	if r.follower != nil {
		now := time.Now()
		if err := r.follower.look(now, &snapshot, carrier, lapsed); err != nil {
			return err
		}
		for _, k := range r.follower.ask(now) {
			if err := provoke(k); err != nil {
				// The kernel may learn the address without us, and we try again.
				w.logger.Debug("cannot send a packet to a gateway to learn its hardware address", "gateway", k.addr, "error", err)
			}
		}
	}
	if known && snapshot.Equal(before) {
		return nil
	}
	w.mu.Lock()
	w.snapshot, w.known = snapshot, true
	for ch := range w.subscribers {
		select {
		case ch <- struct{}{}:
		default: // told already, and it will read the latest
		}
	}
	w.mu.Unlock()
	w.log(before, snapshot, left)
	return nil
}

// takeLapses returns which links were down since the last call. The caller holds
// the lock.
func (w *Watcher) takeLapses() func(link int) bool {
	some, all := w.lapsed, w.lapsedAll
	w.lapsed, w.lapsedAll = make(map[int]struct{}), false
	return func(link int) bool { _, is := some[link]; return all || is }
}

// setFollow begins or ends to follow gateways.
func (r *reading) setFollow(on bool) error {
	switch {
	case !on:
		r.unfollow()
	case r.follower == nil:
		f, err := follow(r.lookAgain)
		if err != nil {
			return err
		}
		r.follower, r.ended = f, false
	}
	return nil
}

// unfollow ends to follow gateways, if they are followed.
func (r *reading) unfollow() {
	if r.follower != nil {
		r.follower.close(r.ended)
		r.follower = nil
	}
}

// failed returns the channel on which the follower tells that it ended; nil when
// there is none.
func (r *reading) failed() <-chan error {
	if r.follower == nil {
		return nil
	}
	return r.follower.failed
}

// setRevisit sets a timer to when gateways are to be looked at again.
func (r *reading) setRevisit(t *time.Timer) {
	if r.follower == nil {
		t.Stop()
		return
	}
	at := r.follower.next()
	if at.IsZero() {
		t.Stop()
		return
	}
	t.Reset(max(settle, time.Until(at)))
}
