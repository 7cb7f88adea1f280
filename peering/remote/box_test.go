package remote

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"liqo.io/agent/api"
	"liqo.io/agent/endpoint/client"
	"liqo.io/agent/endpoint/wire"
	"liqo.io/agent/internal/bubble"
	"liqo.io/agent/internal/leak"
	"liqo.io/agent/peer"
	"liqo.io/agent/trust"
)

func TestMain(m *testing.M) { leak.Main(m) }

const (
	us   = peer.ClusterID("consumer")
	them = peer.ClusterID("provider")
)

// box is a peer as its endpoint shows it, in memory. It complains about calls
// that nobody should make who has read its last State.
type box struct {
	t  testing.TB
	id peer.ClusterID

	mu       sync.Mutex
	delay    time.Duration // of every answer
	dead     bool          // does not answer
	deaf     bool          // answers when the caller has given up
	key      peer.Fingerprint
	rotated  peer.Fingerprint // the key that succeeded key
	speaks   peer.Protocol    // zero: it does not say
	trusts   bool
	answer   wire.Answer // to asks
	lets     bool        // an ask makes it trust
	apiDown  bool
	rbac     bool          // we may write
	too      time.Duration // 429 with that Retry-After
	failed   bool          // 503
	blocked  bool          // it wants nothing from us
	stubborn func(spec []byte) []byte
	state    wire.State
	told     *wire.State // what it said last; nil when that was nothing of use
	lags     bool        // its agent hears of a write only after the next question
	before   *wire.State // what it says to the next question instead of state
	uid      int
	freshly  bool // an ended request may be made again
	calls    map[string]int
	asks     []wire.Ask
	withdrew []wire.Withdrawal
	at       map[string][]time.Time
	busy     int
	busiest  int
}

func newBox(t testing.TB) *box {
	return &box{
		t: t, id: them, key: peer.Fingerprint{1}, delay: 2 * time.Millisecond, trusts: true, rbac: true,
		answer: wire.Answer{Auth: api.AuthAccepted, Reason: wire.ReasonTrusted},
		state: wire.State{
			Identity: peer.Identity{ClusterID: them, ClusterName: "them", GuestNamespace: "liqo"}, Kubernetes: true,
		},
		calls: make(map[string]int), at: make(map[string][]time.Time),
	}
}

// change does something to the box.
func (b *box) change(f func(*box)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f(b)
}

func (b *box) target() peer.Target {
	return peer.Target{ID: b.id, Fingerprint: b.key, URL: "https://" + string(b.id) + ":6447"}
}

