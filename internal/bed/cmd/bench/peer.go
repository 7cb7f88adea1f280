//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"syscall"
	"time"

	"liqo.io/agent/api"
	"liqo.io/agent/internal/bed"
)

// cli runs a command of the agent's on the box.
func (x *box) cli(args ...string) {
	if out, err := x.host.Run(x.r.Context(), append([]string{x.bin}, args...)...); err != nil {
		x.r.Fatalf("%s: liqo-agent %v: %v\n%s", x.host.Name, args, err, out)
	}
}

// peering is one of a box's ForeignClusters and what it was offered.
func (x *box) peering(id string) (fc api.ForeignCluster, offer api.Advertisement) {
	for path, into := range map[string]any{
		fcPath + "/" + id: &fc,
		"/apis/sharing.liqo.io/v1alpha1/advertisements/" + id: &offer,
	} {
		body, err := x.kube.Request(x.r.Context(), "GET", path, "", nil)
		if err != nil {
			continue // not there
		}
		if err := json.Unmarshal(body, into); err != nil {
			x.r.Fatalf("%s: %v", path, err)
		}
	}
	return fc, offer
}

// since polls a box's API server as fast as it answers until a peering is as
// wanted, and returns when that was first seen.
func (x *box) since(what, id string, want func(api.ForeignCluster, api.Advertisement) bool) time.Time {
	deadline := time.Now().Add(60 * time.Second)
	for time.Now().Before(deadline) {
		if want(x.peering(id)) {
			return time.Now()
		}
		time.Sleep(2 * time.Millisecond)
	}
	fc, offer := x.peering(id)
	x.r.Fatalf("%s: %s: not within a minute: %+v %+v", x.host.Name, what, fc.Status, offer)
	return time.Time{}
}

func accepted(fc api.ForeignCluster, offer api.Advertisement) bool {
	return fc.Status.Outgoing.Joined && offer.Status.AdvertisementStatus == api.AdvertisementAccepted
}

func parted(fc api.ForeignCluster, offer api.Advertisement) bool {
	return !fc.Status.Outgoing.Joined && offer.Name == ""
}

// measurePeering measures two boxes that peer, part, come back and move.
func measurePeering(r *scenarioRun) {
	b := bed.New(r)
	x, y := r.box(b, "a", "10.77.0.1/24"), r.box(b, "b", "10.77.0.2/24")
	for i, k := range b.StartKubes(r.Context(), x.host, y.host) {
		[]*box{x, y}[i].kube = k
	}
	capture := b.LAN().Capture()
	x.host.WriteFile("/etc/liqo-agent/liqo-agent.toml", "[discovery]\ncheck_interval = \"1s\"\nlost_after = \"1s\"\n")
	x.start()
	y.start()
	for _, o := range []*box{x, y} {
		o.when(60*time.Second, "its neighbour", func(all map[string]foreign) bool { return len(all) == 1 })
	}
	xID, yID := x.mustStatus().Identity.ClusterID, y.mustStatus().Identity.ClusterID
	y.cli("peers", "accept", xID, "--yes")
	x.cli("peers", "trust", yID, "--yes")
	const rounds = 15
	how := "two boxes with real API servers, 2 cores for all"
	var connect spread
	for range rounds {
		at := time.Now()
		x.cli("peers", "connect", yID, "--no-wait")
		connect = append(connect, x.since("the offer", yID, accepted).Sub(at))
		x.cli("peers", "disconnect", yID)
		x.since("parting", yID, parted)
	}
	r.add("connect to Advertisement accepted, both trusted", "median at most 500 ms", connect.String(), "start of the command to API server; "+how)

	x.cli("peers", "connect", yID)
	from := netip.MustParseAddr("10.77.0.2")
	var rebooted, plugged spread
	for range rounds {
		y.stop()
		x.since("the loss", yID, func(fc api.ForeignCluster, offer api.Advertisement) bool { return fc.Name == "" && offer.Name == "" })
		at := y.start()
		announced := r.packetFrom(capture, from, at, "announcement", announces)
		rebooted = append(rebooted, x.since("the return", yID, accepted).Sub(announced))

		link := y.host.Link("eth0")
		link.Unplug()
		x.since("the loss", yID, func(fc api.ForeignCluster, offer api.Advertisement) bool { return fc.Name == "" && offer.Name == "" })
		at = time.Now()
		link.Plug()
		announced = r.packetFrom(capture, from, at, "announcement", announces)
		plugged = append(plugged, x.since("the return", yID, accepted).Sub(announced))
	}
	r.add("return of a remembered peer whose agent starts: first announcement to joined", "at most 700 ms", rebooted.String(), "everything was torn down before; "+how)
	r.add("return of a remembered peer that is plugged in: first announcement to joined", "at most 700 ms", plugged.String(), "everything was torn down before; "+how)

	// From here on nobody is to be given up.
	x.host.WriteFile("/etc/liqo-agent/liqo-agent.toml", "")
	if err := x.agent.Signal(syscall.SIGHUP); err != nil {
		r.Fatalf("%v", err)
	}
	var moved spread
	for i := range rounds {
		next := netip.AddrFrom4([4]byte{10, 77, 0, byte(30 + i)})
		// Records are not changed more than ten times in a minute (RFC 6762 section
		// 8.4): the next change would not be announced before the minute is over.
		r.pause(6500 * time.Millisecond)
		at := time.Now()
		y.host.Link("eth0").SetAddress(next.String() + "/24")
		there := x.since("the new address", yID, func(fc api.ForeignCluster, offer api.Advertisement) bool {
			return fc.Spec.AuthURL == "https://"+next.String()+":6447" && accepted(fc, offer)
		})
		moved = append(moved, there.Sub(at))
	}
	r.add("address change of a joined peer to recovered", "at most 1 s", moved.String(), "address set to ForeignCluster with the address that answers; "+how)
}

