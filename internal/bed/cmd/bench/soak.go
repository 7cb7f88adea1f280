//go:build linux

package main

import (
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	"liqo.io/agent/agent/config"
	"liqo.io/agent/agent/statedir"
	"liqo.io/agent/internal/bed"
)

const (
	soakGroups = 10 // of peers that come and go together
	soakPeers  = 10 // in each
	soakPods   = 10
	soakSeed   = 1
	soakWarm   = 3 // rounds whose figures are not fitted: memory that they take is used again later
)

// soakLost is how long a peer may be silent before it is given up. The intervals of a soak are the defaults divided by soakFaster: with 15,
// 96 minutes have as many checks, losses and returns as a day. What cannot be configured is as always: offers are renewed after
// hours, and history is looked through once a day.
func soakLost() time.Duration {
	return config.Default().Discovery.LostAfter / soakFaster
}

func soakConfig() string {
	return fmt.Sprintf("[discovery]\ncheck_interval = %q\nlost_after = %q\n", config.Default().Discovery.CheckInterval/soakFaster, soakLost())
}

// soak is a consumer with a hundred simulated providers that come and go, and pods that move between it and a real one.
type soak struct {
	*pair
	crowd  *bed.Host
	groups [soakGroups]*bed.Process
	random *rand.Rand
	began  time.Time
	rounds int
	taken  [2][]soakSample // of the consumer and the provider
}

// soakSample is what an agent used at the end of a round.
type soakSample struct {
	at                                        time.Duration
	heap, anon, files, goroutines, rows, size float64
}

// measureSoak has peers come and go, and pods move, for as long as it is told to, and looks at what has grown, at what is written
// when nothing happens any more, and at what is left of history that is too old.
func measureSoak(r *scenarioRun) {
	s := &soak{pair: r.newClusters(func(k *bed.Kube) error { return k.StartKwok(r.Context()) }), random: rand.New(rand.NewPCG(soakSeed, 0))}
	for _, o := range []*box{s.x, s.y} {
		o.cli("rbac", "--apply") // an account of its own, of which the API server notes what it writes
	}
	s.startAgents(soakConfig()+"autojoin_untrusted = true\n", soakConfig())
	s.share()
	s.deploy()
	s.crowd = addCrowd(s.bed)
	for i := range s.groups {
		s.comes(i)
	}
	s.settled()
	for s.began = time.Now(); time.Since(s.began) < soakFor; {
		s.round()
		s.sample()
	}
	s.trends()
	s.quiet()
	s.aged()
}

// deploy makes the pods that move.
func (s *soak) deploy() {
	s.x.request("POST", "/apis/apps/v1/namespaces/"+shop+"/deployments", fmt.Sprintf(`{"metadata": {"name": "moves"}, "spec": {
		"replicas": %d, "revisionHistoryLimit": 1, "selector": {"matchLabels": {"app": "moves"}},
		"template": {"metadata": {"labels": {"app": "moves"}}, "spec": {"nodeSelector": {"kubernetes.io/hostname": %q}, %s}}}}`, soakPods, s.node(), podSpec))
}

// moved moves the pods to the provider or home, and waits until they are there and nowhere else.
func (s *soak) moved(away bool) {
	node, there := s.x.host.Name, 0
	if away {
		node, there = s.node(), soakPods
	}
	s.x.request("PATCH", "/apis/apps/v1/namespaces/"+shop+"/deployments/moves", `{"spec": {"template": {"spec": {"nodeSelector": {"kubernetes.io/hostname": "`+node+`"}}}}}`)
	s.mine.await(s.scenarioRun, 5*time.Minute, "the pods have moved", soakPods, named("moves", isThere))
	s.theirs.await(s.scenarioRun, 5*time.Minute, "the pods are where they belong", there, func(p sighting) bool { return isReady(p) })
	s.theirs.await(s.scenarioRun, 5*time.Minute, "no others are at the provider", there, isThere)
}

// comes starts a group of providers, which have the keys that they had before.
func (s *soak) comes(i int) {
	c := neighbours(s.scenarioRun, soakPeers)
	c.Args = append(c.Args, "-skip", fmt.Sprint(i*soakPeers), "-first", fmt.Sprintf("10.77.%d.1", 16+i), "-keys", "/var/lib/neighbours")
	s.groups[i] = s.crowd.Start(c)
}

// settled waits until the consumer has a node for each provider that there is.
func (s *soak) settled() {
	const all = 1 + soakGroups*soakPeers
	s.await(10*time.Minute, "all are joined", func() error {
		if st := s.x.mustStatus(); st.Peering.Joined != all {
			return fmt.Errorf("%d of %d are", st.Peering.Joined, all)
		}
		return s.x.virtualNodes(all)
	})
}

