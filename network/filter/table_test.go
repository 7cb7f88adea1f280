package filter

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/mdlayher/netlink"
	vnetlink "github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"liqo.io/agent/internal/bed"
	"liqo.io/agent/internal/bed/bedtest"
)

// example is what is desired about some peers with some pods each.
func example(peers, pods int) Desired {
	d := Desired{
		Device: device, Bridge: "cni0", Pods: []netip.Prefix{pods4, pods6}, Host: []netip.Addr{host4, host6}, Connections: 1000,
	}
	for i := range peers {
		p := Peer{
			Name:   fmt.Sprintf("peer-%d", i),
			Theirs: []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{241, 1, byte(i), 0}), 24), netip.PrefixFrom(netip.MustParseAddr(fmt.Sprintf("fd01:0:0:%x::", i)), 64)},
			Ours:   prefixes("241.2.0.0/24", "fd02::/64"),
		}
		p.Gateways = []netip.Addr{corresponding(host4, pods4, p.Theirs[0]), corresponding(host6, pods6, p.Theirs[1])}
		var guests []netip.Prefix
		for n := range pods {
			for _, block := range p.Theirs {
				own, pod := pods4, netip.AddrFrom4([4]byte{10, 42, 0, byte(2 + 2*n)})
				if block.Addr().Is6() {
					own, pod = pods6, netip.MustParseAddr(fmt.Sprintf("fd42::%x", 2+2*n))
				}
				guests = append(guests, single(corresponding(pod, own, block)))
			}
		}
		p.Out = []Grant{{From: d.Pods, To: guests}}
		p.In = []Grant{{From: guests, To: prefixes("10.42.0.7/32", "10.42.0.9/32", "fd42::7/128")}}
		d.Peers = append(d.Peers, p)
	}
	return d
}

func openOn(t testing.TB, h *bed.Host) *Table {
	t.Helper()
	var table *Table
	if err := h.Do(func() (err error) { table, err = Open(); return err }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := table.Close(); err != nil {
			t.Error(err)
		}
	})
	return table
}

func setOn(t testing.TB, h *bed.Host, table *Table, d Desired) {
	t.Helper()
	if err := h.Do(func() error { return table.Set(d) }); err != nil {
		t.Fatal(err)
	}
}

// listed is what nft shows, with the objects of each table in order.
func listed(t testing.TB, h *bed.Host) string {
	t.Helper()
	var out []byte
	if err := h.Do(func() (err error) { out, err = exec.Command("nft", "-s", "list", "ruleset").Output(); return err }); err != nil {
		t.Fatal(err)
	}
	tables := strings.SplitAfter(string(out), "\n}\n")
	for i, table := range tables {
		head, rest, _ := strings.Cut(strings.TrimSuffix(table, "}\n"), "\n")
		objects := strings.Split(strings.Trim(rest, "\n"), "\n\n")
		for j, object := range objects {
			before, elements, ok := strings.Cut(object, "elements = {")
			if ok {
				sorted := strings.Split(strings.TrimSuffix(strings.Join(strings.Fields(elements), " "), " } }"), ", ")
				slices.Sort(sorted)
				objects[j] = before + strings.Join(sorted, ", ")
			}
		}
		slices.Sort(objects)
		tables[i] = head + "\n" + strings.Join(objects, "\n\n") + "\n"
	}
	slices.Sort(tables)
	return strings.Join(tables, "")
}

// messages counts what the kernel tells of changes of tables, by kind.
type messages struct {
	t      *testing.T
	socket *netlink.Conn
}

func monitor(t *testing.T, h *bed.Host) *messages {
	t.Helper()
	m := &messages{t: t}
	if err := h.Do(func() (err error) {
		if m.socket, err = netlink.Dial(unix.NETLINK_NETFILTER, nil); err != nil {
			return err
		}
		return m.socket.JoinGroup(unix.NFNLGRP_NFTABLES)
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.socket.Close() })
	return m
}

