package browser

import (
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"liqo.io/agent/mdnssvc/wire"
)

// BenchmarkThousand is what 1,000 neighbours cost in the first 30 seconds:
// receiving their answers and sending the five queries, the last four with all
// of them as known answers, packets decoded and encoded included. The budget of
// the project is 150 ms.
func BenchmarkThousand(b *testing.B) {
	packets := make([][]byte, 1000)
	from := make([]netip.AddrPort, len(packets))
	for k := range packets {
		r := newNeighbour(k)
		from[k] = r.from
		var err error
		if packets[k], err = wire.Encode(r.announcement()); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		br := New(Config{Rand: rand.New(rand.NewPCG(1, 1)), Service: service, Domain: "local"})
		now := epoch
		br.SetLinks(now, []LinkFamilies{{Index: 1, Families: [2]bool{true, false}}})
		br.SetEnabled(now, true)
		found, queries := 0, 0
		for end := now.Add(30 * time.Second); ; {
			now = br.Next()
			if now.After(end) {
				break
			}
			out, _ := br.Due(now)
			for _, p := range out {
				queries++
				if _, err := wire.EncodeAll(p.Msg, 1440); err != nil {
					b.Fatal(err)
				}
			}
			if queries == 1 {
				for k, packet := range packets {
					m, _ := wire.Decode(packet)
					events, _ := br.Receive(now.Add(time.Duration(k)*100*time.Microsecond), wire.Received{Msg: m, Link: 1, From: from[k], ToMulticast: true})
					found += len(events)
				}
			}
		}
		if found != 1000 || queries != 5 {
			b.Fatalf("%d found, %d queries", found, queries)
		}
	}
}

// TestKnownAgainAllocatesNothing: what is heard most, a neighbour that says what it
// said before.
func TestKnownAgainAllocatesNothing(t *testing.T) {
	for name, more := range map[string]func(r *neighbour){
		"one address":   func(*neighbour) {},
		"both families": func(r *neighbour) { r.addrs[1] = append(r.addrs[1], addr("fe80::1"), addr("2001:db8::1")) },
	} {
		t.Run(name, func(t *testing.T) {
			br := New(Config{Rand: rand.New(rand.NewPCG(1, 1)), Service: service, Domain: "local"})
			br.SetLinks(epoch, []LinkFamilies{{Index: 1, Families: [2]bool{true, false}}})
			br.SetEnabled(epoch, true)
			r := newNeighbour(1)
			more(r)
			in := wire.Received{Msg: r.announcement(), Link: 1, From: r.from, ToMulticast: true}
			if events, drop := br.Receive(epoch, in); len(events) != 1 || drop != "" {
				t.Fatalf("%+v %q", events, drop)
			}
			now := epoch
			if n := testing.AllocsPerRun(1000, func() {
				now = now.Add(time.Second)
				if events, drop := br.Receive(now, in); len(events) != 0 || drop != "" {
					t.Fatalf("%+v %q", events, drop)
				}
			}); n != 0 {
				t.Errorf("%v allocations", n)
			}
		})
	}
}

// BenchmarkReceive is one answer that brings nothing new, among few and many
// neighbours: it must cost the same.
func BenchmarkReceive(b *testing.B) {
	for _, c := range []struct {
		name  string
		count int
	}{{"10", 10}, {"5000", 5000}} {
		b.Run(c.name, func(b *testing.B) {
			br := New(Config{Rand: rand.New(rand.NewPCG(1, 1)), Service: service, Domain: "local"})
			br.SetLinks(epoch, []LinkFamilies{{Index: 1, Families: [2]bool{true, false}}})
			br.SetEnabled(epoch, true)
			in := make([]wire.Received, c.count)
			for k := range in {
				r := newNeighbour(k)
				in[k] = wire.Received{Msg: r.announcement(), Link: 1, From: r.from, ToMulticast: true}
				br.Receive(epoch, in[k])
			}
			b.ReportAllocs()
			k := 0
			for b.Loop() {
				br.Receive(epoch.Add(time.Duration(k)*time.Microsecond), in[k%len(in)])
				k++
			}
		})
	}
}
