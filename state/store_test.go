package state

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"liqo.io/agent/peer"
)

var epoch = time.Date(2026, 11, 4, 10, 0, 0, 0, time.UTC)

// clock is a time that only moves when a test says so.
type clock struct{ t time.Time }

func (c *clock) now() time.Time { return c.t }

func open(t testing.TB, path string, opts Options) *Store {
	t.Helper()
	s, err := Open(t.Context(), path, opts)
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return s
}

func openNew(t testing.TB, limits Limits) (*Store, *clock) {
	c := &clock{epoch}
	return open(t, filepath.Join(t.TempDir(), "agent.db"), Options{Now: c.now, Limits: limits}), c
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func testPeer(id string, addrs ...string) peer.Peer {
	p := peer.Peer{ID: peer.ClusterID(id), Name: "barn", Namespace: "liqo", Fingerprint: peer.FingerprintOf([]byte(id)), Phase: peer.PhasePresent,
		Source: peer.LAN, URL: "https://192.0.2.7:6447", Version: "1", Links: []string{"eth0", "wlan0"}, TTL: 2 * time.Minute, FirstSeen: epoch, LastSeen: epoch}
	for _, a := range addrs {
		p.Addrs = append(p.Addrs, netip.MustParseAddrPort(a))
	}
	return p
}

func testSighting(p peer.Peer, link string) peer.Sighting {
	return peer.Sighting{Source: peer.LAN, Link: link, Instance: "Instance \x00 \xff ü/%.", ClusterID: p.ID, ClusterName: p.Name, Namespace: p.Namespace,
		Fingerprint: p.Fingerprint, Version: "1", Addrs: p.Addrs, TTL: 2 * time.Minute}
}

// TestRoundTrip stores everything a Change can hold and reads it back, before
// and after the file was closed, with awkward zones.
func TestRoundTrip(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a ?#%41;b", "agent.db")
	c := &clock{epoch}
	s := open(t, path, Options{Now: c.now})
	p := testPeer("p1", "192.0.2.7:6447", "[fe80::1%eth0]:6447")
	for _, zone := range []string{"br%0", "a]b", "x[y", "\xff\xfe", "1"} {
		p.Addrs = append(p.Addrs, netip.AddrPortFrom(netip.MustParseAddr("fe80::2").WithZone(zone), 7000))
	}
	p.Addrs = append(p.Addrs, netip.MustParseAddrPort("[::ffff:192.0.2.9]:1"))
	slices.SortFunc(p.Addrs, netip.AddrPort.Compare)
	sightings := []peer.Sighting{testSighting(p, "eth0"), testSighting(p, "wlan0")}
	events := []peer.Event{
		{At: epoch, ID: p.ID, Kind: peer.EventAppeared, Detail: "at 192.0.2.7:6447"},
		{At: epoch.Add(time.Millisecond), ID: "other", Kind: peer.EventLost, Detail: "goodbye"},
	}
	must(t, s.Apply(t.Context(), Change{Peers: []peer.Peer{p}, Sightings: map[peer.ClusterID][]peer.Sighting{p.ID: sightings}, Events: events}))
	must(t, s.SetClusterID(t.Context(), "me", "test"))
	must(t, s.UpdatePreferences(t.Context(), p.ID, func(f *Preferences) {
		*f = Preferences{AutoConnect: Yes, Blocked: No, Alias: "Süd", Note: "the one by the door", URL: "https://192.0.2.7:6447", CPU: "500m", Memory: "4Gi"}
	}))

	compare := func(s *Store) {
		t.Helper()
		want := p.Clone()
		want.Phase, want.Alias = peer.PhaseLost, "Süd"
		peers, err := s.Peers(t.Context())
		must(t, err)
		if diff := cmp.Diff([]peer.Peer{want}, peers, cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })); diff != "" {
			t.Errorf("Peers (-want +got):\n%s", diff)
		}
		seen, err := s.Sightings(t.Context(), p.ID)
		must(t, err)
		if !slices.EqualFunc(seen, sightings, peer.Sighting.Equal) {
			t.Errorf("Sightings = %+v, want %+v", seen, sightings)
		}
		history, err := s.History(t.Context(), HistoryQuery{})
		must(t, err)
		if diff := cmp.Diff(events, history); diff != "" {
			t.Errorf("History (-want +got):\n%s", diff)
		}
		f, err := s.Preferences(t.Context(), p.ID)
		must(t, err)
		if want := (Preferences{Yes, Undecided, No, "Süd", "the one by the door", "https://192.0.2.7:6447", "", "500m", "4Gi", false}); f != want {
			t.Errorf("Preferences = %+v, want %+v", f, want)
		}
		id, err := s.ClusterID(t.Context())
		must(t, err)
		origin, err := s.ClusterIDOrigin(t.Context())
		must(t, err)
		if id != "me" || origin != "test" {
			t.Errorf("identity = %q from %q", id, origin)
		}
		endpoints, err := s.Endpoints(t.Context(), p.ID)
		must(t, err)
		if len(endpoints) != len(p.Addrs) {
			t.Errorf("%d endpoints, want %d", len(endpoints), len(p.Addrs))
		}
		for _, e := range endpoints {
			if e.Fingerprint != p.Fingerprint || e.Link != "eth0" || e.Source != peer.LAN || !e.FirstSeen.Equal(epoch) || !e.GoneAt.IsZero() {
				t.Errorf("endpoint = %+v", e)
			}
		}
	}
	compare(s)
	must(t, s.Check(t.Context()))
	must(t, s.Close())
	compare(open(t, path, Options{}))
}