// sent returns which kinds of messages were told of until now. All are there when a change returns.
func (m *messages) sent() map[int]int {
	m.t.Helper()
	out := make(map[int]int)
	for {
		if err := m.socket.SetReadDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
			m.t.Fatal(err)
		}
		all, err := m.socket.Receive()
		if err != nil {
			return out
		}
		for _, one := range all {
			if kind := int(one.Header.Type & 0xff); kind != unix.NFT_MSG_NEWGEN {
				out[kind]++
			}
		}
	}
}

func TestSetSendsOnlyWhatChanged(t *testing.T) {
	t.Parallel()
	h := bed.New(t).AddHost("a", "192.0.2.1/24")
	table := openOn(t, h)
	d := example(3, 4)
	setOn(t, h, table, d)
	m := monitor(t, h)
	setOn(t, h, table, example(3, 4))
	if got := m.sent(); len(got) > 0 {
		t.Errorf("kinds of messages without a change: %v", got)
	}

	pod := single(netip.MustParseAddr("241.1.0.77"))
	d.Peers[0].Out[0].To = append(d.Peers[0].Out[0].To, pod)
	d.Peers[0].In[0].From = append(d.Peers[0].In[0].From, pod)
	setOn(t, h, table, d)
	for kind := range m.sent() {
		if kind != unix.NFT_MSG_NEWSETELEM {
			t.Errorf("a message of kind %d for a pod that came", kind)
		}
	}
	setOn(t, h, table, example(3, 4))
	for kind := range m.sent() {
		if kind != unix.NFT_MSG_DELSETELEM {
			t.Errorf("a message of kind %d for a pod that went", kind)
		}
	}
	d = example(3, 4)
	slices.Reverse(d.Peers)
	for _, p := range d.Peers {
		slices.Reverse(p.In[0].From)
	}
	setOn(t, h, table, d)
	if got := m.sent(); len(got) > 0 {
		t.Errorf("kinds of messages for another order: %v", got)
	}
}

// However it came to be, the table is the one that would be made for the same from nothing.
func TestChangesAddUp(t *testing.T) {
	t.Parallel()
	h := bed.New(t).AddHost("a", "192.0.2.1/24")
	seed := time.Now().UnixNano()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(uint64(seed), 0))
	table, fresh := openOn(t, h), openOn(t, h)
	for step := range 12 {
		d := mutate(random)
		setOn(t, h, table, d)
		got := listed(t, h)
		fresh.spoil()
		setOn(t, h, fresh, d)
		if want := listed(t, h); got != want {
			t.Fatalf("step %d:\n%s", step, cmp.Diff(strings.Split(want, "\n"), strings.Split(got, "\n")))
		}
		if len(table.blocks) != len(theirs(d)) || table.dirty {
			t.Fatalf("step %d: blocks %v are remembered", step, table.blocks)
		}
	}
}

func theirs(d Desired) (out []netip.Prefix) {
	for _, p := range d.Peers {
		out = append(out, p.Theirs...)
	}
	return out
}

func mutate(random *rand.Rand) Desired {
	d := example(5, 3)
	d.Peers = slices.DeleteFunc(d.Peers, func(Peer) bool { return random.IntN(3) == 0 })
	d.Guests = make(map[string][]netip.Prefix)
	for i, name := range []string{"peer-0", "peer-1", "nobody"} {
		for n := range random.IntN(4) {
			d.Guests[name] = append(d.Guests[name], single(netip.AddrFrom4([4]byte{10, 42, 0, byte(10*i + n)})), single(netip.MustParseAddr(fmt.Sprintf("fd42::%x", 10*i+n))))
		}
	}
	shift := byte(random.IntN(3)) // blocks that others had before, next to each other
	for i := range d.Peers {
		p := &d.Peers[i]
		at := p.Theirs[0].Addr().As4()
		at[2] += shift
		p.Theirs[0] = netip.PrefixFrom(netip.AddrFrom4(at), 24)
		if random.IntN(2) == 0 {
			p.Ours = prefixes("241.3.0.0/24", "fd03::/64")
		}
		p.In = p.In[random.IntN(2):]
		for range random.IntN(3) {
			var g Grant
			for range random.IntN(6) {
				g.From = append(g.From, netip.PrefixFrom(netip.AddrFrom4([4]byte{241, 1, at[2], byte(random.IntN(8))}), 29+random.IntN(4)).Masked())
				g.To = append(g.To, netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 42, 0, byte(random.IntN(256))}), 24+random.IntN(9)))
			}
			p.In = append(p.In, g)
		}
	}
	if random.IntN(5) == 0 {
		d.Device = "liqo1"
	}
	if random.IntN(5) == 0 {
		d.Connections = 0
	}
	return d
}

