package names

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/miekg/dns"
)

// shop is a view with two namespaces.
func shop(theirs, ours string) *view {
	return &view{
		theirs: theirs, ours: ours, outside: true,
		namespaces: map[string]string{"shop": "liqo-1-shop", "data": "liqo-1-data", "default": "liqo-1-default"},
		nodes:      map[string]bool{"birch": true},
	}
}

func TestAsk(t *testing.T) {
	const long = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa."
	for _, tc := range []struct {
		theirs, name, want string
		as                 meaning
	}{
		{"cluster.local.", "web.shop.svc.cluster.local.", "web.liqo-1-shop.svc.cluster.local.", own},
		{"cluster.local.", "WeB.sHoP.SVC.Cluster.LOCAL.", "WeB.liqo-1-shop.svc.cluster.local.", own},
		{"cluster.local.", "db-0.db.data.svc.cluster.local.", "db-0.db.liqo-1-data.svc.cluster.local.", own},
		{"cluster.local.", "_http._tcp.web.shop.svc.cluster.local.", "_http._tcp.web.liqo-1-shop.svc.cluster.local.", own},
		{"cluster.local.", "shop.svc.cluster.local.", "liqo-1-shop.svc.cluster.local.", own},
		{"cluster.local.", "web.default.svc.cluster.local.", "web.liqo-1-default.svc.cluster.local.", own},
		{"cluster.local.", "svc.cluster.local.", "", empty},
		{"cluster.local.", "cluster.local.", "", empty},
		{"cluster.local.", "kubernetes.default.svc.cluster.local.", "", foreign},
		{"cluster.local.", "_https._tcp.kubernetes.DEFAULT.svc.cluster.local.", "", foreign},
		{"cluster.local.", "web.other.svc.cluster.local.", "", foreign},
		{"cluster.local.", "web.liqo-1-shop.svc.cluster.local.", "", foreign}, // what a provider calls it
		{"cluster.local.", "10-42-0-9.shop.pod.cluster.local.", "", foreign},
		{"cluster.local.", "dns-version.cluster.local.", "", foreign},
		{"cluster.local.", "ns.dns.cluster.local.", "", foreign},
		{"cluster.local.", `web\.shop.svc.cluster.local.`, "", foreign}, // one label
		{"cluster.local.", `x.shop\.svc.cluster.local.`, "", foreign},
		{"cluster.local.", `x.sho\112.svc.cluster.local.`, "", foreign},
		{"cluster.local.", "example.com.", "example.com.", outside},
		{"cluster.local.", "web.", "web.", outside},
		{"cluster.local.", "birch.", "", foreign},
		{"cluster.local.", "BIRCH.", "", foreign},
		{"cluster.local.", "birch.example.com.", "birch.example.com.", outside},
		{"cluster.local.", "birch.shop.svc.cluster.local.", "birch.liqo-1-shop.svc.cluster.local.", own},
		{"cluster.local.", ".", ".", outside},
		{"cluster.local.", "xcluster.local.", "xcluster.local.", outside},
		{"cluster.local.", `x\.cluster.local.`, `x\.cluster.local.`, outside},
		{"cluster.local.", "1.0.43.10.in-addr.arpa.", "1.0.43.10.in-addr.arpa.", outside},
		{"corp.lan.", "web.shop.svc.corp.lan.", "web.liqo-1-shop.svc.cluster.local.", own},
		{"corp.lan.", "web.shop.svc.cluster.local.", "", foreign},
		{"corp.lan.", "cluster.local.", "", foreign},
		{"corp.lan.", "intranet.corp.lan.", "", foreign},
		{"corp.lan.", "lan.", "lan.", outside},
		// A consumer's domain is its own choice.
		{"local.", "secret.default.svc.cluster.local.", "", foreign},
		{"local.", "web.shop.svc.local.", "web.liqo-1-shop.svc.cluster.local.", own},
		{"default.svc.cluster.local.", "secret.default.svc.cluster.local.", "", foreign},
		{"com.", "example.com.", "", foreign},
		// Names that are too long for this cluster do not exist.
		{"cluster.local.", strings.Repeat(long, 3) + strings.Repeat("a", 36) + ".shop.svc.cluster.local.", "", foreign},
	} {
		got, as := shop(tc.theirs, "cluster.local.").ask(tc.name)
		if got != tc.want || as != tc.as {
			t.Errorf("%s of %s: %q %d, want %q %d", tc.name, tc.theirs, got, as, tc.want, tc.as)
		}
	}
	v := shop("cluster.local.", "cluster.local.")
	v.server = []netip.Addr{netip.MustParseAddr("241.7.4.1")}
	for name, want := range map[string]meaning{
		"kubernetes.default.svc.cluster.local.": server, "Kubernetes.DEFAULT.svc.cluster.local.": server, "kubernetes.default.svc.": server,
		"_https._tcp.kubernetes.default.svc.cluster.local.": foreign, "x.kubernetes.default.svc.cluster.local.": foreign,
		"kubernetes.shop.svc.cluster.local.": own, "kubernetes.default.svc.corp.lan.": outside, "kubernetes.default.": outside,
	} {
		if _, as := v.ask(name); as != want {
			t.Errorf("%s is %d for a guest that may reach its API server, want %d", name, as, want)
		}
	}
	v.outside = false
	if _, as := v.ask("example.com."); as != outsider {
		t.Errorf("example.com is %d for guests that may not ask for it", as)
	}
}

