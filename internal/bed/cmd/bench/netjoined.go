//go:build linux

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"

	"liqo.io/agent/agent/control"
	"liqo.io/agent/internal/traffic"
)

// measureNetworkJoined measures two whole clusters: from joined to the first packet, what a restart of an agent does to a
// transfer, and what the network costs at rest.
func measureNetworkJoined(r *scenarioRun) {
	p := r.newPair("")
	p.forward()
	p.y.cli("peers", "accept", p.xID, "--yes")
	p.x.cli("peers", "trust", p.yID, "--yes")
	p.firstPackets()
	p.share()
	p.restarts()
	p.networkAtRest()
}

// forward has both hosts forward packets.
func (p *pair) forward() {
	for _, o := range []*box{p.x, p.y} {
		if _, err := o.host.Run(p.Context(), "sh", "-ec", usual+"echo 1 > /proc/sys/net/ipv4/ip_forward"); err != nil {
			p.Fatalf("%v", err)
		}
	}
}

// firstPackets connects and disconnects. The addresses are the same each time, because nobody else wants them. They are
// stored each time, too, and after ten of these writes an agent leaves those for a peer for later.
func (p *pair) firstPackets() {
	const rounds = 4
	var took spread
	var there netip.Addr
	for i := range rounds + 1 {
		var first <-chan time.Time
		ctx, cancel := context.WithTimeout(p.Context(), time.Minute)
		if i > 0 {
			first = p.answered(ctx, there)
		}
		p.x.cli("peers", "connect", p.yID, "--no-wait")
		joined := p.x.since("the offer", p.yID, accepted)
		if i == 0 { // which address it is
			there = p.x.connected(p.yID).Addr().Next()
		} else {
			select {
			case at := <-first:
				took = append(took, max(0, at.Sub(joined)))
			case <-ctx.Done():
				p.Fatalf("no packet came back from %s within a minute after joining\n%s", there, p.x.agent.Log())
			}
		}
		cancel()
		p.x.cli("peers", "disconnect", p.yID)
		p.x.since("parting", p.yID, parted)
		p.await(time.Minute, "the network is gone", func() error {
			for _, o := range []*box{p.x, p.y} {
				if _, err := o.host.Run(p.Context(), "ip", "link", "show", "liqo0"); err == nil {
					return fmt.Errorf("%s has its device", o.host.Name)
				}
			}
			return nil
		})
	}
	p.add("network: joined to the first packet there and back", "median at most 300 ms", took.String(),
		fmt.Sprintf("%d rounds; the offer seen by the API server to the answer to a ping, of which one goes out every 2 ms; %s; %s", rounds, twoKube, here()))
}

// connected waits until packets pass to a peer, and returns the addresses of its pods here.
func (x *box) connected(id string) (theirs netip.Prefix) {
	x.r.await(time.Minute, "packets pass to "+id, func() error {
		var all control.Network
		out, err := x.host.Run(x.r.Context(), x.bin, "network", "list", "-o", "json")
		if err == nil {
			err = json.Unmarshal([]byte(out), &all)
		}
		if err != nil {
			return err
		}
		i := slices.IndexFunc(all.Peers, func(p control.NetworkPeer) bool { return p.ID == id })
		if i < 0 || all.Peers[i].State != "Connected" || len(all.Peers[i].Theirs) == 0 {
			return fmt.Errorf("it is %+v", all)
		}
		theirs, err = netip.ParsePrefix(all.Peers[i].Theirs[0])
		return err
	})
	return theirs
}

