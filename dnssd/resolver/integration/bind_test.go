package integration

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/miekg/dns"

	"liqo.io/agent/dnssd/resolver"
	"liqo.io/agent/internal/bed"
)

func TestMain(m *testing.M) { bed.Main(m) }

const (
	authority = "10.77.0.53"
	recursive = "10.77.0.54"
)

// fleet is the zone that users are shown.
const fleet = `example.com.                   PTR     liqo-cluster.example.com.
                               PTR     liqo-cluster-2.example.com.
liqo-cluster.example.com.      SRV     0 0 443 auth.server.example.com.
liqo-cluster-2.example.com.    SRV     0 0 8443 auth.server-2.example.com.
auth.server.example.com.       A       10.77.0.1
auth.server-2.example.com.     A       10.77.0.2
                               AAAA    2001:db8::2
auth.alias.example.com.        CNAME   auth.server.example.com.
outside.example.com.           CNAME   box.example.org.
circle.example.com.            CNAME   circle-2.example.com.
circle-2.example.com.          CNAME   circle.example.com.
moved.example.com.             DNAME   server.example.com.
away.example.com.              NS      ns.example.org.
\215ber\.all.example.com.      TXT     "a name with a dot"
`

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// box is a host that asks.
type box struct {
	*bed.Host
	t *testing.T
}

// resolver returns a resolver. A server that is named may take its time for an answer on a
// machine that is busy: asking again would be counted.
func (b box) resolver(cfg resolver.Config) *resolver.Resolver {
	b.t.Helper()
	if cfg.Server != "" && cfg.Timeout == 0 {
		cfg.Timeout = time.Minute
	}
	r, err := resolver.New(cfg)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(r.Close)
	return r
}

// lookup looks a name up from the box.
func (b box) lookup(ctx context.Context, r *resolver.Resolver, name string, qtype uint16) resolver.Answer {
	b.t.Helper()
	var a resolver.Answer
	if err := b.Do(func() error {
		a = r.Lookup(ctx, name, qtype)
		return nil
	}); err != nil {
		b.t.Fatal(err)
	}
	return a
}

// expect looks a name up and compares the outcome and the data of the records, sorted.
func (b box) expect(ctx context.Context, r *resolver.Resolver, name string, qtype uint16, want resolver.Outcome, records ...string) resolver.Answer {
	b.t.Helper()
	a := b.lookup(ctx, r, name, qtype)
	var got []string
	for _, rr := range a.Records {
		got = append(got, strings.TrimPrefix(rr.String(), rr.Header().String()))
	}
	slices.Sort(got)
	if a.Outcome != want {
		b.t.Fatalf("%s %s: %s (%v), want %s", name, dns.Type(qtype), a.Outcome, a.Err, want)
	}
	if diff := cmp.Diff(records, got); diff != "" {
		b.t.Errorf("%s %s (-want +got):\n%s", name, dns.Type(qtype), diff)
	}
	return a
}

