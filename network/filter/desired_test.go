package filter

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/nftables"
	"pgregory.net/rapid"
)

func TestCheck(t *testing.T) {
	for want, change := range map[string]func(d *Desired){
		"":                       func(*Desired) {},
		"no name of a device":    func(d *Desired) { d.Device = "a-name-that-is-too-long" },
		"no name of a bridge":    func(d *Desired) { d.Bridge = "a-name-that-is-too-long" },
		"no address of the host": func(d *Desired) { d.Host = d.Host[:1] },
		"3 addresses":            func(d *Desired) { d.Host = append(d.Host, d.Host[0]) },
		"more than one network":  func(d *Desired) { d.Pods = append(d.Pods, pods4) },
		"is no network":          func(d *Desired) { d.Peers[0].Theirs = prefixes("241.1.0.1/24") },
		"used twice":             func(d *Desired) { d.Peers[1].Name = d.Peers[0].Name },
		"not one of up to 63":    func(d *Desired) { d.Peers[1].Name = "a b" },
		"but 1 of ours":          func(d *Desired) { d.Peers[1].Ours = d.Peers[1].Ours[:1] },
		"must be as long":        func(d *Desired) { d.Peers[1].Ours[0] = netip.MustParsePrefix("241.2.0.0/25") },
		"must be as long as our": func(d *Desired) { d.Pods, d.Host = d.Pods[:1], d.Host[:1] },
		"overlaps our pods":      func(d *Desired) { d.Peers[1].Theirs = prefixes("10.0.0.0/8", "fd01:0:0:1::/64") },
		"is not next to its block": func(d *Desired) {
			d.Peers[1].Thirds = []Third{{netip.MustParseAddr("241.1.0.9"), netip.MustParseAddr("241.2.0.9")}}
		},
		"not next to its block for our pods fd02": func(d *Desired) {
			d.Peers[1].Thirds = []Third{{netip.MustParseAddr("241.1.0.9"), netip.MustParseAddr("fd02:0:0:1::9")}}
		},
		"9, is used twice": func(d *Desired) {
			a, b := netip.MustParseAddr("241.1.0.9"), netip.MustParseAddr("241.2.1.9")
			d.Peers[1].Thirds = []Third{{a, b}, {a, b.Next()}}
		},
		"is no address, or is there twice": func(d *Desired) {
			g := single(netip.MustParseAddr("10.42.0.9"))
			d.Guests = map[string][]netip.Prefix{"a": {g}, "b": {g}}
		},
		"10.42.0.0/24 of a is no address": func(d *Desired) { d.Guests = map[string][]netip.Prefix{"a": {pods4}} },
		"guests of \"a b\"":               func(d *Desired) { d.Guests = map[string][]netip.Prefix{"a b": nil} },
		"overlaps 241.1.0.0/16":           func(d *Desired) { d.Peers[1].Theirs[0] = netip.MustParsePrefix("241.1.0.0/16") },
	} {
		d := example(2, 1)
		change(&d)
		switch err := d.check(); {
		case want == "" && err != nil, want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func TestCorresponding(t *testing.T) {
	for _, c := range []struct{ addr, from, to, want string }{
		{"10.42.0.9", "10.42.0.0/24", "241.7.2.0/24", "241.7.2.9"},
		{"10.42.5.9", "10.42.4.0/22", "241.7.0.0/22", "241.7.1.9"},
		{"10.42.0.130", "10.42.0.128/25", "241.7.2.0/25", "241.7.2.2"},
		{"fd42::1:9", "fd42::/64", "fd99:a::/64", "fd99:a::1:9"},
		{"fd42:0:0:3::9", "fd42::/60", "fd99:0:0:10::/60", "fd99:0:0:13::9"},
	} {
		got := corresponding(netip.MustParseAddr(c.addr), netip.MustParsePrefix(c.from), netip.MustParsePrefix(c.to))
		if got.String() != c.want {
			t.Errorf("%s of %s is %v in %s, want %s", c.addr, c.from, got, c.to, c.want)
		}
	}
}

// A cover has all of the prefixes, and its halves do not.
func TestCover(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var all []netip.Prefix
		for range rapid.IntRange(0, 5).Draw(t, "prefixes") {
			address := netip.AddrFrom4([4]byte{byte(rapid.SampledFrom([]int{10, 241, 245}).Draw(t, "a")), rapid.Byte().Draw(t, "b"), rapid.Byte().Draw(t, "c"), 0})
			all = append(all, netip.PrefixFrom(address, rapid.IntRange(8, 32).Draw(t, "bits")).Masked())
		}
		got := cover(all)
		has := func(p netip.Prefix) bool {
			return !slices.ContainsFunc(all, func(q netip.Prefix) bool { return q.Bits() < p.Bits() || !p.Contains(q.Addr()) })
		}
		if len(all) == 0 {
			if got.IsValid() {
				t.Fatalf("%v for none", got)
			}
			return
		}
		if got != got.Masked() || !has(got) {
			t.Fatalf("%v for %v", got, all)
		}
		if got.Bits() < 32 {
			lower := netip.PrefixFrom(got.Addr(), got.Bits()+1)
			if has(lower) || has(beside(lower)) {
				t.Fatalf("%v for %v is too large", got, all)
			}
		}
	})
}

// Merged intervals have the same addresses, and do not touch each other. A set that was read
// again has the same blocks.
func TestMerge(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var all []netip.Prefix
		for range rapid.IntRange(0, 12).Draw(t, "prefixes") {
			last := byte(rapid.IntRange(0, 255).Draw(t, "address"))
			base := rapid.SampledFrom([][4]byte{{0, 0, 0}, {241, 1, 0}, {241, 1, 1}, {255, 255, 255}}).Draw(t, "base")
			base[3] = last
			all = append(all, netip.PrefixFrom(netip.AddrFrom4(base), rapid.IntRange(20, 32).Draw(t, "bits")))
		}
		merged := merge(all, false)
		for i, e := range merged {
			if e.to.Less(e.from) || i > 0 && !merged[i-1].to.Next().Less(e.from) {
				t.Fatalf("%v", merged)
			}
		}
		for _, base := range [][4]byte{{0, 0, 0}, {241, 1, 0}, {241, 1, 1}, {255, 255, 255}} {
			for n := range 256 {
				base[3] = byte(n)
				a := netip.AddrFrom4(base)
				in := slices.ContainsFunc(merged, func(e element) bool { return e.from.Compare(a) <= 0 && a.Compare(e.to) <= 0 })
				if in != containsAddr(all, a) {
					t.Fatalf("%v is in %v: %v; in %v: %v", a, merged, in, all, !in)
				}
			}
		}
	})
	blocks := prefixes("241.1.0.0/24", "241.1.2.0/23", "241.9.0.0/25", "255.255.255.0/24")
	var encoded []nftables.SetElement
	for _, e := range merge(blocks, false) {
		encoded = append(encoded, encode(addresses, e)...)
	}
	slices.Reverse(encoded)
	got := decodeBlocks(encoded)
	slices.SortFunc(got, func(a, b netip.Prefix) int { return a.Addr().Compare(b.Addr()) })
	if !slices.Equal(got, blocks) {
		t.Errorf("read again: %v, want %v", got, blocks)
	}
}
