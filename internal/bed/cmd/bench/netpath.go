//go:build linux

package main

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"liqo.io/agent/internal/bed"
	"liqo.io/agent/internal/plot"
	"liqo.io/agent/network/filter"
)

// The ways that are measured, each between a pod and another one behind two nodes.
const (
	viaPlain  = "plain forwarding"
	viaNAT    = "NAT alone"
	viaFilter = "NAT and filter"
	viaVXLAN  = "vxlan"
	viaTLS    = "tls"
)

// plainWay is a cable between nodes that only forward.
func (r *scenarioRun) plainWay(b *bed.Bed) *way {
	x, y := r.end(b, "a", "10.77.0.1"), r.end(b, "b", "10.77.0.2")
	for _, side := range []struct {
		here, there *end
		own, other  string
	}{{x, y, "198.19.0", "198.18.0"}, {y, x, "198.18.0", "198.19.0"}} {
		side.here.sh(fmt.Sprintf("ip route add %s.0/24 via %s; ip route add %s.0/24 dev cni0", side.other, side.there.addr, side.own))
		side.here.inPod(fmt.Sprintf("ip addr add %s.%d/32 dev eth0; ip route add %s.0/24 via 10.42.0.1 src %[1]s.%[2]d", side.own, podHost, side.other))
	}
	return &way{name: viaPlain, from: x, to: y, pod: netip.MustParseAddr(fmt.Sprintf("198.18.0.%d", podHost))}
}

// vxlanWay is what flannel has between nodes, on the nodes of the plain way; nil if this kernel has no vxlan.
func (r *scenarioRun) vxlanWay(plain *way) *way {
	for _, side := range []struct {
		here, there *end
		n, peer     int
		own, other  string
	}{{plain.from, plain.to, 1, 2, "198.51.101", "198.51.100"}, {plain.to, plain.from, 2, 1, "198.51.100", "198.51.101"}} {
		if _, err := side.here.host.Run(r.Context(), "ip", "link", "add", "name", "vx0", "mtu", "1450", "type", "vxlan", "id", "42",
			"local", side.here.addr.String(), "remote", side.there.addr.String(), "dstport", "4789"); err != nil {
			r.Logf("  no vxlan here: %v", err)
			return nil
		}
		side.here.sh(fmt.Sprintf("ip link set vx0 up; ip addr add 192.0.2.%d/30 dev vx0; ip route add %s.0/24 via 192.0.2.%d; ip route add %s.0/24 dev cni0",
			side.n, side.other, side.peer, side.own))
		side.here.inPod(fmt.Sprintf("ip addr add %s.%d/32 dev eth0; ip route add %s.0/24 via 10.42.0.1 mtu 1450 src %[1]s.%[2]d", side.own, podHost, side.other))
	}
	return &way{name: viaVXLAN, from: plain.from, to: plain.to, pod: netip.MustParseAddr(fmt.Sprintf("198.51.100.%d", podHost))}
}

// filterWay is a cable between nodes with the rules that the network has, without its device.
func (r *scenarioRun) filterWay(b *bed.Bed) *way {
	return r.translated(viaFilter, r.end(b, "c", "10.77.0.3"), r.end(b, "d", "10.77.0.4"))
}

// natWay is filterWay with those of the rules that translate addresses, and without those that decide what may pass.
func (r *scenarioRun) natWay(b *bed.Bed) *way {
	w := r.translated(viaNAT, r.end(b, "g", "10.77.0.7"), r.end(b, "h", "10.77.0.8"))
	for _, e := range []*end{w.from, w.to} {
		e.sh("for chain in $(nft list table ip liqo | awk '$1 == \"chain\" {name = $2} $2 == \"filter\" {print name}'); do nft delete chain ip liqo $chain; done")
	}
	return w
}

// translated is a cable between nodes, each with the rules for a peer, which is the other one.
func (r *scenarioRun) translated(name string, x, y *end) *way {
	blocks := []netip.Prefix{netip.MustParsePrefix("241.1.0.0/24"), netip.MustParsePrefix("241.2.0.0/24")}
	pods, host := []netip.Prefix{netip.MustParsePrefix("10.42.0.0/24")}, []netip.Addr{netip.MustParseAddr("10.42.0.1")}
	for i, e := range []*end{x, y} {
		theirs, ours := blocks[i:i+1], blocks[1-i:2-i]
		e.sh(fmt.Sprintf("ip route add %s via %s", theirs[0], []*end{y, x}[i].addr))
		if err := e.host.Do(func() error {
			table, err := filter.Open()
			if err != nil {
				return err
			}
			r.Cleanup(func() { _ = table.Close() })
			return table.Set(filter.Desired{Device: "eth0", Bridge: "cni0", Pods: pods, Host: host, Peers: []filter.Peer{{
				Name: "peer", Theirs: theirs, Ours: ours, Gateways: []netip.Addr{theirs[0].Addr().Next()},
				Out: []filter.Grant{{From: pods, To: theirs}}, In: []filter.Grant{{From: theirs, To: pods}},
			}}})
		}); err != nil {
			r.Fatalf("%v", err)
		}
	}
	return &way{name: name, from: x, to: y, pod: netip.AddrFrom4([4]byte{241, 1, 0, podHost})}
}