// measureJoined measures an agent that is joined with a hundred neighbours and
// has nothing to do: first without their capacity, then with a node for each.
func measureJoined(r *scenarioRun) {
	r.joined("joined, sharing.use = false", "[sharing]\nuse = false\n", false)
}

func measureJoinedNodes(r *scenarioRun) { r.joined("joined, a node for each", "", true) }

func (r *scenarioRun) joined(name, settings string, nodes bool) {
	const size, window = 100, 3 * time.Minute
	b := bed.New(r)
	x := r.box(b, "a", "10.77.0.1/16")
	x.kube = b.StartKubes(r.Context(), x.host)[0]
	if nodes {
		// They sign the certificate of the kubelet API, which nodes have to have.
		if err := x.kube.StartControllers(r.Context()); err != nil {
			r.Fatalf("%v", err)
		}
	}
	// Nobody is there to compare a hundred codes.
	x.host.WriteFile("/etc/liqo-agent/liqo-agent.toml", "[discovery]\nautojoin_untrusted = true\n"+settings)
	x.start()
	began := time.Now()
	addCrowd(b).Start(neighbours(r, size))
	x.awaitJoined(120*time.Second, size)
	r.add(name+": 100 neighbours appear and are joined", "", short(time.Since(began)), "simulated boxes with real endpoints, a real API server here")
	writes, memory := "0", "at most 26 MB, 52 MB RSS"
	if nodes {
		r.await(120*time.Second, "all nodes are ready", func() error { return x.virtualNodes(size) })
		r.add(name+": all nodes ready", "", short(time.Since(began)), "from the start of the neighbours")
		writes, memory = "a lease each: 2.4 a minute", ""
	}
	// Let the start's work end.
	r.pause(90 * time.Second)
	look := func() (usage, uint64, uint64) {
		st := x.mustStatus()
		used, err := usageOf(x.agent.PID())
		if err != nil {
			r.Fatalf("%v", err)
		}
		return used, st.Kubernetes.Writes, st.State.Transactions
	}
	u0, w0, t0 := look()
	r.pause(window)
	u1, w1, t1 := look()
	how := fmt.Sprintf("%d joined neighbours with real endpoints, default intervals, %v", size, window)
	r.add(name+": API writes", writes, fmt.Sprint(w1-w0), how)
	r.add(name+": SQLite transactions", "0", fmt.Sprint(t1-t0), how)
	r.add(name+": CPU", "at most 1 % of one core", fmt.Sprintf("%.2f %%", 100*float64(u1.cpu-u0.cpu)/float64(window)), how)
	r.add(name+": memory", memory, u1.memory(), how)
}

// neighbours is a crowd of simulated providers.
func neighbours(r *scenarioRun, size int) bed.Cmd {
	return bed.Cmd{Name: "neighbours", Args: []string{bed.Binary(r, "neighbours"), "-size", fmt.Sprint(size), "-first", "10.77.16.1"}}
}
