//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"math"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"

	"liqo.io/agent/internal/bed"
	"liqo.io/agent/internal/crowd"
	"liqo.io/agent/internal/plot"
)

const (
	settle = 75 * time.Second // the first checks, and the queries that become rarer
	atRest = time.Minute
)

// ladder is something of which there can be few or many, and how an agent comes to it.
type ladder struct {
	name, what string
	sizes      []int
	// climb starts what is measured and returns when it began, and when all was there.
	climb func(r *scenarioRun, size int) (m measured, began, done time.Time)
}

// measured is an agent, or an engine of networks.
type measured struct {
	r       *scenarioRun
	host    *bed.Host
	process *bed.Process
	agent   *box // nil if it is an engine
}

func (x *box) measured() measured { return measured{x.r, x.host, x.agent, x} }

var ladders = []ladder{
	{"neighbours", "neighbours", []int{10, 100, 1000, 5000}, climbNeighbours},
	{"remembered", "remembered peers", []int{100, 1000, 10_000, 100_000}, climbRemembered},
	{"joined", "joined peers", []int{10, 50, 100, 500}, climbJoined},
	{"pods", "pods at a provider", []int{10, 100, 500, 2000}, climbPods},
	{"services", "Services with five pods at home each", []int{10, 50, 200}, climbServices},
	{"paths", "paths", []int{1, 10, 50}, climbPaths},
}

// rung is what one size took.
type rung struct {
	size     int
	until    time.Duration      // all of it was there
	busy     time.Duration      // its processor time until then
	rest     time.Duration      // its processor time in a minute at rest
	anon     int64              // its anonymous memory then, bytes
	requests float64            // of the agent to its API server in that minute
	packets  map[string]float64 // that left its host in that minute, by kind
}

// kinds are what packets are counted as: a name and how nft tells them. A packet may be of several.
var kinds = [][2]string{
	{"all", ""}, {"mdns", "udp sport 5353"}, {"tcp", "meta l4proto tcp"}, {"syn", "tcp flags & (syn | ack) == syn"}, {"arp", "ether type arp"},
}

func scales() (all []scenario) {
	for _, l := range ladders {
		all = append(all, scenario{"scale-" + l.name, scale(l)})
	}
	return all
}

// scale returns the scenario that climbs a ladder.
func scale(l ladder) func(*scenarioRun) {
	return func(r *scenarioRun) {
		var rungs []rung
		for _, size := range l.sizes {
			if most > 0 && size > most {
				break
			}
			// Each on a bed of its own, of which nothing is left when the next begins.
			if err := bed.Script(r.Context(), fmt.Sprintf("%s-%d", r.name, size), os.Stdout, func(tb bed.TB) {
				s := &scenarioRun{TB: tb, name: r.name}
				m, began, done := l.climb(s, size)
				rungs = append(rungs, m.rung(size, began, done))
			}); err != nil {
				r.Errorf("%d %s: %v", size, l.what, err)
				break
			}
			g := rungs[len(rungs)-1]
			growth := ""
			if len(rungs) > 1 {
				p := rungs[len(rungs)-2]
				growth = fmt.Sprintf("%s times as many: %s the processor time, %s the memory, %s the processor time at rest", times(g.size, p.size), times(g.busy, p.busy), times(g.anon, p.anon), times(g.rest, p.rest))
			}
			r.add(fmt.Sprintf("%d %s: all there; processor time; a minute at rest: processor time, API requests, packets, of mDNS, TCP and ARP, connections begun; memory", g.size, l.what), "",
				fmt.Sprintf("%s; %s; %s, %.0f, %.0f, %.0f, %.0f, %.0f, %.0f; %s", short(g.until), short(g.busy), short(g.rest), g.requests,
					g.packets["all"], g.packets["mdns"], g.packets["tcp"], g.packets["arp"], g.packets["syn"], mb(g.anon)), growth)
		}
		r.drawScale(l, rungs)
	}
}

// times says how many times as large a is as b.
func times[T int | int64 | time.Duration](a, b T) string {
	if b == 0 {
		return "?"
	}
	return fmt.Sprintf("%.3g", float64(a)/float64(b))
}

