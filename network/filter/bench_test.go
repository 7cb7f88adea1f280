package filter

import (
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"liqo.io/agent/internal/bed"
)

// BenchmarkSet measures changes of 50 peers with 100 pods each, in both families.
func BenchmarkSet(b *testing.B) {
	for name, measure := range map[string]func(b *testing.B, set func(Desired), table *Table){
		"nothing changed": func(b *testing.B, set func(Desired), _ *Table) {
			d := example(50, 100)
			set(d)
			for b.Loop() {
				set(d)
			}
		},
		"a pod comes or goes": func(b *testing.B, set func(Desired), _ *Table) {
			with, without := example(50, 100), example(50, 100)
			pod := single(netip.MustParseAddr("241.1.7.77"))
			with.Peers[7].Out[0].To = append(with.Peers[7].Out[0].To, pod)
			with.Peers[7].In[0].From = append(with.Peers[7].In[0].From, pod)
			for i := 0; b.Loop(); i++ {
				set([]Desired{with, without}[i%2])
			}
		},
		"a peer comes or goes": func(b *testing.B, set func(Desired), _ *Table) {
			with, without := example(50, 100), example(49, 100)
			for i := 0; b.Loop(); i++ {
				set([]Desired{with, without}[i%2])
			}
		},
		"all is written": func(b *testing.B, set func(Desired), table *Table) {
			d := example(50, 100)
			for b.Loop() {
				table.spoil()
				set(d)
			}
		},
	} {
		b.Run(name, func(b *testing.B) {
			h := bed.New(b).AddHost("a", "192.0.2.1/24")
			table, begun := openOn(b, h), cpuTime()
			measure(b, func(d Desired) { setOn(b, h, table, d) }, table)
			b.ReportMetric(float64(cpuTime()-begun)/float64(time.Millisecond)/float64(b.N), "cpu-ms/op")
		})
	}
}

// BenchmarkForward measures a TCP stream and the time of a small question and its answer,
// from a pod to one behind another node, with and without translation.
func BenchmarkForward(b *testing.B) {
	for _, c := range []struct {
		name        string
		peers, pods int
	}{{"routed", 0, 0}, {"one peer", 1, 1}, {"50 peers with 100 pods each", 50, 100}} {
		x, y, address := forward(b, c.peers, c.pods)
		b.Run("stream, "+c.name, func(b *testing.B) {
			var l net.Listener
			y.do(func() (err error) { l, err = net.Listen("tcp", ":99"); return err })
			defer func() { _ = l.Close() }()
			go func() {
				if in, err := l.Accept(); err == nil {
					_, _ = io.Copy(io.Discard, in)
				}
			}()
			out, err := dial(x, "tcp", address, 99)
			if err != nil {
				b.Fatal(err)
			}
			defer func() { _ = out.Close() }()
			piece := make([]byte, 1<<20)
			b.SetBytes(int64(len(piece)))
			begun := cpuTime()
			for b.Loop() {
				if _, err := out.Write(piece); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric((cpuTime()-begun).Seconds()/float64(b.N)*1024, "cpu-s/GiB")
		})
		b.Run("question, "+c.name, func(b *testing.B) {
			out, err := dial(x, "udp", address, talk)
			if err != nil {
				b.Fatal(err)
			}
			defer func() { _ = out.Close() }()
			buffer := make([]byte, 100)
			begun := cpuTime()
			for b.Loop() {
				if _, err := out.Write([]byte("hello")); err != nil {
					b.Fatal(err)
				}
				if err := out.SetReadDeadline(late()); err != nil {
					b.Fatal(err)
				}
				if _, err := out.Read(buffer); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(cpuTime()-begun)/float64(time.Microsecond)/float64(b.N), "cpu-us/op")
		})
	}
}

// forward makes two nodes with a direct cable for a device, and a pod at each. Without
// peers, each pod has another address that needs no translation.
func forward(b *testing.B, peers, pods int) (x, y *pod, address netip.Addr) {
	bed := bed.New(b)
	left := &box{t: b, name: "a", Host: bed.AddHost("a", "192.0.2.1/24")}
	right := &box{t: b, name: "b", Host: bed.AddHost("b", "192.0.2.2/24")}
	var namespace *os.File
	right.do(func() (err error) { namespace, err = os.Open("/proc/thread-self/ns/net"); return err })
	b.Cleanup(func() { _ = namespace.Close() })
	left.do(func() error {
		return netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: device}, PeerName: device, PeerNamespace: netlink.NsFd(int(namespace.Fd()))})
	})
	for _, h := range []*box{left, right} {
		h.run("sysctl -qw net.ipv4.ip_forward=1; ip link set liqo0 up")
		h.do(func() error {
			bridge, err := netlink.LinkByName("cni0")
			if err == nil {
				h.bridge = bridge.Attrs().Index
			}
			return err
		})
	}
	left.run("ip addr add 198.51.100.1/30 dev liqo0")
	right.run("ip addr add 198.51.100.2/30 dev liqo0")
	x, y = left.addPod(6), right.addPod(6)
	if peers == 0 {
		left.run("ip route add 198.18.0.0/16 via 198.51.100.2; ip route add 198.19.0.0/16 dev cni0")
		right.run("ip route add 198.19.0.0/16 via 198.51.100.1; ip route add 198.18.0.0/16 dev cni0")
		x.do(func() error {
			return exec.Command("sh", "-ec", "ip addr add 198.19.0.6/32 dev eth0; ip route change default via 10.42.0.1 src 198.19.0.6").Run()
		})
		y.do(func() error {
			return exec.Command("sh", "-ec", "ip addr add 198.18.0.6/32 dev eth0; ip route change default via 10.42.0.1 src 198.18.0.6").Run()
		})
		return x, y, netip.MustParseAddr("198.18.0.6")
	}
	left.run("ip route add 241.0.0.0/8 via 198.51.100.2")
	right.run("ip route add 241.0.0.0/8 via 198.51.100.1")
	d := example(peers, pods)
	for i := range d.Peers {
		// Both sides chose the same.
		d.Peers[i].Ours[0] = d.Peers[i].Theirs[0]
		d.Peers[i].In[0].To = append(d.Peers[i].In[0].To, single(y.v4))
		d.Peers[i].In[0].From = append(d.Peers[i].In[0].From, single(netip.AddrFrom4([4]byte{241, 1, byte(i), 6})))
		d.Peers[i].Out[0].To = append(d.Peers[i].Out[0].To, single(netip.AddrFrom4([4]byte{241, 1, byte(i), 6})))
	}
	for _, h := range []*box{left, right} {
		setOn(b, h.Host, openOn(b, h.Host), d)
	}
	return x, y, netip.AddrFrom4([4]byte{241, 1, byte(peers / 2), 6})
}

