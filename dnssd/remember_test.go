package dnssd

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"liqo.io/agent/dnssd/resolver"
	"liqo.io/agent/internal/bubble"
)

// TestNotAnsweredIsNotGone has steps on one domain: what fails, and what is reported.
func TestNotAnsweredIsNotGone(t *testing.T) {
	const zoneText = classic + `
_liqo._tcp.example.com. PTR own.example.com.
own.example.com. SRV 0 0 1 host.example.com.
host.example.com. A 10.0.0.1
host.example.com. AAAA 2001:db8::1
b._dns-sd._udp.example.com. PTR lab.example.net.
_liqo._tcp.lab.example.net. PTR far.example.net.
far.example.net. SRV 0 0 1 host.example.com.
`
	const one, two, own, far = "liqo-cluster.example.com", "liqo-cluster-2.example.com", "own.example.com", "far.example.net"
	all := strings.Join([]string{far, two, one, own}, " ")
	without := func(text string, drop ...string) string {
		var keep []string
		for l := range strings.Lines(text) {
			ok := true
			for _, d := range drop {
				ok = ok && !strings.HasPrefix(strings.TrimSpace(l), d)
			}
			if ok {
				keep = append(keep, l)
			}
		}
		return strings.Join(keep, "")
	}
	type step struct {
		fail      string // "name TYPE=Outcome", or "name=Outcome", or "all=Outcome"
		zone      string // "": as before
		outcome   resolver.Outcome
		complete  bool
		instances string
		skipped   string
	}
	for _, tc := range []struct {
		name  string
		steps []step
	}{
		{"everything fails and recovers", []step{
			{fail: "all=Timeout", outcome: resolver.Timeout, instances: far + "? " + two + "? " + one + "? " + own + "?"},
			{fail: "all=Unreachable", outcome: resolver.Unreachable, instances: far + "? " + two + "? " + one + "? " + own + "?"},
			{outcome: resolver.Found, complete: true, instances: all},
		}},
		{"one list fails", []step{
			{fail: "example.com=ServerFailure", outcome: resolver.Found, complete: true, instances: far + " " + two + "? " + one + "? " + own},
			{outcome: resolver.Found, complete: true, instances: all},
		}},
		{"another list fails while the rest leaves", []step{
			{fail: "_liqo._tcp.example.com=Refused", zone: without(zoneText, "example.com.", "PTR"), outcome: resolver.Found, complete: true, instances: far + " " + own + "?"},
			{outcome: resolver.Found, complete: true, instances: far + " " + own},
		}},
		{"the further domain fails while the rest leaves", []step{
			{fail: "_liqo._tcp.lab.example.net=Refused", zone: without(zoneText, "example.com.", "PTR", "_liqo._tcp.example.com."), outcome: resolver.Refused, complete: true, instances: far + "?"},
		}},
		{"naming the further domain fails: it is still looked at", []step{
			{fail: "b._dns-sd._udp.example.com=Refused", outcome: resolver.Found, complete: true, instances: all},
			{fail: "b._dns-sd._udp.example.com=Refused", zone: without(zoneText, "_liqo._tcp.lab"), outcome: resolver.Found, complete: true, instances: two + " " + one + " " + own},
		}},
		{"the further domain is named no more", []step{
			{zone: without(zoneText, "b._dns-sd"), outcome: resolver.Found, complete: true, instances: two + " " + one + " " + own},
		}},
		{"the further domain is named no more, while nothing else answers", []step{
			{zone: without(zoneText, "b._dns-sd"), fail: "example.com=Timeout, _liqo._tcp.example.com=Timeout", outcome: resolver.Timeout, instances: far + "? " + two + "? " + one + "? " + own + "?"},
			{outcome: resolver.Found, complete: true, instances: two + " " + one + " " + own},
		}},
		{"a record fails", []step{
			{fail: one + " SRV=ServerFailure, " + own + " TXT=Timeout", outcome: resolver.Found, complete: true, instances: far + " " + two + " " + one + "? " + own + "?"},
			{outcome: resolver.Found, complete: true, instances: all},
		}},
		{"all addresses fail", []step{
			{fail: "host.example.com=ServerFailure", outcome: resolver.Found, complete: true, instances: far + "? " + two + " " + one + " " + own + "?"},
		}},
		{"some addresses fail: those known before are used", []step{
			{fail: "host.example.com AAAA=ServerFailure", outcome: resolver.Found, complete: true, instances: all},
			{fail: "host.example.com A=ServerFailure", outcome: resolver.Found, complete: true, instances: all},
		}},
		{"the records go and come back", []step{
			{zone: without(zoneText, "auth.server.example.com."), outcome: resolver.Found, complete: true, instances: far + " " + two + " " + own, skipped: one + "=NoAddress"},
			{fail: one + " SRV=Timeout", outcome: resolver.Found, complete: true, instances: far + " " + two + " " + own, skipped: one + "=LookupFailed"},
			{zone: zoneText, outcome: resolver.Found, complete: true, instances: all},
		}},
		{"all leave", []step{
			{zone: "example.com. TXT x", outcome: resolver.NoData, complete: true},
			{fail: "all=Timeout", outcome: resolver.Timeout},
		}},
		{"nobody leaves because the last list is not answered", []step{
			{zone: "example.com. TXT x", fail: "example.com=ServerFailure", outcome: resolver.ServerFailure, instances: far + "? " + two + "? " + one + "? " + own + "?"},
			{outcome: resolver.NoData, complete: true},
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			z := newZone(t, zoneText)
			k := newLooker(z)
			first := k.look(context.Background())
			if names(first) != all {
				t.Fatalf("at first: %s", names(first))
			}
			for n, s := range tc.steps {
				if s.zone != "" {
					z.set(t, s.zone)
				}
				clear(z.fail)
				for f := range strings.SplitSeq(s.fail, ", ") {
					if what, outcome, ok := strings.Cut(f, "="); ok {
						z.fail[strings.TrimPrefix(what, "all")] = resolver.Outcome(outcome)
					}
				}
				k.memory.expire()
				r := k.look(context.Background())
				valid(t, r)
				if r.Outcome != s.outcome || r.Complete != s.complete || names(r) != s.instances || skipped(r) != s.skipped {
					t.Fatalf("step %d: %s, complete %t, instances %s, skipped %s: %s", n+1, r.Outcome, r.Complete, orNone(names(r)), orNone(skipped(r)), r.Message)
				}
				for _, i := range r.Instances {
					was := instanceNamed(t, first, i.Name)
					was.Stale = i.Stale
					if fmt.Sprint(i) != fmt.Sprint(was) {
						t.Errorf("step %d: %+v, before %+v", n+1, i, was)
					}
				}
			}
		})
	}
}

