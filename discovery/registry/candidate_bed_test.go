package registry

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"liqo.io/agent/endpoint/client"
	"liqo.io/agent/internal/bubble"
	"liqo.io/agent/internal/leak"
	"liqo.io/agent/peer"
)

func TestMain(m *testing.M) { leak.Main(m) }

const self = peer.ClusterID("self")

// timeout is how long the bed's probes wait for those who do not answer.
const timeout = 5 * time.Second

func keyOf(name string) peer.Fingerprint { return peer.FingerprintOf([]byte(name)) }

// box is who answers at a place: a cluster, or something that is none.
type box struct {
	id  peer.ClusterID
	key peer.Fingerprint
	not client.Reason // why it is no cluster
}

func boxOf(id string) box { return box{id: peer.ClusterID(id), key: keyOf(id)} }

// question is one Lookup.
type question struct {
	at     time.Time
	place  string
	target peer.Target
}

// world is what probes see.
type world struct {
	mu        sync.Mutex
	boxes     map[string][]box // by URL, the quickest first
	slow      map[string]time.Duration
	deaf      bool // who gives up on an answer is not heard
	questions []question
	signed    map[peer.Fingerprint]peer.Fingerprint // keys by those that they replaced
	now       map[string]int                        // lookups under way, by the place's first letter
	most      map[string]int
}

func (w *world) put(place string, boxes ...box) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.boxes[place] = boxes
}

// called returns the lookups at a place since the last called.
func (w *world) called(place string) []question {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []question
	w.questions = slices.DeleteFunc(w.questions, func(q question) bool {
		if q.place == place {
			out = append(out, q)
		}
		return q.place == place
	})
	return out
}

// under returns how many lookups are under way at places that begin with a
// letter, and how many there were at most; "" is all places.
func (w *world) under(letter string) (now, most int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now[letter], w.most[letter]
}

// canceled is when a lookup is given up.
func (w *world) canceled(ctx context.Context) <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.deaf {
		return nil
	}
	return ctx.Done()
}

// slows makes a place slow.
func (w *world) slows(place string, by time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.slow[place] = by
}

func (w *world) sign(from, to string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.signed[keyOf(from)] = keyOf(to)
}

func (w *world) count(letter string, n int) {
	w.now[letter] += n
	w.now[""] += n
	w.most[letter] = max(w.most[letter], w.now[letter])
	w.most[""] = max(w.most[""], w.now[""])
}

// placesOf are where a target is, in the order in which they are tried.
func placesOf(t peer.Target) []string {
	var out []string
	for _, p := range t.Places {
		out = append(out, p.URL)
	}
	for _, a := range t.Addrs {
		out = append(out, "https://"+a.String())
	}
	if t.URL != "" {
		out = append(out, t.URL)
	}
	return out
}

// answer is what a box answers at a place, as client.Client reports it.
func (w *world) answer(b box, place string, t peer.Target) (client.Result, *client.Error) {
	failed := &client.Error{Reason: b.not, Got: b.key, Err: fmt.Errorf("%s %s", b.not, b.id)}
	switch {
	case b.not != "":
	case b.key == selfKey:
		failed.Reason = client.ReasonSelf
	case !t.Fingerprint.IsZero() && t.Fingerprint != b.key && w.signed[t.Fingerprint] != b.key:
		failed.Reason = client.ReasonWrongKey
	case t.ID != "" && t.ID != b.id:
		failed.Reason = client.ReasonWrongID
	default:
		return client.Result{Identity: peer.Identity{ClusterID: b.id, ClusterName: "name of " + string(b.id), GuestNamespace: "liqo"},
			Fingerprint: b.key, URL: place}, nil
	}
	return client.Result{}, failed
}

