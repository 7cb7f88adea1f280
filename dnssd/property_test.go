package dnssd

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
	"pgregory.net/rapid"

	"liqo.io/agent/dnssd/resolver"
)

// TestNobodyLeavesUnsaid changes a zone and its failures at random, and checks that an
// instance is missing from a report only if that is complete and every list that had
// it was answered without it, or its own records say that it is not there.
func TestNobodyLeavesUnsaid(t *testing.T) {
	outcomes := []resolver.Outcome{resolver.ServerFailure, resolver.Refused, resolver.Timeout, resolver.Unreachable, resolver.BadAnswer}
	boxes := []string{"a.example.com", "b.example.com", "c.example.com", `d\ d.example.com`}
	lists := []string{"example.com", "_liqo._tcp.example.com", "_liqo._tcp.one.net", "_liqo._tcp.two.net"}
	rapid.Check(t, func(t *rapid.T) {
		// The truth: who is in which list, which of the further domains is named, and
		// which box has its records.
		listed := make(map[string]map[string]bool)
		for _, l := range lists {
			listed[l] = make(map[string]bool)
		}
		named := map[string]bool{"one.net": true}
		whole := make(map[string]bool)
		for _, b := range boxes {
			whole[b] = true
		}
		z := &zone{fail: make(map[string]resolver.Outcome), asked: make(map[string]int), negative: time.Minute}
		k := newLooker(z)
		var before Report
		// What the servers have said last about each list, as far as they said anything.
		said := make(map[string]map[string]bool)
		saidNamed := make(map[string]bool)
		for range rapid.IntRange(2, 12).Draw(t, "looks") {
			for range rapid.IntRange(0, 4).Draw(t, "changes") {
				l, b := rapid.SampledFrom(lists).Draw(t, "list"), rapid.SampledFrom(boxes).Draw(t, "box")
				switch rapid.IntRange(0, 5).Draw(t, "change") {
				case 0, 1:
					listed[l][b] = true
				case 2:
					delete(listed[l], b)
				case 3:
					whole[b] = !whole[b]
				case 4:
					d := rapid.SampledFrom([]string{"one.net", "two.net"}).Draw(t, "domain")
					named[d] = !named[d]
				case 5:
					clear(listed[l])
				}
			}
			z.records = build(t, listed, named, whole)
			clear(z.fail)
			for range rapid.IntRange(0, 4).Draw(t, "failures") {
				what := rapid.SampledFrom(slices.Concat(lists, boxes, []string{"", "b._dns-sd._udp.example.com", "host.example.com A", "host.example.com AAAA", boxes[0] + " TXT", "_liqo._tcp"})).Draw(t, "what")
				if what == "" && rapid.IntRange(0, 3).Draw(t, "all") > 0 {
					continue
				}
				z.fail[what] = rapid.SampledFrom(outcomes).Draw(t, "outcome")
			}
			switch rapid.IntRange(0, 2).Draw(t, "how") {
			case 0:
				k.memory.expire()
			case 1:
				k.memory.retry()
			}
			z.count()
			r := k.look(context.Background())
			for problem := range problems(r) {
				t.Errorf("%s", problem)
			}
			_, asked := z.count()
			// What was answered now counts from now on.
			answered := func(name string) bool {
				return asked[name+" PTR"] > 0 && match(z.fail, name, "PTR") == ""
			}
			if answered("b._dns-sd._udp.example.com") {
				saidNamed = maps.Clone(named)
			}
			for _, l := range lists {
				if answered(l) {
					said[l] = maps.Clone(listed[l])
				}
			}
			// A domain that was not named for a while is a new one when it is named again.
			for _, d := range []string{"one.net", "two.net"} {
				if !saidNamed[d] {
					delete(said, "_liqo._tcp."+d)
				}
			}
			has := func(l, b string) bool {
				domain, further := strings.CutPrefix(l, "_liqo._tcp.")
				if further && domain != "example.com" && !saidNamed[domain] {
					return false
				}
				return said[l][b]
			}
			for _, i := range before.Instances {
				if slices.ContainsFunc(r.Instances, func(n Instance) bool { return n.Name == i.Name }) {
					continue
				}
				if n := slices.IndexFunc(r.Skipped, func(s Skip) bool { return s.Name == i.Name }); n >= 0 {
					if r.Skipped[n].Reason == SkipLookup {
						t.Fatalf("%s is left out although it was known: %+v", i.Name, r.Skipped[n])
					}
					if whole[i.Name] {
						t.Fatalf("%s is left out although its records are there: %+v", i.Name, r.Skipped[n])
					}
					continue
				}
				if !r.Complete {
					t.Fatalf("%s has left in a report that is not complete", i.Name)
				}
				for _, l := range lists {
					if has(l, i.Name) {
						t.Fatalf("%s has left, and the last that was heard of %s is that it has it", i.Name, l)
					}
				}
			}
			// And the other way round: who is there was said to be there.
			for _, i := range r.Instances {
				if r.Complete && !slices.ContainsFunc(lists, func(l string) bool { return has(l, i.Name) }) {
					t.Fatalf("%s is there, and no list was said to have it", i.Name)
				}
			}
			before = r
		}
	})
}

func build(t *rapid.T, listed map[string]map[string]bool, named, whole map[string]bool) map[string][]dns.RR {
	records := make(map[string][]dns.RR)
	add := func(format string, args ...any) {
		rr, err := dns.NewRR(fmt.Sprintf(format, args...))
		if err != nil {
			t.Fatal(err)
		}
		records[rr.Header().Name] = append(records[rr.Header().Name], rr)
	}
	add("host.example.com. 60 A 10.0.0.1")
	add("host.example.com. 60 AAAA 2001:db8::1")
	for l, in := range listed {
		for b := range in {
			add("%s. 60 PTR %s.", l, b)
		}
	}
	for d, in := range named {
		if in {
			add("b._dns-sd._udp.example.com. 60 PTR %s.", d)
		}
	}
	for b, in := range whole {
		if in {
			add("%s. 60 SRV 0 0 443 host.example.com.", b)
		}
	}
	return records
}