// TestOnlyWhatIsDueIsAsked counts the questions of an hour and a half.
func TestOnlyWhatIsDueIsAsked(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		z := newZone(t, strings.ReplaceAll(classic, "example.com. PTR", "example.com. 60 PTR"))
		z.negative = time.Hour
		k := newLooker(z)
		k.domain.MaxInterval = 2 * time.Hour
		begin := time.Now()
		total := make(map[string]int)
		looks := 0
		for time.Since(begin) < 90*time.Minute {
			k.look(t.Context())
			looks++
			_, asked := z.count()
			for q, n := range asked {
				total[q] += n
			}
			next := k.memory.next(time.Now(), k.domain, 0)
			time.Sleep(time.Until(next))
		}
		if looks != 90 || total["example.com PTR"] != 90 {
			t.Errorf("%d looks, asked for the list %d times", looks, total["example.com PTR"])
		}
		for q, n := range total {
			if q != "example.com PTR" && n != 2 {
				t.Errorf("%s was asked %d times, TTL 1 h", q, n)
			}
		}
	})
}

func TestAlmostDueIsAskedAlong(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		z := newZone(t, `
example.com. 600 PTR box.example.com.
box.example.com. 630 SRV 0 0 1 host.example.com.
host.example.com. 1200 A 10.0.0.1`)
		z.negative = time.Hour
		k := newLooker(z)
		k.look(t.Context())
		z.count()
		time.Sleep(539 * time.Second) // not yet 90 % of 600 s
		k.look(t.Context())
		if n, asked := z.count(); n != 0 {
			t.Errorf("asked %v", asked)
		}
		time.Sleep(61 * time.Second)
		k.look(t.Context())
		if n, asked := z.count(); n != 2 || asked["example.com PTR"] != 1 || asked["box.example.com SRV"] != 1 {
			t.Errorf("asked %v", asked)
		}
	})
}

