package dnssd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/miekg/dns"

	"liqo.io/agent/dnssd/resolver"
	"liqo.io/agent/internal/bubble"
)

// polling is a Poller that runs in a synctest bubble.
type polling struct {
	*Poller
	t      *testing.T
	zones  map[string]*zone // by server
	made   []string         // servers that resolvers were made for
	refuse atomic.Bool      // resolvers cannot be made
	stop   func()
	ended  chan error

	mu      sync.Mutex
	reports []Report // not yet taken
}

// poll starts a Poller whose servers are zones. It must be called in a bubble.
func poll(t *testing.T, zones map[string]*zone, change ...func(*Config)) *polling {
	t.Helper()
	p := &polling{t: t, zones: zones, ended: make(chan error, 1)}
	cfg := Config{
		Service: "_liqo._tcp",
		Resolver: func(server string) (Resolver, error) {
			p.made = append(p.made, server)
			if p.refuse.Load() {
				return nil, errors.New("no such server")
			}
			return p.zones[server], nil
		},
		Report: func(r Report) {
			valid(t, r)
			p.mu.Lock()
			defer p.mu.Unlock()
			p.reports = append(p.reports, r)
		},
	}
	for _, c := range change {
		c(&cfg)
	}
	p.Poller = New(cfg)
	p.random = func() float64 { return 0 }
	ctx, cancel := context.WithCancel(t.Context())
	p.stop = cancel
	go func() { p.ended <- p.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		synctest.Wait()
	})
	return p
}

// take returns what was reported since the last call, as domain:outcome:instances.
func (p *polling) take() string {
	p.t.Helper()
	var out []string
	for _, r := range p.drain() {
		out = append(out, strings.TrimRight(fmt.Sprintf("%s:%s:%s", r.Domain, r.Outcome, names(r)), ":"))
	}
	return strings.Join(out, ", ")
}

// drain returns what was reported since the last call.
func (p *polling) drain() []Report {
	synctest.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	reports := p.reports
	p.reports = nil
	return reports
}

func (p *polling) want(what string) {
	p.t.Helper()
	if got := p.take(); got != what {
		p.t.Errorf("reports %q, want %q", got, what)
	}
}

const (
	boxZone = "%[1]s. 60 PTR box.%[1]s.\nbox.%[1]s. SRV 0 0 1 host.%[1]s.\nhost.%[1]s. A 10.0.0.1\n"
	hour    = time.Hour
)

func boxIn(t *testing.T, domains ...string) *zone {
	t.Helper()
	var text strings.Builder
	for _, d := range domains {
		fmt.Fprintf(&text, boxZone, d)
	}
	z := newZone(t, text.String())
	z.negative = hour
	return z
}

func TestPollerFollowsItsDomains(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		a, b := boxIn(t, "a.net", "b.net"), boxIn(t, "a.net", "b.net")
		p := poll(t, map[string]*zone{"": a, "other": b})
		p.want("")
		p.SetDomains([]Domain{{Name: "A.net."}})
		p.want("a.net:Found:box.a.net")
		if r, ok := p.Last("a.net"); !ok || r.Next.Sub(r.At) != time.Minute {
			t.Errorf("last %+v, %t", r, ok)
		}
		time.Sleep(time.Minute)
		p.want("a.net:Found:box.a.net")
		if n, _ := a.count(); n != 7+1 {
			t.Errorf("%d questions", n)
		}
		// The same again is no news, a second domain is looked at at once.
		p.SetDomains([]Domain{{Name: "a.net"}, {Name: "b.net"}})
		p.want("b.net:Found:box.b.net")
		// A removed one is forgotten without a word.
		p.SetDomains([]Domain{{Name: "b.net"}})
		time.Sleep(55 * time.Second)
		p.want("")
		if _, ok := p.Last("a.net"); ok {
			t.Error("the removed domain is remembered")
		}
		if a.closed != 1 {
			t.Errorf("the removed domain's resolver was closed %d times", a.closed)
		}
		a.count()
		// Back again, it is new.
		p.SetDomains([]Domain{{Name: "a.net"}, {Name: "b.net"}})
		p.want("a.net:Found:box.a.net")
		if n, _ := a.count(); n != 7 {
			t.Errorf("%d questions", n)
		}
		// Removed and added in one breath it is new, too.
		p.SetDomains([]Domain{{Name: "b.net"}})
		p.SetDomains([]Domain{{Name: "a.net"}, {Name: "b.net"}})
		p.want("a.net:Found:box.a.net")
		// Another server: everything is asked again, of that one; what is known stays.
		a.count()
		b.failing("", resolver.ServerFailure)
		p.SetDomains([]Domain{{Name: "a.net", Server: "other"}, {Name: "b.net"}})
		p.want("a.net:ServerFailure:box.a.net?")
		if n, _ := a.count(); n != 0 {
			t.Errorf("the old server was asked %d times", n)
		}
		b.failing("", "")
		p.Hurry()
		p.want("a.net:Found:box.a.net")
		if n, asked := b.count(); n != 3+7 {
			t.Errorf("asked %v", asked)
		}
		if got := strings.Join(p.made, " "); got != "    other" { // "" for a, b, a, a
			t.Errorf("resolvers were made for %q", p.made)
		}
		p.stop()
		if err := <-p.ended; err != nil {
			t.Errorf("Run = %v", err)
		}
		if a.closed != 4 || b.closed != 1 {
			t.Errorf("closed %d and %d resolvers", a.closed, b.closed)
		}
	})
}

