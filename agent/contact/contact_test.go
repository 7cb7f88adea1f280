package contact

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"liqo.io/agent/agent/recorder"
	"liqo.io/agent/endpoint"
	"liqo.io/agent/peer"
)

// What is made of a lead and of who is at its place. The recorder knows cluster
// "k" by its key, and nobody else.
func TestWhatLeadsAmountTo(t *testing.T) {
	const url = "https://m.example:6447"
	clone := host{id: "k", key: keyOf("stranger")}
	rows := []struct {
		name   string
		expect string // the expected ID
		key    string // the expected key
		at     []host
		manual Reason
		sees   peer.ClusterID // for a manual one, and for a domain's unless said
		domain Reason
		wan    peer.ClusterID
		next   time.Duration // of an asked one
	}{
		{name: "a cluster", at: []host{cluster("a")}, sees: "a", next: lookEvery},
		{name: "nobody", manual: Unreachable, next: firstRetry},
		{name: "no TLS", at: []host{{not: endpoint.ReasonNotTLS}}, manual: NoCluster, next: firstRetry},
		{name: "a web server", at: []host{{not: endpoint.ReasonBadAnswer}}, manual: NoCluster, next: firstRetry},
		{name: "ourselves", at: []host{cluster("self")}, manual: Ourselves, next: lookEvery},
		{name: "our clone", at: []host{{id: self, key: keyOf("clone")}}, manual: OtherKey, sees: self, next: firstRetry},
		{name: "a known one", at: []host{cluster("k")}, sees: "k", next: lookEvery},
		{name: "a known one's clone", at: []host{clone}, manual: OtherKey, sees: "k", next: firstRetry},
		{name: "a known one behind its clone", at: []host{clone, cluster("k")}, sees: "k", next: lookEvery},
		{name: "the expected ID", expect: "a", at: []host{cluster("a")}, sees: "a", next: lookEvery},
		{name: "another ID", expect: "a", at: []host{cluster("b")}, manual: OtherCluster, next: firstRetry},
		{name: "the expected ID behind another", expect: "a", at: []host{cluster("b"), cluster("a")}, sees: "a", next: lookEvery},
		{name: "the expected ID is not there", expect: "a", manual: Unreachable, next: firstRetry},
		{name: "the expected ID is ours", expect: "self", at: []host{cluster("self")}, manual: Ourselves, next: lookEvery},
		{name: "the expected key", key: "a", at: []host{cluster("a")}, sees: "a", next: lookEvery},
		{name: "another key", key: "a", at: []host{cluster("b")}, manual: OtherKey, next: firstRetry},
		{name: "the expected key is ours", key: "self", manual: Ourselves, next: lookEvery},
		// These are all that a sighting needs: that of a domain's the recorder looks at.
		{name: "the expected cluster", expect: "a", key: "a", at: []host{cluster("a")}, sees: "a", next: lookEvery},
		{name: "another cluster", expect: "a", key: "a", at: []host{cluster("b")}, manual: OtherCluster, wan: "a", domain: "", next: firstRetry},
		{name: "another key of the cluster", expect: "k", key: "k", at: []host{clone}, manual: OtherKey, wan: "k", next: firstRetry},
		{name: "the expected key is a clone's", key: "stranger", at: []host{clone, cluster("k")}, manual: OtherKey, domain: OtherKey, sees: "k", next: firstRetry},
		{name: "ourselves instead", expect: "a", key: "a", at: []host{cluster("self")}, manual: Ourselves, wan: "a", next: lookEvery},
		{name: "the expected cluster is not there", expect: "a", key: "a", manual: Unreachable, sees: "a", domain: "", next: firstRetry},
		{name: "known by another key", expect: "k", key: "stranger", at: []host{clone}, manual: OtherKey, sees: "k", domain: OtherKey, next: firstRetry},
		{name: "we are expected", expect: "self", key: "self", at: []host{cluster("self")}, manual: Ourselves, domain: Ourselves},
	}
	for _, row := range rows {
		for _, source := range []peer.Source{peer.Manual, peer.WAN} {
			t.Run(row.name+" "+string(source), func(t *testing.T) {
				in(t, func(t *testing.T, b *bed) {
					b.records.known["k"], b.records.elsewhere["k"] = keyOf("k"), true
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
					l.ID = peer.ClusterID(row.expect)
					if row.key != "" {
						l.Fingerprint = keyOf(row.key)
					}
					before := time.Now()
					b.Set(l)
					soon()
					if reason == Unreachable {
						b.reason(l.Key, Asking)
						wait(timeout)
						before = before.Add(timeout)
					}
					s := b.reason(l.Key, reason)
					b.sees(l.Key, sees)
					if next != 0 {
						b.near("next", s.Next.Sub(before), next)
					}
					if want := next == firstRetry; (s.Failures == 1) != want || !want && s.Failures != 0 {
						b.t.Errorf("%d failures", s.Failures)
					}
					if n := len(b.world.called(url)); (n == 0) != (row.expect == "self" && row.key == "self" || source == peer.WAN && row.expect != "" && row.key != "") {
						b.t.Errorf("asked %d times", n)
					}
					if reason == "" && (s.ID != sees || s.ClusterName != "name of "+string(sees) || s.Namespace != "liqo" || s.Fingerprint != keyOf(string(sees))) {
						b.t.Errorf("%+v", s)
					}
					if (len(b.proved) > 0) != (reason == "" && l.isAsked()) {
						b.t.Errorf("proved: %v", b.proved)
					}
				})
			})
		}
	}
}