// cpuTime is what this process used of the processors.
func cpuTime() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkNarrow measures what it takes that a pod goes while many connections are tracked, that have nothing to do with it.
func BenchmarkNarrow(b *testing.B) {
	const connections = 20000
	w := newWorld(b, "a")
	box := w.boxes[0]
	box.do(func() error {
		for i := range connections {
			f := &netlink.ConntrackFlow{
				FamilyType: unix.AF_INET, TimeOut: 600,
				Forward: netlink.IPTuple{
					SrcIP: net.IPv4(198, 18, byte(i>>8), byte(i)), DstIP: net.IPv4(198, 19, 0, 1), SrcPort: uint16(1024 + i), DstPort: 99, Protocol: unix.IPPROTO_UDP,
				},
			}
			f.Reverse = netlink.IPTuple{SrcIP: f.Forward.DstIP, DstIP: f.Forward.SrcIP, SrcPort: 99, DstPort: f.Forward.SrcPort, Protocol: unix.IPPROTO_UDP}
			if err := netlink.ConntrackCreate(netlink.ConntrackTable, unix.AF_INET, f); err != nil {
				return err
			}
		}
		return nil
	})
	for _, more := range []int{1, 2, 50} {
		b.Run(strconv.Itoa(more)+" pods go", func(b *testing.B) {
			with, without := example(2, 10), example(2, 10)
			for i := range more {
				pod := single(netip.AddrFrom4([4]byte{241, 1, 0, byte(100 + 2*i)}))
				with.Peers[0].Out[0].To = append(with.Peers[0].Out[0].To, pod)
				with.Peers[0].In[0].From = append(with.Peers[0].In[0].From, pod)
			}
			setOn(b, box.Host, box.table, with)
			for b.Loop() {
				setOn(b, box.Host, box.table, without)
				b.StopTimer()
				setOn(b, box.Host, box.table, with)
				b.StartTimer()
			}
		})
	}
}
