package dnssd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/miekg/dns"

	"liqo.io/agent/dnssd/resolver"
)

// zone is a Resolver that answers from records, as a name server with all of DNS in
// one zone would.
type zone struct {
	mu       sync.Mutex
	records  map[string][]dns.RR         // by owner, lower case, with the dot
	fail     map[string]resolver.Outcome // by "name TYPE", "name" or "" (everything)
	slow     map[string]time.Duration    // the same
	negative time.Duration               // TTL of negative answers
	signed   bool
	asked    map[string]int // by "name TYPE"
	inside   int
	most     int // questions at once
	closed   int
	hasty    bool // it was closed while it was asked
	stubborn bool // an answer takes its time even if nobody waits for it
}

func newZone(t testing.TB, text string) *zone {
	t.Helper()
	z := &zone{fail: make(map[string]resolver.Outcome), slow: make(map[string]time.Duration), asked: make(map[string]int), negative: 5 * time.Minute}
	z.set(t, text)
	return z
}

// set replaces the records. Names are absolute, TTLs 3600 unless given.
func (z *zone) set(t testing.TB, text string) {
	t.Helper()
	records := make(map[string][]dns.RR)
	for _, rr := range zoneRecords(t, text) {
		owner := dns.CanonicalName(rr.Header().Name)
		records[owner] = append(records[owner], rr)
	}
	z.mu.Lock()
	defer z.mu.Unlock()
	z.records = records
}

func zoneRecords(t testing.TB, text string) []dns.RR {
	t.Helper()
	var records []dns.RR
	p := dns.NewZoneParser(strings.NewReader("$TTL 3600\n"+text), ".", "")
	for rr, ok := p.Next(); ok; rr, ok = p.Next() {
		records = append(records, rr)
	}
	if err := p.Err(); err != nil {
		t.Fatal(err)
	}
	return records
}

func (z *zone) failing(what string, o resolver.Outcome) {
	z.mu.Lock()
	defer z.mu.Unlock()
	if o == "" {
		delete(z.fail, what)
	} else {
		z.fail[what] = o
	}
}

// delay has answers take their time; what is as for failing.
func (z *zone) delay(what string, d time.Duration) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.slow[what] = d
}

// count returns how many questions were asked since the last call, and which.
func (z *zone) count() (int, map[string]int) {
	z.mu.Lock()
	defer z.mu.Unlock()
	asked := z.asked
	z.asked = make(map[string]int)
	n := 0
	for _, c := range asked {
		n += c
	}
	return n, asked
}

func (z *zone) Close() {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.closed++
	z.hasty = z.hasty || z.inside > 0
}

func match[V any](m map[string]V, name, qtype string) V {
	for _, key := range []string{name + " " + qtype, name, ""} {
		if v, ok := m[key]; ok {
			return v
		}
	}
	var none V
	return none
}

func (z *zone) Lookup(ctx context.Context, name string, qtype uint16) resolver.Answer {
	if _, ok := dns.IsDomainName(name); !ok || !dns.IsFqdn(name) {
		return resolver.Answer{Outcome: resolver.BadAnswer, Err: fmt.Errorf("%q is no absolute name", name)}
	}
	plain, kind := strings.TrimSuffix(name, "."), dns.Type(qtype).String()
	z.mu.Lock()
	z.asked[plain+" "+kind]++
	z.inside++
	z.most = max(z.most, z.inside)
	wait := match(z.slow, plain, kind)
	z.mu.Unlock()
	if wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		over := ctx.Done()
		if z.stubborn {
			over = nil
		}
		select {
		case <-timer.C:
		case <-over:
		}
	}
	z.mu.Lock()
	defer z.mu.Unlock()
	z.inside--
	if err := ctx.Err(); err != nil {
		return resolver.Answer{Outcome: resolver.Timeout, Err: err}
	}
	if o := match(z.fail, plain, kind); o != "" {
		a := resolver.Answer{Outcome: o, Name: name, Err: fmt.Errorf("look up %s %s: %w", name, kind, errors.New("as the test wants: "+string(o)))}
		if o == resolver.Refused || o == resolver.ServerFailure {
			a.Server = "192.0.2.53:53"
		}
		return a
	}
	return z.answer(name, qtype)
}

// answer follows aliases. Locks held: mu.
func (z *zone) answer(name string, qtype uint16) resolver.Answer {
	a := resolver.Answer{Outcome: resolver.NoData, Name: name, TTL: z.negative, Server: "192.0.2.53:53", Authenticated: z.signed}
	least := time.Duration(1<<63 - 1)
	for range 8 {
		var alias string
		for _, rr := range z.records[dns.CanonicalName(name)] {
			ttl := time.Duration(rr.Header().Ttl) * time.Second
			if rr.Header().Rrtype == qtype {
				least = min(least, ttl)
				a.Outcome, a.TTL = resolver.Found, least
				a.Records = append(a.Records, dns.Copy(rr))
			} else if c, ok := rr.(*dns.CNAME); ok {
				alias, least = c.Target, min(least, ttl)
			}
		}
		if alias == "" {
			break
		}
		name = alias
		a.Name = name
	}
	if a.Outcome != resolver.Found && !z.exists(name) {
		a.Outcome = resolver.NoName
	}
	return a
}

func (z *zone) exists(name string) bool {
	name = dns.CanonicalName(name)
	if len(z.records[name]) > 0 {
		return true
	}
	for owner := range z.records {
		if dns.IsSubDomain(name, owner) {
			return true
		}
	}
	return false
}

// looker looks at a domain again and again without a Poller.
type looker struct {
	domain Domain
	who    Resolver
	memory *memory
	limit  int
}

func newLooker(who Resolver) *looker {
	return &looker{domain: withDefaults(Domain{Name: "example.com"}), who: who, memory: newMemory(nil), limit: defaultMaxInstances}
}

func (k *looker) look(ctx context.Context) Report {
	l := look{
		asker:   asker{domain: k.domain, resolver: k.who, gate: newGate(defaultParallel), start: time.Now(), whole: ctx, memory: k.memory},
		service: "_liqo._tcp", limit: k.limit, seed: 1,
	}
	return l.run(ctx)
}

// names returns the instances of a report, the stale ones with a question mark.
func names(r Report) string {
	var out []string
	for _, i := range r.Instances {
		mark := ""
		if i.Stale != "" {
			mark = "?"
		}
		out = append(out, i.Name+mark)
	}
	return strings.Join(out, " ")
}

// skipped returns what a report leaves out, as name=reason.
func skipped(r Report) string {
	var out []string
	for _, s := range r.Skipped {
		out = append(out, s.Name+"="+string(s.Reason))
	}
	return strings.Join(out, " ")
}

func addrs(i Instance) string {
	var out []string
	for _, a := range i.Addrs {
		out = append(out, a.String())
	}
	return strings.Join(out, " ")
}

// valid checks what holds for every report.
func valid(t testing.TB, r Report) {
	t.Helper()
	for problem := range problems(r) {
		t.Errorf("%s", problem)
	}
}

func printable(s string, most int) bool {
	return len(s) <= most && utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) })
}

func instanceNamed(t testing.TB, r Report, name string) Instance {
	t.Helper()
	for _, i := range r.Instances {
		if i.Name == name {
			return i
		}
	}
	t.Fatalf("no instance %s in %+v", name, r)
	return Instance{}
}

func orNone(s string) string { return cmp.Or(s, "-") }
