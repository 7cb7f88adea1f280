//go:build linux

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"liqo.io/agent/agent/control"
	"liqo.io/agent/internal/bed"
	"liqo.io/agent/internal/crowd"
)

const (
	crowdSize   = 1000
	watchTime   = 30 * time.Second
	liqoService = "_liqo._tcp.local."
)

// addCrowd adds the host of a crowd.
func addCrowd(b *bed.Bed) *bed.Host { return b.AddHost("crowd", "10.77.15.1/16") }

// newCrowd starts a crowd on a host.
func (r *scenarioRun) newCrowd(host *bed.Host, opts crowd.Options) *crowd.Crowd {
	opts.First, opts.Service = netip.MustParseAddr("10.77.16.1"), liqoService
	if opts.Port == 0 {
		opts.Port = 6447
	}
	c, err := crowd.New(host, opts)
	if err != nil {
		r.Fatalf("crowd: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	r.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			r.Errorf("crowd: %v", err)
		}
	})
	return c
}

// scanned is what a scan of a crowd gave.
type scanned struct {
	found   []time.Duration // since the first query, in order
	lost    int             // living ones reported lost
	cpu     time.Duration
	peak    int64
	dropped uint64
	answers int64
	asked   int64
	known   int64
}

// scan runs `scan --watch -o json` for watchTime beside a crowd, or beside
// nobody when c is nil.
func (r *scenarioRun) scan(b *bed.Bed, x *box, c *crowd.Crowd) scanned {
	var before int64
	if c != nil {
		before = c.Answers()
	}
	capture := b.LAN().Capture()
	at := time.Now()
	p := x.host.Start(bed.Cmd{Name: "scan", Args: []string{x.bin, "scan", "--watch", "--stats", "-o", "json"}})
	from := netip.MustParseAddr("10.77.0.1")
	query := r.packetFrom(capture, from, at, "query", isQuery)
	ctx, cancel := context.WithDeadline(r.Context(), query.Add(watchTime))
	defer cancel()
	<-ctx.Done()
	used, err := usageOf(p.PID())
	if err != nil {
		r.Fatalf("scan: %v", err)
	}
	if err := p.Stop(); err != nil {
		r.Fatalf("scan: %v", err)
	}
	s := scanned{cpu: used.cpu, peak: used.peakRSS}
	seen := make(map[string]bool)
	lines := bufio.NewScanner(strings.NewReader(p.Log()))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if !bytes.HasPrefix(lines.Bytes(), []byte("{")) {
			continue
		}
		var ev struct {
			Event, Instance string
			At              time.Time
			SocketDrops     uint64
		}
		if err := json.Unmarshal(lines.Bytes(), &ev); err != nil {
			r.Fatalf("scan: %v", err)
		}
		switch ev.Event {
		case "found":
			if !seen[ev.Instance] {
				seen[ev.Instance] = true
				s.found = append(s.found, ev.At.Sub(query))
			}
		case "lost":
			s.lost++
		case "end":
			s.dropped = ev.SocketDrops
		}
	}
	slices.Sort(s.found)
	if c != nil {
		s.answers = c.Answers() - before
		s.asked, s.known = c.Queries()
	}
	return s
}

func measureCrowd(r *scenarioRun)      { r.crowdTable(0, false) }
func measureLossyCrowd(r *scenarioRun) { r.crowdTable(10, false) }
func measureHastyCrowd(r *scenarioRun) { r.crowdTable(10, true) }

func (r *scenarioRun) crowdTable(loss int, hasty bool) {
	b := bed.New(r)
	x := r.box(b, "a", "10.77.0.1/16")
	alone := r.scan(b, x, nil)
	c := r.newCrowd(addCrowd(b), crowd.Options{Size: crowdSize, LossPercent: loss, Hasty: hasty})
	var all, most spread
	var cpu spread
	var memory []int64
	var answers []int64
	worst := scanned{}
	const rounds = 5
	for range rounds {
		s := r.scan(b, x, c)
		if len(s.found) == crowdSize {
			all = append(all, s.found[crowdSize-1])
		}
		if len(s.found) >= crowdSize*95/100 {
			most = append(most, s.found[crowdSize*95/100-1])
		}
		cpu = append(cpu, s.cpu)
		memory = append(memory, s.peak-alone.peak)
		answers = append(answers, s.answers)
		worst.lost += s.lost
		worst.dropped += s.dropped
	}
	slices.Sort(memory)
	slices.Sort(answers)
	name := fmt.Sprintf("%d responders", crowdSize)
	want := "at most 150 ms"
	if loss > 0 {
		name += fmt.Sprintf(", %d %% of answers lost", loss)
		want = "at most 7.5 s"
		how := "waiting 400 to 500 ms after a truncated query (7.2): with the second query after 1 s (5.2), 1.4 s is the floor"
		if hasty {
			name += ", hasty"
			how = "answering truncated queries after 20 to 120 ms too"
		}
		r.add(name+": 95 % found", "at most 1.3 s", most.String(), "since the first query; responders "+how)
	}
	r.add(name+": all found", want, fmt.Sprintf("%s in %d of %d runs", all, len(all), rounds), "scan --watch -o json, since the first query")
	r.add(name+": answers caused in 30 s", "at most 1,100", fmt.Sprint(answers[len(answers)/2]), "counted at the responders")
	r.add(name+": living ones reported lost", "0", fmt.Sprint(worst.lost), fmt.Sprintf("%d runs of 30 s", rounds))
	if loss == 0 {
		r.add(name+": packets dropped at the socket", "0", fmt.Sprint(worst.dropped), "SO_RXQ_OVFL")
		r.add(name+": CPU", "at most 150 ms more than alone", fmt.Sprintf("%s, alone %s", cpu, short(alone.cpu)), "30 s of scan, whole process, 10 ms ticks")
		r.add(name+": memory", "at most 16 MB more than alone", mib(memory[len(memory)/2]), "peak RSS")
	}
	if !hasty {
		r.avahiCrowd(b, c, name)
	}
}

