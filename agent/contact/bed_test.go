package contact

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"liqo.io/agent/agent/recorder"
	"liqo.io/agent/endpoint"
	"liqo.io/agent/peer"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const self = peer.ClusterID("self")

// timeout is how long the bed's Identify waits for those who do not answer.
const timeout = 5 * time.Second

var selfKey = keyOf("self")

func keyOf(name string) peer.Fingerprint { return peer.FingerprintOf([]byte(name)) }

// host is who answers at a place: a cluster, or something that is none.
type host struct {
	id  peer.ClusterID
	key peer.Fingerprint
	not endpoint.Reason // why it is no cluster
}

func cluster(id string) host { return host{id: peer.ClusterID(id), key: keyOf(id)} }

// call is one Identify.
type call struct {
	at     time.Time
	place  string
	target endpoint.Target
}

// world is what Identify sees.
type world struct {
	mu    sync.Mutex
	hosts map[string][]host // by URL or address, the quickest first
	slow  map[string]time.Duration
	deaf  bool // who gives up on an answer is not heard
	calls []call
	now   map[string]int // under way, by the place's first letter
	most  map[string]int
}

func (w *world) put(place string, hosts ...host) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hosts[place] = hosts
}

// called returns the calls about a place since the last called.
func (w *world) called(place string) []call {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []call
	w.calls = slices.DeleteFunc(w.calls, func(c call) bool {
		if c.place == place {
			out = append(out, c)
		}
		return c.place == place
	})
	return out
}

// under returns how many attempts are under way at places that begin with a
// letter, and how many there were at most; "" is all places.
func (w *world) under(letter string) (now, most int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now[letter], w.most[letter]
}

// canceled is when an attempt is given up.
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

func placeOf(t endpoint.Target) string {
	switch {
	case len(t.Places) > 0:
		return t.Places[0].URL
	case t.URL != "":
		return t.URL
	case len(t.Addrs) > 0:
		return t.Addrs[0].String()
	}
	return ""
}

func (w *world) count(letter string, n int) {
	w.now[letter] += n
	w.now[""] += n
	w.most[letter] = max(w.most[letter], w.now[letter])
	w.most[""] = max(w.most[""], w.now[""])
}

