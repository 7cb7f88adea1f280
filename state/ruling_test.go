package state

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"liqo.io/agent/peer"
)

// testRuling fills every field.
func testRuling(id peer.ClusterID) Ruling {
	return Ruling{
		Pin: Pin{Pin: peer.Pin{ID: id, Fingerprint: peer.FingerprintOf([]byte(id)), Method: peer.TrustPerson, By: "user alice", At: epoch,
			Detail: "compared the code", Host: "barn.example", Domain: "example",
			NotBefore: epoch.AddDate(-1, 0, 0), NotAfter: epoch.AddDate(1, 0, 0), Suspended: epoch.AddDate(0, 0, 1)}, Basis: peer.FingerprintOf([]byte("basis"))},
		Preferences: Preferences{AutoConnect: Yes, AutoAccept: No, Blocked: Yes, Alias: "alias of " + string(id), Note: "n", URL: "https://barn.example:6447", BlockedHosts: "barn.example/byre.example",
			CPU: "2", Memory: "4Gi", ByLiqo: true},
		Peering: Peering{Joined: true, Once: true, HungUp: true, EndedByPeer: "tired", Served: true, Request: "Pending", Ended: "enough",
			Rejected: peer.FingerprintOf([]byte("r")), JoinStamp: "j", TrustStamp: "t", NodeName: "liqo-barn"},
	}
}

func TestRulings(t *testing.T) {
	s, _ := openNew(t, Limits{})
	ctx := t.Context()
	distrusted := Ruling{Distrust: Distrust{Fingerprint: peer.FingerprintOf([]byte("x")), By: "kubectl", At: epoch}}
	unseen := Ruling{Distrust: Distrust{By: "kubectl", At: epoch}}
	noted := Ruling{Preferences: Preferences{Note: "x"}}
	want := map[peer.ClusterID]Ruling{"p1": testRuling("p1"), "p2": distrusted, "p3": unseen, "p4": noted}
	for id, r := range want {
		must(t, s.SetRuling(ctx, id, r, peer.Event{At: epoch, ID: id, Kind: peer.EventTrusted, Detail: "because"}))
	}
	got, err := s.Rulings(ctx)
	must(t, err)
	if !maps.Equal(got, want) {
		t.Errorf("Rulings = %+v\nwant %+v", got, want)
	}
	before := s.Transactions()
	for id, r := range want {
		must(t, s.SetRuling(ctx, id, r))
	}
	must(t, s.SetRuling(ctx, "stranger", Ruling{}))
	if s.Transactions() != before {
		t.Error("a ruling that changes nothing was written")
	}
	must(t, s.SetRuling(ctx, "p1", want["p1"], peer.Event{At: epoch, ID: "p1", Kind: peer.EventKeyRefused}))
	if history, err := s.History(ctx, HistoryQuery{ID: "p1"}); err != nil || len(history) != 2 {
		t.Errorf("history = %v, %v", history, err)
	}
	// The empty ruling leaves no rows.
	for id := range want {
		must(t, s.SetRuling(ctx, id, Ruling{}))
	}
	for _, table := range []string{"trust", "peerings", "preferences"} {
		var n int
		must(t, s.conn.QueryRowContext(ctx, "SELECT count(*) FROM "+table).Scan(&n))
		if n != 0 {
			t.Errorf("%d rows left in %s", n, table)
		}
	}
}

