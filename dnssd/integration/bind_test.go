//go:build linux

package integration

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"liqo.io/agent/dnssd"
	"liqo.io/agent/dnssd/resolver"
	"liqo.io/agent/internal/bed"
)

func TestMain(m *testing.M) { bed.Main(m) }

const (
	server = "10.77.0.53"
	// patience is how long a server may take for an answer on a machine that is busy.
	patience = time.Minute
)

// documented is the zone of Liqo's documentation as it stands there, except for the
// addresses, which are the bed's, and the type in the second line, which BIND wants.
const documented = `example.com. PTR liqo-cluster.example.com.
             PTR liqo-cluster-2.example.com.
liqo-cluster.example.com. SRV 0 0 443 auth.server.example.com.
liqo-cluster-2.example.com. SRV 0 0 8443 auth.server-2.example.com.
auth.server.example.com. A 10.77.0.1
auth.server-2.example.com. A 10.77.0.2
`

const (
	id          = "0558de48-097b-4b7d-ba04-6bd2a0f9d24f"
	fingerprint = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
)

// watcher is a box whose poller's reports are kept.
type watcher struct {
	*dnssd.Poller
	t       *testing.T
	ctx     context.Context
	reports chan dnssd.Report
}

// watch polls domains from a host until the test ends.
func watch(t *testing.T, ctx context.Context, host *bed.Host, domains ...dnssd.Domain) *watcher {
	t.Helper()
	w := &watcher{t: t, ctx: ctx, reports: make(chan dnssd.Report, 1000)}
	w.Poller = dnssd.New(dnssd.Config{
		Service: "_liqo._tcp",
		Resolver: func(server string) (dnssd.Resolver, error) {
			r, err := resolver.New(resolver.Config{Server: server, Timeout: patience, Attempts: 1})
			if err != nil {
				return nil, err
			}
			return inside{r, host}, nil
		},
		Report: func(r dnssd.Report) { w.reports <- r },
	})
	run, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- w.Run(run) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run = %v", err)
		}
	})
	w.SetDomains(domains)
	return w
}

// inside is a resolver in a host's network namespace.
type inside struct {
	*resolver.Resolver
	host *bed.Host
}

func (i inside) Lookup(ctx context.Context, name string, qtype uint16) resolver.Answer {
	var a resolver.Answer
	if err := i.host.Do(func() error {
		a = i.Resolver.Lookup(ctx, name, qtype)
		return nil
	}); err != nil {
		return resolver.Answer{Outcome: resolver.Unreachable, Err: err}
	}
	return a
}

// next returns the next report.
func (w *watcher) next() dnssd.Report {
	w.t.Helper()
	select {
	case r := <-w.reports:
		return r
	case <-w.ctx.Done():
		w.t.Fatal("no report")
		return dnssd.Report{}
	}
}

// until returns the first report that is as wanted.
func (w *watcher) until(what string, ok func(dnssd.Report) bool) dnssd.Report {
	w.t.Helper()
	var last dnssd.Report
	for {
		select {
		case last = <-w.reports:
			if ok(last) {
				return last
			}
		case <-w.ctx.Done():
			w.t.Fatalf("not %s: last report %+v", what, last)
		}
	}
}

func instances(r dnssd.Report) string {
	var out []string
	for _, i := range r.Instances {
		mark := ""
		if i.Stale != "" {
			mark = "?"
		}
		var addrs []string
		for _, a := range i.Addrs {
			addrs = append(addrs, a.String())
		}
		out = append(out, fmt.Sprintf("%s%s %s %s", i.Name, mark, i.URL, strings.Join(addrs, ",")))
	}
	return strings.Join(out, "\n")
}

func skips(r dnssd.Report) string {
	var out []string
	for _, s := range r.Skipped {
		out = append(out, s.Name+"="+string(s.Reason))
	}
	return strings.Join(out, " ")
}

func expect(t *testing.T, r dnssd.Report, outcome resolver.Outcome, complete bool, want ...string) {
	t.Helper()
	if r.Outcome != outcome || r.Complete != complete || instances(r) != strings.Join(want, "\n") {
		t.Errorf("outcome %s, complete %t: %s\n%s\nskipped %+v\nwant\n%s", r.Outcome, r.Complete, r.Message, instances(r), r.Skipped, strings.Join(want, "\n"))
	}
}

func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// domain is example.com at the test's server, looked at every second.
func domain() dnssd.Domain {
	return dnssd.Domain{Name: "example.com", Server: server, MinInterval: time.Second, MaxInterval: 2 * time.Second}
}