func TestTimeOfTheNextLook(t *testing.T) {
	const s = time.Second
	for _, tc := range []struct {
		name     string
		ttl      int
		negative time.Duration
		min, max time.Duration
		random   float64
		want     time.Duration
	}{
		{"least TTL", 120, time.Hour, 30 * s, time.Hour, 0, 120 * s},
		{"negative answers count", 3600, 90 * s, 30 * s, time.Hour, 0, 90 * s},
		{"no less than min", 5, time.Hour, 30 * s, time.Hour, 0, 30 * s},
		{"no more than max", 86400, 24 * time.Hour, 30 * s, time.Hour, 0, time.Hour},
		{"no SOA", 3600, 0, 30 * s, time.Hour, 0, 30 * s},
		{"jitter", 100, time.Hour, 30 * s, time.Hour, 0.5, 95 * s},
		{"most jitter", 100, time.Hour, 30 * s, time.Hour, 1, 90 * s},
		{"jitter never below min", 31, time.Hour, 30 * s, time.Hour, 1, 30 * s},
	} {
		bubble.Test(t, func(t *testing.T) {
			z := newZone(t, fmt.Sprintf("example.com. %d PTR box.example.com.\nbox.example.com. SRV 0 0 0 .", tc.ttl))
			z.negative = tc.negative
			k := newLooker(z)
			k.domain.MinInterval, k.domain.MaxInterval = tc.min, tc.max
			k.look(t.Context())
			if got := time.Until(k.memory.next(time.Now(), k.domain, tc.random)); got != tc.want {
				t.Errorf("%s: %s, want %s", tc.name, got, tc.want)
			}
		})
	}
}

func TestBackoff(t *testing.T) {
	for _, tc := range []struct {
		min, max time.Duration
		want     string
	}{
		{30 * time.Second, 10 * time.Minute, "[30s 1m0s 2m0s 4m0s 8m0s 10m0s 10m0s]"},
		{time.Second, time.Minute, "[5s 10s 20s 40s 1m0s 1m0s 1m0s]"},
		{time.Second, 2 * time.Second, "[2s 2s 2s 2s 2s 2s 2s]"},
	} {
		bubble.Test(t, func(t *testing.T) {
			z := newZone(t, classic)
			z.failing("", resolver.Timeout)
			k := newLooker(z)
			k.domain.MinInterval, k.domain.MaxInterval = tc.min, tc.max
			var waits []time.Duration
			for range 7 {
				k.look(t.Context())
				if n, asked := z.count(); n != 3 {
					t.Fatalf("asked %v", asked)
				}
				next := k.memory.next(time.Now(), k.domain, 0)
				waits = append(waits, time.Until(next))
				time.Sleep(time.Until(next))
			}
			if fmt.Sprint(waits) != tc.want {
				t.Errorf("waits %v, want %s", waits, tc.want)
			}
			// An answer ends it.
			z.failing("", "")
			k.look(t.Context())
			z.failing("", resolver.Timeout)
			k.memory.expire()
			k.look(t.Context())
			if got := time.Until(k.memory.next(time.Now(), k.domain, 0)); got != waits[0] {
				t.Errorf("after an answer: %s", got)
			}
		})
	}
}

