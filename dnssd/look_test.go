package dnssd

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"liqo.io/agent/dnssd/resolver"
)

const (
	testID = "0558de48-097b-4b7d-ba04-6bd2a0f9d24f"
	testFP = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
)

// classic is the zone of Liqo's documentation.
const classic = `
example.com. PTR liqo-cluster.example.com.
             PTR liqo-cluster-2.example.com.
liqo-cluster.example.com. SRV 0 0 443 auth.server.example.com.
liqo-cluster-2.example.com. SRV 0 0 8443 auth.server-2.example.com.
auth.server.example.com. A 1.2.3.4
auth.server-2.example.com. A 2.3.4.1
`

func TestTheZoneOfTheDocumentation(t *testing.T) {
	z := newZone(t, classic)
	r := lookOnce(context.Background(), z, "_liqo._tcp", Domain{Name: "example.com"})
	valid(t, r)
	if r.Outcome != resolver.Found || !r.Complete || r.Domain != "example.com" || r.Server != "192.0.2.53:53" || r.Authenticated || len(r.Skipped) != 0 {
		t.Errorf("report %+v", r)
	}
	if names(r) != "liqo-cluster-2.example.com liqo-cluster.example.com" {
		t.Fatalf("instances %s", names(r))
	}
	one := instanceNamed(t, r, "liqo-cluster.example.com")
	if one.URL != "https://auth.server.example.com:443" || addrs(one) != "1.2.3.4:443" || one.TTL != time.Hour || one.ID != "" || one.ClusterName != "" {
		t.Errorf("%+v", one)
	}
	two := instanceNamed(t, r, "liqo-cluster-2.example.com")
	if two.URL != "https://auth.server-2.example.com:8443" || addrs(two) != "2.3.4.1:8443" {
		t.Errorf("%+v", two)
	}
	// 3 lists; SRV, TXT, A and AAAA of each.
	if r.Queries != 11 {
		t.Errorf("%d questions", r.Queries)
	}
	if r.Message != "2 clusters are listed" {
		t.Errorf("message %q", r.Message)
	}
}

// lookOnce looks at a domain without any memory of earlier looks.
func lookOnce(ctx context.Context, r Resolver, service string, d Domain) Report {
	d = withDefaults(d)
	l := look{
		asker:   asker{domain: d, resolver: r, gate: newGate(defaultParallel), start: time.Now(), whole: ctx, memory: newMemory(nil)},
		service: service, limit: defaultMaxInstances, seed: newSeed(),
	}
	report := l.run(ctx)
	report.Next = l.memory.next(report.At, d, 0)
	return report
}