func TestOthersChangesAreRepaired(t *testing.T) {
	t.Parallel()
	h := bed.New(t).AddHost("a", "192.0.2.1/24")
	table := openOn(t, h)
	d := example(2, 2)
	sh := func(command string) {
		t.Helper()
		if out, err := h.Run(t.Context(), "sh", "-ec", command); err != nil {
			t.Fatal(err, out)
		}
	}
	setOn(t, h, table, d)
	good := listed(t, h)
	var told atomic.Int32
	bedtest.Run(t, nil, nil, func(ctx context.Context) error {
		return h.Do(func() error { return table.Watch(ctx, func() { told.Add(1) }) })
	})
	toldTimes := func(n int32) {
		t.Helper()
		waitFor(t, func() error {
			if got := told.Load(); got != n {
				return fmt.Errorf("told %d times, want %d", got, n)
			}
			return nil
		})
	}
	toldTimes(1) // that there was a Set already: from here on it watches
	setOn(t, h, table, d)
	sh("nft add table ip other; nft delete table ip other; nft add rule ip liqo input drop")
	toldTimes(2)
	if bed.RealRoot() { // others have no room for so much
		before := told.Load()
		setOn(t, h, table, example(30, 60))
		setOn(t, h, table, d)
		if told.Load() != before {
			t.Error("our own large changes were taken for others'")
		}
	}
	for i, command := range []string{
		"nft flush ruleset",
		"nft flush chain ip liqo incoming",
		"nft delete table ip6 liqo",
		"nft add element ip liqo theirs { 10.0.0.0/8 }",
		"nft flush set ip liqo pairs",
		"nft add rule ip liqo incoming accept",
		"nft add chain ip liqo another",
		"nft add table ip other; nft add chain ip other x; nft delete table ip other; nft delete table ip liqo",
	} {
		before := told.Load()
		// Our own changes, and those of others' tables, are none of others to ours.
		setOn(t, h, table, example(3, i))
		setOn(t, h, table, d)
		sh("nft add table ip other; nft add chain ip other x; nft delete table ip other; iptables-nft -w -L -n > /dev/null")
		sh(command)
		waitFor(t, func() error {
			if told.Load() == before {
				return fmt.Errorf("%s: was not noticed", command)
			}
			return nil
		})
		if got := told.Load() - before; got != 1 {
			t.Errorf("%s: was told %d times", command, got)
		}
		setOn(t, h, table, d)
		sh("nft delete table ip filter 2>/dev/null || true; nft delete table ip6 filter 2>/dev/null || true")
		if got := listed(t, h); got != good {
			t.Errorf("%s: was repaired to\n%s\nwant\n%s", command, got, good)
		}
	}
}

