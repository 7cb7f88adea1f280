package registry

import (
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

	"github.com/google/go-cmp/cmp"

	"liqo.io/agent/endpoint/client"
	"liqo.io/agent/internal/bubble"
	"liqo.io/agent/peer"
	"liqo.io/agent/state"
)

const interval = 30 * time.Second

var (
	selfKey = peer.FingerprintOf([]byte("self"))
	keyA    = peer.FingerprintOf([]byte("a"))
	keyB    = peer.FingerprintOf([]byte("b"))
	addr1   = netip.MustParseAddrPort("192.0.2.1:6447")
	addr2   = netip.MustParseAddrPort("192.0.2.2:6447")
)

// network is what the checks of a test see: which key and cluster answer at
// which address.
type network struct {
	mu     sync.Mutex
	hosts  map[netip.AddrPort]host
	checks int
	delay  time.Duration
	// signed maps keys to those that replaced them, signed by the old one.
	signed map[peer.Fingerprint]peer.Fingerprint
	// silence is how long a check takes when nobody answers; 0 means delay.
	silence time.Duration
	now     int // checks under way
	most    int // and the most of them at once
}

type host struct {
	key      peer.Fingerprint
	identity peer.Identity
}

func (n *network) set(a netip.AddrPort, h *host) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if h == nil {
		delete(n.hosts, a)
		return
	}
	n.hosts[a] = *h
}

func (n *network) count() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.checks
}

func (n *network) identify(ctx context.Context, t peer.Target) (client.Result, error) {
	n.mu.Lock()
	n.checks++
	n.now++
	n.most = max(n.most, n.now)
	delay := n.delay
	addrs, urls := waysOf(t)
	if n.silence > 0 && !slices.ContainsFunc(addrs, func(a netip.AddrPort) bool { _, ok := n.hosts[a]; return ok }) {
		delay = n.silence
	}
	n.mu.Unlock()
	defer func() {
		n.mu.Lock()
		n.now--
		n.mu.Unlock()
	}()
	select {
	case <-time.After(delay):
	case <-ctx.Done():
		return client.Result{}, ctx.Err()
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for i, a := range addrs {
		if h, ok := n.hosts[a]; ok && (h.key == t.Fingerprint || h.key == n.signed[t.Fingerprint]) && h.identity.ClusterID == t.ID {
			return client.Result{Identity: h.identity, Fingerprint: h.key, Addr: a, URL: urls[i]}, nil
		}
	}
	return client.Result{}, errors.New("nobody answers")
}

// waysOf lists where a check looks, in its order, and what each way is called.
func waysOf(t peer.Target) (addrs []netip.AddrPort, urls []string) {
	for _, p := range t.Places {
		list := p.Addrs
		if len(list) == 0 {
			list = []netip.AddrPort{addrOf(p.URL)}
		}
		for _, a := range list {
			addrs, urls = append(addrs, a), append(urls, p.URL)
		}
	}
	for _, a := range t.Addrs {
		addrs, urls = append(addrs, a), append(urls, "https://"+a.String())
	}
	if a := addrOf(t.URL); a.IsValid() {
		addrs, urls = append(addrs, a), append(urls, t.URL)
	}
	return addrs, urls
}

// memory is a store that remembers what it was asked to keep.
type memory struct {
	mu      sync.Mutex
	fail    error
	applies int
	peers   map[peer.ClusterID]peer.Peer
	events  []peer.Event
}

func (m *memory) Apply(_ context.Context, c state.Change) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fail != nil {
		return m.fail
	}
	m.applies++
	for _, p := range c.Peers {
		m.peers[p.ID] = p
	}
	m.events = append(m.events, c.Events...)
	return nil
}

func (m *memory) kinds() []peer.EventKind {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []peer.EventKind
	for _, e := range m.events {
		out = append(out, e.Kind)
	}
	return out
}

// succeeds is Config.Succeeds.
func (n *network) succeeds(res client.Result, old peer.Fingerprint) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.signed[old] == res.Fingerprint && !res.Fingerprint.IsZero()
}

