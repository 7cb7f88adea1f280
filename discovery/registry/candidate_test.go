package registry

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"liqo.io/agent/endpoint/client"
	"liqo.io/agent/internal/bubble"
	"liqo.io/agent/peer"
)

// What is made of a candidate and of who is at its place. Cluster "k" is known by its
// key, and nobody else.
func TestWhatCandidatesAmountTo(t *testing.T) {
	const url = "https://m.example:6447"
	clone := box{id: "k", key: keyOf("stranger")}
	rows := []struct {
		name   string
		expect string // the expected ID
		key    string // the expected key
		at     []box
		manual Reason
		sees   peer.ClusterID // for a manual one, and for a domain's unless wan says it
		domain Reason
		wan    peer.ClusterID
		next   time.Duration // of an asked one
	}{
		{name: "a cluster", at: []box{boxOf("a")}, sees: "a", next: lookEvery},
		{name: "nobody", manual: Unreachable, next: firstRetry},
		{name: "no TLS", at: []box{{not: client.ReasonNotTLS}}, manual: NotACluster, next: firstRetry},
		{name: "a web server", at: []box{{not: client.ReasonBadAnswer}}, manual: NotACluster, next: firstRetry},
		{name: "ourselves", at: []box{boxOf("self")}, manual: ThisCluster, next: lookEvery},
		{name: "our clone", at: []box{{id: self, key: keyOf("clone")}}, manual: OtherKey, sees: self, next: firstRetry},
		{name: "a known one", at: []box{boxOf("k")}, sees: "k", next: lookEvery},
		{name: "a known one's clone", at: []box{clone}, manual: OtherKey, sees: "k", next: firstRetry},
		{name: "a known one behind its clone", at: []box{clone, boxOf("k")}, sees: "k", next: lookEvery},
		{name: "the expected ID", expect: "a", at: []box{boxOf("a")}, sees: "a", next: lookEvery},
		{name: "another ID", expect: "a", at: []box{boxOf("b")}, manual: OtherCluster, next: firstRetry},
		{name: "the expected ID behind another", expect: "a", at: []box{boxOf("b"), boxOf("a")}, sees: "a", next: lookEvery},
		{name: "the expected ID is not there", expect: "a", manual: Unreachable, next: firstRetry},
		{name: "the expected ID is ours", expect: "self", at: []box{boxOf("self")}, manual: ThisCluster, next: lookEvery},
		{name: "the expected key", key: "a", at: []box{boxOf("a")}, sees: "a", next: lookEvery},
		{name: "another key", key: "a", at: []box{boxOf("b")}, manual: OtherKey, next: firstRetry},
		{name: "the expected key is ours", key: "self", manual: ThisCluster, next: lookEvery},
		// These are all that a sighting needs: a domain's is checked like any other.
		{name: "the expected cluster", expect: "a", key: "a", at: []box{boxOf("a")}, sees: "a", next: lookEvery},
		{name: "another cluster", expect: "a", key: "a", at: []box{boxOf("b")}, manual: OtherCluster, wan: "a", domain: Unreachable, next: firstRetry},
		{name: "another key of the cluster", expect: "k", key: "k", at: []box{clone}, manual: OtherKey, wan: "k", next: firstRetry},
		{name: "the expected key is a clone's", key: "stranger", at: []box{clone, boxOf("k")}, manual: OtherKey, domain: OtherKey, sees: "k", next: firstRetry},
		{name: "ourselves instead", expect: "a", key: "a", at: []box{boxOf("self")}, manual: ThisCluster, wan: "a", domain: Unreachable, next: lookEvery},
		{name: "the expected cluster is not there", expect: "a", key: "a", manual: Unreachable, sees: "a", domain: Unreachable, next: firstRetry},
		{name: "known by another key", expect: "k", key: "stranger", at: []box{clone}, manual: OtherKey, sees: "k", domain: OtherKey, next: firstRetry},
		{name: "we are expected", expect: "self", key: "self", at: []box{boxOf("self")}, manual: ThisCluster, domain: ThisCluster},
	}
	for _, row := range rows {
		for _, source := range []peer.Source{peer.Manual, peer.WAN} {
			t.Run(row.name+" "+string(source), func(t *testing.T) {
				in(t, func(t *testing.T, b *bed) {
					b.announces("k")
					clear(b.proved)
					b.world.put(url, row.at...)
					l := manual(url)
					reason, sees, next := row.manual, row.sees, row.next
					if source == peer.WAN {
						l = wan("example.com", url)
						sees = cmp.Or(row.wan, sees)
						if row.expect != "" && row.key != "" {
							reason, next = row.domain, 0
						}
					}
					l.ClusterID = peer.ClusterID(row.expect)
					if row.key != "" {
						l.Fingerprint = keyOf(row.key)
					}
					before := time.Now()
					b.SetCandidate(l)
					soon()
					if len(row.at) == 0 && reason == Unreachable {
						b.reason(l.Key(), NotProbed)
						wait(timeout)
						before = before.Add(timeout)
					}
					s := b.reason(l.Key(), reason)
					b.sees(l.Key(), sees)
					if next != 0 {
						b.near("next", s.Next.Sub(before), next)
					}
					if want := next == firstRetry; l.probed() && ((s.Failures == 1) != want || !want && s.Failures != 0) {
						b.t.Errorf("%d failures", s.Failures)
					}
					if n := len(b.world.called(url)); (n == 0) != (row.expect == "self" && row.key == "self" || source == peer.WAN && row.expect != "" && row.key != "") {
						b.t.Errorf("asked %d times", n)
					}
					if reason == "" && (s.ID != sees || s.ClusterName != "name of "+string(sees) || s.Namespace != "liqo" || s.Fingerprint != keyOf(string(sees))) {
						b.t.Errorf("%+v", s)
					}
					for id, key := range b.proved {
						if key != keyOf(string(id)) {
							b.t.Errorf("%s was told to have proved another key", id)
						}
					}
					if _, ok := b.proved[sees]; reason == "" && !ok {
						b.t.Errorf("nobody was told of the proof of %s", sees)
					}
				})
			})
		}
	}
}