func TestBack(t *testing.T) {
	const long = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa."
	for name, want := range map[string]string{
		"web.liqo-1-shop.svc.cluster.local.":           "web.shop.svc.corp.example.",
		"10-42-0-9.web.LIQO-1-shop.svc.cluster.local.": "10-42-0-9.web.shop.svc.corp.example.",
		"example.com.":                       "example.com.",
		"secret.default.svc.cluster.local.":  "",
		"web.shop.svc.cluster.local.":        "",
		"web.liqo-2-shop.svc.cluster.local.": "",
		"ns.dns.cluster.local.":              "",
		"Birch.":                             "",
		"cluster.local.":                     "",
		strings.Repeat(long, 3) + "b.liqo-1-shop.svc.cluster.local.": strings.Repeat(long, 3) + "b.shop.svc.corp.example.",
	} {
		got, ok := shop("corp.example.", "cluster.local.").back(name)
		if got != want || ok != (want != "") {
			t.Errorf("%s: %q %v, want %q", name, got, ok, want)
		}
	}
}

// query is the question of a guest.
func query(name string, kind uint16) *dns.Msg {
	return new(dns.Msg).SetQuestion(name, kind)
}

// zone parses records.
func zone(t testing.TB, lines ...string) []dns.RR {
	t.Helper()
	var out []dns.RR
	for _, line := range lines {
		rr, err := dns.NewRR(line)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, rr)
	}
	return out
}

func texts(rrs []dns.RR) []string {
	var out []string
	for _, rr := range rrs {
		if rr.Header().Rrtype != dns.TypeOPT {
			out = append(out, strings.Join(strings.Fields(rr.String()), " "))
		}
	}
	return out
}