// round has three groups lose their power, one of them for a short time and two for longer than the consumer waits for them, and
// moves the pods meanwhile.
func (s *soak) round() {
	s.rounds++
	away := s.random.Perm(soakGroups)[:3]
	for _, i := range away {
		if err := s.groups[i].Kill(); err != nil {
			s.Fatalf("%v", err)
		}
	}
	left := time.Now()
	s.moved(s.rounds%2 == 0)
	s.pause(soakLost()/4 - time.Since(left))
	s.comes(away[0])
	s.pause(soakLost() - time.Since(left))
	s.await(10*time.Minute, "the nodes of those that are away are gone", func() error {
		return s.x.virtualNodes(1 + (soakGroups-2)*soakPeers)
	})
	for _, i := range away[1:] {
		s.comes(i)
	}
	s.settled()
}

// sample notes what the agents use.
func (s *soak) sample() {
	for i, o := range []*box{s.x, s.y} {
		used, err := usageOf(o.agent.PID())
		if err != nil {
			s.Fatalf("%v", err)
		}
		files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", o.agent.PID()))
		if err != nil {
			s.Fatalf("%v", err)
		}
		rows, size, err := o.database("SELECT count(*) FROM events")
		if err != nil {
			s.Fatalf("%v", err)
		}
		n := soakSample{
			at: time.Since(s.began), anon: float64(used.anon), files: float64(len(files)), rows: float64(rows), size: float64(size),
			heap: o.profile("heap?gc=1&debug=1", "# HeapAlloc = "), goroutines: o.profile("goroutine?debug=1", "goroutine profile: total "),
		}
		s.taken[i] = append(s.taken[i], n)
		s.Logf("  %s round %d of %s: heap %s, anonymous %s, %.0f files, %.0f goroutines, %.0f rows of history, database %s",
			n.at.Round(time.Second), s.rounds, o.host.Name, mb(int64(n.heap)), mb(int64(n.anon)), n.files, n.goroutines, n.rows, mb(int64(n.size)))
	}
}

// profile reads a number from a profile of the agent's.
func (x *box) profile(path, before string) float64 {
	text := string(x.fetch("/debug/pprof/" + path))
	_, after, _ := strings.Cut(text, before)
	var n float64
	if _, err := fmt.Sscan(after, &n); err != nil {
		x.r.Fatalf("%s: %s: %v: %.200s", x.host.Name, path, err, text)
	}
	return n
}

// database asks the agent's database for a number, and for its size on disk with its log.
func (x *box) database(query string, args ...any) (n, size int64, err error) {
	err = x.host.Do(func() error {
		path := filepath.Join(config.Default().State.Dir, statedir.Database)
		db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(10000)")
		if err != nil {
			return err
		}
		defer db.Close()
		for _, name := range []string{path, path + "-wal"} {
			switch info, err := os.Stat(name); {
			case err == nil:
				size += info.Size()
			case !errors.Is(err, fs.ErrNotExist):
				return err
			}
		}
		return db.QueryRow(query, args...).Scan(&n)
	})
	return n, size, err
}

// trends adds what has become of each figure.
func (s *soak) trends() {
	how := fmt.Sprintf("%d rounds in %s, which stand for %s", s.rounds, time.Since(s.began).Round(time.Second), (soakFaster * time.Since(s.began)).Round(time.Minute))
	for i, side := range []string{"consumer", "provider"} {
		warm := min(soakWarm, len(s.taken[i])-1)
		// SQLite takes two megabytes for pages, most of them as the history grows, for half a day or more. What would go on growing
		// does so in the last third, too.
		full := max(warm, len(s.taken[i])*2/3)
		for _, f := range []struct {
			name  string
			show  func(float64) string
			of    func(soakSample) float64
			from  int  // the first round that is fitted
			grows bool // as it may
		}{
			{"heap after garbage collection", inMB, func(n soakSample) float64 { return n.heap }, warm, false},
			{"anonymous memory", inMB, func(n soakSample) float64 { return n.anon }, full, false},
			{"open files", count, func(n soakSample) float64 { return n.files }, warm, false},
			{"goroutines", count, func(n soakSample) float64 { return n.goroutines }, warm, false},
			{"rows of history", count, func(n soakSample) float64 { return n.rows }, warm, true},
			{"database on disk", inMB, func(n soakSample) float64 { return n.size }, warm, true},
		} {
			var at, values []float64
			for _, n := range s.taken[i][f.from:] {
				at, values = append(at, (soakFaster*n.at).Hours()/24), append(values, f.of(n))
			}
			slope, failing := trend(at, values)
			wanted := ""
			if !f.grows {
				wanted = "flat"
			}
			last := values[len(values)-1]
			grows := fmt.Sprintf("%s at the end; too few rounds for a slope", f.show(last))
			if !math.IsInf(failing, 0) {
				grows = fmt.Sprintf("%s at the end; %s ± %s a day", f.show(last), f.show(slope), f.show(failing))
			}
			s.add("soak, "+side+": "+f.name, wanted, grows, how+fmt.Sprintf("; least squares without the first %d rounds, and their standard error", f.from))
			// What is certain, and more than a tenth a day. Figures of few rounds say nothing.
			if !f.grows && len(values) > 5 && slope > 3*failing && slope > last/10 {
				s.Errorf("%s of the %s: grows by %s a day", f.name, side, f.show(slope))
			}
		}
	}
}