// The sighting says what was answered, and for the rest what the candidate says.
func TestSighting(t *testing.T) {
	in(t, func(t *testing.T, b *bed) {
		l := wan("example.com", "https://a.example:8443")
		l.ClusterName, l.Namespace = "liar", "elsewhere"
		b.world.put(l.URL, boxOf("a"))
		b.SetCandidate(l)
		soon()
		want := peer.Sighting{Source: peer.WAN, Domain: "example.com", Instance: l.Key().Instance, ClusterID: "a", ClusterName: "name of a", Namespace: "liqo",
			Fingerprint: keyOf("a"), Version: "1", Addrs: l.Addrs, URL: l.URL, TTL: time.Minute}
		if got := b.sighting(l.Key()); !got.Equal(want) {
			t.Errorf("%+v\nwant %+v", got, want)
		}
		// It was called by its name.
		target := b.world.called(l.URL)[0].target
		if len(target.Places) != 1 || target.Places[0].URL != l.URL || !slices.Equal(target.Places[0].Addrs, l.Addrs) || target.URL != "" || target.Addrs != nil {
			t.Errorf("%+v", target)
		}

		// A candidate that says all is what it says.
		said := wan("example.com", "https://b.example").expecting("b").holding("b")
		said.ClusterName, said.Namespace = "barn", "ns"
		b.SetCandidate(said)
		soon()
		want = peer.Sighting{Source: peer.WAN, Domain: "example.com", Instance: said.Key().Instance, ClusterID: "b", ClusterName: "barn", Namespace: "ns",
			Fingerprint: keyOf("b"), Version: "1", Addrs: said.Addrs, URL: said.URL, TTL: time.Minute}
		if got := b.sighting(said.Key()); !got.Equal(want) {
			t.Errorf("%+v\nwant %+v", got, want)
		}
	})
}

// What does not concern the place is passed on without asking.
func TestDescription(t *testing.T) {
	in(t, func(t *testing.T, b *bed) {
		addrs := []netip.AddrPort{netip.MustParseAddrPort("192.0.2.1:1"), netip.MustParseAddrPort("192.0.2.2:1")}
		asked, said := wan("d", "https://a"), wan("d", "https://b").expecting("b").holding("b")
		asked.Addrs = addrs
		b.world.put("https://a", boxOf("a"))
		b.SetCandidate(asked)
		b.SetCandidate(said)
		soon()
		sees := b.told()
		// In another order the addresses are the same.
		asked.Addrs = []netip.AddrPort{addrs[1], addrs[0]}
		b.SetCandidate(asked)
		b.SetCandidate(said)
		soon()
		if b.told() != sees {
			t.Errorf("the same again was told")
		}
		for _, l := range []*Candidate{&asked, &said} {
			l.TTL, l.Version, l.ClusterName, l.Namespace = time.Hour, "2", "new", "new"
			b.SetCandidate(*l)
		}
		soon()
		if got := b.sighting(asked.Key()); got.TTL != time.Hour || got.Version != "2" || got.ClusterName != "name of a" || got.Namespace != "liqo" || !slices.Equal(got.Addrs, addrs) {
			t.Errorf("%+v", got)
		}
		if got := b.sighting(said.Key()); got.TTL != time.Hour || got.Version != "2" || got.ClusterName != "new" || got.Namespace != "new" {
			t.Errorf("%+v", got)
		}
		if n := len(b.world.called("https://a")); n != 1 {
			t.Errorf("asked %d times", n)
		}
		if got := b.state(asked.Key()).Candidate; got.TTL != time.Hour || !slices.Equal(got.Addrs, addrs) {
			t.Errorf("%+v", got)
		}
		b.near("next", time.Until(b.state(asked.Key()).Next), lookEvery)

		// Who has answered knows its name better than the candidate.
		b.world.put("https://c", boxOf("c"))
		given := manual("https://c").expecting("c").holding("c")
		b.SetCandidate(given)
		soon()
		given.ClusterName, given.TTL = "liar", time.Hour
		b.SetCandidate(given)
		soon()
		if got := b.sighting(given.Key()); got.ClusterName != "name of c" || got.TTL != time.Hour {
			t.Errorf("%+v", got)
		}
		// And so did the one who said who is there, before one who does not.
		was := manual("https://x").expecting("x").holding("x")
		was.ClusterName = "barn"
		b.SetCandidate(was)
		soon()
		was.URL, was.ClusterID, was.Fingerprint, was.ClusterName = "https://y", "", peer.Fingerprint{}, "liar"
		b.SetCandidate(was)
		soon()
		was.TTL = time.Hour
		b.SetCandidate(was)
		soon()
		if got := b.sighting(was.Key()); got.ClusterName != "barn" || got.TTL != time.Hour {
			t.Errorf("%+v", got)
		}

		// Nobody is made to be seen who was not.
		b.world.put("https://m", boxOf("b"))
		wrong := manual("https://m").expecting("a").holding("a")
		b.SetCandidate(wrong)
		soon()
		wrong.TTL = time.Second
		b.SetCandidate(wrong)
		soon()
		b.sees(wrong.Key(), "")
	})
}