// The sighting says what was answered, and for the rest what the lead says.
func TestSighting(t *testing.T) {
	in(t, func(t *testing.T, b *bed) {
		l := wan("example.com", "https://a.example:8443")
		l.ClusterName, l.Namespace = "liar", "elsewhere"
		b.world.put(l.URL, cluster("a"))
		b.Set(l)
		soon()
		want := peer.Sighting{Source: peer.WAN, Domain: "example.com", Instance: l.Key.Instance, ClusterID: "a", ClusterName: "name of a", Namespace: "liqo",
			Fingerprint: keyOf("a"), Version: "1", Addrs: l.Addrs, URL: l.URL, TTL: time.Minute}
		if got := b.records.sighting(l.Key); !got.Equal(want) {
			t.Errorf("%+v\nwant %+v", got, want)
		}
		// It was called by its name.
		target := b.world.called(l.URL)[0].target
		if len(target.Places) != 1 || target.Places[0].URL != l.URL || !slices.Equal(target.Places[0].Addrs, l.Addrs) || target.URL != "" || target.Addrs != nil {
			t.Errorf("%+v", target)
		}

		// A lead that says all is what it says.
		said := wan("example.com", "https://b.example").expecting("b").holding("b")
		said.ClusterName, said.Namespace = "barn", "ns"
		b.Set(said)
		soon()
		want = peer.Sighting{Source: peer.WAN, Domain: "example.com", Instance: said.Key.Instance, ClusterID: "b", ClusterName: "barn", Namespace: "ns",
			Fingerprint: keyOf("b"), Version: "1", Addrs: said.Addrs, URL: said.URL, TTL: time.Minute}
		if got := b.records.sighting(said.Key); !got.Equal(want) {
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
		b.world.put("https://a", cluster("a"))
		b.Set(asked)
		b.Set(said)
		soon()
		sees := b.records.told()
		// In another order the addresses are the same.
		asked.Addrs = []netip.AddrPort{addrs[1], addrs[0]}
		b.Set(asked)
		b.Set(said)
		soon()
		if b.records.told() != sees {
			t.Errorf("the same again was told")
		}
		for _, l := range []*Lead{&asked, &said} {
			l.TTL, l.Version, l.ClusterName, l.Namespace = time.Hour, "2", "new", "new"
			b.Set(*l)
		}
		soon()
		if got := b.records.sighting(asked.Key); got.TTL != time.Hour || got.Version != "2" || got.ClusterName != "name of a" || got.Namespace != "liqo" || !slices.Equal(got.Addrs, addrs) {
			t.Errorf("%+v", got)
		}
		if got := b.records.sighting(said.Key); got.TTL != time.Hour || got.Version != "2" || got.ClusterName != "new" || got.Namespace != "new" {
			t.Errorf("%+v", got)
		}
		if n := len(b.world.called("https://a")); n != 1 {
			t.Errorf("asked %d times", n)
		}
		if got := b.state(asked.Key).Lead; got.TTL != time.Hour || !slices.Equal(got.Addrs, addrs) {
			t.Errorf("%+v", got)
		}
		b.near("next", time.Until(b.state(asked.Key).Next), lookEvery)

		// Who has answered knows its name better than the lead.
		b.world.put("https://c", cluster("c"))
		given := manual("https://c").expecting("c").holding("c")
		b.Set(given)
		soon()
		given.ClusterName, given.TTL = "liar", time.Hour
		b.Set(given)
		soon()
		if got := b.records.sighting(given.Key); got.ClusterName != "name of c" || got.TTL != time.Hour {
			t.Errorf("%+v", got)
		}
		// And so did the one who said who is there, before one who does not.
		was := manual("https://x").expecting("x").holding("x")
		was.ClusterName = "barn"
		b.Set(was)
		soon()
		was.URL, was.ID, was.Fingerprint, was.ClusterName = "https://y", "", peer.Fingerprint{}, "liar"
		b.Set(was)
		soon()
		was.TTL = time.Hour
		b.Set(was)
		soon()
		if got := b.records.sighting(was.Key); got.ClusterName != "barn" || got.TTL != time.Hour {
			t.Errorf("%+v", got)
		}

		// Nobody is made to be seen who was not.
		b.world.put("https://m", cluster("b"))
		wrong := manual("https://m").expecting("a").holding("a")
		b.Set(wrong)
		soon()
		wrong.TTL = time.Second
		b.Set(wrong)
		soon()
		b.sees(wrong.Key, "")
	})
}

// A lead that says all is not asked; what the recorder makes of it is its state.
func TestRecorderLooksAtWhatIsSaid(t *testing.T) {
	in(t, func(t *testing.T, b *bed) {
		l := wan("d", "https://a").expecting("a").holding("a")
		b.records.dead["a"] = true
		b.Set(l)
		soon()
		if s := b.reason(l.Key, Unreachable); s.ID != "" || s.Failures != 1 || !strings.Contains(s.Message, "it does not answer") {
			t.Errorf("%+v", s)
		}
		b.records.change(func() { delete(b.records.dead, "a") }, "a")
		soon()
		if s := b.reason(l.Key, ""); s.ID != "a" || s.Failures != 0 || !s.Next.IsZero() {
			t.Errorf("%+v", s)
		}
		// The recorder followed it to a new key: the lead is as good as before.
		b.records.change(func() {
			b.records.known["a"] = keyOf("next")
			s := b.records.seen[l.Key]
			s.Fingerprint = keyOf("next")
			b.records.seen[l.Key] = s
		}, "a")
		soon()
		if s := b.reason(l.Key, ""); s.Fingerprint != keyOf("next") {
			t.Errorf("%+v", s)
		}
		sees := b.records.told()
		wait(time.Hour)
		if b.records.told() != sees {
			t.Errorf("the recorder was told of the old key again")
		}
		b.records.change(func() { b.records.dead["a"] = true }, "a")
		soon()
		b.reason(l.Key, Unreachable)
		b.records.change(func() { delete(b.records.dead, "a") }, "a")
		// The recorder forgot it, as it does with those who went longest ago when it
		// has no room: it is told again, ever more rarely.
		b.records.change(func() { clear(b.records.seen); clear(b.records.known) }, "a")
		soon()
		b.reason(l.Key, Asking)
		b.near("next", time.Until(b.state(l.Key).Next), firstRetry)
		wait(6 * time.Second)
		b.sees(l.Key, "a")
		b.reason(l.Key, "")
		b.records.change(func() {
			clear(b.records.seen)
			clear(b.records.known)
			b.records.full = true
		}, "a")
		sees = b.records.told()
		wait(30 * time.Minute)
		// After 5, 15, 35, 75, 155, 315 s, and then every five minutes.
		if n := b.records.told() - sees; n < 9 || n > 11 {
			t.Errorf("told %d times in half an hour", n)
		}
		if b.Ask(l.Key); len(b.world.called("https://a")) != 0 {
			t.Error("it was asked")
		}
	})
}

// Who does not answer is asked ever more rarely. What was found stays.
func TestBackoff(t *testing.T) {
	in(t, func(t *testing.T, b *bed) {
		l := manual("https://a")
		b.world.put(l.URL, cluster("a"))
		b.Set(l)
		soon()
		b.world.put(l.URL)
		b.records.change(func() { b.records.dead["a"] = true }, "a")
		soon()
		b.reason(l.Key, "")
		b.near("next", time.Until(b.state(l.Key).Next), firstRetry)
		b.world.called(l.URL)
		wait(time.Hour)
		calls := b.world.called(l.URL)
		b.near("after", time.Until(calls[0].at.Add(time.Hour)), firstRetry)
		want := 5 * time.Second
		for i := 1; i < len(calls); i++ {
			b.near(fmt.Sprintf("pause %d", i), calls[i].at.Sub(calls[i-1].at)-timeout, want)
			want = min(2*want, 5*time.Minute)
		}
		if s := b.reason(l.Key, Unreachable); s.Failures < 10 {
			t.Errorf("%+v", s)
		}
		b.sees(l.Key, "a")
		if n := b.changes(l.Key); n != 3 { // set, found, not found
			t.Errorf("told of %d changes", n)
		}
		b.world.put(l.URL, host{not: endpoint.ReasonBadAnswer})
		wait(10 * time.Minute)
		b.reason(l.Key, NoCluster)
		b.sees(l.Key, "a")
		// Whom it led to is seen elsewhere again: it may be back here, too.
		b.world.put(l.URL, cluster("a"))
		b.records.change(func() { delete(b.records.dead, "a") }, "a")
		b.world.called(l.URL)
		wait(6 * time.Second)
		s := b.reason(l.Key, "")
		if s.Failures != 0 {
			t.Errorf("%+v", s)
		}
		b.near("next", s.Next.Sub(b.world.called(l.URL)[0].at), lookEvery)
	})
}

// An expected cluster that comes up elsewhere has its place asked at once, and not
// when the backoff is over.
func TestExpectedAppears(t *testing.T) {
	in(t, func(t *testing.T, b *bed) {
		l := manual("https://a").expecting("a")
		b.Set(l)
		wait(time.Hour)
		b.reason(l.Key, Unreachable)
		b.world.put(l.URL, cluster("a"))
		b.records.change(func() { b.records.known["a"], b.records.elsewhere["a"] = keyOf("a"), true }, "a")
		wait(6 * time.Second)
		b.reason(l.Key, "")
	})
}

// Another cluster takes a place over.
func TestAnotherMovesIn(t *testing.T) {
	in(t, func(t *testing.T, b *bed) {
		l := wan("d", "https://a")
		b.world.put(l.URL, cluster("a"))
		b.Set(l)
		soon()
		first := b.world.called(l.URL)[0].at
		b.world.put(l.URL, cluster("b"))
		wait(lookEvery * 11 / 10)
		b.near("asked again", b.world.called(l.URL)[0].at.Sub(first), 10*time.Minute)
		if s := b.reason(l.Key, ""); s.ID != "b" {
			t.Errorf("%+v", s)
		}
		b.sees(l.Key, "b")
		if _, ok := b.records.absence(l.Key); ok {
			t.Error("the recorder was told that nobody is there") // it sees the replacement by itself
		}
		told := b.records.told()
		wait(time.Hour)
		if n := b.records.told() - told; n != 0 {
			t.Errorf("told %d times of what it knew", n)
		}
		// The one it led to dies, and it is asked soon.
		b.world.put(l.URL, cluster("c"))
		b.records.change(func() { b.records.dead["b"] = true }, "b")
		wait(6 * time.Second)
		b.sees(l.Key, "c")
	})
}

// While the recorder does not see whom it led to, a place is asked soon, and ever
// more rarely.
func TestAskedSoonWhileNotSeen(t *testing.T) {
	in(t, func(t *testing.T, b *bed) {
		b.records.dead["a"] = true
		l := wan("d", "https://a")
		b.world.put(l.URL, cluster("a"))
		b.Set(l)
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
		if s := b.reason(l.Key, ""); s.Failures != 0 {
			t.Errorf("%+v", s)
		}
		b.records.change(func() { delete(b.records.dead, "a") }, "a")
		soon()
		b.near("next", b.state(l.Key).Next.Sub(calls[len(calls)-1].at), lookEvery)
		b.records.change(func() { b.records.dead["a"] = true }, "a")
		soon()
		b.near("next", time.Until(b.state(l.Key).Next), firstRetry)
		wait(6 * time.Second)
		if next := time.Until(b.state(l.Key).Next); next > 2*firstRetry {
			t.Errorf("it is asked again in %v", next)
		}
	})
}

// The recorder forgot what it was told of a place, and sees the cluster elsewhere.
func TestForgotten(t *testing.T) {
	in(t, func(t *testing.T, b *bed) {
		b.records.elsewhere["a"] = true
		l := wan("d", "https://a")
		b.world.put(l.URL, cluster("a"))
		b.Set(l)
		soon()
		b.records.change(func() { clear(b.records.seen) }, "a")
		wait(6 * time.Second)
		b.sees(l.Key, "a")
		b.near("next", time.Until(b.state(l.Key).Next), lookEvery)
	})
}

// Of several clusters at one place the one that was there first stays, as long as
// it answers.
func TestSeveralAtOnePlace(t *testing.T) {
	in(t, func(t *testing.T, b *bed) {
		l := manual("https://a")
		b.world.put(l.URL, cluster("a"), cluster("b"))
		b.Set(l)
		soon()
		b.world.put(l.URL, cluster("b"), cluster("a"))
		wait(lookEvery * 2)
		b.sees(l.Key, "a")
		b.world.put(l.URL, cluster("b"))
		wait(lookEvery * 2)
		b.sees(l.Key, "b")
		// At another place it is nothing to the one that was there.
		l.URL = "https://b"
		b.world.put(l.URL, cluster("c"), cluster("b"))
		b.Set(l)
		soon()
		b.sees(l.Key, "c")
		// Who pretends to be a known cluster does not stay for having been there.
		l.URL = "https://c"
		b.world.put(l.URL, host{id: "c", key: keyOf("clone")})
		b.Set(l)
		soon()
		b.reason(l.Key, OtherKey)
		b.world.put(l.URL, cluster("c"), host{id: "c", key: keyOf("clone")})
		wait(lastRetry * 2)
		b.reason(l.Key, "")
	})
}

// A cluster that is known by another key is reported; once a person took the new
// key, the place leads to it.
func TestTrustedAnew(t *testing.T) {
	in(t, func(t *testing.T, b *bed) {
		b.records.known["a"] = keyOf("old")
		other := manual("https://old")
		b.world.put(other.URL, host{id: "a", key: keyOf("old")})
		b.Set(other)
		l := manual("https://a")
		b.world.put(l.URL, cluster("a"))
		b.Set(l)
		wait(time.Hour)
		if s := b.reason(l.Key, OtherKey); s.ID != "a" || s.Fingerprint != keyOf("a") || !strings.Contains(s.Message, "peers trust a") {
			t.Errorf("%+v", s)
		}
		b.records.change(func() { b.records.known["a"] = keyOf("a") }, "a")
		wait(6 * time.Second)
		b.reason(l.Key, "")
		b.near("next", time.Until(b.state(l.Key).Next), lookEvery)
	})
}

// A lead that leads elsewhere is asked at once. What was found stays until there
// is an answer; what an earlier attempt finds does not count.
func TestElsewhere(t *testing.T) {
	in(t, func(t *testing.T, b *bed) {
		l := manual("https://a")
		b.world.put("https://a", cluster("a"))
		b.Set(l)
		soon()
		l.URL = "https://b" // nobody is there
		b.Set(l)
		soon()
		if s := b.reason(l.Key, Asking); s.ID != "" || s.Lead.URL != "https://b" {
			t.Errorf("%+v", s)
		}
		b.sees(l.Key, "a")
		b.world.put("https://c", cluster("c"))
		l.URL = "https://c"
		b.Set(l)
		soon()
		b.reason(l.Key, "")
		b.sees(l.Key, "c")
		if got := b.records.sighting(l.Key).URL; got != "https://c" {
			t.Error(got)
		}
		wait(2 * timeout)
		b.reason(l.Key, "")

		// While an attempt goes on, a changed lead does not wait for it.
		b.world.put("https://slow", cluster("s"))
		b.world.slows("https://slow", timeout)
		l.URL = "https://slow"
		b.Set(l)
		soon()
		l.URL = "https://a"
		b.Set(l)
		soon()
		b.sees(l.Key, "a")
		wait(2 * timeout)
		b.sees(l.Key, "a")
		if n, _ := b.world.under(""); n != 0 {
			t.Errorf("%d attempts under way", n)
		}

		// Other addresses of the same host are asked at once, and change nothing before.
		w := wan("d", "https://w")
		b.world.put("https://w", cluster("w"))
		b.Set(w)
		soon()
		b.world.put("https://w")
		b.changes(w.Key)
		w.Addrs = []netip.AddrPort{netip.MustParseAddrPort("192.0.2.7:6447")}
		b.Set(w)
		soon()
		if s := b.reason(w.Key, ""); s.ID != "w" {
			t.Errorf("%+v", s)
		}
		wait(timeout)
		b.reason(w.Key, Unreachable)
		b.sees(w.Key, "w")
		if got := b.records.sighting(w.Key).Addrs; got[0].String() != "192.0.2.1:6447" {
			t.Errorf("%v", got)
		}
		// However often it was asked in vain.
		wait(time.Hour)
		w.Addrs = []netip.AddrPort{netip.MustParseAddrPort("192.0.2.6:6447")}
		b.Set(w)
		wait(timeout + time.Second)
		b.near("next", time.Until(b.state(w.Key).Next)+time.Second, firstRetry)
		w.Addrs = []netip.AddrPort{netip.MustParseAddrPort("192.0.2.7:6447")}
		b.Set(w)
		w.Addrs[0] = netip.AddrPort{} // it is the caller's
		b.world.put("https://w", cluster("w"))
		wait(timeout + 6*time.Second)
		if got := b.records.sighting(w.Key).Addrs; got[0].String() != "192.0.2.7:6447" {
			t.Errorf("%v", got)
		}
	})
}

// A lead that is about somebody else now does not keep what was found.
func TestContradiction(t *testing.T) {
	for name, change := range map[string]func(Lead) Lead{
		"ID":  func(l Lead) Lead { return l.expecting("b") },
		"key": func(l Lead) Lead { return l.holding("b") },
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T, b *bed) {
				l := manual("https://a")
				b.world.put(l.URL, cluster("a"))
				b.Set(l)
				soon()
				b.world.put(l.URL)
				b.Set(change(l))
				soon()
				b.sees(l.Key, "")
				if why, _ := b.records.absence(l.Key); !why.Expired || why.Said {
					t.Errorf("%+v", why)
				}
				b.reason(l.Key, Asking)
			})
		})
	}
	// What fits stays.
	in(t, func(t *testing.T, b *bed) {
		l := manual("https://a")
		b.world.put(l.URL, cluster("a"))
		b.Set(l)
		soon()
		b.world.put(l.URL)
		b.Set(l.expecting("a"))
		soon()
		b.sees(l.Key, "a")
		wait(timeout)
		b.Set(l.holding("a"))
		soon()
		b.sees(l.Key, "a")
	})
}

