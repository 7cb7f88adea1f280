package mdnssvc

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"liqo.io/agent/ifwatch"
	"liqo.io/agent/internal/bed"
	"liqo.io/agent/mdnssvc/browser"
	"liqo.io/agent/mdnssvc/responder"
	"liqo.io/agent/peer"
)

// patience bounds how long a test waits for something that must happen.
const patience = bed.Hang

var fingerprint = peer.FingerprintOf([]byte("a key"))

// box is a Service on a host of the bed, fed by the host's real links.
type box struct {
	t       *testing.T
	host    *bed.Host
	svc     *Service
	watcher *ifwatch.Watcher
	cancel  context.CancelFunc
	done    chan struct{}

	mu      sync.Mutex
	changed chan struct{} // closed and replaced at each change
	current func() ifwatch.Snapshot
	use     func(ifwatch.Link) Use
	live    map[instanceKey]Event
	lost    map[instanceKey]string // latest reason
	count   int                    // events so far
}

// startBox runs a Service on a host until the test ends or stop is called.
func startBox(t *testing.T, h *bed.Host, cfg Config) *box {
	t.Helper()
	return startBoxWith(t, h, cfg, nil)
}

// startBoxWith starts a box that uses its links, by name, for something else than
// everything.
func startBoxWith(t *testing.T, h *bed.Host, cfg Config, uses map[string]Use) *box {
	t.Helper()
	if cfg.Service == "" {
		cfg.Service = "_liqo._tcp"
	}
	cfg.Logger = slog.New(slog.NewTextHandler(testLog{t, h.Name}, &slog.HandlerOptions{Level: slog.LevelDebug}))
	svc, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	b := &box{
		t: t, host: h, svc: svc, cancel: cancel, done: make(chan struct{}),
		watcher: ifwatch.New(ifwatch.Filter{Exclude: ifwatch.DefaultExclude()}, cfg.Logger),
		changed: make(chan struct{}), use: useOf(uses),
		live: make(map[instanceKey]Event), lost: make(map[instanceKey]string),
	}
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error { return h.Do(func() error { return b.watcher.Run(gctx) }) })
	g.Go(func() error { return h.Do(func() error { return svc.Run(gctx) }) })
	g.Go(func() error { b.follow(gctx); return nil })
	g.Go(func() error { b.collect(gctx); return nil })
	go func() {
		defer close(b.done)
		if err := g.Wait(); err != nil {
			t.Errorf("%s: %v", h.Name, err)
		}
	}()
	t.Cleanup(b.stop)
	return b
}

// stop ends the Service and waits for its end.
func (b *box) stop() {
	b.cancel()
	<-b.done
}

func (b *box) follow(ctx context.Context) {
	current, changed, cancel := b.watcher.Subscribe()
	defer cancel()
	for {
		select {
		case <-ctx.Done():
			return
		case <-changed:
			b.mu.Lock()
			b.current = current
			use := b.use
			b.mu.Unlock()
			b.svc.SetLinksFor(current(), use)
		}
	}
}

func (b *box) collect(ctx context.Context) {
	for {
		events, err := b.svc.Events(ctx)
		if err != nil {
			return
		}
		b.mu.Lock()
		for _, e := range events {
			key := instanceKey{e.Link, e.Instance.Name}
			_, known := b.live[key]
			if known != (e.Kind != browser.Found) {
				b.t.Errorf("%s: %s told of %v, known before: %v", b.host.Name, e.Kind, key, known)
			}
			b.count++
			if e.Kind == browser.Lost {
				delete(b.live, key)
				b.lost[key] = e.Reason
			} else {
				b.live[key] = e
			}
		}
		close(b.changed)
		b.changed = make(chan struct{})
		b.mu.Unlock()
	}
}

// useOf returns what each link is used for: everything unless uses says otherwise.
func useOf(uses map[string]Use) func(ifwatch.Link) Use {
	return func(l ifwatch.Link) Use {
		if use, ok := uses[l.Name]; ok {
			return use
		}
		return everything
	}
}

// uses changes what the box uses its links for.
func (b *box) uses(uses map[string]Use) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.use = useOf(uses)
	b.svc.SetLinksFor(b.current(), b.use)
}

// obeyed waits until the box has done what it was asked for, and returns a moment
// after that.
func (b *box) obeyed() time.Time {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), patience)
	defer cancel()
	if err := b.svc.Answers(ctx); err != nil {
		b.t.Fatal(err)
	}
	return time.Now()
}

// await waits until what the box knows satisfies ok.
func (b *box) await(what string, ok func(live map[instanceKey]Event, lost map[instanceKey]string) bool) {
	b.t.Helper()
	timeout := time.After(patience)
	for {
		b.mu.Lock()
		good, changed := ok(b.live, b.lost), b.changed
		b.mu.Unlock()
		if good {
			return
		}
		select {
		case <-changed:
		case <-timeout:
			b.mu.Lock()
			defer b.mu.Unlock()
			b.t.Fatalf("%s: waited in vain for %s; live %+v, lost %+v, stats %+v", b.host.Name, what, b.live, b.lost, b.svc.Stats())
		}
	}
}

// awaitInstance waits until an instance on a link is known and satisfies ok.
func (b *box) awaitInstance(link, name string, ok func(Event) bool) Event {
	b.t.Helper()
	var found Event
	b.await(fmt.Sprintf("%s on %s", name, link), func(live map[instanceKey]Event, _ map[instanceKey]string) bool {
		e, known := live[instanceKey{link, name}]
		found = e
		return known && (ok == nil || ok(e))
	})
	return found
}

// awaitLost waits until an instance on a link is lost for a reason.
func (b *box) awaitLost(link, name, reason string) {
	b.t.Helper()
	b.await(fmt.Sprintf("the loss of %s on %s: %s", name, link, reason), func(live map[instanceKey]Event, lost map[instanceKey]string) bool {
		key := instanceKey{link, name}
		_, known := live[key]
		return !known && lost[key] == reason
	})
}

// lostBy returns why an instance on a link was lost last, "" when it never was.
func (b *box) lostBy(link, name string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.lost[instanceKey{link, name}]
}

// awaitStats waits until the statistics satisfy ok.
func (b *box) awaitStats(what string, ok func(Stats) bool) Stats {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), patience)
	defer cancel()
	var s Stats
	if err := bed.Poll(ctx, func() error {
		if s = b.svc.Stats(); !ok(s) {
			return fmt.Errorf("%s: no %s: %+v", b.host.Name, what, s)
		}
		return nil
	}); err != nil {
		b.t.Fatal(err)
	}
	return s
}

// advertise announces the box under its own name as cluster ID.
func (b *box) advertise(port uint16) {
	b.svc.Advertise(announcement(b.host.Name, port))
}

func announcement(name string, port uint16) *responder.Announcement {
	return &responder.Announcement{
		Instance: name, Service: "_liqo._tcp", Domain: "local", Host: name, Port: port,
		TXT: TXT(peer.Identity{ClusterID: peer.ClusterID(name), ClusterName: strings.ToUpper(name), GuestNamespace: "liqo"}, fingerprint),
	}
}

func hasAddr(addr string) func(Event) bool {
	return func(e Event) bool {
		for _, a := range e.Instance.Addrs {
			if a == netip.MustParseAddr(addr) {
				return true
			}
		}
		return false
	}
}

// testLog writes a Service's log into the test's.
type testLog struct {
	t    *testing.T
	host string
}

func (l testLog) Write(b []byte) (int, error) {
	l.t.Logf("%s: %s", l.host, strings.TrimSpace(string(b)))
	return len(b), nil
}