func TestPollerAsk(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		a := boxIn(t, "a.net")
		p := poll(t, map[string]*zone{"": a})
		if p.Ask("a.net") {
			t.Error("Ask knows a domain that is not there")
		}
		p.SetDomains([]Domain{{Name: "a.net"}})
		p.want("a.net:Found:box.a.net")
		a.count()
		if !p.Ask("A.NET.") {
			t.Error("Ask does not know the domain")
		}
		p.want("a.net:Found:box.a.net")
		if n, asked := a.count(); n != 7 {
			t.Errorf("asked %v", asked)
		}
		// While a look is running, another one follows, which asks all again.
		a.delay("", time.Second)
		p.Ask("a.net")
		time.Sleep(1500 * time.Millisecond)
		p.want("")
		p.Ask("a.net")
		p.Ask("a.net")
		time.Sleep(10 * time.Second)
		p.want("a.net:Found:box.a.net, a.net:Found:box.a.net")
		if n, asked := a.count(); n != 14 {
			t.Errorf("asked %v", asked)
		}
	})
}

func TestPollerHurries(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		fine, dead := boxIn(t, "a.net"), boxIn(t, "b.net")
		dead.failing("", resolver.Unreachable)
		p := poll(t, map[string]*zone{"": fine, "dead": dead})
		p.SetDomains([]Domain{{Name: "a.net"}, {Name: "b.net", Server: "dead"}})
		synctest.Wait()
		p.take()
		p.Hurry()
		p.want("b.net:Unreachable")
		// Again at once: not before a second has passed, and once.
		p.Hurry()
		p.Hurry()
		time.Sleep(999 * time.Millisecond)
		p.want("")
		time.Sleep(2 * time.Millisecond)
		p.want("b.net:Unreachable")
		// A second later it is immediate again, and it resets the backoff.
		time.Sleep(time.Second)
		p.Hurry()
		p.want("b.net:Unreachable")
		if r, _ := p.Last("b.net"); r.Next.Sub(r.At) != 30*time.Second {
			t.Errorf("next after %s", r.Next.Sub(r.At))
		}
		// While a look is running that ends without an answer, another one follows.
		dead.delay("", 10*time.Second)
		time.Sleep(25 * time.Second)
		p.take()
		time.Sleep(5 * time.Second)
		dead.failing("", "")
		dead.failing("b.net PTR", resolver.Timeout)
		p.Hurry()
		time.Sleep(5 * time.Second)
		dead.failing("", "")
		time.Sleep(40 * time.Second)
		got := p.take()
		if !strings.Contains(got, "b.net:Timeout, ") {
			t.Errorf("reports %q", got)
		}
		// With nothing unanswered there is no hurry.
		dead.failing("b.net PTR", "")
		p.Ask("b.net")
		time.Sleep(50 * time.Second)
		p.take()
		fine.count()
		dead.count()
		p.Hurry()
		p.want("")
	})
}