// A candidate that says all is not probed; what its checks say is its status.
func TestIdentifiedCandidatesAreChecked(t *testing.T) {
	in(t, func(t *testing.T, b *bed) {
		l := wan("d", "https://a").expecting("a").holding("a")
		b.SetCandidate(l)
		soon()
		b.reason(l.Key(), NotProbed)
		wait(timeout)
		if s := b.reason(l.Key(), Unreachable); s.ID != "" || s.Failures != 1 || !strings.Contains(s.Message, "it does not answer") {
			t.Errorf("%+v", s)
		}
		b.world.put(l.URL, boxOf("a"))
		wait(interval)
		if s := b.reason(l.Key(), ""); s.ID != "a" || s.Failures != 0 || !s.Next.IsZero() {
			t.Errorf("%+v", s)
		}
		// It was followed to a new key: the candidate is as good as before.
		b.world.sign("a", "next")
		b.world.put(l.URL, box{id: "a", key: keyOf("next")})
		wait(2 * interval)
		if s := b.reason(l.Key(), ""); s.Fingerprint != keyOf("next") {
			t.Errorf("%+v", s)
		}
		sees := b.told()
		wait(time.Hour)
		if b.told() != sees {
			t.Errorf("the old key was seen again")
		}
		b.world.put(l.URL)
		b.until("a", peer.PhasePresent)
		b.reason(l.Key(), Unreachable)
		b.world.put(l.URL, box{id: "a", key: keyOf("next")})
		wait(2 * interval)
		b.reason(l.Key(), "")
	})
}

// A cluster that is forgotten, as happens to those that went longest ago when there
// is no room, is seen again by its candidate, ever more rarely while there is none.
func TestNoRoomForWhatIsIdentified(t *testing.T) {
	within(t, func(cfg *Config) { cfg.Limit = 3 }, func(t *testing.T, b *bed) {
		l := wan("d", "https://a").expecting("a").holding("a")
		b.world.put(l.URL, boxOf("a"))
		b.SetCandidate(l)
		soon()
		b.reason(l.Key(), "")
		b.world.put(l.URL)
		b.until("a", peer.PhasePresent)
		b.until("a", peer.PhaseUnreachable)
		b.reason(l.Key(), Unreachable)
		for _, id := range []string{"x", "y", "z"} {
			b.announces(id)
		}
		b.reason(l.Key(), NotProbed)
		b.near("next", time.Until(b.state(l.Key()).Next), firstRetry)
		left := b.Stats().Refused
		wait(30 * time.Minute)
		// After 5, 15, 35, 75, 155, 315 s, and then every five minutes.
		if n := b.Stats().Refused - left; n < 9 || n > 11 {
			t.Errorf("left out %d times in half an hour", n)
		}
		b.leaves("z")
		b.world.put(l.URL, boxOf("a"))
		wait(lastRetry * 12 / 10)
		b.sees(l.Key(), "a")
		b.reason(l.Key(), "")
		if len(b.world.called(l.URL)) != 0 {
			t.Error("it was probed")
		}
	})
}