func TestAnswer(t *testing.T) {
	const soa = "corp.example. %d IN SOA ns.dns.corp.example. hostmaster.corp.example. 1 7200 1800 86400 %d"
	absent5 := []string{strings.ReplaceAll(soa, "%d", "5")}
	for name, tc := range map[string]struct {
		name              string
		kind              uint16
		got, ns, extra    []string // of the cluster DNS
		rcode, wantRcode  int
		want, wantNS, add []string
	}{
		"an address": {
			name: "WEB.shop.svc.corp.example.", kind: dns.TypeA,
			got:  []string{"WEB.liqo-1-shop.svc.cluster.local. 5 IN A 10.43.0.7"},
			want: []string{"WEB.shop.svc.corp.example. 5 IN A 10.43.0.7"},
		},
		"the case of the question is kept, whatever the case of the answer": {
			name: "wEb.shop.svc.corp.example.", kind: dns.TypeAAAA,
			got:  []string{"web.liqo-1-shop.svc.cluster.local. 5 IN AAAA fd43::7"},
			want: []string{"wEb.shop.svc.corp.example. 5 IN AAAA fd43::7"},
		},
		"ports": {
			name: "_http._tcp.web.shop.svc.corp.example.", kind: dns.TypeSRV,
			got:   []string{"_http._tcp.web.liqo-1-shop.svc.cluster.local. 5 IN SRV 0 100 80 a.web.liqo-1-shop.svc.cluster.local."},
			extra: []string{"a.web.liqo-1-shop.svc.cluster.local. 5 IN A 10.42.0.9", "secret.default.svc.cluster.local. 5 IN A 10.43.0.66", "evil.example. 5 IN A 192.0.2.6"},
			want:  []string{"_http._tcp.web.shop.svc.corp.example. 5 IN SRV 0 100 80 a.web.shop.svc.corp.example."},
			add:   []string{"a.web.shop.svc.corp.example. 5 IN A 10.42.0.9"},
		},
		"ports of somebody else": {
			name: "_http._tcp.web.shop.svc.corp.example.", kind: dns.TypeSRV,
			got:   []string{"_http._tcp.web.liqo-1-shop.svc.cluster.local. 5 IN SRV 0 100 80 secret.default.svc.cluster.local."},
			extra: []string{"secret.default.svc.cluster.local. 5 IN A 10.43.0.66"}, wantRcode: dns.RcodeNameError, wantNS: absent5,
		},
		"an external name": {
			name: "ext.shop.svc.corp.example.", kind: dns.TypeA,
			got:  []string{"ext.liqo-1-shop.svc.cluster.local. 5 IN CNAME www.example.com.", "www.example.com. 5 IN A 192.0.2.7", "other.example.com. 5 IN A 192.0.2.8"},
			want: []string{"ext.shop.svc.corp.example. 5 IN CNAME www.example.com.", "www.example.com. 5 IN A 192.0.2.7"},
		},
		"an external name that is one of this cluster": {
			name: "ext.shop.svc.corp.example.", kind: dns.TypeA,
			got:       []string{"ext.liqo-1-shop.svc.cluster.local. 5 IN CNAME secret.default.svc.cluster.local.", "secret.default.svc.cluster.local. 5 IN CNAME www.example.com.", "www.example.com. 5 IN A 192.0.2.7"},
			wantRcode: dns.RcodeNameError, wantNS: absent5,
		},
		"types that nobody understands": {
			name: "web.shop.svc.corp.example.", kind: dns.TypeA,
			got:  []string{"web.liqo-1-shop.svc.cluster.local. 5 IN A 10.43.0.7", `web.liqo-1-shop.svc.cluster.local. 5 IN TYPE65400 \# 1 00`, "web.liqo-1-shop.svc.cluster.local. 5 CH A 10.43.0.8"},
			want: []string{"web.shop.svc.corp.example. 5 IN A 10.43.0.7"},
		},
		"nothing of the type": {
			name: "web.shop.svc.corp.example.", kind: dns.TypeMX,
			ns: []string{"cluster.local. 3 IN SOA ns.dns.cluster.local. hostmaster.cluster.local. 77 7200 1800 86400 5"}, wantNS: []string{strings.ReplaceAll(soa, "%d", "3")},
		},
		"no such name": {
			name: "web.shop.svc.corp.example.", kind: dns.TypeA, rcode: dns.RcodeNameError,
			ns: []string{"cluster.local. 300 IN SOA ns.dns.cluster.local. hostmaster.cluster.local. 77 7200 1800 86400 300"}, wantRcode: dns.RcodeNameError, wantNS: absent5,
		},
		"a failure":       {name: "web.shop.svc.corp.example.", kind: dns.TypeA, rcode: dns.RcodeRefused, wantRcode: dns.RcodeServerFailure},
		"another failure": {name: "example.com.", kind: dns.TypeA, rcode: dns.RcodeBadVers, wantRcode: dns.RcodeServerFailure},
		"refused outside": {name: "example.com.", kind: dns.TypeA, rcode: dns.RcodeRefused, wantRcode: dns.RcodeRefused},
		"a name outside": {
			name: "example.com.", kind: dns.TypeMX,
			got: []string{"example.com. 60 IN MX 10 mx.example.com.", `example.com. 60 IN TYPE65400 \# 1 00`}, ns: []string{"example.com. 60 IN NS ns.example.com."},
			extra: []string{"mx.example.com. 60 IN A 192.0.2.5"},
			want:  []string{"example.com. 60 IN MX 10 mx.example.com.", `example.com. 60 CLASS1 TYPE65400 \# 1 00`}, wantNS: []string{"example.com. 60 IN NS ns.example.com."},
		},
		"a name outside for one of this cluster": {
			name: "evil.example.", kind: dns.TypeA,
			got: []string{"evil.example. 60 IN CNAME secret.default.svc.cluster.local.", "secret.default.svc.cluster.local. 5 IN A 10.43.0.66"}, wantRcode: dns.RcodeNameError,
		},
		"an address of a Service of its own": {
			name: "7.0.43.10.in-addr.arpa.", kind: dns.TypePTR,
			got:  []string{"7.0.43.10.in-addr.arpa. 5 IN PTR web.liqo-1-shop.svc.cluster.local."},
			want: []string{"7.0.43.10.in-addr.arpa. 5 IN PTR web.shop.svc.corp.example."},
		},
		"an address of a Service of others": {
			name: "66.0.43.10.in-addr.arpa.", kind: dns.TypePTR,
			got: []string{"66.0.43.10.in-addr.arpa. 5 IN PTR secret.default.svc.cluster.local."}, wantRcode: dns.RcodeNameError,
		},
		"an address of a node": {
			name: "2.0.77.10.in-addr.arpa.", kind: dns.TypePTR,
			got: []string{"2.0.77.10.in-addr.arpa. 60 IN PTR birch."}, wantRcode: dns.RcodeNameError,
		},
		"the zone of the cluster DNS": {
			name: "9.9.9.10.in-addr.arpa.", kind: dns.TypePTR, rcode: dns.RcodeNameError, wantRcode: dns.RcodeNameError,
			ns: []string{"cluster.local. 3 IN SOA ns.dns.cluster.local. hostmaster.cluster.local. 77 7200 1800 86400 5", "in-addr.arpa. 3 IN SOA ns.dns.cluster.local. h.example. 77 7200 1800 86400 5"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			v := shop("corp.example.", "cluster.local.")
			q := query(tc.name, tc.kind)
			asked, as := v.ask(tc.name)
			m := upstream(q, asked, as)
			got := new(dns.Msg).SetRcode(m, tc.rcode)
			got.Answer, got.Ns, got.Extra = zone(t, tc.got...), zone(t, tc.ns...), zone(t, tc.extra...)
			answer := v.answer(q, asked, as, got)
			if answer.Rcode != tc.wantRcode || answer.Id != q.Id || !answer.Response || len(answer.Question) != 1 || answer.Question[0] != q.Question[0] {
				t.Errorf("header %v", answer)
			}
			for _, d := range []string{
				cmp.Diff(tc.want, texts(answer.Answer)), cmp.Diff(tc.wantNS, texts(answer.Ns)), cmp.Diff(tc.add, texts(answer.Extra)),
			} {
				if d != "" {
					t.Error(d)
				}
			}
		})
	}
}