// TestPollerHurryDuringALook: the look that is running began before the network
// changed.
func TestPollerHurryDuringALook(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		a := boxIn(t, "a.net")
		a.failing("", resolver.Timeout)
		a.delay("", 6*time.Second)
		p := poll(t, map[string]*zone{"": a})
		p.SetDomains([]Domain{{Name: "a.net"}})
		time.Sleep(3 * time.Second)
		p.Hurry()
		time.Sleep(4 * time.Second)
		p.want("a.net:Timeout")
		a.failing("", "")
		time.Sleep(18 * time.Second)
		p.want("a.net:Found:box.a.net")
	})
}

func TestPollerWithoutAResolver(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		a := boxIn(t, "a.net")
		p := poll(t, map[string]*zone{"": a})
		p.refuse.Store(true)
		p.SetDomains([]Domain{{Name: "a.net"}})
		p.want("a.net:Unreachable")
		if r, _ := p.Last("a.net"); !strings.Contains(r.Message, "no such server") || r.Complete || r.Next.Sub(r.At) != 30*time.Second {
			t.Errorf("%+v", r)
		}
		p.refuse.Store(false)
		time.Sleep(30 * time.Second)
		p.want("a.net:Found:box.a.net")
		if len(p.made) != 2 {
			t.Errorf("tried %d times to make one", len(p.made))
		}
	})
}

// TestPollerChangeDuringALook: what the old server says no longer counts.
func TestPollerChangeDuringALook(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		old, other := boxIn(t, "a.net"), newZone(t, "a.net. PTR new.a.net.\nnew.a.net. SRV 0 0 1 h.a.net.\nh.a.net. A 10.0.0.2")
		old.delay("", time.Minute)
		p := poll(t, map[string]*zone{"": old, "other": other})
		p.SetDomains([]Domain{{Name: "a.net"}})
		time.Sleep(30 * time.Second)
		p.SetDomains([]Domain{{Name: "a.net", Server: "other"}})
		p.want("a.net:Found:new.a.net")
		if old.closed != 1 {
			t.Errorf("the old resolver was closed %d times", old.closed)
		}
		// Removed during a look: no report, and the resolver is closed.
		other.delay("", time.Minute)
		p.Ask("a.net")
		time.Sleep(30 * time.Second)
		p.SetDomains(nil)
		synctest.Wait()
		if other.closed != 1 {
			t.Errorf("the resolver was closed %d times", other.closed)
		}
		time.Sleep(time.Hour)
		p.want("")
	})
}

func TestPollerEndsAtOnce(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		slow := boxIn(t, "a.net", "b.net")
		slow.delay("", time.Hour)
		p := poll(t, map[string]*zone{"": slow})
		p.SetDomains([]Domain{{Name: "a.net"}, {Name: "b.net"}})
		time.Sleep(time.Second)
		begin := time.Now()
		p.stop()
		if err := <-p.ended; err != nil || time.Since(begin) != 0 {
			t.Errorf("Run = %v after %s", err, time.Since(begin))
		}
		if reports := p.drain(); slow.closed != 2 || len(reports) != 0 {
			t.Errorf("%d resolvers were closed, %d reports", slow.closed, len(reports))
		}
	})
}

func TestReportIsTheCalleesOwn(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := poll(t, map[string]*zone{"": boxIn(t, "a.net")}, func(c *Config) {
			c.Report = func(r Report) {
				r.Instances[0].Name = "changed"
				r.Instances[0].Addrs[0] = r.Instances[0].Addrs[0+len(r.Instances[0].Addrs)-1]
			}
		})
		p.SetDomains([]Domain{{Name: "a.net"}})
		synctest.Wait()
		r, _ := p.Last("a.net")
		if names(r) != "box.a.net" {
			t.Errorf("Last = %s", names(r))
		}
		r.Instances[0].Name = "changed"
		if again, _ := p.Last("a.net"); names(again) != "box.a.net" {
			t.Errorf("Last = %s", names(again))
		}
	})
}