// A person's URL that leads to another cluster than it is said to no longer
// vouches for that one.
func TestGivenURLIsWrong(t *testing.T) {
	in(t, func(t *testing.T, b *bed) {
		l := manual("https://a").expecting("a").holding("a")
		b.Set(l)
		soon()
		b.sees(l.Key, "a")
		wait(timeout)
		b.reason(l.Key, Unreachable)
		b.sees(l.Key, "a")
		b.world.put(l.URL, cluster("b"))
		wait(6 * time.Second)
		if s := b.reason(l.Key, OtherCluster); s.ID != "b" || s.ClusterName != "name of b" || s.Fingerprint != keyOf("b") {
			t.Errorf("%+v", s)
		}
		b.sees(l.Key, "")
		if why, _ := b.records.absence(l.Key); !why.Expired || why.Said || why.Reason == "" {
			t.Errorf("%+v", why)
		}
		b.world.put(l.URL)
		wait(time.Minute)
		b.reason(l.Key, Unreachable)
		b.sees(l.Key, "")
		// Other addresses are a new chance.
		l.Addrs = []netip.AddrPort{netip.MustParseAddrPort("192.0.2.9:6447")}
		b.Set(l)
		soon()
		b.sees(l.Key, "a")
		b.world.put(l.URL, cluster("a"))
		wait(time.Minute)
		b.reason(l.Key, "")
		// What it answered stays until there is another answer.
		b.world.put(l.URL)
		l.Addrs = []netip.AddrPort{netip.MustParseAddrPort("192.0.2.10:6447")}
		b.Set(l)
		soon()
		if got := b.records.sighting(l.Key); got.ClusterName != "name of a" || got.Addrs[0].String() != "192.0.2.9:6447" {
			t.Errorf("%+v", got)
		}
		b.world.put(l.URL, cluster("b"))
		wait(time.Minute)
		b.sees(l.Key, "")
		l.Addrs = nil
		b.Set(l)
		soon()
		b.reason(l.Key, OtherCluster)
		if n := b.records.absences(l.Key); n != 3 {
			t.Errorf("%d times nobody was there", n) // the new chance was taken and lost
		}
		b.world.put(l.URL)
		b.world.put(l.URL, cluster("a"))
		wait(6 * time.Minute)
		b.reason(l.Key, "")
		b.sees(l.Key, "a")
	})
}