// Who does not answer is probed ever more rarely. What was found stays.
func TestBackoff(t *testing.T) {
	in(t, func(t *testing.T, b *bed) {
		l := manual("https://a")
		b.world.put(l.URL, boxOf("a"))
		b.SetCandidate(l)
		soon()
		b.world.put(l.URL)
		b.until("a", peer.PhasePresent)
		b.reason(l.Key(), "")
		b.near("next", time.Until(b.state(l.Key()).Next), firstRetry)
		b.world.called(l.URL)
		wait(time.Hour)
		calls := b.world.called(l.URL)
		b.near("after", time.Until(calls[0].at.Add(time.Hour)), firstRetry)
		want := 5 * time.Second
		for i := 1; i < len(calls); i++ {
			b.near(fmt.Sprintf("pause %d", i), calls[i].at.Sub(calls[i-1].at)-timeout, want)
			want = min(2*want, 5*time.Minute)
		}
		if s := b.reason(l.Key(), Unreachable); s.Failures < 10 {
			t.Errorf("%+v", s)
		}
		b.sees(l.Key(), "a")
		if n := b.changes(l.Key()); n != 3 { // set, found, not found
			t.Errorf("told of %d changes", n)
		}
		b.world.put(l.URL, box{not: client.ReasonBadAnswer})
		wait(10 * time.Minute)
		b.reason(l.Key(), NotACluster)
		b.sees(l.Key(), "a")
		// Whom it led to is seen elsewhere again: it may be back here, too.
		b.world.put(l.URL, boxOf("a"))
		b.world.called(l.URL)
		b.announces("a")
		wait(6 * time.Second)
		s := b.reason(l.Key(), "")
		if s.Failures != 0 {
			t.Errorf("%+v", s)
		}
		b.near("next", s.Next.Sub(b.world.called(l.URL)[0].at), lookEvery)
	})
}

// An expected cluster that comes up elsewhere has its place probed at once, and not
// when the backoff is over.
func TestExpectedAppears(t *testing.T) {
	in(t, func(t *testing.T, b *bed) {
		l := manual("https://a").expecting("a")
		b.SetCandidate(l)
		wait(time.Hour)
		b.reason(l.Key(), Unreachable)
		b.world.put(l.URL, boxOf("a"))
		b.announces("a")
		wait(6 * time.Second)
		b.reason(l.Key(), "")
	})
}

// Another cluster takes a place over.
func TestAnotherMovesIn(t *testing.T) {
	in(t, func(t *testing.T, b *bed) {
		l := wan("d", "https://a")
		b.world.put(l.URL, boxOf("a"))
		b.SetCandidate(l)
		soon()
		b.world.put(l.URL, boxOf("b"))
		// A check of the one that was there shows it, and then it is probed soon.
		b.until("a", peer.PhasePresent)
		wait(6 * time.Second)
		if s := b.reason(l.Key(), ""); s.ID != "b" {
			t.Errorf("%+v", s)
		}
		b.sees(l.Key(), "b")
		if why := b.absence("a"); why.Evidence != Expired {
			t.Errorf("%+v", why)
		}
		if p, _ := b.Peer("a"); p.Phase != peer.PhaseLost {
			t.Errorf("%+v", p)
		}
		told := b.told()
		b.world.called(l.URL)
		wait(time.Hour)
		if n := b.told() - told; n != 0 {
			t.Errorf("told %d times of what was known", n)
		}
		// It is probed every ten minutes all the same: the name may lead elsewhere as well.
		if n := len(b.world.called(l.URL)); n < 5 || n > 7 {
			t.Errorf("probed %d times in an hour", n)
		}
		b.world.put(l.URL, boxOf("c"))
		b.until("b", peer.PhasePresent)
		wait(6 * time.Second)
		b.sees(l.Key(), "c")
	})
}

// While both are at a place, it is the next probe that shows who moved in.
func TestAnotherMovesInAsWell(t *testing.T) {
	in(t, func(t *testing.T, b *bed) {
		l := manual("https://a")
		b.world.put(l.URL, boxOf("a"))
		b.SetCandidate(l)
		soon()
		first := b.world.called(l.URL)[0].at
		b.announces("a") // and stays
		b.world.put(l.URL, boxOf("b"))
		wait(lookEvery * 12 / 10)
		b.near("probed again", b.world.called(l.URL)[0].at.Sub(first), lookEvery)
		b.sees(l.Key(), "b")
		if p, _ := b.Peer("a"); p.Phase != peer.PhasePresent {
			t.Errorf("%+v", p)
		}
	})
}

// While there is no room for whom it leads to, a place is probed soon, and ever more
// rarely.
func TestProbedSoonWhileThereIsNoRoom(t *testing.T) {
	within(t, func(cfg *Config) { cfg.Limit = 1 }, func(t *testing.T, b *bed) {
		b.announces("x")
		l := wan("d", "https://a")
		b.world.put(l.URL, boxOf("a"))
		b.SetCandidate(l)
		wait(time.Hour)
		calls := b.world.called(l.URL)
		want := 5 * time.Second
		for i := 1; i < len(calls); i++ {
			b.near(fmt.Sprintf("pause %d", i), calls[i].at.Sub(calls[i-1].at), want)
			want = min(2*want, 5*time.Minute)
		}
		if len(calls) < 16 {
			t.Errorf("%d calls", len(calls))
		}
		if s := b.reason(l.Key(), ""); s.Failures != 0 {
			t.Errorf("%+v", s)
		}
		b.leaves("x")
		wait(lastRetry * 12 / 10)
		b.sees(l.Key(), "a")
		calls = b.world.called(l.URL)
		b.near("next", b.state(l.Key()).Next.Sub(calls[len(calls)-1].at), lookEvery)
		b.world.put(l.URL)
		b.until("a", peer.PhasePresent)
		b.near("next", time.Until(b.state(l.Key()).Next), firstRetry)
		b.world.put(l.URL, boxOf("a"))
		wait(6 * time.Second)
		if p, _ := b.Peer("a"); p.Phase != peer.PhasePresent {
			t.Errorf("%+v", p)
		}
	})
}