// TestLookup has a zone per case, and what fails of it.
func TestLookup(t *testing.T) {
	const host = "\nhost.example.com. A 10.0.0.1\n"
	const box = "\n_liqo._tcp.example.com. PTR box._liqo._tcp.example.com.\nbox._liqo._tcp.example.com. SRV 0 0 6447 host.example.com.\n"
	const boxName = "box._liqo._tcp.example.com"
	long := strings.Repeat(strings.Repeat(`\001`, 63)+".", 3) + strings.Repeat(`\001`, 49) + ".example.com"
	for _, tc := range []struct {
		name, zone string
		fail       map[string]resolver.Outcome
		outcome    resolver.Outcome
		complete   bool
		instances  string // as names returns them
		skipped    string
		check      func(Report) string // what is wrong
	}{
		{name: "RFC 6763 with a text", zone: box + host + boxName + `. TXT "txtvers=1" "id=` + testID + `" "name=Halle 3" "ns=guests" "fp=` + testFP + `" "v=2"`,
			outcome: resolver.Found, complete: true, instances: boxName,
			check: func(r Report) string {
				i := r.Instances[0]
				if string(i.ID) != testID || i.ClusterName != "Halle 3" || i.Namespace != "guests" || i.Fingerprint.String() != testFP || i.Version != "2" {
					return fmt.Sprintf("%+v", i)
				}
				return ""
			}},
		{name: "text with a key in capitals, repeated", zone: box + host + boxName + `. TXT "ID=` + testID + `" "id=other"`,
			outcome: resolver.Found, complete: true, instances: boxName,
			check: func(r Report) string {
				if i := r.Instances[0]; string(i.ID) != testID || !i.Fingerprint.IsZero() || i.ClusterName != testID[:8] || i.Namespace != "liqo" {
					return fmt.Sprintf("%+v", i)
				}
				return ""
			}},
		{name: "only a fingerprint", zone: box + host + boxName + `. TXT "fp=` + testFP + `"`,
			outcome: resolver.Found, complete: true, instances: boxName,
			check: func(r Report) string {
				if i := r.Instances[0]; i.ID != "" || i.Fingerprint.String() != testFP {
					return fmt.Sprintf("%+v", i)
				}
				return ""
			}},
		{name: "others' texts beside ours", zone: box + host + boxName + `. TXT "v=spf1 -all"` + "\n" + boxName + `. TXT "zzz"` + "\n" + boxName + `. TXT "id=` + testID + `"`,
			outcome: resolver.Found, complete: true, instances: boxName,
			check: func(r Report) string {
				if string(r.Instances[0].ID) != testID {
					return fmt.Sprintf("%+v", r.Instances[0])
				}
				return ""
			}},
		{name: "others' texts only", zone: box + host + boxName + `. TXT "v=spf1 include:_spf.example.net ~all"`,
			outcome: resolver.Found, complete: true, instances: boxName,
			check: func(r Report) string {
				if i := r.Instances[0]; i.ID != "" || i.Version != "" || i.Namespace != "" {
					return fmt.Sprintf("%+v", i)
				}
				return ""
			}},
		{name: "bad ID", zone: box + host + boxName + `. TXT "id=../../etc"`, outcome: resolver.Found, complete: true, skipped: boxName + "=BadTXT",
			check: func(r Report) string {
				if !strings.Contains(r.Skipped[0].Message, `"id"`) {
					return r.Skipped[0].Message
				}
				return ""
			}},
		{name: "bad fingerprint", zone: box + host + boxName + `. TXT "fp=abcd"`, outcome: resolver.Found, complete: true, skipped: boxName + "=BadTXT"},
		{name: "empty ID", zone: box + host + boxName + `. TXT "id"`, outcome: resolver.Found, complete: true, skipped: boxName + "=BadTXT"},
		{name: "newer layout", zone: box + host + boxName + `. TXT "txtvers=2" "id=` + testID + `"`, outcome: resolver.Found, complete: true, skipped: boxName + "=BadTXT"},
		{name: "first of two of ours counts", zone: box + host + boxName + `. TXT "id=zz"` + "\n" + boxName + `. TXT "id=aa"`, outcome: resolver.Found, complete: true, instances: boxName,
			check: func(r Report) string {
				if r.Instances[0].ID != "aa" {
					return string(r.Instances[0].ID)
				}
				return ""
			}},

		{name: "nothing at all", zone: "other.net. A 10.0.0.1", outcome: resolver.NoName, complete: true},
		{name: "domain without lists", zone: "example.com. A 10.0.0.1", outcome: resolver.NoData, complete: true},
		{name: "NODATA at the domain and NXDOMAIN below", zone: "example.com. TXT hello", outcome: resolver.NoData, complete: true,
			check: func(r Report) string {
				if !strings.Contains(r.Message, "neither example.com nor _liqo._tcp.example.com") {
					return r.Message
				}
				return ""
			}},

		{name: "PTR to something without SRV", zone: "example.com. PTR www.example.com.\nexample.com. PTR gone.example.com.\nwww.example.com. A 10.0.0.1",
			outcome: resolver.Found, complete: true, skipped: "gone.example.com=NoSRV www.example.com=NoSRV"},
		{name: "PTR to the root", zone: "example.com. PTR .", outcome: resolver.Found, complete: true, skipped: ".=NoSRV"},
		{name: "PTR to the domain itself", zone: "example.com. PTR example.com.\nexample.com. SRV 0 0 1 host.example.com." + host, outcome: resolver.Found, complete: true, instances: "example.com"},
		{name: "not available", zone: "example.com. PTR box.example.com.\nbox.example.com. SRV 0 0 0 .", outcome: resolver.Found, complete: true, skipped: "box.example.com=NotAvailable"},
		{name: "not available beside available", zone: box + host + boxName + ". SRV 0 0 0 .", outcome: resolver.Found, complete: true, instances: boxName},
		{name: "port 0", zone: "example.com. PTR box.example.com.\nbox.example.com. SRV 0 0 0 host.example.com." + host, outcome: resolver.Found, complete: true, skipped: "box.example.com=NoSRV",
			check: func(r Report) string {
				if !strings.Contains(r.Skipped[0].Message, "port 0") {
					return r.Skipped[0].Message
				}
				return ""
			}},
		{name: "target that is an address", zone: "example.com. PTR box.example.com.\nbox.example.com. SRV 0 0 443 10.0.0.1.", outcome: resolver.Found, complete: true, skipped: "box.example.com=NoSRV",
			check: func(r Report) string {
				if !strings.Contains(r.Skipped[0].Message, "is an address") {
					return r.Skipped[0].Message
				}
				return ""
			}},
		{name: "target that is no host name", zone: `example.com. PTR box.example.com.` + "\n" + `box.example.com. SRV 0 0 443 a\ b\@c.example.com.` + "\n" + `a\ b\@c.example.com. A 10.0.0.1`,
			outcome: resolver.Found, complete: true, skipped: "box.example.com=NoSRV"},
		{name: "bad SRV beside a good one", zone: box + host + boxName + ". SRV 0 0 0 host.example.com.", outcome: resolver.Found, complete: true, instances: boxName},
		{name: "no address", zone: box + "host.example.com. TXT hello", outcome: resolver.Found, complete: true, skipped: boxName + "=NoAddress"},
		{name: "target does not exist", zone: box, outcome: resolver.Found, complete: true, skipped: boxName + "=NoAddress",
			check: func(r Report) string {
				if r.Skipped[0].Message != "its target host.example.com does not exist" {
					return r.Skipped[0].Message
				}
				return ""
			}},
		{name: "unusable addresses only", zone: box + "host.example.com. A 127.0.0.1\nhost.example.com. A 0.0.0.0\nhost.example.com. A 0.1.2.3\nhost.example.com. A 224.0.0.251\nhost.example.com. A 169.254.169.254\nhost.example.com. A 255.255.255.255\n" +
			"host.example.com. AAAA ::\nhost.example.com. AAAA ::1\nhost.example.com. AAAA fe80::1\nhost.example.com. AAAA ff02::fb\nhost.example.com. AAAA ::ffff:127.0.0.1",
			outcome: resolver.Found, complete: true, skipped: boxName + "=NoAddress",
			check: func(r Report) string {
				if !strings.Contains(r.Skipped[0].Message, "no address that could be used") {
					return r.Skipped[0].Message
				}
				return ""
			}},
		{name: "both IP versions, interleaved and sorted", zone: box + "host.example.com. A 10.0.0.2\nhost.example.com. A 10.0.0.1\nhost.example.com. A 10.0.0.3\nhost.example.com. AAAA 2001:db8::2\nhost.example.com. AAAA 2001:db8::1\nhost.example.com. A 127.0.0.1",
			outcome: resolver.Found, complete: true, instances: boxName,
			check: func(r Report) string {
				if got := addrs(r.Instances[0]); got != "[2001:db8::1]:6447 10.0.0.1:6447 [2001:db8::2]:6447 10.0.0.2:6447 10.0.0.3:6447" {
					return got
				}
				return ""
			}},
		{name: "IPv4 in IPv6", zone: box + "host.example.com. A 10.0.0.1\nhost.example.com. AAAA ::ffff:10.0.0.1\nhost.example.com. AAAA ::ffff:10.0.0.2", outcome: resolver.Found, complete: true, instances: boxName,
			check: func(r Report) string {
				if got := addrs(r.Instances[0]); got != "10.0.0.1:6447 10.0.0.2:6447" {
					return got
				}
				return ""
			}},
		{name: "alias outside the domain", zone: box + "host.example.com. 60 CNAME lb.elsewhere.net.\nlb.elsewhere.net. 7200 A 203.0.113.9", outcome: resolver.Found, complete: true, instances: boxName,
			check: func(r Report) string {
				if i := r.Instances[0]; i.URL != "https://host.example.com:6447" || addrs(i) != "203.0.113.9:6447" || i.TTL != time.Minute {
					return fmt.Sprintf("%+v", i)
				}
				return ""
			}},
		{name: "target outside the domain", zone: "example.com. PTR box.example.com.\nbox.example.com. SRV 0 0 443 lb.elsewhere.net.\nlb.elsewhere.net. A 203.0.113.9", outcome: resolver.Found, complete: true, instances: "box.example.com",
			check: func(r Report) string {
				if i := r.Instances[0]; i.URL != "https://lb.elsewhere.net:443" {
					return i.URL
				}
				return ""
			}},
		{name: "priorities", zone: "example.com. PTR box.example.com.\nbox.example.com. SRV 20 0 1 c.example.com.\nbox.example.com. SRV 5 0 2 dead.example.com.\nbox.example.com. SRV 10 0 3 b.example.com.\n" +
			"b.example.com. A 10.0.0.2\nc.example.com. A 10.0.0.3", outcome: resolver.Found, complete: true, instances: "box.example.com",
			check: func(r Report) string {
				if i := r.Instances[0]; i.URL != "https://b.example.com:3" || addrs(i) != "10.0.0.2:3 10.0.0.3:1" {
					return fmt.Sprintf("%+v", i)
				}
				return ""
			}},
		{name: "one host, two ports", zone: "example.com. PTR box.example.com.\nbox.example.com. SRV 2 0 2 host.example.com.\nbox.example.com. SRV 1 0 1 HOST.example.com." + host, outcome: resolver.Found, complete: true, instances: "box.example.com",
			check: func(r Report) string {
				if i := r.Instances[0]; i.URL != "https://host.example.com:1" || addrs(i) != "10.0.0.1:1 10.0.0.1:2" {
					return fmt.Sprintf("%+v", i)
				}
				return ""
			}},
		{name: "the same by two ways is one", zone: box + host + "example.com. PTR BOX._LIQO._tcp.Example.COM.", outcome: resolver.Found, complete: true, instances: boxName},
		{name: "names with escapes", zone: `_liqo._tcp.example.com. PTR Box\ 7._liqo._tcp.example.com.` + "\n" + `_liqo._tcp.example.com. PTR a\.b\195\188\000._liqo._tcp.example.com.` + "\n" +
			`box\ 7._liqo._tcp.example.com. SRV 0 0 1 host.example.com.` + "\n" + `a\.b\195\188\000._liqo._tcp.example.com. SRV 0 0 1 host.example.com.` + host,
			outcome: resolver.Found, complete: true, instances: `a\.b\195\188\000._liqo._tcp.example.com box\ 7._liqo._tcp.example.com`},
		{name: "a further domain whose list has a name that is too long", zone: box + host + "b._dns-sd._udp.example.com. PTR " + strings.Repeat("abcdefg.", 30) + "net.", outcome: resolver.Found, complete: true, instances: boxName,
			check: func(r Report) string { return strings.Join(r.Domains, " ") }},
		{name: "the longest name", zone: "example.com. PTR " + long + ".", outcome: resolver.Found, complete: true, skipped: long + "=NoSRV"},

		{name: "further domains", zone: "b._dns-sd._udp.example.com. PTR sales.example.com.\nb._dns-sd._udp.example.com. PTR example.com.\nb._dns-sd._udp.example.com. PTR lab.example.net.\nb._dns-sd._udp.example.com. PTR .\n" +
			"_liqo._tcp.lab.example.net. PTR x._liqo._tcp.lab.example.net.\nx._liqo._tcp.lab.example.net. SRV 0 0 1 host.example.com.\n" +
			"lab.example.net. PTR y.example.net.\ny.example.net. SRV 0 0 1 host.example.com.\n" + // the other way to list counts for the domain itself only
			"b._dns-sd._udp.lab.example.net. PTR deep.example.org.\n_liqo._tcp.deep.example.org. PTR z.example.org.\n" + host,
			outcome: resolver.Found, complete: true, instances: "x._liqo._tcp.lab.example.net",
			check: func(r Report) string {
				if got := strings.Join(r.Domains, " "); got != "lab.example.net sales.example.com" {
					return got
				}
				return ""
			}},
		{name: "a further domain that fails", zone: box + host + "b._dns-sd._udp.example.com. PTR lab.example.net.", fail: map[string]resolver.Outcome{"_liqo._tcp.lab.example.net": resolver.ServerFailure},
			outcome: resolver.Found, complete: true, instances: boxName},
		{name: "nothing but a further domain that fails", zone: "example.com. TXT x\nb._dns-sd._udp.example.com. PTR lab.example.net.", fail: map[string]resolver.Outcome{"_liqo._tcp.lab.example.net": resolver.ServerFailure},
			outcome: resolver.ServerFailure, complete: true},
		{name: "browsing refused, nothing there", zone: "example.com. TXT x", fail: map[string]resolver.Outcome{"b._dns-sd._udp.example.com": resolver.Refused},
			outcome: resolver.NoData, complete: true,
			check: func(r Report) string {
				if !strings.Contains(r.Message, "not answered: b._dns-sd._udp.example.com PTR") {
					return r.Message
				}
				return ""
			}},
		{name: "browsing refused", zone: classic, fail: map[string]resolver.Outcome{"b._dns-sd._udp.example.com": resolver.Refused},
			outcome: resolver.Found, complete: true, instances: "liqo-cluster-2.example.com liqo-cluster.example.com"},

		{name: "everything times out", zone: classic, fail: map[string]resolver.Outcome{"": resolver.Timeout}, outcome: resolver.Timeout},
		{name: "one list fails, the other finds", zone: box + host, fail: map[string]resolver.Outcome{"example.com": resolver.ServerFailure}, outcome: resolver.Found, complete: true, instances: boxName},
		{name: "one list fails, the other has nothing", zone: "example.com. TXT x", fail: map[string]resolver.Outcome{"_liqo._tcp.example.com": resolver.Refused}, outcome: resolver.Refused,
			check: func(r Report) string {
				if r.Server != "192.0.2.53:53" || !strings.HasPrefix(r.Message, "look up _liqo._tcp.example.com. PTR") {
					return r.Server + ": " + r.Message
				}
				return ""
			}},
		{name: "the worst counts", zone: "example.com. TXT x", fail: map[string]resolver.Outcome{"example.com": resolver.Refused, "_liqo._tcp.example.com": resolver.Timeout}, outcome: resolver.Timeout,
			check: func(r Report) string {
				if !strings.Contains(r.Message, "not answered: example.com PTR") {
					return r.Message
				}
				return ""
			}},
		{name: "the domain itself decides ties", zone: "example.com. TXT x", fail: map[string]resolver.Outcome{"example.com": resolver.Refused, "_liqo._tcp.example.com": resolver.Refused}, outcome: resolver.Refused,
			check: func(r Report) string {
				if !strings.HasPrefix(r.Message, "look up example.com. PTR") {
					return r.Message
				}
				return ""
			}},
		{name: "an outcome nobody knows", zone: classic, fail: map[string]resolver.Outcome{"": "Strange"}, outcome: resolver.BadAnswer},

		{name: "SRV fails", zone: classic, fail: map[string]resolver.Outcome{"liqo-cluster.example.com SRV": resolver.ServerFailure}, outcome: resolver.Found, complete: true,
			instances: "liqo-cluster-2.example.com", skipped: "liqo-cluster.example.com=LookupFailed"},
		{name: "TXT fails", zone: classic, fail: map[string]resolver.Outcome{"liqo-cluster.example.com TXT": resolver.ServerFailure}, outcome: resolver.Found, complete: true,
			instances: "liqo-cluster-2.example.com", skipped: "liqo-cluster.example.com=LookupFailed"},
		{name: "AAAA fails and A finds", zone: classic, fail: map[string]resolver.Outcome{"auth.server.example.com AAAA": resolver.ServerFailure}, outcome: resolver.Found, complete: true,
			instances: "liqo-cluster-2.example.com liqo-cluster.example.com"},
		{name: "AAAA fails and A has nothing", zone: box + "host.example.com. TXT x", fail: map[string]resolver.Outcome{"host.example.com AAAA": resolver.Timeout}, outcome: resolver.Found, complete: true,
			skipped: boxName + "=LookupFailed"},
		{name: "A fails and AAAA has nothing", zone: box + "host.example.com. TXT x", fail: map[string]resolver.Outcome{"host.example.com A": resolver.Timeout}, outcome: resolver.Found, complete: true,
			skipped: boxName + "=LookupFailed"},
		{name: "AAAA fails and A is unusable", zone: box + "host.example.com. A 127.0.0.1", fail: map[string]resolver.Outcome{"host.example.com AAAA": resolver.Timeout}, outcome: resolver.Found, complete: true,
			skipped: boxName + "=LookupFailed"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			z := newZone(t, tc.zone)
			if tc.fail != nil {
				z.fail = tc.fail
			}
			r := newLooker(z).look(context.Background())
			valid(t, r)
			if r.Outcome != tc.outcome || r.Complete != tc.complete {
				t.Errorf("outcome %s, complete %t: %s", r.Outcome, r.Complete, r.Message)
			}
			if names(r) != tc.instances || skipped(r) != tc.skipped {
				t.Errorf("instances %s, skipped %s (%+v)", orNone(names(r)), orNone(skipped(r)), r.Skipped)
			}
			if tc.check != nil && !t.Failed() {
				if problem := tc.check(r); problem != "" {
					t.Error(problem)
				}
			}
		})
	}
}