// One of a host's addresses may be ours as well.
func TestOneAddressIsOurs(t *testing.T) {
	in(t, func(t *testing.T, b *bed) {
		l := wan("d", "https://a")
		b.world.put(l.URL, cluster("self"), cluster("a"))
		b.Set(l)
		soon()
		b.sees(l.Key, "a")
		b.world.put(l.URL, cluster("self"), host{not: endpoint.ReasonUnreachable})
		wait(lookEvery * 2)
		b.reason(l.Key, Ourselves)
		b.sees(l.Key, "a")
		b.world.put(l.URL, cluster("self"), cluster("self"))
		wait(lookEvery * 2)
		b.sees(l.Key, "")
	})
}

func TestDrop(t *testing.T) {
	in(t, func(t *testing.T, b *bed) {
		found, slow, dead := wan("d", "https://a"), wan("d", "https://s"), wan("d", "https://x")
		b.world.put(found.URL, cluster("a"))
		b.world.put(slow.URL, cluster("s"))
		b.world.slows(slow.URL, timeout)
		said := wan("e", "https://e").expecting("e").holding("e")
		b.records.dead["e"] = true
		for _, l := range []Lead{found, slow, dead, said} {
			b.Set(l)
		}
		soon()
		why := recorder.Absence{Reason: "it left", Said: true}
		for _, l := range []Lead{found, slow, dead, said} {
			b.changes(l.Key)
			b.Drop(l.Key, why)
		}
		b.Drop(peer.Key{Instance: "unknown"}, why)
		soon()
		for _, l := range []Lead{found, slow, dead} {
			if _, ok := b.State(l.Key); ok || b.changes(l.Key) != 1 {
				t.Errorf("%v is still there", l.Key)
			}
		}
		b.sees(found.Key, "")
		if got, _ := b.records.absence(found.Key); got != why {
			t.Errorf("%+v", got)
		}
		for _, l := range []Lead{slow, dead} {
			if _, ok := b.records.absence(l.Key); ok {
				t.Errorf("the recorder heard of %v", l.Key)
			}
		}
		wait(time.Hour)
		b.sees(slow.Key, "")
		if now, _ := b.world.under(""); len(b.world.called(slow.URL))+len(b.world.called(dead.URL)) != 2 || now != 0 {
			t.Errorf("asked on")
		}
		b.stop()
		if len(b.leads)+len(b.byID)+len(b.schedule.groups)+b.count[persons]+b.count[domains] != 0 {
			t.Errorf("%d leads, %d IDs, %d groups, %v", len(b.leads), len(b.byID), len(b.schedule.groups), b.count)
		}
		b.run()
		// And it may come back.
		b.Set(found)
		soon()
		b.sees(found.Key, "a")
	})
}