// check is Config.Identify.
func (w *world) check(ctx context.Context, t peer.Target) (client.Result, error) {
	wait := timeout
	w.mu.Lock()
	for _, place := range placesOf(t) {
		if len(w.boxes[place]) > 0 {
			wait = time.Millisecond
		}
	}
	w.mu.Unlock()
	select {
	case <-time.After(wait):
	case <-ctx.Done():
		return client.Result{}, fmt.Errorf("identify peer: %w", ctx.Err())
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, place := range placesOf(t) {
		for _, b := range w.boxes[place] {
			if res, failed := w.answer(b, place, t); failed == nil {
				return res, nil
			}
		}
	}
	return client.Result{}, errors.New("it does not answer")
}

// lookup is Config.Lookup.
func (w *world) lookup(ctx context.Context, t peer.Target) (client.Result, error) {
	place := placesOf(t)[0]
	letter := string(place[len("https://")])
	w.mu.Lock()
	w.questions = append(w.questions, question{time.Now(), place, t})
	w.count(letter, 1)
	wait := w.slow[place]
	switch {
	case t.Fingerprint == selfKey:
		wait = 0
	case len(w.boxes[place]) == 0:
		wait = timeout
	case wait == 0:
		wait = time.Millisecond
	}
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.count(letter, -1)
	}()
	select {
	case <-time.After(wait):
	case <-w.canceled(ctx):
		return client.Result{}, fmt.Errorf("identify peer: %w", ctx.Err())
	}
	if t.Fingerprint == selfKey {
		return client.Result{}, &client.Error{Reason: client.ReasonSelf, Err: errors.New("the key looked for is this cluster's own")}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	failure := &client.Error{Reason: client.ReasonUnreachable, Err: errors.New("no answer in time")}
	rank := []client.Reason{client.ReasonUnreachable, client.ReasonSelf, client.ReasonNotTLS, client.ReasonBadAnswer, client.ReasonWrongKey, client.ReasonWrongID}
	for _, b := range w.boxes[place] {
		res, failed := w.answer(b, place, t)
		if failed == nil {
			return res, nil
		}
		if slices.Index(rank, failed.Reason) > slices.Index(rank, failure.Reason) {
			failed, failure = failure, failed
		}
		failure.Others = append(failure.Others, failed)
	}
	if len(w.boxes[place]) > 0 && failure.Reason != client.ReasonUnreachable {
		failure.Others = slices.DeleteFunc(failure.Others, func(e *client.Error) bool { return e.Err.Error() == "no answer in time" })
	}
	return client.Result{}, failure
}

// bed is a registry in a world.
type bed struct {
	*Registry
	t     testing.TB
	world *world
	stop  func()
	// running ends when Run is to end.
	running context.Context

	mu      sync.Mutex
	changed map[peer.Key]int
	proved  map[peer.ClusterID]peer.Fingerprint
	block   chan struct{} // whoever is told of a change waits for it to be closed
	logged  bytes.Buffer
}

// newBed returns a registry that does not run yet.
func newBed(t testing.TB, change func(*Config)) *bed {
	b := &bed{
		t: t,
		world: &world{boxes: make(map[string][]box), slow: make(map[string]time.Duration), now: make(map[string]int), most: make(map[string]int),
			signed: make(map[peer.Fingerprint]peer.Fingerprint)},
		changed: make(map[peer.Key]int), proved: make(map[peer.ClusterID]peer.Fingerprint),
	}
	cfg := Config{
		Self: self, SelfKey: selfKey, Identify: b.world.check, Lookup: b.world.lookup, Reconfirm: func(string, string) {},
		Changed: func(peer.ClusterID) {
			b.mu.Lock()
			block := b.block
			b.mu.Unlock()
			if block != nil {
				<-block
			}
		},
		CandidateChanged: func(k peer.Key) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.changed[k]++
		},
		Proved: func(id peer.ClusterID, res client.Result) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.proved[id] = res.Fingerprint
		},
		Succeeds: func(res client.Result, old peer.Fingerprint) bool {
			b.world.mu.Lock()
			defer b.world.mu.Unlock()
			return b.world.signed[old] == res.Fingerprint
		},
		Store: discard{}, Limit: 10_000, Checkers: 8, Lookups: 16, Interval: interval,
		Logger: slog.New(slog.NewTextHandler(&syncWriter{b: b}, &slog.HandlerOptions{Level: slog.LevelInfo})),
	}
	if change != nil {
		change(&cfg)
	}
	b.Registry = New(cfg)
	return b
}

// syncWriter writes to the bed's log.
type syncWriter struct{ b *bed }

func (w *syncWriter) Write(p []byte) (int, error) {
	w.b.mu.Lock()
	defer w.b.mu.Unlock()
	return w.b.logged.Write(p)
}

// log returns the lines about places and candidates since it was last called.
func (b *bed) log() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out strings.Builder
	for line := range strings.Lines(b.logged.String()) {
		if strings.Contains(line, "place") || strings.Contains(line, "candidate") {
			out.WriteString(line)
		}
	}
	b.logged.Reset()
	return out.String()
}

// changes returns how often a candidate's change was told since it was last called.
func (b *bed) changes(k peer.Key) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := b.changed[k]
	delete(b.changed, k)
	return n
}

// told returns how often the registry was told that somebody is seen, or left it out.
func (b *bed) told() uint64 { return b.Stats().Sightings }

// run runs b until the test ends or b.stop is called.
func (b *bed) run() {
	ctx, cancel := context.WithCancel(context.Background())
	b.running = ctx
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := b.Run(ctx); err != nil {
			b.t.Errorf("Run: %v", err)
		}
	}()
	b.stop = func() {
		cancel()
		<-done
	}
}

// in runs a test in a bubble, with a registry that runs.
func in(t *testing.T, test func(t *testing.T, b *bed)) { t.Helper(); within(t, nil, test) }

func within(t *testing.T, change func(*Config), test func(t *testing.T, b *bed)) {
	t.Helper()
	bubble.Test(t, func(t *testing.T) {
		b := newBed(t, change)
		b.run()
		defer func() { b.stop() }()
		test(t, b)
	})
}