// rung waits until the start's work has ended, and measures a minute in which nothing happens.
func (m measured) rung(size int, began, done time.Time) rung {
	used := func() usage {
		u, err := usageOf(m.process.PID())
		if err != nil {
			m.r.Fatalf("%v", err)
		}
		return u
	}
	requests := func() float64 { return 0 }
	if m.agent != nil {
		requests = m.agent.apiRequests
	}
	g := rung{size: size, until: done.Sub(began), busy: used().cpu}
	m.r.pause(settle)
	u0, r0 := used(), requests()
	m.countPackets()
	if profiles == "" || m.agent == nil {
		m.r.pause(atRest)
	} else if err := os.WriteFile(filepath.Join(profiles, fmt.Sprintf("%s-%d.pprof", m.r.name, size)),
		m.agent.fetch(fmt.Sprintf("/debug/pprof/profile?seconds=%.0f", atRest.Seconds())), 0o644); err != nil {
		m.r.Fatalf("%v", err)
	}
	g.packets = m.packets()
	u1 := used()
	g.rest, g.anon, g.requests = u1.cpu-u0.cpu, u1.anon, requests()-r0
	return g
}

// apiRequests returns how many requests to its API server the agent has made.
func (x *box) apiRequests() (sum float64) {
	for line := range strings.Lines(string(x.fetch("/metrics"))) {
		var n float64
		if at := strings.LastIndexByte(line, ' '); strings.HasPrefix(line, "liqo_agent_apiserver_requests_total{") {
			if _, err := fmt.Sscan(line[at:], &n); err != nil {
				x.r.Fatalf("metrics: %v: %s", err, line)
			}
			sum += n
		}
	}
	return sum
}

// countPackets has the kernel count the packets that leave the host's link from now on.
func (m measured) countPackets() {
	var counters, rules strings.Builder
	for _, kind := range kinds {
		fmt.Fprintf(&counters, "counter sent_%s {}\n", kind[0])
		fmt.Fprintf(&rules, "%s counter name sent_%s\n", kind[1], kind[0])
	}
	rules.WriteString("}\n}\n")
	if _, err := m.host.RunInput(m.r.Context(), "table netdev bench {\n"+counters.String()+
		"chain sent { type filter hook egress device eth0 priority 0;\n"+rules.String(), "nft", "-f", "-"); err != nil {
		m.r.Fatalf("count packets: %v", err)
	}
}

// packets returns how many packets were counted, by kind.
func (m measured) packets() map[string]float64 {
	text, err := m.host.Run(m.r.Context(), "nft", "-j", "list", "counters", "table", "netdev", "bench")
	var listed struct {
		Nftables []struct {
			Counter struct {
				Name    string
				Packets float64
			}
		}
	}
	if err == nil {
		err = json.Unmarshal([]byte(text), &listed)
	}
	if err != nil {
		m.r.Fatalf("count packets: %v", err)
	}
	sent := make(map[string]float64)
	for _, one := range listed.Nftables {
		sent[strings.TrimPrefix(one.Counter.Name, "sent_")] = one.Counter.Packets
	}
	return sent
}

// fix makes the hardware addresses of a crowd known for good, so that they need not fit into the kernel's table of them: that has
// room for 1,024 by default, in all namespaces together.
func (x *box) fix(c *crowd.Crowd, mac net.HardwareAddr) {
	var lines strings.Builder
	for _, b := range c.Boxes {
		fmt.Fprintf(&lines, "neigh replace %s lladdr %s dev eth0 nud permanent\n", b.Addr, mac)
	}
	if _, err := x.host.RunInput(x.r.Context(), lines.String(), "ip", "-batch", "-"); err != nil {
		x.r.Fatalf("%v", err)
	}
}

// climbNeighbours has an agent that has started before meet boxes with endpoints: what is measured is meeting them.
func climbNeighbours(r *scenarioRun, size int) (m measured, began, done time.Time) {
	b := bed.New(r)
	x := r.box(b, "a", "10.77.0.1/16")
	x.kube = b.StartKubes(r.Context(), x.host)[0]
	x.start() // makes the database, the kinds and the namespace
	r.await(time.Minute, "connected", func() error { return connected(x) })
	x.stop()
	host := addCrowd(b)
	x.fix(r.newCrowd(host, crowd.Options{Size: size, Endpoints: true}), host.Link("eth0").HardwareAddr())
	began = x.start()
	done = x.when(max(2*time.Minute, time.Duration(size)*60*time.Millisecond), "all neighbours", func(all map[string]foreign) bool {
		n := 0
		for _, fc := range all {
			if fc.Status.Fingerprint != "" {
				n++
			}
		}
		return n == size
	})
	return x.measured(), began, done
}

func climbRemembered(r *scenarioRun, size int) (m measured, began, done time.Time) {
	b := bed.New(r)
	x := r.box(b, "a", "10.77.0.1/16")
	x.start() // makes the database
	x.mustStatus()
	x.stop()
	r.remember(x, size)
	capture := b.LAN().Capture()
	began = x.start()
	return x.measured(), began, r.packetFrom(capture, netip.MustParseAddr("10.77.0.1"), began, "query", isQuery)
}