// TestOneBrokenRecordIsAskedForLessAndLess beside others that are fine.
func TestOneBrokenRecordIsAskedForLessAndLess(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		z := newZone(t, strings.ReplaceAll(classic, "example.com. PTR", "example.com. 60 PTR"))
		z.negative = time.Hour
		z.failing("liqo-cluster.example.com SRV", resolver.ServerFailure)
		k := newLooker(z)
		begin := time.Now()
		asked := 0
		for time.Since(begin) < time.Hour-time.Second {
			k.look(t.Context())
			_, all := z.count()
			asked += all["liqo-cluster.example.com SRV"]
			time.Sleep(time.Until(k.memory.next(time.Now(), k.domain, 0)))
		}
		if asked < 6 || asked > 9 { // 30 s, 1, 2, 4, 8, 16, 32 min apart
			t.Errorf("asked for it %d times in an hour", asked)
		}
	})
}

// TestTTLIsThatOfTheRecords although a server between counts it down.
func TestTTLIsThatOfTheRecords(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		text := func(ttl int) string {
			return fmt.Sprintf("example.com. %d PTR box.example.com.\nbox.example.com. %d SRV 0 0 1 host.example.com.\nhost.example.com. %d A 10.0.0.1", ttl, ttl, ttl)
		}
		z := newZone(t, text(300))
		k := newLooker(z)
		for _, ttl := range []int{300, 12, 299, 1, 150, 60} {
			z.set(t, text(ttl))
			k.memory.expire()
			if got := k.look(t.Context()).Instances[0].TTL; got != 300*time.Second {
				t.Errorf("TTL %s after an answer with %d s", got, ttl)
			}
			time.Sleep(time.Minute)
		}
		// It was lowered: the old one is forgotten after a while.
		for range 5 {
			time.Sleep(time.Hour)
			k.memory.expire()
			k.look(t.Context())
		}
		if got := k.look(t.Context()).Instances[0].TTL; got != time.Minute {
			t.Errorf("TTL %s, the records have 1m0s", got)
		}
	})
}

func TestRotatedAnswersChangeNothing(t *testing.T) {
	z := newZone(t, `
example.com. PTR a.example.com.
example.com. PTR b.example.com.
a.example.com. SRV 0 0 1 h1.example.com.
a.example.com. SRV 0 0 1 h2.example.com.
a.example.com. SRV 0 5 1 h3.example.com.
b.example.com. SRV 0 0 1 h1.example.com.
a.example.com. TXT "id=one"
a.example.com. TXT "id=two"
h1.example.com. A 10.0.0.1
h1.example.com. A 10.0.0.2
h2.example.com. A 10.0.0.3
h3.example.com. A 10.0.0.4
h3.example.com. AAAA 2001:db8::4
h3.example.com. AAAA 2001:db8::3`)
	k := newLooker(z)
	first := k.look(context.Background())
	for n := range 10 {
		for owner, rrs := range z.records {
			z.records[owner] = append(rrs[1:len(rrs):len(rrs)], rrs[0])
		}
		k.memory.expire()
		if r := k.look(context.Background()); fmt.Sprint(r.Instances) != fmt.Sprint(first.Instances) {
			t.Fatalf("rotation %d: %+v, before %+v", n, r.Instances, first.Instances)
		}
	}
}