type bench struct {
	*Registry
	net        *network
	store      *memory
	mu         sync.Mutex
	changed    int
	reconfirms []string
	proved     []peer.Fingerprint
	pins       map[peer.ClusterID]peer.Fingerprint
}

// start runs a registry inside a synctest bubble.
func start(t *testing.T, remembered ...peer.Peer) *bench {
	t.Helper()
	return startWith(t, func(cfg *Config) { cfg.Remembered = remembered })
}

func startWith(t *testing.T, change func(*Config)) *bench {
	t.Helper()
	b := &bench{
		net:   &network{hosts: make(map[netip.AddrPort]host), delay: time.Millisecond, signed: make(map[peer.Fingerprint]peer.Fingerprint)},
		store: &memory{peers: make(map[peer.ClusterID]peer.Peer)},
		pins:  make(map[peer.ClusterID]peer.Fingerprint),
	}
	cfg := Config{
		Proved: func(_ peer.ClusterID, res client.Result) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.proved = append(b.proved, res.Fingerprint)
		},
		Pinned: func(id peer.ClusterID) peer.Fingerprint {
			b.mu.Lock()
			defer b.mu.Unlock()
			return b.pins[id]
		},
		Succeeds: b.net.succeeds,
		Self:     "self",
		SelfKey:  selfKey,
		Identify: b.net.identify,
		Reconfirm: func(link, instance string) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.reconfirms = append(b.reconfirms, link+"/"+instance)
		},
		Changed: func(peer.ClusterID) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.changed++
		},
		Store:    b.store,
		Limit:    8,
		Checkers: 4,
		Interval: interval,
		Logger:   slog.New(slog.DiscardHandler),
	}
	change(&cfg)
	b.Registry = New(cfg)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := b.Run(ctx); err != nil {
			t.Errorf("Run: %v", err)
		}
	}()
	t.Cleanup(func() { cancel(); <-done })
	return b
}

func (b *bench) see(t *testing.T, s peer.Sighting) {
	t.Helper()
	if err := b.See(t.Context(), s); err != nil {
		t.Fatal(err)
	}
}

func (b *bench) unsee(t *testing.T, s peer.Sighting, why Absence) {
	t.Helper()
	if err := b.Unsee(t.Context(), s.Key(), why); err != nil {
		t.Fatal(err)
	}
}

func (b *bench) phase(t *testing.T, id peer.ClusterID, want peer.Phase) peer.Peer {
	t.Helper()
	p, ok := b.Peer(id)
	if !ok || p.Phase != want {
		t.Fatalf("peer %s: known %v, phase %q (%s), want %q", id, ok, p.Phase, p.Reason, want)
	}
	return p
}

func settle(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func sightingA(addrs ...netip.AddrPort) peer.Sighting {
	return peer.Sighting{
		Source: peer.LAN, Link: "eth0", Instance: "a", ClusterID: "a", ClusterName: "barn",
		Namespace: "liqo", Fingerprint: keyA, Version: "1", Addrs: addrs, TTL: 2 * time.Minute,
	}
}

func hostA() *host {
	return &host{key: keyA, identity: peer.Identity{ClusterID: "a", ClusterName: "barn", GuestNamespace: "liqo"}}
}

func TestPeerAppearsOnlyAfterItsEndpointAnswered(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := start(t)
		b.see(t, sightingA(addr1))
		settle(time.Second)
		p := b.phase(t, "a", peer.PhaseUnverified)
		if !p.Fingerprint.IsZero() || p.Reason == "" {
			t.Errorf("unverified peer shows fingerprint %q, reason %q", p.Fingerprint, p.Reason)
		}
		if len(b.store.peers) != 0 || len(b.store.events) != 0 {
			t.Errorf("an unverified peer was stored: %v %v", b.store.peers, b.store.events)
		}
		b.net.set(addr1, hostA())
		settle(interval + 4*time.Second)
		p = b.phase(t, "a", peer.PhasePresent)
		if p.URL != "https://192.0.2.1:6447" || p.Fingerprint != keyA || p.Name != "barn" {
			t.Errorf("peer = %+v", p)
		}
		settle(2 * time.Second)
		if diff := cmp.Diff([]peer.EventKind{peer.EventAppeared}, b.store.kinds()); diff != "" {
			t.Errorf("history (-want +got):\n%s", diff)
		}
	})
}