// A cluster was forgotten for want of room, and with it what a place led to, and is seen
// elsewhere now.
func TestForgotten(t *testing.T) {
	within(t, func(cfg *Config) { cfg.Limit = 1 }, func(t *testing.T, b *bed) {
		l := wan("d", "https://a")
		b.world.put(l.URL, boxOf("a"))
		b.SetCandidate(l)
		soon()
		b.world.put(l.URL)
		b.until("a", peer.PhasePresent)
		b.until("a", peer.PhaseUnreachable)
		b.announces("x")
		b.sees(l.Key(), "")
		wait(time.Hour)
		b.leaves("x")
		b.world.put(l.URL, boxOf("a"))
		b.announces("a")
		wait(6 * time.Second)
		b.sees(l.Key(), "a")
		b.near("next", time.Until(b.state(l.Key()).Next), lookEvery)
	})
}

// Of several clusters at one place the one that was there first stays, as long as
// it answers.
func TestSeveralAtOnePlace(t *testing.T) {
	in(t, func(t *testing.T, b *bed) {
		l := manual("https://a")
		b.world.put(l.URL, boxOf("a"), boxOf("b"))
		b.SetCandidate(l)
		soon()
		b.world.put(l.URL, boxOf("b"), boxOf("a"))
		wait(lookEvery * 2)
		b.sees(l.Key(), "a")
		b.world.put(l.URL, boxOf("b"))
		wait(lookEvery * 2)
		b.sees(l.Key(), "b")
		// At another place it is nothing to the one that was there.
		l.URL = "https://b"
		b.world.put(l.URL, boxOf("c"), boxOf("b"))
		b.SetCandidate(l)
		soon()
		b.sees(l.Key(), "c")
		// Who pretends to be a known cluster does not stay for having been there.
		l.URL = "https://c"
		b.world.put(l.URL, box{id: "c", key: keyOf("clone")})
		b.SetCandidate(l)
		soon()
		b.reason(l.Key(), OtherKey)
		b.world.put(l.URL, boxOf("c"), box{id: "c", key: keyOf("clone")})
		wait(lastRetry * 2)
		b.reason(l.Key(), "")
	})
}

// A cluster that is known by another key is reported; once a person took the new
// key, the place leads to it.
func TestTrustedAnew(t *testing.T) {
	in(t, func(t *testing.T, b *bed) {
		other := manual("https://old")
		b.world.put(other.URL, box{id: "a", key: keyOf("old")})
		b.SetCandidate(other)
		soon()
		l := manual("https://a")
		b.world.put(l.URL, boxOf("a"))
		b.SetCandidate(l)
		wait(time.Hour)
		if s := b.reason(l.Key(), OtherKey); s.ID != "a" || s.Fingerprint != keyOf("a") || !strings.Contains(s.Message, "peers trust a") {
			t.Errorf("%+v", s)
		}
		if found, err := b.Adopt(t.Context(), "a", keyOf("a")); !found || err != nil {
			t.Fatal(found, err)
		}
		wait(6 * time.Second)
		b.reason(l.Key(), "")
		b.near("next", time.Until(b.state(l.Key()).Next), lookEvery)
	})
}

// Who holds the key that a person trusts is found beside one that answers first and was
// there before, and although nobody ever proved that key.
func TestTrustedBesideAnother(t *testing.T) {
	in(t, func(t *testing.T, b *bed) {
		l, clone := manual("https://a"), box{id: "a", key: keyOf("clone")}
		b.world.put(l.URL, clone)
		b.SetCandidate(l)
		soon()
		if found, err := b.Adopt(t.Context(), "a", keyOf("a")); !found || err != nil {
			t.Fatal(found, err)
		}
		wait(lastRetry * 2)
		b.reason(l.Key(), OtherKey)
		b.world.put(l.URL, clone, boxOf("a"))
		wait(lastRetry * 2)
		b.reason(l.Key(), "")
	})
}

