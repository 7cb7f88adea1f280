//go:build linux

package main

import (
	"database/sql"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	_ "modernc.org/sqlite" // the driver "sqlite"

	"liqo.io/agent/agent/config"
	"liqo.io/agent/agent/statedir"
	"liqo.io/agent/internal/bed"
	"liqo.io/agent/peer"
)

func measureBinary(r *scenarioRun) {
	info, err := os.Stat(bed.Binary(r, "liqo-agent"))
	if err != nil {
		r.Fatalf("%v", err)
	}
	r.add("stripped static binary", "at most 36 MB", mb(info.Size()), "linux, this machine's architecture")
}

// measureStart measures an agent's start with an existing state file.
func measureStart(r *scenarioRun) {
	b := bed.New(r)
	x := r.box(b, "a", "10.77.0.1/24")
	capture := b.LAN().Capture()
	from := netip.MustParseAddr("10.77.0.1")
	// measure starts the agent, and returns when it sent its first query and its first probe.
	measure := func(rounds int) (query, probe spread) {
		for range rounds {
			at := x.start()
			first := r.packetFrom(capture, from, at, "probe", isProbe)
			asked := r.packetFrom(capture, from, at, "query", isQuery)
			announced := r.packetFrom(capture, from, first, "announcement", announces)
			r.packetFrom(capture, from, announced.Add(time.Millisecond), "second announcement", announces)
			x.stop()
			query, probe = append(query, asked.Sub(at)), append(probe, first.Sub(at))
		}
		return query, probe
	}
	measure(1) // makes the state file
	query, probe := measure(25)
	const how = "exec to packet; includes the random 0..250 ms of RFC 6762 8.1"
	r.add("agent start to first probe", "at most 150 ms", probe.String(), how)
	r.add("agent start to first query", "", query.String(), "exec to packet; includes the random 20..120 ms of RFC 6762 5.2")
	const many = 100_000
	r.remember(x, many)
	query, probe = measure(15)
	r.add("the same with 100,000 remembered peers: first probe; first query", "at most 300 ms", probe.String()+"; "+query.String(), how)
	// Most of them are read after the start.
	at := x.start()
	r.await(time.Minute, "the peers that are kept in memory", func() error {
		if st := x.mustStatus(); st.Peers[string(peer.PhaseLost)] < 1000 {
			return fmt.Errorf("only %v", st.Peers)
		}
		return nil
	})
	r.add("those of them that are kept in memory (5,000): known", "", time.Since(at).Round(time.Millisecond).String(), "exec to `status`")
	x.stop()
}

// remember adds lost peers to the database of a box that is stopped.
func (r *scenarioRun) remember(x *box, many int) {
	err := x.host.Do(func() error {
		db, err := sql.Open("sqlite", filepath.Join(config.Default().State.Dir, statedir.Database))
		if err != nil {
			return err
		}
		defer db.Close()
		for _, insert := range []string{
			"peers SELECT id, 'box-' || i, 'liqo', randomblob(32), 'LAN', 'https://10.1.2.3:6447', '1', 'eth0', 4500000, 1700000000000, 1700000000000 + i",
			"endpoints SELECT id, '10.1.2.3', '', 6447, NULL, 'LAN', 'eth0', 1700000000000, NULL",
		} {
			if _, err := db.Exec(`WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?),
				ids(i, id) AS (SELECT i, printf('%08d-1111-4111-8111-111111111111', i) FROM n) INSERT INTO `+insert+` FROM ids`, many); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		r.Fatalf("remember %d peers: %v", many, err)
	}
}

// measureMeeting measures an agent that comes, moves and goes, as others see
// it.
func measureMeeting(r *scenarioRun) {
	b := bed.New(r)
	x, y, z := r.box(b, "a", "10.77.0.1/24"), r.box(b, "b", "10.77.0.2/24"), r.box(b, "c", "10.77.0.3/24")
	for i, k := range b.StartKubes(r.Context(), x.host, y.host) {
		[]*box{x, y}[i].kube = k
	}
	capture := b.LAN().Capture()
	x.start()
	y.start()
	for _, o := range []*box{x, y} {
		o.when(60*time.Second, "its neighbour", func(all map[string]foreign) bool { return len(all) == 1 })
	}
	from, moved := netip.MustParseAddr("10.77.0.3"), netip.MustParseAddr("10.77.0.33")
	const rounds = 12
	var known, lost, followed spread
	for range rounds {
		at := z.start()
		announced := r.packetFrom(capture, from, at, "announcement", announces)
		id := z.mustStatus().Identity.ClusterID
		isKnown := func(all map[string]foreign) bool { return all[id].Status.Fingerprint != "" }
		last := make(chan time.Time, 1)
		go func() { last <- y.when(20*time.Second, "the new agent", isKnown) }()
		a := x.when(20*time.Second, "the new agent", isKnown)
		if o := <-last; o.After(a) {
			a = o
		}
		known = append(known, a.Sub(announced))

		at = time.Now()
		z.host.Link("eth0").SetAddress(moved.String() + "/24")
		told := r.packetFrom(capture, moved, at, "announcement of the new address", announcesAddress(moved))
		there := x.when(20*time.Second, "the new address", func(all map[string]foreign) bool {
			return all[id].Spec.AuthURL == "https://"+moved.String()+":6447"
		})
		followed = append(followed, there.Sub(told))

		at = time.Now()
		go z.stop()
		left := r.packetFrom(capture, moved, at, "goodbye", leaves)
		gone := x.when(20*time.Second, "the goodbye", func(all map[string]foreign) bool { _, ok := all[id]; return !ok })
		lost = append(lost, gone.Sub(left))
		<-z.agent.Done()
		z.host.Link("eth0").SetAddress(from.String() + "/24")
	}
	r.add("first announcement to ForeignCluster on all others", "at most 300 ms", known.String(), "two others, real API servers, 2 cores for all")
	r.add("address change announced to ForeignCluster updated", "at most 300 ms", followed.String(), "first packet with the new address to API server")
	r.add("goodbye to ForeignCluster deleted", "at most 1.2 s", lost.String(), "one second of it is RFC 6762 10.1")
}