func TestSameHostOnSeveralLinksIsOnePeer(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := start(t)
		b.net.set(addr1, hostA())
		b.net.set(addr2, hostA())
		second := sightingA(addr2)
		second.Link = "wlan0"
		b.see(t, sightingA(addr1))
		b.see(t, second)
		settle(time.Second)
		p := b.phase(t, "a", peer.PhasePresent)
		if len(b.Peers()) != 1 || !slices.Equal(p.Links, []string{"eth0", "wlan0"}) || len(p.Addrs) != 2 {
			t.Errorf("peers = %+v", b.Peers())
		}
		b.unsee(t, second, Absence{Reason: "goodbye", Evidence: Withdrawn})
		settle(time.Second)
		if p := b.phase(t, "a", peer.PhasePresent); !slices.Equal(p.Links, []string{"eth0"}) {
			t.Errorf("links = %v", p.Links)
		}
	})
}

func TestAddressChangeIsFollowedInPlace(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := start(t)
		b.net.set(addr1, hostA())
		b.see(t, sightingA(addr1))
		settle(time.Second)
		b.net.set(addr1, nil)
		b.net.set(addr2, hostA())
		b.see(t, sightingA(addr2))
		settle(10 * time.Millisecond)
		if p := b.phase(t, "a", peer.PhasePresent); p.URL != "https://192.0.2.2:6447" {
			t.Errorf("URL = %s", p.URL)
		}
		settle(2 * time.Second)
		want := []peer.EventKind{peer.EventAppeared, peer.EventAddressChanged}
		if diff := cmp.Diff(want, b.store.kinds()); diff != "" {
			t.Errorf("history (-want +got):\n%s", diff)
		}
	})
}

func TestQuietPeerCausesNoWrites(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := start(t)
		b.net.set(addr1, hostA())
		b.see(t, sightingA(addr1))
		settle(5 * time.Second)
		applies, changed, checks := b.store.applies, b.changed, b.net.count()
		for range 20 {
			b.see(t, sightingA(addr1))
			settle(interval)
		}
		if b.store.applies != applies || b.changed != changed {
			t.Errorf("%d transactions and %d notifications while nothing changed", b.store.applies-applies, b.changed-changed)
		}
		if got := b.net.count() - checks; got < 17 || got > 23 {
			t.Errorf("%d checks in 20 intervals", got)
		}
	})
}

func TestLoss(t *testing.T) {
	goodbye := Absence{Reason: "said goodbye", Evidence: Withdrawn}
	expired := Absence{Reason: "its records ended", Evidence: Expired}
	unplugged := Absence{Reason: "our link went away"}
	for _, tc := range []struct {
		name    string
		answers bool     // does the endpoint still answer?
		absence *Absence // nil: it keeps advertising
		after   time.Duration
		want    peer.Phase
	}{
		{"goodbye is enough", true, &goodbye, 0, peer.PhaseLost},
		{"records ended, endpoint dead", false, &expired, time.Second, peer.PhaseLost},
		{"records ended, endpoint alive", true, &expired, 5 * interval, peer.PhasePresent},
		{"own link gone, one failed check", false, &unplugged, time.Second, peer.PhaseUnreachable},
		{"own link gone, three failed checks", false, &unplugged, 3 * interval, peer.PhaseLost},
		{"advertises, one failed check", false, nil, 34 * time.Second, peer.PhaseUnreachable},
		{"advertises, two failed checks", false, nil, 68 * time.Second, peer.PhaseUnreachable},
		{"advertises, three failed checks", false, nil, 102 * time.Second, peer.PhaseLost},
		{"advertises and answers", true, nil, 10 * interval, peer.PhasePresent},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				b := start(t)
				b.net.set(addr1, hostA())
				b.see(t, sightingA(addr1))
				settle(time.Second)
				b.phase(t, "a", peer.PhasePresent)
				if !tc.answers {
					b.net.set(addr1, nil)
				}
				if tc.absence != nil {
					b.unsee(t, sightingA(addr1), *tc.absence)
				}
				settle(tc.after)
				p := b.phase(t, "a", tc.want)
				if tc.want != peer.PhasePresent && p.Reason == "" {
					t.Error("no reason given")
				}
				if tc.absence == nil && !tc.answers && !slices.Contains(b.reconfirms, "eth0/a") {
					t.Error("records of an unreachable peer were not asked for again")
				}
			})
		})
	}
}

