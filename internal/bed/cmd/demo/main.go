//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"liqo.io/agent/internal/bed"
)

const (
	// checkInterval replaces the default of 30 s, for which nobody wants to wait in a demo.
	checkInterval = "2s"

	// How long steps may take before the demo fails. On an idle machine they take a fraction of that.
	findDeadline = 20 * time.Second
	moveDeadline = 10 * time.Second
	loseDeadline = 60 * time.Second
	joinDeadline = 30 * time.Second
	byeDeadline  = 10 * time.Second
)

func main() {
	bed.Enter()
	os.Exit(run())
}

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	keep := os.Getenv("DEMO_KEEP") != "" && os.Getenv("DEMO_KEEP") != "0"
	// The bed must outlive the interruption, to be taken down in order.
	err := bed.Script(context.WithoutCancel(ctx), "demo", os.Stdout, func(tb bed.TB) {
		(&demo{tb: tb, ctx: ctx, keep: keep, real: bed.RealRoot()}).run()
	})
	switch {
	case err == nil:
		return 0
	case ctx.Err() != nil:
		fmt.Println("\ndemo: interrupted; everything is cleaned up")
		return 130
	}
	fmt.Println("\ndemo: FAILED; everything is cleaned up")
	return 1
}

// demo is the plot. The two boxes play the same part until one of them moves.
type demo struct {
	tb   bed.TB
	ctx  context.Context
	keep bool
	real bool // pods run in containers
	a, b *box
}

