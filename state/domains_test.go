package state

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"liqo.io/agent/peer"
)

// testDomain fills every field.
func testDomain(name string) SearchDomain {
	no := false
	return SearchDomain{Domain: name, Autojoin: &no, Server: "tls://192.0.2.53:853", MinInterval: 5 * time.Second, MaxInterval: time.Hour,
		By: "user alice (command line)", At: epoch}
}

func TestSearchDomains(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.db")
	c := &clock{epoch.Add(time.Hour)}
	s := open(t, path, Options{Now: c.now})
	ctx := t.Context()
	full, bare := testDomain("b.example"), SearchDomain{Domain: "a.example", MinInterval: time.Second, MaxInterval: time.Second}
	added := peer.Event{At: epoch, ID: "me", Kind: peer.EventPreference, Detail: "added"}
	must(t, s.SetSearchDomain(ctx, full, added))
	must(t, s.SetSearchDomain(ctx, bare))
	bare.At = c.t // when nobody says, it is now
	read := func(s *Store, want ...SearchDomain) {
		t.Helper()
		got, err := s.SearchDomains(ctx)
		must(t, err)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("SearchDomains (-want +got):\n%s", diff)
		}
	}
	read(s, bare, full)

	before := s.Transactions()
	again := full
	again.By, again.At = "somebody else", epoch.Add(time.Minute)
	must(t, s.SetSearchDomain(ctx, again, added))
	if found, err := s.RemoveSearchDomain(ctx, "c.example", added); err != nil || found {
		t.Errorf("removed what is not there: %t, %v", found, err)
	}
	if s.Transactions() != before {
		t.Error("what changes nothing was written")
	}
	if history, err := s.History(ctx, HistoryQuery{}); err != nil || len(history) != 1 || history[0] != added {
		t.Errorf("history = %+v, %v", history, err)
	}

	yes := true
	again.Autojoin = &yes
	must(t, s.SetSearchDomain(ctx, again))
	read(s, bare, again)
	must(t, s.Close())
	s = open(t, path, Options{})
	read(s, bare, again)
	if found, err := s.RemoveSearchDomain(ctx, "a.example", added); err != nil || !found {
		t.Errorf("RemoveSearchDomain = %t, %v", found, err)
	}
	read(s, again)
	if history, err := s.History(ctx, HistoryQuery{}); err != nil || len(history) != 2 {
		t.Errorf("history = %+v, %v", history, err)
	}
}

// TestEveryFieldOfASearchDomain is kept, and is a change, apart from who said it
// and when.
func TestEveryFieldOfASearchDomain(t *testing.T) {
	s, _ := openNew(t, Limits{})
	for name, edit := range map[string]func(*SearchDomain){
		"domain":   func(d *SearchDomain) { d.Domain = "other.example" },
		"autojoin": func(d *SearchDomain) { d.Autojoin = nil },
		"server":   func(d *SearchDomain) { d.Server = "" },
		"min":      func(d *SearchDomain) { d.MinInterval++; d.MinInterval += time.Millisecond - 1 },
		"max":      func(d *SearchDomain) { d.MaxInterval += time.Millisecond },
	} {
		d := testDomain("example.com")
		_, err := s.RemoveSearchDomain(t.Context(), "other.example")
		must(t, err)
		must(t, s.SetSearchDomain(t.Context(), d))
		before := s.Transactions()
		edit(&d)
		d.By, d.At = "user bob (command line)", epoch.Add(time.Second)
		must(t, s.SetSearchDomain(t.Context(), d))
		got, err := s.SearchDomains(t.Context())
		must(t, err)
		if !slices.ContainsFunc(got, func(o SearchDomain) bool { return cmp.Equal(o, d) }) || s.Transactions() != before+1 {
			t.Errorf("%s: %+v in %d transactions, want %+v", name, got, s.Transactions()-before, d)
		}
	}
}

