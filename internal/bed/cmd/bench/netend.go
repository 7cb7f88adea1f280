//go:build linux

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"liqo.io/agent/internal/bed"
	"liqo.io/agent/internal/traffic"
	"liqo.io/agent/peer"
	"liqo.io/agent/trust"
)

// podPort is where pods answer, and podHost the host part of their address.
const podPort, podHost = "9999", 6

// end is a node with a pod, and maybe an engine that connects it with others.
type end struct {
	r           *scenarioRun
	host        *bed.Host
	addr        netip.Addr
	keys        string // directory of its key
	fingerprint peer.Fingerprint
	pod         *bed.Process
	engine      *bed.Process
	told        time.Time // of the others
}

// netend is the program that runs at the ends.
func (r *scenarioRun) netend() string { return bed.Binary(r, "netend") }

// usual sets the congestion control that Linux has by default, or, where namespaces may not have that, one that does not
// pace what it sends either, either of which a machine may have chosen for all of its networks.
const usual = "(echo cubic || echo reno) 2>/dev/null > /proc/sys/net/ipv4/tcp_congestion_control; "

// tracked has a node track connections, as each node of Kubernetes does for its Services, whether it is connected or not.
const tracked = `nft 'table ip node { chain forward { type filter hook forward priority 0; ct state established,related accept; }; }'; `

// end adds a node with a pod.
func (r *scenarioRun) end(b *bed.Bed, name, addr string) *end {
	e := &end{r: r, host: b.AddHost(name, addr+"/16"), addr: netip.MustParseAddr(addr)}
	e.sh(usual + tracked + "echo 1 > /proc/sys/net/ipv4/ip_forward")
	e.pod = r.startPod(e.host, netip.AddrFrom4([4]byte{10, 42, 0, podHost}))
	return e
}

// startPod starts what answers in a network of its own behind the bridge of pods.
func (r *scenarioRun) startPod(h *bed.Host, at netip.Addr) *bed.Process {
	pod := h.Start(bed.Cmd{Name: "pod", Args: []string{"unshare", "-n", "sh", "-ec", usual + "ip link set lo up; exec " + r.netend() + " pod"}})
	if err := pod.WaitLog(r.Context(), "listening"); err != nil {
		r.Fatalf("%v", err)
	}
	if _, err := h.Run(r.Context(), "sh", "-ec", fmt.Sprintf(`ip link add name pod0 type veth peer name eth0 netns %[1]d
		ip link set pod0 master cni0 up
		nsenter -t %[1]d -n sh -ec 'ip addr add %[2]s/24 dev eth0; ip link set eth0 up; ip route add default via 10.42.0.1'`, pod.PID(), at)); err != nil {
		r.Fatalf("%v", err)
	}
	return pod
}

// sh runs a script on the node, inPod one in its pod.
func (e *end) sh(script string) {
	if _, err := e.host.Run(e.r.Context(), "sh", "-ec", script); err != nil {
		e.r.Fatalf("%v", err)
	}
}

func (e *end) inPod(script string) {
	if _, err := e.host.Run(e.r.Context(), e.enter("sh", "-ec", script)...); err != nil {
		e.r.Fatalf("%v", err)
	}
}

func (e *end) enter(args ...string) []string {
	return append([]string{"nsenter", "-t", fmt.Sprint(e.pod.PID()), "-n"}, args...)
}

// ask runs netend in the pod, and reads what it prints.
func (e *end) ask(result any, args ...string) {
	ctx, cancel := context.WithTimeout(e.r.Context(), time.Minute)
	defer cancel()
	out, err := e.host.Run(ctx, e.enter(append([]string{e.r.netend()}, args...)...)...)
	if err == nil {
		err = json.Unmarshal([]byte(out), result)
	}
	if err != nil {
		e.r.Fatalf("netend %s: %v", strings.Join(args, " "), err)
	}
}

