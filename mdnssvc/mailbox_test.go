package mdnssvc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"liqo.io/agent/mdnssvc/browser"
	"liqo.io/agent/mdnssvc/responder"
)

// stuck is a log whose writing does not come back before it is released.
type stuck struct {
	slog.Handler
	entered, release chan struct{}
}

func (s stuck) Enabled(context.Context, slog.Level) bool { return true }

func (s stuck) Handle(context.Context, slog.Record) error {
	s.entered <- struct{}{}
	<-s.release
	return nil
}

// TestAnswers asks the loop for a sign of life before it runs, while it works, while
// it hangs, and after its end.
func TestAnswers(t *testing.T) {
	log := stuck{slog.DiscardHandler, make(chan struct{}), make(chan struct{})}
	svc, err := New(Config{Service: "_liqo._tcp", Logger: slog.New(log)})
	if err != nil {
		t.Fatal(err)
	}
	answers := func(when string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		if err := svc.Answers(ctx); err != nil {
			t.Errorf("%s: %v", when, err)
		}
	}
	answers("before it runs")

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	svc.running.Store(true)
	go func() { done <- svc.serve(ctx, [2]*socket{}) }()
	answers("while it works")

	svc.Advertise(&responder.Announcement{}) // is refused, which it logs
	<-log.entered
	soon, stop := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer stop()
	for range 2 {
		if err := svc.Answers(soon); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("while it hangs: %v", err)
		}
	}
	close(log.release)
	answers("after it hung")

	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	svc.running.Store(false)
	answers("after its end")
}

func event(kind browser.EventKind, name string, port uint16) Event {
	return Event{Kind: kind, Link: "eth0", Instance: browser.Instance{Name: name, Port: port}}
}

func TestEventsAreMerged(t *testing.T) {
	const f, u, l = browser.Found, browser.Updated, browser.Lost
	for _, tc := range []struct {
		name  string
		known bool // the consumer knows the instance already
		in    []browser.EventKind
		want  browser.EventKind // 0: nothing to tell
	}{
		{"found", false, []browser.EventKind{f}, f},
		{"found and updated", false, []browser.EventKind{f, u, u}, f},
		{"found and lost", false, []browser.EventKind{f, u, l}, 0},
		{"found, lost and found", false, []browser.EventKind{f, l, f}, f},
		{"updated", true, []browser.EventKind{u, u}, u},
		{"updated and lost", true, []browser.EventKind{u, l}, l},
		{"lost and found", true, []browser.EventKind{l, f}, u},
		{"lost, found and lost", true, []browser.EventKind{l, f, l}, l},
	} {
		o := newOutbox()
		if tc.known {
			o.put(event(f, "x", 0))
			o.drain()
		}
		for i, kind := range tc.in {
			o.put(event(kind, "x", uint16(i+1)))
		}
		got := o.drain()
		switch {
		case tc.want == 0 && len(got) != 0:
			t.Errorf("%s: told %+v", tc.name, got)
		case tc.want != 0 && (len(got) != 1 || got[0].Kind != tc.want || got[0].Instance.Port != uint16(len(tc.in))):
			t.Errorf("%s: told %+v, want one %v with the latest data", tc.name, got, tc.want)
		}
		if again := o.drain(); len(again) != 0 {
			t.Errorf("%s: told again: %+v", tc.name, again)
		}
	}
}

// TestEventsConverge feeds random events and reads at random times: what the
// consumer believes at the end is the truth, and every event fits what it
// believed before.
func TestEventsConverge(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := newOutbox()
		truth, belief := map[string]uint16{}, map[string]uint16{}
		read := func() {
			for _, e := range o.drain() {
				_, known := belief[e.Instance.Name]
				if known != (e.Kind != browser.Found) {
					t.Fatalf("%v of %q, known %v", e.Kind, e.Instance.Name, known)
				}
				if e.Kind == browser.Lost {
					delete(belief, e.Instance.Name)
				} else {
					belief[e.Instance.Name] = e.Instance.Port
				}
			}
		}
		for i := range rapid.IntRange(1, 200).Draw(t, "steps") {
			name, port := fmt.Sprint(rapid.IntRange(0, 4).Draw(t, "name")), uint16(i)
			_, there := truth[name]
			switch rapid.IntRange(0, 3).Draw(t, "step") {
			case 0:
				read()
			case 1:
				if there {
					o.put(event(browser.Lost, name, port))
					delete(truth, name)
				}
			default:
				kind := browser.Found
				if there {
					kind = browser.Updated
				}
				o.put(event(kind, name, port))
				truth[name] = port
			}
			if len(o.pending) > len(truth)+len(belief) {
				t.Fatalf("%d events wait for %d instances", len(o.pending), len(truth))
			}
		}
		read()
		if !reflect.DeepEqual(truth, belief) {
			t.Fatalf("the consumer believes %v, the truth is %v", belief, truth)
		}
	})
}

func TestEventsComeInOrder(t *testing.T) {
	o := newOutbox()
	for _, name := range []string{"c", "a", "b"} {
		o.put(event(browser.Found, name, 1))
	}
	o.put(event(browser.Updated, "c", 2))
	events, err := o.take(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range events {
		names = append(names, e.Instance.Name)
	}
	if !slices.Equal(names, []string{"c", "a", "b"}) {
		t.Errorf("order = %v", names)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := o.take(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("take without events = %v", err)
	}
}

func TestRequestsAreMerged(t *testing.T) {
	svc, err := New(Config{Service: "_liqo._tcp"})
	if err != nil {
		t.Fatal(err)
	}
	svc.Browse(false)
	svc.Advertise(announcement("a", 1))
	svc.Advertise(nil)
	for i := range maxReconfirm + 10 {
		svc.Reconfirm("eth0", fmt.Sprint(i))
	}
	r := svc.inbox.take()
	if *r.browse || !r.announce || r.announcement != nil || len(r.reconfirm) != maxReconfirm {
		t.Errorf("requests = browse %v, announce %v %v, %d to reconfirm", *r.browse, r.announce, r.announcement, len(r.reconfirm))
	}
	if r := svc.inbox.take(); r.browse != nil || r.announce || r.links != nil || len(r.reconfirm) != 0 {
		t.Errorf("requests were not taken: %+v", r)
	}
}

func TestQueueIsBounded(t *testing.T) {
	for name, size := range map[string]int{"packets": 1, "bytes": 9000} {
		q := newQueue()
		room := min(maxQueuedPackets, maxQueuedBytes/size)
		packets := make([]datagram, room+100)
		for i := range packets {
			packets[i] = datagram{data: make([]byte, size), link: i}
		}
		if dropped := q.put(packets[:room-1]); dropped != 0 {
			t.Errorf("%s: %d dropped while there was room", name, dropped)
		}
		if dropped := q.put(packets[room-1:]); dropped != 100 {
			t.Errorf("%s: %d dropped, want 100", name, dropped)
		}
		if name == "packets" && !q.full() {
			t.Errorf("%s: a full queue does not say so", name)
		}
		taken := q.take()
		if len(taken) != room || taken[room-1].link != room-1 {
			t.Errorf("%s: %d taken, want %d in order", name, len(taken), room)
		}
		if q.full() || len(q.take()) != 0 {
			t.Errorf("%s: not empty after take", name)
		}
	}
}
