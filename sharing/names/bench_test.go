package names

import (
	"testing"

	"github.com/miekg/dns"
)

// BenchmarkAnswer is a query of a guest from its bytes to those of the answer, without
// the way to the cluster DNS and back.
func BenchmarkAnswer(b *testing.B) {
	v := shop("corp.example.", "cluster.local.")
	q := query("web.shop.svc.corp.example.", dns.TypeA)
	q.SetEdns0(maxUDP, false)
	asking, err := q.Pack()
	if err != nil {
		b.Fatal(err)
	}
	name, as := v.ask(q.Question[0].Name)
	said := new(dns.Msg).SetReply(upstream(q, name, as))
	said.Answer = zone(b, "web.liqo-1-shop.svc.cluster.local. 5 IN A 10.43.0.7")
	answering, err := said.Pack()
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		q, got := new(dns.Msg), new(dns.Msg)
		if err := q.Unpack(asking); err != nil {
			b.Fatal(err)
		}
		if _, why := check(q); why != "" {
			b.Fatal(why)
		}
		name, as := v.ask(q.Question[0].Name)
		if _, err := upstream(q, name, as).Pack(); err != nil {
			b.Fatal(err)
		}
		if err := got.Unpack(answering); err != nil {
			b.Fatal(err)
		}
		if out := fit(v.answer(q, name, as, got), room(q)); len(out) < headerSize {
			b.Fatal("no answer")
		}
	}
}
