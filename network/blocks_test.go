package network

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"liqo.io/agent/peer"
)

func TestTranslate(t *testing.T) {
	b := Blocks{Pods: prefixes("10.42.0.0/24", "fd42::/64"), Theirs: prefixes("241.3.2.0/24", "fd12:3456:789a:bcde::/64")}
	for pod, want := range map[string]string{
		"10.42.0.0": "241.3.2.0", "10.42.0.255": "241.3.2.255", "::ffff:10.42.0.7": "241.3.2.7",
		"fd42::1:2": "fd12:3456:789a:bcde::1:2",
		"10.42.1.0": "", "10.41.255.255": "", "fd42:0:0:1::": "", "241.3.2.0": "",
	} {
		got, ok := b.Here(netip.MustParseAddr(pod))
		if ok != (want != "") || ok && got.String() != want {
			t.Errorf("%s is %s, %v", pod, got, ok)
		}
	}
	for _, b := range []Blocks{{}, {Pods: b.Pods}, {Theirs: b.Theirs}, {Pods: b.Pods, Theirs: prefixes("241.3.2.0/23")}} {
		if got, ok := b.Here(netip.MustParseAddr("10.42.0.7")); ok {
			t.Errorf("%v: %s", b, got)
		}
	}
}

// drawBlock4 draws an IPv4 prefix.
func drawPrefix4(t *rapid.T, label string, least, most int) netip.Prefix {
	a := rapid.SliceOfN(rapid.Byte(), 4, 4).Draw(t, label)
	return netip.PrefixFrom(netip.AddrFrom4([4]byte(a)), rapid.IntRange(least, most).Draw(t, label+" bits")).Masked()
}

func drawPrefix6(t *rapid.T, label string) netip.Prefix {
	a := rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, label)
	a[0] = 0xfd
	return netip.PrefixFrom(netip.AddrFrom16([16]byte(a)), 64).Masked()
}

// An address and its translation have the same host part, and going back leads to where it came from.
func TestTranslateIsBijective(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var from, to netip.Prefix
		if rapid.Bool().Draw(t, "IPv4") {
			from = drawPrefix4(t, "from", 0, 32)
			to = netip.PrefixFrom(drawPrefix4(t, "to", 32, 32).Addr(), from.Bits()).Masked()
		} else {
			from, to = drawPrefix6(t, "from"), drawPrefix6(t, "to")
		}
		host := rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "host")
		addr := from.Addr().AsSlice()
		for i := range addr {
			addr[i] |= host[i] & (0xff >> min(8, max(0, from.Bits()-8*i)))
		}
		a, _ := netip.AddrFromSlice(addr)
		there, ok := translate(a, []netip.Prefix{from}, []netip.Prefix{to})
		if !ok || !to.Contains(there) {
			t.Fatalf("%s of %s is %s in %s", a, from, there, to)
		}
		for i, b := range there.AsSlice() {
			if mask := byte(0xff) >> min(8, max(0, from.Bits()-8*i)); b&mask != addr[i]&mask {
				t.Fatalf("%s of %s is %s in %s", a, from, there, to)
			}
		}
		if back, ok := translate(there, []netip.Prefix{to}, []netip.Prefix{from}); !ok || back != a {
			t.Fatalf("%s came back as %s", a, back)
		}
	})
}

