package ifwatch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

const (
	// settle is how long the first message waits for its companions: one
	// command often changes a link and several addresses. It is short, for an
	// address change is to reach the network within 100 ms.
	settle = 20 * time.Millisecond
	// spacing is the least time between two reads while messages keep coming,
	// as when a node starts a hundred pods.
	spacing = 75 * time.Millisecond
	// noticeBuffer is the netlink socket's receive buffer in bytes. It needs
	// not hold everything: an overflow is only one more reason to look.
	noticeBuffer = 256 << 10
)

// Watcher follows the machine's links. Create it with New, start it with Run.
type Watcher struct {
	logger *slog.Logger
	kick   chan struct{} // capacity 1: look again

	mu          sync.Mutex
	filter      Filter
	snapshot    Snapshot
	known       bool // a first snapshot was read
	subscribers map[chan struct{}]struct{}
}

// New returns a watcher that does nothing until Run. The filter must be valid;
// patterns that are not match nothing.
func New(filter Filter, logger *slog.Logger) *Watcher {
	return &Watcher{
		logger:      logger,
		kick:        make(chan struct{}, 1),
		filter:      filter.clone(),
		subscribers: make(map[chan struct{}]struct{}),
	}
}

// SetFilter replaces the filter. Run applies it at once; before Run it is
// merely kept.
func (w *Watcher) SetFilter(filter Filter) {
	w.mu.Lock()
	same := w.filter.equal(filter)
	w.filter = filter.clone()
	w.mu.Unlock()
	if !same {
		w.lookAgain()
	}
}

// Subscribe returns a function for the latest snapshot and a channel that has
// an element whenever the snapshot may have changed since the last receive,
// the first snapshot included. Changes that nobody received are merged into
// one. Before the first read, current returns an empty snapshot. The
// subscriber calls cancel when done; the channel is never closed.
func (w *Watcher) Subscribe() (current func() Snapshot, changed <-chan struct{}, cancel func()) {
	ch := make(chan struct{}, 1)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.known {
		ch <- struct{}{}
	}
	w.subscribers[ch] = struct{}{}
	current = func() Snapshot {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.snapshot
	}
	cancel = func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.subscribers, ch)
	}
	return current, ch, cancel
}

// Run follows the links until ctx ends, and then returns nil. It returns an
// error when the kernel cannot be asked; the last snapshot stays published and
// the caller may run it again. It must not run twice at the same time. The
// network namespace is that of the thread Run starts on.
func (w *Watcher) Run(ctx context.Context) error {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("watching network links: opening a netlink socket: %w", err)
	}
	defer h.Close()
	// Subscribing comes before the first read, so that no change is missed
	// between the two.
	sock, err := nl.Subscribe(unix.NETLINK_ROUTE, unix.RTNLGRP_LINK, unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR)
	if err != nil {
		return fmt.Errorf("watching network links: subscribing to netlink messages: %w", err)
	}
	// The larger buffer only makes overflows rarer, so failing to get it does
	// not matter.
	_ = sock.SetReceiveBufferSize(noticeBuffer, false)

	noticeErr := make(chan error, 1)
	go func() { noticeErr <- w.notices(sock) }()
	running := true
	defer func() {
		sock.Close()
		if running {
			<-noticeErr
		}
	}()

	if err := w.update(h); err != nil {
		return err
	}
	last := time.Now()
	timer := time.NewTimer(time.Hour)
	timer.Stop()
	pending := false
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-noticeErr:
			running = false
			return fmt.Errorf("watching network links: receiving netlink messages: %w", err)
		case <-w.kick:
			if !pending {
				pending = true
				timer.Reset(max(settle, spacing-time.Since(last)))
			}
		case <-timer.C:
			pending = false
			if err := w.update(h); err != nil {
				return err
			}
			last = time.Now()
		}
	}
}

// notices turns netlink messages into kicks until the socket is closed or
// fails.
func (w *Watcher) notices(sock *nl.NetlinkSocket) error {
	for {
		_, _, err := sock.Receive()
		// ENOBUFS: the kernel dropped messages, so something changed.
		if err != nil && !errors.Is(err, unix.ENOBUFS) && !errors.Is(err, unix.EINTR) {
			return err
		}
		w.lookAgain()
	}
}

func (w *Watcher) lookAgain() {
	select {
	case w.kick <- struct{}{}:
	default: // a kick is waiting already
	}
}

// update reads the state and publishes it when it differs. Only Run calls it.
func (w *Watcher) update(h *netlink.Handle) error {
	w.mu.Lock()
	filter, before, known := w.filter, w.snapshot, w.known
	w.mu.Unlock()

	snapshot, left, err := read(h, filter)
	if err != nil {
		return err
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

// log tells people which links came and went. Pods come and go all the time,
// but their links are left out, so these lines are rare.
func (w *Watcher) log(before, after Snapshot, left []omission) {
	for _, l := range after.Links {
		if old, ok := before.ByName(l.Name); !ok || old.Index != l.Index {
			w.logger.Info("network link is used", "link", l.Name, "addresses", l.Addrs, "mtu", l.MTU)
		} else if !slices.Equal(old.Addrs, l.Addrs) {
			w.logger.Info("network link changed its addresses", "link", l.Name, "addresses", l.Addrs)
		}
	}
	for _, l := range before.Links {
		if now, ok := after.ByName(l.Name); !ok || now.Index != l.Index {
			w.logger.Info("network link is no longer used", "link", l.Name, "reason", reasonFor(l.Name, left))
		}
	}
	for _, o := range left {
		w.logger.Debug("network link is left out", "link", o.name, "reason", o.reason)
	}
}

func reasonFor(name string, left []omission) string {
	for _, o := range left {
		if o.name == name {
			return o.reason
		}
	}
	return "gone"
}