// avahiCrowd lets avahi look for the same crowd.
func (r *scenarioRun) avahiCrowd(b *bed.Bed, c *crowd.Crowd, name string) {
	before := c.Answers()
	h := b.AddHost("avahi", "10.77.0.2/16")
	h.StartAvahi(r.Context())
	p := h.Start(bed.Cmd{Name: "avahi-browse", Args: []string{"avahi-browse", "--parsable", "--no-db-lookup", "--resolve", "_liqo._tcp"}})
	began := time.Now()
	count := func() int {
		resolved := make(map[string]bool)
		for line := range strings.Lines(p.Log()) {
			if f := strings.Split(line, ";"); f[0] == "=" && len(f) > 3 {
				resolved[f[3]] = true
			}
		}
		return len(resolved)
	}
	ctx, cancel := context.WithDeadline(r.Context(), began.Add(watchTime))
	defer cancel()
	found := "never"
	if bed.Poll(ctx, func() error {
		if n := count(); n < crowdSize {
			return fmt.Errorf("%d found", n)
		}
		return nil
	}) == nil {
		found = short(time.Since(began))
	}
	<-ctx.Done()
	r.add(name+": avahi, all found", "", fmt.Sprintf("%s (%d)", found, count()), fmt.Sprintf("avahi-browse -r, Debian defaults; caused %d answers in 30 s", c.Answers()-before))
}

// measureNeighbours has an agent meet a thousand boxes that do have endpoints.
func measureNeighbours(r *scenarioRun) {
	m, began, done := climbNeighbours(r, crowdSize)
	r.add(fmt.Sprintf("%d neighbours verified and in the API server", crowdSize), "at most 20 s", short(done.Sub(began)),
		"from the agent's start; API server, etcd and 1,000 TLS endpoints on the same 2 cores")
	atOnce, err := usageOf(m.process.PID())
	if err != nil {
		r.Fatalf("%v", err)
	}
	// Let the start's work end, as in the other scenarios.
	r.pause(90 * time.Second)
	used, err := usageOf(m.process.PID())
	if err != nil {
		r.Fatalf("%v", err)
	}
	r.add(fmt.Sprintf("memory with %d neighbours", crowdSize), "at most 34 MB, 62 MB RSS", used.memory(),
		fmt.Sprintf("90 s later; when all were verified %s; peak %s RSS", atOnce.memory(), mb(used.peakRSS)))
}

func connected(x *box) error {
	st, err := x.status()
	if err == nil && !st.Kubernetes.Connected {
		err = fmt.Errorf("not connected: %s", st.Kubernetes.LastError)
	}
	return err
}

// measureIdle watches an agent among 100 neighbours while nothing happens.
func measureIdle(r *scenarioRun) {
	const size, window = 100, 3 * time.Minute
	b := bed.New(r)
	x := r.box(b, "a", "10.77.0.1/16")
	x.kube = b.StartKubes(r.Context(), x.host)[0]
	r.newCrowd(addCrowd(b), crowd.Options{Size: size, Endpoints: true})
	x.start()
	x.when(120*time.Second, "all neighbours", func(all map[string]foreign) bool { return len(all) == size })
	// Let the start's work end: a first round of checks and the query backoff.
	r.pause(75 * time.Second)
	look := func() (usage, control.Status) {
		st := x.mustStatus()
		used, err := usageOf(x.agent.PID())
		if err != nil {
			r.Fatalf("%v", err)
		}
		return used, st
	}
	u0, s0 := look()
	r.pause(window)
	u1, s1 := look()
	how := fmt.Sprintf("%d neighbours with endpoints, default configuration, %v", size, window)
	r.add("idle: API writes", "0 a minute", fmt.Sprint(s1.Kubernetes.Writes-s0.Kubernetes.Writes), how)
	r.add("idle: SQLite transactions", "0 a minute", fmt.Sprint(s1.State.Transactions-s0.State.Transactions), how)
	r.add("idle: CPU", "at most 0.2 % of one core", fmt.Sprintf("%.2f %%", 100*float64(u1.cpu-u0.cpu)/float64(window)), how+"; with a check of each every 30 s")
	r.add("idle: memory", "at most 18 MB, 45 MB RSS", u1.memory(), how)
}

// pause lets time pass in which nothing is to happen: it is what is measured.
func (r *scenarioRun) pause(d time.Duration) {
	select {
	case <-r.Context().Done():
		r.Fatalf("interrupted")
	case <-time.After(d):
	}
}