func TestLostPeerReturnsOnlyWhenItAnswers(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := start(t)
		b.net.set(addr1, hostA())
		b.see(t, sightingA(addr1))
		settle(time.Second)
		b.unsee(t, sightingA(addr1), Absence{Reason: "said goodbye", Evidence: Withdrawn})
		b.net.set(addr1, nil)
		b.see(t, sightingA(addr1))
		settle(time.Second)
		b.phase(t, "a", peer.PhaseLost)
		b.net.set(addr1, hostA())
		b.see(t, sightingA(addr1, addr2)) // a change of records has it checked at once
		settle(time.Second)
		b.phase(t, "a", peer.PhasePresent)
		settle(2 * time.Second)
		want := []peer.EventKind{peer.EventAppeared, peer.EventLost, peer.EventReturned}
		if diff := cmp.Diff(want, b.store.kinds()); diff != "" {
			t.Errorf("history (-want +got):\n%s", diff)
		}
	})
}

func TestAnotherKeyIsAConflictAndChangesNothing(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := start(t)
		b.net.set(addr1, hostA())
		b.see(t, sightingA(addr1))
		settle(time.Second)
		before := b.phase(t, "a", peer.PhasePresent)

		clone := sightingA(addr2)
		clone.Instance, clone.Fingerprint, clone.ClusterName = "a (2)", keyB, "impostor"
		b.see(t, clone)
		settle(time.Second)
		if p := b.phase(t, "a", peer.PhasePresent); p.Conflict != nil {
			t.Error("a packet alone made a conflict")
		}

		evil := hostA()
		evil.key, evil.identity.ClusterName = keyB, "impostor"
		b.net.set(addr2, evil)
		settle(2 * interval)
		p := b.phase(t, "a", peer.PhasePresent)
		if p.Conflict == nil || p.Conflict.Fingerprint != keyB || p.Conflict.Addr != addr2.String() {
			t.Fatalf("conflict = %+v", p.Conflict)
		}
		if p.Fingerprint != keyA || p.URL != before.URL || p.Name != "barn" {
			t.Errorf("conflict changed the peer: %+v", p)
		}
		b.unsee(t, clone, Absence{Reason: "said goodbye", Evidence: Withdrawn})
		settle(2 * time.Second)
		if p := b.phase(t, "a", peer.PhasePresent); p.Conflict != nil {
			t.Errorf("conflict stays: %+v", p.Conflict)
		}
		want := []peer.EventKind{peer.EventAppeared, peer.EventConflict, peer.EventConflictGone}
		if diff := cmp.Diff(want, b.store.kinds()); diff != "" {
			t.Errorf("history (-want +got):\n%s", diff)
		}
	})
}

// impersonate has somebody with another key say that it is a.
func (b *bench) impersonate(t *testing.T) {
	t.Helper()
	evil := hostA()
	evil.key = keyB
	b.net.set(addr2, evil)
	clone := sightingA(addr2)
	clone.Fingerprint = keyB
	b.see(t, clone)
	settle(time.Second)
}

func TestRememberedKeyWinsOverAnImpostorWhoCameFirst(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		remembered := peer.Peer{ID: "a", Name: "barn", Namespace: "liqo", Fingerprint: keyA,
			Phase: peer.PhaseLost, URL: "https://192.0.2.1:6447", FirstSeen: time.Now()}
		b := start(t, remembered)
		b.impersonate(t)
		p := b.phase(t, "a", peer.PhaseLost)
		if p.Conflict == nil || p.Fingerprint != keyA {
			t.Errorf("peer = %+v", p)
		}
	})
}