func TestAsk(t *testing.T) {
	in(t, func(t *testing.T, b *bed) {
		l := manual("https://a")
		b.Set(l)
		wait(time.Hour)
		b.world.put(l.URL, cluster("a"))
		b.Ask(l.Key)
		b.Ask(peer.Key{Instance: "unknown"})
		soon()
		b.reason(l.Key, "")
		// During an attempt it is asked once more after it.
		b.world.slows(l.URL, time.Second)
		b.world.called(l.URL)
		b.Ask(l.Key)
		soon()
		b.Ask(l.Key)
		b.Ask(l.Key)
		soon()
		b.Ask(l.Key)
		wait(3 * time.Second)
		if n := len(b.world.called(l.URL)); n != 2 {
			t.Errorf("asked %d times", n)
		}
		b.near("next", time.Until(b.state(l.Key).Next), lookEvery)
		// What is dropped is not asked.
		b.Ask(l.Key)
		b.Drop(l.Key, recorder.Absence{})
		soon()
		if n := len(b.world.called(l.URL)); n != 0 {
			t.Errorf("asked %d times", n)
		}
	})
}

// What was said while nobody listened counts: the last word about each lead. And
// whoever says something does not wait for the recorder.
func TestNeverBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, nil)
		kept, dropped := wan("d", "https://a"), wan("d", "https://b")
		b.world.put("https://a", cluster("a"))
		b.world.put("https://b", cluster("b"))
		b.world.put("https://c", cluster("c"))
		b.Set(dropped)
		b.Drop(kept.Key, recorder.Absence{})
		b.Ask(kept.Key)
		b.Set(kept)
		b.Drop(dropped.Key, recorder.Absence{})
		if _, ok := b.State(kept.Key); ok {
			t.Error("somebody listened")
		}
		b.records.block = make(chan struct{})
		b.run()
		defer b.stop()
		soon()
		b.Set(wan("d", "https://c"))
		b.Ask(kept.Key)
		b.Touch("a")
		soon()
		if _, ok := b.State(wan("d", "https://c").Key); ok {
			t.Error("the recorder did not block")
		}
		close(b.records.block)
		soon()
		b.sees(kept.Key, "a")
		b.sees(wan("d", "https://c").Key, "c")
		if _, ok := b.State(dropped.Key); ok {
			t.Error("it was dropped")
		}
		if n := len(b.world.called("https://a")); n != 2 {
			t.Errorf("asked %d times", n)
		}
	})
}

func TestLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, func(cfg *Config) { cfg.Limit = 2 })
		b.run()
		defer b.stop()
		for i := range 4 {
			b.Set(wan("d", fmt.Sprintf("https://d%d", i)))
			b.Set(manual(fmt.Sprintf("https://m%d", i)))
		}
		soon()
		if n := len(b.States(func(peer.Key) bool { return true })); n != 4 || b.Refused() != 4 {
			t.Errorf("%d leads, %d refused", n, b.Refused())
		}
		if n := strings.Count(b.log(), "level=WARN"); n != 1 {
			t.Errorf("%d warnings", n)
		}
		b.Drop(wan("d", "https://d0").Key, recorder.Absence{})
		b.Set(wan("d", "https://d3"))
		b.Set(manual("https://m3"))
		soon()
		b.state(wan("d", "https://d3").Key)
		if _, ok := b.State(manual("https://m3").Key); ok {
			t.Error("there was room")
		}
	})
}

func TestStates(t *testing.T) {
	in(t, func(t *testing.T, b *bed) {
		for _, l := range []Lead{wan("b", "https://2"), wan("a", "https://9"), wan("b", "https://1"), manual("https://m")} {
			b.Set(l)
		}
		soon()
		var got []string
		for _, s := range b.States(func(k peer.Key) bool { return k.Domain != "a" }) {
			got = append(got, s.Lead.URL)
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
		b.Set(w)
		b.Set(l)
		wait(time.Hour)
		lines(1, "reason=Unreachable")
		b.world.put(l.URL, cluster("a"))
		b.world.put(w.URL, cluster("w"))
		wait(10 * time.Minute)
		lines(1, "id=a")
		b.world.put(l.URL, host{not: endpoint.ReasonNotTLS})
		wait(time.Hour)
		lines(1, "reason=NotACluster")
	})
}

// When the recorder fails, Run ends, and goes on where it was when it is run again.
func TestRunAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, func(cfg *Config) { cfg.Parallel = 1 })
		seen, slow := wan("d", "https://a"), wan("d", "https://s")
		b.world.put(seen.URL, cluster("a"))
		b.world.put(slow.URL, cluster("s"))
		b.world.slows(slow.URL, time.Second)
		b.run()
		b.Set(seen)
		soon()
		b.world.slows("https://x", 3*time.Second)
		b.world.deaf = true
		b.Set(wan("x", "https://x"))
		soon()
		began := time.Now()
		b.stop() // and waits for the attempt
		if d := time.Since(began); d < 2*time.Second {
			t.Errorf("stopped after %v", d)
		}
		b.records.fail = errors.New("the recorder is broken")
		b.Set(slow)
		b.Set(wan("d", "https://b").expecting("b").holding("b"))
		b.Drop(seen.Key, recorder.Absence{Reason: "it left"})
		if err := b.Run(t.Context()); !errors.Is(err, b.records.fail) {
			t.Errorf("%v", err)
		}
		b.records.fail = nil
		b.run()
		defer b.stop()
		wait(timeout + 2*time.Second)
		b.reason(wan("x", "https://x").Key, Unreachable)
		b.sees(seen.Key, "")
		b.sees(slow.Key, "s")
		b.sees(wan("d", "https://b").Key, "b")
	})
}

// Whoever asks may not know our key, and report us like anybody else.
func TestWeAreNoPeer(t *testing.T) {
	us := endpoint.Result{Identity: peer.Identity{ClusterID: self}, Fingerprint: selfKey}
	if v := judge(manual("https://a"), holder{self, selfKey}, holder{}, us, nil); v.effect != takes || v.reason != Ourselves {
		t.Errorf("%+v", v)
	}
}