// TestEveryFieldOfARuling is kept, and is a change.
func TestEveryFieldOfARuling(t *testing.T) {
	s, _ := openNew(t, Limits{})
	for name, edit := range map[string]func(*Ruling){
		"pin":           func(r *Ruling) { r.Pin.Fingerprint[0]++ },
		"basis":         func(r *Ruling) { r.Pin.Basis[0]++ },
		"method":        func(r *Ruling) { r.Pin.Method = peer.TrustFleet },
		"by":            func(r *Ruling) { r.Pin.By = "x" },
		"at":            func(r *Ruling) { r.Pin.At = epoch.Add(time.Second) },
		"detail":        func(r *Ruling) { r.Pin.Detail = "" },
		"distrust":      func(r *Ruling) { r.Pin, r.Distrust = Pin{}, Distrust{By: "x", At: epoch} },
		"joined":        func(r *Ruling) { r.Peering.Joined = false },
		"once":          func(r *Ruling) { r.Peering.Once = false },
		"hung up":       func(r *Ruling) { r.Peering.HungUp = false },
		"ended by peer": func(r *Ruling) { r.Peering.EndedByPeer = "" },
		"served":        func(r *Ruling) { r.Peering.Served = false },
		"request":       func(r *Ruling) { r.Peering.Request = "" },
		"ended":         func(r *Ruling) { r.Peering.Ended = "" },
		"rejected":      func(r *Ruling) { r.Peering.Rejected = peer.Fingerprint{} },
		"join stamp":    func(r *Ruling) { r.Peering.JoinStamp = "x" },
		"trust stamp":   func(r *Ruling) { r.Peering.TrustStamp = "x" },
		"node":          func(r *Ruling) { r.Peering.NodeName = "" },
		"url":           func(r *Ruling) { r.Preferences.URL = "" },
		"connect":       func(r *Ruling) { r.Preferences.AutoConnect = No },
	} {
		t.Run(name, func(t *testing.T) {
			r := testRuling("p1")
			must(t, s.SetRuling(t.Context(), "p1", r))
			before := s.Transactions()
			edit(&r)
			must(t, s.SetRuling(t.Context(), "p1", r))
			if got, err := s.Ruling(t.Context(), "p1"); err != nil || got != r || s.Transactions() != before+1 {
				t.Errorf("%+v, %v in %d transactions, want %+v", got, err, s.Transactions()-before, r)
			}
		})
	}
}

