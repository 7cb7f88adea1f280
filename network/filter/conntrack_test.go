package filter

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Whatever is no longer granted is found by the addresses that a change of permissions names.
func TestNarrowed(t *testing.T) {
	seed := time.Now().UnixNano()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(uint64(seed), 0))
	named := 0
	for range 1000 {
		before := example(2, 3)
		change(random, &before)
		after := example(2, 3)
		change(random, &after)
		old, now := build(&before, false), build(&after, false)
		less, at := narrows(old, now)
		if less && at == nil {
			continue // all are looked at
		}
		named += len(at)
		was, is := newJudge(&before), newJudge(&after)
		for range 50 {
			f := anyFlow(random)
			if was.allowed(&f) && !is.allowed(&f) && !slices.Contains(at, f.forward.src) && !slices.Contains(at, f.reverse.src) {
				t.Fatalf("%+v is not granted any more, and not of %v:\n%+v\n%+v", f, at, before, after)
			}
		}
	}
	if named == 0 {
		t.Error("no change named the addresses")
	}
}

// Large ranges are not gone through one by one.
func TestNarrowedRange(t *testing.T) {
	large := &set{elements: merge(prefixes("fd42::/64"), true)}
	less := &set{elements: merge(prefixes("fd42::/127", "fd42::3/128", "fd42::4/126", "fd42::8/125", "fd42::10/124", "fd42::20/123"), true)}
	less.elements = append(less.elements, element{from: netip.MustParseAddr("fd42::41"), to: large.elements[0].to})
	got := slices.Collect(missing(large, less))
	if len(got) != 2 || got[0].String() != "fd42::2" || got[1].String() != "fd42::40" {
		t.Errorf("%v", got)
	}
}

// change takes a few addresses, or a grant, away.
func change(random *rand.Rand, d *Desired) {
	for i := range d.Peers {
		for _, grants := range []*[]Grant{&d.Peers[i].In, &d.Peers[i].Out} {
			if random.IntN(8) == 0 {
				*grants = nil
				continue
			}
			if random.IntN(8) == 0 {
				*grants = append(*grants, Grant{From: prefixes("241.1.0.2/31", "10.42.0.9/32"), To: prefixes("10.42.0.8/31", "241.1.1.4/32")})
			}
			for _, of := range []*[]netip.Prefix{&(*grants)[0].From, &(*grants)[0].To} {
				if random.IntN(4) == 0 {
					n := random.IntN(len(*of))
					*of = slices.Delete(slices.Clone(*of), n, n+1)
				}
			}
		}
	}
}

func anyFlow(random *rand.Rand) (f flow) {
	theirs := netip.AddrFrom4([4]byte{241, 1, byte(random.IntN(2)), byte(random.IntN(10))})
	pod := netip.AddrFrom4([4]byte{10, 42, 0, byte(random.IntN(10))})
	ours := netip.AddrFrom4([4]byte{241, 2, 0, pod.As4()[3]})
	f.forward.protocol = unix.IPPROTO_TCP
	if random.IntN(2) == 0 {
		f.forward.src, f.forward.dst, f.reverse.src, f.reverse.dst = pod, theirs, theirs, ours
	} else {
		f.forward.src, f.forward.dst, f.reverse.src, f.reverse.dst = theirs, ours, pod, theirs
	}
	return f
}

// When a pod goes, the kernel tells of its connections only, and not of everybody's.
func TestOnlyThoseOfTheAddressAreToldOf(t *testing.T) {
	_, a, b, x, y := two(t, "nft")
	z := a.addPod(6)
	allow([]*pod{z}, []*pod{y})
	a.set()
	b.set()
	for _, six := range []bool{false, true} {
		ask(t, x, "udp", a.seen(b, y.addr(six)), "of one pod")
		ask(t, z, "tcp", a.seen(b, y.addr(six)), "of another one")
		ask(t, y, "udp", b.seen(a, x.addr(six)), "to it")
	}
	for _, direction := range []int{nl.CTA_TUPLE_ORIG, nl.CTA_TUPLE_REPLY} {
		var told []flow
		if err := a.table.conntrack.listFrom(x.v4, direction, func(f flow) { told = append(told, f) }); err != nil {
			t.Fatal(err)
		}
		if len(told) != 1 || told[0].forward.protocol != unix.IPPROTO_UDP {
			t.Errorf("in direction %d, the kernel tells of %+v", direction, told)
		} else if from := []netip.Addr{told[0].forward.src, told[0].reverse.src}[direction-1]; from != x.v4 {
			t.Errorf("in direction %d, it is from %s", direction, from)
		}
	}
	// And the change itself cuts no other off.
	before := len(tracked(t, a))
	a.peer(b).Out = a.peer(b).Out[1:]
	a.set()
	if after := len(tracked(t, a)); after != before-2 {
		t.Errorf("%d connections are left of %d:\n%v", after, before, tracked(t, a))
	}
}