// A candidate that leads elsewhere is asked at once. What was found stays until there
// is an answer; what an earlier attempt finds does not count.
func TestElsewhere(t *testing.T) {
	in(t, func(t *testing.T, b *bed) {
		l := manual("https://a")
		b.world.put("https://a", boxOf("a"))
		b.SetCandidate(l)
		soon()
		l.URL = "https://b" // nobody is there
		b.SetCandidate(l)
		soon()
		if s := b.reason(l.Key(), NotProbed); s.ID != "" || s.Candidate.URL != "https://b" {
			t.Errorf("%+v", s)
		}
		b.sees(l.Key(), "a")
		b.world.put("https://c", boxOf("c"))
		l.URL = "https://c"
		b.SetCandidate(l)
		soon()
		b.reason(l.Key(), "")
		b.sees(l.Key(), "c")
		if got := b.sighting(l.Key()).URL; got != "https://c" {
			t.Error(got)
		}
		wait(2 * timeout)
		b.reason(l.Key(), "")

		// While an attempt goes on, a changed candidate does not wait for it.
		b.world.put("https://slow", boxOf("s"))
		b.world.slows("https://slow", timeout)
		l.URL = "https://slow"
		b.SetCandidate(l)
		soon()
		l.URL = "https://a"
		b.SetCandidate(l)
		soon()
		b.sees(l.Key(), "a")
		wait(2 * timeout)
		b.sees(l.Key(), "a")
		if n, _ := b.world.under(""); n != 0 {
			t.Errorf("%d attempts under way", n)
		}

		// Other addresses of the same host are asked at once, and change nothing before.
		w := wan("d", "https://w")
		b.world.put("https://w", boxOf("w"))
		b.SetCandidate(w)
		soon()
		b.world.put("https://w")
		b.changes(w.Key())
		w.Addrs = []netip.AddrPort{netip.MustParseAddrPort("192.0.2.7:6447")}
		b.SetCandidate(w)
		soon()
		if s := b.reason(w.Key(), ""); s.ID != "w" {
			t.Errorf("%+v", s)
		}
		wait(timeout)
		b.reason(w.Key(), Unreachable)
		b.sees(w.Key(), "w")
		if got := b.sighting(w.Key()).Addrs; got[0].String() != "192.0.2.1:6447" {
			t.Errorf("%v", got)
		}
		// However often it was asked in vain.
		wait(time.Hour)
		w.Addrs = []netip.AddrPort{netip.MustParseAddrPort("192.0.2.6:6447")}
		b.SetCandidate(w)
		wait(timeout + time.Second)
		b.near("next", time.Until(b.state(w.Key()).Next)+time.Second, firstRetry)
		w.Addrs = []netip.AddrPort{netip.MustParseAddrPort("192.0.2.7:6447")}
		b.SetCandidate(w)
		w.Addrs[0] = netip.AddrPort{} // it is the caller's
		b.world.put("https://w", boxOf("w"))
		wait(timeout + 6*time.Second)
		if got := b.sighting(w.Key()).Addrs; got[0].String() != "192.0.2.7:6447" {
			t.Errorf("%v", got)
		}
	})
}

// A candidate that is about somebody else now does not keep what was found.
func TestContradiction(t *testing.T) {
	for name, change := range map[string]func(Candidate) Candidate{
		"ID":  func(l Candidate) Candidate { return l.expecting("b") },
		"key": func(l Candidate) Candidate { return l.holding("b") },
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T, b *bed) {
				l := manual("https://a")
				b.world.put(l.URL, boxOf("a"))
				b.SetCandidate(l)
				soon()
				b.world.put(l.URL)
				b.SetCandidate(change(l))
				soon()
				b.sees(l.Key(), "")
				if why := b.absence("a"); why.Evidence != Expired {
					t.Errorf("%+v", why)
				}
				b.reason(l.Key(), NotProbed)
			})
		})
	}
	// What fits stays.
	in(t, func(t *testing.T, b *bed) {
		l := manual("https://a")
		b.world.put(l.URL, boxOf("a"))
		b.SetCandidate(l)
		soon()
		b.world.put(l.URL)
		b.SetCandidate(l.expecting("a"))
		soon()
		b.sees(l.Key(), "a")
		wait(timeout)
		b.SetCandidate(l.holding("a"))
		soon()
		b.sees(l.Key(), "a")
	})
}

// A person's URL that leads to another cluster than it is said to no longer
// vouches for that one.
func TestGivenURLIsWrong(t *testing.T) {
	in(t, func(t *testing.T, b *bed) {
		l := manual("https://a").expecting("a").holding("a")
		b.SetCandidate(l)
		soon()
		b.sees(l.Key(), "a")
		wait(timeout)
		b.reason(l.Key(), Unreachable)
		b.sees(l.Key(), "a")
		b.world.put(l.URL, boxOf("b"))
		wait(6 * time.Second)
		if s := b.reason(l.Key(), OtherCluster); s.ID != "b" || s.ClusterName != "name of b" || s.Fingerprint != keyOf("b") {
			t.Errorf("%+v", s)
		}
		b.sees(l.Key(), "")
		if p, known := b.Peer("a"); known {
			t.Errorf("%+v, which never answered", p)
		}
		b.world.put(l.URL)
		wait(time.Minute)
		b.reason(l.Key(), Unreachable)
		b.sees(l.Key(), "")
		// Other addresses are a new chance.
		l.Addrs = []netip.AddrPort{netip.MustParseAddrPort("192.0.2.9:6447")}
		b.SetCandidate(l)
		soon()
		b.sees(l.Key(), "a")
		b.world.put(l.URL, boxOf("a"))
		wait(time.Minute)
		b.reason(l.Key(), "")
		// What it answered stays until there is another answer.
		b.world.put(l.URL)
		l.Addrs = []netip.AddrPort{netip.MustParseAddrPort("192.0.2.10:6447")}
		b.SetCandidate(l)
		soon()
		if got := b.sighting(l.Key()); got.ClusterName != "name of a" || got.Addrs[0].String() != "192.0.2.9:6447" {
			t.Errorf("%+v", got)
		}
		b.world.put(l.URL, boxOf("b"))
		wait(time.Minute)
		b.sees(l.Key(), "")
		l.Addrs = nil
		b.SetCandidate(l)
		soon()
		b.reason(l.Key(), OtherCluster)
		if why := b.absence("a"); why.Evidence != Expired || why.Reason == "" {
			t.Errorf("%+v", why)
		}
		b.world.put(l.URL)
		b.world.put(l.URL, boxOf("a"))
		wait(6 * time.Minute)
		b.reason(l.Key(), "")
		b.sees(l.Key(), "a")
	})
}