func TestSearchDomainsAreBounded(t *testing.T) {
	s, _ := openNew(t, Limits{})
	ctx := t.Context()
	for i := range MaxSearchDomains {
		must(t, s.SetSearchDomain(ctx, testDomain(fmt.Sprintf("d%d.example", i))))
	}
	before := s.Transactions()
	if err := s.SetSearchDomain(ctx, testDomain("one-more.example")); !errors.Is(err, ErrSearchDomains) || !strings.Contains(err.Error(), "256 search domains") {
		t.Errorf("one more: %v", err)
	}
	for want, edit := range map[string]func(*SearchDomain){
		`search domain "" is not a domain name`:             func(d *SearchDomain) { d.Domain = "" },
		`search domain "Example.com" is not a domain name`:  func(d *SearchDomain) { d.Domain = "Example.com" },
		`search domain "example.com." is not a domain name`: func(d *SearchDomain) { d.Domain = "example.com." },
		`is not a domain name in lower case`:                func(d *SearchDomain) { d.Domain = strings.Repeat("x", 254) },
		"is 301 bytes long, at most 300 are allowed":        func(d *SearchDomain) { d.Server = strings.Repeat("x", 301) },
		"is 201 bytes long, at most 200 are allowed":        func(d *SearchDomain) { d.By = strings.Repeat("x", 201) },
		"cannot be looked at every 0s to 1h0m0s":            func(d *SearchDomain) { d.MinInterval = 0 },
		"cannot be looked at every 2h0m0s to 1h0m0s":        func(d *SearchDomain) { d.MinInterval = 2 * time.Hour },
		"cannot be looked at every 100µs to 1h0m0s":         func(d *SearchDomain) { d.MinInterval = 100 * time.Microsecond },
	} {
		d := testDomain("d1.example")
		edit(&d)
		if err := s.SetSearchDomain(ctx, d); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", d, err, want)
		}
	}
	if s.Transactions() != before {
		t.Error("what was refused was written")
	}
	changed := testDomain("d1.example")
	changed.Server = ""
	must(t, s.SetSearchDomain(ctx, changed)) // one that is there can be changed all the same
	if found, err := s.RemoveSearchDomain(ctx, "d0.example"); err != nil || !found {
		t.Errorf("RemoveSearchDomain = %t, %v", found, err)
	}
	must(t, s.SetSearchDomain(ctx, testDomain("one-more.example")))
}

func TestRememberConfig(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.db")
	s := open(t, path, Options{})
	ctx := t.Context()
	read := func(s *Store, want string) {
		t.Helper()
		content, found, err := s.RememberedConfig(ctx)
		if err != nil || string(content) != want || found != (want != "") {
			t.Errorf("RememberedConfig = %s, %t, %v; want %s", content, found, err, want)
		}
	}
	read(s, "")
	must(t, s.RememberConfig(ctx, nil))
	if n := s.Transactions(); n != 0 {
		t.Errorf("%d transactions to forget nothing", n)
	}
	first, second := `{"discoveryConfig":{"enableAdvertisement":false}}`, `{}`
	for _, text := range []string{first, first, second, first} {
		must(t, s.RememberConfig(ctx, []byte(text)))
		read(s, text)
	}
	if n := s.Transactions(); n != 3 {
		t.Errorf("%d transactions for three changes", n)
	}
	for _, bad := range []string{"", "{", `{"x":"` + strings.Repeat("x", maxConfigLength) + `"}`} {
		if err := s.RememberConfig(ctx, []byte(bad)); err == nil {
			t.Errorf("remembered %.20q", bad)
		}
	}
	must(t, s.Close())
	r, err := OpenReadOnly(ctx, path)
	must(t, err)
	read(r, first)
	for _, err := range []error{r.RememberConfig(ctx, nil), r.SetSearchDomain(ctx, testDomain("example.com")),
		func() error { _, err := r.RemoveSearchDomain(ctx, "example.com"); return err }()} {
		if !errors.Is(err, ErrReadOnly) {
			t.Errorf("a reader writes: %v", err)
		}
	}
	must(t, r.Close())
	s = open(t, path, Options{})
	must(t, s.RememberConfig(ctx, nil))
	read(s, "")
}

// TestSightingsByDomain: an instance that is seen in two domains is two sightings,
// which come and go by themselves.
func TestSightingsByDomain(t *testing.T) {
	s, _ := openNew(t, Limits{})
	ctx := t.Context()
	p := testPeer("p1", "192.0.2.7:6447")
	lan, a, b := testSighting(p, "eth0"), testSighting(p, ""), testSighting(p, "")
	a.Source, a.Domain, b.Source, b.Domain = peer.WAN, "a.example", peer.WAN, "b.example"
	all := []peer.Sighting{lan, a, b}
	store := func(seen ...peer.Sighting) {
		t.Helper()
		must(t, s.Apply(ctx, Change{Peers: []peer.Peer{p}, Sightings: map[peer.ClusterID][]peer.Sighting{p.ID: seen}}))
		got, err := s.Sightings(ctx, p.ID)
		must(t, err)
		if !slices.EqualFunc(got, seen, peer.Sighting.Equal) {
			t.Errorf("Sightings = %+v, want %+v", got, seen)
		}
	}
	store(all...)
	before := s.Transactions()
	store(all...)
	if s.Transactions() != before {
		t.Error("the same sightings were written again")
	}
	b.URL = "https://b.example:6447"
	store(lan, a, b)
	store(lan, b)
	store(a)
}