// Blocks overlap nothing that is taken, are as large as what they stand for and within the
// range, and stay when they are stored and still right.
func TestChoose(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		within := rapid.SampledFrom(prefixes("241.0.0.0/8", "241.0.0.0/12", "10.0.0.0/14", "240.0.0.0/4", "192.168.0.0/16")).Draw(t, "within")
		own := prefixes("10.42.0.0/24", "fd42::/64")[:rapid.IntRange(1, 2).Draw(t, "families")]
		var taken []netip.Prefix
		for range rapid.IntRange(0, 20).Draw(t, "taken") {
			switch rapid.IntRange(0, 2).Draw(t, "kind") {
			case 0:
				taken = append(taken, drawPrefix4(t, "any", 4, 32))
			case 1: // within the range
				a, b := within.Addr().As4(), drawPrefix4(t, "inside", 16, 32)
				bits := b.Addr().As4()
				for i := range a {
					a[i] |= bits[i] & (0xff >> min(8, max(0, within.Bits()-8*i)))
				}
				taken = append(taken, netip.PrefixFrom(netip.AddrFrom4(a), b.Bits()).Masked())
			case 2:
				taken = append(taken, drawPrefix6(t, "six"))
			}
		}
		stored := make(map[peer.ClusterID]Blocks)
		for i := range rapid.IntRange(1, 12).Draw(t, "peers") {
			id := peer.ClusterID(fmt.Sprint("peer", i))
			pods := []netip.Prefix{drawPrefix4(t, "pods", leastBits4, mostBits4)}
			if rapid.Bool().Draw(t, "dual") {
				pods = append(pods, drawPrefix6(t, "pods"))
			}
			if checkPods(pods) != nil {
				continue
			}
			theirs, err := choose(id, pods, own, nil, taken, within)
			if err != nil {
				for a := within.Addr(); within.Bits() >= 14 && within.Contains(a); a = last(whole(netip.PrefixFrom(a, pods[0].Bits()))).Next() {
					if b := netip.PrefixFrom(a, pods[0].Bits()); covers(within, whole(b)) && !overlapsAny(whole(b), taken) {
						t.Fatalf("%v, but %s is free", err, b)
					}
				}
				continue
			}
			if len(theirs) != min(len(pods), len(own)) {
				t.Fatalf("%v for %v", theirs, pods)
			}
			for _, b := range theirs {
				p, _ := ofFamily(pods, b.Addr().Is4())
				if b != b.Masked() || b.Bits() != p.Bits() || overlapsAny(whole(b), taken) || !unicast(whole(b)) || whole(b).Addr() != b.Addr() || b.Addr().Is4() && !covers(within, whole(b)) {
					t.Fatalf("%s for %s, with %v", b, p, taken)
				}
			}
			b := Blocks{Pods: pods, Theirs: theirs, Ours: prefixes("241.0.0.0/24")}
			if err := b.check(); err != nil {
				t.Fatal(err)
			}
			if checkOurs(theirs, pods) != nil {
				t.Fatalf("the peer would not take %v for %v", theirs, pods)
			}
			// What is stored stays, also when more is taken.
			again, err := choose(id, pods, own, theirs, taken, within)
			if err != nil || !slices.Equal(again, theirs) {
				t.Fatalf("%v became %v, %v", theirs, again, err)
			}
			// It does not stay when it is taken, or the range is another one.
			if other, err := choose(id, pods, own, theirs, append(slices.Clone(taken), theirs[0]), within); err == nil && other[0].Overlaps(theirs[0]) {
				t.Fatalf("%v stays although it is taken", theirs)
			}
			if other, err := choose(id, pods, own, theirs, taken, prefix("172.16.0.0/12")); err == nil && theirs[0].Addr().Is4() && !covers(prefix("172.16.0.0/12"), other[0]) {
				t.Fatalf("%v stays although the range is another one", other)
			}
			for _, b := range theirs {
				taken = append(taken, whole(b))
			}
			stored[id] = b
		}
	})
}

func TestChooseFromSmallRange(t *testing.T) {
	pods, own := prefixes("10.42.0.0/24"), k3s.Pods
	if b, err := choose("b", pods, own, nil, nil, prefix("10.99.0.0/23")); err != nil || b[0] != prefix("10.99.0.0/24") {
		t.Error(b, err)
	}
	for _, within := range prefixes("10.99.0.0/24", "10.99.0.0/32") {
		// Also where the last block is larger than the range.
		if b, err := choose("b", pods, own, prefixes("10.99.0.0/24"), nil, within); err == nil {
			t.Error(within, b)
		}
	}
	if b, err := choose("b", pods, own, nil, prefixes("10.99.0.0/32"), prefix("10.99.0.0/23")); err == nil {
		t.Error(b)
	}
	if b, err := choose("b", prefixes("fd00::/64"), own, nil, nil, DefaultRange); err == nil {
		t.Error(b)
	}
	if b, err := choose("b", prefixes("fd00::/64"), prefixes("fd42::/64"), nil, prefixes("fc00::/7"), DefaultRange); err == nil {
		t.Error(b)
	}
}