// TestADomainWithoutRoomForTheService: only its own name can list somebody.
func TestADomainWithoutRoomForTheService(t *testing.T) {
	domain := strings.Repeat("abcdefg.", 30) + "example"
	z := newZone(t, domain+". PTR box.example.com.\nbox.example.com. SRV 0 0 1 host.example.com.\nhost.example.com. A 10.0.0.1")
	k := newLooker(z)
	k.domain.Name = domain
	if r := k.look(context.Background()); names(r) != "box.example.com" || r.Outcome != resolver.Found {
		t.Errorf("%+v", r)
	}
	z.set(t, domain+". TXT x")
	k.memory.expire()
	if r := k.look(context.Background()); r.Outcome != resolver.NoData || !r.Complete {
		t.Errorf("%+v", r)
	}
}

func TestAuthenticatedIsEveryAnswer(t *testing.T) {
	z := newZone(t, classic)
	z.signed = true
	k := newLooker(z)
	if r := k.look(context.Background()); !r.Authenticated {
		t.Error("all answers were authenticated")
	}
	z.signed = false
	k.memory.topics[question{"auth.server.example.com", 1}].now = true
	if r := k.look(context.Background()); r.Authenticated || r.Queries != 1 {
		t.Errorf("one answer was not authenticated: %+v", r)
	}
	z.failing("", resolver.Timeout)
	k.memory.expire()
	if r := k.look(context.Background()); r.Authenticated {
		t.Error("there was no answer")
	}
}