func TestAuthoritativeServer(t *testing.T) {
	b := bed.New(t)
	ns, world := b.AddHost("ns", authority+"/24"), b.AddHost("world", recursive+"/24")
	box := box{b.AddHost("box", "10.77.0.1/24"), t}
	ctx := within(t)
	zone := bed.Zone{Name: "example.com", Text: fleet, Dynamic: true}
	bind := ns.StartBIND(ctx, zone)
	// What the rest of the world knows, and what it thinks of our domain.
	world.StartBIND(ctx, bed.Zone{Name: "example.org", Text: "box A 10.77.0.7"},
		bed.Zone{Name: "example.com", Text: "@ A 192.0.2.1\nx.away A 10.77.0.8"})
	box.WriteFile("/etc/resolv.conf", "search example.net\nnameserver "+recursive+"\n")

	r := box.resolver(resolver.Config{Server: authority, Domain: "example.com"})
	box.expect(ctx, r, "example.com", dns.TypePTR, resolver.Found, "liqo-cluster-2.example.com.", "liqo-cluster.example.com.")
	box.expect(ctx, r, "LIQO-cluster.example.com.", dns.TypeSRV, resolver.Found, "0 0 443 auth.server.example.com.")
	box.expect(ctx, r, "auth.server-2.example.com", dns.TypeAAAA, resolver.Found, "2001:db8::2")
	if a := box.expect(ctx, r, "auth.server.example.com", dns.TypeAAAA, resolver.NoData); a.TTL != 5*time.Second {
		t.Errorf("that there is nothing holds for %v, want 5s", a.TTL)
	}
	if a := box.expect(ctx, r, "none.example.com", dns.TypeA, resolver.NoName); a.TTL != 5*time.Second || a.Server != authority+":53" {
		t.Errorf("that there is no such name holds for %v, as %s says", a.TTL, a.Server)
	}
	if a := box.expect(ctx, r, "auth.alias.example.com", dns.TypeA, resolver.Found, "10.77.0.1"); a.Name != "auth.server.example.com." {
		t.Errorf("the records are those of %s", a.Name)
	}
	box.expect(ctx, r, "auth.moved.example.com", dns.TypeA, resolver.Found, "10.77.0.1")
	box.expect(ctx, r, `\215ber\.all.example.com`, dns.TypeTXT, resolver.Found, `"a name with a dot"`)
	if a := box.expect(ctx, r, "circle.example.com", dns.TypeA, resolver.BadAnswer); !strings.Contains(a.Err.Error(), "in a circle") {
		t.Errorf("error %v", a.Err)
	}

	// Outside of its zones it knows nothing, and others are asked.
	if a := box.expect(ctx, r, "outside.example.com", dns.TypeA, resolver.Found, "10.77.0.7"); a.Server != recursive+":53" {
		t.Errorf("answered by %s", a.Server)
	}
	box.expect(ctx, r, "x.away.example.com", dns.TypeA, resolver.Found, "10.77.0.8")
	box.expect(ctx, r, "none.example.org", dns.TypeA, resolver.NoName)

	// Changes are seen.
	if err := bind.Update(ctx, "update delete example.com PTR liqo-cluster.example.com.\nupdate add box.example.com 60 A 10.77.0.9"); err != nil {
		t.Fatal(err)
	}
	box.expect(ctx, r, "example.com", dns.TypePTR, resolver.Found, "liqo-cluster-2.example.com.")
	box.expect(ctx, r, "box.example.com", dns.TypeA, resolver.Found, "10.77.0.9")
	zone.Text = strings.Join(strings.SplitAfter(fleet, "\n")[2:], "")
	if err := bind.Rewrite(ctx, zone); err != nil {
		t.Fatal(err)
	}
	box.expect(ctx, r, "example.com", dns.TypePTR, resolver.NoData)

	// A server that is not there, or does not know the zone any more, says nothing about it, whatever others say.
	if err := bind.Stop(); err != nil {
		t.Fatal(err)
	}
	box.expect(ctx, r, "example.com", dns.TypePTR, resolver.Unreachable)
	ns.StartBIND(ctx, bed.Zone{Name: "example.net", Text: "box A 10.77.0.1"})
	box.expect(ctx, r, "example.com", dns.TypePTR, resolver.Refused)
	box.expect(ctx, box.resolver(resolver.Config{Server: authority}), "example.com", dns.TypePTR, resolver.Refused)
	ns.Link("eth0").Unplug()
	box.expect(ctx, box.resolver(resolver.Config{Server: authority, Timeout: 200 * time.Millisecond}), "example.com", dns.TypePTR, resolver.Timeout)
}