// What is remembered of those who are not there is read while others start, and still
// known before anybody who comes.
func TestRecalledKeyWinsOverAnImpostorWhoCameFirst(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		asked := 0
		b := startWith(t, func(cfg *Config) {
			cfg.Remembered = []peer.Peer{{ID: "b", Name: "birch", Fingerprint: keyB, Phase: peer.PhaseLost}}
			cfg.Recall = func(_ context.Context, most int) ([]peer.Peer, error) {
				asked = most
				time.Sleep(time.Second)
				return []peer.Peer{
					{ID: "a", Name: "barn", Namespace: "liqo", Fingerprint: keyA, Phase: peer.PhaseLost, URL: "https://192.0.2.1:6447"},
					{ID: "b", Name: "old news", Fingerprint: keyA, Phase: peer.PhaseLost},
					{ID: "self", Name: "self", Fingerprint: selfKey, Phase: peer.PhaseLost},
					{ID: "c", Name: "without a key", Phase: peer.PhaseLost},
				}, nil
			}
		})
		b.impersonate(t)
		if p := b.phase(t, "a", peer.PhaseLost); p.Conflict == nil || p.Fingerprint != keyA {
			t.Errorf("peer = %+v", p)
		}
		if p := b.phase(t, "b", peer.PhaseLost); p.Name != "birch" {
			t.Errorf("what was known is %+v", p)
		}
		if asked != 3 || len(b.Peers()) != 2 {
			t.Errorf("asked for %d peers, want half of the limit without the one that is known; %d are known", asked, len(b.Peers()))
		}
	})
}

// A registry that cannot read what it knew takes nothing in, and tries again.
func TestRecallFails(t *testing.T) {
	broken := errors.New("the disk is on fire")
	calls := 0
	r := New(Config{Self: "self", Limit: 8, Checkers: 1, Lookups: 1, Store: discard{}, Logger: slog.New(slog.DiscardHandler),
		Recall: func(context.Context, int) ([]peer.Peer, error) {
			if calls++; calls == 1 {
				return nil, broken
			}
			return []peer.Peer{{ID: "a", Fingerprint: keyA, Phase: peer.PhaseLost}}, nil
		}})
	if err := r.Run(t.Context()); !errors.Is(err, broken) {
		t.Fatalf("Run = %v", err)
	}
	for range 2 {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- r.Run(ctx) }()
		if err := r.ask(ctx, func() {}); err != nil {
			t.Fatal(err)
		}
		cancel()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	if _, ok := r.Peer("a"); !ok || calls != 2 {
		t.Errorf("known: %v, read %d times", ok, calls)
	}
}

func TestSelf(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := start(t)
		own := sightingA(addr1)
		own.ClusterID, own.Instance, own.Fingerprint = "self", "self", selfKey
		b.see(t, own)
		settle(time.Second)
		if len(b.Peers()) != 0 || b.net.count() != 0 {
			t.Errorf("we became our own peer: %v after %d checks", b.Peers(), b.net.count())
		}
		clone := own
		clone.Instance, clone.Fingerprint, clone.Addrs = "self (2)", keyB, []netip.AddrPort{addr2}
		b.net.set(addr2, &host{key: keyB, identity: peer.Identity{ClusterID: "self", ClusterName: "clone", GuestNamespace: "liqo"}})
		b.see(t, clone)
		settle(3 * time.Second)
		if c := b.SelfConflict(); c == nil || c.Fingerprint != keyB {
			t.Errorf("self conflict = %+v", c)
		}
		if len(b.Peers()) != 0 {
			t.Errorf("peers = %v", b.Peers())
		}
		if diff := cmp.Diff([]peer.EventKind{peer.EventConflict}, b.store.kinds()); diff != "" {
			t.Errorf("history (-want +got):\n%s", diff)
		}
	})
}