func TestTheDocumentedZoneComesAndGoes(t *testing.T) {
	b := bed.New(t)
	ns, box := b.AddHost("ns", server+"/24"), b.AddHost("box", "10.77.0.1/24")
	ctx := within(t, 5*time.Minute)
	zone := bed.Zone{Name: "example.com", Text: documented, Dynamic: true}
	bind := ns.StartBIND(ctx, zone)
	w := watch(t, ctx, box, domain())

	const one = "liqo-cluster.example.com https://auth.server.example.com:443 10.77.0.1:443"
	const two = "liqo-cluster-2.example.com https://auth.server-2.example.com:8443 10.77.0.2:8443"
	r := w.next()
	expect(t, r, resolver.Found, true, two, one)
	if r.Server != server+":53" || r.Instances[0].TTL != time.Minute || r.Authenticated {
		t.Errorf("%+v", r)
	}

	// A PTR record goes: the next complete report is without it.
	if err := bind.Update(ctx, "update delete example.com PTR liqo-cluster.example.com."); err != nil {
		t.Fatal(err)
	}
	r = w.until("without the first cluster", func(r dnssd.Report) bool { return len(r.Instances) == 1 })
	expect(t, r, resolver.Found, true, two)

	// The server ends: nobody has left.
	if err := bind.Stop(); err != nil {
		t.Fatal(err)
	}
	r = w.until("without an answer", func(r dnssd.Report) bool { return r.Outcome == resolver.Unreachable }) // what it was asked at its end has no answer
	expect(t, r, resolver.Unreachable, false, strings.Replace(two, " ", "? ", 1))
	if r.Instances[0].Stale == "" || !strings.Contains(r.Message, server+":53") {
		t.Errorf("%q, stale: %q", r.Message, r.Instances[0].Stale)
	}
	// A server that does not know the zone any more: the same.
	other := ns.StartBIND(ctx, bed.Zone{Name: "example.net", Text: "box A 10.77.0.1"})
	w.Hurry()
	r = w.until("refused", func(r dnssd.Report) bool { return r.Outcome == resolver.Refused })
	expect(t, r, resolver.Refused, false, strings.Replace(two, " ", "? ", 1))
	if err := other.Stop(); err != nil {
		t.Fatal(err)
	}

	// It is back, with everything as it was at first.
	bind = ns.StartBIND(ctx, zone)
	w.Hurry()
	// A look that began in between may have asked for the list alone.
	r = w.until("found again", func(r dnssd.Report) bool {
		return r.Outcome == resolver.Found && !slices.ContainsFunc(r.Instances, func(i dnssd.Instance) bool { return i.Stale != "" })
	})
	expect(t, r, resolver.Found, true, two, one)

	// All records of the lists go: nobody is there, and that is an answer.
	if err := bind.Update(ctx, "update delete example.com PTR"); err != nil {
		t.Fatal(err)
	}
	r = w.until("without anybody", func(r dnssd.Report) bool { return len(r.Instances) == 0 })
	expect(t, r, resolver.NoData, true)

	// A domain that does not exist.
	w.SetDomains([]dnssd.Domain{{Name: "none.example.com", Server: server, MinInterval: time.Second, MaxInterval: 2 * time.Second}})
	r = w.until("about the new domain", func(r dnssd.Report) bool { return r.Domain == "none.example.com" })
	expect(t, r, resolver.NoName, true)
}

