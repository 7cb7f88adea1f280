//go:build linux

package main

import (
	"net/netip"
	"os"
	"time"

	"liqo.io/agent/internal/bed"
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
	const rounds = 25
	var probe spread
	for i := range rounds + 1 {
		at := x.start()
		first := r.packetFrom(capture, from, at, "probe", isProbe)
		announced := r.packetFrom(capture, from, first, "announcement", announces)
		r.packetFrom(capture, from, announced.Add(time.Millisecond), "second announcement", announces)
		x.stop()
		if i > 0 { // the first one makes the state file
			probe = append(probe, first.Sub(at))
		}
	}
	r.add("agent start to first probe", "at most 150 ms", probe.String(),
		"exec to packet; includes the random 0..250 ms of RFC 6762 8.1")
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