// The system's name servers: the first one is not there, the second one resolves and validates.
func TestSystemResolvers(t *testing.T) {
	b := bed.New(t)
	ns, second := b.AddHost("ns", authority+"/24"), b.AddHost("second", recursive+"/24")
	box := box{b.AddHost("box", "10.77.0.1/24"), t}
	ctx := within(t)
	const signed = "dnssec-policy default; inline-signing yes;"
	ns.StartBIND(ctx,
		bed.Zone{Name: "example.com", Text: fleet, Options: signed},
		bed.Zone{Name: "example.org", Text: "box A 10.77.0.7"},
		bed.Zone{Name: "bogus.example", Text: "box A 10.77.0.7", Options: signed})
	anchor := func(zone string) string {
		var key string
		if err := bed.Poll(ctx, func() error {
			out, err := ns.Run(ctx, "dig", "@127.0.0.1", "+short", zone, "DNSKEY")
			if err != nil {
				return err
			}
			fields := strings.Fields(out)
			if len(fields) < 4 {
				return fmt.Errorf("zone %s is not signed", zone)
			}
			key = fmt.Sprintf("%q static-key %s %s %s \"%s\";", zone, fields[0], fields[1], fields[2], strings.Join(fields[3:], ""))
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		return key
	}
	// Keys are there before all that is signed with them: a server that validates would take what is not for forged.
	for _, asked := range []struct {
		name, qtype string
		signatures  int
	}{{"example.com", "PTR", 1}, {"auth.alias.example.com", "A", 2}, {"none.example.com", "A", 2}} {
		if err := bed.Poll(ctx, func() error {
			out, err := ns.Run(ctx, "dig", "@127.0.0.1", "+dnssec", "+noall", "+answer", "+authority", asked.name, asked.qtype)
			if err == nil && strings.Count(out, "\tRRSIG\t") < asked.signatures {
				err = fmt.Errorf("%s %s is not signed:\n%s", asked.name, asked.qtype, out)
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	wrong := strings.Replace(anchor("example.com"), `"example.com"`, `"bogus.example"`, 1)
	second.StartBINDWith(ctx, bed.BINDConfig{
		Options:    "recursion yes; allow-recursion { any; }; dnssec-validation yes; forward only; forwarders { " + authority + "; };",
		Statements: "trust-anchors { " + anchor("example.com") + wrong + " };",
	})
	box.WriteFile("/etc/resolv.conf", "search example.com\noptions timeout:10\nnameserver 10.77.0.99\nnameserver "+recursive+"\n")

	r := box.resolver(resolver.Config{})
	a := box.expect(ctx, r, "example.com", dns.TypePTR, resolver.Found, "liqo-cluster-2.example.com.", "liqo-cluster.example.com.")
	if !a.Authenticated || a.Server != recursive+":53" {
		t.Errorf("authenticated %v by %s", a.Authenticated, a.Server)
	}
	queries := r.Queries()
	if a := box.expect(ctx, r, "auth.alias.example.com", dns.TypeA, resolver.Found, "10.77.0.1"); !a.Authenticated {
		t.Error("an alias is not authenticated")
	}
	if a := box.expect(ctx, r, "none.example.com", dns.TypeA, resolver.NoName); !a.Authenticated {
		t.Error("that there is no such name is not authenticated")
	}
	if got := r.Queries() - queries; got != 2 {
		t.Errorf("%d questions for two names: the server that is there is not remembered", got)
	}
	if a := box.expect(ctx, r, "box.example.org", dns.TypeA, resolver.Found, "10.77.0.7"); a.Authenticated {
		t.Error("a zone without signatures is authenticated")
	}
	box.expect(ctx, r, "box.bogus.example", dns.TypeA, resolver.ServerFailure)
	// The search domain is not for us.
	if a := box.lookup(ctx, r, "liqo-cluster", dns.TypeSRV); a.Outcome == resolver.Found {
		t.Errorf("a name without dots was searched for: %v", a.Records)
	}
}

func TestThousandsOverTLSAndTCP(t *testing.T) {
	b := bed.New(t)
	ns := b.AddHost("ns", authority+"/24")
	box := box{b.AddHost("box", "10.77.0.1/24"), t}
	ctx := within(t)
	roots, certificate, key := selfSigned(t, "ns.example.com")
	ns.WriteFile("/run/tls.crt", certificate)
	ns.WriteFile("/run/tls.key", key)
	const clusters = 2000
	var text strings.Builder
	for i := range clusters {
		fmt.Fprintf(&text, "@ PTR c%04d\nc%04d SRV 0 0 6447 c%04d.box\nc%04d.box A 10.%d.%d.1\n", i, i, i, i, i/250, i%250)
	}
	ns.StartBINDWith(ctx, bed.BINDConfig{
		Options:    "recursion no; dnssec-validation no; listen-on port 853 tls local { any; };",
		Statements: `tls local { cert-file "/run/tls.crt"; key-file "/run/tls.key"; };`,
	}, bed.Zone{Name: "example.com", Text: text.String()})
	// The system's resolver does its work on goroutines, which are not on the box.
	hosts := func(context.Context, string) ([]netip.Addr, error) {
		return []netip.Addr{netip.MustParseAddr(authority)}, nil
	}
	for _, cfg := range []resolver.Config{{Server: authority}, {Server: "tls://ns.example.com", RootCAs: roots, LookupHost: hosts}} {
		t.Run(cfg.Server, func(t *testing.T) {
			box.t = t
			r := box.resolver(cfg)
			a := box.lookup(ctx, r, "example.com", dns.TypePTR)
			if a.Outcome != resolver.Found || len(a.Records) != clusters {
				t.Fatalf("%s, %d records, %v", a.Outcome, len(a.Records), a.Err)
			}
			before := r.Queries()
			for _, rr := range a.Records {
				name := rr.(*dns.PTR).Ptr
				if a := box.lookup(ctx, r, name, dns.TypeSRV); a.Outcome != resolver.Found || len(a.Records) != 1 {
					t.Fatalf("%s: %+v", name, a)
				}
			}
			if got := r.Queries() - before; got != clusters {
				t.Errorf("%d questions for %d names", got, clusters)
			}
		})
	}
	r := box.resolver(resolver.Config{Server: "tls://" + authority, RootCAs: roots})
	if a := box.expect(ctx, r, "example.com", dns.TypePTR, resolver.Unreachable); !strings.Contains(a.Err.Error(), "cannot prove who it is") {
		t.Errorf("error %v", a.Err)
	}
}

// selfSigned returns a certificate for a name and its key, as PEM, and who trusts it.
func selfSigned(t *testing.T, name string) (*x509.CertPool, string, string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{name}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(certificate)
	return roots, string(certificate), string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER}))
}