func TestCheck(t *testing.T) {
	edns := query("a.", dns.TypeA)
	edns.SetEdns0(1232, true)
	edns.IsEdns0().SetVersion(1)
	chaos := query("version.bind.", dns.TypeTXT)
	chaos.Question[0].Qclass = dns.ClassCHAOS
	update := new(dns.Msg).SetUpdate("cluster.local.")
	two := query("a.", dns.TypeA)
	two.Question = append(two.Question, two.Question[0])
	for name, tc := range map[string]struct {
		q     *dns.Msg
		rcode int
		why   string
	}{
		"address":       {query("a.", dns.TypeA), 0, ""},
		"URI":           {query("a.", dns.TypeURI), 0, ""},
		"HTTPS":         {query("a.", dns.TypeHTTPS), 0, ""},
		"unknown":       {query("a.", 65400), 0, ""},
		"transfer":      {query("a.", dns.TypeAXFR), dns.RcodeNotImplemented, refusedKind},
		"all":           {query("a.", dns.TypeANY), dns.RcodeNotImplemented, refusedKind},
		"OPT":           {query("a.", dns.TypeOPT), dns.RcodeNotImplemented, refusedKind},
		"none":          {query("a.", dns.TypeNone), dns.RcodeNotImplemented, refusedKind},
		"EDNS 1":        {edns, dns.RcodeBadVers, refusedKind},
		"CHAOS":         {chaos, dns.RcodeRefused, refusedKind},
		"update":        {update, dns.RcodeNotImplemented, refusedKind},
		"two questions": {two, dns.RcodeFormatError, refusedMalformed},
		"no question":   {new(dns.Msg), dns.RcodeFormatError, refusedMalformed},
	} {
		rcode, why := check(tc.q)
		if rcode != tc.rcode || why != tc.why {
			t.Errorf("%s: %d %q", name, rcode, why)
		}
		if why != "" {
			packed := fit(reply(tc.q, rcode), minUDP)
			back := new(dns.Msg)
			if err := back.Unpack(packed); err != nil || back.Rcode != rcode {
				t.Errorf("%s: %v %v", name, back, err)
			}
		}
	}
}