func TestImpossibleRulings(t *testing.T) {
	s, _ := openNew(t, Limits{})
	other, both, half, badURL := testRuling("p1"), testRuling("p2"), testRuling("p2"), testRuling("p2")
	both.Distrust = Distrust{By: "x", At: epoch}
	half.Pin.Fingerprint = peer.Fingerprint{}
	badURL.Preferences.URL = "http://x"
	for name, r := range map[string]Ruling{"another's pin": other, "both": both, "no key": half, "bad URL": badURL} {
		if err := s.SetRuling(t.Context(), "p2", r); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if err := s.SetRuling(t.Context(), "Not An ID", Ruling{Preferences: Preferences{Note: "x"}}); err == nil {
		t.Error("bad cluster ID accepted")
	}
	must(t, s.SetAlias(t.Context(), "p1", "barn"))
	taken := Ruling{Preferences: Preferences{Alias: "barn"}, Peering: Peering{Joined: true}}
	if err := s.SetRuling(t.Context(), "p2", taken); !errors.Is(err, ErrAliasTaken) {
		t.Errorf("alias taken: %v", err)
	}
	if r, err := s.Ruling(t.Context(), "p2"); err != nil || r != (Ruling{}) {
		t.Errorf("half of a refused ruling was kept: %+v, %v", r, err)
	}
}

func TestPreferenceURL(t *testing.T) {
	s, _ := openNew(t, Limits{})
	for url, ok := range map[string]bool{
		"https://192.0.2.7:6447": true, "https://[2001:db8::7]:6447": true, "https://barn.example": true, "https://barn.example/": true,
		"http://barn.example": false, "barn.example:6447": false, "https://": false, "https://user:secret@barn.example": false,
		"https://barn.example/x": false, "https://barn.example?x": false, "https://barn\x1b": false,
		"https://" + strings.Repeat("x", peer.MaxURLLength): false,
	} {
		err := s.UpdatePreferences(t.Context(), "p1", func(p *Preferences) { p.URL = url })
		if (err == nil) != ok {
			t.Errorf("URL %q: %v", url, err)
		}
	}
}

func testInvite(n int) Invite {
	return Invite{ID: fmt.Sprintf("%016x", n), SecretHash: peer.FingerprintOf([]byte{byte(n)}), CreatedAt: epoch, CreatedBy: "user alice",
		ExpiresAt: epoch.Add(time.Hour), Note: "for the barn"}
}

func TestInvites(t *testing.T) {
	s, _ := openNew(t, Limits{})
	ctx := t.Context()
	for i := range MaxInvites {
		must(t, s.AddInvite(ctx, testInvite(i), peer.Event{At: epoch, ID: "me", Kind: peer.EventInviteCreated}))
	}
	if err := s.AddInvite(ctx, testInvite(MaxInvites)); !errors.Is(err, ErrInvites) || !strings.Contains(err.Error(), "revoke some") {
		t.Errorf("one too many: %v", err)
	}
	if got, found, err := s.Invite(ctx, testInvite(7).ID); err != nil || !found || got != testInvite(7) {
		t.Errorf("Invite = %+v, %t, %v", got, found, err)
	}
	if _, found, err := s.Invite(ctx, "unknown"); err != nil || found {
		t.Errorf("unknown invite: %t, %v", found, err)
	}
	note := func(i Invite) []peer.Event {
		return []peer.Event{{At: epoch, ID: "me", Kind: "revoked", Detail: i.ID}}
	}
	for _, prefix := range []string{"", "f", "000", "%", "_"} {
		if err := s.RevokeInvite(ctx, prefix, epoch, note); err == nil {
			t.Errorf("revoked by the prefix %q", prefix)
		}
	}
	must(t, s.RevokeInvite(ctx, "00000000000000AB", epoch, note))
	if err := s.RevokeInvite(ctx, "00000000000000ab", epoch, note); !errors.Is(err, ErrInviteVoid) {
		t.Errorf("revoked twice: %v", err)
	}
	must(t, s.AddInvite(ctx, testInvite(MaxInvites)))
	must(t, s.UseInvite(ctx, testInvite(1).ID, epoch, "p1", testRuling("p1"), peer.Event{At: epoch, ID: "p1", Kind: peer.EventInviteUsed}))
	used, _, err := s.Invite(ctx, testInvite(1).ID)
	must(t, err)
	if used.UsedBy != "p1" || !used.UsedAt.Equal(epoch) || used.Live(epoch) {
		t.Errorf("used = %+v", used)
	}
	if r, err := s.Ruling(ctx, "p1"); err != nil || r != testRuling("p1") {
		t.Errorf("the bearer's ruling = %+v, %v", r, err)
	}
	before := s.Transactions()
	for name, use := range map[string]struct {
		id string
		at time.Time
	}{"used": {testInvite(1).ID, epoch}, "revoked": {testInvite(0xab).ID, epoch}, "expired": {testInvite(2).ID, epoch.Add(time.Hour)}, "unknown": {"x", epoch}} {
		if err := s.UseInvite(ctx, use.id, use.at, "p2", testRuling("p2")); !errors.Is(err, ErrInviteVoid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if r, err := s.Ruling(ctx, "p2"); err != nil || r != (Ruling{}) || s.Transactions() != before {
		t.Errorf("a void invite let p2 in: %+v, %v", r, err)
	}
	all, err := s.Invites(ctx)
	must(t, err)
	if len(all) != MaxInvites+1 || all[0].ID != testInvite(0).ID {
		t.Errorf("%d invites", len(all))
	}
}

// TestOneBearer: of many bearers of one invite exactly one gets in.
func TestOneBearer(t *testing.T) {
	s, _ := openNew(t, Limits{})
	must(t, s.AddInvite(t.Context(), testInvite(1)))
	var wg sync.WaitGroup
	errs := make([]error, 8)
	for i := range errs {
		wg.Go(func() {
			id := peer.ClusterID(fmt.Sprint("p", i))
			errs[i] = s.UseInvite(t.Context(), testInvite(1).ID, epoch, id, testRuling(id))
		})
	}
	wg.Wait()
	rulings, err := s.Rulings(t.Context())
	must(t, err)
	won := 0
	for i, err := range errs {
		id := peer.ClusterID(fmt.Sprint("p", i))
		if err == nil {
			won++
		} else if !errors.Is(err, ErrInviteVoid) {
			t.Errorf("%s: %v", id, err)
		}
		if (err == nil) != (rulings[id] == testRuling(id)) {
			t.Errorf("%s: %v, but the ruling is %+v", id, err, rulings[id])
		}
	}
	if won != 1 {
		t.Errorf("%d bearers got in", won)
	}
}

func TestPruneKeepsDecisions(t *testing.T) {
	s, c := openNew(t, Limits{Peers: 5})
	ctx := t.Context()
	decided := []peer.ClusterID{"pinned", "peered", "noted"}
	rulings := []Ruling{{Pin: testRuling("pinned").Pin}, {Peering: Peering{Served: true}}, {Preferences: Preferences{Note: "x"}}}
	for i, id := range decided {
		must(t, s.Apply(ctx, Change{Peers: []peer.Peer{testPeer(string(id))}}))
		must(t, s.SetRuling(ctx, id, rulings[i]))
	}
	for i := range 20 {
		p := testPeer(fmt.Sprint("stranger-", i))
		p.LastSeen = epoch.Add(time.Minute)
		must(t, s.Apply(ctx, Change{Peers: []peer.Peer{p}}))
	}
	live, old, dead := testInvite(1), testInvite(2), testInvite(3)
	live.ExpiresAt = epoch.Add(1000 * time.Hour)
	for _, i := range []Invite{live, old, dead} {
		must(t, s.AddInvite(ctx, i))
	}
	must(t, s.RevokeInvite(ctx, dead.ID, epoch, func(Invite) []peer.Event { return nil }))
	c.t = epoch.Add(100 * time.Hour)
	_, err := s.Prune(ctx, 99*time.Hour+30*time.Minute)
	must(t, err)
	invites, err := s.Invites(ctx)
	must(t, err)
	if len(invites) != 2 || invites[0].ID != live.ID || invites[1].ID != old.ID {
		t.Errorf("the revoked invite alone is old enough; left: %+v", invites)
	}
	_, err = s.Prune(ctx, 50*time.Hour)
	must(t, err)
	peers, err := s.Peers(ctx)
	must(t, err)
	var ids []peer.ClusterID
	for _, p := range peers {
		ids = append(ids, p.ID)
	}
	slices.Sort(decided)
	if !slices.Equal(ids, decided) {
		t.Errorf("peers left: %v, want %v", ids, decided)
	}
	if invites, err = s.Invites(ctx); err != nil || len(invites) != 1 {
		t.Errorf("invites left: %+v, %v", invites, err)
	}
	before := s.Transactions()
	if n, err := s.Prune(ctx, 50*time.Hour); err != nil || n != 0 || s.Transactions() != before {
		t.Errorf("pruning again: %d, %v", n, err)
	}
}

func TestForgetDecisions(t *testing.T) {
	s, _ := openNew(t, Limits{})
	must(t, s.SetRuling(t.Context(), "p1", testRuling("p1"), peer.Event{At: epoch, ID: "p1", Kind: peer.EventTrusted}))
	must(t, s.SetRuling(t.Context(), "p2", testRuling("p2")))
	before := s.Transactions()
	must(t, s.Apply(t.Context(), Change{Forget: []peer.ClusterID{"p1", "stranger"}}))
	must(t, s.Apply(t.Context(), Change{Forget: []peer.ClusterID{"p1"}}))
	rulings, err := s.Rulings(t.Context())
	must(t, err)
	if len(rulings) != 1 || rulings["p2"] != testRuling("p2") || s.Transactions() != before+1 {
		t.Errorf("after forgetting p1 in %d transactions: %+v", s.Transactions()-before, rulings)
	}
	kept := Peering{Forgotten: true, JoinStamp: "s"}
	must(t, s.Apply(t.Context(), Change{Forget: []peer.ClusterID{"p2"}, Kept: map[peer.ClusterID]Peering{"p2": kept}}))
	if rulings, err = s.Rulings(t.Context()); err != nil || len(rulings) != 1 || rulings["p2"] != (Ruling{Peering: kept}) {
		t.Errorf("after forgetting p2: %+v, %v", rulings, err)
	}
}