func (d *demo) run() {
	bed.Binary(d.tb, "liqo-agent")
	d.chapter("Two boxes on one LAN, each with a Kubernetes API server of its own")
	lan := bed.New(d.tb)
	d.a = &box{host: lan.AddHost("box-a", "192.0.2.11/24"), tb: d.tb, ctx: d.ctx}
	d.b = &box{host: lan.AddHost("box-b", "192.0.2.12/24"), tb: d.tb, ctx: d.ctx}
	started := time.Now()
	kubes := lan.StartKubes(d.ctx, d.a.host, d.b.host)
	d.a.kube, d.b.kube = kubes[0], kubes[1]
	d.say("box-a is 192.0.2.11, box-b is 192.0.2.12; both API servers are ready after %s", since(started))
	d.b.show("kubectl", "get", "nodes", "-o", "wide")

	d.chapter("An agent starts on each box, without a configuration")
	started = time.Now()
	d.a.startAgent()
	d.b.startAgent()
	d.a.wait(findDeadline, "box-b becomes a ForeignCluster on box-a", d.a.foreign("box-b", ""))
	d.b.wait(findDeadline, "box-a becomes a ForeignCluster on box-b", d.b.foreign("box-a", ""))
	d.say("Both are known on each other as ForeignCluster %s after the agents were started", since(started))
	for _, x := range []*box{d.a, d.b} {
		x.show("liqo-agent", "peers", "list")
		x.show("kubectl", "get", "foreignclusters")
	}

	d.chapter("Somebody at box-a connects to box-b")
	d.say("Nobody trusts a stranger's key: both people compare the code that both boxes show. (Here, they do so by --yes.)")
	d.a.show("liqo-agent", "peers", "connect", "box-b", "--yes", "--no-wait")
	d.b.wait(findDeadline, "box-b is asked", d.b.asked())
	d.b.show("liqo-agent", "peers", "requests")
	d.chapter("... and somebody at box-b accepts")
	d.b.show("liqo-agent", "peers", "accept", "box-a", "--yes")
	d.a.show("liqo-agent", "peers", "connect", "box-b")
	d.a.wait(joinDeadline, "box-a is joined", d.a.joined("box-b", ""))
	d.a.show("kubectl", "get", "foreignclusters,advertisements")
	d.b.show("kubectl", "get", "foreignclusters,peeringrequests")
	offer := d.a.offer()

	d.chapter("box-b gets another address from DHCP")
	started = time.Now()
	d.b.host.Link("eth0").SetAddress("192.0.2.112/24")
	d.a.wait(moveDeadline, "box-a learns box-b's new address", d.a.joined("box-b", "192.0.2.112"))
	d.say("The same peering, at the new address, after %s. Nothing was torn down:", since(started))
	d.a.show("liqo-agent", "peers", "list")
	d.a.show("kubectl", "get", "foreignclusters", "-o", "wide")
	d.same(offer)

	d.chapter("box-b is rebooted")
	if err := d.b.agent.Kill(); err != nil {
		d.tb.Fatalf("%v", err)
	}
	if err := d.b.kube.Kill(); err != nil {
		d.tb.Fatalf("%v", err)
	}
	d.a.wait(loseDeadline, "box-a misses box-b", d.a.misses("box-b"))
	d.say("box-a misses it, and keeps the peering for discovery.lost_after (15 minutes unless told otherwise):")
	d.a.show("liqo-agent", "peers", "list", "--all")
	if err := d.b.kube.Start(d.ctx); err != nil {
		d.tb.Fatalf("%v", err)
	}
	d.b.startAgent()
	started = time.Now()
	d.a.wait(joinDeadline, "box-b is back", d.a.joined("box-b", ""))
	d.say("box-b is back, and joined, %s after its agent was started. Nobody had to do anything, and the offer is the same object.", since(started))
	d.same(offer)
	d.a.show("liqo-agent", "info")
	// The peering is back before box-b has claimed its name on the link anew, and who
	// has not announced himself says no goodbye.
	d.b.wait(findDeadline, "box-b announces itself again", d.b.announced())

	if d.keep {
		d.stay()
		return
	}

	d.quiet(offer)
	d.chapter("Enough of it: box-a disconnects")
	started = time.Now()
	d.a.show("liqo-agent", "peers", "disconnect", "box-b")
	d.b.wait(byeDeadline, "box-b no longer serves box-a", d.b.serves(0))
	d.say("Both boxes are clean after %s:", since(started))
	d.a.show("kubectl", "get", "foreignclusters,advertisements")
	d.b.show("kubectl", "get", "foreignclusters,peeringrequests")

	d.beyond(lan)
	d.chapter("box-b's agent is stopped, and says goodbye")
	started = time.Now()
	if err := d.b.agent.Stop(); err != nil {
		d.tb.Fatalf("%v", err)
	}
	d.a.wait(byeDeadline, "box-b disappears from box-a", d.a.alone())
	d.say("Gone from box-a after %s. What box-a has seen of it:", since(started))
	d.a.wait(byeDeadline, "box-a remembers the goodbye", d.a.remembers("goodbye"))
	d.a.show("liqo-agent", "peers", "history")

	d.share()
	d.operate()
	d.chapter("That is all; cleaning up")
}

// same fails the demo unless the offer at box-a is the object that it was.
func (d *demo) same(offer string) {
	if now := d.a.offer(); now != offer {
		d.tb.Fatalf("the Advertisement at box-a is %q and was %q", now, offer)
	}
}

// stay leaves everything running until the demo is interrupted.
func (d *demo) stay() {
	d.chapter("The boxes stay until you press Ctrl-C")
	sudo := "sudo nsenter --all --target"
	if os.Getenv("SUDO_UID") == "" && !bed.RealRoot() {
		sudo = "nsenter --user --preserve-credentials --mount --uts --net --pid --ipc --target"
	}
	for _, x := range []*box{d.a, d.b} {
		pid, err := x.host.MachinePID()
		if err != nil {
			d.tb.Fatalf("%v", err)
		}
		d.say("A shell on %s, in another terminal:\n    %s %d -- bash", x.host.Name, sudo, pid)
	}
	d.say(`Try there:
    liqo-agent peers watch            liqo-agent status          liqo-agent peers history
    liqo-agent invite                 liqo-agent key rotate      liqo-agent peers disconnect box-b
    kubectl get foreignclusters       kubectl get fc -o yaml --show-managed-fields
    kubectl edit clusterconfigs       liqo-agent config show
    ip link set eth0 down             ip address add 192.0.2.99/24 dev eth0`)
	<-d.ctx.Done()
	fmt.Println()
}