func TestFurtherDomainsAreBounded(t *testing.T) {
	var text strings.Builder
	for i := range 40 {
		fmt.Fprintf(&text, "b._dns-sd._udp.example.com. PTR d%02d.example.net.\n", i)
	}
	z := newZone(t, text.String())
	k := newLooker(z)
	r := k.look(context.Background())
	valid(t, r)
	if len(r.Domains) != maxDomains || r.Domains[0] != "d00.example.net" || r.Domains[15] != "d15.example.net" || skipped(r) != "b._dns-sd._udp.example.com=TooMany" {
		t.Errorf("%v, %s", r.Domains, skipped(r))
	}
	if n, asked := z.count(); n != 3+maxDomains {
		t.Errorf("%d questions: %v", n, asked)
	}
	// One that was there before is not pushed out by strangers.
	text.Reset()
	for i := range 40 {
		fmt.Fprintf(&text, "b._dns-sd._udp.example.com. PTR a%02d.example.net.\n", i)
	}
	text.WriteString("b._dns-sd._udp.example.com. PTR d07.example.net.\n")
	z.set(t, text.String())
	k.memory.expire()
	if r = k.look(context.Background()); len(r.Domains) != maxDomains || r.Domains[15] != "d07.example.net" {
		t.Errorf("%v", r.Domains)
	}
}