// TestWhatIsRememberedIsWhatIsNeeded: the questions of a report, and no more.
func TestWhatIsRememberedIsWhatIsNeeded(t *testing.T) {
	z := newZone(t, classic)
	k := newLooker(z)
	k.look(context.Background())
	if len(k.memory.topics) != 11 {
		t.Errorf("%d topics", len(k.memory.topics))
	}
	// A list that is not answered keeps what belongs to its instances...
	z.failing("example.com PTR", resolver.Timeout)
	for range 3 {
		k.memory.topics[question{"example.com", dns.TypePTR}].now = true
		k.look(context.Background())
	}
	if len(k.memory.topics) != 11 {
		t.Errorf("%d topics while the list is not answered", len(k.memory.topics))
	}
	z.count()
	z.failing("example.com PTR", "")
	k.memory.retry()
	if r := k.look(context.Background()); r.Queries != 1 || names(r) == "" {
		t.Errorf("%d questions after that: %s", r.Queries, names(r))
	}
	// ... and one that is answered does not keep what it no longer lists.
	for i := range 50 {
		z.set(t, fmt.Sprintf("example.com. PTR box%d.example.com.\nbox%d.example.com. SRV 0 0 1 host%d.example.com.\nhost%d.example.com. A 10.0.0.1", i, i, i, i))
		k.memory.topics[question{"example.com", dns.TypePTR}].now = true
		k.look(context.Background())
		if len(k.memory.topics) != 3+4 || len(k.memory.instances) != 1 {
			t.Fatalf("%d topics, %d instances", len(k.memory.topics), len(k.memory.instances))
		}
	}
}

func TestALookThatIsCutShortChangesNothing(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		z := newZone(t, classic)
		k := newLooker(z)
		want := names(k.look(t.Context()))
		z.slow["example.com PTR"] = time.Minute
		z.set(t, "other.net. TXT x")
		k.memory.expire()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if r := k.look(ctx); r.Domain != "" || r.Instances != nil {
			t.Errorf("report %+v", r)
		}
		if k.memory.topics[question{"example.com", dns.TypePTR}].failure != nil {
			t.Error("what was cut short counts as a failure")
		}
		z.failing("", resolver.Timeout)
		if r := k.look(t.Context()); strings.ReplaceAll(names(r), "?", "") != want {
			t.Errorf("%s", names(r))
		}
	})
}

// TestAnswersHoldBetweenTheIntervals: for no longer than MaxInterval and no less than
// MinInterval.
func TestAnswersHoldBetweenTheIntervals(t *testing.T) {
	for _, tc := range []struct {
		ttl   int
		after time.Duration
		asked bool
	}{
		{86400, 50 * time.Minute, false},
		{86400, time.Hour, true},
		{1, 20 * time.Second, false},
		{1, 30 * time.Second, true},
	} {
		bubble.Test(t, func(t *testing.T) {
			z := newZone(t, fmt.Sprintf("example.com. %d PTR box.example.com.\nbox.example.com. SRV 0 0 0 .", tc.ttl))
			z.negative = 24 * time.Hour
			k := newLooker(z)
			k.domain.MinInterval, k.domain.MaxInterval = 30*time.Second, time.Hour
			k.look(t.Context())
			z.count()
			time.Sleep(tc.after)
			k.look(t.Context())
			if _, asked := z.count(); (asked["example.com PTR"] == 1) != tc.asked {
				t.Errorf("TTL %d s, after %s: asked %v", tc.ttl, tc.after, asked)
			}
		})
	}
}

// TestAQuestionIsAskedOnceALook, even if the look takes longer than the answer holds,
// and what there was no time for does not count as a failure of the server.
func TestAQuestionIsAskedOnceALook(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		z := newZone(t, classic)
		z.failing("", resolver.Timeout)
		m := newMemory(nil)
		m.looks = 1
		a := asker{domain: withDefaults(Domain{Name: "example.com"}), resolver: z, gate: newGate(1), start: time.Now(), whole: t.Context(), memory: m}
		for range 3 {
			a.ask(t.Context(), "example.com", dns.TypePTR)
			a.start = a.start.Add(time.Hour)
		}
		if n, asked := z.count(); n != 1 {
			t.Errorf("asked %v", asked)
		}
		topic := m.topics[question{"example.com", dns.TypePTR}]
		over, cancel := context.WithCancel(t.Context())
		cancel()
		for range 5 {
			m.looks++
			topic.now = true
			if r := a.ask(over, "example.com", dns.TypePTR); r.outcome != resolver.Timeout || !strings.Contains(r.message, "not done after 2m0s") {
				t.Errorf("%+v", r)
			}
		}
		if topic.failure.count != 1 {
			t.Errorf("%d failures", topic.failure.count)
		}
	})
}