// TestNoWriteWithoutChange counts transactions and looks at the file, too.
func TestNoWriteWithoutChange(t *testing.T) {
	s, c := openNew(t, Limits{})
	p := testPeer("p1", "192.0.2.7:6447", "[fe80::1%eth0]:6447")
	change := Change{Peers: []peer.Peer{p}, Sightings: map[peer.ClusterID][]peer.Sighting{"p1": {testSighting(p, "eth0")}},
		LastSeen: map[peer.ClusterID]time.Time{"p1": epoch}}
	must(t, s.Apply(t.Context(), change))
	must(t, s.SetClusterID(t.Context(), "me", "test"))
	must(t, s.SetAlias(t.Context(), "p1", "x"))
	if got := s.Transactions(); got != 3 {
		t.Fatalf("%d transactions for three changes", got)
	}
	var before int
	must(t, s.conn.QueryRowContext(t.Context(), "SELECT total_changes()").Scan(&before))
	for range 3 {
		c.t = c.t.Add(time.Minute)
		again := p.Clone()
		again.LastSeen = c.t // that it is still there is no change
		again.Phase, again.Reason, again.Failures, again.Conflict, again.Alias = peer.PhaseUnreachable, "no answer", 2, &peer.Conflict{}, "y"
		slices.Reverse(again.Addrs)
		again.TTL += 400 * time.Microsecond
		gone := peer.Peer{ID: "p1", Phase: peer.PhaseLost, LastSeen: c.t}
		change.Peers = []peer.Peer{again, gone}
		change.LastSeen["p1"] = epoch.Add(-time.Hour)
		change.LastSeen["stranger"] = epoch
		change.Forget = []peer.ClusterID{"stranger"}
		must(t, s.Apply(t.Context(), change))
		must(t, s.SetClusterID(t.Context(), "me", "test"))
		must(t, s.SetAlias(t.Context(), "p1", "x"))
		must(t, s.SetAlias(t.Context(), "p2", ""))
		if n, err := s.Prune(t.Context(), time.Hour); err != nil || n != 0 {
			t.Errorf("Prune = %d, %v", n, err)
		}
		must(t, s.Apply(t.Context(), Change{}))
	}
	var after int
	must(t, s.conn.QueryRowContext(t.Context(), "SELECT total_changes()").Scan(&after))
	if got := s.Transactions(); got != 3 || after != before {
		t.Errorf("%d transactions and %d changed rows although nothing changed", got-3, after-before)
	}
}