func climbJoined(r *scenarioRun, size int) (m measured, began, done time.Time) {
	b := bed.New(r)
	x := r.box(b, "a", "10.77.0.1/16")
	x.kube = b.StartKubes(r.Context(), x.host)[0]
	x.host.WriteFile("/etc/liqo-agent/liqo-agent.toml", fmt.Sprintf("[discovery]\nautojoin_untrusted = true\n[sharing]\nuse = false\nmax_accepted = %d\n", size))
	x.start()
	r.await(time.Minute, "connected", func() error { return connected(x) })
	began = time.Now()
	addCrowd(b).Start(neighbours(r, size))
	x.awaitJoined(5*time.Minute, size)
	return x.measured(), began, time.Now()
}

func climbPods(r *scenarioRun, size int) (m measured, began, done time.Time) {
	p := r.newPair("")
	p.share()
	first := p.create("first", p.onProvider())
	p.mine.awaitUID(r, "the first pod runs", first, isReady)
	began = time.Now()
	p.createMany(size, "flood", `"nodeName": "`+p.node()+`"`)
	p.mine.await(r, 10*time.Minute, "all pods run", size, named("flood", isReady))
	done = time.Now()
	p.exact("flood")
	return p.x.measured(), began, done
}

func climbServices(r *scenarioRun, size int) (m measured, began, done time.Time) {
	const behind = 5
	p := r.newPair("")
	p.forward()
	p.share()
	p.x.connected(p.yID)
	p.postMany(behind, "pods", func(i int) []byte {
		return fmt.Appendf(nil, `{"metadata": {"name": "web-%d", "labels": {"app": "web"}}, "spec": {"nodeName": "%s", %s}}`, i, p.x.host.Name, podSpec)
	})
	p.mine.await(r, time.Minute, "the pods at home run", behind, named("web", isReady))
	// Services are reflected while there are guests.
	p.mine.awaitUID(r, "the pod at the provider runs", p.create("first", p.onProvider()), isReady)
	began = time.Now()
	p.postMany(size, "services", func(i int) []byte {
		return fmt.Appendf(nil, `{"metadata": {"name": "web-%d"}, "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]}}`, i)
	})
	r.await(5*time.Minute, "all Services are reflected, with what is behind them", func() error {
		var all discoveryv1.EndpointSliceList
		if err := json.Unmarshal(p.y.request("GET", "/apis/discovery.k8s.io/v1/endpointslices?labelSelector="+discoveryv1.LabelManagedBy+"%3Dliqo-agent", ""), &all); err != nil {
			return err
		}
		n := 0
		for _, s := range all.Items {
			for _, e := range s.Endpoints {
				if e.Conditions.Ready != nil && *e.Conditions.Ready {
					n++
				}
			}
		}
		if n != size*behind {
			return fmt.Errorf("the provider has %d endpoints of %d", n, size*behind)
		}
		return nil
	})
	return p.x.measured(), began, time.Now()
}

// climbPaths has an engine of networks, which is what an agent runs for that, connect its node with others.
func climbPaths(r *scenarioRun, size int) (m measured, began, done time.Time) {
	b := bed.New(r)
	ends := []*end{r.end(b, "a", "10.77.0.1")}
	for i := range size {
		ends = append(ends, r.end(b, fmt.Sprintf("b%d", i), fmt.Sprintf("10.77.1.%d", i+1)))
	}
	r.connect(ends...)
	return measured{r, ends[0].host, ends[0].engine, nil}, ends[0].told, time.Now()
}

// drawScale draws a ladder.
func (r *scenarioRun) drawScale(l ladder, rungs []rung) {
	if plots == "" || len(rungs) < 2 {
		return
	}
	panels := []plot.Panel{
		{Title: "Until all are there", Unit: "s", Log: true},
		{Title: "Processor time until then", Unit: "s", Log: true},
		{Title: "Processor time in a minute at rest", Unit: "s", Log: true},
		{Title: "Memory, anonymous", Unit: "MB"},
	}
	for i := range panels {
		panels[i].Lines = []plot.Line{{Name: l.what}}
	}
	for _, g := range rungs {
		for i, v := range []float64{g.until.Seconds(), g.busy.Seconds(), g.rest.Seconds(), float64(g.anon) / 1e6} {
			panels[i].X = append(panels[i].X, fmt.Sprint(g.size))
			// Less than the kernel counts has no place on a logarithmic scale.
			panels[i].Lines[0].Y = append(panels[i].Lines[0].Y, math.Max(v, 0.01))
		}
	}
	svg := plot.SVG("One agent with more and more "+l.what, panels...)
	if err := os.WriteFile(filepath.Join(plots, r.name+".svg"), svg, 0o644); err != nil {
		r.Fatalf("%v", err)
	}
}