func TestRestartIsNoEvent(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		stored := peer.Peer{ID: "a", Name: "barn", Namespace: "liqo", Fingerprint: keyA, Phase: peer.PhasePresent,
			Source: peer.LAN, Version: "1", URL: "https://192.0.2.1:6447", TTL: 2 * time.Minute,
			Links: []string{"eth0"}, Addrs: []netip.AddrPort{addr1}, FirstSeen: time.Now(), LastSeen: time.Now()}
		b := start(t, stored)
		b.net.set(addr1, hostA())
		settle(50 * time.Millisecond)
		b.see(t, sightingA(addr1))
		settle(5 * time.Second)
		b.phase(t, "a", peer.PhasePresent)
		if kinds := b.store.kinds(); len(kinds) != 0 {
			t.Errorf("history after a restart: %v", kinds)
		}
	})
}

func TestRememberedPeerThatLeftMeanwhileIsLostAfterThreeChecks(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		stored := peer.Peer{ID: "a", Name: "barn", Fingerprint: keyA, Phase: peer.PhasePresent, URL: "https://192.0.2.1:6447"}
		b := start(t, stored)
		settle(time.Second)
		b.phase(t, "a", peer.PhaseUnreachable)
		settle(3 * interval)
		b.phase(t, "a", peer.PhaseLost)
		checks := b.net.count()
		settle(time.Hour)
		if b.net.count() != checks {
			t.Errorf("%d checks of a peer that nobody sees", b.net.count()-checks)
		}
	})
}

func TestStoreFailureLosesNothing(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := start(t)
		b.store.fail = errors.New("disk full")
		b.net.set(addr1, hostA())
		b.see(t, sightingA(addr1))
		settle(5 * time.Second)
		if b.StoreError() == nil {
			t.Error("the failure is not reported")
		}
		b.unsee(t, sightingA(addr1), Absence{Reason: "said goodbye", Evidence: Withdrawn})
		settle(time.Second)
		b.store.mu.Lock()
		b.store.fail = nil
		b.store.mu.Unlock()
		settle(2 * time.Minute)
		if b.StoreError() != nil {
			t.Errorf("StoreError = %v after recovery", b.StoreError())
		}
		want := []peer.EventKind{peer.EventAppeared, peer.EventLost}
		if diff := cmp.Diff(want, b.store.kinds()); diff != "" {
			t.Errorf("history (-want +got):\n%s", diff)
		}
		if b.store.peers["a"].Phase != peer.PhaseLost {
			t.Errorf("stored phase %q", b.store.peers["a"].Phase)
		}
	})
}

func TestLimitNeverForgetsWhoIsThere(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var remembered []peer.Peer
		for i := range 6 {
			remembered = append(remembered, peer.Peer{ID: peer.ClusterID(fmt.Sprintf("old-%d", i)), Name: "old",
				Fingerprint: peer.FingerprintOf(fmt.Append(nil, i)), Phase: peer.PhaseLost, LastSeen: time.Unix(int64(1000*i), 0)})
		}
		remembered[0].Alias = "grandfather"
		b := start(t, remembered...)
		b.net.set(addr1, hostA())
		b.see(t, sightingA(addr1))
		for i := range 20 {
			s := sightingA(addr2)
			s.ClusterID = peer.ClusterID(fmt.Sprintf("bogus-%d", i))
			s.Instance = string(s.ClusterID)
			b.see(t, s)
		}
		settle(time.Second)
		if got := len(b.Peers()); got != 8 {
			t.Errorf("%d peers in memory, the limit is 8", got)
		}
		if b.Stats().Refused == 0 {
			t.Error("nobody was told that there was no room")
		}
		b.phase(t, "a", peer.PhasePresent)
		if _, ok := b.Peer("old-0"); !ok {
			t.Error("a peer with an alias was forgotten")
		}
		if _, ok := b.Peer("old-1"); ok {
			t.Error("the peer gone for longest was kept")
		}
	})
}

func TestSubscription(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := start(t)
		sub := b.Subscribe()
		defer sub.Close()
		b.net.set(addr1, hostA())
		b.see(t, sightingA(addr1))
		settle(time.Second)
		<-sub.Ready()
		if got := sub.Take(); !slices.Equal(got, []peer.ClusterID{"a"}) {
			t.Errorf("changed = %v", got)
		}
		settle(5 * interval)
		if got := sub.Take(); len(got) != 0 {
			t.Errorf("changed while nothing changed: %v", got)
		}
	})
}