// One of a host's addresses may be ours as well.
func TestOneAddressIsOurs(t *testing.T) {
	in(t, func(t *testing.T, b *bed) {
		l := wan("d", "https://a")
		b.world.put(l.URL, boxOf("self"), boxOf("a"))
		b.SetCandidate(l)
		soon()
		b.sees(l.Key(), "a")
		b.world.put(l.URL, boxOf("self"), box{not: client.ReasonUnreachable})
		wait(lookEvery * 2)
		b.reason(l.Key(), ThisCluster)
		b.sees(l.Key(), "a")
		b.world.put(l.URL, boxOf("self"), boxOf("self"))
		wait(lookEvery * 2)
		b.sees(l.Key(), "")
	})
}

func TestDrop(t *testing.T) {
	in(t, func(t *testing.T, b *bed) {
		found, slow, dead := wan("d", "https://a"), wan("d", "https://s"), wan("d", "https://x")
		b.world.put(found.URL, boxOf("a"))
		b.world.put(slow.URL, boxOf("s"))
		b.world.slows(slow.URL, timeout)
		said := wan("e", "https://e").expecting("e").holding("e")
		for _, l := range []Candidate{found, slow, dead, said} {
			b.SetCandidate(l)
		}
		soon()
		why := Absence{Reason: "it left", Evidence: Withdrawn}
		for _, l := range []Candidate{found, slow, dead, said} {
			b.changes(l.Key())
			b.DropCandidate(l.Key(), why)
		}
		b.DropCandidate(peer.Key{Instance: "unknown"}, why)
		soon()
		for _, l := range []Candidate{found, slow, dead} {
			if _, ok := b.Candidate(l.Key()); ok || b.changes(l.Key()) != 1 {
				t.Errorf("%v is still there", l.Key())
			}
		}
		b.sees(found.Key(), "")
		if got := b.absence("a"); got != why {
			t.Errorf("%+v", got)
		}
		wait(time.Hour)
		if p := b.Peers(); len(p) != 1 {
			t.Errorf("%+v", p) // the others never answered
		}
		b.sees(slow.Key(), "")
		if now, _ := b.world.under(""); len(b.world.called(slow.URL))+len(b.world.called(dead.URL)) != 2 || now != 0 {
			t.Errorf("asked on")
		}
		b.stop()
		if m := b.machine; len(m.candidates)+len(m.about)+m.jobs.Lanes()+m.given+len(m.seen) != 0 {
			t.Errorf("%d candidates, %d IDs, %d lanes, %d of persons, %d sightings", len(m.candidates), len(m.about), m.jobs.Lanes(), m.given, len(m.seen))
		}
		b.run()
		// And it may come back.
		b.SetCandidate(found)
		soon()
		b.sees(found.Key(), "a")
	})
}

// What was said while nobody listened counts: the last word about each candidate. And
// whoever says something does not wait for the registry.
func TestNeverBlocks(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newBed(t, nil)
		kept, dropped := wan("d", "https://a"), wan("d", "https://b")
		b.world.put("https://a", boxOf("a"))
		b.world.put("https://b", boxOf("b"))
		b.world.put("https://c", boxOf("c"))
		b.SetCandidate(dropped)
		b.DropCandidate(kept.Key(), Absence{})
		b.SetCandidate(kept)
		b.DropCandidate(dropped.Key(), Absence{})
		if _, ok := b.Candidate(kept.Key()); ok {
			t.Error("somebody listened")
		}
		b.block = make(chan struct{})
		b.run()
		defer b.stop()
		soon()
		b.SetCandidate(wan("d", "https://c"))
		b.Hold("a", true)
		soon()
		if _, ok := b.Candidate(wan("d", "https://c").Key()); ok {
			t.Error("the registry was not busy")
		}
		close(b.block)
		soon()
		b.sees(kept.Key(), "a")
		b.sees(wan("d", "https://c").Key(), "c")
		if _, ok := b.Candidate(dropped.Key()); ok {
			t.Error("it was dropped")
		}
		if n := len(b.world.called("https://a")); n != 1 {
			t.Errorf("asked %d times", n)
		}
	})
}

