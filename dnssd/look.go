package dnssd

import (
	"cmp"
	"context"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/miekg/dns"

	"liqo.io/agent/dnssd/resolver"
)

const (
	defaultMaxInstances = 5000
	defaultParallel     = 32
	// maxDomains is how many further domains are looked at.
	maxDomains = 16
	// browse lists the domains to browse (RFC 6763 section 11).
	browse = "b._dns-sd._udp"
)

// look is one look at a domain.
type look struct {
	asker
	service string
	limit   int    // instances
	seed    uint64 // of the order among targets
	ignored int    // further domains that are too many
}

// list is a name that lists instances, and what is known about it.
type list struct {
	name   string
	domain string // the further domain that it is of
	reply
}

// listing is what the lists say about one instance.
type listing struct {
	ttl   time.Duration
	fresh bool   // a list was answered that has it
	why   string // if not: what stands in the way
}

// run looks. Its report has no Next. When ctx ended before it the report is void, and
// the memory holds what was known before and the answers that came.
func (l *look) run(ctx context.Context) Report {
	timed, cancel := context.WithTimeout(ctx, longestLook)
	defer cancel()
	l.memory.looks++
	own, further, browsed := l.lists(timed)
	listings := make(map[string]*listing)
	for _, list := range slices.Concat(own, further) {
		collect(listings, list)
	}
	names, tooMany := l.choose(listings)
	entries := l.lookupAll(timed, names, listings)
	if ctx.Err() != nil {
		return Report{}
	}
	r := Report{Domain: l.domain.Name, At: time.Now(), Queries: l.queries}
	for _, list := range further {
		r.Domains = append(r.Domains, list.domain)
	}
	slices.Sort(r.Domains)
	r.Authenticated = l.answers > 0 && l.signed == l.answers
	var skips []Skip
	for _, e := range entries {
		if e.skip != nil {
			skips = append(skips, *e.skip)
		} else {
			r.Instances = append(r.Instances, e.instance)
		}
	}
	r.Skipped = l.leftOut(skips, tooMany)
	for name := range listings {
		delete(l.memory.recalled, name)
	}
	all := slices.Concat(own, further, []list{browsed})
	if open := slices.IndexFunc(all, func(l list) bool { return !l.outcome.Conclusive() }); open < 0 {
		clear(l.memory.recalled)
	} else {
		l.keep(&r, maps.Keys(l.memory.recalled), all[open].message)
	}
	judge(&r, own, further, browsed)
	if !r.Complete {
		l.keep(&r, maps.Keys(l.memory.instances), r.Message)
	}
	slices.SortFunc(r.Instances, func(a, b Instance) int { return cmp.Compare(a.Name, b.Name) })
	l.memory.instances = make(map[string]Instance, len(r.Instances))
	for _, i := range r.Instances {
		l.memory.instances[i.Name] = i
	}
	l.memory.forget()
	return r
}

// keep puts back those of the names that are not in the report: without the lists that
// may have them nobody can say that they left.
func (l *look) keep(r *Report, names iter.Seq[string], why string) {
	there := make(map[string]bool)
	for _, i := range r.Instances {
		there[i.Name] = true
	}
	for _, s := range r.Skipped {
		there[s.Name] = true
	}
	for name := range names {
		if !there[name] {
			r.Instances = append(r.Instances, l.stale(name, why).instance)
		}
	}
}

// lists asks who is listed: in the domain's own lists, and in those of the further
// domains that it names.
func (l *look) lists(ctx context.Context) (own, further []list, browsed list) {
	own = []list{{name: l.domain.Name}, {name: below(l.service, l.domain.Name)}}
	browsed.name = below(browse, l.domain.Name)
	// A name that is too long for DNS is none, and nobody can be listed there.
	for _, list := range []*list{&own[1], &browsed} {
		if _, ok := canonical(list.name); !ok {
			list.reply = reply{outcome: resolver.NoName}
		}
	}
	l.askAll(ctx, &own[0], &own[1], &browsed)

	for _, d := range browsed.facts.names {
		if name, ok := canonical(below(l.service, d)); ok && d != l.domain.Name && d != "." {
			further = append(further, list{name: name, domain: d})
		}
	}
	if len(further) > maxDomains {
		slices.SortStableFunc(further, func(a, b list) int { return cmp.Compare(l.strange(a), l.strange(b)) })
		l.ignored = len(further) - maxDomains
		further = further[:maxDomains]
	}
	asked := make([]*list, len(further))
	for i := range further {
		asked[i] = &further[i]
	}
	l.askAll(ctx, asked...)
	return own, further, browsed
}

// strange is 0 for a list that was asked for before, else 1.
func (l *look) strange(of list) int {
	if l.last(of.name, dns.TypePTR).IsZero() {
		return 1
	}
	return 0
}

func (l *look) askAll(ctx context.Context, lists ...*list) {
	var wg sync.WaitGroup
	for _, list := range lists {
		if list.outcome == "" {
			wg.Go(func() { list.reply = l.ask(ctx, list.name, dns.TypePTR) })
		}
	}
	wg.Wait()
}

// below returns a name below a domain.
func below(name, domain string) string {
	if domain == "." {
		return strings.ToLower(name)
	}
	return strings.ToLower(name) + "." + domain
}

// collect adds what a list has.
func collect(listings map[string]*listing, from list) {
	fresh := from.outcome.Conclusive()
	for _, name := range from.facts.names {
		e := listings[name]
		if e == nil {
			e = &listing{why: from.message}
			listings[name] = e
		}
		if fresh {
			e.fresh = true
			e.ttl = max(e.ttl, from.ttl)
		}
	}
}

// choose returns the names to deal with, those first that were not looked up for the
// longest time, and how many are one too many. Those that were there before stay.
func (l *look) choose(listings map[string]*listing) (names []string, tooMany []string) {
	names = slices.SortedFunc(maps.Keys(listings), func(a, b string) int {
		_, knowA := l.memory.instances[a]
		_, knowB := l.memory.instances[b]
		if knowA != knowB {
			if knowA {
				return -1
			}
			return 1
		}
		return cmp.Compare(a, b)
	})
	if len(names) > l.limit {
		names, tooMany = names[:l.limit], names[l.limit:]
	}
	last := make(map[string]time.Time, len(names))
	for _, name := range names {
		last[name] = l.last(name, dns.TypeSRV)
	}
	slices.SortStableFunc(names, func(a, b string) int { return last[a].Compare(last[b]) })
	return names, tooMany
}

// lookupAll deals with all names, a bounded number at once.
func (l *look) lookupAll(ctx context.Context, names []string, listings map[string]*listing) []entry {
	entries := make([]entry, len(names))
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(len(names), l.gate.most) {
		wg.Go(func() {
			for n := next.Add(1) - 1; n < int64(len(names)); n = next.Add(1) - 1 {
				name := names[n]
				if e := listings[name]; e.fresh {
					entries[n] = l.lookup(ctx, name, e.ttl)
				} else {
					entries[n] = l.stale(name, e.why)
				}
			}
		})
	}
	wg.Wait()
	return entries
}