// crowd is a zone with n instances of its own hosts.
func crowd(t testing.TB, domain string, n int) *zone {
	t.Helper()
	var text strings.Builder
	for i := range n {
		fmt.Fprintf(&text, "%[1]s. 60 PTR box%04[2]d.%[1]s.\nbox%04[2]d.%[1]s. SRV 0 0 6447 host%04[2]d.%[1]s.\nhost%04[2]d.%[1]s. A 10.1.%[3]d.%[4]d\n", domain, i, i/250, 1+i%250)
	}
	z := newZone(t, text.String())
	z.negative = hour
	return z
}

func TestTwoThousandWithBoundedParallelism(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		z := crowd(t, "a.net", 2000)
		z.delay("", 10*time.Millisecond)
		p := poll(t, map[string]*zone{"": z})
		begin := time.Now()
		p.SetDomains([]Domain{{Name: "a.net"}})
		time.Sleep(10 * time.Second)
		reports := p.drain()
		if len(reports) != 1 || len(reports[0].Instances) != 2000 || len(reports[0].Skipped) != 0 {
			t.Fatalf("reports: %d", len(reports))
		}
		r := reports[0]
		if r.Queries != 3+4*2000 {
			t.Errorf("%d questions", r.Queries)
		}
		if z.most != 24 {
			t.Errorf("%d questions at once, want three quarters of 32", z.most)
		}
		// 8,003 questions of 10 ms, 24 at a time.
		if took := r.At.Sub(begin); took > 4*time.Second {
			t.Errorf("took %s", took)
		}
		// After that, one question a minute.
		z.count()
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if n, _ := z.count(); n < 9 || n > 11 {
			t.Errorf("%d questions in ten minutes", n)
		}
	})
}

func TestASlowServerDoesNotHoldUpOthers(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		slow, quick := crowd(t, "slow.net", 500), crowd(t, "quick.net", 100)
		slow.delay("", 3*time.Second)
		quick.delay("", 10*time.Millisecond)
		p := poll(t, map[string]*zone{"slow": slow, "quick": quick})
		p.SetDomains([]Domain{{Name: "slow.net", Server: "slow"}})
		time.Sleep(10 * time.Second)
		begin := time.Now()
		p.SetDomains([]Domain{{Name: "slow.net", Server: "slow"}, {Name: "quick.net", Server: "quick"}})
		time.Sleep(2 * time.Second)
		reports := p.drain()
		if len(reports) != 1 || reports[0].Domain != "quick.net" || len(reports[0].Instances) != 100 {
			t.Fatalf("%d reports", len(reports))
		}
		// 403 questions of 10 ms, 8 at a time.
		if took := reports[0].At.Sub(begin); took > time.Second {
			t.Errorf("took %s", took)
		}
		// The slow one is cut off, says so, and goes on where it was.
		slowest := func() Report {
			t.Helper()
			for _, r := range p.drain() {
				if r.Domain == "slow.net" {
					return r
				}
			}
			t.Fatal("no report of the slow domain")
			return Report{}
		}
		time.Sleep(longestLook)
		first := slowest()
		if n := len(first.Instances); n == 0 || n == 500 || len(first.Skipped) == 0 || !first.Complete {
			t.Errorf("%d instances, %d skipped", n, len(first.Skipped))
		}
		for _, s := range first.Skipped {
			if s.Reason != SkipLookup || !strings.Contains(s.Message, "not done after 2m0s") && !strings.Contains(s.Message, "for the same reason") {
				t.Fatalf("%+v", s)
			}
		}
		most := 0
		for range 6 {
			time.Sleep(longestLook + 30*time.Second)
			n := len(slowest().Instances)
			if n < most {
				t.Errorf("%d instances after %d", n, most)
			}
			most = n
		}
		if most != 500 {
			t.Errorf("%d instances in the end", most)
		}
	})
}

func TestADeadServerIsNotAskedForEverything(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		z := crowd(t, "a.net", 500)
		k := newLooker(z)
		k.domain.Name = "a.net"
		k.look(t.Context())
		// The list is fresh, all else is due.
		for q, topic := range k.memory.topics {
			topic.now = q.qtype != dns.TypePTR
		}
		z.count()
		z.failing("", resolver.Timeout)
		z.delay("", 3*time.Second)
		begin := time.Now()
		r := k.look(t.Context())
		n, _ := z.count()
		if n < silentAfter || n > silentAfter+defaultParallel || time.Since(begin) > 10*time.Second {
			t.Errorf("%d questions in %s", n, time.Since(begin))
		}
		if len(r.Instances) != 500 || r.Instances[0].Stale == "" || r.Instances[499].Stale == "" {
			t.Errorf("%d instances", len(r.Instances))
		}
		// A server that says that it fails is there.
		k.memory.expire()
		z.failing("", "")
		z.delay("", 0)
		for i := range 500 {
			z.failing(fmt.Sprintf("box%04d.a.net", i), resolver.ServerFailure)
		}
		k.look(t.Context())
		if n, _ := z.count(); n != 3+500 {
			t.Errorf("%d questions", n)
		}
	})
}