// Exchange is Caller.
func (b *box) Exchange(ctx context.Context, t peer.Target, r client.Request) (client.Response, error) {
	b.mu.Lock()
	name := r.Method + " " + r.Path
	b.calls[name]++
	b.at[name] = append(b.at[name], time.Now())
	b.check(t, r)
	b.busy++
	b.busiest = max(b.busiest, b.busy)
	delay, deaf := b.delay, b.deaf
	b.mu.Unlock()
	defer func() {
		b.mu.Lock()
		b.busy--
		b.mu.Unlock()
	}()
	if deaf {
		delay = time.Hour
	}
	select {
	case <-ctx.Done():
		return client.Response{}, fmt.Errorf("call peer: %w", ctx.Err())
	case <-time.After(delay):
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.dead {
		return client.Response{}, &client.Error{Reason: client.ReasonUnreachable, Err: errors.New("nobody answers")}
	}
	status, body := b.serve(r)
	encoded, err := json.Marshal(body)
	if err != nil {
		b.t.Error(err)
	}
	resp := client.Response{Status: status, Body: encoded, Result: client.Result{Fingerprint: b.key, URL: t.URL, Protocol: b.speaks}}
	if !b.rotated.IsZero() {
		resp.Result.Fingerprint = b.rotated
	}
	resp.Result.Shown = trust.Shown{Fingerprint: resp.Result.Fingerprint, CA: &x509.Certificate{Raw: resp.Result.Fingerprint[:4]}}
	if status == 429 {
		resp.RetryAfter = b.too
	}
	return resp, nil
}

// check complains about what must not be sent.
func (b *box) check(t peer.Target, r client.Request) {
	if t.Fingerprint != b.key {
		b.t.Errorf("%s %s is for key %s", r.Method, r.Path, t.Fingerprint)
	}
	if !strings.HasPrefix(r.Path, wire.PathGateway) {
		return
	}
	told := b.told
	if told == nil || !told.Kubernetes {
		b.t.Errorf("%s %s: nothing is known about what is there", r.Method, r.Path)
		return
	}
	isRequest := r.Path == "/kube/apis/discovery.liqo.io/v1alpha1/peeringrequests/"+string(us)
	isOffer := r.Path == "/kube/apis/sharing.liqo.io/v1alpha1/advertisements/"+string(us)
	switch {
	case !isRequest && !isOffer:
		b.t.Errorf("%s %s is none of our objects", r.Method, r.Path)
	case r.Method == "DELETE":
		if isRequest && told.Request == nil || isOffer && told.Advertisement == nil {
			b.t.Errorf("%s %s: it is gone already", r.Method, r.Path)
		}
	case isRequest:
		if spec := specOf[api.PeeringRequestSpec](b.t, r); told.Request != nil && told.Request.Spec == spec {
			b.t.Errorf("%s %s changes nothing", r.Method, r.Path)
		}
		if told.Request == nil && told.Ended != "" && !b.freshly {
			b.t.Errorf("%s %s: it was ended", r.Method, r.Path)
		}
	default:
		if spec := specOf[api.AdvertisementSpec](b.t, r); told.Advertisement != nil && sameOffer(told.Advertisement.Spec, spec) {
			b.t.Errorf("%s %s changes nothing", r.Method, r.Path)
		}
		if !told.AdvertisementWelcome {
			b.t.Errorf("%s %s is not welcome", r.Method, r.Path)
		}
	}
}

// specOf reads the body of an apply.
func specOf[T any](t testing.TB, r client.Request) (spec T) {
	body := struct {
		APIVersion, Kind string
		Metadata         map[string]string
		Spec             *T
	}{Spec: &spec}
	if err := json.Unmarshal(r.Body, &body); err != nil || body.APIVersion == "" || body.Kind == "" ||
		!maps.Equal(body.Metadata, map[string]string{"name": string(us)}) || r.ContentType != "application/apply-patch+yaml" {
		t.Errorf("%s: %v", r.Body, err)
	}
	return spec
}

// serve answers, as an agent does.
func (b *box) serve(r client.Request) (int, any) {
	refuse := func(status int, reason string) (int, any) {
		return status, wire.Refusal{Error: "no: " + reason, Reason: reason}
	}
	if b.too > 0 {
		return refuse(429, wire.ReasonBusy)
	}
	if b.failed {
		return refuse(503, wire.ReasonFailed)
	}
	if b.blocked {
		b.told = nil
		return refuse(403, wire.ReasonBlocked)
	}
	switch {
	case r.Path == wire.PathAsk:
		var ask wire.Ask
		_ = json.Unmarshal(r.Body, &ask)
		b.asks = append(b.asks, ask)
		if b.lets && b.answer.Auth == api.AuthAccepted {
			b.trusts = true
		}
		return 200, b.answer
	case !b.trusts:
		b.told = nil
		return refuse(403, wire.ReasonNotTrusted)
	case r.Path == wire.PathState:
		said := b.state
		if b.before != nil {
			said, b.before = *b.before, nil
		}
		if b.apiDown {
			said = wire.State{Identity: b.state.Identity}
		}
		encoded, _ := json.Marshal(said)
		b.told = new(wire.State)
		_ = json.Unmarshal(encoded, b.told)
		return 200, said
	case r.Path == wire.PathWithdraw:
		var w wire.Withdrawal
		_ = json.Unmarshal(r.Body, &w)
		b.withdrew = append(b.withdrew, w)
		return 200, struct{}{}
	case r.Path == wire.PathNotice:
		return 200, struct{}{}
	case b.apiDown:
		return refuse(503, wire.ReasonNoAPIServer)
	case !b.rbac:
		return 403, map[string]any{"kind": "Status", "message": "forbidden", "reason": "Forbidden"}
	}
	isRequest := strings.Contains(r.Path, "peeringrequests")
	if b.stubborn != nil && r.Method == "PATCH" {
		r.Body = b.stubborn(r.Body)
	}
	b.uid++
	if b.lags {
		b.before = copyState(b.t, b.state)
	}
	written := map[string]any{}
	switch {
	case r.Method == "DELETE" && isRequest:
		b.state.Request = nil
	case r.Method == "DELETE":
		b.state.Advertisement = nil
	case isRequest:
		created := b.state.Request == nil
		if created {
			b.state.Request = &wire.RequestState{UID: fmt.Sprint(b.uid), Phase: api.RequestPending}
			b.state.Ended, b.freshly = "", false
		}
		b.state.Request.Spec = specOf[api.PeeringRequestSpec](b.t, r)
		b.state.Request.Generation++
		written["uid"], written["generation"] = b.state.Request.UID, b.state.Request.Generation
	default:
		if b.state.Advertisement == nil {
			b.state.Advertisement = &wire.OfferState{UID: fmt.Sprint(b.uid)}
		}
		b.state.Advertisement.Spec = specOf[api.AdvertisementSpec](b.t, r)
		b.state.Advertisement.Generation++
		written["uid"], written["generation"] = b.state.Advertisement.UID, b.state.Advertisement.Generation
	}
	return 200, map[string]any{"kind": "whatever", "metadata": written}
}

// copyState returns a state that shares nothing with s.
func copyState(t testing.TB, s wire.State) *wire.State {
	encoded, err := json.Marshal(s)
	if err != nil {
		t.Error(err)
	}
	out := new(wire.State)
	if err := json.Unmarshal(encoded, out); err != nil {
		t.Error(err)
	}
	return out
}

// count returns how many calls were made whose method and path contain that.
func (b *box) count(part string) (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for name, times := range b.calls {
		if strings.Contains(name, part) {
			n += times
		}
	}
	return n
}

// gaps returns the times between calls of that path.
func (b *box) gaps(name string) (gaps []time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, at := range b.at[name] {
		if i > 0 {
			gaps = append(gaps, at.Sub(b.at[name][i-1]))
		}
	}
	return gaps
}

// there returns what is there now.
func (b *box) there() wire.State { return read(b, func() wire.State { return b.state }) }

func (b *box) asked() []wire.Ask {
	return read(b, func() []wire.Ask { return slices.Clone(b.asks) })
}

func (b *box) withdrawn() []wire.Withdrawal {
	return read(b, func() []wire.Withdrawal { return slices.Clone(b.withdrew) })
}

func (b *box) all() map[string]int {
	return read(b, func() map[string]int { return maps.Clone(b.calls) })
}

func (b *box) times(call string) int { return b.all()[call] }

func (b *box) underWay() int { return read(b, func() int { return b.busy }) }

func (b *box) most() int { return read(b, func() int { return b.busiest }) }

func read[T any](b *box, get func() T) T {
	b.mu.Lock()
	defer b.mu.Unlock()
	return get()
}

// bed is a Syncer that runs, and the boxes it talks to.
type bed struct {
	*Syncer
	*box
	stop func()

	hearing sync.Mutex
	ears    ears
	log     bytes.Buffer
}

// ears are what the Syncer's user is told.
type ears struct {
	changed, tokens int
	reached         []client.Result
}

func (b *bed) note(f func(*ears)) {
	b.hearing.Lock()
	defer b.hearing.Unlock()
	f(&b.ears)
}

func (b *bed) heard() (e ears) {
	b.note(func(now *ears) { e = *now })
	return e
}

// Write takes the log.
func (b *bed) Write(line []byte) (int, error) {
	b.hearing.Lock()
	defer b.hearing.Unlock()
	return b.log.Write(line)
}

func (b *bed) logged() string {
	b.hearing.Lock()
	defer b.hearing.Unlock()
	return b.log.String()
}

// left returns how many peers the Syncer knows.
func (b *bed) left() int {
	b.Syncer.mu.Lock()
	defer b.Syncer.mu.Unlock()
	return len(b.peers)
}

// queued returns how many jobs with the peer are due, now or later.
func (b *bed) queued() (n int) {
	for _, notice := range []bool{false, true} {
		if _, waits := b.queue.Due(job{them, notice}); waits {
			n++
		}
	}
	return n
}

// wishes reports whether there is a wish to begin anew that has not been served
// yet.
func (b *bed) wishes() bool {
	b.Syncer.mu.Lock()
	defer b.Syncer.mu.Unlock()
	e := b.peers[them]
	return e != nil && e.want.Fresh && e.memo.fresh != e.terms.fresh
}

// lay runs test with a Syncer in a bubble of its own time. Counters of the bed are
// only looked at while nothing goes on.
func lay(t *testing.T, test func(b *bed)) {
	bubble.Test(t, func(t *testing.T) {
		b := newBed(t)
		defer func() { b.stop() }()
		test(b)
	})
}

func newBed(t testing.TB) *bed {
	b := &bed{box: newBox(t)}
	b.Syncer = New(Config{
		Peers: b.box, Greeting: greeting,
		Changed:   func(peer.ClusterID) { b.note(func(e *ears) { e.changed++ }) },
		Reached:   func(_ peer.ClusterID, r client.Result) { b.note(func(e *ears) { e.reached = append(e.reached, r) }) },
		TokenUsed: func(peer.ClusterID) { b.note(func(e *ears) { e.tokens++ }) },
		Logger:    slog.New(slog.NewTextHandler(b, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- b.Run(ctx) }()
	b.stop = func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	}
	return b
}

func greeting() wire.Greeting {
	return wire.Greeting{Identity: peer.Identity{ClusterID: us, ClusterName: "us", GuestNamespace: "liqo"}, Port: 6447}
}

// after lets time pass, and everything that happens in it.
func after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func request() *api.PeeringRequestSpec {
	return &api.PeeringRequestSpec{ClusterIdentity: api.ClusterIdentity{ClusterID: string(us), ClusterName: "us"}, Namespace: "liqo"}
}

func offer(cpu string) *api.AdvertisementSpec {
	now := time.Date(2026, 1, 1, 0, 0, 0, 123456789, time.UTC)
	spec := &api.AdvertisementSpec{ClusterID: string(us), ResourceQuota: api.ResourceQuota{Hard: map[string]string{"cpu": cpu}}}
	spec.Timestamp.Time, spec.TimeToLive.Time = now, now.Add(6*time.Hour)
	return spec
}