// tlsWay are two nodes that are connected as agents do it.
func (r *scenarioRun) tlsWay(b *bed.Bed) (w *way, before []usage) {
	x, y := r.end(b, "e", "10.77.0.5"), r.end(b, "f", "10.77.0.6")
	pods, before := r.connect(x, y)
	return &way{name: viaTLS, from: x, to: y, pod: pods[0]}, before
}

// here says what all of this runs on.
func here() string {
	load, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return ""
	}
	return fmt.Sprintf("all ends on the same %d cores, load %s", runtime.NumCPU(), strings.Fields(string(load))[0])
}

// What a cable between nodes carries.
const (
	packetsOnWire = "packets on the wire"
	superOnWire   = "superpackets on the wire"
)

// carry has the cables of nodes carry packets, as real ones do, for which the processor cuts what is sent; or superpackets
// of up to 64 KB, which cost those who look at headers only next to nothing.
func (r *scenarioRun) carry(what string, ways []*way) {
	most := 65535
	if what == packetsOnWire {
		most = 1
	}
	for _, w := range ways {
		for _, e := range []*end{w.from, w.to} {
			e.sh(fmt.Sprintf("ip link set dev eth0 gso_max_segs %d", most))
		}
	}
}

// measureNetwork measures the ways next to each other, in rounds.
func measureNetwork(r *scenarioRun) {
	const rounds, during, questions = 5, 1500 * time.Millisecond, 2000
	b := bed.New(r)
	plain := r.plainWay(b)
	tls, before := r.tlsWay(b)
	ways := []*way{plain, r.natWay(b), r.filterWay(b), tls}
	if vxlan := r.vxlanWay(plain); vxlan != nil {
		ways = append(ways, vxlan)
	}
	var stream map[string]numbers
	for _, wire := range []string{superOnWire, packetsOnWire} {
		r.carry(wire, ways)
		rate := make(map[string]numbers)
		var engines, all numbers
		for range rounds {
			for _, w := range ways {
				bytes, perGB := w.streamCPU(during)
				rate[w.name] = append(rate[w.name], bytes)
				if w == tls {
					engines, all = append(engines, perGB.engines), append(all, perGB.all)
				}
			}
		}
		stream = rate
		how := fmt.Sprintf("%s; %d rounds of %v for each way; %s", wire, rounds, during, here())
		wanted := func(text string) string { // the goals are for what there is
			if wire == packetsOnWire {
				return text
			}
			return ""
		}
		r.add("network: NAT alone against plain forwarding, one TCP stream", wanted("at least 0.9"), per(rate[viaNAT], rate[viaPlain]).show("%.2f"), how)
		r.add("network: NAT and filter against plain forwarding, one TCP stream", "", per(rate[viaFilter], rate[viaPlain]).show("%.2f"), how)
		if len(rate[viaVXLAN]) > 0 {
			r.add("network: tls against vxlan without encryption, one TCP stream", wanted("at least 0.4, aim 0.6"), per(rate[viaTLS], rate[viaVXLAN]).show("%.2f"), how)
		}
		for _, w := range ways {
			var gbit numbers
			for _, bytes := range rate[w.name] {
				gbit = append(gbit, bytes*8/1e9)
			}
			r.add("network: "+w.name+", one TCP stream", "", gbit.show("%.2f")+" Gbit/s", how)
		}
		most := ""
		if wire == superOnWire { // as network cards and drivers that cut and join packets have it
			most = "at most 4, aim 2.5"
		}
		r.add("network: tls, processor seconds per GB, both agents", most, engines.show("%.1f"),
			"with the kernel's work for them; with sender and receiver "+all.show("%.1f")+"; "+how)
	}

	p50, p99 := make(map[string]numbers), make(map[string]numbers)
	for range rounds {
		for _, w := range ways {
			took := w.ping(64, questions)
			p50[w.name] = append(p50[w.name], micro(took[len(took)/2]))
			p99[w.name] = append(p99[w.name], micro(took[len(took)*99/100]))
		}
	}
	how := fmt.Sprintf("against plain forwarding; %d rounds, each of %d questions over UDP for each way; %s", rounds, questions, here())
	r.add("network: tls, round trip added, median", "at most 100 µs", more(p50[viaTLS], p50[viaPlain]).show("%.0f")+" µs", how)
	r.add("network: tls, round trip added, 99 %", "at most 1000 µs", more(p99[viaTLS], p99[viaPlain]).show("%.0f")+" µs", how)

	r.pause(6 * time.Second) // large buffers are given back
	after := tls.from.used()
	r.add("network: memory of one path", "at most 10 MB", mb(after.anon-before[0].anon)+" more",
		"anonymous, after the streams; in all "+after.memory()+", of which the runtime, the endpoint and so on "+mb(before[0].anon))
	r.plot(ways, stream)
}