func TestTooManyInstances(t *testing.T) {
	z := crowd(t, "example.com", 60)
	k := newLooker(z)
	k.limit = 50
	r := k.look(context.Background())
	valid(t, r)
	if len(r.Instances) != 50 || r.Instances[0].Name != "box0000.example.com" || r.Instances[49].Name != "box0049.example.com" || skipped(r) != "example.com=TooMany" {
		t.Fatalf("%d instances, %s", len(r.Instances), skipped(r))
	}
	if r.Skipped[0].Message != "10 names are listed beyond the 50 that are looked at, such as box0050.example.com" {
		t.Error(r.Skipped[0].Message)
	}
	// Strangers whose names come first push nobody out.
	var strangers strings.Builder
	for i := range 60 {
		fmt.Fprintf(&strangers, "example.com. PTR a%d.example.com.\nexample.com. PTR box%04d.example.com.\n", i, i)
		fmt.Fprintf(&strangers, "box%04d.example.com. SRV 0 0 1 h.example.com.\na%d.example.com. SRV 0 0 1 h.example.com.\nh.example.com. A 10.0.0.1\n", i, i)
	}
	z.set(t, strangers.String())
	k.memory.expire()
	if again := k.look(context.Background()); names(again) != names(r) {
		t.Errorf("%s", names(again))
	}
}

func TestLeftOutIsBoundedAndSummedUp(t *testing.T) {
	var text strings.Builder
	for i := range 300 {
		fmt.Fprintf(&text, "example.com. PTR www%03d.example.com.\nexample.com. PTR off%03d.example.com.\noff%03d.example.com. SRV 0 0 0 .\n", i, i, i)
	}
	z := newZone(t, text.String())
	r := newLooker(z).look(context.Background())
	valid(t, r)
	if len(r.Skipped) != maxSkipped+2 {
		t.Fatalf("%d skipped", len(r.Skipped))
	}
	sums := fmt.Sprintf("%+v", r.Skipped[maxSkipped:])
	if sums != "[{Name:example.com Reason:NoSRV Message:300 more names for the same reason, such as www000.example.com} {Name:example.com Reason:NotAvailable Message:100 more names for the same reason, such as off200.example.com}]" {
		t.Error(sums)
	}
	// Those that were instances are named one by one, however many they are.
	z = crowd(t, "example.com", 400)
	k := newLooker(z)
	k.look(context.Background())
	for i := range 400 {
		delete(z.records, fmt.Sprintf("host%04d.example.com.", i))
	}
	k.memory.expire()
	if r = k.look(context.Background()); len(r.Skipped) != 400 || r.Skipped[0].Reason != SkipNoAddress || r.Skipped[0].Name != "box0000.example.com" {
		t.Errorf("%d skipped", len(r.Skipped))
	}
}