func TestRemoveLeavesOthersAlone(t *testing.T) {
	w, a, _, _, _ := two(t, "nft")
	a.run("nft add table inet other; nft add chain inet other c '{ type filter hook input priority 0; }'; nft add table inet liqo")
	with := listed(t, a.Host)
	a.do(func() error { return a.table.Remove() })
	without := listed(t, a.Host)
	if strings.Contains(without, "table ip liqo") || strings.Contains(without, "table ip6 liqo") {
		t.Errorf("there still is\n%s", without)
	}
	a.do(func() error {
		left, err := Leftovers()
		if len(left) > 0 {
			t.Errorf("left over: %v", left)
		}
		return err
	})
	a.do(func() error { return a.table.Remove() }) // nothing to do
	a.set()
	if got := listed(t, a.Host); got != with {
		t.Errorf("after another Set:\n%s\nwant\n%s", got, with)
	}
	a.do(func() error {
		left, err := Leftovers()
		if want := []string{"nftables table ip liqo", "nftables table ip6 liqo"}; !slices.Equal(left, want) {
			t.Errorf("left over: %v, want %v", left, want)
		}
		return err
	})
	// Another process, which knows nothing, removes it too.
	a.do(func() error {
		other, err := Open()
		if err != nil {
			return err
		}
		if err := other.Remove(); err != nil {
			return err
		}
		return other.Close()
	})
	if got := listed(t, a.Host); got != without {
		t.Errorf("after another Remove:\n%s\nwant\n%s", got, without)
	}
	w.checkStrange()
}

// tracked are the connections that a box tracks, as text.
func tracked(t *testing.T, b *box) (out []string) {
	t.Helper()
	b.do(func() error {
		for _, family := range []vnetlink.InetFamily{unix.AF_INET, unix.AF_INET6} {
			all, err := vnetlink.ConntrackTableList(vnetlink.ConntrackTable, family)
			if err != nil {
				return err
			}
			for _, f := range all {
				if f.Forward.Protocol == unix.IPPROTO_IGMP {
					continue // the kernel tells of its own groups at times of its own
				}
				out = append(out, fmt.Sprintf("%d %v:%d %v:%d, %v:%d %v:%d", f.Forward.Protocol,
					f.Forward.SrcIP, f.Forward.SrcPort, f.Forward.DstIP, f.Forward.DstPort,
					f.Reverse.SrcIP, f.Reverse.SrcPort, f.Reverse.DstIP, f.Reverse.DstPort))
			}
		}
		return nil
	})
	slices.Sort(out)
	return out
}

func TestConnectionsAreCutOff(t *testing.T) {
	for name, cut := range map[string]func(a *box){
		"a peer goes":                    func(a *box) { a.desired.Peers = nil; a.set() },
		"a peer goes while nothing runs": func(a *box) { restart(a); a.desired.Peers = nil; a.set() },
		"its block changes":              func(a *box) { a.desired.Peers[0].Theirs = prefixes("241.8.0.0/24", "fd99:c::/64"); a.set() },
		"the block that it chose changes": func(a *box) {
			a.desired.Peers[0].Ours = prefixes("241.8.0.0/24", "fd99:c::/64")
			a.set()
		},
		"all is removed":              func(a *box) { a.do(a.table.Remove) },
		"all is removed by a program": func(a *box) { restart(a); a.do(a.table.Remove) },
	} {
		t.Run(name, func(t *testing.T) {
			w, a, b, x, y := two(t, "nft")
			for _, six := range []bool{false, true} {
				ask(t, x, "udp", a.seen(b, y.addr(six)), "hello")
				ask(t, y, "tcp", b.seen(a, x.addr(six)), "hello")
				ping(t, a, a.seen(b, map[bool]netip.Addr{false: host4, true: host6}[six]))
			}
			client := w.bed.AddHost("client", "192.0.2.99/24")
			ask(t, client, "tcp", netip.MustParseAddr("192.0.2.1"), "on the LAN")
			if got := inBlocks(tracked(t, a)); len(got) < 6 {
				t.Fatalf("only these connections are tracked: %v", got)
			}
			cut(a)
			left := tracked(t, a)
			if got := inBlocks(left); len(got) > 0 {
				t.Errorf("still there: %v", got)
			}
			if !slices.ContainsFunc(left, func(s string) bool { return strings.Contains(s, "192.0.2.99") }) {
				t.Errorf("the connection on the LAN is gone, too: %v", left)
			}
		})
	}
}

func inBlocks(all []string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(s string) bool {
		return !strings.Contains(s, "241.7.2.") && !strings.Contains(s, "fd99:a:")
	})
}

