//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"syscall"
	"time"

	"liqo.io/agent/internal/bed"
	"liqo.io/agent/internal/traffic"
)

// measureNetworkMany measures a node that is connected with ten others, with ten streams to each, and what it is for nine
// of them that the tenth takes nothing any more.
func measureNetworkMany(r *scenarioRun) {
	const peers, streams, rounds, during = 10, 10, 6, 2 * time.Second
	b := bed.New(r)
	ends := []*end{r.end(b, "a", "10.77.0.1")}
	for i := range peers {
		ends = append(ends, r.end(b, fmt.Sprintf("b%d", i), fmt.Sprintf("10.77.1.%d", i+1)))
	}
	pods, before := r.connect(ends...)
	var all, well []string
	for i, pod := range pods {
		all = append(all, netip.AddrPortFrom(pod, 9999).String())
		if i < peers-1 {
			well = append(well, all[i])
		}
	}
	a, stuck := ends[0], ends[peers]
	var most usage // under load
	measure := func(targets []string, after func()) (bytes float64) {
		sender := a.host.Start(bed.Cmd{Name: "sender", Args: a.enter(append([]string{r.netend(), "stream", "-settle", "0", "-for", during.String(), "-number", fmt.Sprint(streams)}, targets...)...)})
		if err := sender.WaitLog(r.Context(), "writing"); err != nil {
			r.Fatalf("%v", err)
		}
		after()
		r.pause(time.Second) // what is under way fills what there is for it
		if u := a.used(); u.anon > most.anon {
			most = u
		}
		if err := sender.Signal(syscall.SIGUSR1); err != nil {
			r.Fatalf("%v", err)
		}
		if err := sender.Wait(r.Context()); err != nil {
			r.Fatalf("%v\n%s", err, sender.Log())
		}
		var got traffic.Result
		if err := json.Unmarshal([]byte(strings.TrimPrefix(sender.Log(), "writing\n")), &got); err != nil {
			r.Fatalf("%v: %s", err, sender.Log())
		}
		for _, to := range well {
			bytes += float64(got.Bytes[to])
		}
		return bytes / got.Seconds
	}
	signal := func(s syscall.Signal) {
		if err := stuck.engine.Signal(s); err != nil {
			r.Fatalf("%v", err)
		}
	}
	var ratio, rate numbers
	for round := range rounds {
		var with, without float64
		for _, isStuck := range []bool{round%2 == 0, round%2 != 0} {
			if !isStuck {
				without = measure(well, func() {})
				continue
			}
			with = measure(all, func() { signal(syscall.SIGSTOP) }) // for less than it takes until the path counts as silent
			signal(syscall.SIGCONT)
		}
		ratio, rate = append(ratio, with/without), append(rate, with*8/1e9)
	}
	how := fmt.Sprintf("%d rounds, each of %v, %d streams to each of %d peers; %s", rounds, during, streams, peers, here())
	r.add("network: 100 streams, one of ten peers takes nothing: throughput of the others", "at least 0.9 of without it", ratio.show("%.2f"), rate.show("%.2f")+" Gbit/s; "+how)
	r.add("network: memory with ten peers under load", "at most 64 MB more", mb(most.anon-before[0].anon)+" more", "anonymous, the most seen; in all "+most.memory()+"; "+how)
}
