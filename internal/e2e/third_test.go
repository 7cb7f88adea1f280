package e2e

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	discoveryv1 "k8s.io/api/discovery/v1"

	"liqo.io/agent/agent/control"
)

// third is another provider of A, which knows nothing of B, with a pod of A's.
type third struct {
	*pair
	c        *box
	at, away netip.Addr // the pod as B knows it, and pod away as the other provider does
}

// third adds the provider, with Service all for the pods of A in all three clusters.
func (p *pair) third(more string) *third {
	a, t := p.a, p.a.t
	t.Helper()
	c := newClusters(t, p.bed, "cedar")[0]
	if err := errors.Join(c.kube.StartControllers(t.Context()), c.kube.StartKubelet(t.Context())); err != nil {
		t.Fatal(err)
	}
	c.configure(more)
	c.start()
	a.awaitFC("appears", c.id(), reachable)
	c.awaitFC("appears", p.aID, reachable)
	(&pair{bed: p.bed, a: a, b: c, aID: p.aID, bID: c.id()}).join()
	a.awaitNode(c.asNode(), true)
	// The Docker of this bed's K3s forwards nothing that a person does not allow.
	a.shell("iptables -w -I FORWARD -i liqo0 -j ACCEPT")
	a.apply("apiVersion: v1\nkind: Pod\nmetadata: {name: third, namespace: shop, labels: {app: web}}\nspec:\n      nodeSelector: {kubernetes.io/hostname: " + c.asNode() + "}" + shopPod +
		"---\napiVersion: v1\nkind: Service\nmetadata: {name: all, namespace: shop}\nspec: {clusterIP: None, selector: {app: web}, ports: [{port: 8080}]}\n")
	a.awaitAddress("third")
	x := &third{pair: p, c: c}
	for at, to := range map[*box]*netip.Addr{p.b: &x.at, c: &x.away} {
		at.eventually("it knows the pod at the other provider", func() error {
			known, err := x.thirds(at)
			for addr, ready := range known {
				if *to = addr; !ready {
					err = fmt.Errorf("%s is not ready", addr)
				}
			}
			if err == nil && len(known) != 1 {
				err = fmt.Errorf("it knows %v", known)
			}
			return err
		})
	}
	return x
}

// thirds are the addresses of Service all at a provider that are of pods at the other one, and whether they are ready.
func (x *third) thirds(at *box) (map[netip.Addr]bool, error) {
	found, err := list[discoveryv1.EndpointSlice](at, "/apis/discovery.k8s.io/v1/endpointslices?labelSelector=kubernetes.io/service-name%3Dall")
	out := make(map[netip.Addr]bool)
	for _, slice := range found {
		for _, e := range slice.Endpoints {
			// Blocks are the lower and the upper half of a /23.
			if addr := netip.MustParseAddr(e.Addresses[0]); netip.MustParsePrefix("241.0.0.0/8").Contains(addr) && addr.As4()[2]%2 == 1 {
				out[addr] = e.Conditions.Ready != nil && *e.Conditions.Ready
			}
		}
	}
	return out, err
}

// deny: nobody else at B reaches the pod at the other provider, which B does not know.
func (x *third) deny() {
	t := x.a.t
	t.Helper()
	for what, script := range map[string]string{
		"a pod of B": fmt.Sprintf("kubectl exec -n private own -- nc -w 2 %s 8080 </dev/null", x.at),
		"B's host":   fmt.Sprintf("nc -w 2 %s 8080 </dev/null", x.at),
	} {
		if out, err := x.b.tryShell(script); err == nil {
			t.Errorf("%s reaches a pod at the other provider: %s", what, out)
		}
	}
	for _, at := range []*box{x.b, x.c} {
		if known, err := cliJSON[control.Network](at, "network", "list"); err != nil || len(known.Peers) != 1 || known.Peers[0].ID != x.aID {
			t.Errorf("%s is connected with more than A: %+v, %v", at.host.Name, known.Peers, err)
		}
	}
}

// datagrams: a pod at one provider asks one at the other over UDP, until it is answered.
func (x *third) datagrams() {
	t := x.a.t
	t.Helper()
	var server net.PacketConn
	if err := x.c.host.InPod("third", func() (err error) { server, err = net.ListenPacket("udp4", fmt.Sprintf(":%d", echoPort)); return err }); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = server.Close() }()
	go func() {
		buffer := make([]byte, 100)
		for {
			_, from, err := server.ReadFrom(buffer)
			if err != nil {
				return
			}
			_, _ = server.WriteTo([]byte(from.(*net.UDPAddr).AddrPort().Addr().Unmap().String()+"\n"), from)
		}
	}()
	x.a.eventually("a datagram is answered", func() error {
		var c net.Conn
		if err := x.b.host.InPod("away", func() (err error) {
			c, err = net.Dial("udp", netip.AddrPortFrom(x.at, echoPort).String())
			return err
		}); err != nil {
			return err
		}
		defer func() { _ = c.Close() }()
		if by, err := who(c, "udp"); err != nil || by != x.away.String() {
			return fmt.Errorf("it came from %q, want %s: %w", by, x.away, err)
		}
		return nil
	})
}

// cut: while A does not reach the other provider, the pod there is not ready at B.
func (x *third) cut() {
	b := x.b
	b.t.Helper()
	ready := func(want bool) {
		b.t.Helper()
		b.eventually(fmt.Sprintf("the pod at the other provider is ready: %v", want), func() error {
			known, err := x.thirds(b)
			if is, there := known[x.at]; err == nil && (!there || is != want || len(known) != 1) {
				err = fmt.Errorf("B knows %v", known)
			}
			return err
		})
	}
	x.c.host.Link("eth0").Unplug()
	ready(false)
	x.c.host.Link("eth0").Plug()
	ready(true)
}

// leave has A disconnect from the other provider, and waits until B knows nothing of its pod.
func (x *third) leave() {
	x.a.mustCLI("peers", "disconnect", x.c.id())
	x.b.eventually("B does not know the pod at the other provider", func() error {
		known, err := x.thirds(x.b)
		if err == nil && len(known) > 0 {
			err = fmt.Errorf("it knows %v", known)
		}
		return err
	})
}