// plot measures the ways with packets of several lengths, and draws that.
func (r *scenarioRun) plot(ways []*way, stream map[string]numbers) {
	const rounds, during, questions = 3, 300 * time.Millisecond, 500
	lengths := []int{64, 256, 512, 1024, 1400}
	speed := plot.Panel{Title: "Throughput", Unit: "Mbit/s", Log: true}
	delay := plot.Panel{Title: "Round trip, median", Unit: "µs"}
	for _, length := range lengths {
		speed.X = append(speed.X, fmt.Sprint(length))
		delay.X = append(delay.X, fmt.Sprint(length))
	}
	speed.X = append(speed.X, "TCP")
	for _, w := range ways {
		speed.Lines = append(speed.Lines, plot.Line{Name: w.name})
		delay.Lines = append(delay.Lines, plot.Line{Name: w.name})
	}
	for _, length := range lengths {
		rates, times := make([]numbers, len(ways)), make([]numbers, len(ways))
		for range rounds {
			for i, w := range ways {
				rates[i] = append(rates[i], w.packets(length, during)*float64(length)*8/1e6)
				took := w.ping(length, questions)
				times[i] = append(times[i], micro(took[len(took)/2]))
			}
		}
		for i := range ways {
			speed.Lines[i].Y = append(speed.Lines[i].Y, rates[i].median())
			delay.Lines[i].Y = append(delay.Lines[i].Y, times[i].median())
		}
	}
	for i, w := range ways {
		speed.Lines[i].Y = append(speed.Lines[i].Y, stream[w.name].median()*8/1e6)
		r.Logf("  %s: %.0f Mbit/s and %.0f µs with packets of %v bytes, and one stream", w.name, speed.Lines[i].Y, delay.Lines[i].Y, lengths)
	}
	if plots == "" {
		return
	}
	svg := plot.SVG("Pods of two clusters: packets of UDP by length in bytes, and one stream of TCP", speed, delay)
	if err := os.WriteFile(filepath.Join(plots, "network-bench.svg"), svg, 0o644); err != nil {
		r.Fatalf("%v", err)
	}
}

func micro(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// per divides what was measured in the same round, and more subtracts it.
func per(a, b numbers) (out numbers) {
	for i := range a {
		out = append(out, a[i]/b[i])
	}
	return out
}

func more(a, b numbers) (out numbers) {
	for i := range a {
		out = append(out, a[i]-b[i])
	}
	return out
}

// measureNetworkLink measures on links that are slower than the machine.
func measureNetworkLink(r *scenarioRun) {
	const rounds, during = 3, 2 * time.Second
	b := bed.New(r)
	plain := r.plainWay(b)
	tls, _ := r.tlsWay(b)
	for _, mbit := range []int{100, 1000} {
		for _, w := range []*way{plain, tls} {
			for _, e := range []*end{w.from, w.to} {
				// As much as a switch has room for, and 5 ms at least.
				if _, err := e.host.Run(r.Context(), "tc", "qdisc", "replace", "dev", "eth0", "root", "tbf", "rate", fmt.Sprintf("%dmbit", mbit), "burst", "128k", "limit", fmt.Sprint(max(256<<10, mbit*5*125))); err != nil {
					r.Fatalf("%v", err)
				}
			}
		}
		var ratio, rate numbers
		for range rounds {
			p, t := plain.stream(during), tls.stream(during)
			ratio, rate = append(ratio, t/p), append(rate, t*8/1e6)
		}
		r.add(fmt.Sprintf("network: tls against plain forwarding, link of %d Mbit/s", mbit), "at least 0.95", ratio.show("%.2f"),
			fmt.Sprintf("tbf on both ends; %s Mbit/s with tls; %d rounds, each of %v of one TCP stream for each way; %s", rate.show("%.0f"), rounds, during, here()))
	}
}
