package mdnssvc

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/miekg/dns"

	"liqo.io/agent/mdnssvc/wire"
)

// announced returns what a box says of itself. Its address and port hold for two minutes.
func announced(t testing.TB, service string, k int) *dns.Msg {
	t.Helper()
	name, host := wire.InstanceName(fmt.Sprintf("box-%d", k), service, "local"), fmt.Sprintf("box-%d.local.", k)
	m := &dns.Msg{}
	m.Response = true
	for _, s := range []string{
		"%[3]s 4500 IN PTR %[1]s", "%[1]s 120 IN SRV 0 0 6447 %[2]s", `%[1]s 4500 IN TXT "txtvers=1" "id=box" "name=Box"`, "%[2]s 120 IN A 10.77.0.9",
	} {
		rr, err := dns.NewRR(fmt.Sprintf(s, name, host, wire.ServiceName(service, "local")))
		if err != nil {
			t.Fatal(err)
		}
		m.Answer = append(m.Answer, rr)
	}
	return m
}

// BenchmarkPacket is one packet from its bytes until it is dropped, or has changed
// nothing: what a LAN with many neighbours costs all day.
func BenchmarkPacket(b *testing.B) {
	asked := &dns.Msg{Question: []dns.Question{{Name: "_ipp._tcp.local.", Qtype: dns.TypePTR, Qclass: dns.ClassINET}}}
	from := netip.MustParseAddrPort("10.77.0.9:5353")
	for _, c := range []struct {
		name  string
		m     *dns.Msg
		from  netip.AddrPort
		drops wire.DropReason
	}{
		{"from off the link, dropped", asked, netip.MustParseAddrPort("192.0.2.1:5353"), DropOffLink},
		{"another service, dropped", announced(b, "_ipp._tcp", 1), from, "not-asked"},
		{"a query that is not about us", asked, from, ""},
		{"a known neighbour again", announced(b, "_liqo._tcp", 1), from, ""},
	} {
		b.Run(c.name, func(b *testing.B) {
			core := testCore(b)
			core.setLinks(time.Now(), core.links)
			core.browsing = true
			now := time.Now()
			core.browser.SetEnabled(now, true)
			data, err := wire.Encode(c.m)
			if err != nil {
				b.Fatal(err)
			}
			d := datagram{data: data, from: c.from, to: groups[wire.IPv4], link: 2}
			if c.drops == DropOffLink {
				d.to = netip.MustParseAddr("10.77.0.1")
			}
			core.receive(now, d)
			b.ReportAllocs()
			n := uint64(1)
			for b.Loop() {
				n++
				now = now.Add(time.Microsecond)
				core.receive(now, d)
			}
			if got := core.count.drops[c.drops]; c.drops != "" && got != n {
				b.Errorf("%d of %d dropped as %s", got, n, c.drops)
			}
		})
	}
}