func inMB(bytes float64) string { return fmt.Sprintf("%.2f MB", bytes/1e6) }
func count(n float64) string    { return fmt.Sprintf("%.1f", n) }

// trend fits a line by least squares, and returns its slope and the standard error of that, infinite for fewer than three points.
func trend(x, y []float64) (slope, failing float64) {
	n := float64(len(x))
	var sx, sy float64
	for i := range x {
		sx, sy = sx+x[i], sy+y[i]
	}
	var sxx, sxy, syy float64
	for i := range x {
		dx, dy := x[i]-sx/n, y[i]-sy/n
		sxx, sxy, syy = sxx+dx*dx, sxy+dx*dy, syy+dy*dy
	}
	if n < 3 || sxx == 0 {
		return 0, math.Inf(1)
	}
	slope = sxy / sxx
	return slope, math.Sqrt(max(0, syy-slope*sxy) / (n - 2) / sxx)
}

// quiet looks at what is written while nothing happens.
func (s *soak) quiet() {
	// With the default intervals these would be an hour and half an hour; ten minutes of each are enough.
	window := min(time.Hour/soakFaster, 10*time.Minute)
	s.pause(min(2*soakLost(), 10*time.Minute))
	from := time.Now()
	stored := func() (n [2]uint64) {
		for i, o := range []*box{s.x, s.y} {
			n[i] = o.mustStatus().State.Transactions
		}
		return n
	}
	before := stored()
	s.pause(window)
	after := stored()
	for i, o := range []*box{s.x, s.y} {
		events, err := o.kube.Audit()
		if err != nil {
			s.Fatalf("%v", err)
		}
		var writes []string
		for _, e := range events {
			if e.Writes() && e.RequestReceivedTimestamp.After(from) {
				writes = append(writes, e.Verb+" "+e.RequestURI)
			}
		}
		side := []string{"consumer", "provider"}[i]
		stored := after[i] - before[i]
		s.add("soak, "+side+": API writes and transactions while nothing happens", "0 and 0", fmt.Sprintf("%d and %d", len(writes), stored),
			fmt.Sprintf("%s, which stand for %s; by the audit log, without the leases of nodes", window, soakFaster*window))
		if len(writes) > 0 || stored > 0 {
			s.Errorf("%s wrote while nothing happened: %d transactions, %v", o.host.Name, stored, writes)
		}
	}
}

// aged makes the history of the consumer older than it is kept for, and looks at what is left of it, and at whether what comes then
// fits where it was.
func (s *soak) aged() {
	s.x.stop()
	old, _, err := s.x.database("UPDATE events SET at = at - ? RETURNING (SELECT count(*) FROM events)", (config.Default().State.History + 24*time.Hour).Milliseconds())
	if err != nil {
		s.Fatalf("%v", err)
	}
	s.x.start()
	rows, since := int64(0), time.Now().Add(-config.Default().State.History).UnixMilli()
	s.await(5*time.Minute, "old history is dropped", func() (err error) {
		if rows, _, err = s.x.database("SELECT count(*) FROM events WHERE at < ?", since); err == nil && rows > 0 {
			err = fmt.Errorf("%d rows are left", rows)
		}
		return err
	})
	s.settled()
	s.round()
	size := int64(s.taken[0][len(s.taken[0])-1].size) // with its log, as this one
	now, grown, err := s.x.database("SELECT count(*) FROM events")
	if err != nil {
		s.Fatalf("%v", err)
	}
	s.add("soak, consumer: history when all of it is too old", "no row is left", fmt.Sprintf("0 of %d rows, %d after another round", old, now), "a day older than it is kept for, dropped at a start")
	s.add("soak, consumer: database then", "not more than before", mb(grown)+" after "+mb(size), "after another round")
	if grown > size+size/10 {
		s.Errorf("the database has grown to %s, though it had %s for what was dropped", mb(grown), mb(size))
	}
}
