package ifwatch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"syscall"
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
	follow      bool // gateways
	snapshot    Snapshot
	known       bool // a first snapshot was read
	subscribers map[chan struct{}]struct{}
	lapsed      map[int]struct{} // links that were down since the last look
	lapsedAll   bool             // any link may have been
}

// New returns a watcher that does nothing until Run. The filter must be valid;
// patterns that are not match nothing.
func New(filter Filter, logger *slog.Logger) *Watcher {
	return &Watcher{
		logger:      logger,
		kick:        make(chan struct{}, 1),
		filter:      filter.clone(),
		subscribers: make(map[chan struct{}]struct{}),
		lapsed:      make(map[int]struct{}),
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

// FollowGateways switches on or off that links tell their gateways and these
// gateways' hardware addresses. Most boxes do not need it, and then nothing is
// read or listened to for it. Run applies it at once; before Run it is merely
// kept. Any goroutine may call it.
//
// While the hardware address of a gateway is not known, a datagram is sent to
// it now and then (an empty one, to the discard port, no further than the link)
// to make the kernel ask for it: every second while its route is new, for five
// seconds, and then every minute.
func (w *Watcher) FollowGateways(on bool) {
	w.mu.Lock()
	same := w.follow == on
	w.follow = on
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

	r := &reading{Watcher: w, handle: h}
	defer r.unfollow()
	if err := r.update(); err != nil {
		return err
	}
	last := time.Now()
	timer, revisit := time.NewTimer(time.Hour), time.NewTimer(time.Hour)
	timer.Stop()
	defer timer.Stop()
	defer revisit.Stop()
	pending := false
	for {
		r.setRevisit(revisit)
		select {
		case <-ctx.Done():
			return nil
		case err := <-noticeErr:
			running = false
			return fmt.Errorf("watching network links: receiving netlink messages: %w", err)
		case err := <-r.failed():
			r.ended = true
			return fmt.Errorf("following gateways: receiving netlink messages: %w", err)
		case <-w.kick:
			if !pending {
				pending = true
				timer.Reset(max(settle, spacing-time.Since(last)))
			}
			continue
		case <-timer.C:
			pending = false
		case <-revisit.C:
		}
		if err := r.update(); err != nil {
			return err
		}
		last = time.Now()
	}
}

// notices turns netlink messages into kicks until the socket is closed or
// fails.
func (w *Watcher) notices(sock *nl.NetlinkSocket) error {
	for {
		messages, _, err := sock.Receive()
		// ENOBUFS: the kernel dropped messages, so something changed.
		if err != nil && !errors.Is(err, unix.ENOBUFS) && !errors.Is(err, unix.EINTR) {
			return err
		}
		w.noteLapses(messages, errors.Is(err, unix.ENOBUFS))
		w.lookAgain()
	}
}

// noteLapses remembers which links were down, perhaps for so short a time that
// the next look finds them up: what was known of their neighbours is void.
func (w *Watcher) noteLapses(messages []syscall.NetlinkMessage, lost bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lapsedAll = w.lapsedAll || lost
	for _, m := range messages {
		if m.Header.Type != unix.RTM_NEWLINK {
			continue
		}
		if index, up := parseLink(m.Data); !up {
			w.lapsed[index] = struct{}{}
		}
	}
}

func (w *Watcher) lookAgain() {
	select {
	case w.kick <- struct{}{}:
	default: // a kick is waiting already
	}
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
		if old, _ := before.ByName(l.Name); !slices.EqualFunc(old.Gateways, l.Gateways, Gateway.Equal) {
			w.logger.Info("network link changed its gateways", "link", l.Name, "gateways", l.Gateways)
		}
	}
	for _, l := range before.Links {
		if now, ok := after.ByName(l.Name); !ok || now.Index != l.Index {
			w.logger.Info("network link is no longer used", "link", l.Name, "reason", reasonFor(l.Name, left))
		}
	}
	for _, o := range left {
		w.logger.Debug("network link is ignored", "link", o.name, "reason", o.reason)
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