// wait lets time go by, and what is to happen meanwhile happen.
func wait(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// soon lets happen what happens at once.
func soon() { wait(100 * time.Millisecond) }

// until waits until a peer has another phase.
func (b *bed) until(id peer.ClusterID, changes peer.Phase) {
	b.t.Helper()
	for range 10_000 {
		if p, _ := b.Peer(id); p.Phase != changes {
			return
		}
		wait(10 * time.Millisecond)
	}
	b.t.Fatalf("%s is still %s", id, changes)
}

// announces has a neighbour on the link, which answers at an address of its own.
func (b *bed) announces(id string) peer.Sighting {
	b.t.Helper()
	addr := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, id[0], id[len(id)-1]}), 6447)
	s := peer.Sighting{Source: peer.LAN, Link: "eth0", Instance: id, ClusterID: peer.ClusterID(id), Fingerprint: keyOf(id), Addrs: []netip.AddrPort{addr}}
	b.world.put("https://"+addr.String(), boxOf(id))
	if err := b.See(context.Background(), s); err != nil {
		b.t.Fatal(err)
	}
	soon()
	return s
}

// leaves has a neighbour say goodbye.
func (b *bed) leaves(id string) {
	b.t.Helper()
	key := peer.Key{Source: peer.LAN, Link: "eth0", Instance: id}
	if err := b.Unsee(context.Background(), key, Absence{Reason: "it said goodbye", Evidence: Withdrawn}); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bed) state(k peer.Key) CandidateStatus {
	b.t.Helper()
	s, ok := b.Candidate(k)
	if !ok {
		b.t.Fatalf("there is no candidate %v", k)
	}
	return s
}

func (b *bed) reason(k peer.Key, want Reason) CandidateStatus {
	b.t.Helper()
	s := b.state(k)
	if s.Reason != want {
		b.t.Errorf("%v: reason %q (%s), want %q", k, s.Reason, s.Message, want)
	}
	if (s.Reason == "") != (s.Message == "") {
		b.t.Errorf("%v: reason %q, message %q", k, s.Reason, s.Message)
	}
	failed := s.Reason == Unreachable || s.Reason == OtherKey
	if s.Candidate.given() && failed && s.Cause == "" || s.Cause != "" && strings.Contains(s.Cause, s.Candidate.URL) {
		b.t.Errorf("%v: reason %q, cause %q", k, s.Reason, s.Cause)
	}
	return s
}

// inspect calls look, which may read the machine, while Run waits, and before it goes on.
func (b *bed) inspect(look func()) {
	synctest.Wait()
	look()
	_ = b.do(b.running, func() {}, peer.Sighting{}) // nobody is there to go on
}

// sighting returns the sighting that a candidate is now.
func (b *bed) sighting(k peer.Key) (now peer.Sighting) {
	b.inspect(func() {
		if s := b.machine.seen[k]; s != nil {
			now = *s.Sighting
		}
	})
	return now
}

// sees fails the test unless a candidate is a sighting of want, "" for nobody.
func (b *bed) sees(k peer.Key, want peer.ClusterID) {
	b.t.Helper()
	if got := b.sighting(k).ClusterID; got != want {
		b.t.Errorf("%q is seen by %v, want %q", got, k, want)
	}
}

// absence returns why no source sees a cluster with its key.
func (b *bed) absence(id string) Absence {
	b.t.Helper()
	var why *Absence
	b.inspect(func() {
		if e := b.machine.clusters[peer.ClusterID(id)]; e != nil {
			if c := e.claimOf(keyOf(id)); c != nil && len(c.sightings) == 0 {
				now := c.absence
				why = &now
			}
		}
	})
	if why == nil {
		b.t.Errorf("%s is seen, or nothing is known about it", id)
		return Absence{}
	}
	return *why
}

// near fails the test unless d is want, give or take the tenth by which times are
// varied, and what the test took to look.
func (b *bed) near(what string, d, want time.Duration) {
	b.t.Helper()
	if d < want*85/100 || d > want*115/100 {
		b.t.Errorf("%s: %v, want %v", what, d, want)
	}
}

// manual and wan are candidates of a person and of a domain.
func manual(url string) Candidate {
	return Candidate{Source: peer.Manual, Instance: "of " + url, URL: url}
}

func wan(domain, url string) Candidate {
	return Candidate{Source: peer.WAN, Domain: domain, Instance: "of " + url, URL: url,
		Addrs: []netip.AddrPort{netip.MustParseAddrPort("192.0.2.1:6447")}, Version: "1", TTL: time.Minute}
}

func (c Candidate) expecting(id string) Candidate {
	c.ClusterID = peer.ClusterID(id)
	return c
}

func (c Candidate) holding(name string) Candidate {
	c.Fingerprint = keyOf(name)
	return c
}
