//go:build linux

package integration

import (
	"context"
	"net"
	"os"
	"strings"
	"testing"

	"liqo.io/agent/internal/bed"
)

func TestStoppedAgentAndPort(t *testing.T) {
	t.Parallel()
	x := newBox(t, bed.New(t), "alder", "10.77.0.1", quiet)
	r := x.finds("agent-stopped")
	says(t, r, "mdns-port", "free")
	says(t, r, "multicast", "no other cluster answers")
	says(t, r, "state", "has not run yet")

	// Somebody who shares the port is no trouble; somebody who does not is.
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	avahi := x.host.StartAvahi(ctx)
	r = x.finds("agent-stopped")
	says(t, r, "mdns-port", "shared with avahi-daemon (process ")
	if err := avahi.Stop(); err != nil {
		t.Fatal(err)
	}
	var held net.PacketConn
	if err := x.host.Do(func() (err error) { held, err = net.ListenPacket("udp4", ":5353"); return err }); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = held.Close() }() // nothing was sent
	r = x.finds("agent-stopped", "mdns-port")
	name, err := os.ReadFile("/proc/self/comm")
	if err != nil {
		t.Fatal(err)
	}
	says(t, r, "mdns-port", strings.TrimSpace(string(name))+" (process ")
}

func TestLinks(t *testing.T) {
	t.Parallel()
	x := newBox(t, bed.New(t), "alder", "10.77.0.1", quiet).start()
	eth0 := x.host.Link("eth0")
	eth0.DelAddress("10.77.0.1/24")
	x.finds("only-link-local")
	eth0.AddAddress("10.42.0.77/16")
	x.finds("network-overlap")
	eth0.DelAddress("10.42.0.77/16")
	eth0.Down()
	x.finds("no-links")
}

func TestMulticastBlocked(t *testing.T) {
	t.Parallel()
	b := bed.New(t)
	x, y := newBox(t, b, "alder", "10.77.0.1", quiet).start(), newBox(t, b, "birch", "10.77.0.2", quiet)
	y.nft("table inet filter { chain input { type filter hook input priority 0; iifname eth0 udp dport 5353 drop\n}\n chain output { type filter hook output priority 0; oifname eth0 udp dport 5353 drop\n}\n}")
	y.start()
	r := y.finds("multicast-unsent")
	says(t, r, "multicast", "a firewall rule drops them: table inet filter chain output oifname")

	// Now it can send, and hears nothing.
	y.nft("delete chain inet filter output")
	r = y.finds("multicast-blocked")
	says(t, r, "multicast", "a firewall rule drops them: table inet filter chain input iifname")

	// The other one is in order, but does not hear the silent one.
	y.nft("table inet filter { chain output { type filter hook output priority 0; oifname eth0 udp dport 5353 drop\n}\n}")
	id := y.status().Identity.ClusterID
	x.eventually("connects to birch by URL", func() error {
		_, err := x.run("peers", "connect", "https://10.77.0.2:6447", "--yes", "--no-wait")
		return err
	})
	x.eventually("sees birch", func() error { _, err := x.run("peers", "show", id); return err })
	x.eventually("does not hear birch any more", func() error { return unheard(x, id) })
	x.finds("multicast-isolated")
}

func TestEndpointFirewalled(t *testing.T) {
	t.Parallel()
	b := bed.New(t)
	x, y := newBox(t, b, "alder", "10.77.0.1", quiet).start(), newBox(t, b, "birch", "10.77.0.2", quiet).start()
	x.meet(y)
	y.meet(x)
	r := x.finds()
	says(t, r, "endpoint", "birch can connect to it")

	x.nft("table inet filter { chain input { type filter hook input priority 0; iifname eth0 tcp dport 6447 drop\n}\n}")
	r = x.finds("endpoint-unreachable")
	says(t, r, "endpoint", "birch (timed-out at 10.77.0.1:6447); a firewall rule drops them: table inet filter chain input iifname")

	x.nft("flush ruleset\ntable inet filter { chain input { type filter hook input priority 0; iifname eth0 tcp dport 6447 reject with tcp reset\n}\n}")
	r = x.finds("endpoint-unreachable")
	says(t, r, "endpoint", "birch (refused at 10.77.0.1:6447)")
}

func TestOneIDTwice(t *testing.T) {
	t.Parallel()
	b := bed.New(t)
	x, y := newBox(t, b, "alder", "10.77.0.1", quiet).start(), newBox(t, b, "birch", "10.77.0.2", quiet)
	copyState(t, x, y, "cluster.key")
	y.start()
	x.eventually("hears birch", func() error { return heardAs(x, "10.77.0.2") })
	x.finds("id-conflict")
	y.stop()

	copyState(t, x, y)
	y.start()
	x.eventually("hears the clone", func() error { return heardAs(x, "10.77.0.2") })
	x.finds("id-clone")
}