func TestLimit(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newBed(t, func(cfg *Config) { cfg.Limit = 2 })
		b.run()
		defer b.stop()
		for i := range 4 {
			b.SetCandidate(wan("d", fmt.Sprintf("https://d%d", i)))
			b.SetCandidate(manual(fmt.Sprintf("https://m%d", i)))
		}
		soon()
		if n := len(b.Candidates(func(peer.Key) bool { return true })); n != 4 || b.Stats().Refused != 4 {
			t.Errorf("%d candidates, %d refused", n, b.Stats().Refused)
		}
		if n := strings.Count(b.log(), "level=WARN"); n != 1 {
			t.Errorf("%d warnings", n)
		}
		b.DropCandidate(wan("d", "https://d0").Key(), Absence{})
		b.SetCandidate(wan("d", "https://d3"))
		b.SetCandidate(manual("https://m3"))
		soon()
		b.state(wan("d", "https://d3").Key())
		if _, ok := b.Candidate(manual("https://m3").Key()); ok {
			t.Error("there was room")
		}
	})
}

func TestStates(t *testing.T) {
	in(t, func(t *testing.T, b *bed) {
		for _, l := range []Candidate{wan("b", "https://2"), wan("a", "https://9"), wan("b", "https://1"), manual("https://m")} {
			b.SetCandidate(l)
		}
		soon()
		var got []string
		for _, s := range b.Candidates(func(k peer.Key) bool { return k.Domain != "a" }) {
			got = append(got, s.Candidate.URL)
		}
		if want := []string{"https://m", "https://1", "https://2"}; !slices.Equal(got, want) {
			t.Errorf("%v", got)
		}
	})
}

// A person is told in the log; what domains list is not worth a line.
func TestLog(t *testing.T) {
	in(t, func(t *testing.T, b *bed) {
		lines := func(want int, say string) {
			t.Helper()
			if got := b.log(); strings.Count(got, "\n") != want || !strings.Contains(got, say) {
				t.Errorf("%q, want %d lines with %q", got, want, say)
			}
		}
		l, w := manual("https://a"), wan("d", "https://w")
		b.SetCandidate(w)
		b.SetCandidate(l)
		wait(time.Hour)
		lines(1, "reason=Unreachable")
		b.world.put(l.URL, boxOf("a"))
		b.world.put(w.URL, boxOf("w"))
		wait(10 * time.Minute)
		lines(1, "id=a")
		b.world.put(l.URL, box{not: client.ReasonNotTLS})
		wait(time.Hour)
		lines(1, "reason=NotACluster")
	})
}

// Run ends with its probes, and goes on where it was when it is run again.
func TestRunAgain(t *testing.T) {
	within(t, func(cfg *Config) { cfg.Lookups = 1 }, func(t *testing.T, b *bed) {
		seen, slow := wan("d", "https://a"), wan("d", "https://s")
		b.world.put(seen.URL, boxOf("a"))
		b.world.put(slow.URL, boxOf("s"))
		b.world.slows(slow.URL, time.Second)
		b.SetCandidate(seen)
		soon()
		b.world.slows("https://x", 3*time.Second)
		b.world.deaf = true
		b.SetCandidate(wan("x", "https://x"))
		soon()
		began := time.Now()
		b.stop() // and waits for the probe
		if d := time.Since(began); d < 2*time.Second {
			t.Errorf("stopped after %v", d)
		}
		b.SetCandidate(slow)
		b.SetCandidate(wan("d", "https://b").expecting("b").holding("b"))
		b.DropCandidate(seen.Key(), Absence{Reason: "it left"})
		b.run()
		wait(timeout + 2*time.Second)
		b.reason(wan("x", "https://x").Key(), Unreachable)
		b.sees(seen.Key(), "")
		b.sees(slow.Key(), "s")
		b.sees(wan("d", "https://b").Key(), "b")
	})
}

// A check that was cut off by the end of Run is made again.
func TestCheckAgainAfterTheEnd(t *testing.T) {
	in(t, func(t *testing.T, b *bed) {
		s := peer.Sighting{Source: peer.LAN, Link: "eth0", Instance: "a", ClusterID: "a", Fingerprint: keyOf("a"),
			Addrs: []netip.AddrPort{netip.MustParseAddrPort("10.0.0.1:6447")}}
		if err := b.See(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		soon()
		b.stop()
		b.world.put("https://10.0.0.1:6447", boxOf("a"))
		b.run()
		soon()
		if p, _ := b.Peer("a"); p.Phase != peer.PhasePresent {
			t.Errorf("%+v", p)
		}
	})
}

// Whoever asks may not know our key, and report us like anybody else.
func TestWeAreNoPeer(t *testing.T) {
	us := client.Result{Identity: peer.Identity{ClusterID: self}, Fingerprint: selfKey}
	if v := judge(manual("https://a"), holder{self, selfKey}, peer.Fingerprint{}, us, nil); v.effect != takes || v.reason != ThisCluster {
		t.Errorf("%+v", v)
	}
}