// What a bit error on the disk has changed is agreed on anew.
func TestStoredBlocks(t *testing.T) {
	good := Blocks{Pods: prefixes("10.42.0.0/24", "fd42::/64"), Theirs: prefixes("241.3.2.0/24", "fd12::/64"), Ours: prefixes("241.7.0.0/20")}
	if err := good.check(); err != nil {
		t.Error(err)
	}
	for name, change := range map[string]func(b *Blocks){
		"no pods":             func(b *Blocks) { b.Pods = nil },
		"other length":        func(b *Blocks) { b.Theirs = prefixes("241.3.2.0/23") },
		"upper half":          func(b *Blocks) { b.Theirs = prefixes("241.3.3.0/24") },
		"of no pods":          func(b *Blocks) { b.Pods = b.Pods[:1] },
		"twice":               func(b *Blocks) { b.Theirs = prefixes("241.3.2.0/24", "241.5.2.0/24") },
		"six, upper half":     func(b *Blocks) { b.Theirs = prefixes("241.3.2.0/24", "fd12:0:0:1::/64") },
		"upper half of ours":  func(b *Blocks) { b.Ours = prefixes("241.7.16.0/20") },
		"not masked":          func(b *Blocks) { b.Ours = prefixes("241.7.0.1/20") },
		"multicast":           func(b *Blocks) { b.Ours = prefixes("227.0.0.0/20") },
		"not valid":           func(b *Blocks) { b.Ours = []netip.Prefix{{}} },
		"not valid of theirs": func(b *Blocks) { b.Theirs = []netip.Prefix{{}} },
	} {
		b := good
		if change(&b); b.check() == nil {
			t.Errorf("%s: nothing is wrong with %v", name, b)
		}
	}
}

// Finding a path takes the blocks that there are, and nothing beside them.
func TestRouting(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := newRouting()
		blocks := make(map[netip.Prefix]*path)
		for range rapid.IntRange(0, 20).Draw(t, "blocks") {
			b := drawPrefix4(t, "block", 16, 28)
			if rapid.Bool().Draw(t, "six") {
				b = drawPrefix6(t, "block")
			}
			overlaps := false
			for o := range blocks {
				overlaps = overlaps || o.Overlaps(b)
			}
			if !overlaps {
				blocks[b] = new(path)
				r.add(b, blocks[b])
			}
		}
		for b, p := range blocks {
			if r.find(b.Addr()) != p || r.find(b.Addr().Next()) != p {
				t.Fatalf("%s is not found", b)
			}
		}
		dst := drawPrefix4(t, "destination", 32, 32).Addr()
		var want *path
		for b, p := range blocks {
			if b.Contains(dst) {
				want = p
			}
		}
		if r.find(dst) != want {
			t.Fatalf("something else is found for %s", dst)
		}
	})
	if (*routing)(nil).find(netip.MustParseAddr("10.0.0.1")) != nil {
		t.Error("nothing is routed")
	}
}

// The form of messages is fixed: others speak it.
func TestMessage(t *testing.T) {
	b, err := json.Marshal(message{Pods: prefixes("10.42.0.0/24", "fd42::/64"), Yours: prefixes("241.3.2.0/24")})
	if want := `{"pods":["10.42.0.0/24","fd42::/64"],"yours":["241.3.2.0/24"]}`; err != nil || string(b) != want {
		t.Errorf("%s, %v", b, err)
	}
}

// A block is found at once, also in a large range that is full.
func TestChooseIsQuick(t *testing.T) {
	for _, taken := range [][]netip.Prefix{prefixes("240.0.0.0/4"), prefixes("240.0.0.0/5", "248.0.0.0/6", "252.0.0.0/7", "254.0.0.0/8")} {
		for range 1000 {
			if b, err := choose("b", prefixes("10.42.0.0/28"), k3s.Pods, nil, taken, prefix("240.0.0.0/4")); err == nil {
				t.Fatal(b)
			}
		}
	}
	// All but one place are taken by small ones.
	var taken []netip.Prefix
	for i := range 255 {
		taken = append(taken, netip.PrefixFrom(netip.AddrFrom4([4]byte{241, 0, byte(i), 9}), 32))
	}
	if b, err := choose("b", prefixes("10.42.0.0/25"), k3s.Pods, nil, taken, prefix("241.0.0.0/16")); err != nil || b[0] != prefix("241.0.255.0/25") {
		t.Error(b, err)
	}
}