func TestServiceDiscoveryInFull(t *testing.T) {
	b := bed.New(t)
	ns, box := b.AddHost("ns", server+"/24"), b.AddHost("box", "10.77.0.1/24")
	ctx := within(t, 5*time.Minute)
	ns.StartBIND(ctx, bed.Zone{Name: "example.com", Text: `
example.com. TXT "v=spf1 -all"
_liqo._tcp 600 PTR box\0327._liqo._tcp
           600 PTR plain._liqo._tcp
           600 PTR off._liqo._tcp
           600 PTR nowhere._liqo._tcp
           600 PTR bad._liqo._tcp
           600 PTR loop._liqo._tcp
           600 PTR www
b._dns-sd._udp PTR lab.example.net.
               PTR nothing.example.com.
box\0327._liqo._tcp 600 SRV 0 0 6447 host
                    600 TXT "txtvers=1" "id=` + id + `" "name=Halle 3" "fp=` + fingerprint + `"
plain._liqo._tcp 600 SRV 10 0 1 second
                 600 SRV 5 0 2 first
                 600 SRV 1 0 3 gone
                 600 TXT "v=spf1 -all"
off._liqo._tcp SRV 0 0 0 .
nowhere._liqo._tcp SRV 0 0 443 www
bad._liqo._tcp SRV 0 0 443 host
               TXT "id=Not A Cluster"
loop._liqo._tcp SRV 0 0 443 circle
circle CNAME circle2
circle2 CNAME circle
www TXT "no address"
host 600 AAAA 2001:db8::2
     600 AAAA 2001:db8::1
     600 A 10.77.0.3
     600 A 10.77.0.2
     600 A 127.0.0.1
first 120 CNAME lb.example.net.
second 600 A 10.77.0.9
`}, bed.Zone{Name: "example.net", Text: `
lb 60 A 10.77.0.8
_liqo._tcp.lab PTR far
far SRV 0 0 443 lb
`})
	d := domain()
	d.MinInterval, d.MaxInterval = 30*time.Second, time.Hour
	w := watch(t, ctx, box, d)
	r := w.next()
	expect(t, r, resolver.Found, true,
		`box\ 7._liqo._tcp.example.com https://host.example.com:6447 [2001:db8::1]:6447,10.77.0.2:6447,[2001:db8::2]:6447,10.77.0.3:6447`,
		`far.example.net https://lb.example.net:443 10.77.0.8:443`,
		`plain._liqo._tcp.example.com https://first.example.com:2 10.77.0.8:2,10.77.0.9:1`)
	if got := skips(r); got != "bad._liqo._tcp.example.com=BadTXT loop._liqo._tcp.example.com=LookupFailed nowhere._liqo._tcp.example.com=NoAddress off._liqo._tcp.example.com=NotAvailable www.example.com=NoSRV" {
		t.Errorf("skipped %s", got)
	}
	if got := strings.Join(r.Domains, " "); got != "lab.example.net nothing.example.com" {
		t.Errorf("further domains %s", got)
	}
	if i := r.Instances[0]; string(i.ID) != id || i.ClusterName != "Halle 3" || i.Fingerprint.String() != fingerprint || i.TTL != 10*time.Minute {
		t.Errorf("%+v", i)
	}
	if i := r.Instances[2]; i.TTL != time.Minute || i.ID != "" {
		t.Errorf("%+v", i)
	}
	// The negative answers of these zones hold for 5 s, so that the least interval counts.
	if wait := r.Next.Sub(r.At); wait != 30*time.Second {
		t.Errorf("next look after %s", wait)
	}
}

func TestTwoThousandByTCP(t *testing.T) {
	const n = 2000
	b := bed.New(t)
	ns, box := b.AddHost("ns", server+"/24"), b.AddHost("box", "10.77.0.1/24")
	ctx := within(t, 10*time.Minute) // two looks may take 2 min each
	var text strings.Builder
	text.WriteString("$TTL 600\n")
	for i := range n {
		fmt.Fprintf(&text, "example.com. PTR c%04d\nc%04d SRV 0 0 6447 h%04d\nh%04d A 10.78.%d.%d\n", i, i, i, i, i/250, 1+i%250)
	}
	ns.StartBIND(ctx, bed.Zone{Name: "example.com", Text: text.String()})
	begin := time.Now()
	d := domain()
	d.MinInterval, d.MaxInterval = 30*time.Second, time.Hour
	w := watch(t, ctx, box, d)
	// On a machine with too much to do, a server can be silent for as long as a question waits. Who could not be
	// asked about is named, and is found by the next look.
	r := w.next()
	for r.Outcome == resolver.Found && len(r.Skipped) > 0 {
		// More than 200 that are left out are summed up in one.
		if sum := len(r.Instances) + len(r.Skipped); sum > n || sum < n && len(r.Skipped) <= 200 || !strings.Contains(r.Message, "LookupFailed") {
			t.Fatalf("%d instances, %d skipped: %s", len(r.Instances), len(r.Skipped), r.Message)
		}
		t.Logf("%d instances, then another look: %s", len(r.Instances), r.Message)
		r = w.next()
	}
	if r.Outcome != resolver.Found || len(r.Instances) != n {
		t.Fatalf("%s: %d instances, %d skipped: %s", r.Outcome, len(r.Instances), len(r.Skipped), r.Message)
	}
	if !slices.ContainsFunc(r.Instances, func(i dnssd.Instance) bool {
		return i.Name == "c1999.example.com" && i.URL == "https://h1999.example.com:6447" && i.Addrs[0].String() == "10.78.7.250:6447"
	}) {
		t.Errorf("%+v", r.Instances[n-1])
	}
	t.Logf("%d questions in %s", r.Queries, r.At.Sub(begin).Round(time.Millisecond))
}