// TestUpstream: what a guest says beside its question goes only to those outside, and never says
// who asks.
func TestUpstream(t *testing.T) {
	q := query("web.shop.svc.cluster.local.", dns.TypeA)
	q.SetEdns0(4096, true)
	q.IsEdns0().Option = []dns.EDNS0{&dns.EDNS0_SUBNET{Code: dns.EDNS0SUBNET, Family: 1, SourceNetmask: 32, Address: netip.MustParseAddr("10.42.0.9").AsSlice()}}
	q.CheckingDisabled, q.AuthenticatedData = true, true
	for as, validates := range map[meaning]bool{own: false, outside: true} {
		m := upstream(q, "x.", as)
		if opt := m.IsEdns0(); len(opt.Option) != 0 || opt.UDPSize() != maxUDP || opt.Do() != validates || m.CheckingDisabled != validates || !m.RecursionDesired || m.Question[0].Name != "x." {
			t.Errorf("%d: %v", as, m)
		}
	}
}

func TestFit(t *testing.T) {
	big := reply(query("web.shop.svc.cluster.local.", dns.TypeA), dns.RcodeSuccess)
	for i := range 200 {
		big.Answer = append(big.Answer, &dns.A{Hdr: dns.RR_Header{Name: "web.shop.svc.cluster.local.", Rrtype: dns.TypeA, Class: dns.ClassINET}, A: netip.AddrFrom4([4]byte{10, 42, 1, byte(i)}).AsSlice()})
	}
	for _, size := range []int{minUDP, maxUDP, dns.MaxMsgSize} {
		packed, back := fit(big.Copy(), size), new(dns.Msg)
		if err := back.Unpack(packed); err != nil || len(packed) > size || back.Truncated != (size < dns.MaxMsgSize) || len(back.Answer) == 0 {
			t.Errorf("%d: %d bytes, truncated %v, %d records, %v", size, len(packed), back.Truncated, len(back.Answer), err)
		}
	}
	for size, want := range map[uint16]int{0: minUDP, 100: minUDP, 700: 700, 4096: maxUDP} {
		q := query("a.", dns.TypeA)
		if size > 0 {
			q.SetEdns0(size, false)
		}
		if got := room(q); got != want {
			t.Errorf("room for %d is %d, want %d", size, got, want)
		}
	}
}