// TestManyCallers has all methods called while Run runs.
func TestManyCallers(t *testing.T) {
	z := boxIn(t, "a.net", "b.net")
	var reports atomic.Int64
	p := New(Config{Service: "_liqo._tcp", Resolver: func(string) (Resolver, error) { return z, nil }, Report: func(Report) { reports.Add(1) }})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	done := make(chan struct{})
	for i := range 4 {
		go func() {
			defer func() { done <- struct{}{} }()
			for n := range 200 {
				switch (n + i) % 5 {
				case 0:
					p.SetDomains([]Domain{{Name: "a.net"}, {Name: "b.net", Server: fmt.Sprint(n % 3)}})
				case 1:
					p.Ask("a.net")
				case 2:
					p.Hurry()
				case 3:
					p.Last("a.net")
				case 4:
					p.SetDomains([]Domain{{Name: "a.net"}})
				}
			}
		}()
	}
	for range 4 {
		<-done
	}
	p.SetDomains([]Domain{{Name: "a.net"}})
	p.Ask("a.net")
	deadline := time.Now().Add(2 * time.Minute)
	for reports.Load() == 0 {
		if time.Now().After(deadline) {
			t.Fatal("no report")
		}
		time.Sleep(time.Millisecond)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestChangeWhileALookWaitsToBeTold: its look has ended, and Run is busy with telling
// another one.
func TestChangeWhileALookWaitsToBeTold(t *testing.T) {
	for range 20 {
		bubble.Test(t, func(t *testing.T) {
			busy := make(chan struct{})
			z := boxIn(t, "a.net", "b.net")
			other := newZone(t, "b.net. PTR new.b.net.\nnew.b.net. SRV 0 0 1 h.b.net.\nh.b.net. A 10.0.0.2")
			p := poll(t, map[string]*zone{"": z, "other": other}, func(c *Config) {
				keep := c.Report
				c.Report = func(r Report) {
					keep(r)
					if r.Domain == "a.net" {
						<-busy
					}
				}
			})
			p.SetDomains([]Domain{{Name: "a.net"}})
			p.want("a.net:Found:box.a.net")
			p.SetDomains([]Domain{{Name: "a.net"}, {Name: "b.net"}})
			busy <- struct{}{}
			p.want("b.net:Found:box.b.net")
			p.Ask("a.net")
			z.delay("b.net", time.Second)
			synctest.Wait()
			p.Ask("b.net")
			busy <- struct{}{}
			p.want("a.net:Found:box.a.net")
			p.Ask("a.net")
			p.want("a.net:Found:box.a.net")
			time.Sleep(10 * time.Second) // the look at b.net has ended, and waits
			p.SetDomains([]Domain{{Name: "a.net"}, {Name: "b.net", Server: "other"}})
			busy <- struct{}{}
			p.want("b.net:Found:new.b.net")
		})
	}
}

// TestResolversAreClosedAfterTheirLastQuestion: of a domain that was removed, of one
// that has another server, and when Run ends.
func TestResolversAreClosedAfterTheirLastQuestion(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		z, other := boxIn(t, "a.net", "b.net", "c.net"), boxIn(t, "b.net")
		z.stubborn = true
		z.delay("", time.Second)
		p := poll(t, map[string]*zone{"": z, "other": other})
		p.SetDomains([]Domain{{Name: "a.net"}, {Name: "b.net"}, {Name: "c.net"}})
		time.Sleep(500 * time.Millisecond)
		p.SetDomains([]Domain{{Name: "b.net", Server: "other"}, {Name: "c.net"}})
		synctest.Wait()
		if z.closed != 0 {
			t.Error("a resolver was closed while it was asked")
		}
		p.stop()
		if err := <-p.ended; err != nil || z.closed != 3 || z.hasty {
			t.Errorf("Run = %v, %d resolvers closed", err, z.closed)
		}
	})
}

// TestAReportComesTooLate: its domain was removed in the moment before it is told.
func TestAReportComesTooLate(t *testing.T) {
	p := New(Config{})
	if p.remember(Report{Domain: "a.net"}) {
		t.Error("a report about nothing is told")
	}
	p.SetDomains([]Domain{{Name: "a.net"}})
	if _, ok := p.Last("a.net"); ok || !p.remember(Report{Domain: "a.net"}) {
		t.Error("a report is not told, or was remembered too early")
	}
}

// TestTheRealResolverIsUsedUnlessTold: without Config.Resolver.
func TestTheRealResolverIsUsedUnlessTold(t *testing.T) {
	reports := make(chan Report, 10)
	p := New(Config{Service: "_liqo._tcp", Report: func(r Report) { reports <- r }})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	for server, want := range map[string]string{"127.0.0.1:1": "no DNS server listens there", "http://x": "nobody to ask: "} {
		p.SetDomains([]Domain{{Name: "example.com", Server: server}})
		r := <-reports
		valid(t, r)
		if r.Outcome != resolver.Unreachable || r.Complete || !strings.Contains(r.Message, want) {
			t.Errorf("%s: %s: %s", server, r.Outcome, r.Message)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