// connect starts engines at the ends, connects the first one with each of the others, and returns the addresses of their
// pods at the first. What they hold before they know of anybody is returned, too.
func (r *scenarioRun) connect(ends ...*end) (pods []netip.Addr, before []usage) {
	dir, err := os.MkdirTemp("/dev/shm", "keys-")
	if err != nil {
		r.Fatalf("%v", err)
	}
	r.Cleanup(func() { _ = os.RemoveAll(dir) })
	for _, e := range ends {
		e.keys = filepath.Join(dir, e.host.Name)
		if err := os.Mkdir(e.keys, 0o700); err != nil {
			r.Fatalf("%v", err)
		}
		key, err := trust.LoadOrCreateKey(e.keys)
		if err != nil {
			r.Fatalf("%v", err)
		}
		e.fingerprint = key.Fingerprint()
	}
	for i, e := range ends {
		args := []string{r.netend(), "engine", "-id", e.host.Name, "-keys", e.keys}
		if profiles != "" {
			args = append(args, "-profile", filepath.Join(profiles, fmt.Sprintf("%s-%s.pprof", r.name, e.host.Name)))
		}
		for j, p := range ends {
			if i != j && (i == 0 || j == 0) {
				args = append(args, fmt.Sprintf("%s=%s@%s", p.host.Name, p.fingerprint, netip.AddrPortFrom(p.addr, 6447)))
			}
		}
		e.engine = e.host.Start(bed.Cmd{Name: "engine", Args: args})
		if profiles != "" {
			r.Cleanup(func() { _ = e.engine.Stop() }) // which writes the profile
		}
	}
	for _, e := range ends {
		if err := e.engine.WaitLog(r.Context(), "idle"); err != nil {
			r.Fatalf("%v", err)
		}
		before = append(before, e.used())
	}
	for _, e := range ends {
		e.told = time.Now()
		if err := e.engine.Signal(syscall.SIGUSR1); err != nil {
			r.Fatalf("%v", err)
		}
	}
	for _, e := range ends[1:] {
		if err := e.engine.WaitLog(r.Context(), "Connected "+ends[0].host.Name+" at "); err != nil {
			r.Fatalf("%v", err)
		}
		text := "Connected " + e.host.Name + " at "
		if err := ends[0].engine.WaitLog(r.Context(), text); err != nil {
			r.Fatalf("%v", err)
		}
		_, rest, _ := strings.Cut(ends[0].engine.Log(), text)
		block, err := netip.ParsePrefix(strings.Fields(rest)[0])
		if err != nil {
			r.Fatalf("%v", err)
		}
		pod := block.Addr().As4()
		pod[3] += podHost
		pods = append(pods, netip.AddrFrom4(pod))
	}
	return pods, before
}

// used is what the engine has used.
func (e *end) used() usage {
	u, err := usageOf(e.engine.PID())
	if err != nil {
		e.r.Fatalf("%v", err)
	}
	return u
}

// way is how packets go from a pod to another.
type way struct {
	name     string
	from, to *end
	pod      netip.Addr // by which to's is known there
}

func (w *way) target() string { return w.pod.String() + ":" + podPort }

// stream measures one stream of TCP, in bytes a second.
func (w *way) stream(during time.Duration) float64 {
	rate, _ := w.streamCPU(during)
	return rate
}

// cpu are processor seconds.
type cpu struct{ engines, all float64 }

// streamCPU measures one stream of TCP, and what engines and pods need for a GB of it.
func (w *way) streamCPU(during time.Duration) (rate float64, perGB cpu) {
	processes := []*bed.Process{w.to.pod}
	if w.from.engine != nil {
		processes = append(processes, w.from.engine, w.to.engine)
	}
	count := func() (all, pod time.Duration) {
		for i, p := range processes {
			u, err := usageOf(p.PID())
			if err != nil {
				w.from.r.Fatalf("%v", err)
			}
			if all += u.cpu; i == 0 {
				pod = u.cpu
			}
		}
		return all, pod
	}
	all0, pod0 := count()
	var got traffic.Result
	w.from.ask(&got, "stream", "-for", during.String(), w.target())
	all1, pod1 := count()
	gb := float64(got.Total) / 1e9
	return float64(got.Bytes[w.target()]) / got.Seconds, cpu{
		engines: (all1 - all0 - (pod1 - pod0)).Seconds() / gb,
		all:     ((all1 - all0).Seconds() + got.CPU) / gb,
	}
}

// ping measures how long questions and their answers take, in order.
func (w *way) ping(length, number int) []time.Duration {
	var got []time.Duration
	w.from.ask(&got, "ping", "-length", fmt.Sprint(length), "-number", fmt.Sprint(number), w.target())
	if len(got) < number*9/10 {
		w.from.r.Fatalf("%s: %d answers to %d questions", w.name, len(got), number)
	}
	slices.Sort(got)
	return got
}

// packets measures how many packets of a length arrive a second.
func (w *way) packets(length int, during time.Duration) (rate float64) {
	w.from.ask(&rate, "packets", "-length", fmt.Sprint(length), "-for", during.String(), w.target())
	return rate
}

// numbers are results of rounds.
type numbers []float64

func (n numbers) median() float64 {
	if len(n) == 0 {
		return 0
	}
	return slices.Sorted(slices.Values(n))[len(n)/2]
}

// show gives the median and, in brackets, the smallest and largest.
func (n numbers) show(format string) string {
	if len(n) == 0 {
		return "never"
	}
	return fmt.Sprintf(format+" ["+format+".."+format+"]", n.median(), slices.Min(n), slices.Max(n))
}