// restart is what remains of a table when its process ended and another one started.
func restart(a *box) {
	a.t.Helper()
	if err := a.table.Close(); err != nil {
		a.t.Fatal(err)
	}
	a.do(func() (err error) { a.table, err = Open(); return err })
}

// What is granted is not cut off with the rest, nor by a restart.
func TestGrantedConnectionsSurvive(t *testing.T) {
	w, a, b, x, y := two(t, "nft")
	allowHost(a, b)
	allowHost(b, a)
	b.set()
	other := a.addPod(6)
	allow([]*pod{other}, []*pod{y})
	a.set()
	b.set()
	client := w.bed.AddHost("client", "192.0.2.99/24")
	a.run(fmt.Sprintf(`
		iptables-nft -w -t nat -A PREROUTING -d 10.43.0.9 -p tcp -j DNAT --to %[1]v
		iptables-nft -w -t nat -A PREROUTING -d 192.0.2.1 -p tcp --dport 30007 -j MARK --set-mark 0x4000
		iptables-nft -w -t nat -A PREROUTING -d 192.0.2.1 -p tcp --dport 30007 -j DNAT --to %[1]v:%d
	`, a.seen(b, y.v4), talk))
	ask(t, x, "tcp", netip.MustParseAddr("10.43.0.9"), "by a Service")
	if _, err := tryPort(client, "tcp", netip.MustParseAddr("192.0.2.1"), 30007, "by a NodePort"); err != nil {
		t.Fatal(err)
	}
	for _, six := range []bool{false, true} {
		host := map[bool]netip.Addr{false: host4, true: host6}[six]
		for _, network := range []string{"udp", "tcp"} {
			ask(t, x, network, a.seen(b, y.addr(six)), "out")
			ask(t, y, network, b.seen(a, x.addr(six)), "in")
			ask(t, a, network, a.seen(b, y.addr(six)), "from the host")
			ask(t, b, network, b.seen(a, x.addr(six)), "from the peer's host")
		}
		ping(t, a, a.seen(b, host))
		ping(t, b, b.seen(a, host))
	}
	before := inBlocks(tracked(t, a))
	check := func(when string) {
		t.Helper()
		after := inBlocks(tracked(t, a))
		for _, c := range before {
			if !slices.Contains(after, c) {
				t.Errorf("%s, gone: %s", when, c)
			}
		}
	}
	a.peer(b).Out = a.peer(b).Out[:1]
	a.set()
	check("after another pod went")
	restart(a)
	a.set()
	check("after a restart")
	if len(before) < 16 {
		t.Errorf("only %d connections were tracked: %v", len(before), before)
	}
	w.checkStrange()
}

// Without the right to change nftables, nothing is changed, and it is said what was not permitted.
func TestWithoutRights(t *testing.T) {
	t.Parallel()
	b := newWorld(t, "a").boxes[0]
	b.set()
	before := b.run("nft list ruleset")
	b.desired.Pods, b.desired.Host = b.desired.Pods[:1], b.desired.Host[:1]
	b.do(func() error {
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var rights [2]unix.CapUserData
		if err := unix.Capget(&header, &rights[0]); err != nil {
			return err
		}
		rights[0].Effective &^= 1 << unix.CAP_NET_ADMIN
		rights[0].Permitted &^= 1 << unix.CAP_NET_ADMIN
		if err := unix.Capset(&header, &rights[0]); err != nil { // the thread ends with this function
			return err
		}
		table, err := Open()
		if err == nil {
			defer func() { _ = table.Close() }()
			err = table.Set(b.desired)
		}
		if !errors.Is(err, unix.EPERM) || !strings.Contains(err.Error(), "nftables") && !strings.Contains(err.Error(), "netlink") {
			t.Errorf("Set: %v", err)
		}
		return nil
	})
	if after := b.run("nft list ruleset"); after != before {
		t.Errorf("the rules were %s\nand are %s", before, after)
	}
}