// identify answers as endpoint.Client does.
func (w *world) identify(ctx context.Context, t endpoint.Target) (endpoint.Result, error) {
	place := placeOf(t)
	letter := string(place[len("https://")])
	w.mu.Lock()
	w.calls = append(w.calls, call{time.Now(), place, t})
	w.count(letter, 1)
	wait := w.slow[place]
	switch {
	case t.Fingerprint == selfKey:
		wait = 0
	case len(w.hosts[place]) == 0:
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
		return endpoint.Result{}, fmt.Errorf("identify peer: %w", ctx.Err())
	}
	if t.Fingerprint == selfKey {
		return endpoint.Result{}, &endpoint.Error{Reason: endpoint.ReasonSelf, Err: errors.New("the key looked for is this cluster's own")}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	failure := &endpoint.Error{Reason: endpoint.ReasonUnreachable, Err: errors.New("no answer in time")}
	rank := []endpoint.Reason{endpoint.ReasonUnreachable, endpoint.ReasonSelf, endpoint.ReasonNotTLS, endpoint.ReasonBadAnswer, endpoint.ReasonWrongKey, endpoint.ReasonWrongID}
	for _, h := range w.hosts[place] {
		failed := &endpoint.Error{Reason: h.not, Got: h.key, Err: fmt.Errorf("%s %s", h.not, h.id)}
		switch {
		case h.not != "":
		case h.key == selfKey:
			failed.Reason = endpoint.ReasonSelf
		case !t.Fingerprint.IsZero() && t.Fingerprint != h.key:
			failed.Reason = endpoint.ReasonWrongKey
		case t.ID != "" && t.ID != h.id:
			failed.Reason = endpoint.ReasonWrongID
		default:
			return endpoint.Result{Identity: peer.Identity{ClusterID: h.id, ClusterName: "name of " + string(h.id), GuestNamespace: "liqo"},
				Fingerprint: h.key, URL: place}, nil
		}
		if slices.Index(rank, failed.Reason) > slices.Index(rank, failure.Reason) {
			failed, failure = failure, failed
		}
		failure.Others = append(failure.Others, failed)
	}
	if len(w.hosts[place]) > 0 && failure.Reason != endpoint.ReasonUnreachable {
		failure.Others = slices.DeleteFunc(failure.Others, func(e *endpoint.Error) bool { return e.Err.Error() == "no answer in time" })
	}
	return endpoint.Result{}, failure
}

// records is the recorder: what it was told, and what it makes of it.
type records struct {
	mu        sync.Mutex
	touched   func(peer.ClusterID)
	fail      error
	absent    map[peer.Key]int
	full      bool          // it has no room
	block     chan struct{} // calls wait for it to be closed
	seen      map[peer.Key]peer.Sighting
	sees      int
	unseen    map[peer.Key]recorder.Absence // the last of each
	known     map[peer.ClusterID]peer.Fingerprint
	dead      map[peer.ClusterID]bool
	elsewhere map[peer.ClusterID]bool // seen by other sources
}

func (r *records) See(ctx context.Context, s peer.Sighting) error {
	return r.do(func() {
		r.sees++
		if r.full {
			return
		}
		r.seen[s.Key()] = s
		if r.known[s.ClusterID].IsZero() {
			r.known[s.ClusterID] = s.Fingerprint
		}
	}, s.ClusterID)
}

func (r *records) Unsee(ctx context.Context, k peer.Key, why recorder.Absence) error {
	r.mu.Lock()
	id := r.seen[k].ClusterID
	r.mu.Unlock()
	return r.do(func() {
		delete(r.seen, k)
		r.unseen[k] = why
		r.absent[k]++
	}, id)
}

func (r *records) do(f func(), about peer.ClusterID) error {
	r.mu.Lock()
	block, fail := r.block, r.fail
	if fail == nil {
		f()
	}
	r.mu.Unlock()
	if block != nil {
		<-block
	}
	if fail == nil {
		r.touched(about)
	}
	return fail
}

// told returns how often the recorder was told that somebody is seen.
func (r *records) told() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.sees
}

// sighting returns what the recorder was told about a lead last.
func (r *records) sighting(k peer.Key) peer.Sighting {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.seen[k]
}

// absence returns why it is no longer to see anybody by a lead.
func (r *records) absence(k peer.Key) (recorder.Absence, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	why, ok := r.unseen[k]
	return why, ok
}

// absences returns how often it was told that nobody is seen by a lead.
func (r *records) absences(k peer.Key) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.absent[k]
}

// change changes what the recorder knows, and says so about the clusters.
func (r *records) change(f func(), ids ...peer.ClusterID) {
	r.mu.Lock()
	f()
	r.mu.Unlock()
	for _, id := range ids {
		r.touched(id)
	}
}

func (r *records) peer(id peer.ClusterID) (peer.Peer, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := peer.Peer{ID: id, Name: "name of " + string(id), Namespace: "liqo", Fingerprint: r.known[id], Phase: peer.PhasePresent}
	for k, s := range r.seen {
		if s.ClusterID == id && s.Fingerprint == p.Fingerprint {
			p.Sources, p.Domains = append(p.Sources, k.Source), append(p.Domains, k.Domain)
		}
	}
	if r.elsewhere[id] {
		p.Sources = append(p.Sources, peer.LAN)
	}
	switch {
	case p.Fingerprint.IsZero():
		return peer.Peer{}, false
	case len(p.Sources) == 0:
		p.Phase = peer.PhaseLost
	case r.dead[id]:
		p.Phase, p.Reason, p.Failures = peer.PhaseUnreachable, "it does not answer", 1
	}
	return p, true
}

type bed struct {
	*Contacts
	t       testing.TB
	world   *world
	records *records
	stop    func()

	mu      sync.Mutex
	changed map[peer.Key]int
	proved  []peer.ClusterID
	logged  bytes.Buffer
}