func TestEveryFieldIsAChange(t *testing.T) {
	s, c := openNew(t, Limits{})
	for name, edit := range map[string]func(*peer.Peer){
		"name":        func(p *peer.Peer) { p.Name = "stable" },
		"namespace":   func(p *peer.Peer) { p.Namespace = "other" },
		"fingerprint": func(p *peer.Peer) { p.Fingerprint[0]++ },
		"source":      func(p *peer.Peer) { p.Source = peer.WAN },
		"url":         func(p *peer.Peer) { p.URL = "https://192.0.2.8:6447" },
		"version":     func(p *peer.Peer) { p.Version = "2" },
		"ttl":         func(p *peer.Peer) { p.TTL += time.Second },
		"links":       func(p *peer.Peer) { p.Links = []string{"eth0"} },
		"addrs":       func(p *peer.Peer) { p.Addrs = []netip.AddrPort{netip.MustParseAddrPort("192.0.2.8:6447")} },
	} {
		t.Run(name, func(t *testing.T) {
			p := testPeer("p1", "192.0.2.7:6447")
			must(t, s.Apply(t.Context(), Change{Forget: []peer.ClusterID{"p1"}, Peers: []peer.Peer{p}}))
			before := s.Transactions()
			c.t = c.t.Add(time.Minute)
			edit(&p)
			must(t, s.Apply(t.Context(), Change{Peers: []peer.Peer{p}}))
			if got := s.Transactions() - before; got != 1 {
				t.Fatalf("%d transactions, want 1", got)
			}
			p.Phase = peer.PhaseLost
			got, err := s.Peers(t.Context())
			must(t, err)
			if diff := cmp.Diff([]peer.Peer{p}, got, cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })); diff != "" {
				t.Errorf("Peers (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAddressHistory(t *testing.T) {
	s, c := openNew(t, Limits{Endpoints: 4})
	for i := range 10 {
		p := testPeer("p1", fmt.Sprintf("192.0.2.%d:6447", i+1))
		must(t, s.Apply(t.Context(), Change{Peers: []peer.Peer{p}}))
		c.t = c.t.Add(time.Minute)
	}
	got, err := s.Endpoints(t.Context(), "p1")
	must(t, err)
	var addrs []string
	for _, e := range got {
		addrs = append(addrs, e.Addr.Addr().String())
	}
	if want := []string{"192.0.2.10", "192.0.2.9", "192.0.2.8", "192.0.2.7"}; !slices.Equal(addrs, want) {
		t.Errorf("endpoints = %v, want %v", addrs, want)
	}
	if !got[0].GoneAt.IsZero() || !got[1].GoneAt.Equal(epoch.Add(9*time.Minute)) {
		t.Errorf("endpoints = %+v", got[:2])
	}
	// It comes back to an old address: that one is current again, and first
	// seen when it was first seen.
	must(t, s.Apply(t.Context(), Change{Peers: []peer.Peer{testPeer("p1", "192.0.2.8:6447")}}))
	got, err = s.Endpoints(t.Context(), "p1")
	must(t, err)
	if e := got[0]; e.Addr.Addr().String() != "192.0.2.8" || !e.GoneAt.IsZero() || !e.FirstSeen.Equal(epoch.Add(7*time.Minute)) {
		t.Errorf("endpoint = %+v", e)
	}
}

func TestSightingsReplace(t *testing.T) {
	s, _ := openNew(t, Limits{Sightings: 2})
	p := testPeer("p1", "192.0.2.7:6447")
	apply := func(seen ...peer.Sighting) []peer.Sighting {
		t.Helper()
		must(t, s.Apply(t.Context(), Change{Peers: []peer.Peer{p}, Sightings: map[peer.ClusterID][]peer.Sighting{"p1": seen, "stranger": seen}}))
		got, err := s.Sightings(t.Context(), "p1")
		must(t, err)
		return got
	}
	a, b, c := testSighting(p, "a"), testSighting(p, "b"), testSighting(p, "c")
	b2 := b
	b2.Addrs = []netip.AddrPort{netip.MustParseAddrPort("192.0.2.8:1"), {}}
	if got := apply(a, b); len(got) != 2 {
		t.Errorf("sightings = %+v", got)
	}
	if got := apply(b2, c, a); len(got) != 2 || got[0].Link != "b" || got[1].Link != "c" || len(got[0].Addrs) != 1 {
		t.Errorf("sightings = %+v", got)
	}
	if seen, err := s.Seen(t.Context()); err != nil || len(seen) != 1 || len(seen["p1"]) != 2 || seen["p1"][0].Link != "b" {
		t.Errorf("Seen = %v, %v", seen, err)
	}
	if got := apply(); len(got) != 0 {
		t.Errorf("sightings = %+v", got)
	}
	if seen, err := s.Seen(t.Context()); err != nil || len(seen) != 0 {
		t.Errorf("Seen = %v, %v", seen, err)
	}
	if got, err := s.Sightings(t.Context(), "stranger"); err != nil || len(got) != 0 {
		t.Errorf("sightings of a peer that is not stored = %+v, %v", got, err)
	}
}

func TestPreferences(t *testing.T) {
	s, _ := openNew(t, Limits{})
	must(t, s.SetAlias(t.Context(), "p1", "barn"))
	if err := s.SetAlias(t.Context(), "p2", "barn"); !errors.Is(err, ErrAliasTaken) || !strings.Contains(err.Error(), "p1") {
		t.Errorf("alias taken: %v", err)
	}
	for _, bad := range []string{" x", "a\x1b[0m", strings.Repeat("x", 64)} {
		if err := s.SetAlias(t.Context(), "p2", bad); err == nil {
			t.Errorf("alias %q accepted", bad)
		}
	}
	if err := s.SetAlias(t.Context(), "Not An ID", "x"); err == nil {
		t.Error("bad cluster ID accepted")
	}
	if err := s.UpdatePreferences(t.Context(), "p2", func(p *Preferences) { p.Note = strings.Repeat("x", maxNoteLength+1) }); err == nil {
		t.Error("endless note accepted")
	}
	for _, d := range []Decision{No, Yes, Undecided} {
		must(t, s.UpdatePreferences(t.Context(), "p3", func(p *Preferences) { p.AutoConnect, p.AutoAccept, p.Blocked = d, d, d }))
		got, err := s.Preferences(t.Context(), "p3")
		must(t, err)
		if want := (Preferences{AutoConnect: d, AutoAccept: d, Blocked: d}); got != want {
			t.Errorf("%v: got %+v", d, got)
		}
	}
	if Undecided.Or(true) != true || Undecided.Or(false) || No.Or(true) || !Yes.Or(false) {
		t.Error("Or")
	}
	var rows int
	must(t, s.conn.QueryRowContext(t.Context(), "SELECT count(*) FROM preferences").Scan(&rows))
	if rows != 1 {
		t.Errorf("%d rows, want only that of p1: a peer nobody decided about has none", rows)
	}
}

func TestForget(t *testing.T) {
	s, _ := openNew(t, Limits{})
	p := testPeer("p1", "192.0.2.7:6447")
	change := Change{Peers: []peer.Peer{p}, Sightings: map[peer.ClusterID][]peer.Sighting{"p1": {testSighting(p, "a")}},
		Events: []peer.Event{{At: epoch, ID: "p1", Kind: peer.EventAppeared}}}
	must(t, s.Apply(t.Context(), change))
	must(t, s.SetAlias(t.Context(), "p1", "barn"))
	must(t, s.Apply(t.Context(), Change{Forget: []peer.ClusterID{"p1"}}))
	for _, table := range []string{"peers", "endpoints", "sightings", "events", "preferences"} {
		var rows int
		must(t, s.conn.QueryRowContext(t.Context(), "SELECT count(*) FROM "+table).Scan(&rows))
		if rows != 0 {
			t.Errorf("%d rows left in %s", rows, table)
		}
	}
	// Forgotten and seen again in one change: everything is there once.
	must(t, s.Apply(t.Context(), change))
	change.Forget = []peer.ClusterID{"p1"}
	must(t, s.Apply(t.Context(), change))
	seen, err := s.Sightings(t.Context(), "p1")
	must(t, err)
	history, err := s.History(t.Context(), HistoryQuery{})
	must(t, err)
	peers, err := s.Peers(t.Context())
	must(t, err)
	if len(seen) != 1 || len(history) != 1 || len(peers) != 1 || len(peers[0].Addrs) != 1 {
		t.Errorf("after forget and store: %v, %v, %v", peers, seen, history)
	}
}

func TestHistory(t *testing.T) {
	s, _ := openNew(t, Limits{})
	for i := range 10 {
		must(t, s.Apply(t.Context(), Change{Events: []peer.Event{{At: epoch.Add(time.Duration(i) * time.Second), ID: peer.ClusterID("p" + string(rune('0'+i%2))), Kind: peer.EventLost, Detail: fmt.Sprint(i)}}}))
	}
	for _, tc := range []struct {
		q    HistoryQuery
		want string
	}{
		{HistoryQuery{}, "0123456789"},
		{HistoryQuery{Limit: 3}, "789"},
		{HistoryQuery{ID: "p1"}, "13579"},
		{HistoryQuery{ID: "p1", Limit: 2}, "79"},
		{HistoryQuery{Since: epoch.Add(4 * time.Second)}, "456789"},
		{HistoryQuery{ID: "p0", Since: epoch.Add(4 * time.Second), Limit: 2}, "68"},
		{HistoryQuery{ID: "p2"}, ""},
	} {
		events, err := s.History(t.Context(), tc.q)
		must(t, err)
		got := ""
		for _, e := range events {
			got += e.Detail
		}
		if got != tc.want {
			t.Errorf("History(%+v) = %s, want %s", tc.q, got, tc.want)
		}
	}
}

func TestHistoryIsBounded(t *testing.T) {
	s, _ := openNew(t, Limits{Events: 100, EventsPerPeer: 30})
	count := func(where string) (n int) {
		t.Helper()
		must(t, s.conn.QueryRowContext(t.Context(), "SELECT count(*) FROM events "+where).Scan(&n))
		return n
	}
	must(t, s.Apply(t.Context(), Change{Events: []peer.Event{{At: epoch, ID: "quiet", Kind: peer.EventAppeared, Detail: strings.Repeat("x", 10*maxDetailLength)}}}))
	for range 60 {
		must(t, s.Apply(t.Context(), Change{Events: []peer.Event{{At: epoch, ID: "flapper", Kind: peer.EventLost}, {At: epoch, ID: "flapper", Kind: peer.EventReturned}}}))
		if n := count("WHERE cluster_id = 'flapper'"); n > 30 {
			t.Fatalf("%d events of one peer", n)
		}
	}
	quiet, err := s.History(t.Context(), HistoryQuery{ID: "quiet"})
	must(t, err)
	if len(quiet) != 1 || len(quiet[0].Detail) > maxDetailLength {
		t.Errorf("the quiet peer's history = %v", quiet)
	}
	for i := range 150 {
		must(t, s.Apply(t.Context(), Change{Events: []peer.Event{{At: epoch, ID: peer.ClusterID(fmt.Sprintf("p%d", i)), Kind: peer.EventAppeared}}}))
		if n := count(""); n > 100 {
			t.Fatalf("%d events in all", n)
		}
	}
	if n := count(""); n < 90 {
		t.Errorf("only %d events are left", n)
	}
}

func TestPeersAreBounded(t *testing.T) {
	s, _ := openNew(t, Limits{Peers: 10})
	verified := testPeer("verified")
	decided := peer.Peer{ID: "decided", LastSeen: epoch.Add(-time.Hour)}
	must(t, s.SetAlias(t.Context(), "decided", "barn"))
	must(t, s.Apply(t.Context(), Change{Peers: []peer.Peer{verified, decided}}))
	for i := range 50 {
		rumour := peer.Peer{ID: peer.ClusterID(fmt.Sprintf("rumour-%d", i)), LastSeen: epoch.Add(time.Duration(i) * time.Minute)}
		must(t, s.Apply(t.Context(), Change{Peers: []peer.Peer{rumour}, Sightings: map[peer.ClusterID][]peer.Sighting{rumour.ID: {testSighting(rumour, "a")}}}))
	}
	peers, err := s.Peers(t.Context())
	must(t, err)
	var ids []string
	for _, p := range peers {
		ids = append(ids, string(p.ID))
	}
	if len(ids) > 10 || !slices.Contains(ids, "verified") || !slices.Contains(ids, "decided") || !slices.Contains(ids, "rumour-49") {
		t.Errorf("peers = %v", ids)
	}
	must(t, s.Check(t.Context()))
}

func TestPrune(t *testing.T) {
	s, c := openNew(t, Limits{})
	must(t, s.Apply(t.Context(), Change{
		Peers:  []peer.Peer{testPeer("old", "192.0.2.1:1"), testPeer("present", "192.0.2.2:1"), testPeer("decided", "192.0.2.3:1")},
		Events: []peer.Event{{At: epoch, ID: "present", Kind: peer.EventAppeared}}}))
	must(t, s.SetAlias(t.Context(), "decided", "x"))
	c.t = epoch.Add(time.Hour)
	must(t, s.Apply(t.Context(), Change{Peers: []peer.Peer{testPeer("present", "192.0.2.9:1")}}))
	c.t = epoch.Add(100 * time.Hour)
	must(t, s.Apply(t.Context(), Change{LastSeen: map[peer.ClusterID]time.Time{"present": c.t}, Events: []peer.Event{{At: c.t, ID: "present", Kind: peer.EventNameChanged}}}))
	if n, err := s.Prune(t.Context(), 50*time.Hour); err != nil || n != 3 {
		t.Errorf("Prune = %d, %v, want the old peer, the old event and an address that its peer no longer has", n, err)
	}
	peers, err := s.Peers(t.Context())
	must(t, err)
	endpoints, err := s.Endpoints(t.Context(), "present")
	must(t, err)
	history, err := s.History(t.Context(), HistoryQuery{})
	must(t, err)
	if len(peers) != 2 || peers[0].ID != "decided" || peers[1].ID != "present" || !peers[1].LastSeen.Equal(c.t) || len(endpoints) != 1 || len(history) != 1 {
		t.Errorf("left: %v, %v, %v", peers, endpoints, history)
	}
}

// What was written while the clock was behind is not old, and what comes before it is, when its time has come.
func TestPruneAfterAWrongClock(t *testing.T) {
	s, c := openNew(t, Limits{})
	written := []time.Time{epoch, epoch.Add(60 * time.Hour), time.Unix(0, 0), epoch.Add(61 * time.Hour)}
	for _, at := range written {
		must(t, s.Apply(t.Context(), Change{Events: []peer.Event{{At: at, ID: "present", Kind: peer.EventAppeared}}}))
	}
	for _, step := range []struct {
		now           time.Duration
		dropped, left int
	}{{100 * time.Hour, 1, 3}, {110*time.Hour + time.Minute, 2, 1}, {112 * time.Hour, 1, 0}} {
		c.t = epoch.Add(step.now)
		n, err := s.Prune(t.Context(), 50*time.Hour)
		must(t, err)
		history, err := s.History(t.Context(), HistoryQuery{})
		must(t, err)
		if n != step.dropped || len(history) != step.left {
			t.Errorf("after %s: %d dropped, left %v", step.now, n, history)
		}
	}
}

func TestMemory(t *testing.T) {
	s := open(t, "/nonexistent/\x00", Options{Memory: true})
	if !s.Volatile() || s.Path() != "" {
		t.Error("a store in memory must say so")
	}
	must(t, s.SetClusterID(t.Context(), "me", "test"))
	must(t, s.Apply(t.Context(), Change{Peers: []peer.Peer{testPeer("p1", "192.0.2.1:1")}}))
	must(t, s.Check(t.Context()))
	if id, err := s.ClusterID(t.Context()); err != nil || id != "me" {
		t.Errorf("ClusterID = %q, %v", id, err)
	}
}

// TestMemoryRemembers: an agent that cannot write its disk still knows who it
// is, and leaves the disk alone.
func TestMemoryRemembers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.db")
	s := open(t, path, Options{})
	must(t, s.SetClusterID(t.Context(), "me", "test"))
	p := testPeer("p1", "192.0.2.1:1")
	must(t, s.Apply(t.Context(), Change{Peers: []peer.Peer{p}, Sightings: map[peer.ClusterID][]peer.Sighting{"p1": {testSighting(p, "a")}}}))
	must(t, s.SetAlias(t.Context(), "p1", "x"))
	must(t, s.Close())
	before, err := os.ReadFile(path)
	must(t, err)
	m := open(t, path, Options{Memory: true})
	id, err := m.ClusterID(t.Context())
	must(t, err)
	peers, err := m.Peers(t.Context())
	must(t, err)
	seen, err := m.Seen(t.Context())
	must(t, err)
	if id != "me" || len(peers) != 1 || peers[0].Alias != "x" || len(peers[0].Addrs) != 1 || len(seen["p1"]) != 1 {
		t.Errorf("remembered: %q, %+v, %v", id, peers, seen)
	}
	must(t, m.SetClusterID(t.Context(), "other", "test"))
	after, err := os.ReadFile(path)
	must(t, err)
	if !bytes.Equal(before, after) {
		t.Error("the file was changed")
	}
	if files, err := filepath.Glob(path + "-*"); err != nil || len(files) > 0 {
		t.Errorf("left %v, %v", files, err)
	}
}

func TestCancelledAndClosed(t *testing.T) {
	s, _ := openNew(t, Limits{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.SetClusterID(ctx, "me", "x"); !errors.Is(err, context.Canceled) {
		t.Errorf("with an ended context: %v", err)
	}
	must(t, s.Close())
	must(t, s.Close())
	if err := s.SetClusterID(t.Context(), "me", "x"); !errors.Is(err, errClosed) {
		t.Errorf("after Close: %v", err)
	}
	if _, err := s.Peers(t.Context()); !errors.Is(err, errClosed) {
		t.Errorf("after Close: %v", err)
	}
}