// FuzzMessages: whatever guest and cluster DNS send, the cluster DNS is asked for names of the
// consumer or outside only, and the guest learns no name of this cluster.
func FuzzMessages(f *testing.F) {
	for _, name := range []string{"web.shop.svc.corp.example.", "kubernetes.default.svc.cluster.local.", "example.com.", "7.0.43.10.in-addr.arpa.", `a\.b.shop.svc.corp.example.`} {
		q := query(name, dns.TypeSRV)
		q.SetEdns0(4096, true)
		raw, err := q.Pack()
		if err != nil {
			f.Fatal(err)
		}
		m := new(dns.Msg).SetReply(query("web.liqo-1-shop.svc.cluster.local.", dns.TypeSRV))
		m.Answer = zone(f, "web.liqo-1-shop.svc.cluster.local. 5 IN SRV 0 1 80 a.web.liqo-1-shop.svc.cluster.local.", "web.liqo-1-shop.svc.cluster.local. 5 IN CNAME secret.default.svc.cluster.local.")
		m.Ns = zone(f, "cluster.local. 3 IN SOA ns.dns.cluster.local. hostmaster.cluster.local. 77 7200 1800 86400 5")
		m.Extra = zone(f, "secret.default.svc.cluster.local. 5 IN A 10.43.0.66")
		answer, err := m.Pack()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw, answer, true)
	}
	f.Fuzz(func(t *testing.T, raw, answer []byte, same bool) {
		q, got := new(dns.Msg), new(dns.Msg)
		if q.Unpack(raw) != nil || got.Unpack(answer) != nil {
			return
		}
		if rcode, why := check(q); why != "" {
			if fit(reply(q, rcode), room(q)) == nil {
				t.Fatal("no answer")
			}
			return
		}
		theirs := "corp.example."
		if same {
			theirs = "cluster.local."
		}
		v := shop(theirs, "cluster.local.")
		name, as := v.ask(q.Question[0].Name)
		if as != own && as != outside {
			return
		}
		if prefix, cluster := below(name, v.ours); cluster != (as == own) || cluster && !strings.HasPrefix(lastOf(prefix), "liqo-1-") {
			t.Fatalf("%q is asked as %q (%d)", q.Question[0].Name, name, as)
		}
		m := v.answer(q, name, as, got)
		for _, list := range [][]dns.RR{m.Answer, m.Ns, m.Extra} {
			for _, rr := range list {
				prefix, cluster := below(rr.Header().Name, "cluster.local.")
				if cluster && !same {
					t.Fatalf("tells %v", rr)
				}
				if _, soa := rr.(*dns.SOA); cluster && !soa && !strings.EqualFold(rr.Header().Name, q.Question[0].Name) {
					if _, known := v.namespaces[lastOf(prefix)]; !known {
						t.Fatalf("tells %v", rr)
					}
				}
			}
		}
		packed, back := fit(m, room(q)), new(dns.Msg)
		if err := back.Unpack(packed); err != nil || len(packed) > room(q) || back.Id != q.Id || !back.Response {
			t.Fatalf("%v: %v", back, err)
		}
	})
}

// lastOf returns the namespace in what comes before a cluster domain.
func lastOf(prefix string) string {
	prefix, _ = lastLabel(prefix) // svc
	_, namespace := lastLabel(prefix)
	return namespace
}