// newBed returns Contacts that do not run yet.
func newBed(t testing.TB, change func(*Config)) *bed {
	b := &bed{
		t:       t,
		world:   &world{hosts: make(map[string][]host), slow: make(map[string]time.Duration), now: make(map[string]int), most: make(map[string]int)},
		changed: make(map[peer.Key]int),
		records: &records{
			absent: make(map[peer.Key]int),
			seen:   make(map[peer.Key]peer.Sighting), unseen: make(map[peer.Key]recorder.Absence), known: make(map[peer.ClusterID]peer.Fingerprint),
			dead: make(map[peer.ClusterID]bool), elsewhere: make(map[peer.ClusterID]bool),
		},
	}
	cfg := Config{
		Self: self, SelfKey: selfKey, Identify: b.world.identify, Recorder: b.records, Known: b.records.peer,
		Proved: func(id peer.ClusterID, _ endpoint.Result) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.proved = append(b.proved, id)
		},
		Changed: func(k peer.Key) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.changed[k]++
		},
		Logger: slog.New(slog.NewTextHandler(&syncWriter{b: b}, &slog.HandlerOptions{Level: slog.LevelInfo})),
	}
	if change != nil {
		change(&cfg)
	}
	b.Contacts = New(cfg)
	b.records.touched = b.Touch
	return b
}

// syncWriter writes to the bed's log.
type syncWriter struct{ b *bed }

func (w *syncWriter) Write(p []byte) (int, error) {
	w.b.mu.Lock()
	defer w.b.mu.Unlock()
	return w.b.logged.Write(p)
}

func (b *bed) log() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := b.logged.String()
	b.logged.Reset()
	return out
}

// changes returns how often a lead's change was told since it was last called.
func (b *bed) changes(k peer.Key) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := b.changed[k]
	delete(b.changed, k)
	return n
}

// run runs b until the test ends or b.stop is called.
func (b *bed) run() {
	ctx, cancel := context.WithCancel(context.Background())
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

// in runs a test in a bubble, with Contacts that run.
func in(t *testing.T, test func(t *testing.T, b *bed)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, nil)
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

func (b *bed) state(k peer.Key) State {
	b.t.Helper()
	s, ok := b.State(k)
	if !ok {
		b.t.Fatalf("there is no lead %v", k)
	}
	return s
}

func (b *bed) reason(k peer.Key, want Reason) State {
	b.t.Helper()
	s := b.state(k)
	if s.Reason != want {
		b.t.Errorf("%v: reason %q (%s), want %q", k, s.Reason, s.Message, want)
	}
	if (s.Reason == "") != (s.Message == "") {
		b.t.Errorf("%v: reason %q, message %q", k, s.Reason, s.Message)
	}
	return s
}

// sighted returns whom the recorder was told to be at a lead, "" for nobody.
func (b *bed) sighted(k peer.Key) peer.ClusterID {
	b.records.mu.Lock()
	defer b.records.mu.Unlock()
	return b.records.seen[k].ClusterID
}

func (b *bed) sees(k peer.Key, want peer.ClusterID) {
	b.t.Helper()
	if got := b.sighted(k); got != want {
		b.t.Errorf("the recorder sees %q by %v, want %q", got, k, want)
	}
}

// near fails the test unless d is want, give or take the tenth by which times are
// varied, and what the test took to look.
func (b *bed) near(what string, d, want time.Duration) {
	b.t.Helper()
	if d < want*85/100 || d > want*115/100 {
		b.t.Errorf("%s: %v, want %v", what, d, want)
	}
}

// manual and wan are leads of a person and of a domain.
func manual(url string) Lead {
	return Lead{Key: peer.Key{Source: peer.Manual, Instance: "of " + url}, URL: url}
}

func wan(domain, url string) Lead {
	return Lead{Key: peer.Key{Source: peer.WAN, Domain: domain, Instance: "of " + url}, URL: url,
		Addrs: []netip.AddrPort{netip.MustParseAddrPort("192.0.2.1:6447")}, Version: "1", TTL: time.Minute}
}

func (l Lead) expecting(id string) Lead {
	l.ID = peer.ClusterID(id)
	return l
}

func (l Lead) holding(name string) Lead {
	l.Fingerprint = keyOf(name)
	return l
}