// answered pings an address from the consumer until an answer comes, and returns when.
func (p *pair) answered(ctx context.Context, to netip.Addr) <-chan time.Time {
	var c net.PacketConn
	if err := p.x.host.Do(func() (err error) { c, err = net.ListenPacket("ip4:icmp", "0.0.0.0"); return err }); err != nil {
		p.Fatalf("%v", err)
	}
	at := make(chan time.Time, 1)
	question, err := (&icmp.Message{Type: ipv4.ICMPTypeEcho, Body: &icmp.Echo{ID: 4711, Data: []byte("here?")}}).Marshal(nil)
	if err != nil {
		p.Fatalf("%v", err)
	}
	context.AfterFunc(ctx, func() { _ = c.Close() })
	go func() {
		for ctx.Err() == nil {
			_, _ = c.WriteTo(question, &net.IPAddr{IP: to.AsSlice()}) // there may be no route yet
			time.Sleep(2 * time.Millisecond)
		}
	}()
	go func() {
		buffer := make([]byte, 1500)
		for {
			n, from, err := c.ReadFrom(buffer)
			if err != nil {
				return
			}
			m, err := icmp.ParseMessage(1, buffer[:n])
			if err == nil && m.Type == ipv4.ICMPTypeEchoReply && from.String() == to.String() {
				at <- time.Now()
				return
			}
		}
	}()
	return at
}

// restarts has agents end and start while something is transferred to a pod at the provider.
func (p *pair) restarts() {
	var uid string
	for _, name := range []string{"first", "sink"} { // kwok gives the first one the address of the bridge
		uid = p.create(name, p.onProvider())
		p.mine.awaitUID(p.scenarioRun, "it runs", uid, isReady)
	}
	guest := p.theirs.byOrigin(p.scenarioRun)[uid][0]
	var pod struct{ Status struct{ PodIP string } }
	if err := json.Unmarshal(p.y.request("GET", "/api/v1/namespaces/"+guest.namespace+"/pods/"+guest.name, ""), &pod); err != nil {
		p.Fatalf("%v", err)
	}
	at, err := netip.ParseAddr(pod.Status.PodIP)
	if err != nil {
		p.Fatalf("the pod's address: %v", err)
	}
	sink := p.startPod(p.y.host, at) // kwok runs no containers
	known := p.x.connected(p.yID).Addr().As4()
	known[3] = at.As4()[3]
	to := netip.AddrPortFrom(netip.AddrFrom4(known), 9999).String()
	for _, o := range []struct {
		name string
		box  *box
	}{{"consumer's", p.x}, {"provider's", p.y}} {
		var gap, calm numbers
		for range 3 {
			ctx, end := context.WithCancel(p.Context())
			var s *traffic.Streams
			p.await(time.Minute, "a stream to the pod", func() error {
				return p.x.host.Do(func() (err error) { s, err = traffic.Open(ctx, 1, to); return err })
			})
			quiet, stop := context.WithTimeout(ctx, time.Second)
			before, err := s.Measure(quiet)
			stop()
			if err != nil || before.Bytes[to] == 0 {
				p.Fatalf("%d bytes came in a second, %v", before.Bytes[to], err)
			}
			result := make(chan traffic.Result, 1)
			go func() {
				got, err := s.Measure(ctx)
				if err != nil {
					p.Errorf("%v", err)
				}
				result <- got
			}()
			if err := o.box.agent.Kill(); err != nil {
				p.Fatalf("%v", err)
			}
			o.box.start()
			p.x.connected(p.yID)
			p.pause(time.Second) // until TCP notices
			end()
			after := <-result
			s.Close()
			gap, calm = append(gap, after.Gap), append(calm, before.Gap)
		}
		p.add("network: the "+o.name+" agent is killed and starts: gap in a TCP transfer", "at most 2 s", gap.show("%.2f")+" s",
			fmt.Sprintf("3 rounds; the longest time in which nothing was acknowledged, from the kill on; before it %s s; %s", calm.show("%.3f"), here()))
	}
	if err := sink.Kill(); err != nil {
		p.Fatalf("%v", err)
	}
}

// networkAtRest counts what is written while packets could pass.
func (p *pair) networkAtRest() {
	const window = time.Minute
	p.pause(15 * time.Second)
	before := p.count()
	p.pause(window)
	after := p.count()
	for i, side := range []string{"consumer", "provider"} {
		wanted := "0"
		if i == 0 {
			wanted = "the lease only: 2 or 3"
		}
		p.add("network at rest, "+side+": API writes", wanted, fmt.Sprint(after.own[i]-before.own[i]), fmt.Sprintf("%v, connected, with a pod; the lease of the virtual node is renewed every 25 s", window))
		p.add("network at rest, "+side+": SQLite transactions", "0", fmt.Sprint(after.sqlite[i]-before.sqlite[i]), window.String())
	}
}
